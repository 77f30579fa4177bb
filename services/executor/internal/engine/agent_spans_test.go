package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// named are all spans of this name.
func (tr tracer) named(name string) (out tracetest.SpanStubs) {
	for _, s := range tr.GetSpans() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// started is the span that started a run. The starter of a child may learn of its start after the child has
// run.
func (tr tracer) started(t *testing.T, runID string) tracetest.SpanStub {
	t.Helper()
	testkit.Eventually(t, func() bool { return len(tr.of(runID, "run.start")) > 0 })
	return tr.one(t, runID, "run.start")
}

// runOf is the run of a span.
func runOf(s tracetest.SpanStub) string { return attributesOf(s)["epigraph.run.id"] }

func attributesOf(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, kv := range s.Attributes {
		out[string(kv.Key)] = kv.Value.String()
	}
	return out
}

// histogram are the counts of a histogram by their labels.
func histogram(t *testing.T, reader *sdkmetric.ManualReader, name string) map[string]uint64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	out := map[string]uint64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == name {
				for _, p := range h.DataPoints {
					out[p.Attributes.Encoded(attribute.DefaultEncoder())] += p.Count
				}
			}
		}
	}
	return out
}

func TestAgentSpans(t *testing.T) {
	t.Parallel()
	observed := func(t *testing.T, own actors) (tracer, *sdkmetric.ManualReader, *live) {
		tr, reader, s := newTracer(), sdkmetric.NewManualReader(), sqliteStore(t)
		l := run(t, s, agents(t, s, own), tr.option, func(_ *engine.Config, d *engine.Deps) {
			d.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		l.jobs(t)
		return tr, reader, l
	}
	t.Run("Branches/EachToolAndEachAgentHasOneSpan", func(t *testing.T) {
		t.Parallel()
		did := func(prompt, action string) bool { return strings.Contains(prompt, "<ActionType>"+action+"<") }
		tr, reader, l := observed(t, actors{
			"ok": &recorder{},
			"no": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NOT_TODAY", "no")
			}),
			"reasoner": decides(func(prompt string) string {
				switch {
				case did(prompt, "b"):
					return `{"result": "done"}`
				case did(prompt, "a"):
					return `{"actions": [["b", "fails"]]}`
				}
				return `{"actions": ["a"]}`
			}),
		})
		id := l.start(t, agentOf(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"a": {"actor": "ok"}, "b": {"actor": "ok"}, "fails": {"actor": "no"}}}`))
		l.wait(t, id, journal.StateCompleted)
		testkit.Eventually(t, func() bool { return len(tr.named("invoke_agent agent")) == 2 })
		for _, tool := range []string{"a", "b", "fails"} {
			spans := tr.named("execute_tool " + tool)
			require.Len(t, spans, 1, tool)
			requireBelow(t, tr.started(t, runOf(spans[0])), spans[0])
			got := attributesOf(spans[0])
			require.Equal(t, []string{"execute_tool", tool, "function", "agent"},
				[]string{got["gen_ai.operation.name"], got["gen_ai.tool.name"], got["gen_ai.tool.type"], got["gen_ai.agent.name"]})
			require.Contains(t, got["gen_ai.conversation.id"], "thr_")
			require.NotContains(t, got, "gen_ai.tool.call.id", "the prompt form has no ids")
			require.Equal(t, tool == "fails", spans[0].Status.Code == codes.Error)
			if tool == "fails" {
				require.Equal(t, []string{"NOT_TODAY", "NOT_TODAY"}, []string{got["error.type"], spans[0].Status.Description}, "the words of a tool are content")
			}
		}
		require.NotEmpty(t, tr.named("invoke reasoner"), "what is no tool is called as in any run")
		threads := map[string]bool{}
		for _, invoked := range tr.named("invoke_agent agent") {
			requireBelow(t, tr.started(t, runOf(invoked)), invoked)
			require.Equal(t, l.row(t, runOf(invoked)).CreateTime, invoked.StartTime.UTC())
			got := attributesOf(invoked)
			require.Equal(t, []string{"invoke_agent", "agent"}, []string{got["gen_ai.operation.name"], got["gen_ai.agent.name"]})
			require.NotContains(t, got, "error.type")
			threads[got["gen_ai.conversation.id"]] = true
		}
		require.Len(t, threads, 2, "a branch has a thread of its own")
		require.Equal(t, map[string]uint64{
			"gen_ai.agent.name=agent,gen_ai.tool.name=ok,gen_ai.tool.type=function":                      2,
			"error.type=PERMANENT,gen_ai.agent.name=agent,gen_ai.tool.name=no,gen_ai.tool.type=function": 1,
		}, histogram(t, reader, "gen_ai.execute_tool.duration"), "the tools of an agent that a graph defines count under their actors")
		require.Equal(t, map[string]uint64{"gen_ai.agent.name=agent,gen_ai.operation.name=invoke_agent": 2}, histogram(t, reader, "gen_ai.invoke_agent.duration"))
	})
	for name, c := range map[string]struct {
		end    func(t *testing.T, l *live, id string)
		state  journal.State
		failed string
	}{
		"Answered": {end: func(t *testing.T, l *live, id string) { l.answer(t, l.questions(t, id, 1)) }, state: journal.StateCompleted},
		"Canceled": {end: func(t *testing.T, l *live, id string) {
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
		}, state: journal.StateCanceled, failed: "CANCELED"},
	} {
		t.Run("Wait/OneSpanOverItIsWrittenAtTheEnd/"+name, func(t *testing.T) {
			t.Parallel()
			tr, reader, l := observed(t, actors{
				"ok": &recorder{}, "person": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"well?"`)}}),
				"reasoner": &reasoner{script: []string{`["ask"]`, `{"result": "all"}`}},
			})
			id := l.start(t, agentOf(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"ask": {"actor": "person"}}}`))
			below := l.waitingChild(t, id)
			l.evicted(t, below, journal.StateWaiting)
			require.Empty(t, tr.named("invoke_agent agent"), "it is at work")
			c.end(t, l, id)
			l.wait(t, id, c.state)
			testkit.Eventually(t, func() bool { return len(tr.named("invoke_agent agent")) == 1 })
			invoked := tr.one(t, below, "invoke_agent agent")
			requireBelow(t, tr.one(t, below, "run.start"), invoked)
			requireLink(t, invoked, requireContinued(t, tr, below))
			require.Equal(t, l.row(t, below).CreateTime, invoked.StartTime.UTC())
			require.False(t, invoked.EndTime.Before(l.row(t, below).EndTime))
			require.Equal(t, c.failed, attributesOf(invoked)["error.type"])
			require.Len(t, tr.named("execute_tool ask"), 1)
			require.Empty(t, histogram(t, reader, "gen_ai.execute_tool.duration"), "the call says nothing of how long a person takes")
			labels := "gen_ai.agent.name=agent,gen_ai.operation.name=invoke_agent"
			if c.failed != "" {
				labels = "error.type=" + c.failed + "," + labels
			}
			require.Equal(t, map[string]uint64{labels: 1}, histogram(t, reader, "gen_ai.invoke_agent.duration"))
		})
	}
	t.Run("Failure/IsThatOfTheRun", func(t *testing.T) {
		t.Parallel()
		tr, reader, l := observed(t, actors{"ok": &recorder{}, "reasoner": &reasoner{fails: func(int) error { return workgraph.Errorf(workgraph.Permanent, "NO_IDEA", "it has none") }}})
		id := l.start(t, agentOf(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"a": {"actor": "ok"}}}`))
		l.wait(t, id, journal.StateFailed)
		testkit.Eventually(t, func() bool { return len(tr.named("invoke_agent agent")) == 1 })
		invoked := tr.named("invoke_agent agent")[0]
		require.Equal(t, codes.Error, invoked.Status.Code)
		require.Equal(t, l.row(t, runOf(invoked)).Reason, attributesOf(invoked)["error.type"])
		require.Equal(t, map[string]uint64{"error.type=FAILED,gen_ai.agent.name=agent,gen_ai.operation.name=invoke_agent": 1}, histogram(t, reader, "gen_ai.invoke_agent.duration"))
	})
	t.Run("Fork/IsAnInvocationOfItsOwn", func(t *testing.T) {
		t.Parallel()
		own := actors{"ok": &recorder{}, "reasoner": &reasoner{script: []string{`["a"]`, `{"result": "all"}`}}}
		configured, err := agent.Config{"keeper": {Definition: `{"reasoner": "reasoner", "actions": {"a": {"actor": "ok"}}}`}}.Specs(nil)
		require.NoError(t, err)
		own["agent/keeper"] = pureActor{configured[0].Actor}
		tr, reader, l := observed(t, own)
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "agent/keeper", Named: map[string]json.RawMessage{"user_input": json.RawMessage(`"hello"`)}}}})
		l.wait(t, id, journal.StateCompleted)
		loop := l.child(t, id)
		_, body, err := l.j.Graph(t.Context(), ns, loop.ID)
		require.NoError(t, err)
		g, err := workgraph.Decode(body)
		require.NoError(t, err)
		g.Nodes[slices.IndexFunc(g.Nodes, func(n workgraph.Node) bool { return n.ID == "do.a" })].Name = "any name"
		for _, graph := range []*workgraph.Graph{nil, g} {
			fork, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: loop.ID, From: &workgraph.Ref{Node: "do.a", Visit: 1}, Graph: graph})
			require.NoError(t, err)
			l.wait(t, fork, journal.StateCompleted)
			testkit.Eventually(t, func() bool { return len(tr.of(fork, "invoke_agent agent/keeper")) == 1 })
			require.NotContains(t, attributesOf(tr.one(t, fork, "invoke_agent agent/keeper")), "gen_ai.conversation.id", "it may work on a fork of the thread")
		}
		require.Len(t, tr.named("execute_tool a"), 2)
		require.Len(t, tr.named("execute_tool any name"), 1)
		require.Equal(t, map[string]uint64{
			"gen_ai.agent.name=agent/keeper,gen_ai.tool.name=a,gen_ai.tool.type=function":  2,
			"gen_ai.agent.name=agent/keeper,gen_ai.tool.name=ok,gen_ai.tool.type=function": 1,
		}, histogram(t, reader, "gen_ai.execute_tool.duration"), "a name that a caller gave is no label")
	})
	t.Run("Caller/KindOfANodeMakesNoTool", func(t *testing.T) {
		t.Parallel()
		tr, reader, l := observed(t, actors{"ok": &recorder{}})
		g := chain(1, "ok")
		g.Nodes[0].Kind, g.Nodes[0].Name = workgraph.ToolKind, "mine"
		id := l.start(t, g)
		l.wait(t, id, journal.StateCompleted)
		tr.one(t, id, "invoke ok")
		require.Empty(t, histogram(t, reader, "gen_ai.execute_tool.duration"))
	})
	t.Run("Caller/ActorThatIsNoAgentStartsNone", func(t *testing.T) {
		t.Parallel()
		tr, reader, l := observed(t, actors{"ok": &recorder{}, "spawn": spawns(workgraph.Child{Graph: chain(1, "ok"), Agent: &workgraph.AgentRun{Name: "mine"}})})
		id := l.start(t, chain(1, "spawn"))
		l.wait(t, id, journal.StateCompleted)
		require.Empty(t, tr.named("invoke_agent mine"))
		require.Empty(t, histogram(t, reader, "gen_ai.invoke_agent.duration"))
	})
	t.Run("Unsampled/IsCountedWithoutSpans", func(t *testing.T) {
		t.Parallel()
		_, reader, l := observed(t, actors{"ok": &recorder{}, "reasoner": &reasoner{script: []string{`["a"]`, `{"result": "all"}`}}})
		unsampled := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
		id, _, err := l.Start(unsampled, command.StartRequest{Namespace: ns, Graph: agentOf(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"a": {"actor": "ok"}}}`)})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCompleted)
		require.Len(t, histogram(t, reader, "gen_ai.execute_tool.duration"), 1)
		require.Len(t, histogram(t, reader, "gen_ai.invoke_agent.duration"), 1)
	})
}
