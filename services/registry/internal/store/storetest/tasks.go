package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func taskCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Task/NamedFieldsAreTakenAndOthersStay": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "t", Tags: []string{"a"}, MaxRetries: 5})
			require.NoError(t, err)
			in := epic.Task{Title: "not this", Tags: []string{"b", "verification"}, Requirements: []byte(`{"tools": ["code"]}`), EstimatedTokens: 900, MaxRetries: -1}
			_, err = f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, in, []string{"tags", "requirements", "estimated_tokens", "max_retries"})
			require.NoError(t, err)
			got, err := f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, []any{"t", []string{"b", "verification"}, `{"tools": ["code"]}`, int64(900), int32(-1)},
				[]any{got.Title, got.Tags, string(got.Requirements), got.EstimatedTokens, got.MaxRetries})
			require.NotEmpty(t, f.search(t, "verification", store.SearchQuery{}), "and its epic is found by its tags")
			_, err = f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{}, []string{"tags", "requirements", "estimated_tokens"})
			require.NoError(t, err)
			got, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, []any{0, 0, int64(0), int32(-1)}, []any{len(got.Tags), len(got.Requirements), got.EstimatedTokens, got.MaxRetries})
		},
		"Task/RoundTrip": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			dep := f.task(t, e.ID)
			at := time.Date(2020, 2, 3, 4, 5, 6, 789_000, time.UTC)
			made, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{
				EpicID: e.ID, Title: "t", Description: "d", Tags: []string{"x"}, Priority: epic.Critical, DependsOn: []string{dep.ID, dep.ID},
				Requirements: []byte(`{"n": 9007199254740993}`), WorkflowSlug: "w@1", Source: epic.Template, Definition: "name: höre\n", EstimatedTokens: 1 << 60,
				MaxRetries: -1, ResultSummary: "r", ErrorMessage: "e", Notes: []epic.Note{{Time: at, Author: "me", Text: "höre"}},
				CreatedByNode: "n", Labels: map[string]string{"k": "v"},
			})
			require.NoError(t, err)
			require.Equal(t, epic.TaskBlocked, made.State)
			require.Equal(t, []string{dep.ID}, made.DependsOn)
			got, err := f.Task(f.ctx, ns, made.ID)
			require.NoError(t, err)
			require.Equal(t, made, got)
			got, err = f.Task(f.ctx, ns, dep.ID)
			require.NoError(t, err)
			require.Equal(t, dep, got)
			require.EqualValues(t, 2, got.MaxRetries)
			require.Equal(t, epic.Inline, got.Source)
		},
		"Task/TheFirstOneActivatesItsEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			f.task(t, e.ID)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, epic.Active, got.State)
			require.EqualValues(t, 1, got.TotalTasks)
			f.moveEpic(t, e.ID, epic.Paused)
			f.task(t, e.ID)
			got, err = f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, epic.Paused, got.State)
		},
		"Task/DependenciesMustBeInTheSameEpic": func(t *testing.T, f *fixture) {
			e, other := f.epic(t, epic.Epic{}), f.epic(t, epic.Epic{})
			stranger := f.task(t, other.ID)
			_, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, DependsOn: []string{stranger.ID, "tk_no"}})
			bad := requireError(t, err, errs.InvalidArgument, epic.ReasonDependencyUnknown)
			require.Contains(t, bad.Message, stranger.ID)
			require.Contains(t, bad.Message, "tk_no")
			v := f.task(t, e.ID)
			_, err = f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{DependsOn: []string{stranger.ID}}, []string{"depends_on"})
			requireError(t, err, errs.InvalidArgument, epic.ReasonDependencyUnknown)
			f.recount(t, ns, e.ID)
		},
		"Task/UnblockedOnlyWhenAllAreCompleted": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b := f.task(t, e.ID), f.task(t, e.ID)
			c := f.task(t, e.ID, a.ID, b.ID)
			d := f.task(t, e.ID, c.ID)
			f.move(t, a.ID, epic.TaskCompleted)
			require.Equal(t, epic.TaskBlocked, f.state(t, c.ID))
			_, err := f.MoveTask(f.ctx, ns, c.ID, accounting.Change{}, epic.TaskPending, accounting.Outcome{})
			unmet := requireError(t, err, errs.FailedPrecondition, epic.ReasonDependenciesUnmet)
			require.Equal(t, b.ID, unmet.Meta["unmet"])
			f.move(t, b.ID, epic.TaskRunning)
			f.move(t, b.ID, epic.TaskFailed)
			require.Equal(t, epic.TaskBlocked, f.state(t, c.ID), "a failed one keeps its dependents waiting")
			f.move(t, b.ID, epic.TaskPending)
			f.move(t, b.ID, epic.TaskCompleted)
			require.Equal(t, epic.TaskPending, f.state(t, c.ID))
			require.Equal(t, epic.TaskBlocked, f.state(t, d.ID))
			v := f.task(t, e.ID, a.ID, b.ID)
			require.Equal(t, epic.TaskPending, v.State, "all are completed from the start")
		},
		"Task/UpdatedDependenciesBlockAndUnblock": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b, c := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			depend := func(id string, on ...string) (epic.Task, error) {
				return f.UpdateTask(f.ctx, ns, id, accounting.Change{}, epic.Task{DependsOn: on}, []string{"depends_on"})
			}
			v, err := depend(b.ID, a.ID)
			require.NoError(t, err)
			require.Equal(t, epic.TaskBlocked, v.State)
			_, err = depend(c.ID, b.ID)
			require.NoError(t, err)
			_, err = depend(a.ID, c.ID)
			cycle := requireError(t, err, errs.FailedPrecondition, epic.ReasonDependencyCycle)
			require.Equal(t, a.ID+" <- "+b.ID+" <- "+c.ID+" <- "+a.ID, cycle.Meta["cycle"])
			_, err = depend(a.ID, a.ID)
			requireError(t, err, errs.FailedPrecondition, epic.ReasonDependencyCycle)
			require.Equal(t, epic.TaskPending, f.state(t, a.ID))
			v, err = depend(b.ID)
			require.NoError(t, err)
			require.Equal(t, epic.TaskPending, v.State)
			_, err = depend(a.ID, b.ID)
			require.NoError(t, err, "what was taken out forms no cycle")
			f.move(t, b.ID, epic.TaskRunning)
			_, err = depend(b.ID, c.ID)
			requireError(t, err, errs.FailedPrecondition, epic.ReasonDependenciesFixed)
		},
		"Task/PendingToCompletedPassesThroughRunning": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.MoveTask(f.ctx, ns, f.task(t, e.ID).ID, accounting.Change{}, epic.TaskCompleted, accounting.Outcome{Summary: "s", Note: "n"})
			require.NoError(t, err)
			require.False(t, v.StartTime.IsZero())
			require.False(t, v.EndTime.IsZero())
			require.Equal(t, "s", v.ResultSummary)
			require.Len(t, v.Notes, 1)
			_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskRunning, accounting.Outcome{})
			bad := requireError(t, err, errs.FailedPrecondition, epic.ReasonInvalidTransition)
			require.Contains(t, bad.Message, "COMPLETED to RUNNING")
			require.NotEmpty(t, bad.HintText())
			f.recount(t, ns, e.ID)
		},
		"Task/RetriesAreCountedAndBounded": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			for i := range 3 {
				f.move(t, v.ID, epic.TaskRunning)
				f.move(t, v.ID, epic.TaskFailed)
				f.recount(t, ns, e.ID)
				got, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskPending, accounting.Outcome{})
				if i == 2 {
					requireError(t, err, errs.FailedPrecondition, epic.ReasonRetriesExhausted)
					continue
				}
				require.NoError(t, err)
				require.EqualValues(t, i+1, got.RetryCount)
				require.True(t, got.EndTime.IsZero())
				f.recount(t, ns, e.ID)
			}
			never, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, MaxRetries: -1})
			require.NoError(t, err)
			f.move(t, never.ID, epic.TaskRunning)
			f.move(t, never.ID, epic.TaskFailed)
			_, err = f.MoveTask(f.ctx, ns, never.ID, accounting.Change{}, epic.TaskPending, accounting.Outcome{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonRetriesExhausted)
		},
		"Task/NothingStartsInAPausedEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			f.move(t, w.ID, epic.TaskRunning)
			f.moveEpic(t, e.ID, epic.Paused)
			for _, to := range []epic.TaskState{epic.TaskRunning, epic.TaskCompleted} {
				_, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, to, accounting.Outcome{})
				requireError(t, err, errs.FailedPrecondition, epic.ReasonEpicNotActive)
			}
			f.move(t, w.ID, epic.TaskCompleted)
			f.move(t, v.ID, epic.TaskCanceled)
		},
		"Task/NotesAreAppended": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			for _, text := range []string{"one", "two"} {
				var err error
				v, err = f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{Notes: []epic.Note{{Text: text}}}, epic.TaskFields())
				require.NoError(t, err)
			}
			require.Len(t, v.Notes, 2)
			require.Equal(t, "one", v.Notes[0].Text)
			require.False(t, v.Notes[0].Time.IsZero())
			many := make([]epic.Note, 999)
			_, err := f.UpdateTask(f.ctx, ns, v.ID, accounting.Change{}, epic.Task{Notes: many}, []string{"notes"})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonNotesFull)
		},
		"Task/DeleteTakesItOutOfWhatOthersDependOn": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			a, b := f.task(t, e.ID), f.task(t, e.ID)
			c, d := f.task(t, e.ID, a.ID), f.task(t, e.ID, b.ID, a.ID)
			f.move(t, a.ID, epic.TaskRunning)
			requireError(t, f.DeleteTask(f.ctx, ns, a.ID, ""), errs.FailedPrecondition, "TASK_RUNNING")
			f.move(t, a.ID, epic.TaskFailed)
			requireError(t, f.DeleteTask(f.ctx, ns, a.ID, a.Etag()), errs.Conflict, epic.ReasonEtagMismatch)
			require.NoError(t, f.DeleteTask(f.ctx, ns, a.ID, ""))
			requireError(t, f.DeleteTask(f.ctx, ns, a.ID, ""), errs.NotFound, store.ReasonTaskNotFound)
			require.Equal(t, epic.TaskPending, f.state(t, c.ID))
			got, err := f.Task(f.ctx, ns, d.ID)
			require.NoError(t, err)
			require.Equal(t, epic.TaskBlocked, got.State)
			require.Equal(t, []string{b.ID}, got.DependsOn)
			f.recount(t, ns, e.ID)
		},
		"Task/DeletingKeepsWhatItCost": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 1)})
			require.NoError(t, err)
			require.NoError(t, f.DeleteTask(f.ctx, ns, v.ID, ""))
			f.recount(t, ns, e.ID)
			// An entry that arrives late finds no task; the money is spent all the same.
			got, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 1, v.ID, 20, 2)})
			require.NoError(t, err)
			require.Equal(t, v.ID, got[0].TaskID)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.EqualValues(t, 33, total.Tokens)
		},
		"Error/IsGoneOnceTheTaskIsTriedAgain": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "try", MaxRetries: 1})
			require.NoError(t, err)
			move := func(to epic.TaskState, o accounting.Outcome) epic.Task {
				t.Helper()
				v, err := f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, to, o)
				require.NoError(t, err)
				return v
			}
			move(epic.TaskRunning, accounting.Outcome{})
			require.Equal(t, "broken", move(epic.TaskFailed, accounting.Outcome{Error: "broken"}).ErrorMessage)
			require.Empty(t, move(epic.TaskPending, accounting.Outcome{}).ErrorMessage)
			require.Equal(t, "half", move(epic.TaskRunning, accounting.Outcome{Error: "half"}).ErrorMessage)
			require.Empty(t, move(epic.TaskCompleted, accounting.Outcome{}).ErrorMessage)
		},
		"List/TasksOldestFirstAndFilters": func(t *testing.T, f *fixture) {
			e, other := f.epic(t, epic.Epic{}), f.epic(t, epic.Epic{})
			a := f.task(t, e.ID)
			b, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{
				EpicID: e.ID, DependsOn: []string{a.ID}, Tags: []string{"x"}, Labels: map[string]string{"k": "v"},
			})
			require.NoError(t, err)
			c := f.task(t, other.ID)
			for name, tc := range map[string]struct {
				q    store.TaskQuery
				want []string
			}{
				"all":    {store.TaskQuery{}, []string{a.ID, b.ID, c.ID}},
				"epic":   {store.TaskQuery{EpicID: e.ID}, []string{a.ID, b.ID}},
				"after":  {store.TaskQuery{After: page.Cursor{CreateTime: a.CreateTime, ID: a.ID}}, []string{b.ID, c.ID}},
				"state":  {store.TaskQuery{States: []epic.TaskState{epic.TaskBlocked}}, []string{b.ID}},
				"tags":   {store.TaskQuery{AnyTag: []string{"x", "y"}}, []string{b.ID}},
				"labels": {store.TaskQuery{Labels: map[string]string{"k": "v"}}, []string{b.ID}},
				"none":   {store.TaskQuery{Labels: map[string]string{"k": "w"}}, nil},
			} {
				tc.q.Namespace, tc.q.Limit = ns, 10
				rows, err := f.Tasks(f.ctx, tc.q)
				require.NoError(t, err, name)
				var got []string
				for _, v := range rows {
					got = append(got, v.ID)
				}
				require.Equal(t, tc.want, got, name)
			}
		},
	}
}
