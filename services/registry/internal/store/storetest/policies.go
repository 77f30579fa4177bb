package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// policyCases are what becomes of tasks that wait for one which has failed or was canceled.
func policyCases() map[string]func(*testing.T, *fixture) {
	out := map[string]func(*testing.T, *fixture){
		"Policies/OfTheTaskComesBeforeThatOfTheEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Fail})
			first := f.task(t, e.ID)
			waits, skipped, failed := f.waits(t, e.ID, epic.Block, first.ID), f.waits(t, e.ID, epic.Skip, first.ID), f.waits(t, e.ID, 0, first.ID)
			f.move(t, first.ID, epic.TaskRunning)
			f.move(t, first.ID, epic.TaskFailed)
			require.Equal(t, []epic.TaskState{epic.TaskBlocked, epic.TaskCanceled, epic.TaskFailed}, []epic.TaskState{f.state(t, waits), f.state(t, skipped), f.state(t, failed)})
			f.recount(t, ns, e.ID)
		},
		"Policies/EndWhatWaitsThroughOthersToo": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Skip})
			first := f.task(t, e.ID)
			second := f.waits(t, e.ID, epic.Fail, first.ID)
			third := f.waits(t, e.ID, 0, second)
			held := f.waits(t, e.ID, epic.Block, third)
			behind := f.waits(t, e.ID, 0, held)
			f.move(t, first.ID, epic.TaskCanceled)
			for id, want := range map[string]epic.TaskState{second: epic.TaskFailed, third: epic.TaskCanceled, held: epic.TaskBlocked, behind: epic.TaskBlocked} {
				require.Equal(t, want, f.state(t, id))
			}
			v, err := f.Task(f.ctx, ns, third)
			require.NoError(t, err)
			require.Equal(t, []any{second, int64(2)}, []any{v.EndedBy, v.Revision})
			require.False(t, v.EndTime.IsZero())
			require.Equal(t, []string{third}, f.why(t, behind), "named through the one that is held")
			f.recount(t, ns, e.ID)
		},
		"Policies/ABlockedTaskSaysWhatItWaitsForInVain": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b, c := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			v := f.task(t, e.ID, a.ID, b.ID, c.ID)
			require.Empty(t, v.BlockedBy, "it only waits")
			f.move(t, a.ID, epic.TaskCanceled)
			f.move(t, b.ID, epic.TaskRunning)
			f.move(t, b.ID, epic.TaskFailed)
			require.Equal(t, []string{a.ID, b.ID}, f.why(t, v.ID))
			born := f.task(t, e.ID, a.ID)
			require.Equal(t, []string{a.ID}, born.BlockedBy)
			f.move(t, b.ID, epic.TaskPending)
			require.Equal(t, []string{a.ID}, f.why(t, v.ID), "the other one is tried again")
			got, err := f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{DependsOn: []string{b.ID}}, []string{"depends_on"})
			require.NoError(t, err)
			require.Empty(t, got.BlockedBy)
		},
		"Policies/HoldForWhatIsCreatedOrComesToDependLater": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Fail})
			dead, fine := f.task(t, e.ID), f.task(t, e.ID)
			f.move(t, dead.ID, epic.TaskCanceled)
			require.Equal(t, epic.TaskFailed, f.state(t, f.waits(t, e.ID, 0, fine.ID, dead.ID)))
			later := f.waits(t, e.ID, 0, fine.ID)
			behind := f.waits(t, e.ID, epic.Skip, later)
			v, err := f.UpdateTask(f.ctx, ns, later, accounting.Change{}, epic.Task{DependsOn: []string{fine.ID, dead.ID}}, []string{"depends_on"})
			require.NoError(t, err)
			require.Equal(t, []any{epic.TaskFailed, dead.ID}, []any{v.State, v.EndedBy})
			require.Equal(t, epic.TaskCanceled, f.state(t, behind))
			f.recount(t, ns, e.ID)
		},
		"Policies/AChangeDecidesAtOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first := f.task(t, e.ID)
			a, b := f.waits(t, e.ID, 0, first.ID), f.waits(t, e.ID, 0, first.ID)
			behind := f.waits(t, e.ID, 0, a)
			f.move(t, first.ID, epic.TaskCanceled)
			v, err := f.UpdateTask(f.ctx, ns, b, accounting.Change{}, epic.Task{DependencyPolicy: epic.Skip}, []string{"dependency_policy"})
			require.NoError(t, err)
			require.Equal(t, epic.TaskCanceled, v.State)
			require.Equal(t, epic.TaskBlocked, f.state(t, a))
			got, err := f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{DependencyPolicy: epic.Fail}, []string{"dependency_policy"})
			require.NoError(t, err)
			require.Equal(t, int32(2), got.FailedTasks)
			require.Equal(t, []epic.TaskState{epic.TaskFailed, epic.TaskFailed}, []epic.TaskState{f.state(t, a), f.state(t, behind)})
			f.recount(t, ns, e.ID)
		},
		"Policies/AFailedTaskIsTriedAgainAfterWhatItDependsOn": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Fail})
			first := f.task(t, e.ID)
			v := f.waits(t, e.ID, 0, first.ID)
			f.move(t, first.ID, epic.TaskRunning)
			f.move(t, first.ID, epic.TaskFailed)
			_, err := f.MoveTask(f.ctx, ns, v, accounting.Change{}, epic.TaskPending, accounting.Outcome{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonDependenciesUnmet)
			f.move(t, first.ID, epic.TaskPending)
			got := f.move(t, v, epic.TaskPending)
			require.Equal(t, []any{epic.TaskBlocked, "", int32(1)}, []any{got.State, got.EndedBy, got.RetryCount})
			f.move(t, first.ID, epic.TaskCompleted)
			require.Equal(t, epic.TaskPending, f.state(t, v))
		},
		"Policies/ARunThatFailsDecides": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Skip})
			first := f.task(t, e.ID)
			v := f.waits(t, e.ID, 0, first.ID)
			_, _, err := f.ClaimTask(f.ctx, ns, first.ID, "r", 0)
			require.NoError(t, err)
			for range 2 {
				_, err = f.SettleClaim(f.ctx, ns, first.ID, "r", accounting.Settlement{State: epic.TaskFailed})
				require.NoError(t, err)
				require.Equal(t, epic.TaskCanceled, f.state(t, v))
			}
			f.recount(t, ns, e.ID)
		},
	}
	for name, chain := range map[string]bool{"Wide": false, "Long": true} {
		out["Policies/Large/"+name] = func(t *testing.T, f *fixture) {
			const tasks = 2*1000 + several
			e := f.epic(t, epic.Epic{DependencyPolicy: epic.Fail})
			first := f.task(t, e.ID)
			ids := f.tail(t, e.ID, first.ID, tasks, chain)
			f.move(t, first.ID, epic.TaskRunning)
			f.move(t, first.ID, epic.TaskFailed)
			require.Equal(t, epic.TaskFailed, f.state(t, ids[0]))
			require.Equal(t, epic.TaskFailed, f.state(t, ids[tasks-1]))
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, int32(tasks+1), got.FailedTasks)
		}
	}
	return out
}

