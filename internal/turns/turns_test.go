package turns_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/turns"
)

func TestTurns(t *testing.T) {
	t.Run("Enter/SoManyOfAKeyAndOthersBesideThem", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := turns.New(2)
			var leave []func()
			for range 2 {
				l, err := all.Enter(t.Context(), "a")
				require.NoError(t, err)
				leave = append(leave, l)
			}
			in := make(chan func(), 1)
			go func() {
				l, err := all.Enter(t.Context(), "a")
				if err == nil {
					in <- l
				}
			}()
			synctest.Wait()
			require.Empty(t, in, "it waits")
			other, err := all.Enter(t.Context(), "b")
			require.NoError(t, err)
			other()
			leave[0]()
			(<-in)()
			leave[1]()
		})
	})
	t.Run("Enter/GivesUpWithItsContext", func(t *testing.T) {
		all := turns.New(0)
		leave, err := all.Enter(t.Context(), "a")
		require.NoError(t, err)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err = all.Enter(ctx, "a")
		require.ErrorIs(t, err, gone)
		leave()
		leave, err = all.Enter(t.Context(), "a")
		require.NoError(t, err)
		leave()
	})
	t.Run("Enter/EndsWithItsContextAndKeepsNothing", func(t *testing.T) {
		all := turns.New(1)
		leave, err := all.Enter(t.Context(), "a")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = all.Enter(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
		other, err := all.Enter(t.Context(), "b")
		require.NoError(t, err)
		other()
		leave()
		require.Zero(t, all.Keys(), "nothing is kept of a key that uses nothing")
	})
	t.Run("Try/OnlyWhatIsFree", func(t *testing.T) {
		all := turns.New(1)
		leave, ok := all.Try("a")
		require.True(t, ok)
		_, ok = all.Try("a")
		require.False(t, ok)
		leave()
		leave, ok = all.Try("a")
		require.True(t, ok)
		leave()
		require.Zero(t, all.Keys())
	})
	t.Run("EnterUnless/NeedsNoneWhenItIsOver", func(t *testing.T) {
		all := turns.New(1)
		over := make(chan struct{})
		close(over)
		leave, err := all.EnterUnless(t.Context(), "a", over)
		require.NoError(t, err)
		require.NotNil(t, leave, "a turn that is free is taken")
		none, err := all.EnterUnless(t.Context(), "a", over)
		require.NoError(t, err)
		require.Nil(t, none)
		leave()
		require.Zero(t, all.Keys())
	})
}

func TestResting(t *testing.T) {
	t.Parallel()
	// uses takes a turn of a key for that long.
	uses := func(t *testing.T, all *turns.Turns, key string, long time.Duration) {
		t.Helper()
		leave, err := all.Enter(t.Context(), key)
		require.NoError(t, err)
		time.Sleep(long) //nolint:forbidigo // the clock of the bubble
		leave()
	}
	// waits is how long a key waits for a turn.
	waits := func(t *testing.T, all *turns.Turns, key string) time.Duration {
		t.Helper()
		begin := time.Now()
		uses(t, all, key, 0)
		return time.Since(begin)
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, all *turns.Turns)
		want time.Duration // that key a waits
	}{
		"Alone":                {func(t *testing.T, all *turns.Turns) { uses(t, all, "a", time.Second) }, 0},
		"AsLongAsItComputed":   {func(t *testing.T, all *turns.Turns) { uses(t, all, "b", 0); uses(t, all, "a", 30*time.Millisecond) }, 30 * time.Millisecond},
		"AfterAShortTurn":      {func(t *testing.T, all *turns.Turns) { uses(t, all, "b", 0); uses(t, all, "a", time.Millisecond) }, 0},
		"OthersWereLongBefore": {func(t *testing.T, all *turns.Turns) { uses(t, all, "b", 0); uses(t, all, "a", 2*time.Second) }, 0},
		"AfterManyShortTurns": {func(t *testing.T, all *turns.Turns) {
			uses(t, all, "b", 0)
			for range 5 {
				uses(t, all, "a", time.Millisecond)
			}
		}, 5 * time.Millisecond},
		"NoLongerThanASecond": {func(t *testing.T, all *turns.Turns) {
			leave, err := all.Enter(t.Context(), "a")
			require.NoError(t, err)
			time.Sleep(time.Minute) //nolint:forbidigo // see above
			uses(t, all, "b", 0)
			leave()
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := turns.NewResting(1)
				c.do(t, all)
				require.Equal(t, c.want, waits(t, all, "a"))
			})
		})
	}
	t.Run("AnotherKeyDoesNotWait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			all := turns.NewResting(1)
			uses(t, all, "b", 0)
			uses(t, all, "a", 100*time.Millisecond)
			require.Zero(t, waits(t, all, "b"))
		})
	})
	t.Run("KeysThatOweNothingAreForgotten", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			all := turns.NewResting(1)
			for i := range 10_000 {
				uses(t, all, fmt.Sprint(i), time.Millisecond)
			}
			require.Zero(t, all.Keys())
			require.Less(t, all.Known(), 300)
		})
	})
	t.Run("TimeBetweenTurnsIsRest", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			all := turns.NewResting(1)
			for range 100 {
				uses(t, all, "a", time.Millisecond)
				time.Sleep(time.Millisecond) //nolint:forbidigo // see above
				uses(t, all, "b", 0)
			}
			require.Zero(t, waits(t, all, "a"))
		})
	})
}
