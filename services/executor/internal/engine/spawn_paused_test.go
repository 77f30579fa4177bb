package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// noStarts is a journal that cannot record children while it is shut, and counts how often it was asked to.
type noStarts struct {
	journal.Journal
	shut  atomic.Bool
	tries atomic.Int64
}

func (j *noStarts) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if !j.shut.Load() {
		return j.Journal.Commit(ctx, o, ws)
	}
	out := make([]journal.Result, len(ws))
	var rest []journal.Write
	var places []int
	for i, w := range ws {
		if w.Start != nil && w.Start.Run.ParentID != "" {
			j.tries.Add(1)
			out[i] = journal.Result{Err: errs.New(errs.Unavailable, "AWAY", "not now")}
			continue
		}
		rest, places = append(rest, w), append(places, i)
	}
	if len(rest) == 0 {
		return out, nil
	}
	res, err := j.Journal.Commit(ctx, o, rest)
	for i := range res {
		out[places[i]] = res[i]
	}
	return out, err
}

// A pause reaches the children that are recorded. One whose start is under way begins when the run goes on.
func TestPauseHoldsBackChildrenThatAreBeingStarted(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var done recorder
		a := actors{"work": &done, "spawn": spawns(workgraph.Child{Graph: chain(1, "work")})}
		begin := func(t *testing.T) (*noStarts, *live, string) {
			j := &noStarts{}
			j.shut.Store(true)
			l := run(t, s, a, func(_ *engine.Config, d *engine.Deps) { j.Journal, d.Journal = d.Journal, j })
			id := l.start(t, chain(1, "spawn"))
			testkit.Eventually(t, func() bool { return j.tries.Load() > 1 })
			return j, l, id
		}
		none := func(t *testing.T, l *live, id string) {
			below, err := l.j.Descendants(t.Context(), ns, id)
			require.NoError(t, err)
			require.Empty(t, below)
		}
		// Not in parallel: both executors would do the work of one database.
		t.Run("AndGoesOnWithThem", func(t *testing.T) {
			j, l, id := begin(t)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "LUNCH"}))
			l.wait(t, id, journal.StatePaused)
			j.shut.Store(false)
			l.evicted(t, id, journal.StatePaused)
			none(t, l, id)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
			l.sound(t, id)
			l.stop()
		})
		t.Run("AlsoAfterACrash", func(t *testing.T) {
			_, l, id := begin(t)
			l.stop()
			body, err := (&record.Payload{Reason: "LUNCH"}).Encode()
			require.NoError(t, err)
			_, err = l.j.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandPause, Body: body, Time: time.Now()}})
			require.NoError(t, err)
			again := run(t, s, a, named("second"))
			again.jobs(t)
			again.evicted(t, id, journal.StatePaused)
			none(t, again, id)
			require.NoError(t, again.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			again.wait(t, id, journal.StateCompleted)
			again.sound(t, id)
		})
	})
}
