package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// recorder takes a report in place of a *testing.T.
type recorder struct {
	text   strings.Builder
	failed bool
}

func (*recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) { fmt.Fprintf(&r.text, format+"\n", args...) }

func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...) }

func (r *recorder) FailNow() { r.failed = true }

// without is the world outside as if the UNSAFE calls of a visit had not come in.
func (o *outside) without(run, node string) *outside {
	o.mu.Lock()
	defer o.mu.Unlock()
	less := &outside{unsafe: maps.Clone(o.unsafe), safe: maps.Clone(o.safe)}
	maps.DeleteFunc(less.unsafe, func(key string, _ int) bool { return strings.HasPrefix(key, run+"/"+node+"/") })
	return less
}

// TestReport reads the report about runs with violations, while nothing is killed.
func TestReport(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			o := newOutside(t)
			c := newCluster(t, clusterOptions{store: store, replicas: 1})
			var jobs []*job
			run := func(j *job) *job {
				began, err := c.replicas[0].exec.StartRun(ctx, &executorv1.StartRunRequest{Graph: j.wire})
				require.NoError(t, err)
				j.run = began.GetId()
				jobs = append(jobs, j)
				testkit.Within(t, timeout, 10*time.Millisecond, func() bool {
					r, err := c.replicas[0].exec.GetRun(ctx, &executorv1.GetRunRequest{RunId: j.run})
					return err == nil && r.GetState() >= executorv1.RunState_RUN_STATE_COMPLETED
				}, "%s does not end", j.run)
				return j
			}
			report := func(ctx context.Context, o *outside) *recorder {
				r := &recorder{}
				c.report(ctx, r, o, c.audit(ctx, o, jobs, false))
				return r
			}
			completed := run(makeJob(t, o, "unsafe"))

			t.Run("NothingIsAtFault", func(t *testing.T) {
				r := report(ctx, o)
				require.False(t, r.failed, r.text.String())
				require.Contains(t, r.text.String(), "1 runs asked for, 3 UNSAFE effects")
				require.NotContains(t, r.text.String(), completed.run)
			})

			t.Run("EffectIsLost", func(t *testing.T) {
				r := report(ctx, o.without(completed.run, "p2"))
				require.True(t, r.failed)
				for _, want := range []string{
					"==== " + completed.run, "effects lost: " + completed.run + "/p2; expected: the UNSAFE call of every visit",
					"state COMPLETED", `"runStarted"`, `"attemptEnded": { "visit": { "nodeId": "p2"`, `"runEnded": { "state": "RUN_STATE_COMPLETED"`,
					completed.run + "/p1/1/0/1: 1 times", completed.run + "/p3/1/0/1: 1 times", "what executor-0 said of it",
				} {
					require.Contains(t, r.text.String(), want)
				}
				require.NotContains(t, r.text.String(), "cannot be told")
				require.NotContains(t, r.text.String(), completed.run+"/p2/1/0/1: ")
			})

			failed := run(&job{wire: &graphv1.Graph{Name: "fails", Nodes: []*graphv1.Node{
				{Id: "bad", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": {Json: []byte(`"1 / 0"`)}}},
			}}})

			t.Run("RunFailed", func(t *testing.T) {
				r := report(ctx, o)
				require.True(t, r.failed)
				for _, want := range []string{
					"==== " + failed.run, "runs not completed: " + failed.run + " FAILED", "expected: every run has completed",
					"state FAILED", `"bad"`, "division by zero", `"runEnded": { "state": "RUN_STATE_FAILED"`,
				} {
					require.Contains(t, r.text.String(), want)
				}
				require.NotContains(t, r.text.String(), "==== "+completed.run)
				require.NotContains(t, r.text.String(), "cannot be told")
			})

			t.Run("NoExecutorIsLeftAndTimeIsOver", func(t *testing.T) {
				c.replicas[0].end()
				a := c.audit(ctx, o, jobs, false)
				over, cancel := context.WithCancel(ctx)
				cancel()
				r := &recorder{}
				c.report(over, r, o, a)
				require.True(t, r.failed)
				require.Contains(t, r.text.String(), "state FAILED")
				require.Contains(t, r.text.String(), "division by zero", "the journal, from the database")
			})
		})
	}
}
