package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// runEpic has an epic run by itself.
func (f *fixture) runEpic(t testing.TB, id string, parallel int32) epic.Epic {
	t.Helper()
	e, err := f.RunEpic(f.ctx, ns, id, accounting.Change{}, parallel, "")
	require.NoError(t, err)
	return e
}

// orders leases all orders that are due, and returns them by what they are about: the run, or the task.
func (f *fixture) orders(t testing.TB, hold time.Duration) map[string]epic.Order {
	t.Helper()
	list, err := f.LeaseOrders(f.ctx, 1000, hold)
	require.NoError(t, err)
	out := make(map[string]epic.Order, len(list))
	for _, o := range list {
		about := o.RunID
		if about == "" {
			about = o.TaskID
			require.Equal(t, epic.OrderStart, o.Kind)
		}
		require.NotContains(t, out, about)
		out[about] = o
	}
	return out
}

// starts are the tasks that are to be started, in order.
func starts(orders map[string]epic.Order) (out []string) {
	for id, o := range orders {
		if o.Kind == epic.OrderStart {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// ended claims and confirms a task for a run, and settles it.
func (f *fixture) ended(t testing.TB, task, run string, to epic.TaskState) epic.Task {
	t.Helper()
	f.begun(t, task, run)
	got, err := f.SettleClaim(f.ctx, ns, task, run, accounting.Settlement{State: to, Error: "of " + run})
	require.NoError(t, err)
	return got
}

func (f *fixture) budget(t testing.TB, id string, tokens *int64) epic.Epic {
	t.Helper()
	e, err := f.UpdateEpic(f.ctx, ns, id, accounting.Change{}, epic.Epic{BudgetTokens: tokens}, []string{"budget_tokens"})
	require.NoError(t, err)
	return e
}

// spend books tokens on a task.
func (f *fixture) spend(t testing.TB, task, run string, tokens int64) {
	t.Helper()
	_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{{Key: usage.Key{RunID: run, NodeID: "n", Source: usage.Executor}, Kind: usage.Model, TaskID: task, InputTokens: tokens, Time: time.Now().UTC()}})
	require.NoError(t, err)
}

func (f *fixture) epicNow(t testing.TB, id string) epic.Epic {
	t.Helper()
	e, err := f.Epic(f.ctx, ns, id)
	require.NoError(t, err)
	return e
}

// sound requires that nothing in the database looks wrong.
func (f *fixture) sound(t testing.TB) {
	t.Helper()
	in, ok := f.store.(store.Inspector)
	require.True(t, ok)
	for _, s := range []store.Suspicion{store.SuspectStart, store.SuspectIdle, store.SuspectTaskCounts, store.SuspectReady, store.SuspectWaiting} {
		found, err := in.Suspects(f.ctx, s, 0, 10)
		require.NoError(t, err)
		require.Empty(t, found, "%s", s)
	}
}

func pauseCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Pause/ReachesEveryRunAtWork": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			one, two, free := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, one.ID, "one")
			f.begun(t, two.ID, "two")
			f.ended(t, f.task(t, e.ID).ID, "ended", epic.TaskCompleted)
			f.begun(t, f.task(t, f.epic(t, epic.Epic{}).ID).ID, "elsewhere")
			f.moveEpic(t, e.ID, epic.Paused)
			got := f.orders(t, time.Hour)
			require.Len(t, got, 2)
			for _, run := range []string{"one", "two"} {
				require.Equal(t, epic.OrderPause, got[run].Kind)
				require.Equal(t, epic.ReasonEpicPaused, got[run].Reason)
				require.True(t, got[run].Confirmed)
			}
			require.Equal(t, epic.TaskPending, f.state(t, free.ID))
			require.Empty(t, f.epicNow(t, e.ID).PauseReason, "somebody asked for it")
		},
		"Pause/TakesBackAnOrderToResume": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.moveEpic(t, e.ID, epic.Paused)
			f.moveEpic(t, e.ID, epic.Active)
			got := f.orders(t, time.Hour)
			require.Equal(t, epic.OrderResume, got["run"].Kind)
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{got["run"]}))
			f.moveEpic(t, e.ID, epic.Paused)
			require.Equal(t, epic.OrderPause, f.orders(t, time.Hour)["run"].Kind)
		},
		"Pause/InHandIsFollowedByTheResumeOnlyAfterItsLease": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.moveEpic(t, e.ID, epic.Paused)
			held := f.orders(t, time.Hour)["run"]
			f.moveEpic(t, e.ID, epic.Active)
			require.Empty(t, f.orders(t, time.Hour), "the pause may yet be carried out")
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{held}))
			require.Empty(t, f.orders(t, time.Hour), "an acknowledgement of the one says nothing of the other")
			f.moveEpic(t, e.ID, epic.Canceled)
			require.Equal(t, epic.OrderCancel, f.orders(t, time.Hour)["run"].Kind, "a cancel waits for nothing")
		},
		"Pause/ResumeComesWhenTheLeaseIsOver": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.moveEpic(t, e.ID, epic.Paused)
			require.Len(t, f.orders(t, 20*time.Millisecond), 1)
			f.moveEpic(t, e.ID, epic.Active)
			testkit.Eventually(t, func() bool { return f.orders(t, time.Hour)["run"].Kind == epic.OrderResume })
		},
		"Pause/NeverReplacesACancel": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.move(t, v.ID, epic.TaskCanceled)
			f.moveEpic(t, e.ID, epic.Paused)
			f.moveEpic(t, e.ID, epic.Active)
			got := f.orders(t, time.Hour)
			require.Equal(t, epic.OrderCancel, got["run"].Kind)
			require.Equal(t, epic.ReasonTaskCanceled, got["run"].Reason)
		},
		"Pause/ReachesARunWhoseStartWasUnderWay": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Hour)
			require.NoError(t, err)
			f.moveEpic(t, e.ID, epic.Paused)
			require.Empty(t, f.orders(t, time.Hour), "there is no run yet")
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			require.NoError(t, err)
			require.Equal(t, epic.OrderPause, f.orders(t, time.Hour)["run"].Kind)
		},
		"Pause/GoesWithTheEndOfTheRun": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.moveEpic(t, e.ID, epic.Paused)
			_, err := f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			require.Empty(t, f.orders(t, time.Hour))
		},
	}
}

func runningCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"RunEpic/StartsWhatIsReadyUpToTheLimit": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b, c := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			after := f.task(t, e.ID, a.ID)
			require.Empty(t, f.orders(t, time.Hour), "an epic runs by itself only when told so")
			require.EqualValues(t, 2, f.runEpic(t, e.ID, 2).Parallel)
			got := f.orders(t, time.Hour)
			require.Equal(t, []string{a.ID, b.ID}, starts(got))
			require.Equal(t, epic.ReasonTaskReady, got[a.ID].Reason)
			require.NotEqual(t, got[a.ID].ID, got[b.ID].ID)
			f.begun(t, a.ID, "ra")
			require.Empty(t, f.orders(t, time.Hour), "one is at work, and one is about to be")
			_, err := f.SettleClaim(f.ctx, ns, a.ID, "ra", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			require.Equal(t, []string{c.ID}, starts(f.orders(t, time.Hour)))
			f.runEpic(t, e.ID, 3)
			require.Equal(t, []string{after.ID}, starts(f.orders(t, time.Hour)), "a higher limit starts more at once")
			f.sound(t)
		},
		"RunEpic/IsPausedByACallThatItsBudgetIsTooSmallFor": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a := f.task(t, e.ID)
			hundred := int64(100)
			f.budget(t, e.ID, &hundred)
			f.runEpic(t, e.ID, 2)
			f.begun(t, a.ID, "ra")
			require.Nil(t, f.reserve(t, reservation("ra", 0, a.ID, 60, 0)).Refusal)
			require.NotNil(t, f.reserve(t, reservation("ra", 1, a.ID, 60, 0)).Refusal)
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State, "there is room once the call under way has used less")
			require.NotNil(t, f.reserve(t, reservation("ra", 2, a.ID, 101, 0)).Refusal)
			now := f.epicNow(t, e.ID)
			require.Equal(t, []any{epic.Paused, epic.ReasonBudgetExhausted}, []any{now.State, now.PauseReason})
			require.Equal(t, epic.OrderPause, f.orders(t, time.Hour)["ra"].Kind)
			more := int64(1000)
			require.Equal(t, epic.Active, f.budget(t, e.ID, &more).State, "it goes on once it has more")
			require.Nil(t, f.reserve(t, reservation("ra", 2, a.ID, 101, 0)).Refusal)
		},
		"RunEpic/HoldsBackTasksWhoseEstimatesDoNotFitBesideThoseUnderWay": func(t *testing.T, f *fixture) {
			hundred := int64(100)
			e := f.epic(t, epic.Epic{BudgetTokens: &hundred})
			var ids []string
			for _, tokens := range []int64{60, 41, 101} {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "estimated", EstimatedTokens: tokens})
				require.NoError(t, err)
				ids = append(ids, v.ID)
			}
			f.runEpic(t, e.ID, 3)
			require.Equal(t, []string{ids[0]}, starts(f.orders(t, time.Hour)))
			f.ended(t, ids[0], "first", epic.TaskCompleted)
			require.Equal(t, []string{ids[1]}, starts(f.orders(t, time.Hour)), "it fits once the first has ended")
			f.ended(t, ids[1], "second", epic.TaskCompleted)
			order, ok := f.orders(t, time.Hour)[ids[2]]
			require.True(t, ok, "nothing is under way, so its claim tells that it never fits")
			_, _, err := f.ClaimTask(f.ctx, ns, ids[2], "third", time.Hour)
			no := requireError(t, err, errs.FailedPrecondition, epic.ReasonBudgetExhausted)
			require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: order, Cause: no.Reason, Message: no.Message}))
			now := f.epicNow(t, e.ID)
			require.Equal(t, []any{epic.Paused, epic.ReasonBudgetExhausted}, []any{now.State, now.PauseReason})
			v, err := f.Task(f.ctx, ns, ids[2])
			require.NoError(t, err)
			require.Contains(t, v.Notes[0].Text, "is estimated to use 101 tokens, which do not fit: epic "+e.ID+" has spent 0 of 100")
			more := int64(101)
			require.Equal(t, epic.Active, f.budget(t, e.ID, &more).State)
			require.Equal(t, []string{ids[2]}, starts(f.orders(t, time.Hour)))
			f.sound(t)
		},
		"RunEpic/StartsTheMostUrgentFirst": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			f.task(t, e.ID)
			urgent, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "urgent", Priority: epic.Critical})
			require.NoError(t, err)
			f.runEpic(t, e.ID, 1)
			require.Equal(t, []string{urgent.ID}, starts(f.orders(t, time.Hour)))
		},
		"RunEpic/DefaultLimitAndWorkflow": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			got, err := f.RunEpic(f.ctx, ns, e.ID, accounting.Change{}, 0, "greet")
			require.NoError(t, err)
			require.EqualValues(t, epic.DefaultParallel, got.Parallel)
			require.Equal(t, "greet", got.WorkflowSlug)
			require.Equal(t, got, f.epicNow(t, e.ID))
			f.runEpic(t, e.ID, 8)
			require.EqualValues(t, 8, f.runEpic(t, e.ID, 0).Parallel, "another call without a limit leaves it")
			v := f.task(t, e.ID)
			require.Equal(t, []string{v.ID}, starts(f.orders(t, time.Hour)), "a task that is added later is started too")
		},
		"RunEpic/OnlyWhereWorkGoesOn": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			f.task(t, e.ID)
			f.moveEpic(t, e.ID, epic.Paused)
			_, err := f.RunEpic(f.ctx, ns, e.ID, accounting.Change{}, 1, "")
			requireError(t, err, errs.FailedPrecondition, epic.ReasonEpicNotActive)
			f.moveEpic(t, e.ID, epic.Canceled)
			_, err = f.RunEpic(f.ctx, ns, e.ID, accounting.Change{}, 1, "")
			requireError(t, err, errs.FailedPrecondition, epic.ReasonEpicEnded)
		},
		"RunEpic/OrderToStartComesAgainUntilTheRunHasTheTask": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			first := f.orders(t, time.Millisecond)[v.ID]
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{first}), "only the start ends it")
			testkit.Eventually(t, func() bool { return f.orders(t, time.Millisecond)[v.ID].ID == first.ID })
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Hour)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { return f.orders(t, time.Millisecond)[v.ID].ID == first.ID }, "the run may not be recorded yet")
			_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
			require.NoError(t, err)
			f.noOrders(t)
			f.sound(t)
		},
		"RunEpic/AnOrderThatIsRepeatedOftenComesLessOften": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			var took []time.Duration
			for range 4 {
				begin := time.Now()
				testkit.Eventually(t, func() bool { return f.orders(t, 40*time.Millisecond)[v.ID].ID != "" })
				took = append(took, time.Since(begin))
			}
			require.Greater(t, took[3], 100*time.Millisecond, "the third lease is three times as long: %v", took)
		},
		"RunEpic/FailedTasksAreTriedAgainAndThenFailTheEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "fails", MaxRetries: 1})
			require.NoError(t, err)
			f.runEpic(t, e.ID, 1)
			first := f.orders(t, time.Hour)[v.ID]
			got := f.ended(t, v.ID, "one", epic.TaskFailed)
			require.Equal(t, epic.TaskPending, got.State)
			require.EqualValues(t, 1, got.RetryCount)
			require.Equal(t, "of one", got.ErrorMessage)
			require.Empty(t, f.orders(t, time.Hour), "it waits for a second first")
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State)
			testkit.Eventually(t, func() bool { o := f.orders(t, time.Hour)[v.ID]; return o.ID != "" && o.ID != first.ID })
			require.Equal(t, epic.TaskFailed, f.ended(t, v.ID, "two", epic.TaskFailed).State)
			require.Equal(t, epic.Failed, f.epicNow(t, e.ID).State)
			f.noOrders(t)
		},
		"RunEpic/FailedTasksOfOtherEpicsAreLeftToOthers": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			require.Equal(t, epic.TaskFailed, f.ended(t, v.ID, "run", epic.TaskFailed).State)
		},
		"RunEpic/CompletesWithItsTasks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Skip})
			a := f.task(t, e.ID)
			b := f.task(t, e.ID, a.ID)
			f.runEpic(t, e.ID, 2)
			f.ended(t, a.ID, "ra", epic.TaskCompleted)
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State)
			f.ended(t, b.ID, "rb", epic.TaskCompleted)
			got := f.epicNow(t, e.ID)
			require.Equal(t, epic.Completed, got.State)
			require.False(t, got.EndTime.IsZero())
			f.noOrders(t)
		},
		"RunEpic/PauseWithdrawsStartsAndResumeOrdersThemAnew": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b := f.task(t, e.ID), f.task(t, e.ID)
			f.runEpic(t, e.ID, 2)
			f.begun(t, a.ID, "ra")
			was := f.orders(t, time.Hour)[b.ID].ID
			f.moveEpic(t, e.ID, epic.Paused)
			require.Empty(t, starts(f.orders(t, time.Millisecond)))
			f.moveEpic(t, e.ID, epic.Active)
			testkit.Eventually(t, func() bool {
				got := f.orders(t, time.Hour)
				return len(starts(got)) == 1 && got[b.ID].ID != was
			})
			f.sound(t)
		},
		"RunEpic/WhatTakesATaskTakesItsOrder": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			canceled, deleted, byHand, blocked := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			last := f.task(t, e.ID)
			f.runEpic(t, e.ID, 5)
			f.move(t, canceled.ID, epic.TaskCanceled)
			require.NoError(t, f.DeleteTask(f.ctx, ns, deleted.ID, ""))
			f.move(t, byHand.ID, epic.TaskRunning)
			_, err := f.UpdateTask(f.ctx, ns, blocked.ID, accounting.Change{}, epic.Task{DependsOn: []string{last.ID}}, []string{"depends_on"})
			require.NoError(t, err)
			require.Equal(t, []string{last.ID}, starts(f.orders(t, time.Hour)))
			f.sound(t)
			f.moveEpic(t, e.ID, epic.Canceled)
			f.noOrders(t)
			f.sound(t)
		},
	}
}

