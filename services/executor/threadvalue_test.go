package executor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// talk is a thread as a value.
const talk = `{"format": "epigraph.thread/1", "threads": [{"id": "main", "items": [{"kind": "message", "body": "hello"}]}]}`

// withTalk is a start of a run on a thread with a key that is made of a value, and that waits for a
// signal.
func withTalk(change ...func(*executorv1.StartRunRequest)) *executorv1.StartRunRequest {
	r := &executorv1.StartRunRequest{
		Graph:       nodes(&graphv1.Node{Id: "hear", Actor: "signal", Named: map[string]*graphv1.Payload{"name": value(`"go"`)}}),
		ThreadValue: value(talk), Thread: &executorv1.Thread{Lifetime: executorv1.ThreadLifetime_THREAD_LIFETIME_CONVERSATION},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func TestStartsOnAThreadAsAValue(t *testing.T) {
	named := func(key string) func(*executorv1.StartRunRequest) {
		return func(r *executorv1.StartRunRequest) { r.Thread.Key, r.BusinessKey = key, key }
	}
	onThreads(t, func(t *testing.T, f talking) {
		threads := func(t *testing.T, prefix string) int {
			t.Helper()
			list, err := f.threads.ListThreads(t.Context(), &executorv1.ListThreadsRequest{KeyPrefix: prefix})
			require.NoError(t, err)
			return len(list.GetThreads())
		}
		t.Run("Repeated/GetsTheFirstAnswer", func(t *testing.T) {
			req := func() *executorv1.StartRunRequest {
				return withTalk(named("again"), func(r *executorv1.StartRunRequest) { r.RequestId = "again" })
			}
			first, err := f.StartRun(t.Context(), req())
			require.NoError(t, err)
			second, err := f.StartRun(t.Context(), req())
			require.NoError(t, err)
			require.Equal(t, []string{first.GetId(), first.GetThreadId()}, []string{second.GetId(), second.GetThreadId()})
			require.Equal(t, 1, threads(t, "again"))
		})
		t.Run("AtOnce/GetOneAnswer", func(t *testing.T) {
			req := func() *executorv1.StartRunRequest {
				return withTalk(named("once"), func(r *executorv1.StartRunRequest) { r.RequestId = "once" })
			}
			const callers = 8
			type answer struct {
				id  string
				err error
			}
			all := make(chan answer, callers)
			for range callers {
				go func() {
					r, err := f.StartRun(t.Context(), req())
					all <- answer{r.GetId(), err}
				}()
			}
			ids := map[string]bool{}
			for range callers {
				a := <-all
				require.NoError(t, a.err)
				ids[a.id] = true
			}
			require.Len(t, ids, 1)
			require.Equal(t, 1, threads(t, "once"))
		})
		t.Run("ReturnExisting/GivesTheRunThatIsThere", func(t *testing.T) {
			req := func() *executorv1.StartRunRequest {
				return withTalk(named("holder"), func(r *executorv1.StartRunRequest) {
					r.ConflictPolicy = executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING
				})
			}
			first, err := f.StartRun(t.Context(), req())
			require.NoError(t, err)
			second, err := f.StartRun(t.Context(), req())
			require.NoError(t, err)
			require.Equal(t, first.GetId(), second.GetId())
		})
		t.Run("SignalWithStart/ImportsOnce", func(t *testing.T) {
			signal := func(name string) *executorv1.Run {
				run, err := f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Start: withTalk(named("signaled")), Name: name, Payload: value(`1`)})
				require.NoError(t, err)
				return run
			}
			first := signal("other")
			require.Equal(t, first.GetId(), signal("other").GetId())
			require.Equal(t, first.GetId(), signal("go").GetId(), "the run is there and hears it")
			require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, f.ends(t, first.GetId()).GetState())
			require.Equal(t, 1, threads(t, "signaled"))
		})
		t.Run("Key/OfAnotherThreadIsRefused", func(t *testing.T) {
			_, err := f.StartRun(t.Context(), withTalk(named("taken")))
			require.NoError(t, err)
			_, err = f.StartRun(t.Context(), withTalk(named("taken"), func(r *executorv1.StartRunRequest) { r.BusinessKey = "" }))
			require.Equal(t, "THREAD_ALREADY_EXISTS", errs.ReasonOf(err), "got %v", err)
		})
	})
}
