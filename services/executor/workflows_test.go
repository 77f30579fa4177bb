package executor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestWorkflows(t *testing.T) {
	t.Parallel()
	completed, failed := executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		dir := t.TempDir()
		put := func(name, graph string) {
			t.Helper()
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(graph), 0o600))
		}
		put("greet@1.json", `{"nodes": [{"id": "say", "actor": "template", "named": {"text": "hello {{ named.who }}"}}]}`)
		put("acme/greet@2.json", `{"nodes": [{"id": "say", "actor": "template", "named": {"text": "hi {{ named.who }}"}}]}`)
		put("broken@1.json", `{"nodes": [{"id": "say", "actor": "nobody"}]}`)
		put("nothing@1.json", `[]`)
		f := serve(t, nil, store, func(c *executor.Config) { c.Workflows = dir })
		delegate := func(t *testing.T, named string, want executorv1.RunState) *executorv1.Run {
			t.Helper()
			args := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal([]byte(named), &args))
			n := &graphv1.Node{Id: "d", Actor: "spawn", Named: map[string]*graphv1.Payload{}}
			for k, v := range args {
				n.Named[k] = &graphv1.Payload{Json: v}
			}
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(n)})
			require.NoError(t, err)
			return f.wait(t, r.GetId(), want)
		}

		t.Run("Children/NameVersions", func(t *testing.T) {
			r := delegate(t, `{"runs": [{"ref": "workflow/greet@2", "input": {"named": {"who": "ada"}}}, {"ref": "workflow/greet@1", "input": {"named": {"who": "bob"}}}]}`, completed)
			var slots []workgraph.ChildSlot
			require.NoError(t, json.Unmarshal(r.GetResult().GetJson(), &slots))
			require.Len(t, slots, 2)
			require.JSONEq(t, `"hi ada"`, string(slots[0].Result))
			require.JSONEq(t, `"hello bob"`, string(slots[1].Result))
			child, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: slots[0].RunID})
			require.NoError(t, err)
			require.Equal(t, "greet@2", child.GetGraphName())
			require.Equal(t, r.GetId(), child.GetParentRunId())
			require.EqualValues(t, 1, child.GetParentVisit().GetVisit())
			require.NotEmpty(t, child.GetParentVisit().GetNodeId())
			require.Nil(t, r.GetParentVisit(), "a root has none")
		})
		t.Run("Children/AreToldWhatIsWrong", func(t *testing.T) {
			for ref, want := range map[string][]string{
				"workflow/greet@3":   {"WORKFLOW_NOT_FOUND", "there is greet@2, greet@1"},
				"workflow/greet":     {"WORKFLOW_NOT_FOUND", "workflow/SLUG@version"},
				"workflow/../x@1":    {"WORKFLOW_NOT_FOUND", "names no version"},
				"workflow/nothing@1": {"WORKFLOW_INVALID", "holds no graph"},
				"workflow/broken@1":  {"CHILD_INVALID", "nobody"},
			} {
				r := delegate(t, `{"ref": "`+ref+`"}`, failed)
				require.Equal(t, want[0], r.GetError().GetReason(), ref)
				require.Contains(t, r.GetError().GetMessage(), want[1], ref)
			}
		})
	})
	t.Run("Open/NeedsTheFolder", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
		cfg.Workflows = filepath.Join(t.TempDir(), "nowhere")
		_, err := executor.Open(t.Context(), cfg, executor.Deps{})
		require.ErrorContains(t, err, "folder of workflows")
	})
}
