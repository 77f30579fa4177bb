package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// several is more tasks than one statement reads or writes.
const several = 230

func dependencyCases() map[string]func(*testing.T, *fixture) {
	ada := access.Principal{Kind: access.Key, Name: "ada"}
	return map[string]func(*testing.T, *fixture){
		"Dependencies/CompletingFreesAllThatWaitForNothingElse": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first, other := f.task(t, e.ID), f.task(t, e.ID)
			on := []string{first.ID}
			waits, both, canceled := f.blocked(t, several, e.ID, on...), f.blocked(t, several, e.ID, first.ID, other.ID), f.blocked(t, 1, e.ID, on...)
			f.move(t, canceled[0], epic.TaskCanceled)
			_, err := f.MoveTask(access.With(f.ctx, ada), ns, first.ID, accounting.Change{}, epic.TaskCompleted, accounting.Outcome{})
			require.NoError(t, err)
			f.each(t, waits, func(v epic.Task) {
				require.Equal(t, []any{epic.TaskPending, on, int64(2), ""}, []any{v.State, v.DependsOn, v.Revision, v.Principal})
				require.True(t, v.UpdateTime.After(v.CreateTime))
				require.JSONEq(t, `{"n":1}`, string(v.Requirements), "its body is what it was")
			})
			f.each(t, both, func(v epic.Task) { require.Equal(t, []any{epic.TaskBlocked, int64(1)}, []any{v.State, v.Revision}) })
			f.each(t, canceled, func(v epic.Task) { require.Equal(t, epic.TaskCanceled, v.State) })
		},
		"Dependencies/DeletingTakesItOutOfAllAndFreesThem": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first, other, last := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			waits, both := f.blocked(t, several, e.ID, first.ID), f.blocked(t, several, e.ID, other.ID, first.ID, last.ID)
			require.NoError(t, f.DeleteTask(access.With(f.ctx, ada), ns, first.ID, ""))
			f.each(t, waits, func(v epic.Task) {
				require.Equal(t, []any{epic.TaskPending, "key:ada"}, []any{v.State, v.Principal})
				require.Nil(t, v.DependsOn)
				require.Greater(t, v.Revision, int64(1))
			})
			f.each(t, both, func(v epic.Task) {
				require.Equal(t, []any{epic.TaskBlocked, "key:ada"}, []any{v.State, v.Principal})
				require.Equal(t, []string{other.ID, last.ID}, v.DependsOn, "in their order")
				require.Equal(t, int64(2), v.Revision)
			})
			f.move(t, other.ID, epic.TaskCompleted)
			f.move(t, last.ID, epic.TaskCompleted)
			f.each(t, both, func(v epic.Task) { require.Equal(t, epic.TaskPending, v.State) })
		},
		"Dependencies/StatesAreWrittenOverWhatWasReadOnly": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first := f.task(t, e.ID)
			ids := f.blocked(t, 2, e.ID, first.ID)
			put := func(revisions ...int64) error {
				return f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
					var tasks []epic.Dependent
					for i, r := range revisions {
						tasks = append(tasks, epic.Dependent{ID: ids[i], State: epic.TaskPending, Revision: r})
					}
					return tx.PutStates(ctx, ns, tasks, dbkit.Now())
				})
			}
			requireError(t, put(1, 7), errs.Conflict, epic.ReasonEtagMismatch)
			require.Equal(t, epic.TaskBlocked, f.state(t, ids[0]), "all or none")
			require.NoError(t, put(1, 1))
			require.Equal(t, epic.TaskPending, f.state(t, ids[1]))
		},
		"Dependencies/BlockedComeByID": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			first := f.task(t, e.ID)
			ids := f.blocked(t, 5, e.ID, first.ID)
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				got, err := tx.Blocked(ctx, ns, first.ID, ids[1], 2)
				require.Equal(t, []epic.Dependent{
					{ID: ids[2], State: epic.TaskBlocked, DependsOn: []string{first.ID}, Revision: 1},
					{ID: ids[3], State: epic.TaskBlocked, DependsOn: []string{first.ID}, Revision: 1},
				}, got)
				require.NoError(t, err)
				got, err = tx.Blocked(ctx, "other", first.ID, "", 2)
				require.Empty(t, got)
				return err
			}))
		},
		"Dependencies/ACycleIsFoundHoweverFar": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			ids := f.layers(t, e.ID, several, 1)
			v := f.task(t, e.ID, ids[several-1])
			_, err := f.UpdateTask(f.ctx, ns, ids[0], accounting.Change{}, epic.Task{DependsOn: []string{v.ID}}, []string{"depends_on"})
			bad := requireError(t, err, errs.FailedPrecondition, epic.ReasonDependencyCycle)
			require.Contains(t, bad.Meta["cycle"], ids[0]+" <- "+ids[1]+" <- ")
			require.Contains(t, bad.Meta["cycle"], " <- "+v.ID+" <- "+ids[0])
		},
		"Bounds/HoldHowManyDependenciesThereAre": func(t *testing.T, f *fixture) {
			small := f.Within(accounting.Bounds{Epics: 9, Tasks: 9, Dependencies: 3})
			e := f.epic(t, epic.Epic{})
			a, b := f.task(t, e.ID), f.task(t, e.ID)
			create := func(on ...string) (epic.Task, error) {
				return small.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, DependsOn: on})
			}
			depend := func(id string, on ...string) error {
				_, err := small.UpdateTask(f.ctx, ns, id, accounting.Change{}, epic.Task{DependsOn: on}, []string{"depends_on"})
				return err
			}
			c, err := create(a.ID, b.ID)
			require.NoError(t, err)
			d, err := create(a.ID)
			require.NoError(t, err)
			full := func(err error) {
				t.Helper()
				bad := requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyDependencies)
				require.NotEmpty(t, bad.HintText())
			}
			_, err = create(a.ID)
			full(err)
			full(depend(b.ID, a.ID))
			f.recount(t, ns, e.ID)
			free, err := create()
			require.NoError(t, err, "a task that depends on nothing needs no room")
			require.NoError(t, depend(d.ID, b.ID), "others, and not more")
			require.NoError(t, depend(d.ID))
			require.NoError(t, depend(free.ID, a.ID), "there is room again")
			f.recount(t, ns, e.ID)
			full(depend(d.ID, b.ID))
			require.NoError(t, f.DeleteTask(f.ctx, ns, a.ID, ""))
			f.recount(t, ns, e.ID)
			require.NoError(t, depend(d.ID, c.ID, b.ID), "the deleted one was two of three")
			f.recount(t, ns, e.ID)
		},
	}
}

// blocked adds tasks that wait for others; they were made a while ago.
func (f *fixture) blocked(t testing.TB, n int, epicID string, on ...string) []string {
	t.Helper()
	at := dbkit.Now().Add(-time.Hour)
	tasks := make([]epic.Task, n)
	for i := range tasks {
		tasks[i] = epic.Task{EpicID: epicID, DependsOn: on, Requirements: []byte(`{"n":1}`), CreateTime: at}
	}
	return f.insert(t, tasks...)
}

// each reads tasks and looks at them.
func (f *fixture) each(t testing.TB, ids []string, look func(epic.Task)) {
	t.Helper()
	for _, id := range ids {
		v, err := f.Task(f.ctx, ns, id)
		require.NoError(t, err)
		look(v)
	}
}
