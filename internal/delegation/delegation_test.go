package delegation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
)

func read(t *testing.T, args string) *delegation.Arguments {
	t.Helper()
	var a delegation.Arguments
	require.NoError(t, json.Unmarshal([]byte(args), &a))
	return &a
}

func TestFaults(t *testing.T) {
	t.Parallel()
	t.Run("AllAreToldAtOnce", func(t *testing.T) {
		t.Parallel()
		_, _, faults := read(t, `{"task_id": "ep_1", "status": "done", "priority": 9, "depends_on": 3}`).ChangedTask()
		require.Len(t, faults, 4)
		for _, part := range []string{"begins with tk_", "Must be one of: blocked, cancelled,", "between 1 and 4", "depends_on must be a list"} {
			require.Contains(t, faults.String(), part)
		}
	})
	t.Run("WordOfTheOtherSpelling", func(t *testing.T) {
		t.Parallel()
		var f delegation.Faults
		require.Equal(t, "cancelled", f.Word("status", " Canceled ", delegation.TaskStates()))
		require.Empty(t, f)
		f.Word("fact_type", "canceled", delegation.Kinds())
		require.Len(t, f, 1, "it stands for a word only where that is one")
	})
	t.Run("ListIsBoundedBeforeItIsRead", func(t *testing.T) {
		t.Parallel()
		var f delegation.Faults
		require.Nil(t, f.List("tags", json.RawMessage(`"`+strings.Repeat("a,", 1<<20)+`"`), 2, 3))
		require.Equal(t, "tags is too long", f.String())
	})
	t.Run("LongTextIsCut", func(t *testing.T) {
		t.Parallel()
		_, f := read(t, `{"epic_id": "`+strings.Repeat("x", 1000)+`"}`).EpicOf()
		require.Less(t, len(f.String()), 150)
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	t.Run("NewOnesTakeNoResult", func(t *testing.T) {
		t.Parallel()
		args := `{"epic_id": "ep_1", "title": " x ", "status": "completed", "result_summary": "r", "error_message": "e", "notes": "n"}`
		e, faults := read(t, args).NewEpic()
		require.Empty(t, faults)
		require.Equal(t, delegation.Epic{Title: "x"}, e)
		task, faults := read(t, args).NewTask()
		require.Empty(t, faults)
		require.Equal(t, delegation.Task{EpicID: "ep_1", Title: "x"}, task)
	})
	t.Run("ResultGoesWithTheMove", func(t *testing.T) {
		t.Parallel()
		for args, want := range map[string]delegation.Change{
			`{"task_id": "tk_1", "result_summary": "r", "status": "completed"}`: {Moves: true},
			`{"task_id": "tk_1", "result_summary": "", "status": "completed"}`:  {Fields: []string{"result_summary"}, Moves: true},
			`{"task_id": "tk_1", "result_summary": "r", "notes": "n"}`:          {Fields: []string{"result_summary", "notes"}},
		} {
			_, got, faults := read(t, args).ChangedTask()
			require.Empty(t, faults)
			require.Equal(t, want, got, args)
		}
	})
}

func TestApply(t *testing.T) {
	t.Parallel()
	refused := errs.New(errs.FailedPrecondition, "NO", "not there")
	t.Run("RefusedMoveTellsWhatIsChanged", func(t *testing.T) {
		t.Parallel()
		_, err := delegation.Apply(delegation.Change{Fields: []string{"title"}, Moves: true}, func() (int, error) { return 1, nil }, func() (int, error) { return 0, refused })
		require.EqualError(t, err, "not there; changed are: title")
		require.Equal(t, "not there", refused.Message, "the error of the move is not changed itself")
	})
	t.Run("RefusedFieldsDoNotMove", func(t *testing.T) {
		t.Parallel()
		moved := false
		_, err := delegation.Apply(delegation.Change{Fields: []string{"title"}, Moves: true}, func() (int, error) { return 0, refused }, func() (int, error) {
			moved = true
			return 0, nil
		})
		require.ErrorIs(t, err, refused)
		require.False(t, moved)
	})
}

func TestMemoriesFound(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", delegation.MaxMemory/2)
	got := delegation.MemoriesFound([]delegation.Memory{{Text: half}, {Text: half}, {Text: "y"}})
	require.Len(t, got["memories"], 2)
	require.Equal(t, 1, got["left_out"])
}
