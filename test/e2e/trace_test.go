package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/otlptest"
)

// The spans of one request on their way, as services name them.
const (
	restServer   = "epigraph-gateway/POST /v1/runs"
	startClient  = "epigraph-gateway/epigraph.executor.v1.ExecutorService/StartRun"
	startServer  = "epigraph-executor/epigraph.executor.v1.ExecutorService/StartRun"
	runStart     = "epigraph-executor/run.start"
	attempt      = "epigraph-executor/invoke llm"
	chat         = "epigraph-executor/chat gpt-4o-mini"
	outgoingHTTP = "epigraph-executor/HTTP POST"
)

// traceTrip follows one request through every hop, in what the services really exported.
func traceTrip(t *testing.T, s *suite, store string) {
	const caller, callerSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	_, taskID := s.account(t)
	var started run
	header := s.ask(t, request{
		path: "/v1/runs", body: map[string]any{"graph": s.compile(t, tripPlan), "taskId": taskID},
		header: map[string]string{"Traceparent": "00-" + caller + "-" + callerSpan + "-01"},
	}, &started)
	require.Equal(t, caller, header.Get("X-Trace-Id"))
	require.Equal(t, caller, started.TraceID)
	require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, started.ID).State)

	write := "epigraph-registry/sqlite.update"
	if store == "postgres" {
		write = "epigraph-registry/INSERT"
	}
	booking := func(what, method, write string) []string {
		rpc := "epigraph.registry.v1.RegistryService/" + method
		return []string{"epigraph-executor/outbox." + what, "epigraph-executor/" + rpc, "epigraph-registry/" + rpc, write}
	}
	count := func(spans []otlptest.Span, step string) (n int) {
		for _, p := range spans {
			if p.Service+"/"+p.Name == step && p.TraceID == caller {
				n++
			}
		}
		return n
	}
	settle := booking("settle", "SettleClaim", "")
	s.otlp.Wait(t, timeout, "trace with all its ends", func(spans []otlptest.Span) bool {
		return count(spans, attempt) == tripProblems && count(spans, restServer) == 1 && count(spans, settle[2]) == 1 &&
			// the executor sends its part later than the registry
			count(spans, settle[1]) == 1 && count(spans, settle[0]) == 1
	})

	top := []string{restServer, startClient, startServer, runStart}
	call := s.otlp.RequirePath(t, caller, append(top, attempt, chat, outgoingHTTP)...)
	require.Equal(t, callerSpan, call[0].ParentID, "the caller's span is the gateway's parent")
	for i, kind := range []string{"server", "client", "server", "internal", "internal", "client", "client"} {
		require.Equal(t, kind, call[i].Kind, call[i].Name)
	}
	model := call[5].Attrs
	require.Equal(t, "chat", model["gen_ai.operation.name"])
	require.Equal(t, "gpt-4o-mini", model["gen_ai.request.model"])
	require.Equal(t, "1000", model["gen_ai.usage.input_tokens"])
	for key := range model {
		require.NotContains(t, key, "messages", "content is captured only when asked for")
	}

	// The call to the registry before the answer, and the one through the outbox after it.
	claim := "epigraph.registry.v1.RegistryService/ClaimTask"
	s.otlp.RequirePath(t, caller, append(top, "epigraph-executor/"+claim, "epigraph-registry/"+claim)...)
	s.otlp.RequirePath(t, caller, append(append(top, attempt), booking("usage", "RecordUsage", write)...)...)
	s.otlp.RequirePath(t, caller, append(top, booking("confirm", "ConfirmClaim", "")[:3]...)...)
	s.otlp.RequirePath(t, caller, append(top, booking("settle", "SettleClaim", "")[:3]...)...)

	// Nothing is outside of the tree: every span has a parent in the trace, and none failed.
	spans := s.otlp.Trace(caller)
	known := map[string]bool{callerSpan: true}
	for _, p := range spans {
		known[p.SpanID] = true
	}
	for _, p := range spans {
		require.True(t, known[p.ParentID], "%s/%s has no parent in\n%s", p.Service, p.Name, otlptest.Tree(spans))
		require.False(t, p.Failed, "%s/%s", p.Service, p.Name)
	}

	t.Logf("%d spans arrived:\n%s", len(spans), otlptest.Tree(spans))

	// The model server received the trace as well, with the span that called it.
	told := false
	for _, r := range s.model.Requests() {
		told = told || strings.HasPrefix(r.Header.Get("Traceparent"), "00-"+caller+"-"+call[6].SpanID)
	}
	require.True(t, told)

	// Log lines lead to the trace.
	require.Contains(t, s.procs["gateway"].output(), caller)
	require.Contains(t, s.procs["registry"].output(), caller)

	// A request without a trace gets one of its own.
	_, own, _ := s.exchange(t, request{method: http.MethodGet, path: "/v1/epics"})
	require.Len(t, own.Get("X-Trace-Id"), 32)
	require.NotEqual(t, caller, own.Get("X-Trace-Id"))
}

