package descendants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestDescendantQuota(t *testing.T) {
	t.Parallel()
	n := 0
	children := func(many int) []workgraph.Child {
		out := make([]workgraph.Child, many)
		for i := range out {
			n++
			out[i].ID = fmt.Sprintf("run_%d", n)
		}
		return out
	}
	t.Run("Admit/UpToTheBoundAndNoFurther", func(t *testing.T) {
		var k Quota
		below, counts := 0, 0
		count := func(most int) (int, error) { counts++; return min(below, most), nil }
		for below < 999 {
			c := children(1)
			_, ok, err := k.Admit(t.Context(), "root", c, 1000, count)
			require.NoError(t, err)
			require.True(t, ok, "%d below", below)
			below++
			k.Recorded("root", c[0].ID)
		}
		require.Less(t, counts, 20, "it is not counted for each, near to the bound either")
		runs, ok, err := k.Admit(t.Context(), "root", children(1), 1000, count)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 1000, runs)
		_, ok, err = k.Admit(t.Context(), "other", children(1), 1000, func(int) (int, error) { return 0, nil })
		require.NoError(t, err)
		require.True(t, ok)
	})
	t.Run("Admit/UnrecordedChildrenCount", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var admitted atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				c := children(10)
				all.Go(func() {
					if _, ok, err := k.Admit(t.Context(), "root", c, 101, func(int) (int, error) { return 0, nil }); err == nil && ok {
						admitted.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, 10, admitted.Load())
			time.Sleep(2 * recordTime) //nolint:forbidigo // in a bubble; nobody recorded them
			_, ok, err := k.Admit(t.Context(), "root", children(100), 101, func(int) (int, error) { return 0, nil })
			require.NoError(t, err)
			require.True(t, ok)
		})
	})
	t.Run("Admit/WaitsForChildrenThatMayCountTwice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			below := 0
			first := children(5)
			_, ok, err := k.Admit(t.Context(), "root", first, 11, func(int) (int, error) { return below, nil })
			require.NoError(t, err)
			require.True(t, ok)
			time.Sleep(countAge) //nolint:forbidigo // in a bubble
			below = 5            // they are recorded, and this executor has not learned of it
			go func() {
				time.Sleep(3 * spawnPause) //nolint:forbidigo // in a bubble
				for _, c := range first {
					k.Recorded("root", c.ID)
				}
			}()
			_, ok, err = k.Admit(t.Context(), "root", children(5), 11, func(int) (int, error) { return below, nil })
			require.NoError(t, err)
			require.True(t, ok)
		})
	})
	t.Run("Admit/OneCountsForAllThatWait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var counts, admitted atomic.Int64
			var all sync.WaitGroup
			for range 200 {
				c := children(10)
				all.Go(func() {
					_, ok, err := k.Admit(t.Context(), "root", c, 1001, func(int) (int, error) {
						counts.Add(1)
						time.Sleep(time.Second) //nolint:forbidigo // in a bubble
						return 0, nil
					})
					if err == nil && ok {
						admitted.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, 100, admitted.Load())
			require.Less(t, counts.Load(), int64(3*spawnTries), "one after the other, and not one for each")
		})
	})
	t.Run("Admit/AFullRootIsNotCountedAgain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			counts := 0
			count := func(int) (int, error) { counts++; return 995, nil }
			for range 100 {
				runs, ok, err := k.Admit(t.Context(), "root", children(10), 1000, count)
				require.NoError(t, err)
				require.False(t, ok)
				require.Equal(t, 996, runs)
			}
			require.Equal(t, 1, counts)
			time.Sleep(countAge) //nolint:forbidigo // in a bubble
			_, ok, err := k.Admit(t.Context(), "root", children(10), 1000, func(int) (int, error) { return 0, nil })
			require.NoError(t, err)
			require.True(t, ok, "runs were deleted meanwhile")
		})
	})
	t.Run("Admit/AFillingRootIsCountedSeldom", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var below atomic.Int64
			counts := 0
			count := func(int) (int, error) {
				counts++
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble
				return int(below.Load()), nil
			}
			first := children(99)
			_, ok, err := k.Admit(t.Context(), "root", first, 100, count)
			require.NoError(t, err)
			require.True(t, ok)
			full := func() int {
				counts = 0
				began := time.Now()
				runs, ok, err := k.Admit(t.Context(), "root", children(1), 100, count)
				require.NoError(t, err)
				require.False(t, ok)
				require.GreaterOrEqual(t, runs, 100)
				require.Less(t, time.Since(began), 2*spawnTries*spawnPause)
				return counts
			}
			require.Zero(t, full(), "as long as none is recorded a count tells nothing new")
			var all sync.WaitGroup
			all.Go(func() {
				for _, c := range first[:90] {
					time.Sleep(spawnPause / 2) //nolint:forbidigo // in a bubble
					below.Add(1)
					k.Recorded("root", c.ID)
				}
			})
			require.LessOrEqual(t, full(), 4)
			all.Wait()
		})
	})
	t.Run("Admit/ChildrenRecordedDuringACountCount", func(t *testing.T) {
		var k Quota
		first := children(9)
		_, ok, err := k.Admit(t.Context(), "root", first, 10, func(int) (int, error) { return 0, nil })
		require.NoError(t, err)
		require.True(t, ok)
		tries := 0
		runs, ok, err := k.Admit(t.Context(), "root", children(1), 10, func(int) (int, error) {
			if tries++; tries > 1 {
				return 9, nil
			}
			for _, c := range first { // after the count began
				k.Recorded("root", c.ID)
			}
			return 0, nil
		})
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 10, runs)
	})
	t.Run("Admit/AFailedCountAdmitsNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var counts, admitted atomic.Int64
			var all sync.WaitGroup
			ask := func() {
				c := children(1)
				all.Go(func() {
					_, ok, err := k.Admit(t.Context(), "root", c, 1000, func(int) (int, error) {
						time.Sleep(time.Second) //nolint:forbidigo // in a bubble
						if counts.Add(1) <= 2 {
							return 0, errors.New("away")
						}
						return 999, nil
					})
					if err == nil && ok {
						admitted.Add(1)
					}
				})
			}
			ask()
			synctest.Wait() // it counts, and the others wait for the count
			for range 10 {
				ask()
			}
			all.Wait()
			require.Zero(t, admitted.Load(), "the root is full")
			require.EqualValues(t, 3, counts.Load(), "the first count that tells is for all")
		})
	})
	t.Run("Admit/Faults", func(t *testing.T) {
		var k Quota
		_, ok, err := k.Admit(t.Context(), "root", children(1), 10, func(int) (int, error) { return 0, errors.New("away") })
		require.ErrorContains(t, err, "away")
		require.False(t, ok)
		_, ok, _ = k.Admit(t.Context(), "root", children(9), 10, func(int) (int, error) { return 0, nil })
		require.True(t, ok)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok, err = k.Admit(ctx, "root", children(9), 10, func(int) (int, error) { return 0, nil })
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ok)
	})
}
