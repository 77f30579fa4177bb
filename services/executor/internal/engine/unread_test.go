package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// blind is a journal from which one run cannot be read.
type blind struct {
	journal.Journal
	id    string
	tries atomic.Int32
}

func (b *blind) Load(ctx context.Context, id string) (journal.Loaded, error) {
	if id == b.id {
		b.tries.Add(1)
		return journal.Loaded{}, errors.New("an event of a kind that nobody knows")
	}
	return b.Journal.Load(ctx, id)
}

func TestUnreadableRuns(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		// leave starts a run on an executor that then goes away.
		leave := func(name string) string {
			g := newGate()
			l := run(t, s, actors{"work": g}, func(c *engine.Config, _ *engine.Deps) { c.ID = name })
			id := l.start(t, chain(1, "work"))
			g.next(t)
			l.stop()
			return id
		}
		dark := &blind{id: leave("a")}
		work := actors{"work": &recorder{}, "ask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: []byte(`"?"`)}})}
		l := run(t, s, work, func(c *engine.Config, d *engine.Deps) {
			c.RecoverParallel = 1
			dark.Journal, d.Journal = d.Journal, dark
		})
		l.jobs(t)
		testkit.Eventually(t, func() bool { return dark.tries.Load() > 2 }, 20*time.Second, time.Millisecond)
		t.Run("Others/AreTakenOver", func(t *testing.T) {
			id := leave("c")
			testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateCompleted }, 20*time.Second, time.Millisecond)
		})
		t.Run("Parked/GoOn", func(t *testing.T) {
			id := l.start(t, chain(1, "ask"))
			l.parked(t, id, journal.StateWaiting)
			_, err := l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		})
	})
}
