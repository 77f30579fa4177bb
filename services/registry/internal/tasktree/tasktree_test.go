package tasktree_test

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/tasktree"
	"github.com/epigraph-run/epigraph/workflow"
)

func told(f workflow.Faults) (out []string) {
	for _, x := range f {
		out = append(out, x.String())
	}
	return out
}

func TestRead(t *testing.T) {
	t.Parallel()
	t.Run("Tree/ComesInAnOrderThatCanBeInserted", func(t *testing.T) {
		t.Parallel()
		tree, faults := tasktree.Read([]byte(`{"id": 7, "title": "goal", "tags": ["a"], "dependency_policy": "skip", "tasks": [
			{"id": "c", "title": "third", "depends_on": ["b", 1], "priority": "high", "requirements": {"tools": ["code"]}, "input": {"to": "all"}},
			{"id": "b", "title": "second", "status": "done"}, {"id": 1, "title": "first"}], "edges": [["1", "b"], [1, "b"]]}`))
		require.Empty(t, faults)
		require.Equal(t, []any{"goal", []string{"a"}, epic.Skip, "7"}, []any{tree.Epic.Title, tree.Epic.Tags, tree.Epic.DependencyPolicy, tree.Epic.Labels[tasktree.IDLabel]})
		var ids []string
		for i, v := range tree.Tasks {
			ids = append(ids, v.ID)
			for _, at := range v.After {
				require.Less(t, at, i)
			}
		}
		require.Equal(t, []string{"1", "b", "c"}, ids)
		require.Equal(t, epic.TaskCompleted, tree.Tasks[1].State)
		require.Equal(t, []any{epic.High, []int{1, 0}}, []any{tree.Tasks[2].Priority, tree.Tasks[2].After})
		require.JSONEq(t, `{"tools": ["code"]}`, string(tree.Tasks[2].Requirements))
		require.JSONEq(t, `{"to": "all"}`, string(tree.Tasks[2].Input))
	})
	t.Run("Faults/AreToldAtOnceWithTheirPlaces", func(t *testing.T) {
		t.Parallel()
		_, faults := tasktree.Read([]byte(`{
  "title": "goal", "title": 1,
  "tasks": [
    {"id": "a", "title": "one", "depends_on": ["b", "z"]},
    {"id": "b", "title": "two", "depends_on": ["a"], "status": "half"},
    {"id": "a", "title": "again", "priority": 9},
    {"title": ""}, 5
  ],
  "edges": [["a"], ["q", "b"]]
}`))
		require.Equal(t, []string{
			`2:20: title: error[KEY_DUPLICATE]: the key stands twice; keep one of them`,
			`2:29: title: error[TYPE_WRONG]: must be a text, not a number`,
			`5:64: tasks[1].status: error[VALUE_INVALID]: there is no status "half"; write pending, completed, failed or canceled`,
			`6:47: tasks[2].priority: error[VALUE_INVALID]: there is no priority 9; write critical, high, medium or low, or a number from 1 to 4`,
			`6:12: tasks[2].id: error[ID_DUPLICATE]: "a" is the id of tasks[0].id, too; give each task an id of its own`,
			`7:5: tasks[3].title: error[FIELD_MISSING]: a task needs a title; say what is to be done`,
			`7:5: tasks[3].id: error[FIELD_MISSING]: a task needs an id; give each task an id of its own`,
			`7:20: tasks[4]: error[TYPE_WRONG]: must be an object, not a number`,
			`9:13: edges[0]: error[VALUE_INVALID]: an edge has two ids, not 1; write ["first", "second"]`,
			`4:53: tasks[0].depends_on[1]: error[DEPENDENCY_UNKNOWN]: there is no task "z"; name a task of the document, or leave it out`,
			`9:21: edges[1][0]: error[DEPENDENCY_UNKNOWN]: there is no task "q"; name a task of the document, or leave it out`,
			`4:12: tasks[0].id: error[DEPENDENCY_CYCLE]: tasks would wait for each other: a <- b <- a; leave one of these dependencies out`,
		}, told(faults))
	})
	t.Run("Faults/ACharacterThatNoTextMayHave", func(t *testing.T) {
		t.Parallel()
		_, faults := tasktree.Read([]byte(`{"title": "a\u0000b", "tasks": []}`))
		require.Len(t, faults, 1)
		require.Equal(t, "VALUE_INVALID", faults[0].Code)
	})
	t.Run("Faults/OfWhatIsNoDocument", func(t *testing.T) {
		t.Parallel()
		for src, code := range map[string]string{
			"": "JSON_INVALID", "[]": "TYPE_WRONG", "{} {}": "JSON_INVALID", `{"title": `: "JSON_INVALID", "\xff": "DOCUMENT_INVALID",
			strings.Repeat("[", 100): "JSON_INVALID", strings.Repeat(" ", tasktree.MaxBytes+1): "DOCUMENT_INVALID", `{"title": "t"}`: "FIELD_MISSING",
			`{"title": "t", "tasks": [` + strings.Repeat("0,", tasktree.MaxTasks) + `0]}`: "TOO_MANY",
		} {
			_, faults := tasktree.Read([]byte(src))
			require.Len(t, faults, 1, "%.20q", src)
			require.Equal(t, code, faults[0].Code, "%.20q", src)
			require.Positive(t, faults[0].Line)
		}
	})
	t.Run("LeftOut/NamesWhatIsNotCarriedOver", func(t *testing.T) {
		t.Parallel()
		tree, faults := tasktree.Read([]byte(`{"title": "t", "flags": [], "tasks": [{"id": "a", "title": "a", "priority": 0, "status": "in-progress", "type": "bug"}, {"id": "b", "title": "b", "priority": 4}]}`))
		require.Empty(t, faults)
		require.Equal(t, []string{
			`1:25: flags: error[NOT_CARRIED_OVER]: an import has no use for it`,
			`1:38: tasks: error[READ_AS]: a priority is 0, so all are counted from 0, which is critical, to 3`,
			`1:90: tasks[0].status: error[READ_AS]: "in-progress" is read as pending: nobody works on it here yet`,
			`1:113: tasks[0].type: error[NOT_CARRIED_OVER]: an import has no use for it`,
		}, told(tree.LeftOut))
		require.Equal(t, []epic.Priority{epic.Critical, epic.Low}, []epic.Priority{tree.Tasks[0].Priority, tree.Tasks[1].Priority})
	})
}

