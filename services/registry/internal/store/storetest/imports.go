package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/tasktree"
)

const tree = `{"title": "goal", "dependency_policy": "fail", "tasks": [
	{"id": "c", "title": "waits", "depends_on": ["b"]}, {"id": "a", "title": "was done", "status": "done"},
	{"id": "b", "title": "is next", "depends_on": ["a"]}, {"id": "d", "title": "in vain", "depends_on": ["x"]}, {"id": "x", "title": "went wrong", "status": "failed"}]}`

func importCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Import/MakesTheWholeTreeOnce": func(t *testing.T, f *fixture) {
			e, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err)
			require.Equal(t, epic.Active, e.State)
			again, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err)
			require.Equal(t, e.ID, again.ID, "its content is its request id")
			other, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{ID: "another"}, tree)
			require.NoError(t, err)
			require.NotEqual(t, e.ID, other.ID)
			tasks, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: ns, EpicID: e.ID, Limit: 10})
			require.NoError(t, err)
			states, ids := map[string]epic.TaskState{}, map[string]string{}
			for _, v := range tasks {
				states[v.Labels[tasktree.IDLabel]], ids[v.Labels[tasktree.IDLabel]] = v.State, v.ID
			}
			require.Equal(t, map[string]epic.TaskState{
				"a": epic.TaskCompleted, "b": epic.TaskPending, "c": epic.TaskBlocked, "d": epic.TaskFailed, "x": epic.TaskFailed,
			}, states)
			f.recount(t, ns, e.ID)
			f.move(t, ids["b"], epic.TaskCompleted)
			require.Equal(t, epic.TaskPending, f.state(t, ids["c"]))
			require.Len(t, f.search(t, "vain", store.SearchQuery{}), 2)
		},
		"Import/IsRefusedAsAWhole": func(t *testing.T, f *fixture) {
			_, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, `{"title": "t", "tasks": [{"id": 1, "title": "a", "depends_on": [1, 2]}]}`)
			require.Len(t, requireError(t, err, errs.InvalidArgument, accounting.ReasonTreeInvalid).Violations, 2)
			small := f.Within(accounting.Bounds{Epics: 0, Tasks: 9, Dependencies: 9})
			_, _, err = small.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyEpics)
			few := f.Within(accounting.Bounds{Epics: 9, Tasks: 9, Dependencies: 2})
			_, _, err = few.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyDependencies)
			narrow := f.Within(accounting.Bounds{Epics: 9, Tasks: 4, Dependencies: 9})
			_, _, err = narrow.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyTasks)
			all, err := f.Epics(f.ctx, store.EpicQuery{Namespace: ns, Limit: 10})
			require.NoError(t, err)
			require.Empty(t, all)
			exact := f.Within(accounting.Bounds{Epics: 1, Tasks: 5, Dependencies: 3})
			_, _, err = exact.ImportEpic(f.ctx, ns, accounting.Once{ID: "at the bounds"}, tree)
			require.NoError(t, err)
			_, _, err = f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err, "what was refused can be sent again")
		},
		"Import/OfADeletedEpicMakesItAnew": func(t *testing.T, f *fixture) {
			first, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, first.ID, ""))
			anew, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err)
			require.NotEqual(t, first.ID, anew.ID)
			again, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, tree)
			require.NoError(t, err)
			require.Equal(t, anew.ID, again.ID)
			f.recount(t, ns, anew.ID)
		},
		"Import/UnderARequestIDMakesNoDeletedEpicAnew": func(t *testing.T, f *fixture) {
			e, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{ID: "mine"}, tree)
			require.NoError(t, err)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
			_, _, err = f.ImportEpic(f.ctx, ns, accounting.Once{ID: "mine"}, tree)
			require.True(t, errs.Is(err, errs.NotFound), "got %v", err)
		},
	}
}
