package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// take leases all orders that are due and returns their runs with the reasons, in order.
func (f *fixture) take(t testing.TB, hold time.Duration) (out []string, list []epic.Order) {
	t.Helper()
	list, err := f.LeaseOrders(f.ctx, 1000, hold)
	require.NoError(t, err)
	for _, c := range list {
		require.False(t, c.Time.IsZero())
		require.NotEmpty(t, c.TaskID)
		out = append(out, c.Namespace+" "+c.RunID+" "+c.Reason)
	}
	slices.Sort(out)
	return out, list
}

// begun claims a task for a run and confirms that.
func (f *fixture) begun(t testing.TB, id, run string) {
	t.Helper()
	_, _, err := f.ClaimTask(f.ctx, ns, id, run, time.Hour)
	require.NoError(t, err)
	_, err = f.ConfirmClaim(f.ctx, ns, id, run, time.Time{})
	require.NoError(t, err)
}

// unwanted records runs of a database that are to be canceled, one after the other.
func (f *fixture) unwanted(t testing.TB, namespace, database string, runs ...string) {
	t.Helper()
	for _, run := range runs {
		require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
			return tx.CancelRun(ctx, namespace, "task", run, database, "TASK_CANCELED")
		}))
	}
}

func orderCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Cancellation/OfATaskIsToldOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, other := f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			f.begun(t, other.ID, "other")
			none, _ := f.take(t, time.Hour)
			require.Empty(t, none)
			f.move(t, v.ID, epic.TaskCanceled)
			got, list := f.take(t, time.Hour)
			require.Equal(t, []string{"default run TASK_CANCELED"}, got)
			require.Equal(t, v.ID, list[0].TaskID)
			none, _ = f.take(t, time.Hour)
			require.Empty(t, none, "somebody has it")
			for range 2 {
				require.NoError(t, f.AcknowledgeOrders(f.ctx, list))
			}
		},
		"Cancellation/ComesAgainUntilItIsAcknowledged": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			f.begun(t, v.ID, "run")
			f.move(t, v.ID, epic.TaskCanceled)
			id := ""
			for range 3 {
				testkit.Eventually(t, func() bool {
					got, list := f.take(t, time.Millisecond)
					if len(got) == 1 {
						id = list[0].ID
					}
					return len(got) == 1
				})
			}
			require.NotEmpty(t, id)
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{{Namespace: "another", TaskID: v.ID, RunID: "run", ID: id}}))
			testkit.Eventually(t, func() bool {
				got, _ := f.take(t, time.Millisecond)
				return len(got) == 1
			}, "it is another one that was acknowledged")
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{{Namespace: ns, TaskID: v.ID, RunID: "run", ID: "an earlier one"}}))
			testkit.Eventually(t, func() bool {
				got, _ := f.take(t, time.Millisecond)
				return len(got) == 1
			}, "it is another order to the run that was acknowledged")
			require.NoError(t, f.AcknowledgeOrders(f.ctx, []epic.Order{{Namespace: ns, TaskID: v.ID, RunID: "run", ID: id}}))
			// One that comes later is due no sooner than the first would be.
			w := f.task(t, f.epic(t, epic.Epic{}).ID)
			f.begun(t, w.ID, "later")
			f.move(t, w.ID, epic.TaskCanceled)
			testkit.Eventually(t, func() bool {
				got, _ := f.take(t, time.Millisecond)
				require.NotContains(t, got, "default run TASK_CANCELED")
				return len(got) == 1
			})
		},
		"Cancellation/OfAnEpicReachesEveryRunThatHasNotSettled": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			one, two, claimed, lost, settled, free := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, one.ID, "one")
			f.begun(t, two.ID, "two")
			_, _, err := f.ClaimTask(f.ctx, ns, lost.ID, "lost", time.Millisecond)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool {
				n, _, err := f.Sweep(f.ctx)
				return err == nil && n == 1
			})
			_, _, err = f.ClaimTask(f.ctx, ns, claimed.ID, "claimed", time.Hour)
			require.NoError(t, err)
			f.move(t, lost.ID, epic.TaskCompleted)
			f.begun(t, settled.ID, "settled")
			_, err = f.SettleClaim(f.ctx, ns, settled.ID, "settled", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			elsewhere := f.task(t, f.epic(t, epic.Epic{}).ID)
			f.begun(t, elsewhere.ID, "elsewhere")

			f.moveEpic(t, e.ID, epic.Canceled)
			require.Equal(t, epic.TaskCanceled, f.state(t, free.ID))
			got, _ := f.take(t, time.Hour)
			require.Equal(t, []string{"default claimed EPIC_CANCELED", "default lost EPIC_CANCELED",
				"default one EPIC_CANCELED", "default two EPIC_CANCELED"}, got)
		},
		"Cancellation/OutlivesWhatIsDeleted": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w, x := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, v.ID, "canceled")
			f.move(t, v.ID, epic.TaskCanceled)
			require.NoError(t, f.DeleteTask(f.ctx, ns, v.ID, ""))
			_, _, err := f.ClaimTask(f.ctx, ns, w.ID, "starting", time.Hour)
			require.NoError(t, err)
			require.NoError(t, f.DeleteTask(f.ctx, ns, w.ID, ""))
			_, _, err = f.ClaimTask(f.ctx, ns, x.ID, "waiting", time.Hour)
			require.NoError(t, err)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
			got, _ := f.take(t, time.Hour)
			require.Equal(t, []string{"default canceled TASK_CANCELED", "default starting TASK_DELETED", "default waiting TASK_DELETED"}, got)
		},
		"Cancellation/SaysWhetherItsRunIsRecorded": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, v.ID, "recorded")
			_, _, err := f.ClaimTask(f.ctx, ns, w.ID, "starting", time.Hour)
			require.NoError(t, err)
			f.moveEpic(t, e.ID, epic.Canceled)
			confirmed := func() map[string]bool {
				_, list := f.take(t, time.Millisecond)
				out := map[string]bool{}
				for _, c := range list {
					out[c.RunID] = c.Confirmed
				}
				return out
			}
			require.Equal(t, map[string]bool{"recorded": true, "starting": false}, confirmed())
			_, err = f.ConfirmClaim(f.ctx, ns, w.ID, "starting", time.Time{})
			require.Equal(t, epic.ReasonClaimLost, errs.ReasonOf(err))
			testkit.Eventually(t, func() bool { return confirmed()["starting"] })
		},
		"Cancellation/GoesToTheDatabaseOfItsRun": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			for _, db := range []string{"db", "elsewhere", "late"} {
				v := f.task(t, e.ID)
				_, _, err := f.Accounts.ClaimTask(f.ctx, ns, v.ID, "of "+db, db, time.Hour)
				require.NoError(t, err)
				if db == "late" {
					f.move(t, v.ID, epic.TaskCanceled)
					list, err := f.Accounts.LeaseOrders(f.ctx, db, 10, time.Hour)
					require.NoError(t, err)
					require.Len(t, list, 1)
					require.NoError(t, f.AcknowledgeOrders(f.ctx, list))
					_, err = f.Accounts.ConfirmClaim(f.ctx, ns, v.ID, "of late", db, "", time.Time{})
					requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimLost)
				}
			}
			f.moveEpic(t, e.ID, epic.Canceled)
			for _, db := range []string{"db", "elsewhere", "late", "unknown"} {
				list, err := f.Accounts.LeaseOrders(f.ctx, db, 10, time.Hour)
				require.NoError(t, err)
				var runs []string
				for _, c := range list {
					runs = append(runs, c.RunID)
				}
				want := []string{"of " + db}
				if db == "unknown" {
					want = nil
				}
				require.Equal(t, want, runs)
			}
		},
		"Cancellation/NamespacesTakeTurns": func(t *testing.T, f *fixture) {
			f.unwanted(t, "full", database, "f1", "f2", "f3", "f4", "f5")
			f.unwanted(t, "full", "", "f6") // it has no turn of its own for being another database's
			f.unwanted(t, "late", database, "l1", "l2")
			f.unwanted(t, "later", database, "m1")
			f.unwanted(t, "another", "elsewhere", "x1")
			lease := func(limit int) (runs []string) {
				list, err := f.LeaseOrders(f.ctx, limit, time.Hour)
				require.NoError(t, err)
				for _, c := range list {
					runs = append(runs, c.RunID)
				}
				slices.Sort(runs)
				return runs
			}
			require.Equal(t, []string{"f1", "f2", "l1", "m1"}, lease(4))
			require.Equal(t, []string{"f3"}, lease(1))
			require.Equal(t, []string{"f4", "l2"}, lease(2))
			require.Equal(t, []string{"f5", "f6"}, lease(9), "whatever is due when there is room for all")
			require.Empty(t, lease(9))
		},
		"Cancellation/EachIsHandedToOne": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			for i := range 20 {
				f.begun(t, f.task(t, e.ID).ID, fmt.Sprint("run", i))
			}
			f.moveEpic(t, e.ID, epic.Canceled)
			taken := make([][]epic.Order, 8)
			results := together(len(taken), func(i int) error {
				for {
					list, err := f.LeaseOrders(f.ctx, 3, time.Hour)
					if err != nil || len(list) == 0 {
						return err
					}
					taken[i] = append(taken[i], list...)
				}
			})
			require.Equal(t, len(taken), count(results, succeeded), "%v", results)
			var runs []string
			for _, list := range taken {
				for _, c := range list {
					runs = append(runs, c.RunID)
				}
			}
			slices.Sort(runs)
			require.Len(t, slices.Compact(slices.Clone(runs)), 20, "%v", runs)
			require.Len(t, runs, 20)
		},
		"Cancellation/ComesToARunThatBeginsTooLate": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Hour)
			require.NoError(t, err)
			f.move(t, v.ID, epic.TaskCanceled)
			_, list := f.take(t, time.Hour)
			require.NoError(t, f.AcknowledgeOrders(f.ctx, list), "whoever did that saw no such run")
			for range 2 {
				_, err = f.ConfirmClaim(f.ctx, ns, v.ID, "run", time.Time{})
				requireError(t, err, errs.FailedPrecondition, epic.ReasonClaimLost)
			}
			got, _ := f.take(t, time.Hour)
			require.Equal(t, []string{"default run TASK_CANCELED"}, got)
		},
		"Cancellation/TheEndOfTheRunEndsIt": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, lost := f.task(t, e.ID), f.task(t, e.ID)
			f.begun(t, v.ID, "run")
			_, _, err := f.ClaimTask(f.ctx, ns, lost.ID, "lost", time.Millisecond)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool {
				n, _, err := f.Sweep(f.ctx)
				return err == nil && n == 1
			})
			f.moveEpic(t, e.ID, epic.Canceled)
			for id, run := range map[string]string{v.ID: "run", lost.ID: "lost"} {
				for range 2 {
					got, err := f.SettleClaim(f.ctx, ns, id, run, accounting.Settlement{State: epic.TaskCompleted, Summary: "late", Duration: time.Second})
					require.NoError(t, err)
					require.Equal(t, epic.TaskCanceled, got.State, "a late end revives nothing")
					require.Empty(t, got.ResultSummary)
				}
				_, err := f.ConfirmClaim(f.ctx, ns, id, run, time.Time{})
				require.NoError(t, err, "its claim is settled")
				require.Equal(t, epic.TaskCanceled, f.state(t, id))
			}
			got, err := f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, time.Second, got.Duration, "how long it took counts once")
			none, _ := f.take(t, time.Hour)
			require.Empty(t, none)
			f.recount(t, ns, e.ID)
		},
	}
}

// BenchLease leases runs to cancel of a database: nothing is due of a namespace that has thousands, and
// one run of each of the others.
func BenchLease(b *testing.B, open Open) {
	const others = 20
	for _, size := range []int{100, 20_000} {
		b.Run(fmt.Sprintf("held=%d", size), func(b *testing.B) {
			f := newFixture(b, open)
			require.NoError(b, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				for i := range size {
					if err := tx.CancelRun(ctx, "full", "task", fmt.Sprint("run", i), database, "TASK_CANCELED"); err != nil {
						return err
					}
				}
				return nil
			}))
			for {
				list, err := f.LeaseOrders(f.ctx, 1000, 24*time.Hour)
				require.NoError(b, err)
				if len(list) == 0 {
					break
				}
			}
			for i := range others {
				f.unwanted(b, fmt.Sprint("other", i), database, "run")
			}
			for b.Loop() {
				_, err := f.LeaseOrders(f.ctx, 200, time.Millisecond)
				require.NoError(b, err)
			}
		})
	}
}
