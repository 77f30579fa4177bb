package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// scan takes over runs that no live executor owns, for as long as the term lasts.
func (t *session) scan(ctx context.Context) {
	for {
		wait := t.e.cfg.ScanInterval
		// A run that only stands in line here would count one more take-over if this executor went down, and
		// could as well be started by another: of a namespace no more are claimed than can be worked on soon.
		began, except := time.Now(), t.crowded()
		switch more := !t.memory.Full() && t.takeOver(ctx, journal.TakeOverOptions{Limit: min(t.e.cfg.Parallel, takeBatch), Except: except}); {
		case more:
			wait = 0
		case t.memory.Full() || len(except) > 0:
			wait = min(wait, max(crowdedPause, 4*time.Since(began)))
		}
		if ctx.Err() != nil {
			return
		}
		if wait == 0 {
			continue
		}
		if !sleep.For(ctx, wait) {
			return
		}
	}
}

const (
	// takeBatch is how many runs are claimed at a time. A small number spreads them over the replicas.
	takeBatch = 128
	// crowdedPause is the pause between two looks at a full line.
	crowdedPause = 20 * time.Millisecond
	// canceledPause is the pause between two looks for canceled runs, and canceledBatch how many are claimed
	// at a time.
	canceledPause, canceledBatch = time.Second, 32
)

// scanCanceled takes over canceled runs that no live executor owns while this one has no room for what others
// do: such a run is to end, however full memory is, and scan and jobs leave it to others.
func (t *session) scanCanceled(ctx context.Context) {
	for t.sleep(canceledPause) {
		for t.waitsForRoom() && t.takeOver(ctx, journal.TakeOverOptions{Limit: canceledBatch, Except: t.queuedCanceled(), Canceled: true}) {
		}
	}
}

// waitsForRoom reports whether there are runs for which this executor has no room.
func (t *session) waitsForRoom() bool {
	t.mu.Lock()
	waiting := len(t.lines.by) > 0
	t.mu.Unlock()
	return waiting || t.memory.Full() || len(t.crowded()) > 0
}

// crowded are the namespaces for whose runs there is no room here.
func (t *session) crowded() []string {
	out := t.memory.Crowded()
	for _, ns := range t.sched.Crowded() {
		if !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// takeOver claims what Limit, Except and Canceled of o say, reads it, and reports whether there is more.
func (t *session) takeOver(ctx context.Context, o journal.TakeOverOptions) (more bool) {
	leave, free := t.e.suspects.Try()
	defer leave()
	o.Lease, o.NoSuspects, o.TakeOverPolicy, o.QuarantineEvent, o.QuarantineJobs = t.e.cfg.Lease, !free, t.e.TakeOverPolicy(), quarantine, feed.QuarantineJobs
	res, err := t.e.journal.TakeOver(ctx, t.owner, o)
	if err != nil {
		if ctx.Err() == nil && !journal.IsFenced(err) {
			t.e.log.WarnContext(ctx, "take-over did not work", "err", err)
		}
		return false
	}
	if len(res.Claimed) > 0 {
		failpoint.Hit(failpoint.TakeoverAfter)
	}
	for _, ref := range res.Quarantined {
		t.e.log.ErrorContext(ctx, "run brought its owners down and is quarantined", "run_id", ref.RunID, "takeovers", ref.Takeovers, "doing", ref.DiedDoing)
	}
	t.e.explained.Add(res.AtWork)
	if !slices.ContainsFunc(res.Claimed, func(f journal.RunRef) bool { return f.Doing != "" }) {
		leave() // else no other suspect works until this one stands
	}
	t.e.meters.takeover("quarantined", len(res.Quarantined))
	t.e.meters.takeover("claimed", len(res.Claimed))
	if len(res.Claimed) > 0 {
		t.e.log.InfoContext(ctx, "runs taken over", "count", len(res.Claimed))
	}
	var g errgroup.Group
	g.SetLimit(t.e.cfg.RecoverParallel)
	for _, ref := range res.Claimed {
		g.Go(func() error {
			// What is claimed is this executor's to read; what does not fit into memory waits for room, and
			// meanwhile others may have it.
			if !o.Canceled && !t.memory.Room(ref.Namespace, 1) {
				t.handBack(ctx, ref.RunID)
				return nil
			}
			var has turnsHeld
			if ref.Doing != "" {
				has.suspect = leave
			}
			defer has.release()
			if err := t.tryLoad(ref.Namespace, ref.RunID, &has); err != nil {
				t.loadSoon(ref.Namespace, ref.RunID) // others do not wait for one that cannot be read
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return false
	}
	return res.More
}

// quarantine is the event that records the end of patience with a run.
func quarantine(ref journal.RunRef) journal.Event {
	ev, err := record.EncodeEvent(&record.Durable{Event: workgraph.Event{
		Version: workgraph.MachineVersion, Seq: ref.LastSeq + 1, Kind: workgraph.RunPaused, At: dbkit.Now(), Reason: journal.ReasonQuarantined,
	}})
	if err != nil {
		panic(fmt.Sprintf("engine: a constant event cannot be encoded: %v", err))
	}
	return ev
}

// rescueEvery is how often jobs are looked for that an executor died with.
const rescueEvery = time.Second

// rescueJobs lets jobs come again with which an executor died: once it is not heard of any more, and not only
// when they have taken longer than they may. Nor do they wait for a long lease: a job that comes twice does
// no harm, as a run that two work on would.
func (t *session) rescueJobs(ctx context.Context) {
	tick := time.NewTicker(rescueEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := t.e.journal.RescueJobs(ctx, t.e.jobWorker, min(t.e.cfg.Lease, journal.DefaultLease), sweepBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			t.e.log.WarnContext(ctx, "jobs of dead executors not looked for", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "jobs that executors died with come again", "count", n)
		}
	}
}

const (
	// lateWake is how long a wake-up may be overdue until another one is sent, and sweepBatch how many are
	// sent at a time.
	lateWake   = 5 * time.Second
	sweepBatch = 1000
)

// sweep sees to it that wake-ups come in time, whoever leads the queue: it is always ahead of the leader,
// whose statement for many jobs at once may take as long as they are many when the table's statistics are
// old. And it gives parked and pending runs whose wake-up was lost another one, for as long as the term
// lasts.
func (t *session) sweep(ctx context.Context) {
	const ahead = 12 * time.Second
	tick := time.NewTicker(lateWake)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ready := sweepBatch; ready >= sweepBatch; {
			var err error
			if ready, err = t.e.journal.ReadyJobs(ctx, ahead, sweepBatch); err != nil && ctx.Err() == nil {
				t.e.log.WarnContext(ctx, "jobs that are due before long not made ready", "err", err)
			}
		}
		n, err := t.e.journal.SweepOwnerless(ctx, lateWake, sweepBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			t.e.log.WarnContext(ctx, "parked runs not swept", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "wake-ups that were lost are sent again", "count", n)
		}
	}
}
