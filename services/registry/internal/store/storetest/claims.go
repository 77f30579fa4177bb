package storetest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func claimCases() map[string]func(*testing.T, *fixture) {
	claim := func(f *fixture, id, run string) error {
		_, _, err := f.ClaimTask(f.ctx, ns, id, run, time.Hour)
		return err
	}
	// lapse claims with the shortest lease and waits until the store's clock has passed it.
	lapse := func(t *testing.T, f *fixture, id, run string) {
		_, _, err := f.ClaimTask(f.ctx, ns, id, run, time.Millisecond)
		require.NoError(t, err)
		testkit.Eventually(t, func() bool {
			n, _, err := f.Sweep(f.ctx)
			return err == nil && n == 1
		})
	}
	return map[string]func(*testing.T, *fixture){
		"Claim/OneOfFiftyRunsGetsTheTask": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			results := together(50, func(i int) error { return claim(f, v.ID, fmt.Sprint("run", i)) })
			require.Equal(t, 1, count(results, succeeded), "%v", results)
			for _, err := range results {
				if err != nil {
					bad := requireError(t, err, errs.FailedPrecondition, epic.ReasonNotClaimable)
					require.Equal(t, "PENDING", bad.Meta["state"])
					require.NotEmpty(t, bad.Meta["run_id"])
				}
			}
		},
		"Claim/OneRunClaimsAsOftenAsItLikes": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Hour)
			require.NoError(t, err)
			results := together(20, func(int) error { return claim(f, v.ID, "run") })
			require.Equal(t, 20, count(results, succeeded), "%v", results)
			_, first, err := f.ClaimTask(f.ctx, ns, v.ID, "run", 2*time.Hour)
			require.NoError(t, err)
			require.Greater(t, time.Until(first), 90*time.Minute, "the lease is renewed")
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			require.NoError(t, err)
			got, again, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Minute)
			require.NoError(t, err)
			require.Equal(t, first, again)
			require.Equal(t, epic.TaskRunning, got.State)
		},
		"Claim/WaitingLongerPassesTheGateOfANewClaim": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Minute)
			require.NoError(t, err)
			_, err = f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Paused, "")
			require.NoError(t, err)
			requireError(t, claim(f, v.ID, "run"), errs.FailedPrecondition, epic.ReasonEpicNotActive)
			_, _, err = f.ClaimTask(f.ctx, ns, v.ID, "run", time.Millisecond)
			require.NoError(t, err, "it can be given back all the same")
		},
		"Claim/ConfirmAndSettleTellTheOutcomeOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			next := f.task(t, e.ID, v.ID)
			require.NoError(t, claim(f, v.ID, "run"))
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for range 3 {
				got, err := f.ConfirmClaim(f.ctx, ns, v.ID, "run", start)
				require.NoError(t, err)
				require.Equal(t, epic.TaskRunning, got.State)
				require.Equal(t, "run", got.RunID)
				require.Equal(t, start, got.StartTime)
				require.EqualValues(t, 2, got.Revision)
			}
			s := accounting.Settlement{State: epic.TaskCompleted, Summary: "good", Duration: 90 * time.Second, End: start.Add(90 * time.Second)}
			results := together(10, func(int) error {
				_, err := f.SettleClaim(f.ctx, ns, v.ID, "run", s)
				return err
			})
			require.Equal(t, 10, count(results, succeeded), "%v", results)
			got, err := f.ConfirmClaim(f.ctx, ns, v.ID, "run", start)
			require.NoError(t, err, "a confirmation that comes after the end changes nothing")
			require.Equal(t, epic.TaskCompleted, got.State)
			require.Equal(t, "good", got.ResultSummary)
			require.Equal(t, 90*time.Second, got.Duration)
			require.Equal(t, s.End, got.EndTime)
			require.Equal(t, epic.TaskPending, f.state(t, next.ID))
			f.recount(t, ns, e.ID)
			requireError(t, claim(f, v.ID, "run"), errs.FailedPrecondition, epic.ReasonNotClaimable)
		},
		"Claim/SettleWithoutConfirmation": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			require.NoError(t, claim(f, v.ID, "run"))
			got, err := f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskFailed, Error: "bad", Duration: time.Second})
			require.NoError(t, err)
			require.Equal(t, epic.TaskFailed, got.State)
			require.Equal(t, "bad", got.ErrorMessage)
			require.Equal(t, time.Second, got.EndTime.Sub(got.StartTime))
		},
		"Claim/UnknownRunIsToldSo": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			_, err := f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimNotFound)
			_, err = f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskCompleted})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimNotFound)
		},
		"Claim/LapsedOneIsTakenOver": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "old", time.Millisecond)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { return claim(f, v.ID, "new") == nil })
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "old", time.Time{})
			lost := requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimLost)
			require.Equal(t, "new", lost.Meta["run_id"])
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "new", time.Time{})
			require.NoError(t, err)
			got, err := f.SettleClaim(f.ctx, ns, v.ID, "old", accounting.Settlement{State: epic.TaskFailed, Error: "late", Duration: time.Hour})
			require.NoError(t, err)
			require.Equal(t, epic.TaskRunning, got.State, "a late settlement never touches the newer claim")
			require.Equal(t, "new", got.RunID)
			require.Zero(t, got.Duration)
			got, err = f.SettleClaim(f.ctx, ns, v.ID, "new", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			require.Equal(t, epic.TaskCompleted, got.State)
		},
		"Claim/TheTaskKeepsTheWorkflowOfItsRun": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "fairly found", WorkflowSlug: "found"})
			v, named := f.task(t, e.ID), f.task(t, e.ID)
			_, err := f.UpdateTask(f.ctx, ns, named.ID, accounting.Change{}, epic.Task{WorkflowSlug: "named"}, []string{"workflow_slug"})
			require.NoError(t, err)
			require.NoError(t, claim(f, v.ID, "run"))
			end := f.end(t)
			for _, workflow := range []string{"found@3", "other@1"} { // a repetition changes nothing
				got, err := f.Accounts.ConfirmClaim(f.ctx, ns, v.ID, "run", database, workflow, time.Time{})
				require.NoError(t, err)
				require.Equal(t, []any{"run", "found@3", ""}, []any{got.RunID, got.RunWorkflow, got.WorkflowSlug})
			}
			require.Equal(t, []string{"task_updated " + v.ID, "epic_updated " + e.ID}, f.told(t, end), "once")
			got, err := f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, "found@3", got.RunWorkflow)
			found, err := f.SearchEpics(f.ctx, "fairly", store.SearchQuery{Namespace: ns}, epic.Hit{}, 1)
			require.NoError(t, err)
			require.Equal(t, []string{"found@3", "named"}, found[0].Slugs, "that of the epic is the one that ran")
			_, err = f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			f.move(t, named.ID, epic.TaskCanceled)
			f.moveEpic(t, e.ID, epic.Completed)
			_, value := f.procedure(t, e.ID)
			require.Equal(t, []any{"found@3", "named"}, value["workflow_ids"])
		},
		"Claim/ALateOneDoesNotTakeTheWorkflowAway": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "old", time.Millisecond)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { return claim(f, v.ID, "new") == nil })
			_, err = f.Accounts.ConfirmClaim(f.ctx, ns, v.ID, "new", database, "new@2", time.Time{})
			require.NoError(t, err)
			_, err = f.Accounts.ConfirmClaim(f.ctx, ns, v.ID, "old", database, "old@1", time.Time{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimLost)
			got, err := f.SettleClaim(f.ctx, ns, v.ID, "old", accounting.Settlement{State: epic.TaskCompleted, Workflow: "old@1"})
			require.NoError(t, err)
			require.Equal(t, []any{"new", "new@2"}, []any{got.RunID, got.RunWorkflow})
		},
		"Claim/TheWorkflowOfTheNextRunTakesItsPlace": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			for _, c := range []struct{ run, workflow string }{{"first", "one@1"}, {"second", ""}} {
				require.NoError(t, claim(f, v.ID, c.run))
				// The confirmation is lost: the settlement begins the task.
				got, err := f.SettleClaim(f.ctx, ns, v.ID, c.run, accounting.Settlement{State: epic.TaskFailed, Workflow: c.workflow})
				require.NoError(t, err)
				require.Equal(t, []any{c.run, c.workflow}, []any{got.RunID, got.RunWorkflow})
				if got.State == epic.TaskFailed {
					f.move(t, v.ID, epic.TaskPending)
				}
			}
		},
		"Claim/RenewedForAMomentIsGivenBack": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			require.NoError(t, claim(f, v.ID, "run"))
			lapse(t, f, v.ID, "run")
			require.NoError(t, claim(f, v.ID, "other"))
		},
		"Claim/OfManyOnlyOneTakesOver": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			lapse(t, f, v.ID, "old")
			results := together(20, func(i int) error { return claim(f, v.ID, fmt.Sprint("run", i)) })
			require.Equal(t, 1, count(results, succeeded), "%v", results)
		},
		"Claim/SweptOneRevivesIfNobodyTookIt": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w, x := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			lapse(t, f, v.ID, "run")
			got, err := f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			require.NoError(t, err)
			require.Equal(t, epic.TaskRunning, got.State)
			requireError(t, claim(f, v.ID, "other"), errs.FailedPrecondition, epic.ReasonNotClaimable)
			lapse(t, f, w.ID, "run")
			got, err = f.SettleClaim(f.ctx, ns, w.ID, "run", accounting.Settlement{State: epic.TaskCompleted, Summary: "kept"})
			require.NoError(t, err)
			require.Equal(t, "kept", got.ResultSummary, "a result is not lost because its messages were late")
			lapse(t, f, x.ID, "run")
			require.NoError(t, claim(f, x.ID, "run"))
		},
		"Claim/SweepLeavesHeldOnes": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			require.NoError(t, claim(f, v.ID, "run"))
			_, _, err := f.ClaimTask(f.ctx, ns, w.ID, "run", time.Millisecond)
			require.NoError(t, err)
			_, err = f.ConfirmClaim(f.ctx, ns, w.ID, "run", time.Time{})
			require.NoError(t, err)
			n, _, err := f.Sweep(f.ctx)
			require.NoError(t, err)
			require.Zero(t, n)
			requireError(t, claim(f, v.ID, "other"), errs.FailedPrecondition, epic.ReasonNotClaimable)
		},
		"Claim/OlderSettlementAfterARetry": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			require.NoError(t, claim(f, v.ID, "one"))
			_, err := f.SettleClaim(f.ctx, ns, v.ID, "one", accounting.Settlement{State: epic.TaskFailed, Duration: time.Second})
			require.NoError(t, err)
			requireError(t, claim(f, v.ID, "two"), errs.FailedPrecondition, epic.ReasonNotClaimable)
			f.move(t, v.ID, epic.TaskPending)
			requireError(t, claim(f, v.ID, "one"), errs.FailedPrecondition, epic.ReasonNotClaimable)
			require.NoError(t, claim(f, v.ID, "two"))
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "two", time.Time{})
			require.NoError(t, err)
			got, err := f.SettleClaim(f.ctx, ns, v.ID, "one", accounting.Settlement{State: epic.TaskFailed, Duration: time.Second})
			require.NoError(t, err)
			require.Equal(t, epic.TaskRunning, got.State)
			got, err = f.SettleClaim(f.ctx, ns, v.ID, "two", accounting.Settlement{State: epic.TaskCompleted, Duration: time.Second})
			require.NoError(t, err)
			require.Equal(t, 2*time.Second, got.Duration)
			require.EqualValues(t, 1, got.RetryCount)
		},
		"Claim/RefusedWithTheState": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first := f.task(t, e.ID)
			blocked, running := f.task(t, e.ID, first.ID), f.task(t, e.ID)
			f.move(t, running.ID, epic.TaskRunning)
			f.move(t, first.ID, epic.TaskCanceled)
			for id, state := range map[string]string{blocked.ID: "BLOCKED", running.ID: "RUNNING", first.ID: "CANCELED"} {
				bad := requireError(t, claim(f, id, "run"), errs.FailedPrecondition, epic.ReasonNotClaimable)
				require.Equal(t, state, bad.Meta["state"])
				require.NotEmpty(t, bad.HintText())
			}
			v := f.task(t, e.ID)
			f.moveEpic(t, e.ID, epic.Paused)
			requireError(t, claim(f, v.ID, "run"), errs.FailedPrecondition, epic.ReasonEpicNotActive)
			f.moveEpic(t, e.ID, epic.Active)
			f.moveEpic(t, e.ID, epic.Completed)
			requireError(t, claim(f, v.ID, "run"), errs.FailedPrecondition, epic.ReasonEpicEnded)
			for _, lease := range []time.Duration{-1, 25 * time.Hour} {
				_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", lease)
				requireError(t, err, errs.InvalidArgument, "LEASE_INVALID")
			}
		},
		"Claim/BudgetGatesIt": func(t *testing.T, f *fixture) {
			for name, tc := range map[string]struct {
				tokens, nano *int64
				spend        int64
				refused      bool
			}{
				"no cap":            {nil, nil, 1000, false},
				"nothing allowed":   {ptr(int64(0)), nil, 0, true},
				"no money allowed":  {nil, ptr(int64(0)), 0, true},
				"something left":    {ptr(int64(11)), nil, 10, false},
				"tokens all spent":  {ptr(int64(10)), nil, 10, true},
				"money all spent":   {nil, ptr(int64(10_000)), 10, true},
				"some money left":   {nil, ptr(int64(10_001)), 10, false},
				"one cap of two":    {ptr(int64(100)), ptr(int64(9_999)), 10, true},
				"more than the cap": {ptr(int64(9)), nil, 10, true},
			} {
				e := f.epic(t, epic.Epic{BudgetTokens: tc.tokens, BudgetNanoUSD: tc.nano})
				v := f.task(t, e.ID)
				if tc.spend > 0 {
					_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run "+name, 0, v.ID, tc.spend, 0)})
					require.NoError(t, err)
				}
				err := claim(f, v.ID, "run")
				if !tc.refused {
					require.NoError(t, err, name)
					continue
				}
				requireError(t, err, errs.FailedPrecondition, epic.ReasonBudgetExhausted)
				_, err = f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{}, []string{"budget_tokens", "budget_nano_usd"})
				require.NoError(t, err)
				require.NoError(t, claim(f, v.ID, "run"), name)
			}
		},
		"Claim/OfATaskWithAnEstimateHoldsItUntilItsCallsHaveUsedIt": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			estimated := func(tokens int64) string {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "estimated", EstimatedTokens: tokens})
				require.NoError(t, err)
				return v.ID
			}
			first := estimated(60)
			require.NoError(t, claim(f, first, "first"))
			over, exactly := estimated(41), estimated(40)
			no := requireError(t, claim(f, over, "over"), errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.Contains(t, no.Message, "is estimated to use 41 tokens, which do not fit: epic "+e.ID+" has spent 0 of 100, reserved 0 for calls, and work under way is estimated to use 60 more")
			_, err := f.MoveTask(f.ctx, ns, over, accounting.Change{}, epic.TaskRunning, accounting.Outcome{})
			requireError(t, err, errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.NoError(t, claim(f, exactly, "exactly"), "exactly at the cap is allowed")
			requireError(t, claim(f, estimated(1), "one"), errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.NoError(t, claim(f, f.task(t, e.ID).ID, "free"), "a task without an estimate starts while something is left")
			require.Nil(t, f.reserve(t, reservation("first", 0, first, 30, 0)).Refusal, "estimates hold back no calls")
			requireError(t, claim(f, over, "over"), errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.NoError(t, claim(f, exactly, "exactly"), "what the call has reserved of the estimate does not count twice")
			f.spend(t, first, "first", 30)
			require.NoError(t, claim(f, exactly, "exactly"), "nor does what it has used")
			_, err = f.ConfirmClaim(f.ctx, ns, first, "first", time.Time{})
			require.NoError(t, err)
			_, err = f.SettleClaim(f.ctx, ns, first, "first", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("first", 0, first, 1, 0)})
			require.NoError(t, err)
			require.NoError(t, claim(f, estimated(29), "rest"), "what an ended run has not used of its estimate is free")
			requireError(t, claim(f, estimated(70), "never"), errs.FailedPrecondition, epic.ReasonBudgetExhausted)
			f.balanced(t)
		},
		"Claim/OfATaskWithAnEstimateAsksTheCapsOfNamespaceAndTaskToo": func(t *testing.T, f *fixture) {
			estimated := func() string {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: f.epic(t, epic.Epic{}).ID, Title: "estimated", EstimatedTokens: 60})
				require.NoError(t, err)
				return v.ID
			}
			capOf := func(id ledger.ID, tokens int64) {
				_, err := f.SetCaps(f.ctx, ns, id, ledger.Caps{Tokens: &tokens}, ledger.Caps{})
				require.NoError(t, err)
			}
			capOf(ledger.ID{Level: ledger.Namespace}, 119)
			one, two := estimated(), estimated()
			require.NoError(t, claim(f, one, "one"))
			no := requireError(t, claim(f, two, "two"), errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.Contains(t, no.Message, "namespace has spent 0 of 119, reserved 0 for calls, and work under way is estimated to use 60 more")
			capOf(ledger.ID{Level: ledger.Namespace}, 120)
			capOf(ledger.ID{Level: ledger.Task, Name: two}, 59)
			no = requireError(t, claim(f, two, "two"), errs.ResourceExhausted, epic.ReasonEstimateWaits)
			require.Contains(t, no.Message, "task "+two+" has spent 0 of 59")
			capOf(ledger.ID{Level: ledger.Task, Name: two}, 60)
			require.NoError(t, claim(f, two, "two"))
		},
		"Claim/HoldsNoEstimateWhileItsRunIsNotHeardOf": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "estimated", EstimatedTokens: 60})
			require.NoError(t, err)
			held := func(quiet time.Time) (n int64) {
				require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
					n, err = tx.Estimated(ctx, ns, e.ID, "", quiet)
					return err
				}))
				return n
			}
			before, later := dbkit.Now().Add(-time.Hour), dbkit.Now().Add(time.Hour)
			_, _, err = f.ClaimTask(f.ctx, ns, v.ID, "ra", time.Minute)
			require.NoError(t, err)
			require.EqualValues(t, 60, held(later), "a start under way counts")
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "ra", time.Time{})
			require.NoError(t, err)
			require.Equal(t, []int64{60, 0}, []int64{held(before), held(later)})
			hard := int64(1000)
			_, err = f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Epic, Name: e.ID}, ledger.Caps{Tokens: &hard}, ledger.Caps{})
			require.NoError(t, err)
			require.Nil(t, f.reserve(t, reservation("ra", 0, v.ID, 20, 0)).Refusal)
			require.EqualValues(t, 40, held(later), "a call that is made holds the rest again")
		},
		"Claim/AnEpicWhoseRunIsNotHeardOfIsFound": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			var tasks []string
			for range 2 {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "estimated", EstimatedTokens: 60})
				require.NoError(t, err)
				tasks = append(tasks, v.ID)
			}
			f.begun(t, tasks[0], "ra")
			found := func(quiet time.Time) []store.EpicKey {
				keys, err := f.store.QuietEpics(f.ctx, quiet, store.EpicKey{}, 10)
				require.NoError(t, err)
				return keys
			}
			before, later := dbkit.Now().Add(-time.Hour), dbkit.Now().Add(time.Hour)
			require.Empty(t, found(later), "it does not run by itself")
			f.runEpic(t, e.ID, 2)
			require.Equal(t, []store.EpicKey{{Namespace: ns, ID: e.ID}}, found(later))
			require.Empty(t, found(before))
			f.move(t, tasks[1], epic.TaskCanceled)
			require.Empty(t, found(later), "nothing is ready")
		},
		"Claim/HugeEstimatesStopNobodyElse": func(t *testing.T, f *fixture) {
			for i := range 3 { // without a cap nothing holds them back
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: f.epic(t, epic.Epic{}).ID, Title: "huge", EstimatedTokens: math.MaxInt64})
				require.NoError(t, err)
				require.NoError(t, claim(f, v.ID, fmt.Sprint("huge", i)))
			}
			most := int64(math.MaxInt64)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{Tokens: &most}, ledger.Caps{})
			require.NoError(t, err)
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: f.epic(t, epic.Epic{}).ID, Title: "small", EstimatedTokens: 60})
			require.NoError(t, err)
			require.NoError(t, claim(f, v.ID, "small"))
		},
		"Claim/OneOfManyTasksGetsWhatIsLeftForEstimates": func(t *testing.T, f *fixture) {
			limit := int64(60)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{Tokens: &limit}, ledger.Caps{})
			require.NoError(t, err)
			tasks := make([]string, 16)
			for i := range tasks {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: f.epic(t, epic.Epic{}).ID, Title: "estimated", EstimatedTokens: 60})
				require.NoError(t, err)
				tasks[i] = v.ID
			}
			results := together(len(tasks), func(i int) error { return claim(f, tasks[i], fmt.Sprint("run", i)) })
			require.Equal(t, 1, count(results, succeeded), "%v", results)
		},
		"Claim/UnknownPricesUnderAMoneyCapAreNoted": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(1_000_000))})
			v := f.task(t, e.ID)
			u := entry("run", 0, v.ID, 10, 10)
			u.Model = "mystery"
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{u})
			require.NoError(t, err)
			for range 2 {
				got, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Hour)
				require.NoError(t, err)
				require.Len(t, got.Notes, 1)
				require.Equal(t, "registry", got.Notes[0].Author)
			}
		},
		"Claim/KeepsOthersHandsOff": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			require.NoError(t, claim(f, v.ID, "run"))
			for _, to := range []epic.TaskState{epic.TaskRunning, epic.TaskCompleted, epic.TaskBlocked} {
				_, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, to, accounting.Outcome{})
				bad := requireError(t, err, errs.FailedPrecondition, epic.ReasonTaskClaimed)
				require.Equal(t, "run", bad.Meta["run_id"])
			}
			_, err := f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{DependsOn: []string{w.ID}}, []string{"depends_on"})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonTaskClaimed)
			f.move(t, v.ID, epic.TaskCanceled)
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			lost := requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimLost)
			require.Equal(t, "CANCELED", lost.Meta["state"])
		},
		"Claim/ATaskThatARunHasIsThatRunsToEnd": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			for _, to := range []epic.TaskState{epic.TaskCompleted, epic.TaskFailed} {
				_, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, to, accounting.Outcome{Summary: "by hand"})
				bad := requireError(t, err, errs.FailedPrecondition, epic.ReasonTaskClaimed)
				require.Equal(t, "run", bad.Meta["run_id"])
				require.Contains(t, bad.HintText(), "CANCELED")
			}
			for _, to := range []epic.TaskState{epic.TaskPending, epic.TaskBlocked} {
				_, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, to, accounting.Outcome{})
				requireError(t, err, errs.FailedPrecondition, epic.ReasonInvalidTransition)
			}
			requireError(t, claim(f, v.ID, "another"), errs.FailedPrecondition, epic.ReasonNotClaimable)
			got, err := f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskFailed, Error: "x"})
			require.NoError(t, err)
			require.Equal(t, epic.TaskFailed, got.State)
			require.Empty(t, got.ResultSummary)
			f.move(t, v.ID, epic.TaskPending)
			require.NoError(t, claim(f, v.ID, "another"), "the first one has ended")
			f.recount(t, ns, e.ID)
		},
		"Claim/TheLoserOfATaskIsCanceled": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			taken, byHand, gone := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			for _, id := range []string{taken.ID, byHand.ID, gone.ID} {
				lapse(t, f, id, "late")
			}
			f.begun(t, taken.ID, "other")
			f.move(t, byHand.ID, epic.TaskCompleted)
			require.NoError(t, f.DeleteTask(f.ctx, ns, gone.ID, ""))
			_, list := f.take(t, time.Hour)
			require.NoError(t, f.AcknowledgeOrders(f.ctx, list), "whoever looked saw no such run")
			for id, reason := range map[string]string{taken.ID: epic.ReasonClaimLost, byHand.ID: epic.ReasonClaimLost, gone.ID: store.ReasonTaskNotFound} {
				_, err := f.ConfirmClaim(f.ctx, ns, id, "late", time.Time{})
				require.Equal(t, reason, errs.ReasonOf(err))
			}
			got, list := f.take(t, time.Hour)
			require.Equal(t, []string{"default late CLAIM_LOST", "default late CLAIM_LOST", "default late TASK_DELETED"}, got)
			for _, c := range list {
				require.True(t, c.Confirmed, "its run has begun")
			}
			require.Equal(t, epic.TaskRunning, f.state(t, taken.ID))
		},
		"Claim/WorkByHandIsLetInAsARunIs": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(10))})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			f.move(t, w.ID, epic.TaskRunning)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 0)})
			require.NoError(t, err)
			_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskRunning, accounting.Outcome{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonBudgetExhausted)
			require.Equal(t, epic.TaskPending, f.state(t, v.ID))
			f.move(t, w.ID, epic.TaskFailed)
			f.move(t, v.ID, epic.TaskCompleted) // finished work may be recorded
			f.recount(t, ns, e.ID)

			unpriced := f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(1_000_000))})
			v = f.task(t, unpriced.ID)
			u := entry("run", 1, v.ID, 10, 10)
			u.Model = "mystery"
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{u})
			require.NoError(t, err)
			require.Len(t, f.move(t, v.ID, epic.TaskRunning).Notes, 1, "the cap cannot be held")
		},
	}
}