// noOrders requires that no order is left, leased or not.
func (f *fixture) noOrders(t testing.TB) {
	t.Helper()
	in, ok := f.store.(store.Inspector)
	require.True(t, ok)
	found, err := in.Suspects(f.ctx, store.SuspectStart, 0, 10)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Empty(t, f.orders(t, time.Hour))
}

func stopCases() map[string]func(*testing.T, *fixture) {
	cap1, cap2 := int64(100), int64(1000)
	return map[string]func(*testing.T, *fixture){
		"Budget/StopsAnEpicAndItsRunsAndARaiseGoesOn": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: &cap1})
			a, b, c := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			f.runEpic(t, e.ID, 2)
			f.begun(t, a.ID, "ra")
			f.begun(t, b.ID, "rb")
			f.spend(t, a.ID, "ra", 99)
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State)
			f.spend(t, b.ID, "rb", 1)
			got := f.epicNow(t, e.ID)
			require.Equal(t, epic.Paused, got.State)
			require.Equal(t, epic.ReasonBudgetExhausted, got.PauseReason)
			orders := f.orders(t, time.Millisecond)
			require.Len(t, orders, 2)
			require.Equal(t, epic.OrderPause, orders["ra"].Kind)
			_, err := f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Active, "")
			requireError(t, err, errs.FailedPrecondition, epic.ReasonBudgetExhausted)
			more := int64(100)
			require.Equal(t, epic.Paused, f.budget(t, e.ID, &more).State, "the same is no raise")
			got = f.budget(t, e.ID, &cap2)
			require.Equal(t, epic.Active, got.State)
			require.Empty(t, got.PauseReason)
			testkit.Eventually(t, func() bool {
				o := f.orders(t, time.Millisecond)
				return o["ra"].Kind == epic.OrderResume && o["rb"].Kind == epic.OrderResume
			})
			_, err = f.SettleClaim(f.ctx, ns, a.ID, "ra", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			require.Equal(t, []string{c.ID}, starts(f.orders(t, time.Hour)))
			f.sound(t)
		},
		"Budget/OfAnEpicThatDoesNotRunByItselfRefusesStartsAlone": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: &cap1})
			v := f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.spend(t, v.ID, "run", 500)
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State)
			require.Empty(t, f.orders(t, time.Hour))
		},
		"Budget/LoweredStopsAtOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			f.begun(t, v.ID, "run")
			f.spend(t, v.ID, "run", 500)
			require.Equal(t, epic.Paused, f.budget(t, e.ID, &cap1).State)
			require.Equal(t, epic.OrderPause, f.orders(t, time.Hour)["run"].Kind)
		},
		"Budget/SpentByTheLastTaskLeavesTheEpicCompleted": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: &cap1})
			v := f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			f.begun(t, v.ID, "run")
			f.spend(t, v.ID, "run", 100)
			require.Equal(t, epic.Paused, f.epicNow(t, e.ID).State)
			_, err := f.SettleClaim(f.ctx, ns, v.ID, "run", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			got := f.epicNow(t, e.ID)
			require.Equal(t, epic.Completed, got.State)
			require.Empty(t, got.PauseReason)
		},
		"RefuseStart/FailsTheTaskWithItsReason": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Skip})
			v := f.task(t, e.ID)
			w := f.task(t, e.ID, v.ID)
			f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			o := f.orders(t, time.Hour)[v.ID]
			old := o
			old.ID = "another"
			require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: old, Cause: "NO", Message: "it is old"}))
			require.Equal(t, epic.TaskPending, f.state(t, v.ID), "another order was refused")
			for range 2 {
				require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: o, Cause: "NO_WORKFLOW_MATCHES", Message: "create one"}))
			}
			got, err := f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, epic.TaskFailed, got.State)
			require.Zero(t, got.RetryCount, "another try would end in the same way")
			require.Equal(t, "not started: NO_WORKFLOW_MATCHES: create one", got.ErrorMessage)
			require.Equal(t, epic.TaskCanceled, f.state(t, w.ID), "the policy decides about what waits for it")
			require.Len(t, starts(f.orders(t, time.Hour)), 1, "its place is free")
			f.sound(t)
		},
		"RefuseStart/OfTheLastTaskLeavesTheEpicToWhoeverMendsIt": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "work", MaxRetries: 1})
			require.NoError(t, err)
			f.runEpic(t, e.ID, 1)
			require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: f.orders(t, time.Hour)[v.ID], Cause: "TASK_WITHOUT_WORKFLOW"}))
			require.Equal(t, epic.Active, f.epicNow(t, e.ID).State)
			f.move(t, v.ID, epic.TaskPending)
			testkit.Eventually(t, func() bool {
				o, due := f.orders(t, time.Hour)[v.ID]
				if due {
					require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: o, Cause: "TASK_WITHOUT_WORKFLOW"}))
				}
				return due
			})
			require.Equal(t, epic.Failed, f.epicNow(t, e.ID).State, "it has been tried as often as it may be")
		},
		"RefuseStart/ForTheBudgetPausesTheEpicAndKeepsTheTask": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: f.orders(t, time.Hour)[v.ID], Cause: epic.ReasonBudgetExhausted}))
			got := f.epicNow(t, e.ID)
			require.Equal(t, epic.Paused, got.State)
			require.Equal(t, epic.ReasonBudgetExhausted, got.PauseReason)
			require.Equal(t, epic.TaskPending, f.state(t, v.ID))
			f.noOrders(t)
			require.Equal(t, epic.Active, f.budget(t, e.ID, &cap2).State)
			require.Equal(t, []string{v.ID}, starts(f.orders(t, time.Hour)))
		},
		"RefuseStart/OfATaskThatIsGoneChangesNothing": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.runEpic(t, e.ID, 1)
			o := f.orders(t, time.Hour)[v.ID]
			require.NoError(t, f.DeleteTask(f.ctx, ns, v.ID, ""))
			require.NoError(t, f.RefuseStart(f.ctx, epic.RefusedStart{Order: o, Cause: "NO"}))
		},
	}
}
