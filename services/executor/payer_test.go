package executor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// pays is an actor that says who pays from then on.
func pays(p workgraph.Payer) workgraph.Actor {
	return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}, Payer: &p}, nil
	})
}

// TestPayer runs graphs whose actors say who pays. The run waits for a signal in between, so that it leaves
// memory and is read again.
func TestPayer(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, workgraph.Actors{
			"model": model("priced", false), "steers": pays(workgraph.Payer{EpicID: "ep_1"}), "begins": pays(workgraph.Payer{EpicID: "ep_1", TaskID: "tk_inline"}),
			"ends": pays(workgraph.Payer{EpicID: "ep_1", TaskID: "tk_inline", Done: true}),
		}, store)
		type paid struct {
			Node, Task, Epic string
			Kind             registryv1.UsageKind
		}
		const work, overhead = registryv1.UsageKind_USAGE_KIND_MODEL, registryv1.UsageKind_USAGE_KIND_OVERHEAD
		chain := func(ids ...string) *graphv1.Graph {
			g := &graphv1.Graph{}
			for i, id := range ids {
				n := &graphv1.Node{Id: id, Actor: map[byte]string{'s': "steers", 'b': "begins", 'e': "ends"}[id[0]]}
				switch {
				case id == "wait":
					n = actorNode(id, "signal", `{"name": "go"}`)
				case id == "child":
					n = actorNode(id, "spawn", `{"graph": {"nodes": [{"id": "below", "actor": "model"}]}}`)
				case n.Actor == "":
					n.Actor = "model"
					if id[0] == 'a' {
						n.Kind = graphv1.NodeKind_NODE_KIND_AGENT
					}
				}
				g.Nodes = append(g.Nodes, n)
				if i > 0 {
					g.Edges = append(g.Edges, &graphv1.Edge{From: ids[i-1], To: id})
				}
			}
			return g
		}
		for name, c := range map[string]struct {
			task  string
			graph *graphv1.Graph
			want  []paid
		}{
			"TheEpicOnceItIsSteered":    {"", chain("m1", "steers", "wait", "m2", "a1"), []paid{{"m1", "", "", work}, {"m2", "", "ep_1", work}, {"a1", "", "ep_1", overhead}}},
			"TheTaskBetweenItsEnds":     {"", chain("begins", "wait", "a1", "ends", "a2"), []paid{{"a1", "tk_inline", "", work}, {"a2", "", "ep_1", overhead}}},
			"ChildrenAsTheirParent":     {"", chain("begins", "wait", "child", "ends"), []paid{{"below", "tk_inline", "", work}}},
			"TheTaskOfTheRunIfItHasOne": {"tk_own", chain("steers", "begins", "wait", "child", "a1"), []paid{{"below", "tk_own", "", work}, {"a1", "tk_own", "", work}}},
		} {
			t.Run(name, func(t *testing.T) {
				run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: c.graph, TaskId: c.task})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_WAITING)
				_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: run.GetId(), Name: "go"})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
				var got []paid
				testkit.Eventually(t, func() bool {
					f.registry.mu.Lock()
					defer f.registry.mu.Unlock()
					got = nil
					for _, e := range f.registry.booked {
						if f.rootOf(t, e.GetRunId()) == run.GetId() {
							got = append(got, paid{e.GetNodeId(), e.GetTaskId(), e.GetEpicId(), e.GetKind()})
						}
					}
					return len(got) == len(c.want)
				}, "%v", &got)
				require.ElementsMatch(t, c.want, got)
			})
		}
	})
}

// rootOf is the root of the run.
func (f *fixture) rootOf(t *testing.T, id string) string {
	t.Helper()
	r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
	require.NoError(t, err)
	return cmp.Or(r.GetRootRunId(), r.GetId())
}
