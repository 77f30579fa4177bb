package executor_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// makers are who made what, by the run in which the call was made.
type makers struct {
	mu    sync.Mutex
	calls map[string][]access.Maker
}

func (m *makers) note(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[c.RunID] = append(m.calls[c.RunID], access.MakerOf(ctx))
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}}, nil
}

func (m *makers) of(run string) []access.Maker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[run]
}

// TestMaker runs, retries and forks a graph that starts a child. All of them make things for the first
// run, also after they were read again from the journal.
func TestMaker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		m := &makers{calls: map[string][]access.Maker{}}
		f := serve(t, workgraph.Actors{"note": workgraph.ActorFunc(m.note)}, store)
		g := nodes(&graphv1.Node{Id: "first", Actor: "note"}, actorNode("child", "spawn", `{"graph": {"nodes": [{"id": "below", "actor": "note"}]}}`),
			actorNode("wait", "signal", `{"name": "go"}`), &graphv1.Node{Id: "last", Actor: "note"})
		begin := func(t *testing.T, run *executorv1.Run, err error) string {
			t.Helper()
			require.NoError(t, err)
			f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_WAITING)
			return run.GetId()
		}
		end := func(t *testing.T, id string) {
			t.Helper()
			_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go"})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
		}
		below := func(t *testing.T, id string) string {
			t.Helper()
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
			require.NoError(t, err)
			require.Len(t, list.GetRuns(), 1)
			return list.GetRuns()[0].GetId()
		}
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
		first := begin(t, run, err)
		made := m.of(first)
		require.Len(t, made, 1)
		require.Equal(t, first, made[0].Root)
		t.Run("OfAChild", func(t *testing.T) { require.Equal(t, made, m.of(below(t, first))) })
		run, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: first})
		require.NoError(t, err)
		f.wait(t, first, executorv1.RunState_RUN_STATE_CANCELED)
		run, err = f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: run.GetId()})
		again := begin(t, run, err)
		t.Run("OfARetry", func(t *testing.T) {
			end(t, again)
			require.Equal(t, made, m.of(again))
		})
		t.Run("OfAForkOfTheRetry", func(t *testing.T) {
			run, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: again, Visit: &executorv1.VisitRef{NodeId: "first"}})
			fork := begin(t, run, err)
			end(t, fork)
			require.Equal(t, []access.Maker{made[0], made[0]}, m.of(fork))
			require.Equal(t, made, m.of(below(t, fork)))
		})
		t.Run("OfAnother", func(t *testing.T) {
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
			other := begin(t, run, err)
			require.Equal(t, other, m.of(other)[0].Root)
		})
	})
}

// TestPayerOfARetry has a run fail whose epic pays for it. The retry goes on at the cost of that epic,
// and a fork from the beginning does not.
func TestPayerOfARetry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, workgraph.Actors{"model": model("priced", false), "steers": pays(workgraph.Payer{EpicID: "ep_1"})}, store)
		f.registry.keep(&registryv1.Epic{Id: "ep_1", State: registryv1.EpicState_EPIC_STATE_ACTIVE})
		g := nodes(&graphv1.Node{Id: "m0", Actor: "model"}, &graphv1.Node{Id: "steers", Actor: "steers"}, actorNode("wait", "signal", `{"name": "go"}`), &graphv1.Node{Id: "m1", Actor: "model"})
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_WAITING)
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_CANCELED)
		const work = registryv1.UsageKind_USAGE_KIND_MODEL
		t.Run("Retry", func(t *testing.T) {
			again, err := f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			f.wait(t, again.GetId(), executorv1.RunState_RUN_STATE_WAITING)
			_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: again.GetId(), Name: "go"})
			require.NoError(t, err)
			require.Equal(t, []paid{{"m1", "", "ep_1", work}}, f.paid(t, again.GetId(), 1))
		})
		t.Run("ForkFromTheBeginning", func(t *testing.T) {
			fork, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: run.GetId(), Visit: &executorv1.VisitRef{NodeId: "m0"}})
			require.NoError(t, err)
			require.Equal(t, []paid{{"m0", "", "", work}}, f.paid(t, fork.GetId(), 1))
		})
	})
}
