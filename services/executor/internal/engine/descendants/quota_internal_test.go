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
		count := func(most int) (Runs, error) { counts++; return Runs{All: min(below, most)}, nil }
		for below < 999 {
			c := children(1)
			_, ok, err := k.Admit(t.Context(), "root", c, Runs{1000, 1000}, count)
			require.NoError(t, err)
			require.True(t, ok, "%d below", below)
			below++
			k.Recorded("root", c[0].ID)
		}
		require.Less(t, counts, 20, "it is not counted for each, near to the bound either")
		runs, ok, err := k.Admit(t.Context(), "root", children(1), Runs{1000, 1000}, count)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 1000, runs.All)
		_, ok, err = k.Admit(t.Context(), "other", children(1), Runs{1000, 1000}, func(int) (Runs, error) { return Runs{}, nil })
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
					if _, ok, err := k.Admit(t.Context(), "root", c, Runs{101, 101}, func(int) (Runs, error) { return Runs{}, nil }); err == nil && ok {
						admitted.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(t, 10, admitted.Load())
			time.Sleep(2 * recordTime) //nolint:forbidigo // in a bubble; nobody recorded them
			_, ok, err := k.Admit(t.Context(), "root", children(100), Runs{101, 101}, func(int) (Runs, error) { return Runs{}, nil })
			require.NoError(t, err)
			require.True(t, ok)
		})
	})
	t.Run("Admit/WaitsForChildrenThatMayCountTwice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			below := 0
			first := children(5)
			_, ok, err := k.Admit(t.Context(), "root", first, Runs{11, 11}, func(int) (Runs, error) { return Runs{All: below}, nil })
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
			_, ok, err = k.Admit(t.Context(), "root", children(5), Runs{11, 11}, func(int) (Runs, error) { return Runs{All: below}, nil })
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
					_, ok, err := k.Admit(t.Context(), "root", c, Runs{1001, 1001}, func(int) (Runs, error) {
						counts.Add(1)
						time.Sleep(time.Second) //nolint:forbidigo // in a bubble
						return Runs{}, nil
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
			count := func(int) (Runs, error) { counts++; return Runs{All: 995}, nil }
			for range 100 {
				runs, ok, err := k.Admit(t.Context(), "root", children(10), Runs{1000, 1000}, count)
				require.NoError(t, err)
				require.False(t, ok)
				require.Equal(t, 996, runs.All)
			}
			require.Equal(t, 1, counts)
			time.Sleep(countAge) //nolint:forbidigo // in a bubble
			_, ok, err := k.Admit(t.Context(), "root", children(10), Runs{1000, 1000}, func(int) (Runs, error) { return Runs{}, nil })
			require.NoError(t, err)
			require.True(t, ok, "runs were deleted meanwhile")
		})
	})
	t.Run("Admit/AFillingRootIsCountedSeldom", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var below atomic.Int64
			counts := 0
			count := func(int) (Runs, error) {
				counts++
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble
				return Runs{All: int(below.Load())}, nil
			}
			first := children(99)
			_, ok, err := k.Admit(t.Context(), "root", first, Runs{100, 100}, count)
			require.NoError(t, err)
			require.True(t, ok)
			full := func() int {
				counts = 0
				began := time.Now()
				runs, ok, err := k.Admit(t.Context(), "root", children(1), Runs{100, 100}, count)
				require.NoError(t, err)
				require.False(t, ok)
				require.GreaterOrEqual(t, runs.All, 100)
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
		_, ok, err := k.Admit(t.Context(), "root", first, Runs{10, 10}, func(int) (Runs, error) { return Runs{}, nil })
		require.NoError(t, err)
		require.True(t, ok)
		tries := 0
		runs, ok, err := k.Admit(t.Context(), "root", children(1), Runs{10, 10}, func(int) (Runs, error) {
			if tries++; tries > 1 {
				return Runs{All: 9}, nil
			}
			for _, c := range first { // after the count began
				k.Recorded("root", c.ID)
			}
			return Runs{}, nil
		})
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, 10, runs.All)
	})
	t.Run("Admit/AFailedCountAdmitsNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			var counts, admitted atomic.Int64
			var all sync.WaitGroup
			ask := func() {
				c := children(1)
				all.Go(func() {
					_, ok, err := k.Admit(t.Context(), "root", c, Runs{1000, 1000}, func(int) (Runs, error) {
						time.Sleep(time.Second) //nolint:forbidigo // in a bubble
						if counts.Add(1) <= 2 {
							return Runs{}, errors.New("away")
						}
						return Runs{All: 999}, nil
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
	t.Run("Admit/RunsThatAreOverMakeRoomAmongTheOpenOnes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			now := Runs{All: 500, Open: 9}
			count := func(int) (Runs, error) { return now, nil }
			runs, ok, err := k.Admit(t.Context(), "root", children(1), Runs{All: 1000, Open: 10}, count)
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, Runs{All: 501, Open: 10}, runs)
			now.Open = 0
			time.Sleep(countRestMost) //nolint:forbidigo // in a bubble
			for range 30 {
				c := children(9)
				_, ok, err = k.Admit(t.Context(), "root", c, Runs{All: 1000, Open: 10}, count)
				require.NoError(t, err)
				require.True(t, ok)
				for i := range c {
					k.Recorded("root", c[i].ID)
				}
				now.All += 9
			}
			runs, ok, err = k.Admit(t.Context(), "root", children(9), Runs{All: now.All + 9, Open: 10}, count)
			require.NoError(t, err)
			require.False(t, ok, "there is no room among all")
			require.Equal(t, now.All+1, runs.All)
		})
	})
	t.Run("Admit/ALargeRootIsNotCountedAgainForEachOfASlowConversation", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var k Quota
			below, counted := 20_000, 0
			for range 100 {
				c := children(1)
				_, ok, err := k.Admit(t.Context(), "root", c, Runs{All: 50_000, Open: 10_000}, func(int) (Runs, error) {
					counted += below
					return Runs{All: below, Open: 1}, nil
				})
				require.NoError(t, err)
				require.True(t, ok)
				k.Recorded("root", c[0].ID)
				below++
				time.Sleep(15 * time.Second) //nolint:forbidigo // in a bubble
			}
			require.LessOrEqual(t, counted, 100*1000)
		})
	})
	t.Run("Admit/Faults", func(t *testing.T) {
		var k Quota
		_, ok, err := k.Admit(t.Context(), "root", children(1), Runs{10, 10}, func(int) (Runs, error) { return Runs{}, errors.New("away") })
		require.ErrorContains(t, err, "away")
		require.False(t, ok)
		_, ok, _ = k.Admit(t.Context(), "root", children(9), Runs{10, 10}, func(int) (Runs, error) { return Runs{}, nil })
		require.True(t, ok)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok, err = k.Admit(ctx, "root", children(9), Runs{10, 10}, func(int) (Runs, error) { return Runs{}, nil })
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, ok)
	})
}
