package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestTelemetry(t *testing.T) {
	t.Parallel()
	t.Run("Trace/ARunThatIsTakenUpAgainIsLinked", func(t *testing.T) {
		t.Parallel()
		spans := tracetest.NewInMemoryExporter()
		traced := func(_ *engine.Config, d *engine.Deps) {
			d.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		}
		s := sqliteStore(t)
		g := newGate()
		first := run(t, s, actors{"gate": g}, traced)
		id := first.start(t, chain(1, "gate"))
		g.next(t)
		first.stop()
		open := newGate()
		close(open.open)
		second := run(t, s, actors{"gate": open}, traced)
		second.wait(t, id, journal.StateCompleted)
		second.stop()
		byName := map[string][]tracetest.SpanStub{}
		for _, sp := range spans.GetSpans() {
			byName[sp.Name] = append(byName[sp.Name], sp)
		}
		require.Len(t, byName["run.start"], 1)
		require.Len(t, byName["run.resume"], 1)
		start, resume := byName["run.start"][0], byName["run.resume"][0]
		require.NotEqual(t, start.SpanContext.TraceID(), resume.SpanContext.TraceID())
		require.Equal(t, start.SpanContext.SpanID(), resume.Links[0].SpanContext.SpanID())
		last := byName["invoke gate"][len(byName["invoke gate"])-1]
		require.Equal(t, resume.SpanContext.SpanID(), last.Parent.SpanID())
	})
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
