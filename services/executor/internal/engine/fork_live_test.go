package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestForkOfALiveRun forks runs that continue.
func TestForkOfALiveRun(t *testing.T) {
	t.Parallel()
	fork := func(t *testing.T, l *live, id string) (string, error) {
		t.Helper()
		return l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id})
	}
	t.Run("Ended/IsAllThatIsTakenOver", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			l := run(t, s, payments(&recorder{}))
			old := l.start(t, flow(does("first", "does"), does("ask", "asks"), does("pay", "does")))
			q := l.question(t, old)
			id, err := fork(t, l, old)
			require.NoError(t, err)
			require.NotEqual(t, q.ID, l.question(t, id).ID, "it asks again")
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			reused := map[string]bool{}
			for _, v := range visits {
				reused[v.Node] = v.Reused
			}
			require.Equal(t, map[string]bool{"first": true, "ask": false}, reused)
			for _, id := range []string{old, id} { // both continue, each with its own answer
				l.approve(t, l.question(t, id))
				l.wait(t, id, journal.StateCompleted)
				l.sound(t, id)
			}
		})
	})
	t.Run("UnsafeCallUnderWay/CountsAsPerformed", func(t *testing.T) {
		t.Parallel()
		begun, end := make(chan struct{}, 2), make(chan struct{})
		a := payments(&recorder{})
		a["slow"] = workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			begun <- struct{}{}
			<-end
			return workgraph.Outcome{}, nil
		})
		l := run(t, sqliteStore(t), a)
		n := does("pay", "slow")
		n.Effect = workgraph.Unsafe
		old := l.start(t, flow(n))
		<-begun
		_, err := fork(t, l, old)
		require.Equal(t, command.ReasonForkRepeatsUnsafe, errs.ReasonOf(err), "got %v", err)
		close(end)
		l.wait(t, old, journal.StateCompleted)
	})
}
