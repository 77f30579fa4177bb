package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// decisions are the counted decisions, by "workflow: from -> to, how".
func decisions(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	out := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "epigraph.routing.decisions" {
				for _, p := range sum.DataPoints {
					get := func(key string) string {
						v, ok := p.Attributes.Value(attribute.Key(key))
						require.True(t, ok, key)
						return v.AsString()
					}
					out[fmt.Sprintf("%s: %s -> %s, %s", get("workflow"), get("from"), get("to"), get("how"))] += p.Value
				}
			}
		}
	}
	return out
}

func TestRoutingDecisions(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	s := sqliteStore(t)
	l := run(t, s, workflowActors(t, s, orchestratorModel), func(_ *engine.Config, d *engine.Deps) { d.MeterProvider = provider })
	l.jobs(t)
	switches := func(name, way string) *workgraph.Graph {
		when := func(route string) string { return `result.route == "` + route + `"` }
		return &workgraph.Graph{Name: name, Nodes: []workgraph.Node{{ID: "which", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(fmt.Sprintf("%q", `{"route": "`+way+`"}`))}},
			{ID: "a", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"1"`)}}, {ID: "b", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"2"`)}}},
			Edges: []workgraph.Edge{{From: "which", To: "a", When: when("a")}, {From: "which", To: "b", When: when("default")}}}
	}
	t.Run("Switch/ByConditionAndElse", func(t *testing.T) {
		l.wait(t, l.start(t, switches("sw", "a")), journal.StateCompleted)
		l.wait(t, l.start(t, switches("sw", "default")), journal.StateCompleted)
		testkit.Eventually(t, func() bool {
			got := decisions(t, reader)
			return got["sw: which -> a, condition"] == 1 && got["sw: which -> b, else"] == 1 && len(got) == 2
		}, "each way is counted once")
	})
	t.Run("Team/ByTheToolOfAnAgent", func(t *testing.T) {
		id := l.start(t, example(t, "orchestrator"), func(r *command.StartRequest) {
			r.Input.Named = map[string]json.RawMessage{"task": json.RawMessage(`"Onboard Acme"`)}
		})
		l.wait(t, id, journal.StateCompleted)
		testkit.Eventually(t, func() bool {
			return decisions(t, reader)["Orchestrator: react_agent -> plan_execute, tool"] == 1
		}, "who goes on is counted under the name of the workflow")
	})
	t.Run("Series/AreBounded", func(t *testing.T) {
		for i := range 230 {
			l.wait(t, l.start(t, switches(fmt.Sprintf("many%d", i), "a")), journal.StateCompleted)
		}
		testkit.Eventually(t, func() bool {
			got := decisions(t, reader)
			return len(got) <= 202 && got["other: other -> other, condition"] >= 30
		}, "those beyond the bound are counted as others")
		id := l.start(t, switches("neighbor", "a"), func(r *command.StartRequest) { r.Namespace = "elsewhere" })
		testkit.Eventually(t, func() bool { return decisions(t, reader)["neighbor: which -> a, condition"] == 1 }, id)
	})
}
