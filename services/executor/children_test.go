package executor_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestSpawnAndAwait is what a client sees of runs below a run.
func TestSpawnAndAwait(t *testing.T) {
	t.Parallel()
	const completed, failed, canceled = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED, executorv1.RunState_RUN_STATE_CANCELED
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{"model": model("priced", false), "refuses": model("priced", true),
			"hangs": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
				<-ctx.Done()
				return workgraph.Outcome{}, ctx.Err()
			})}, store)
		// spawn is a graph with one node that runs others.
		spawn := func(t *testing.T, named string) *graphv1.Graph {
			t.Helper()
			args := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal([]byte(named), &args))
			n := &graphv1.Node{Id: "d", Actor: "spawn", Named: map[string]*graphv1.Payload{}}
			for k, v := range args {
				n.Named[k] = &graphv1.Payload{Json: v}
			}
			return nodes(n)
		}
		begin := func(t *testing.T, req *executorv1.StartRunRequest) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), req)
			require.NoError(t, err)
			return r.GetId()
		}
		slots := func(t *testing.T, r *executorv1.Run) (out []workgraph.ChildSlot) {
			t.Helper()
			require.NoError(t, json.Unmarshal(r.GetResult().GetJson(), &out))
			return out
		}
		one := func(actor string) string { return `{"graph": {"nodes": [{"id": "x", "actor": "` + actor + `"}]}}` }

		t.Run("Usage/RollsUpToTheRoot", func(t *testing.T) {
			below := `{"graph": {"nodes": [{"id": "m", "actor": "model"}, {"id": "e", "actor": "spawn", "named": {"runs": [` + one("model") + `, ` + one("refuses") + `]}}]}}`
			id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"runs": [`+below+`, `+one("model")+`]}`), TaskId: "tk_parent"})
			r := f.wait(t, id, completed)
			require.EqualValues(t, 4, r.GetUsage().GetCalls())
			require.EqualValues(t, 40, r.GetUsage().GetInputTokens())
			require.EqualValues(t, 12, r.GetUsage().GetOutputTokens())
			require.EqualValues(t, 8, r.GetUsage().GetCachedInputTokens())
			testkit.Eventually(t, func() bool { // their cost is known once it is booked
				got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
				return err == nil && got.GetUsage().GetCostNanoUsd() == 4*70
			})
			child, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: slots(t, r)[0].RunID})
			require.NoError(t, err)
			require.EqualValues(t, 3, child.GetUsage().GetCalls(), "a child has what is below it")
			require.Equal(t, "tk_parent", child.GetTaskId(), "without a task of its own its costs land on its parent's")
		})
		t.Run("Slots/SayWhatBecameOfEach", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"timeout": "6s", "runs": [`+one("hangs")+`, `+one("refuses")+`, `+one("model")+`]}`)})
			r := f.wait(t, id, completed)
			got := slots(t, r)
			require.Len(t, got, 3)
			require.Equal(t, []workgraph.Status{workgraph.StatusTimedOut, workgraph.StatusFailed, workgraph.StatusCompleted},
				[]workgraph.Status{got[0].Status, got[1].Status, got[2].Status})
			require.Equal(t, "REFUSED", got[1].Error.Reason)
			require.JSONEq(t, `"said"`, string(got[2].Result))
			f.wait(t, got[0].RunID, canceled)
		})
		t.Run("FailFast/FailsTheNodeAndCancelsTheOthers", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"fail_fast": true, "runs": [`+one("hangs")+`, `+one("refuses")+`]}`)})
			r := f.wait(t, id, failed)
			require.Equal(t, "CHILD_FAILED", r.GetError().GetReason())
			below, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
			require.NoError(t, err)
			require.Len(t, below.GetRuns(), 2)
			states := map[string]executorv1.RunState{}
			for _, b := range below.GetRuns() {
				testkit.Eventually(t, func() bool {
					now, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: b.GetId()})
					if err != nil || now.GetEndTime() == nil {
						return false
					}
					states[now.GetState().String()] = now.GetState()
					return true
				})
			}
			require.Contains(t, states, failed.String())
			require.Contains(t, states, canceled.String())
		})
		t.Run("Cancel/ReachesEveryDepth", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"graph": {"nodes": [{"id": "e", "actor": "spawn", "named": `+one("hangs")+`}]}}`)})
			var last string
			testkit.Eventually(t, func() bool {
				last = id
				for range 2 {
					below, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: last})
					if err != nil || len(below.GetRuns()) != 1 {
						return false
					}
					last = below.GetRuns()[0].GetId()
				}
				return true
			})
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, canceled)
			f.wait(t, last, canceled)
		})
		t.Run("Self/IsBoundedInDepth", func(t *testing.T) {
			r := f.wait(t, begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"ref": "self"}`)}), completed)
			depth := 0
			for got := slots(t, r); ; depth++ {
				if got[0].Status == workgraph.StatusFailed {
					require.Equal(t, "RUN_DEPTH_EXCEEDED", got[0].Error.Reason)
					break
				}
				raw := got[0].Result
				got = nil
				require.NoError(t, json.Unmarshal(raw, &got))
			}
			require.Equal(t, 2, depth, "three runs below the root, the last of which may have none")
		})
		t.Run("Interrupts/AreListedAtTheRoot", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, `{"graph": {"nodes": [
				{"id": "e", "actor": "spawn", "named": {"runs": [{"graph": {"nodes": [{"id": "q", "actor": "human", "named": {"prompt": "one?"}}, {"id": "r", "actor": "human", "named": {"prompt": "two?"}}]}}]}}]}}`)})
			var open []*executorv1.Interrupt
			testkit.Eventually(t, func() bool {
				list, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: id})
				open = list.GetInterrupts()
				return err == nil && len(open) == 2
			})
			root, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
			require.NoError(t, err)
			require.EqualValues(t, 2, root.GetOpenInterrupts())
			for _, q := range open {
				require.Equal(t, id, q.GetRootRunId())
				require.NotEqual(t, id, q.GetRunId())
				_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Answer: value(`"yes"`), By: "ada"})
				require.NoError(t, err)
			}
			f.wait(t, id, completed)
		})
		t.Run("Deadline/EndsThemAll", func(t *testing.T) {
			var below *executorv1.ListRunsResponse
			// On a busy machine the deadline may pass before the child is spawned: such a run shows nothing,
			// and the next one has more time.
			for timeout := 500 * time.Millisecond; len(below.GetRuns()) == 0; timeout *= 2 {
				require.Less(t, timeout, time.Minute)
				id := begin(t, &executorv1.StartRunRequest{Graph: spawn(t, one("hangs")), Timeout: durationpb.New(timeout)})
				r := f.wait(t, id, failed)
				require.Equal(t, "DEADLINE_EXCEEDED", r.GetStateReason())
				var err error
				below, err = f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
				require.NoError(t, err)
			}
			require.Len(t, below.GetRuns(), 1)
			testkit.Eventually(t, func() bool {
				now, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: below.GetRuns()[0].GetId()})
				return err == nil && now.GetEndTime() != nil
			})
		})
	})
}
