package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
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

// endsAfterReading is a journal whose reader is canceled once it has read events.
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
		faults, err := query.Audit(ctx, endsAfterReading{l.j, cancel}, ns, id)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, faults)
	})
}

// countedSnapshots is a journal that counts the snapshots that are written.
type countedSnapshots struct {
	journal.Journal
	n atomic.Int64
}

func (c *countedSnapshots) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Append != nil && w.Append.Snapshot != nil {
			c.n.Add(1)
		}
	}
	return c.Journal.Commit(ctx, o, ws)
}

// A snapshot holds all that a run has. One for each command would cost the square of their number.
func TestSnapshotsOfIdleRuns(t *testing.T) {
	t.Parallel()
	const many, few = 60, 4
	eachStore(t, func(t *testing.T, s store) {
		counted := func(c *countedSnapshots) option {
			return func(_ *engine.Config, d *engine.Deps) { c.Journal, d.Journal = d.Journal, c }
		}
		// Not in parallel: both executors would do the work of one database.
		t.Run("SignalsThatWaited", func(t *testing.T) {
			a := actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}
			first := run(t, s, a, named("first"))
			id := first.start(t, chain(1, "signal"))
			before := first.evicted(t, id, journal.StateWaiting).LastSeq
			first.stop()
			body, err := (&record.Payload{Name: "other", Payload: []byte(`"x"`)}).Encode()
			require.NoError(t, err)
			for i := range many {
				_, err := first.j.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: fmt.Sprint(i), Body: body, Time: dbkit.Now()}})
				require.NoError(t, err)
			}
			var c countedSnapshots
			l := run(t, s, a, named("second"), counted(&c))
			l.jobs(t)
			testkit.Eventually(t, func() bool {
				left, err := l.j.UnappliedCommands(t.Context(), ns, id, 1)
				return err == nil && len(left) == 0 && l.row(t, id).Owner.IsZero()
			})
			l.stop()
			require.Equal(t, before+many, first.row(t, id).LastSeq, "all are in the journal")
			require.LessOrEqual(t, c.n.Load(), int64(few))
		})
		t.Run("EndsOfChildren", func(t *testing.T) {
			children := make([]workgraph.Child, many)
			for i := range children {
				children[i] = workgraph.Child{Graph: chain(1, "ok")}
			}
			var c countedSnapshots
			l := run(t, s, actors{"ok": &recorder{}, "spawn": spawns(children...)}, counted(&c))
			l.jobs(t)
			l.wait(t, l.start(t, chain(1, "spawn")), journal.StateCompleted)
			l.stop()
			require.LessOrEqual(t, c.n.Load(), int64(few))
		})
	})
}
