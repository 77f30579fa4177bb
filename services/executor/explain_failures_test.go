package executor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestExplainFailures checks the explanation of failures: the failed node, the attempt of how many, and the
// error of the last attempt.
func TestExplainFailures(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		ends := func(err *workgraph.Error) workgraph.Actor {
			return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return workgraph.Outcome{}, err })
		}
		f := serve(t, workgraph.Actors{
			"busy": ends(workgraph.Errorf(workgraph.Retryable, "BUSY", "503, later")),
			"pays": ends(workgraph.Errorf(workgraph.Unknown, "TIMEOUT", "no answer")),
		}, store)
		begin := func(t *testing.T, n *graphv1.Node) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{n}}})
			require.NoError(t, err)
			return r.GetId()
		}
		retry := func(most int32, wait time.Duration) *graphv1.Retry {
			return &graphv1.Retry{MaxAttempts: most, InitialInterval: durationpb.New(wait)}
		}
		busy := &executorv1.RunError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, Reason: "BUSY", Message: "503, later", NodeId: "n", Visit: 1}
		same := func(t *testing.T, want, got *executorv1.Blocker) {
			t.Helper()
			ignored := protocmp.IgnoreFields(&executorv1.Blocker{}, "since", "until", "hint")
			require.Empty(t, cmp.Diff(want, got, protocmp.Transform(), ignored))
		}
		n := &executorv1.VisitRef{NodeId: "n", Visit: 1}

		t.Run("Failed/SaysWhereWithWhatAndAtWhichAttempt", func(t *testing.T) {
			id := begin(t, &graphv1.Node{Id: "n", Actor: "busy", Retry: retry(2, time.Millisecond)})
			b, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_ENDED)
			require.Len(t, x.GetBlockers(), 1)
			same(t, &executorv1.Blocker{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_ENDED, Visit: n, Attempt: 2, MaxAttempts: 2, Error: busy,
				Message: "the run has ended: FAILED, NODE_FAILED: n failed at attempt 2 of 2 with BUSY: 503, later",
			}, b)
			require.Equal(t, b.GetMessage(), x.GetSummary())
			require.Equal(t, "`epigraph runs retry "+id+"` starts a new run that repeats the failed visits", b.GetHint())
		})
		t.Run("Backoff/SaysTheLastError", func(t *testing.T) {
			id := begin(t, &graphv1.Node{Id: "n", Actor: "busy", Retry: retry(5, time.Hour)})
			b, _ := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_BACKOFF)
			same(t, &executorv1.Blocker{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_BACKOFF, Visit: n, Attempt: 2, MaxAttempts: 5, Error: busy, Actor: "busy",
				Message: "n failed and is tried again at " + b.GetUntil().AsTime().Format(time.RFC3339) + ", attempt 2 of 5; the last one ended with BUSY: 503, later",
			}, b)
		})
		t.Run("Reconciliation/SaysHowTheCallEnded", func(t *testing.T) {
			id := begin(t, &graphv1.Node{Id: "n", Actor: "pays", Effect: graphv1.Effect_EFFECT_UNSAFE})
			b, _ := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION)
			same(t, &executorv1.Blocker{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION, Visit: n, Attempt: 1, MaxAttempts: 1, Actor: "pays", EffectKey: id + "/n/1/0/1",
				Error:   &executorv1.RunError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "TIMEOUT", Message: "no answer", NodeId: "n", Visit: 1},
				Message: "the UNSAFE call of n, attempt 1 of 1, has an unknown outcome; it ended with TIMEOUT: no answer",
			}, b)
		})
		t.Run("Reconciliation/NamesTheItemInItsCommand", func(t *testing.T) {
			id := begin(t, &graphv1.Node{Id: "n", Actor: "pays", Effect: graphv1.Effect_EFFECT_UNSAFE, Map: &graphv1.Map{Over: "[1, 2]", MaxParallel: 2}})
			_, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION)
			for _, b := range x.GetBlockers() {
				if b.GetKind() == executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION {
					require.Contains(t, b.GetHint(), fmt.Sprintf("runs reconcile %s n --visit 1 --item %d --performed", id, b.GetVisit().GetItem()))
				}
			}
		})
		t.Run("EndedFirst/SaysOfWhichCallsNobodyKnows", func(t *testing.T) {
			id := begin(t, &graphv1.Node{Id: "n", Actor: "pays", Effect: graphv1.Effect_EFFECT_UNSAFE})
			explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION)
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
			require.NoError(t, err)
			_, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_ENDED)
			require.Len(t, x.GetBlockers(), 2)
			same(t, &executorv1.Blocker{Kind: executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION, Visit: n, EffectKey: id + "/n/1/0/1",
				Message: "the run ended while the outcome of 1 UNSAFE call was unknown: n"}, x.GetBlockers()[1])
			events := f.watch(t, &executorv1.WatchRunRequest{RunId: id})
			end := events[len(events)-1].GetRunEnded()
			require.Empty(t, cmp.Diff([]*executorv1.VisitRef{n}, end.GetUnknownAttempts(), protocmp.Transform()))
		})
		t.Run("Child/SaysWhichOneAndWithWhat", func(t *testing.T) {
			child := `{"graph": {"nodes": [{"id": "n", "actor": "busy", "retry": {"max_attempts": 1}}]}}`
			id := begin(t, &graphv1.Node{Id: "parent", Actor: "spawn", Named: map[string]*graphv1.Payload{
				"runs": {Json: []byte("[" + child + "]")}, "fail_fast": {Json: []byte("true")}}})
			b, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_ENDED)
			require.Equal(t, "CHILD_FAILED", b.GetError().GetReason())
			require.Len(t, x.GetBlockers(), 2, "%v", x)
			c := x.GetBlockers()[1]
			require.Len(t, c.GetRunIds(), 1)
			below := c.GetRunIds()[0]
			same(t, &executorv1.Blocker{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_CHILD_FAILED, Visit: &executorv1.VisitRef{NodeId: "parent", Visit: 1}, RunIds: []string{below}, Error: busy,
				Message: "child run " + below + " ended FAILED at n: BUSY: 503, later",
			}, c)
			require.Equal(t, "`epigraph runs explain "+below+"` says more", c.GetHint())
			r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: below})
			require.NoError(t, err)
			require.Equal(t, id, r.GetParentRunId())
		})
	})
}
