package feed

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// ledger counts the requests for its accounting.
type ledger struct {
	journal.Journal

	mu    sync.Mutex
	left  int64
	looks int
	next  chan struct{}
	away  bool
}

func (l *ledger) Accounting(context.Context, string, string, string) (journal.Accounting, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return journal.Accounting{Waiting: l.left}, nil
}

func (l *ledger) delivered() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.away
}

// acknowledge leaves so many calls unbooked.
func (l *ledger) acknowledge(left int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.next)
	l.left, l.next = left, make(chan struct{})
}

func TestAwaitBooks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		away  bool
		acks  []int64 // one after each tenth of a second
		left  int64
		looks int
		took  time.Duration
		// state, if not 0, is the state of the run that is read, and ago is how long ago the run ended.
		state journal.State
		ago   time.Duration
		// patience, if not 0, bounds how long the reader waits.
		patience time.Duration
	}{
		"Acknowledged/EndsIt":          {acks: []int64{1, 0}, looks: 3, took: 200 * time.Millisecond},
		"Registry/KnownToBeAway":       {away: true, left: 2, looks: 1},
		"Registry/DoesNotTakeItInTime": {left: 2, looks: 5, took: bookTime},
		"Read/OfARunUnderWay":          {state: journal.StateRunning, left: 2, looks: 1},
		"Read/OfARunThatHasJustEnded":  {state: journal.StateFailed, acks: []int64{1, 0}, looks: 3, took: 200 * time.Millisecond},
		"Read/OfARunThatEndedBefore":   {state: journal.StateFailed, ago: 1500 * time.Millisecond, left: 2, looks: 2, took: 500 * time.Millisecond},
		"Read/OfARunThatEndedLongAgo":  {state: journal.StateFailed, ago: bookTime, left: 2, looks: 1},
		"Read/ByAClockThatIsLate":      {state: journal.StateFailed, ago: -time.Minute, left: 2, looks: 5, took: bookTime},
		"Read/BySomebodyInAHurry":      {state: journal.StateFailed, patience: time.Second, left: 2, looks: 2, took: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{left: 2, next: make(chan struct{}), away: tc.away}
				e := NewBooked(l, true, l.delivered)
				began := time.Now()
				go func() {
					for _, left := range tc.acks {
						time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the time of the bubble
						l.acknowledge(left)
					}
				}()
				ctx := t.Context()
				if tc.patience > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tc.patience)
					defer stop()
				}
				var (
					b   journal.Accounting
					err error
				)
				if tc.state == 0 {
					b, err = e.Await(ctx, "n", "r", bookTime)
				} else {
					var row journal.Run
					row.State, row.EndTime = tc.state, began.Add(-tc.ago)
					b, err = e.Of(ctx, row)
				}
				require.NoError(t, err)
				require.Equal(t, tc.left, b.Waiting)
				require.Equal(t, tc.took, time.Since(began))
				require.InDelta(t, tc.looks, l.looks, 1, "the last poll may be in time or late")
			})
		})
	}
}
