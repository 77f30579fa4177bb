package pg

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

const (
	// feedChannel is where processes tell each other whose feeds have new events.
	feedChannel = "epigraph_registry_feed"
	// announceEvery is how long announcements are gathered.
	announceEvery = 20 * time.Millisecond
	// listenAgain is the pause before a connection is tried again.
	listenAgain = 2 * time.Second
	// mostAnnounced bounds the namespaces that wait to be announced, and mostHeard the notifications
	// that wait to be heard. Who is not told polls.
	mostAnnounced, mostHeard = 10_000, 1024
)

// news are namespaces with new events that other processes are to hear of. They are told outside of the
// transactions that wrote the events: PostgreSQL lets commits with notifications through one at a time.
type news struct {
	mu   sync.Mutex
	of   map[string]bool
	some chan struct{}
}

func newNews() *news { return &news{of: map[string]bool{}, some: make(chan struct{}, 1)} }

func (n *news) add(namespace string) {
	n.mu.Lock()
	if len(n.of) < mostAnnounced {
		n.of[namespace] = true
	}
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

func (n *news) take() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace := range n.of {
		out = append(out, namespace)
	}
	clear(n.of)
	slices.Sort(out)
	return out
}

// Follow implements store.Store.
func (s *Store) Follow(ctx context.Context) error {
	var announcing sync.WaitGroup
	announcing.Go(func() { s.announce(ctx) })
	defer announcing.Wait()
	for ctx.Err() == nil {
		heard, err := dbkit.Listen(ctx, s.pool, feedChannel, mostHeard, "", func(namespace string) (string, bool) { return namespace, true })
		if err != nil {
			// Until the database answers, followers poll.
			pause(ctx, listenAgain)
			continue
		}
		for namespace := range heard {
			s.Heard(namespace)
		}
	}
	return nil
}

// announce tells what was gathered. What cannot be told is not told later: who follows polls.
func (s *Store) announce(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.news.some:
		}
		if of := s.news.take(); len(of) > 0 {
			_, _ = s.pool.Exec(ctx, `SELECT pg_notify('`+feedChannel+`', n) FROM unnest($1::text[]) AS u (n)`, of)
		}
		pause(ctx, announceEvery)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