// asks is an agent that asks a person once and gives the answer.
const asks = `{"graph":{"name":"asks","nodes":[{"id":"agent","actor":"agent","named":{"goal":"ask","reasoner":"cel",
	"reasoner_args":{"expr":"named.round == 1 ? dyn({'actions': [[{'action': 'ask', 'arguments': {'prompt': 'well?'}}]]}) : dyn({'result': 'asked'})"},
	"actions":{"ask":{"actor":"human"}}}}]}}`

// traceRestart follows an agent's run and the run below it through a wait, a restart of the executor and the
// answer of a person.
func traceRestart(t *testing.T, s *suite) {
	const asked, answered = "1af7651916cd43dd8448eb211c803191", "2af7651916cd43dd8448eb211c803192"
	from := func(trace string) map[string]string {
		return map[string]string{"Traceparent": "00-" + trace + "-b7ad6b7169203331-01"}
	}
	var top run
	s.ask(t, request{path: "/v1/runs", body: asks, header: from(asked)}, &top)
	var open struct {
		Interrupts []struct{ ID, RunID string }
	}
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + top.ID + "/interrupts"}, &open)
		return len(open.Interrupts) == 1
	})
	below := open.Interrupts[0].RunID
	require.NotEqual(t, top.ID, below)
	s.procs["executor"].stop(t)
	s.restart(t, "executor")
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool { // the gateway finds it again
		status, _ := s.do(t, request{path: "/v1/runs/" + top.ID})
		return status == http.StatusOK
	})
	s.ask(t, request{path: "/v1/interrupts/" + open.Interrupts[0].ID + ":answer", body: `{"answer":"so"}`, header: from(answered)}, nil)
	require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, top.ID).State)

	of := func(spans []otlptest.Span, runID, name string) (out []otlptest.Span) {
		for _, p := range spans {
			if p.Name == name && p.Attrs["epigraph.run.id"] == runID {
				out = append(out, p)
			}
		}
		return out
	}
	const answer = "epigraph.executor.v1.ExecutorService/AnswerInterrupt"
	spans := s.otlp.Wait(t, timeout, "the traces of both runs", func(spans []otlptest.Span) bool {
		return len(of(spans, below, "run.command")) > 0 && len(of(spans, top.ID, "run.resume")) > 0 && len(of(spans, top.ID, "run.continued")) > 0 &&
			len(of(spans, below, "run.continued")) > 0 && len(of(spans, below, "run.resume")) > 0 && len(of(spans, below, "invoke_agent agent")) > 0 && len(of(spans, below, answer)) > 0
	})
	first := s.otlp.Trace(asked)

	// The run below hangs below the call that asked for it.
	way := s.otlp.RequirePath(t, asked, "epigraph-executor/run.start", "epigraph-executor/invoke agent", "epigraph-executor/run.start", "epigraph-executor/invoke cel")
	require.Equal(t, top.ID, way[1].Attrs["epigraph.run.id"])
	require.Equal(t, below, way[2].Attrs["epigraph.run.id"])
	s.otlp.RequirePath(t, asked, "epigraph-executor/run.start", "epigraph-executor/execute_tool ask")

	// The agent has one span, from before the restart to its end.
	invoked := of(spans, below, "invoke_agent agent")
	require.Len(t, invoked, 1)
	require.Equal(t, []string{asked, way[2].SpanID}, []string{invoked[0].TraceID, invoked[0].ParentID})
	require.Len(t, invoked[0].Links, 1)
	require.False(t, invoked[0].Failed)

	// Both went on in new traces; each links to the first one, and the first one to each.
	for _, id := range []string{top.ID, below} {
		for _, resume := range of(spans, id, "run.resume") {
			require.Empty(t, resume.ParentID, "%s is a root", resume.Name)
			require.NotEqual(t, asked, resume.TraceID)
			require.Equal(t, []string{asked}, resume.Links)
		}
		var known []string
		for _, p := range of(first, id, "run.continued") {
			known = append(known, p.Links...)
		}
		for _, resume := range of(spans, id, "run.resume") {
			require.Contains(t, known, resume.TraceID)
		}
	}

	// The answering request is linked to the run, and the run to that request.
	require.Contains(t, of(spans, below, answer)[0].Links, asked)
	require.Equal(t, answered, of(spans, below, answer)[0].TraceID)
	require.True(t, slices.ContainsFunc(of(spans, below, "run.command"), func(p otlptest.Span) bool {
		return p.Attrs["epigraph.command"] == "ANSWER" && slices.Contains(p.Links, answered)
	}), "no span of the run names the trace of the answer")
	t.Logf("first trace:\n%s", otlptest.Tree(first))
}
