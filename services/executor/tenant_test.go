package executor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestTenant asks for more than one namespace may.
func TestTenant(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{}, store, func(c *executor.Config) { c.MaxSchedules, c.Threads.MaxThreads, c.Threads.MaxBytes = 3, 3, 64<<10 })
		ctx := t.Context()
		labels := func(n int) map[string]string {
			out := map[string]string{}
			for i := range n {
				out[fmt.Sprintf("label-%d", i)] = "x"
			}
			return out
		}
		t.Run("Filter/AsManyLabelsAsARunMayHave", func(t *testing.T) {
			ask := map[string]func(map[string]string) error{
				"ListRuns": func(l map[string]string) error {
					_, err := f.ListRuns(ctx, &executorv1.ListRunsRequest{Labels: l})
					return err
				},
				"BulkCancelRuns": func(l map[string]string) error {
					_, err := f.BulkCancelRuns(ctx, &executorv1.BulkCancelRunsRequest{Filter: &executorv1.RunFilter{Labels: l}, DryRun: true})
					return err
				},
			}
			for name, ask := range ask {
				require.NoError(t, ask(labels(64)), name)
				for _, n := range []int{65, 1001, 40_000} {
					e := errs.From(ask(labels(n)))
					require.Equal(t, "REQUEST_INVALID", e.Reason, "%s: %v", name, e)
				}
			}
			_, err := f.ListRuns(ctx, &executorv1.ListRunsRequest{States: make([]executorv1.RunState, 20_000)})
			require.Equal(t, "REQUEST_INVALID", errs.ReasonOf(err))
		})
		t.Run("Schedules/AreRefusedByNameWithOneTooMany", func(t *testing.T) {
			c := executorv1.NewScheduleServiceClient(f.conn)
			create := func(ns string, i int) error {
				_, err := c.CreateSchedule(grpckit.WithNamespace(ctx, ns), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: fmt.Sprint("s", i), Cron: "@yearly",
					Start: &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "a", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})}}})
				return err
			}
			for i := range 3 {
				require.NoError(t, create("acme", i))
			}
			e := errs.From(create("acme", 3))
			require.Equal(t, errs.ResourceExhausted, e.Kind, "%v", e)
			require.Equal(t, "TOO_MANY_SCHEDULES", e.Reason)
			require.Contains(t, e.HintText(), "executor.max_schedules")
			require.NoError(t, create("other", 3))
			_, err := c.DeleteSchedule(ctx, &executorv1.DeleteScheduleRequest{ScheduleId: "s0"})
			require.NoError(t, err)
			require.NoError(t, create("acme", 3))
		})
		t.Run("Threads/AreRefusedByNameBeyondTheirRoom", func(t *testing.T) {
			c := executorv1.NewThreadServiceClient(f.conn)
			create := func(ns string) (string, error) {
				th, err := c.CreateThread(grpckit.WithNamespace(ctx, ns), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "cel"}})
				return th.GetId(), err
			}
			refused := func(err error, reason, setting string) {
				t.Helper()
				e := errs.From(err)
				require.Equal(t, errs.ResourceExhausted, e.Kind, "%v", e)
				require.Equal(t, reason, e.Reason)
				require.Contains(t, e.HintText(), setting)
			}
			var id string
			for range 3 {
				var err error
				id, err = create("acme")
				require.NoError(t, err)
			}
			const tooMany, tooLarge = "TOO_MANY_THREADS", "THREADS_TOO_LARGE"
			_, err := create("acme")
			refused(err, tooMany, "executor.threads.max_threads")
			_, err = c.ForkThread(ctx, &executorv1.ForkThreadRequest{ThreadId: id})
			refused(err, tooMany, "executor.threads.max_threads")
			_, err = f.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "cel", `{"expr": "1"}`)), Thread: &executorv1.Thread{}})
			refused(err, tooMany, "executor.threads.max_threads")
			_, err = create("other")
			require.NoError(t, err)
			large := strings.Repeat("x", 40<<10)
			agent := func(user string) *executorv1.Run {
				run, err := f.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "agent", fmt.Sprintf(`{"user_input": %q, "thread_id": %q, "reasoner": "cel",
					"reasoner_args": {"expr": "{'result': dyn(1)}"}, "actions": {"act": {"actor": "cel", "named": {"expr": "1"}}}}`, user, id)))})
				require.NoError(t, err)
				return run
			}
			f.wait(t, agent("small").GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			_, err = c.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: id, Content: value(`"` + large + `"`)})
			require.NoError(t, err)
			_, err = c.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: id, Content: value(`"` + large + `"`)})
			refused(err, tooLarge, "executor.threads.max_bytes")
			failed := f.wait(t, agent(large).GetId(), executorv1.RunState_RUN_STATE_FAILED)
			require.Contains(t, failed.GetError().String(), tooLarge)
		})
		t.Run("Limits/ComeInPages", func(t *testing.T) {
			c := executorv1.NewLimitServiceClient(f.conn)
			for i := range 5 {
				_, err := c.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: fmt.Sprint("key/", i), MaxConcurrent: 1}})
				require.NoError(t, err)
			}
			var got []string
			sizes := []int{}
			for token := ""; ; {
				r, err := c.ListLimits(ctx, &executorv1.ListLimitsRequest{PageSize: 2, PageToken: token})
				require.NoError(t, err)
				sizes = append(sizes, len(r.GetLimits()))
				for _, l := range r.GetLimits() {
					got = append(got, l.GetName())
				}
				if token = r.GetNextPageToken(); token == "" {
					break
				}
			}
			require.Equal(t, []int{2, 2, 1}, sizes)
			require.Equal(t, []string{"key/0", "key/1", "key/2", "key/3", "key/4"}, got)
		})
	})
}
