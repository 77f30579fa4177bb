package storetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// procedure is the one of an epic that a search by key finds, with its value; nil if there is none.
func (f *fixture) procedure(t testing.TB, epicID string) (memory.Entry, map[string]any) {
	t.Helper()
	found, err := f.memories().Search(f.ctx, memory.Query{Namespace: ns, Scopes: []memory.Scope{everybody(), of("ada")}, Key: "procedure:" + epicID, Limit: 2}, memory.Read{})
	require.NoError(t, err)
	if len(found.Hits) == 0 {
		return memory.Entry{}, nil
	}
	var value map[string]any
	require.NoError(t, json.Unmarshal(found.Hits[0].Entry.Value, &value))
	return found.Hits[0].Entry, value
}

func procedureCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Procedure/TellsHowAnEpicWasCompleted": func(t *testing.T, f *fixture) {
			_, err := f.catalog.Create(f.ctx, ns, request.Once{}, cataloging.Draft{Form: catalog.Definition, Source: "name: Fair verify\nsteps:\n  - {type: transform, template: x}\n"}, "fair-verify")
			require.NoError(t, err)
			e := f.epic(t, epic.Epic{Title: "Join the fair", Tags: []string{"onboarding"}, UserID: "ada"})
			for i, in := range []epic.Task{{Title: "Read conditions"}, {Title: "Set up webhook", WorkflowSlug: "fair-verify"}, {Title: "By hand", WorkflowSlug: "elsewhere@3"}, {Title: "Twice", WorkflowSlug: "gone"}} {
				in.EpicID = e.ID
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, in)
				require.NoError(t, err)
				if i == 0 {
					one := entry("run", 0, v.ID, 100, 10)
					one.Model = "gpt-4o"
					_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{one})
					require.NoError(t, err)
				}
				f.move(t, v.ID, []epic.TaskState{epic.TaskCompleted, epic.TaskCompleted, epic.TaskCompleted, epic.TaskCanceled}[i])
			}
			_, none := f.procedure(t, e.ID)
			require.Nil(t, none, "before the end there is none")
			_, err = f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Completed, "Registered at last.")
			require.NoError(t, err)
			got, value := f.procedure(t, e.ID)
			require.Equal(t, []any{memory.Procedure, memory.ByEpic, of("ada"), e.ID, "ada", "Join the fair\nRegistered at last.", []string{"onboarding"}, 0.75},
				[]any{got.Kind, got.Origin, got.Scope, got.Source, got.UserID, got.Text, got.Tags, got.Confidence})
			spent, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Positive(t, spent.Spent.NanoUSD)
			require.Equal(t, map[string]any{
				"epic_id": e.ID, "goal": "Join the fair", "tags": []any{"onboarding"}, "workflow_ids": []any{"elsewhere@3", "fair-verify@1", "gone"},
				"success_rate": 0.75, "cost_usd": float64(spent.Spent.NanoUSD) / 1e9, "cost_tokens": 110.0,
				"total_tasks": 4.0, "completed_tasks": 3.0, "failed_tasks": 0.0, "tasks": []any{"Read conditions", "Set up webhook", "By hand", "Twice"},
			}, value)
			require.Equal(t, []string{got.Key}, f.recall(t, memory.Query{Scopes: []memory.Scope{of("ada")}, Text: "verification of a webhook at the fair", Kinds: []memory.Kind{memory.Procedure}}))
		},
		"Procedure/OfAnEpicWithoutTasks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "Answer the question"})
			end := f.end(t)
			done, err := f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Completed, "42")
			require.NoError(t, err, "from PLANNING it passes through ACTIVE at once")
			require.Equal(t, []any{epic.Completed, "42", false}, []any{done.State, done.ResultSummary, done.EndTime.IsZero()})
			require.Equal(t, []string{"epic_updated " + e.ID, "memory_written procedure:" + e.ID}, f.told(t, end))
			_, value := f.procedure(t, e.ID)
			require.Equal(t, []any{1.0, 0.0, []any{}}, []any{value["success_rate"], value["total_tasks"], value["workflow_ids"]})
			require.Len(t, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}, Text: "question"}), 1)
		},
		"Procedure/OfAnEpicThatEndsByItself": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "Go alone"})
			v := f.task(t, e.ID)
			_, err := f.RunEpic(f.ctx, ns, e.ID, accounting.Change{}, 1, "")
			require.NoError(t, err)
			f.move(t, v.ID, epic.TaskCompleted)
			done, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, epic.Completed, done.State)
			_, value := f.procedure(t, e.ID)
			require.Equal(t, 1.0, value["success_rate"])
		},
		"Procedure/NotOfOneThatFailsOrIsCanceled": func(t *testing.T, f *fixture) {
			for _, state := range []epic.State{epic.Failed, epic.Canceled} {
				e := f.epic(t, epic.Epic{Title: "goal"})
				f.moveEpic(t, e.ID, epic.Active)
				f.moveEpic(t, e.ID, state)
				_, value := f.procedure(t, e.ID)
				require.Nil(t, value)
			}
		},
		"Procedure/ComesWithTheEndInOneTransaction": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "goal"})
			f.moveEpic(t, e.ID, epic.Active)
			_, err := f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{Etag: epic.Etag(1)}, epic.Completed, "")
			requireError(t, err, errs.Conflict, epic.ReasonEtagMismatch)
			_, value := f.procedure(t, e.ID)
			require.Nil(t, value)
			end := f.end(t)
			f.moveEpic(t, e.ID, epic.Completed)
			require.Equal(t, []string{"epic_updated " + e.ID, "memory_written procedure:" + e.ID}, f.told(t, end))
		},
		"Procedure/OneOfNoUserIsForEverybody": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "goal"})
			f.moveEpic(t, e.ID, epic.Active)
			f.moveEpic(t, e.ID, epic.Completed)
			got, _ := f.procedure(t, e.ID)
			require.Equal(t, everybody(), got.Scope)
		},
		"Procedure/OneOfAUserThatNoScopeCanNameIsNotKept": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "goal", UserID: "a\nb"})
			f.moveEpic(t, e.ID, epic.Active)
			f.moveEpic(t, e.ID, epic.Completed)
			require.Empty(t, f.recall(t, memory.Query{Scopes: []memory.Scope{everybody()}}))
		},
		"Procedure/AFullMemoryDoesNotKeepAnEpicFromItsEnd": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "goal"})
			m := f.memories().Within(memory.Bounds{Namespace: 9, Subject: 9, Entries: 1})
			_, _, err := m.Write(f.ctx, ns, request.Change{}, memory.Entry{Scope: of("ada"), Key: "k", Text: "x"})
			require.NoError(t, err)
			f.moveEpic(t, e.ID, epic.Active)
			f.moveEpic(t, e.ID, epic.Completed)
			_, value := f.procedure(t, e.ID)
			require.NotNil(t, value)
		},
		"Procedure/LongTextsFit": func(t *testing.T, f *fixture) {
			long := make([]rune, 512)
			for i := range long {
				long[i] = []rune("\"<\n😀\x01\\")[i%6]
			}
			var tags []string
			for i := range 64 {
				tags = append(tags, string(long[:100])+string(rune('a'+i)))
			}
			e := f.epic(t, epic.Epic{Title: string(long), Tags: tags, UserID: "ada", WorkflowSlug: string(long[:256])})
			for range 30 {
				_, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: string(long), WorkflowSlug: string(long[:120])})
				require.NoError(t, err)
			}
			_, err := f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Completed, string(long))
			require.NoError(t, err)
			_, value := f.procedure(t, e.ID)
			require.Len(t, value["tasks"], 20)
			require.Equal(t, 30.0, value["total_tasks"])
		},
	}
}
