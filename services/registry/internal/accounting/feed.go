package accounting

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	// watchedPage is how many events a watch reads at once.
	watchedPage = 100
	// lookAgain is how long a watch waits for a change of which it may not be told.
	lookAgain = 5 * time.Second
)

// Events reads one page of the feed.
func (b *Accounts) Events(ctx context.Context, q feed.Query) (feed.Page, error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) (feed.Page, error) { return r.Events(ctx, q) })
}

// FeedEnd is the cursor behind the last event of a namespace.
func (b *Accounts) FeedEnd(ctx context.Context, namespace string) (int64, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (int64, error) { return r.FeedEnd(ctx, namespace) })
}

// Watch says how long a watch goes on.
type Watch struct {
	// Query is where it begins. Its limit does not count.
	feed.Query
	// KeepAlive is the longest silence.
	KeepAlive time.Duration
	// Stop ends the watch.
	Stop <-chan struct{}
}

// WatchEvents sends the events of a query, and those that come, until ctx ends, the watch is stopped,
// or send fails. It sends no events, but how far the watch has come, if there have been none for long.
// A watch holds a turn of the namespace only while it reads, and reads no further than what was sent.
func (b *Accounts) WatchEvents(ctx context.Context, w Watch, send func(events []feed.Event, cursor int64) error) error {
	ctx = inflight.Apart(ctx)
	changed, leave := b.store.FeedChanges(w.Namespace)
	defer leave()
	w.Limit = watchedPage
	spoke := time.Now()
	look := time.NewTimer(lookAgain)
	defer look.Stop()
	for {
		p, err := b.Events(ctx, w.Query)
		if err != nil {
			return err
		}
		w.After = p.Cursor
		if len(p.Events) > 0 || time.Since(spoke) >= w.KeepAlive {
			if err := send(p.Events, p.Cursor); err != nil {
				return err
			}
			spoke = time.Now()
		}
		if !p.End {
			select {
			case <-w.Stop:
				return nil
			default:
				continue
			}
		}
		look.Reset(min(lookAgain, max(w.KeepAlive-time.Since(spoke), time.Millisecond)))
		select {
		case <-changed:
		case <-look.C:
		case <-w.Stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SweepFeed removes events that are not kept any more.
func (b *Accounts) SweepFeed(ctx context.Context, bounds feed.Bounds) (int64, error) {
	return b.store.SweepFeed(ctx, bounds, dbkit.Now())
}
