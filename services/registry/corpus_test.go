package registry_test

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

// recordedTree is what a recorded task tree says of itself.
type recordedTree struct {
	doc   string
	ID    string
	Title string
	Tasks []json.RawMessage
	Flags []string
}

// fault is the code that the import must tell, or "" if the tree has no fault.
func (r recordedTree) fault() string {
	for flag, code := range map[string]string{"cycle": "DEPENDENCY_CYCLE", "dup_node_id": "ID_DUPLICATE", "dangling_ref": "DEPENDENCY_UNKNOWN"} {
		if slices.Contains(r.Flags, flag) {
			return code
		}
	}
	return ""
}

// recordedTrees reads the file that EPIGRAPH_TASK_TREES names. The test is skipped where there is none.
func recordedTrees(t *testing.T) (trees []recordedTree) {
	t.Helper()
	f, err := os.Open(cmp.Or(os.Getenv("EPIGRAPH_TASK_TREES"), "../../../shared/data/epics.jsonl.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no recorded task trees; name the file in EPIGRAPH_TASK_TREES")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for dec := json.NewDecoder(z); ; {
		var doc json.RawMessage
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		r := recordedTree{doc: string(doc)}
		require.NoError(t, json.Unmarshal(doc, &r))
		trees = append(trees, r)
	}
	require.NotEmpty(t, trees)
	return trees
}

// TestImportCorpus imports the recorded task trees into a store through the API: each is listed with all its
// tasks and has the counters that its tasks come to, the others are refused with the faults that they
// have, and the doctor finds nothing.
func TestImportCorpus(t *testing.T) {
	t.Parallel()
	trees := recordedTrees(t)
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			c := serve(t, cfg)
			imported, refused := map[string]recordedTree{}, 0
			t.Run("Refused/WithItsFaults", func(t *testing.T) {
				for _, tree := range trees {
					r, err := c.ImportEpic(t.Context(), &registryv1.ImportEpicRequest{Document: tree.doc})
					if code := tree.fault(); code != "" {
						e := requireError(t, err, errs.InvalidArgument, "TASK_TREE_INVALID")
						require.NotEmpty(t, e.Violations)
						for _, v := range e.Violations {
							require.Equal(t, code, v.Reason, "%s: %s", tree.ID, v.Message)
							require.NotEmpty(t, v.Field)
						}
						t.Logf("%s: %s", tree.ID, e.Violations[0].Message)
						refused++
						continue
					}
					require.NoError(t, err, tree.ID)
					imported[r.GetEpic().GetId()] = tree
				}
				require.Positive(t, refused)
			})
			require.Len(t, imported, len(trees)-refused)
			t.Run("Listed/EachOnceAndNoneOfTheRefused", func(t *testing.T) {
				listed := map[string]bool{}
				for token := ""; ; {
					r, err := c.ListEpics(t.Context(), &registryv1.ListEpicsRequest{PageSize: 50, PageToken: token})
					require.NoError(t, err)
					for _, e := range r.GetEpics() {
						require.False(t, listed[e.GetId()])
						listed[e.GetId()] = true
						require.Equal(t, strings.TrimSpace(imported[e.GetId()].Title), e.GetTitle())
					}
					if token = r.GetNextPageToken(); token == "" {
						break
					}
				}
				require.Len(t, listed, len(imported))
			})
			t.Run("Counters/AreThoseOfTheTasks", func(t *testing.T) {
				tasks, waits := 0, 0
				for id, tree := range imported {
					n, after := requireTasks(t, c, id)
					require.Equal(t, len(tree.Tasks), n, tree.ID)
					tasks, waits = tasks+n, waits+after
				}
				t.Logf("%d epics with %d tasks and %d dependencies are in the store, %d documents are refused", len(imported), tasks, waits, refused)
			})
			t.Run("Again/IsTheSameEpic", func(t *testing.T) {
				for id, tree := range imported {
					r, err := c.ImportEpic(t.Context(), &registryv1.ImportEpicRequest{Document: tree.doc})
					require.NoError(t, err)
					require.Equal(t, id, r.GetEpic().GetId())
				}
			})
			t.Run("Doctor/FindsNothing", func(t *testing.T) {
				r, err := registry.Examine(t.Context(), cfg, doctor.Options{All: true})
				require.NoError(t, err)
				require.Empty(t, r.Findings)
			})
		})
	}
}

// requireTasks lists the tasks of an epic, and requires that it has the counters that these come to.
func requireTasks(t *testing.T, c registryv1.RegistryServiceClient, id string) (tasks, dependencies int) {
	t.Helper()
	e, err := c.GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: id})
	require.NoError(t, err)
	states := map[registryv1.TaskState]int32{}
	var all []*registryv1.Task
	for token := ""; ; {
		r, err := c.ListTasks(t.Context(), &registryv1.ListTasksRequest{EpicId: id, PageSize: 100, PageToken: token})
		require.NoError(t, err)
		all = append(all, r.GetTasks()...)
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	state := map[string]registryv1.TaskState{}
	for _, task := range all {
		states[task.GetState()]++
		state[task.GetId()] = task.GetState()
	}
	for _, task := range all {
		dependencies += len(task.GetDependsOn())
		for _, dep := range task.GetDependsOn() {
			require.NotZero(t, state[dep], "%s depends on %s, which is not there", task.GetId(), dep)
			if task.GetState() == registryv1.TaskState_TASK_STATE_PENDING {
				require.Equal(t, registryv1.TaskState_TASK_STATE_COMPLETED, state[dep], "%s is ready", task.GetId())
			}
		}
	}
	require.Equal(t, []int32{int32(len(all)), states[registryv1.TaskState_TASK_STATE_COMPLETED], states[registryv1.TaskState_TASK_STATE_FAILED]},
		[]int32{e.GetTotalTasks(), e.GetCompletedTasks(), e.GetFailedTasks()}, id)
	return len(all), dependencies
}
