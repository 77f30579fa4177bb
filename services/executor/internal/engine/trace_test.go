package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// tracer keeps the spans of all its engines.
type tracer struct {
	*tracetest.InMemoryExporter
	*sdktrace.TracerProvider
}

func newTracer() tracer {
	spans := tracetest.NewInMemoryExporter()
	return tracer{spans, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
}

func (tr tracer) option(_ *engine.Config, d *engine.Deps) { d.TracerProvider = tr.TracerProvider }

// request is the context of a request with a trace of its own, and its span here.
func (tr tracer) request(t *testing.T) (context.Context, trace.Span) {
	t.Helper()
	return tr.Tracer("test").Start(t.Context(), "request", trace.WithNewRoot())
}

// of returns the ended spans of this name about the run, oldest first.
func (tr tracer) of(runID, name string) (out tracetest.SpanStubs) {
	for _, s := range tr.GetSpans() {
		if s.Name == name && slices.Contains(s.Attributes, attribute.String("epigraph.run.id", runID)) {
			out = append(out, s)
		}
	}
	return out
}

// one is the only span of this name about the run.
func (tr tracer) one(t *testing.T, runID, name string) tracetest.SpanStub {
	t.Helper()
	found := tr.of(runID, name)
	require.Len(t, found, 1, "spans %s of run %s", name, runID)
	return found[0]
}

func requireBelow(t *testing.T, parent, child tracetest.SpanStub) {
	t.Helper()
	require.Equal(t, parent.SpanContext.TraceID(), child.SpanContext.TraceID(), "%s and %s are in one trace", parent.Name, child.Name)
	require.Equal(t, parent.SpanContext.SpanID(), child.Parent.SpanID(), "%s is the parent of %s", parent.Name, child.Name)
}

func requireLink(t *testing.T, from, to tracetest.SpanStub) {
	t.Helper()
	for _, l := range from.Links {
		if l.SpanContext.SpanID() == to.SpanContext.SpanID() && l.SpanContext.TraceID() == to.SpanContext.TraceID() {
			return
		}
	}
	require.Fail(t, "no link", "from %s to %s: %v", from.Name, to.Name, from.Links)
}

// requireContinued checks that a run continued in a new trace, once, and that the two traces link to each
// other.
func requireContinued(t *testing.T, tr tracer, id string) (resume tracetest.SpanStub) {
	t.Helper()
	start, resume := tr.one(t, id, "run.start"), tr.one(t, id, "run.resume")
	require.NotEqual(t, start.SpanContext.TraceID(), resume.SpanContext.TraceID())
	require.False(t, resume.Parent.IsValid(), "it is the root of its trace")
	requireLink(t, resume, start)
	to := tr.one(t, id, "run.continued")
	requireBelow(t, start, to)
	requireLink(t, to, resume)
	return resume
}

// noClaims refuses every claim while it is shut.
type noClaims struct{ shut func() bool }

func (c noClaims) Claim(context.Context, string, string, string, time.Duration) (string, error) {
	if c.shut() {
		return "", errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry is away")
	}
	return "", nil
}
func (noClaims) Release(context.Context, string, string, string) error { return nil }

func TestTrace(t *testing.T) {
	t.Parallel()
	t.Run("Restart/TracesLeadToEachOther", func(t *testing.T) {
		t.Parallel()
		tr, s, g := newTracer(), sqliteStore(t), newGate()
		first := run(t, s, actors{"gate": g}, tr.option)
		id := first.start(t, chain(1, "gate"))
		g.next(t)
		first.stop()
		open := newGate()
		close(open.open)
		second := run(t, s, actors{"gate": open}, tr.option)
		second.wait(t, id, journal.StateCompleted)
		second.stop()
		resume := requireContinued(t, tr, id)
		calls := tr.of(id, "invoke gate")
		requireBelow(t, resume, calls[len(calls)-1])
	})
	t.Run("Restart/UnsampledTraceStaysUnsampled", func(t *testing.T) {
		t.Parallel()
		tr, s, g := newTracer(), sqliteStore(t), newGate()
		first := run(t, s, actors{"gate": g}, tr.option)
		unsampled := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
		id, _, err := first.Start(unsampled, command.StartRequest{Namespace: ns, Graph: chain(1, "gate")})
		require.NoError(t, err)
		g.next(t)
		first.stop()
		open := newGate()
		close(open.open)
		second := run(t, s, actors{"gate": open}, tr.option)
		second.wait(t, id, journal.StateCompleted)
		second.stop()
		require.Empty(t, tr.GetSpans())
	})
	t.Run("Pending/BeginsInTheTraceOfItsRequest", func(t *testing.T) {
		t.Parallel()
		tr := newTracer()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}}, tr.option)
		l.jobs(t)
		id := l.start(t, chain(1, "ok"), func(r *command.StartRequest) { r.Pending = true })
		l.wait(t, id, journal.StateCompleted)
		begin := tr.one(t, id, "run.begin")
		requireBelow(t, tr.one(t, id, "run.start"), begin)
		requireBelow(t, begin, tr.one(t, id, "invoke ok"))
	})
	t.Run("Interrupt/IsLinkedWithItsAnswer", func(t *testing.T) {
		t.Parallel()
		tr := newTracer()
		l := run(t, sqliteStore(t), actors{"ask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"well?"`)}})}, tr.option)
		l.jobs(t)
		id := l.start(t, chain(1, "ask"))
		l.evicted(t, id, journal.StateWaiting)
		open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id}, page.Cursor{}, 1)
		require.NoError(t, err)
		ctx, span := tr.request(t)
		_, err = l.Answer(ctx, command.AnswerRequest{Namespace: ns, InterruptID: open[0].ID, Answer: json.RawMessage(`"so"`)})
		require.NoError(t, err)
		span.End()
		l.wait(t, id, journal.StateCompleted)
		resume := requireContinued(t, tr, id)
		answered := tr.one(t, id, "request")
		requireLink(t, answered, tr.one(t, id, "run.start"))
		command := tr.one(t, id, "run.command")
		requireBelow(t, resume, command)
		requireLink(t, command, answered)
		require.Contains(t, command.Attributes, attribute.String("epigraph.command", "ANSWER"))
	})
	t.Run("Webhook/BelongsToTheTraceOfItsEvent", func(t *testing.T) {
		t.Parallel()
		tr, s, g := newTracer(), sqliteStore(t), newGate()
		first := run(t, s, actors{"gate": g}, tr.option)
		id := first.start(t, chain(1, "gate"), func(r *command.StartRequest) { r.Webhooks = []webhook.Hook{{URL: "https://example.com/a"}} })
		g.next(t)
		first.stop()
		open := newGate()
		close(open.open)
		book := &jobBook{jobs: make(chan journal.Job, 10)}
		second := run(t, s, actors{"gate": open}, tr.option, func(_ *engine.Config, d *engine.Deps) { book.Journal, d.Journal = d.Journal, book })
		second.wait(t, id, journal.StateCompleted)
		told := book.args(t)
		require.Len(t, told, 1)
		d, err := second.Deliveries().Of(t.Context(), told[0].Job().Args)
		require.NoError(t, err)
		require.Equal(t, tr.one(t, id, "run.resume").SpanContext.SpanID(), d.Trace.SpanID())
	})
	t.Run("Fork/IsLinkedToWhatItIsAForkOf", func(t *testing.T) {
		t.Parallel()
		tr := newTracer()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}}, tr.option)
		id := l.start(t, chain(1, "ok"))
		l.wait(t, id, journal.StateCompleted)
		fork, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "n0", Visit: 1}})
		require.NoError(t, err)
		requireLink(t, tr.one(t, fork, "run.start"), tr.one(t, id, "run.start"))
	})
	t.Run("Child/SpanIsBelowItsCall", func(t *testing.T) {
		t.Parallel()
		tr := newTracer()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "spawn": spawns(workgraph.Child{Graph: chain(1, "ok")})}, tr.option)
		l.jobs(t)
		ctx, span := tr.request(t)
		id, _, err := l.Start(ctx, command.StartRequest{Namespace: ns, Graph: chain(1, "spawn")})
		require.NoError(t, err)
		span.End()
		l.wait(t, id, journal.StateCompleted)
		child := l.child(t, id)
		// The starter of the child may learn of its start after the child has run.
		testkit.Eventually(t, func() bool { return len(tr.of(child.ID, "run.start")) > 0 })
		start := tr.one(t, child.ID, "run.start")
		requireBelow(t, tr.one(t, id, "invoke spawn"), start)
		requireBelow(t, start, tr.one(t, child.ID, "invoke ok"))
		require.Equal(t, span.SpanContext().TraceID(), start.SpanContext.TraceID())
	})
	t.Run("Child/SpanOfAnAgentIsBelowItsRound", func(t *testing.T) {
		t.Parallel()
		tr := newTracer()
		r := &reasoner{script: []string{`["work"]`, `{"result": "all"}`}}
		s := sqliteStore(t)
		l := run(t, s, agents(t, s, actors{"reasoner": r, "work": &recorder{}, "ok": &recorder{}}), tr.option)
		l.jobs(t)
		id := l.start(t, agentOf(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"work": {}}}`))
		l.wait(t, id, journal.StateCompleted)
		start := tr.one(t, l.child(t, id).ID, "run.start")
		asked := tr.of(id, "invoke agent")
		requireBelow(t, asked[0], start)
		require.Equal(t, tr.one(t, id, "run.start").SpanContext.TraceID(), start.SpanContext.TraceID())
	})
	t.Run("Child/SpanIsBelowItsCallWhenAnotherReplicaStartsIt", func(t *testing.T) {
		t.Parallel()
		tr, s := newTracer(), sqliteStore(t)
		var shut atomic.Bool
		shut.Store(true)
		claims := func(_ *engine.Config, d *engine.Deps) { d.Claims = noClaims{shut.Load} }
		a := actors{"ok": &recorder{}, "spawn": spawns(workgraph.Child{Graph: chain(1, "ok"), TaskID: "tk_1"})}
		first := run(t, s, a, tr.option, claims)
		id := first.start(t, chain(1, "spawn"))
		testkit.Eventually(t, func() bool { return first.row(t, id).State == journal.StateWaiting })
		first.stop()
		shut.Store(false)
		second := run(t, s, a, tr.option, claims)
		second.jobs(t)
		second.wait(t, id, journal.StateCompleted)
		child := second.child(t, id)
		starts := tr.of(child.ID, "run.start") // refused starts are there as well
		asked := tr.one(t, id, "invoke spawn")
		for _, start := range starts {
			requireBelow(t, asked, start)
		}
		requireBelow(t, starts[len(starts)-1], tr.one(t, child.ID, "invoke ok"))
	})
}

func TestTelemetry(t *testing.T) {
	t.Parallel()
	t.Run("Metrics/CarryNoIDs", func(t *testing.T) {
		t.Parallel()
		reader := sdkmetric.NewManualReader()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}}, func(_ *engine.Config, d *engine.Deps) {
			d.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		l.wait(t, l.start(t, chain(3, "ok")), journal.StateCompleted)
		var got metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &got))
		names := map[string]bool{}
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				names[m.Name] = true
				sum, ok := m.Data.(metricdata.Sum[int64])
				if !ok {
					continue
				}
				for _, p := range sum.DataPoints {
					for _, kv := range p.Attributes.ToSlice() {
						require.NotContains(t, kv.Value.String(), "run_", "metric %s", m.Name)
					}
				}
			}
		}
		for _, name := range []string{"epigraph.attempt.schedule_to_start", "epigraph.attempts", "epigraph.runs", "epigraph.runs.live", "epigraph.journal.batch",
			"epigraph.attempts.waiting", "epigraph.outbox.backlog"} {
			require.True(t, names[name], name)
		}
	})
}
