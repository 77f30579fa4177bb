package engine_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestFinalResponse is about the response of a team that ends in a turn in which no member speaks.
func TestFinalResponse(t *testing.T) {
	t.Parallel()
	// chosen begins a team whose model chooses b so often, and is held at its next choice.
	chosen := func(t *testing.T, times int64, stop string) (l *live, id string, g *gate) {
		t.Helper()
		s, calls := sqliteStore(t), atomic.Int64{}
		g = newGate()
		chooses := workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			if calls.Add(1) <= times {
				return text("b"), nil
			}
			return g.Call(ctx, c)
		})
		l = run(t, s, teams(t, s, actors{"chooses": chooses, "says": &member{}}))
		l.jobs(t)
		id = l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}, {"name": "c", "actor": "says"}],
			"choose": {"actor": "chooses", "repeat": true}, "stop": `+stop+`}}`))
		g.next(t)
		return l, id, g
	}
	stop := func(t *testing.T, l *live, id string, g *gate) teamEnd {
		t.Helper()
		require.NoError(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: id, Reason: "enough"}))
		testkit.Eventually(t, func() bool { return len(kinds(l.events(t, id), workgraph.StopRequested)) == 1 })
		close(g.open)
		over := l.over(t, id)
		require.Equal(t, "EXTERNAL", over.Stop.Reason)
		return over
	}
	t.Run("StoppedWhileAModelChooses/IsThatOfTheLastSpeaker", func(t *testing.T) {
		t.Parallel()
		l, id, g := chosen(t, 2, `{"max_turns": 9}`)
		over := stop(t, l, id, g)
		require.Equal(t, "from b", over.Text)
		require.Equal(t, "b", over.From)
	})
	t.Run("StoppedBeforeAnybodySpoke/IsEmpty", func(t *testing.T) {
		t.Parallel()
		l, id, g := chosen(t, 0, `{"max_turns": 9}`)
		over := stop(t, l, id, g)
		require.Empty(t, over.Text)
		require.Empty(t, over.From)
	})
	t.Run("AnotherRequestAtALimit/IsNotTheRequest", func(t *testing.T) {
		t.Parallel()
		l, id, _ := chosen(t, 1, `{"max_messages": 3}`)
		require.NoError(t, l.instead(t, id))
		over := l.over(t, id)
		require.Equal(t, "MAX_MESSAGES", over.Stop.Reason)
		require.Equal(t, "from b", over.Text)
		require.Equal(t, "b", over.From)
	})
	t.Run("InALaterRunOfTheThread/IsNoneOfAnEarlierRun", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		g := newGate()
		l := run(t, s, teams(t, s, actors{"chooses": g, "says": &member{}}))
		l.jobs(t)
		first := l.over(t, l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}]}}`)))
		require.Equal(t, "from a", first.Text)
		id := l.start(t, teamOf(t, `{"task": "more", "thread_id": "`+first.ThreadID+`", "team": {"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}], "choose": {"actor": "chooses", "repeat": true}, "stop": {"max_turns": 9}}}`))
		g.next(t)
		require.Empty(t, stop(t, l, id, g).Text)
	})
}

// instead asks a run for something else.
func (l *live) instead(t *testing.T, id string) error {
	t.Helper()
	_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Instead: instead})
	return err
}
