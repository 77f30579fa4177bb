package drive_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
)

func TestWalk(t *testing.T) {
	g := load.Fan(50)
	t.Run("Order/EveryNodeOnce", func(t *testing.T) {
		r := drive.NewRun(&g, 1)
		var mu sync.Mutex
		var order []int
		require.NoError(t, drive.Walk(t.Context(), r, func(_ context.Context, node int, _ []byte) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, node)
			return nil
		}))
		require.NoError(t, r.Check(false))
		require.Len(t, order, 52)
		require.Equal(t, 0, order[0])
		require.Equal(t, 51, order[51])
	})
	t.Run("Check/MissingNode", func(t *testing.T) {
		r := drive.NewRun(&g, 1)
		r.Exec(0)
		require.ErrorContains(t, r.Check(false), "51 of 52")
	})
	t.Run("Check/TooEarly", func(t *testing.T) {
		r := drive.NewRun(&g, 1)
		r.Exec(1)
		require.ErrorContains(t, r.Check(false), "began before")
	})
	t.Run("Check/Twice", func(t *testing.T) {
		r := drive.NewRun(&g, 1)
		r.Exec(0)
		r.Exec(0)
		require.ErrorContains(t, r.Check(false), "twice")
		require.ErrorContains(t, r.Check(true), "51 of 52", "a repeat counts once")
	})
	t.Run("Error/EndsTheRun", func(t *testing.T) {
		r := drive.NewRun(&g, 1)
		require.ErrorIs(t, drive.Walk(t.Context(), r, func(context.Context, int, []byte) error { return context.DeadlineExceeded }), context.DeadlineExceeded)
	})
}
