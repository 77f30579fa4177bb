package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

const makerText = `
name: Maker
steps:
  - {id: make, type: actor, actor: workflow_create, with: {dsl: "name: Tea\nsteps:\n  - {id: say, type: transform, template: hot}\n"}}
  - {id: ran, type: actor, actor: spawn, with: {ref: "{{ make.ref }}", as_result: true}}
`

// TestWorkflowIsMadeOnce kills an executor after the registry has made a workflow for a run, and before that
// is booked: the next attempt is answered with the same workflow, which the next step runs.
func TestWorkflowIsMadeOnce(t *testing.T) {
	t.Parallel()
	d, faults := workflow.Read([]byte(makerText))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	wire, err := graphpb.ToProto(g)
	require.NoError(t, err)
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, clusterOptions{store: store, replicas: 1})
			conn, err := grpckit.Dial(c.addr("registry"), grpckit.DialOptions{Namespace: namespace})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			made := func() []*registryv1.Workflow {
				l, err := registryv1.NewWorkflowServiceClient(conn).ListWorkflows(t.Context(), &registryv1.ListWorkflowsRequest{})
				require.NoError(t, err)
				return l.GetWorkflows()
			}
			r := c.replicas[0]
			r.end()
			// The first call is that of the inputs.
			require.NoError(t, r.start(map[failpoint.Point]int{failpoint.EffectAfter: 2}))
			dead := r.over()
			var run *executorv1.Run
			done := make(chan error, 1)
			go func() {
				var err error
				run, err = c.finished(t.Context(), &executorv1.StartRunRequest{Graph: wire, RequestId: "maker"})
				done <- err
			}()
			select {
			case <-dead:
			case err := <-done:
				require.Failf(t, "the process did not die", "%v: %v", err, run)
			}
			c.died(failpoint.EffectAfter)
			require.Len(t, made(), 1, "it was made before the process died")
			require.NoError(t, r.start(nil))
			require.NoError(t, <-done)
			require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState(), "%s", run.GetError())
			require.JSONEq(t, `"hot"`, string(run.GetResult().GetJson()))
			require.Len(t, made(), 1, "it was made once")
		})
	}
}
