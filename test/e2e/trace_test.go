package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	_, taskID := s.books(t)
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
	s.otlp.Wait(t, patience, "trace with all its ends", func(spans []otlptest.Span) bool {
		return count(spans, attempt) == tripProblems && count(spans, restServer) == 1 && count(spans, settle[2]) == 1 &&
			count(spans, settle[1]) == 1 && count(spans, settle[0]) == 1 // the executor sends its part later than the registry
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

	// What was written to the registry before the answer, and what left through the outbox after it.
	claim := "epigraph.registry.v1.RegistryService/ClaimTask"
	s.otlp.RequirePath(t, caller, append(top, "epigraph-executor/"+claim, "epigraph-registry/"+claim)...)
	s.otlp.RequirePath(t, caller, append(append(top, attempt), booking("usage", "RecordUsage", write)...)...)
	s.otlp.RequirePath(t, caller, append(top, booking("confirm", "ConfirmClaim", "")[:3]...)...)
	s.otlp.RequirePath(t, caller, append(top, booking("settle", "SettleClaim", "")[:3]...)...)

	// Nothing lies beside the tree: every span hangs on another one of the trace, and none failed.
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

	// The model server was told the trace as well, by the span that called it.
	told := false
	for _, r := range s.model.Requests() {
		told = told || strings.HasPrefix(r.Header.Get("Traceparent"), "00-"+caller+"-"+call[6].SpanID)
	}
	require.True(t, told)

	// Log lines lead to the trace.
	require.Contains(t, s.procs["gateway"].output(), caller)
	require.Contains(t, s.procs["registry"].output(), caller)

	// A request of somebody who brings no trace gets one of its own.
	_, own, _ := s.exchange(t, request{method: http.MethodGet, path: "/v1/epics"})
	require.Len(t, own.Get("X-Trace-Id"), 32)
	require.NotEqual(t, caller, own.Get("X-Trace-Id"))
}
