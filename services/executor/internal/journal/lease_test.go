package journal_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// beats is the part of a store that a lease needs.
type beats struct {
	journal.Members
	beat func(ctx context.Context) error
	n    int
}

func (b *beats) Heartbeat(ctx context.Context, _ journal.Owner) error {
	b.n++
	return b.beat(ctx)
}

func TestLease(t *testing.T) {
	t.Parallel()
	const life = 16 * time.Second
	t.Run("Held/WhileHeartbeatsArrive", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := &beats{beat: func(context.Context) error { return nil }}
			l := journal.NewLease(b, journal.Owner{ID: "a"}, life, time.Now())
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			for range 100 {
				time.Sleep(time.Second) //nolint:forbidigo // fake time: inside a synctest bubble
				require.True(t, l.Held())
			}
			require.InDelta(t, 100, b.n, 2, "one a second, since an eighth of this life is longer")
			cancel()
			require.NoError(t, <-done)
			require.NoError(t, l.Err())
			time.Sleep(life) //nolint:forbidigo // fake time: inside a synctest bubble
			require.False(t, l.Held(), "nobody renews it any more")
		})
	})
	t.Run("Lost/AtHalfItsLifeWhenTheDatabaseIsSilent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			b := &beats{beat: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
			l := journal.NewLease(b, journal.Owner{ID: "a"}, life, begin)
			err := l.Run(t.Context())
			require.True(t, journal.IsFenced(err), "got %v", err)
			require.Equal(t, life/2, time.Since(begin))
			require.False(t, l.Held())
			<-l.Lost()
		})
	})
	t.Run("Lost/WhenFenced", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := &beats{}
			b.beat = func(context.Context) error {
				if b.n < 3 {
					return nil
				}
				return journal.Fenced(journal.Owner{ID: "a"})
			}
			l := journal.NewLease(b, journal.Owner{ID: "a"}, life, time.Now())
			require.True(t, journal.IsFenced(l.Run(t.Context())))
			require.False(t, l.Held())
			require.True(t, journal.IsFenced(l.Err()))
		})
	})
	t.Run("Held/OverAShortOutage", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			b := &beats{beat: func(context.Context) error {
				if s := time.Since(begin); s > 10*time.Second && s < 14*time.Second {
					return errors.New("restarting")
				}
				return nil
			}}
			l := journal.NewLease(b, journal.Owner{ID: "a"}, life, begin)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, l.Run(ctx))
			require.True(t, l.Held())
		})
	})
}
