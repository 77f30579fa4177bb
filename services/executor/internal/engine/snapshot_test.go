package engine_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// laterSnapshots is a journal whose snapshots were made by a later version of the machine.
type laterSnapshots struct {
	journal.Journal
	read chan<- int // bytes of each snapshot that was read
}

func (l laterSnapshots) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	loaded, err := l.Journal.Load(ctx, runID)
	if loaded.Snapshot != nil {
		at := bytes.LastIndex(loaded.Snapshot, []byte(`{"v":`)) + len(`{"v":`)
		loaded.Snapshot = append(append(bytes.Clone(loaded.Snapshot[:at]), '9'), loaded.Snapshot[at:]...)
		l.read <- len(loaded.Snapshot)
	}
	return loaded, err
}

// endsAfterReading is a journal whose reader gives up when it has read events.
type endsAfterReading struct {
	journal.Journal
	end context.CancelFunc
}

func (e endsAfterReading) Events(ctx context.Context, namespace, runID string, after int64, limit int) ([]journal.Event, error) {
	events, err := e.Journal.Events(ctx, namespace, runID, after, limit)
	e.end()
	return events, err
}

func TestReplay(t *testing.T) {
	t.Parallel()
	t.Run("FromTheBeginning/WhenTheSnapshotIsOfALaterMachine", func(t *testing.T) {
		t.Parallel()
		s, g := sqliteStore(t), newGate()
		first := run(t, s, actors{"ok": &recorder{}, "gate": g}, oftenSnapshots)
		id := first.start(t, steps("ok", "ok", "ok", "gate", "ok"))
		g.next(t)
		first.stop()
		g2, rec := newGate(), &recorder{}
		close(g2.open)
		read := make(chan int, 100)
		again := run(t, store{s.name, func(t testing.TB) journal.Journal { return laterSnapshots{s.open(t), read} }}, actors{"ok": rec, "gate": g2})
		again.wait(t, id, journal.StateCompleted)
		require.NotEmpty(t, read, "there was a snapshot")
		require.Zero(t, rec.of("n2"), "what has ended is not done again")
		require.Equal(t, 1, rec.of("n4"))
	})
	t.Run("Audit/InterruptedFindsNoFault", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}})
		id := l.start(t, steps("ok"))
		l.wait(t, id, journal.StateCompleted)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		faults, err := engine.Audit(ctx, endsAfterReading{l.j, cancel}, ns, id)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, faults)
	})
}
