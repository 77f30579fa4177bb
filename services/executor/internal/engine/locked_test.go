package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestLocked holds the lock of one run, as an evaluation of its expressions does, while a write of it is
// answered and commands for it arrive.
func TestLocked(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		l := run(t, s, actors{"gate": g, "echo": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return text("x"), nil })})
		locked := l.start(t, chain(1, "gate"))
		g.next(t)
		canceled := l.start(t, chain(1, "gate"))
		g.next(t)
		unlock := l.LockAfterWrite(locked)
		for range 3 {
			// By the writer that answered the locked run.
			l.wait(t, l.start(t, chain(3, "echo")), journal.StateCompleted)
		}
		for _, id := range []string{locked, canceled} { // as another executor enqueues them
			_, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "enough", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"enough"}`), Time: time.Now()}})
			require.NoError(t, err)
		}
		l.wait(t, canceled, journal.StateCanceled)
		require.Equal(t, journal.StateRunning, l.row(t, locked).State)
		unapplied := func() []string {
			before, err := l.j.Outstanding(t.Context(), ns, locked)
			require.NoError(t, err)
			return command.Unapplied(before.Unread)
		}
		require.Equal(t, []string{"CANCEL"}, unapplied())
		unlock()
		l.wait(t, locked, journal.StateCanceled)
		testkit.Eventually(t, func() bool { return len(unapplied()) == 0 })
	})
}

// TestLockedWhilePricesComeBack holds the lock of one run while all runs learn that prices can be asked for
// again.
func TestLockedWhilePricesComeBack(t *testing.T) {
	t.Parallel()
	g := newGate()
	l := run(t, sqliteStore(t), actors{"gate": g})
	id := l.start(t, chain(1, "gate"))
	g.next(t)
	unlock := l.LockAfterWrite(id)
	told := make(chan struct{})
	go func() {
		defer close(told)
		l.Expedite(t.Context())
	}()
	select {
	case <-told:
		unlock()
	case <-time.After(30 * time.Second):
		unlock()
		t.Fatal("all runs wait for the one that is locked")
	}
	close(g.open)
	l.wait(t, id, journal.StateCompleted)
}
