package accounting

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	// watchedPage is how many events a watch reads at once, and watchedBytes about how many bytes
	// of the database a watch that finds no memory for a page waits for room for.
	watchedPage, watchedBytes = 100, 64 << 10
	// lookAgain is how long a tail waits for a change of which it may not be told.
	lookAgain = 5 * time.Second
	// tailEvents and tailBytes bound what is kept of the newest events for all watches of a namespace.
	tailEvents, tailBytes = 256, 256 << 10

	// ReasonTooManyWatches is the reason when a namespace has as many watches of its feed as it may.
	ReasonTooManyWatches = "TOO_MANY_WATCHES"
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

// WatchEvents sends the events of a query, and those that come, until ctx ends, the watch is
// stopped, or send fails. It sends no events, but how far the watch has come, if there have been
// none for long. A watch that is behind reads a page at a time, which the stream of ctx holds until
// it was sent, and takes a turn of the namespace only while it reads. Watches that have come to the
// end share what is read of the newest events.
func (b *Accounts) WatchEvents(ctx context.Context, w Watch, send func(events []feed.Event, cursor int64) error) error {
	t, leave, err := b.tails.enter(ctx, b, w.Namespace)
	if err != nil {
		return err
	}
	defer leave()
	held := inflight.OfStream(ctx)
	ctx = inflight.Apart(ctx)
	spoke := time.Now()
	quiet := time.NewTimer(w.KeepAlive)
	defer quiet.Stop()
	for first := true; ; first = false {
		p, at, changed, err := t.page(w.Query)
		// Whether the cursor is one, only the database knows.
		if err == nil && (first || at != within) {
			p, err = b.page(ctx, held, w.Query)
		}
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
		held.Shrink(0)
		if !p.End || first && at != unknown || at == behind {
			select {
			case <-w.Stop:
				return nil
			default:
				continue
			}
		}
		quiet.Reset(max(w.KeepAlive-time.Since(spoke), time.Millisecond))
		select {
		case <-changed:
		case <-quiet.C:
		case <-w.Stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// page reads a page that the stream holds, or a part of it if there is no room for more.
func (b *Accounts) page(ctx context.Context, held *inflight.Answer, q feed.Query) (feed.Page, error) {
	q.Limit = watchedPage
	for room := int64(watchedBytes); ; room *= 2 {
		p, err := b.Events(held.Context(ctx), q)
		if errs.ReasonOf(err) != inflight.ReasonBusy {
			return p, err
		}
		held.Shrink(0)
		if q.Limit > 1 {
			q.Limit = 1
			continue
		}
		// The size of the event is unknown, so page tries again whenever more room is free.
		if err := held.Await(ctx, room); err != nil {
			return feed.Page{}, err
		}
		held.Shrink(0)
	}
}

// SweepFeed removes events that are not kept any more.
func (b *Accounts) SweepFeed(ctx context.Context, bounds feed.Bounds) (int64, error) {
	return b.store.SweepFeed(ctx, bounds, dbkit.Now())
}

// tails are the ends of the feeds that are watched. They are safe for concurrent use.
type tails struct {
	// limit bounds the watches of a namespace.
	limit int

	mu sync.Mutex
	of map[string]*tail
}

func newTails(limit int) *tails { return &tails{limit: limit, of: map[string]*tail{}} }

// enter counts one watch of a namespace, until leave is called.
func (s *tails) enter(ctx context.Context, b *Accounts, namespace string) (t *tail, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.of[namespace]
	if t == nil {
		t = &tail{changed: make(chan struct{})}
		s.of[namespace] = t
		var reading context.Context
		// It reads for all watches, whoever of them leaves, and holds no more than its bounds.
		reading, t.stop = context.WithCancel(inflight.Apart(context.WithoutCancel(ctx)))
		go t.follow(reading, b, namespace)
	}
	if t.watches >= s.limit {
		return nil, nil, errs.New(errs.ResourceExhausted, ReasonTooManyWatches, "%d watches of the feed of the namespace go on at this replica, which is the limit", s.limit).
			Hint("end one, or follow several epics with one watch, without the filter")
	}
	t.watches++
	return t, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.watches--; t.watches == 0 {
			t.stop()
			if s.of[namespace] == t {
				delete(s.of, namespace)
			}
		}
	}, nil
}

// forget leaves a tail to those who have it.
func (s *tails) forget(namespace string, t *tail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[namespace] == t {
		delete(s.of, namespace)
	}
}

// tail is what was read of the newest events of a namespace, once for all who watch it.
type tail struct {
	// watches counts, and stop ends it; the lock of the tails is held for them.
	watches int
	stop    context.CancelFunc

	mu sync.Mutex
	// events are those behind from and up to to. begun says that these are known.
	begun    bool
	from, to int64
	events   []feed.Event
	bytes    int
	// changed is closed when to has moved, or when err is set, which ends all watches.
	changed chan struct{}
	err     error
}

// follow reads what comes until ctx ends: once for each change, whoever watches.
func (t *tail) follow(ctx context.Context, b *Accounts, namespace string) {
	changed, leave := b.store.FeedChanges(namespace)
	defer leave()
	err := t.read(ctx, b, namespace, changed)
	if ctx.Err() != nil {
		return
	}
	b.tails.forget(namespace, t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.changed)
}

func (t *tail) read(ctx context.Context, b *Accounts, namespace string, changed <-chan struct{}) error {
	end, err := b.FeedEnd(ctx, namespace)
	if err != nil {
		return err
	}
	t.add(nil, end)
	look := time.NewTimer(lookAgain)
	defer look.Stop()
	for q := (feed.Query{Namespace: namespace, After: end, Limit: watchedPage}); ; {
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
		for more := true; more; {
			p, err := b.Events(ctx, q)
			if err != nil {
				return err
			}
			if p.Cursor > q.After {
				t.add(p.Events, p.Cursor)
			}
			q.After, more = p.Cursor, !p.End
		}
		look.Reset(lookAgain)
	}
}

// add takes the events up to a cursor.
func (t *tail) add(events []feed.Event, cursor int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		t.begun, t.from = true, cursor
	}
	t.to = cursor
	t.events = append(t.events, events...)
	for _, e := range events {
		t.bytes += e.Size()
	}
	n := 0
	for ; n < len(t.events) && (len(t.events)-n > tailEvents || t.bytes > tailBytes); n++ {
		t.bytes -= t.events[n].Size()
		t.from = t.events[n].Seq
	}
	t.events = slices.Clone(t.events[n:]) // what is left out must not be kept by the array
	close(t.changed)
	t.changed = make(chan struct{})
}

// place is where a cursor stands to a tail.
type place int

const (
	// unknown says that the tail has not begun.
	unknown place = iota
	// behind says that the tail does not have all that comes after the cursor.
	behind
	// within says that it does.
	within
)

// page is what the tail has of a query, if the cursor is within it, and the channel that tells of more.
func (t *tail) page(q feed.Query) (p feed.Page, at place, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil || !t.begun:
		return p, unknown, t.changed, t.err
	case q.After < t.from:
		return p, behind, t.changed, nil
	}
	p.Cursor, p.End = max(q.After, t.to), true
	first, _ := slices.BinarySearchFunc(t.events, q.After+1, func(e feed.Event, seq int64) int { return int(e.Seq - seq) })
	for _, e := range t.events[first:] {
		if q.Has(e) {
			p.Events = append(p.Events, e)
		}
	}
	return p, within, t.changed, nil
}
