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
	// cancellationBatch is how many cancellations are leased at once, and how many of a namespace are in hand
	// at most. cancellationParallel is how many of those are carried out at the same time.
	cancellationBatch, cancellationParallel = 200, 8
	// cancellationHold is how long the lease hides cancellations from other executors, also if this one dies.
	cancellationHold = 5 * time.Second
	// slowestStart is how long after a cancellation a run may still be recorded whose start was under way. If
	// a start takes longer, the run confirms its claim, and the registry requests its cancellation again.
	slowestStart = 10 * time.Minute
)

// watchCancellations cancels the runs of this database that the registry wants canceled, whichever executor
// owns them.
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
			// One line for each outage: the outbox logs the rest.
			t.e.log.WarnContext(ctx, "cancellations cannot be read from the registry; trying again", "err", err)
		}
		away = err != nil
	}
}

// canceler cancels the runs that the registry hands out. Each namespace has a line of its own, and leases go
// on while cancels are in progress, so that a slow cancel delays nothing else.
type canceler struct {
	e       *Engine
	workers sync.WaitGroup

	mu    sync.Mutex
	lines map[string]*cancelLine
	fault error // of the last failed acknowledgement
}

// cancelLine is the work of one namespace.
type cancelLine struct {
	waiting []leased
	// inHand are the runs that wait or are being canceled.
	inHand map[string]bool
	busy   int
	// done are cancellations to acknowledge. acknowledging is set while a goroutine does so.
	done          []Cancellation
	acknowledging bool
}

// leased is a cancellation that no other executor gets before until.
type leased struct {
	Cancellation
	until time.Time
}

// lease takes cancellations from the registry. It reports whether there may be more that can be taken now.
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
		// The registry hands out the others again after the hold.
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

// work carries out the cancellations of a line, one after the other, until none waits.
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

// acknowledge acknowledges what is done in a line, all of it at once, until nothing is left. After a failure
// the registry hands the cancellations out again.
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

// forget drops an idle line. The caller holds c.mu.
func (c *canceler) forget(namespace string, l *cancelLine) {
	if l.busy == 0 && !l.acknowledging {
		delete(c.lines, namespace)
	}
}

// takeFault returns why an acknowledgement failed since the last call, or nil.
func (c *canceler) takeFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.fault
	c.fault = nil
	return err
}

// cancelUnwantedRun cancels a run. It reports whether the run will certainly end, or never begin.
func (e *Engine) cancelUnwantedRun(ctx context.Context, c Cancellation) bool {
	_, err := e.Cancel(ctx, command.CancelRequest{Namespace: c.Namespace, RunID: c.RunID, Reason: c.Reason})
	switch {
	case err == nil:
		e.log.InfoContext(ctx, "run is canceled with its task", "run_id", c.RunID, "task_id", c.TaskID, "reason", c.Reason)
		return true
	case errs.ReasonOf(err) == journal.ReasonRunNotFound:
		// A confirmed run was recorded, so it is deleted by now. Else its start may be in progress: the task
		// is claimed before the run is recorded.
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
