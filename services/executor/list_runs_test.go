package executor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestListRunsByWorkflowAndEpic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{"model": model("priced", false), "steers": pays(workgraph.Payer{EpicID: "ep_steered"})}, store)
		start := func(r *executorv1.StartRunRequest) string {
			t.Helper()
			m, err := f.StartRun(t.Context(), r)
			require.NoError(t, err)
			f.wait(t, m.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			return m.GetId()
		}
		one := start(&executorv1.StartRunRequest{Workflow: "welcome@1", Named: who("ada")})
		two := start(&executorv1.StartRunRequest{Workflow: "welcome@2", Named: who("ada")})
		// The child borrows the task of its parent, and is of the same epic.
		task := start(&executorv1.StartRunRequest{TaskId: "tk_7", Graph: nodes(actorNode("child", "spawn", `{"graph": {"nodes": [{"id": "below", "actor": "model"}]}}`))})
		payer := start(&executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "s", Actor: "steers"}, actorNode("child", "spawn", `{"graph": {"nodes": [{"id": "below", "actor": "model"}]}}`))})
		list := func(req *executorv1.ListRunsRequest) (ids []string) {
			t.Helper()
			r, err := f.ListRuns(t.Context(), req)
			require.NoError(t, err)
			for _, x := range r.GetRuns() {
				ids = append(ids, x.GetId())
			}
			return ids
		}
		children := func(of string) []string { return list(&executorv1.ListRunsRequest{ParentRunId: of}) }
		for _, c := range []struct {
			name string
			req  *executorv1.ListRunsRequest
			want []string
		}{
			{"Workflow/AllItsVersions", &executorv1.ListRunsRequest{Workflow: "welcome"}, []string{two, one}},
			{"Workflow/OneVersion", &executorv1.ListRunsRequest{Workflow: "welcome@1"}, []string{one}},
			{"Workflow/NoneOfAnother", &executorv1.ListRunsRequest{Workflow: "welc"}, nil},
			{"Epic/RunOfATaskAndTheRunsBelowIt", &executorv1.ListRunsRequest{EpicId: "ep_of_tk_7"}, append(children(task), task)},
			{"Epic/RunsThatItPaysFor", &executorv1.ListRunsRequest{EpicId: "ep_steered"}, children(payer)},
			{"Both/MustHold", &executorv1.ListRunsRequest{Workflow: "welcome", EpicId: "ep_of_tk_7"}, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				require.Equal(t, c.want, list(c.req))
			})
		}
		t.Run("Run/ShowsItsEpic", func(t *testing.T) {
			r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: task})
			require.NoError(t, err)
			require.Equal(t, "ep_of_tk_7", r.GetEpicId())
		})
		t.Run("Bulk/FindsThemToo", func(t *testing.T) {
			b, err := f.BulkDeleteRuns(t.Context(), &executorv1.BulkDeleteRunsRequest{Filter: &executorv1.RunFilter{Workflow: "welcome@2"}, DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, 1, b.GetMatched())
			require.Equal(t, two, b.GetSample()[0].GetId())
		})
		t.Run("Token/BelongsToItsFilters", func(t *testing.T) {
			r, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{Workflow: "welcome", PageSize: 1})
			require.NoError(t, err)
			_, err = f.ListRuns(t.Context(), &executorv1.ListRunsRequest{Workflow: "other", PageSize: 1, PageToken: r.GetNextPageToken()})
			require.Equal(t, "PAGE_TOKEN_MISMATCH", errs.ReasonOf(err))
		})
	})
}

func TestBulkPauseAndResume(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, paused = executorv1.RunState_RUN_STATE_WAITING, executorv1.RunState_RUN_STATE_PAUSED
		var ids []string
		for i := range 3 {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "s", Actor: "listens"}), Labels: map[string]string{"n": fmt.Sprint(min(i, 1))}})
			require.NoError(t, err)
			ids = append(ids, r.GetId())
			f.wait(t, r.GetId(), waiting)
		}
		filter := &executorv1.RunFilter{Labels: map[string]string{"n": "1"}}
		in := func(t *testing.T, id string, want executorv1.RunState) {
			t.Helper()
			testkit.Eventually(t, func() bool {
				r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
				require.NoError(t, err)
				return r.GetState() == want
			})
		}
		t.Run("DryRun/CountsShowsAndChangesNothing", func(t *testing.T) {
			b, err := f.BulkPauseRuns(t.Context(), &executorv1.BulkPauseRunsRequest{Filter: filter, DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, 2, b.GetMatched())
			require.Zero(t, b.GetDone())
			require.Equal(t, []string{ids[2], ids[1]}, []string{b.GetSample()[0].GetId(), b.GetSample()[1].GetId()})
			require.Equal(t, waiting, b.GetSample()[0].GetState())
			in(t, ids[2], waiting)
		})
		t.Run("Pause/OnlyWhatTheFilterFinds", func(t *testing.T) {
			b, err := f.BulkPauseRuns(t.Context(), &executorv1.BulkPauseRunsRequest{Filter: filter, Reason: "WRONG_MODEL"})
			require.NoError(t, err)
			require.EqualValues(t, 2, b.GetDone())
			require.Empty(t, b.GetSample())
			in(t, ids[1], paused)
			in(t, ids[2], paused)
			in(t, ids[0], waiting)
			r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: ids[1]})
			require.NoError(t, err)
			require.Equal(t, "WRONG_MODEL", r.GetStateReason())
		})
		t.Run("Pause/FindsNoPausedRunAgain", func(t *testing.T) {
			b, err := f.BulkPauseRuns(t.Context(), &executorv1.BulkPauseRunsRequest{Filter: filter})
			require.NoError(t, err)
			require.Zero(t, b.GetMatched())
		})
		t.Run("Resume/PausedRunsGoOn", func(t *testing.T) {
			b, err := f.BulkResumeRuns(t.Context(), &executorv1.BulkResumeRunsRequest{Filter: filter})
			require.NoError(t, err)
			require.EqualValues(t, 2, b.GetDone())
			in(t, ids[1], waiting)
			in(t, ids[2], waiting)
		})
		t.Run("Refused/WithoutAFilter", func(t *testing.T) {
			_, err := f.BulkPauseRuns(t.Context(), &executorv1.BulkPauseRunsRequest{Filter: &executorv1.RunFilter{}})
			require.Equal(t, "FILTER_EMPTY", errs.ReasonOf(err))
			_, err = f.BulkResumeRuns(t.Context(), &executorv1.BulkResumeRunsRequest{Filter: &executorv1.RunFilter{}})
			require.Equal(t, "FILTER_EMPTY", errs.ReasonOf(err))
		})
	})
}
