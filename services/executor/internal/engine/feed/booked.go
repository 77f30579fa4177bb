package feed

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// Booked tells what the registry has booked of runs. It is safe for concurrent use.
type Booked struct {
	journal interface {
		Accounting(ctx context.Context, namespace, runID, kind string) (journal.Accounting, error)
	}
	books     bool
	delivered func() (next <-chan struct{}, away bool)
}

// NewBooked reads from a journal. Nothing is booked unless books is set. delivered tells when more of the
// outbox is delivered next, and whether the registry is known to be away.
func NewBooked(j journal.Journal, books bool, delivered func() (next <-chan struct{}, away bool)) *Booked {
	return &Booked{journal: j, books: books, delivered: delivered}
}

const (
	// bookTime bounds how long the end of a run is kept back until everything that it used is booked: the
	// registry may be away.
	bookTime = 2 * time.Second
	// bookPause is the shortest pause between two looks, bookPoll the longest: the executor of another
	// replica may deliver what is left.
	bookPause, bookPoll = 20 * time.Millisecond, 500 * time.Millisecond
)

// Of returns the costs of a run, and how many attempts of it, and of all below it, have used something
// that is not booked yet. Those of a run that has just ended are kept back as its end is, and no longer than
// that: who finds out about the end by asking again and again is told the whole cost, too.
func (r *Booked) Of(ctx context.Context, row journal.Run) (journal.Accounting, error) {
	left := bookTime - time.Since(row.EndTime)
	if !row.State.Ended() || left <= 0 {
		return r.now(ctx, row.Namespace, row.ID)
	}
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end)/2) // an answer in time is worth more
	}
	return r.Await(ctx, row.Namespace, row.ID, min(left, bookTime))
}

func (r *Booked) now(ctx context.Context, namespace, runID string) (journal.Accounting, error) {
	if !r.books {
		return journal.Accounting{}, nil
	}
	return r.journal.Accounting(ctx, namespace, runID, outbox.KindUsage)
}

// Await waits until everything is booked that a run and all below it used, or for so long, or until
// the registry is known to be away. It returns the books as they are then.
func (r *Booked) Await(ctx context.Context, namespace, runID string, most time.Duration) (journal.Accounting, error) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		next, away := r.delivered()
		b, err := r.now(ctx, namespace, runID)
		if err != nil || b.Waiting == 0 || away {
			return b, err
		}
		soonest, poll := time.NewTimer(bookPause), time.NewTimer(bookPoll)
		select {
		case <-next:
		case <-poll.C:
		case <-late.C:
			return r.now(ctx, namespace, runID)
		case <-ctx.Done():
		}
		select {
		case <-soonest.C:
		case <-ctx.Done():
		}
		soonest.Stop()
		poll.Stop()
		if ctx.Err() != nil {
			return b, ctx.Err()
		}
	}
}

// Uses reports whether an event tells of calls that are booked.
func Uses(d *record.Durable) bool {
	return d.Usage != nil || d.Outcome != nil && len(d.Outcome.Usage) > 0 || d.Error != nil && len(d.Error.Usage) > 0 || d.Child != nil
}
