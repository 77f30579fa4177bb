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
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// scan takes over runs without a live owner, for as long as the session lasts.
func (t *session) scan(ctx context.Context) {
	for {
		wait := t.e.cfg.ScanInterval
		// A run that only waits here could be started by another executor, and the death of this one would
		// count against it. So no more runs of a namespace are claimed than can be worked on soon.
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
	// crowdedPause is the pause between two looks while queues are full.
	crowdedPause = 20 * time.Millisecond
	// canceledPause is the pause between two looks for canceled runs, and canceledBatch is how many are
	// claimed at a time.
	canceledPause, canceledBatch = time.Second, 32
)

// scanCanceled takes over canceled runs without a live owner while this executor has no room for other runs.
// A canceled run must end however full memory is, and neither scan nor jobs claim it then.
func (t *session) scanCanceled(ctx context.Context) {
	for t.sleep(canceledPause) {
		for t.waitsForRoom() && t.takeOver(ctx, journal.TakeOverOptions{Limit: canceledBatch, Except: t.queuedCanceled(), Canceled: true}) {
		}
	}
}

// waitsForRoom reports whether this executor has no room for some run.
func (t *session) waitsForRoom() bool {
	t.mu.Lock()
	waiting := len(t.lines.by) > 0
	t.mu.Unlock()
	return waiting || t.memory.Full() || len(t.crowded()) > 0
}

// crowded are the namespaces whose runs find no room here.
func (t *session) crowded() []string {
	out := t.memory.Crowded()
	for _, ns := range t.sched.Crowded() {
		if !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// takeOver claims runs by Limit, Except and Canceled of o, and reads them. It reports whether there are more.
func (t *session) takeOver(ctx context.Context, o journal.TakeOverOptions) (more bool) {
	leave, free := t.e.suspects.Try()
	defer leave()
	o.Lease, o.NoSuspects, o.TakeOverPolicy, o.QuarantineEvent, o.QuarantineJobs = t.e.cfg.Lease, !free, t.e.TakeOverPolicy(), quarantine, feed.QuarantineJobs
	if t.e.claims != nil {
		o.QuarantineOutbox = quarantined
	}
	res, err := t.e.journal.TakeOver(ctx, t.owner, o)
	if err != nil {
		if ctx.Err() == nil && !journal.IsFenced(err) {
			t.e.log.WarnContext(ctx, "take-over failed", "err", err)
		}
		return false
	}
	if len(res.Claimed) > 0 {
		failpoint.Hit(failpoint.TakeoverAfter)
	}
	if len(res.Quarantined) > 0 {
		t.e.wake(true)
	}
	for _, ref := range res.Quarantined {
		t.e.log.ErrorContext(ctx, "run brought its owners down and is quarantined", "run_id", ref.RunID, "takeovers", ref.Takeovers, "doing", ref.DiedDoing)
	}
	t.e.explained.Add(res.AtWork)
	if !slices.ContainsFunc(res.Claimed, func(f journal.RunRef) bool { return f.Doing != "" }) {
		leave() // else no other suspect works until this one is live
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
			// A claimed run that does not fit into memory is handed back, so that other executors can have
			// it.
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

// quarantine is the event that pauses a run whose take-overs without progress are used up.
func quarantine(ref journal.RunRef) journal.Event {
	ev, err := record.EncodeEvent(&record.Durable{Event: workgraph.Event{
		Version: workgraph.MachineVersion, Seq: ref.LastSeq + 1, Kind: workgraph.RunPaused, At: dbkit.Now(), Reason: journal.ReasonQuarantined,
	}})
	if err != nil {
		panic(fmt.Sprintf("engine: a constant event cannot be encoded: %v", err))
	}
	return ev
}

// quarantined tells the feed of a run that was quarantined, as run.changes does of other pauses.
func quarantined(ref journal.RunRef, run *journal.Run) []journal.Out {
	m, err := record.DecodeMetadata(run.Metadata)
	if err != nil || !outbox.Told(run.ParentID, m.Workflow) {
		return nil
	}
	c := outbox.RunChange{RunID: ref.RunID, Parent: run.ParentID, Workflow: m.Workflow, State: outbox.Paused, Task: run.TaskID, Epic: run.EpicID, Seq: ref.LastSeq, Time: dbkit.Now(),
		Reason: journal.ReasonQuarantined}
	if p := m.Payer; c.Task == "" && p != nil {
		c.Task, c.Epic = p.Task, p.Epic
	}
	o, err := c.Out()
	if err != nil {
		panic(fmt.Sprintf("engine: a change cannot be encoded: %v", err))
	}
	return []journal.Out{o}
}

// rescueEvery is the pause between two looks for jobs of dead executors.
const rescueEvery = time.Second

// rescueJobs makes jobs of dead executors available again as soon as the executor's heartbeats have stopped,
// long before the job's own timeout. It does not wait for a long lease: a job that comes twice does no harm,
// while two owners of a run would.
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
			t.e.log.WarnContext(ctx, "jobs of dead executors cannot be looked for", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "jobs of dead executors are available again", "count", n)
		}
	}
}

const (
	// lateWake is how long a wake-up may be overdue before another one is sent. sweepBatch is how many are
	// sent at a time.
	lateWake   = 5 * time.Second
	sweepBatch = 1000
)

// sweep makes jobs ready before they are due, so that wake-ups come in time: with old table statistics, the
// statement of the queue's leader for many jobs takes long. It also sends a new wake-up to evicted and
// pending runs whose own was lost. It runs for as long as the session lasts.
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
				t.e.log.WarnContext(ctx, "jobs that are due soon cannot be made ready", "err", err)
			}
		}
		n, err := t.e.journal.SweepOwnerless(ctx, lateWake, sweepBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			t.e.log.WarnContext(ctx, "lost wake-ups cannot be looked for", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "lost wake-ups are sent again", "count", n)
		}
	}
}
