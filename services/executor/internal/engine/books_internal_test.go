package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// ledger counts how often it is asked for what is not booked.
type ledger struct {
	journal.Journal

	mu    sync.Mutex
	left  int64
	looks int
	next  chan struct{}
	away  bool
}

func (l *ledger) Books(context.Context, string, string, string) (journal.Books, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return journal.Books{Waiting: l.left}, nil
}

func (l *ledger) delivered() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.away
}

// acknowledge delivers all but so many.
func (l *ledger) acknowledge(left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.next)
	l.left, l.next = left, make(chan struct{})
}

type anyClaims struct{ Claims }

func TestAwaitBooks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		away  bool
		acks  []int64 // one after a tenth of a second each
		left  int64
		looks int
		took  time.Duration
	}{
		"Acknowledged/EndsIt":          {acks: []int64{1, 0}, looks: 3, took: 200 * time.Millisecond},
		"Registry/KnownToBeAway":       {away: true, left: 2, looks: 1},
		"Registry/DoesNotTakeItInTime": {left: 2, looks: 5, took: bookTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{left: 2, next: make(chan struct{}), away: tc.away}
				e := &Engine{journal: l, claims: anyClaims{}, delivered: l.delivered}
				go func() {
					for _, left := range tc.acks {
						time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the time of the bubble
						l.acknowledge(left)
					}
				}()
				began := time.Now()
				n, err := e.awaitBooks(t.Context(), "n", "r")
				require.NoError(t, err)
				require.Equal(t, tc.left, n)
				require.Equal(t, tc.took, time.Since(began))
				require.InDelta(t, tc.looks, l.looks, 1, "the last poll may be in time or late")
			})
		})
	}
}