// waits adds a task with a policy of its own that depends on others.
func (f *fixture) waits(t testing.TB, epicID string, policy epic.DependencyPolicy, on ...string) string {
	t.Helper()
	v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: epicID, DependsOn: on, DependencyPolicy: policy})
	require.NoError(t, err)
	return v.ID
}

// why reads what keeps a task waiting.
func (f *fixture) why(t testing.TB, id string) []string {
	t.Helper()
	v, err := f.Task(f.ctx, ns, id)
	require.NoError(t, err)
	return v.BlockedBy
}

// tail adds blocked tasks without counting them: each depends on the first, or on the one before it.
func (f *fixture) tail(t testing.TB, epicID, first string, tasks int, chain bool) (ids []string) {
	t.Helper()
	if !chain {
		return f.blocked(t, tasks, epicID, first)
	}
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		ids = nil
		before := first
		for range tasks {
			v, err := epic.NewTask(ns, epic.Task{EpicID: epicID, DependsOn: []string{before}}, dbkit.Now())
			if err != nil {
				return err
			}
			v.State = epic.TaskBlocked
			if err := tx.InsertTask(ctx, v); err != nil {
				return err
			}
			ids, before = append(ids, v.ID), v.ID
		}
		return nil
	}))
	return ids
}

// BenchEnd fails a task on which 10,000 others wait: all of them directly, or one after the other.
func BenchEnd(b *testing.B, open Open) {
	for name, chain := range map[string]bool{"wide": false, "long": true} {
		b.Run(fmt.Sprintf("dependents=10000/%s", name), func(b *testing.B) {
			b.StopTimer()
			f := newFixture(b, open)
			for range b.N {
				e := f.epic(b, epic.Epic{DependencyPolicy: epic.Fail})
				first := f.task(b, e.ID)
				f.tail(b, e.ID, first.ID, 10_000, chain)
				f.move(b, first.ID, epic.TaskRunning)
				b.StartTimer()
				f.move(b, first.ID, epic.TaskFailed)
				b.StopTimer()
			}
		})
	}
}
