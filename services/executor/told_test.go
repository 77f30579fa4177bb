package executor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestToldTask has the workflow of a member of a team say for which task of the registry it works.
func TestToldTask(t *testing.T) {
	t.Parallel()
	d, faults := workflow.Read([]byte(`
name: desk
inputs: {task: {type: string}}
agents:
  clerk:
    workflow:
      name: inner
      inputs: {task: {type: string}, task_id: {type: string}, user_id: {type: string}}
      steps:
        - {id: says, type: transform, template: "{{ inputs.task }} for {{ inputs.user_id }} as {{ inputs.task_id }}"}
graph: [clerk]
stop: {max_turns: 1}
`))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	graph, err := graphpb.ToProto(g)
	require.NoError(t, err)
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{}, store)
		for name, c := range map[string]struct{ task, want string }{
			"OfARunWithATask": {"tk_01h455vb4pex5vsknk084sn02q", "Count for ann as tk_01h455vb4pex5vsknk084sn02q"},
			"OfARunWithout":   {"", "Count for ann as "},
		} {
			t.Run(name, func(t *testing.T) {
				r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: graph, TaskId: c.task, UserId: "ann", Named: map[string]*graphv1.Payload{"task": value(`"Count"`)}})
				require.NoError(t, err)
				end := f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
				require.Contains(t, string(end.GetResult().GetJson()), `"`+c.want+`"`)
				require.Equal(t, c.task != "", f.registry.settledRun(r.GetId()) || f.registry.holder(c.task) == r.GetId(), "the task is claimed for real")
			})
		}
	})
}
