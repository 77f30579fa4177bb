package engine

import (
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// cancellationPoll is how often the registry is asked for cancellations.
	cancellationPoll = time.Second
	// cancellationBatch is how many are asked for at once, and how many of a namespace are in hand at most;
	// cancellationParallel how many of them are canceled at the same time.
	cancellationBatch, cancellationParallel = 200, 8
	// cancellationHold is for how long other executors do not get them: one that goes down with them keeps
	// them back for so long.
	cancellationHold = 5 * time.Second
	// slowestStart is how long after a cancellation a run may still be recorded whose start was under way.
	// The registry hears of a start that takes longer when the run confirms its claim, and asks for the run's
	// end anew: whatever became of its task.
	slowestStart = 10 * time.Minute
)

// watchCancellations cancels the runs of this database that the registry wants canceled, whoever owns them.
func (t *session) watchCancellations(ctx context.Context) {
	if t.e.cancellations == nil {
		return
	}
	c := &canceler{e: t.e, lines: map[string]*cancelLine{}}
	defer c.workers.Wait()
	tick := time.NewTicker(cancellationPoll)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		for more := true; more && err == nil; {
			more, err = c.lease(ctx)
		}
		if err == nil {
			err = c.takeFault()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			// One line an outage: the outbox says the rest.
			t.e.log.WarnContext(ctx, "the registry does not tell which runs to cancel; it is asked again", "err", err)
		}
		away = err != nil
	}
}

// canceler cancels runs that the registry hands out. Each namespace has a line of its own, and what was
// handed out once is not waited for before the next is: a cancel that is slow holds up neither.
type canceler struct {
	e       *Engine
	workers sync.WaitGroup

	mu    sync.Mutex
	lines map[string]*cancelLine
	fault error // of the last acknowledgement that failed
}

// cancelLine is what is in hand for a namespace.
type cancelLine struct {
	waiting []leased
	// hand are those that wait or are being canceled.
	inHand map[string]bool
	busy   int
	// done are those to acknowledge; telling says that somebody does.
	done          []Cancellation
	acknowledging bool
}

// leased is a cancellation that nobody else gets until then.
type leased struct {
	Cancellation
	until time.Time
}

// lease takes what the registry hands out. It reports whether there may be more that can be taken now.
func (c *canceler) lease(ctx context.Context) (bool, error) {
	until := time.Now().Add(cancellationHold)
	asking, stop := context.WithDeadline(ctx, until)
	defer stop()
	list, err := c.e.cancellations.Lease(asking, cancellationBatch, cancellationHold)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	for _, x := range list {
		l := c.lines[x.Namespace]
		if l == nil {
			l = &cancelLine{inHand: map[string]bool{}}
			c.lines[x.Namespace] = l
		}
		// What is not taken comes again after the hold.
		if l.inHand[x.RunID] || len(l.inHand) >= cancellationBatch {
			continue
		}
		taken++
		l.inHand[x.RunID] = true
		l.waiting = append(l.waiting, leased{x, until})
		if l.busy < cancellationParallel {
			l.busy++
			c.workers.Go(func() { c.work(ctx, x.Namespace, l) })
		}
	}
	return taken == cancellationBatch, nil
}

// work cancels what waits in a line, one after the other, until nothing does.
func (c *canceler) work(ctx context.Context, namespace string, l *cancelLine) {
	for {
		c.mu.Lock()
		if len(l.waiting) == 0 {
			l.busy--
			c.forget(namespace, l)
			c.mu.Unlock()
			return
		}
		x := l.waiting[0]
		l.waiting = l.waiting[1:]
		c.mu.Unlock()
		try, stop := context.WithDeadline(ctx, x.until)
		certain := try.Err() == nil && c.e.cancelUnwantedRun(try, x.Cancellation)
		stop()
		c.mu.Lock()
		delete(l.inHand, x.RunID)
		if !certain {
			c.mu.Unlock()
			continue
		}
		l.done = append(l.done, x.Cancellation)
		tells := !l.acknowledging
		l.acknowledging = true
		c.mu.Unlock()
		if tells {
			c.workers.Go(func() { c.acknowledge(ctx, namespace, l) })
		}
	}
}

// tell acknowledges what is done in a line, all of it at once, until nothing is left. What it fails to tell
// is handed out again.
func (c *canceler) acknowledge(ctx context.Context, namespace string, l *cancelLine) {
	for {
		c.mu.Lock()
		done := l.done
		if l.done = nil; len(done) == 0 {
			l.acknowledging = false
			c.forget(namespace, l)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		telling, stop := context.WithTimeout(ctx, cancellationHold)
		err := c.e.cancellations.Acknowledge(telling, done)
		stop()
		if err != nil {
			c.mu.Lock()
			c.fault = err
			c.mu.Unlock()
		}
	}
}

// forget drops a line that nobody works on. The lock is held.
func (c *canceler) forget(namespace string, l *cancelLine) {
	if l.busy == 0 && !l.acknowledging {
		delete(c.lines, namespace)
	}
}

// untold is why an acknowledgement failed since it was asked last.
func (c *canceler) takeFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.fault
	c.fault = nil
	return err
}

// cancelUnwantedRun reports whether the run will end for certain, or never begin.
func (e *Engine) cancelUnwantedRun(ctx context.Context, c Cancellation) bool {
	_, err := e.Cancel(ctx, command.CancelRequest{Namespace: c.Namespace, RunID: c.RunID, Reason: c.Reason})
	switch {
	case err == nil:
		e.log.InfoContext(ctx, "run is canceled with its task", "run_id", c.RunID, "task_id", c.TaskID, "reason", c.Reason)
		return true
	case errs.ReasonOf(err) == journal.ReasonRunNotFound:
		// One that was recorded is deleted by now. Else its start may be under way: it is claimed before it
		// is recorded.
		return c.Confirmed || time.Since(c.Time) > slowestStart
	case errs.ReasonOf(err) == journal.ReasonRunEnded:
		return true
	default:
		if ctx.Err() == nil {
			e.log.WarnContext(ctx, "run of a canceled task is not canceled yet", "err", err, "run_id", c.RunID, "task_id", c.TaskID)
		}
		return false
	}
}
