package engine

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Cancellation is a run that the registry wants canceled: its task was canceled or deleted, alone or with its
// epic.
type Cancellation struct {
	Namespace, TaskID, RunID string
	// Reason becomes the run's.
	Reason string
	// Time is when it came to be.
	Time time.Time
	// Confirmed says that the run was recorded in this database.
	Confirmed bool
}

const (
	// cancellationPoll is how often the registry is asked for cancellations.
	cancellationPoll = time.Second
	// cancellationBatch is how many are taken at once, and cancellationParallel how many of them are canceled
	// at the same time for a namespace.
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
func (t *term) watchCancellations(ctx context.Context) {
	if t.e.cancellations == nil {
		return
	}
	tick := time.NewTicker(cancellationPoll)
	defer tick.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := cancellationBatch, error(nil)
		for n == cancellationBatch && err == nil {
			n, err = t.e.cancelUnwanted(ctx)
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

// cancelUnwanted takes one batch of cancellations and returns how many that was. A run is acknowledged once
// its end is certain; an executor that goes down before leaves it to the next.
func (e *Engine) cancelUnwanted(ctx context.Context) (int, error) {
	asking, stop := context.WithTimeout(ctx, cancellationHold)
	defer stop()
	list, err := e.cancellations.Lease(asking, cancellationBatch, cancellationHold)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	byNamespace := map[string][]Cancellation{}
	for _, c := range list {
		byNamespace[c.Namespace] = append(byNamespace[c.Namespace], c)
	}
	// Every namespace by itself, so that none waits for runs of another.
	var all errgroup.Group
	for _, own := range byNamespace {
		all.Go(func() error { return e.cancelUnwantedOf(ctx, asking, own) })
	}
	return len(list), all.Wait()
}

// cancelUnwantedOf cancels runs of one namespace until asking ends.
func (e *Engine) cancelUnwantedOf(ctx, asking context.Context, list []Cancellation) error {
	certain := make([]bool, len(list))
	var g errgroup.Group
	g.SetLimit(cancellationParallel)
	for i, c := range list {
		g.Go(func() error {
			certain[i] = e.cancelUnwantedRun(asking, c)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var done []Cancellation
	for i, c := range list {
		if certain[i] {
			done = append(done, c)
		}
	}
	if len(done) == 0 {
		return nil
	}
	// Those that are not done may have taken all of the time.
	telling, stop := context.WithTimeout(ctx, cancellationHold)
	defer stop()
	return e.cancellations.Acknowledge(telling, done)
}

// cancelUnwantedRun reports whether the run will end for certain, or never begin.
func (e *Engine) cancelUnwantedRun(ctx context.Context, c Cancellation) bool {
	_, err := e.Cancel(ctx, CancelRequest{Namespace: c.Namespace, RunID: c.RunID, Reason: c.Reason})
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