// flagged are the codes of the faults that a record says that its tree has.
func flagged(t *testing.T, doc []byte) []string {
	var record struct{ Flags []string }
	require.NoError(t, json.Unmarshal(doc, &record))
	codes := map[string]bool{}
	for _, flag := range record.Flags {
		code, known := map[string]string{
			"cycle": "DEPENDENCY_CYCLE", "dup_node_id": "ID_DUPLICATE", "dangling_ref": "DEPENDENCY_UNKNOWN",
			"isolated_node": "", "no_edges": "", // no faults
		}[flag]
		require.True(t, known, flag)
		if code != "" {
			codes[code] = true
		}
	}
	return slices.Sorted(maps.Keys(codes))
}

// TestReadCorpus reads the recorded task trees: each can be imported, or the faults that it has are told with
// their places, and no others.
func TestReadCorpus(t *testing.T) {
	t.Parallel()
	name := cmp.Or(os.Getenv("EPIGRAPH_TASK_TREES"), "../../../../../shared/data/epics.jsonl.gz")
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no recorded task trees; name the file in EPIGRAPH_TASK_TREES")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	good, tasks, bad, codes := 0, 0, 0, map[string]int{}
	for dec := json.NewDecoder(z); ; {
		var doc json.RawMessage
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		tree, faults := tasktree.Read(doc)
		told := flagged(t, doc)
		if len(faults) == 0 {
			require.Empty(t, told, "%.60s", doc)
			good++
			tasks += len(tree.Tasks)
			continue
		}
		bad++
		found := map[string]bool{}
		for _, x := range faults {
			require.Positive(t, x.Line, "%s", x)
			found[x.Code] = true
			codes[x.Code]++
			t.Logf("%.60s…: %s", doc, x)
		}
		require.Equal(t, told, slices.Sorted(maps.Keys(found)), "%.60s", doc)
	}
	t.Logf("%d documents with %d tasks can be imported; faults of %d others: %v", good, tasks, bad, codes)
	require.Positive(t, good)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"title": "t", "tasks": [{"id": 1, "title": "a", "depends_on": [2]}, {"id": "2", "title": "b", "priority": 0}], "edges": [[1, 2]]}`))
	f.Add([]byte(`{"tasks": [[{}]], "edges": {}, "title": null}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		tree, faults := tasktree.Read(src)
		if len(faults) > 0 {
			require.Empty(t, tree.Tasks)
			return
		}
		for i, v := range tree.Tasks {
			require.NotEmpty(t, v.ID)
			require.NotEmpty(t, v.Title)
			require.False(t, slices.ContainsFunc(v.After, func(at int) bool { return at >= i }))
		}
	})
}
