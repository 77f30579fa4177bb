package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

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
