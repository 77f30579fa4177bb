package executor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

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

// paid tells who paid for the calls of a node.
type paid struct {
	Node, Task, Epic string
	Kind             registryv1.UsageKind
}

// paid waits until so many calls of a run and those below it are booked.
func (f *fixture) paid(t *testing.T, run string, calls int) (got []paid) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		f.registry.mu.Lock()
		defer f.registry.mu.Unlock()
		got = nil
		for _, e := range f.registry.booked {
			if f.rootOf(t, e.GetRunId()) == run {
				got = append(got, paid{e.GetNodeId(), e.GetTaskId(), e.GetEpicId(), e.GetKind()})
			}
		}
		return len(got) == calls
	}, "%v", &got)
	return got
}

// keep has the registry know tasks and epics.
func (b *fakeRegistry) keep(known ...proto.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range known {
		switch m := m.(type) {
		case *registryv1.Task:
			if b.tasks == nil {
				b.tasks = map[string]*registryv1.Task{}
			}
			b.tasks[m.GetId()] = m
		case *registryv1.Epic:
			if b.epics == nil {
				b.epics = map[string]*registryv1.Epic{}
			}
			b.epics[m.GetId()] = m
		}
	}
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
		running := &registryv1.Task{Id: "tk_inline", State: registryv1.TaskState_TASK_STATE_RUNNING}
		for name, c := range map[string]struct {
			ended []proto.Message
			want  paid
		}{
			"TheEpicAfterTheEndOfTheTask": {[]proto.Message{&registryv1.Task{Id: "tk_inline", State: registryv1.TaskState_TASK_STATE_CANCELED}}, paid{"a1", "", "ep_1", overhead}},
			"TheEpicOnceTheTaskIsGone":    {[]proto.Message{&registryv1.Task{Id: "tk_inline"}}, paid{"a1", "", "ep_1", overhead}},
			"NobodyAfterTheEndOfTheEpic":  {[]proto.Message{&registryv1.Epic{Id: "ep_1", State: registryv1.EpicState_EPIC_STATE_COMPLETED}}, paid{"a1", "", "", overhead}},
		} {
			t.Run(name, func(t *testing.T) {
				f.registry.keep(running, &registryv1.Epic{Id: "ep_1", State: registryv1.EpicState_EPIC_STATE_ACTIVE})
				run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: chain("begins", "m1", "wait", "a1")})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_WAITING)
				require.Equal(t, []paid{{"m1", "tk_inline", "", work}}, f.paid(t, run.GetId(), 1))
				f.registry.keep(c.ended...)
				<-time.After(1100 * time.Millisecond) // an executor asks again after a second
				_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: run.GetId(), Name: "go"})
				require.NoError(t, err)
				require.ElementsMatch(t, []paid{{"m1", "tk_inline", "", work}, c.want}, f.paid(t, run.GetId(), 2))
				f.registry.keep(&registryv1.Epic{Id: "ep_1", State: registryv1.EpicState_EPIC_STATE_ACTIVE})
			})
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
				f.registry.keep(running)
				run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: c.graph, TaskId: c.task})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_WAITING)
				_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: run.GetId(), Name: "go"})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
				require.ElementsMatch(t, c.want, f.paid(t, run.GetId(), len(c.want)))
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
