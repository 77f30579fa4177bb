package executor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// LeaseOrders hands out everything of a database every time, as if each lease were over at once.
func (b *fakeRegistry) LeaseOrders(_ context.Context, r *registryv1.LeaseOrdersRequest) (*registryv1.LeaseOrdersResponse, error) {
	if b.down.Load() {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leased++
	return &registryv1.LeaseOrdersResponse{Orders: slices.DeleteFunc(slices.Clone(b.unwanted), func(c *registryv1.Order) bool {
		of := b.databases[c.GetTaskId()]
		return of != "" && of != r.GetDatabase()
	})}, nil
}

func (b *fakeRegistry) AcknowledgeOrders(_ context.Context, r *registryv1.AcknowledgeOrdersRequest) (*registryv1.AcknowledgeOrdersResponse, error) {
	if b.down.Load() {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, r.GetRefused()...)
	done := r.GetOrders()
	for _, x := range r.GetRefused() {
		done = append(done, x.GetOrder())
	}
	b.unwanted = slices.DeleteFunc(b.unwanted, func(c *registryv1.Order) bool {
		return slices.ContainsFunc(done, func(d *registryv1.Order) bool {
			return d.GetNamespace() == c.GetNamespace() && d.GetTaskId() == c.GetTaskId() && d.GetRunId() == c.GetRunId()
		})
	})
	return &registryv1.AcknowledgeOrdersResponse{}, nil
}

// cancel records that a task was canceled so long ago.
func (b *fakeRegistry) cancel(namespace, task, run string, age time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelLocked(namespace, task, run, age)
}

func (b *fakeRegistry) cancelLocked(namespace, task, run string, age time.Duration) {
	b.unwanted = append(b.unwanted, &registryv1.Order{Namespace: namespace, TaskId: task, RunId: run, Reason: "TASK_CANCELED",
		CreateTime: timestamppb.New(time.Now().Add(-age))})
}

// cancelBegun records that the task of a run was canceled that confirmed its claim.
func (b *fakeRegistry) cancelBegun(namespace, task, run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelLocked(namespace, task, run, 0)
	b.unwanted[len(b.unwanted)-1].Confirmed = true
}

func (b *fakeRegistry) wanted(run string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(b.unwanted, func(c *registryv1.Order) bool { return c.GetRunId() == run })
}

// TestCancellations has runs in every position in which the cancel of their task may find them.
func TestCancellations(t *testing.T) {
	t.Parallel()
	const canceled = executorv1.RunState_RUN_STATE_CANCELED
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, workgraph.Actors{"model": model("priced", false),
			"hangs": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
				<-ctx.Done()
				return workgraph.Outcome{}, ctx.Err()
			})}, store)
		begin := func(t *testing.T, req *executorv1.StartRunRequest) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), req)
			require.NoError(t, err)
			return r.GetId()
		}
		waits := nodes(actorNode("wait", "signal", `{"name": "go"}`))
		// reached requires that the run ends for that reason, that the registry hears of it, and that
		// it stops asking.
		reached := func(t *testing.T, task, run string) *executorv1.Run {
			t.Helper()
			got := f.wait(t, run, canceled)
			var reasons []string
			for _, ev := range f.watch(t, &executorv1.WatchRunRequest{RunId: run, DurableOnly: true}) {
				if c := ev.GetCancelRequested(); c != nil {
					reasons = append(reasons, c.GetReason())
				}
			}
			require.Equal(t, []string{"TASK_CANCELED"}, reasons)
			testkit.Eventually(t, func() bool { return f.registry.wanted(run) && f.registry.settledRun(run) }, "%s", task)
			return got
		}
		for name, tc := range map[string]struct {
			req *executorv1.StartRunRequest
			// at is the state that the run is in when its task is canceled.
			at executorv1.RunState
		}{
			"InACall":    {&executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "m", Actor: "model"}, &graphv1.Node{Id: "h", Actor: "hangs"})}, executorv1.RunState_RUN_STATE_RUNNING},
			"ForASignal": {&executorv1.StartRunRequest{Graph: waits}, executorv1.RunState_RUN_STATE_WAITING},
			"ForATimer":  {&executorv1.StartRunRequest{Graph: nodes(actorNode("s", "sleep", `{"duration": "1h"}`))}, executorv1.RunState_RUN_STATE_WAITING},
			"ForItsTime": {&executorv1.StartRunRequest{Graph: waits, StartTime: timestamppb.New(time.Now().Add(time.Hour))}, executorv1.RunState_RUN_STATE_PENDING},
		} {
			t.Run("Run/"+name, func(t *testing.T) {
				t.Parallel()
				task := "tk_" + name
				tc.req.TaskId = task
				id := begin(t, tc.req)
				f.wait(t, id, tc.at)
				f.registry.cancel("acme", task, id, 0)
				reached(t, task, id)
			})
		}
		t.Run("Run/Paused", func(t *testing.T) {
			t.Parallel()
			id := begin(t, &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_paused"})
			_, err := f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_PAUSED)
			f.registry.cancel("acme", "tk_paused", id, 0)
			reached(t, "tk_paused", id)
		})
		t.Run("Run/WithOthersBelowIt", func(t *testing.T) {
			t.Parallel()
			id := begin(t, &executorv1.StartRunRequest{TaskId: "tk_parent",
				Graph: nodes(actorNode("d", "spawn", `{"runs": [{"graph": {"nodes": [{"id": "x", "actor": "hangs"}]}}, {"graph": {"nodes": [{"id": "x", "actor": "hangs"}]}}]}`))})
			var below []*executorv1.Run
			testkit.Eventually(t, func() bool {
				list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
				require.NoError(t, err)
				below = list.GetRuns()
				return len(below) == 2
			})
			f.registry.cancel("acme", "tk_parent", id, 0)
			reached(t, "tk_parent", id)
			for _, r := range below {
				f.wait(t, r.GetId(), canceled)
			}
		})
		t.Run("Run/ThatHasEndedStaysAsItIs", func(t *testing.T) {
			t.Parallel()
			id := begin(t, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "m", Actor: "model"}), TaskId: "tk_ended"})
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
			f.registry.cancel("acme", "tk_ended", id, 0)
			testkit.Eventually(t, func() bool { return f.registry.wanted(id) })
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
		})
		t.Run("Run/OfAnotherNamespaceIsNotTouched", func(t *testing.T) {
			t.Parallel()
			id := begin(t, &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_mine"})
			f.wait(t, id, executorv1.RunState_RUN_STATE_WAITING)
			f.registry.cancel("other", "tk_mine", id, time.Hour)
			testkit.Eventually(t, func() bool { return f.registry.wanted(id) })
			f.wait(t, id, executorv1.RunState_RUN_STATE_WAITING)
		})
		t.Run("Run/WhoseStartIsUnderWay", func(t *testing.T) {
			// It is canceled after its task was claimed and before it is recorded; the executor looks
			// for it before and after.
			f.registry.mu.Lock()
			f.registry.onClaim = func(task, run string) {
				if task == "tk_starting" {
					f.registry.cancelLocked("acme", task, run, 0)
					f.registry.onClaim = nil
				}
			}
			f.registry.mu.Unlock()
			reached(t, "tk_starting", begin(t, &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_starting"}))
		})
		t.Run("Run/ThatIsNotThereIsWaitedFor", func(t *testing.T) {
			f.registry.cancel("acme", "tk_young", "run_young", time.Minute)
			f.registry.cancel("acme", "tk_old", "run_old", time.Hour)
			testkit.Eventually(t, func() bool { return f.registry.wanted("run_old") })
			f.registry.cancelBegun("acme", "tk_deleted", "run_deleted")
			testkit.Eventually(t, func() bool { return f.registry.wanted("run_deleted") }, "it was recorded, and is no more")
			require.False(t, f.registry.wanted("run_young"), "it may be recorded yet")
		})
		t.Run("Run/OfAnotherDatabaseIsLeftToItsExecutors", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_here"})
			f.wait(t, id, executorv1.RunState_RUN_STATE_WAITING)
			other := serveBeside(t, f.registry, nil)
			there, err := other.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_there"})
			require.NoError(t, err)
			for task, run := range map[string]string{"tk_here": id, "tk_there": there.GetId()} {
				f.registry.cancelBegun("acme", task, run)
			}
			reached(t, "tk_here", id)
			other.wait(t, there.GetId(), canceled)
		})
		t.Run("Registry/AwayForAWhile", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{Graph: waits, TaskId: "tk_away"})
			f.wait(t, id, executorv1.RunState_RUN_STATE_WAITING)
			f.registry.down.Store(true)
			f.registry.cancel("acme", "tk_away", id, 0)
			// Something else is under way meanwhile.
			free := begin(t, &executorv1.StartRunRequest{Graph: nodes(actorNode("s", "sleep", `{"duration": "1500ms"}`))})
			f.wait(t, free, executorv1.RunState_RUN_STATE_COMPLETED)
			f.wait(t, id, executorv1.RunState_RUN_STATE_WAITING)
			f.registry.down.Store(false)
			reached(t, "tk_away", id)
		})
		t.Run("Costs/AreBooked", func(t *testing.T) {
			id := begin(t, &executorv1.StartRunRequest{TaskId: "tk_costs",
				Graph: nodes(&graphv1.Node{Id: "costs", Actor: "model"}, &graphv1.Node{Id: "h", Actor: "hangs"})})
			testkit.Eventually(t, func() bool {
				got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
				return err == nil && got.GetUsage().GetCalls() == 1
			})
			f.registry.cancel("acme", "tk_costs", id, 0)
			reached(t, "tk_costs", id)
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			require.Equal(t, "tk_costs", f.registry.entries["costs"].GetTaskId())
		})
	})
}
