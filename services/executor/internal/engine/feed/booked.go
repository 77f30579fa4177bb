package feed

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// Booked reports what the registry has booked for runs. It is safe for concurrent use.
type Booked struct {
	journal interface {
		Accounting(ctx context.Context, namespace, runID, kind string) (journal.Accounting, error)
	}
	books     bool
	delivered func() (next <-chan struct{}, away bool)
}

// NewBooked returns a Booked that reads from a journal. If accounting is false nothing is ever booked.
// delivered returns a channel that is closed at the next delivery of the outbox, and whether the registry
// is known to be unreachable.
func NewBooked(j journal.Journal, books bool, delivered func() (next <-chan struct{}, away bool)) *Booked {
	return &Booked{journal: j, books: books, delivered: delivered}
}

const (
	// bookTime bounds how long the end of a run is held back for its usage to be booked. The registry may
	// be unreachable.
	bookTime = 2 * time.Second
	// bookPause and bookPoll are the shortest and the longest pause between two looks. The executor of
	// another replica may deliver the rest.
	bookPause, bookPoll = 20 * time.Millisecond, 500 * time.Millisecond
)

// Of returns the accounting of a run and its descendants, with the number of attempts whose usage is not
// booked yet. For a run that has just ended it waits as Await does, and no longer than until bookTime after
// the end. So a client that polls for the end sees the whole cost, too.
func (r *Booked) Of(ctx context.Context, row journal.Run) (journal.Accounting, error) {
	left := bookTime - time.Since(row.EndTime)
	if !row.State.Ended() || left <= 0 {
		return r.now(ctx, row.Namespace, row.ID)
	}
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end)/2) // keep half of the caller's time for the answer
	}
	return r.Await(ctx, row.Namespace, row.ID, min(left, bookTime))
}

func (r *Booked) now(ctx context.Context, namespace, runID string) (journal.Accounting, error) {
	if !r.books {
		return journal.Accounting{}, nil
	}
	return r.journal.Accounting(ctx, namespace, runID, outbox.KindUsage)
}

// Await waits until all usage of a run and its descendants is booked, for at most this long, or until the
// registry is known to be unreachable. It returns the accounting as it is then.
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

// HasUsage reports whether an event has calls whose usage is booked.
func HasUsage(d *record.Durable) bool {
	return d.Usage != nil || d.Outcome != nil && len(d.Outcome.Usage) > 0 || d.Error != nil && len(d.Error.Usage) > 0 || d.Child != nil
}
