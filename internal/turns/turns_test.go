package turns_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/turns"
)

// entering waits for a turn of a key in another goroutine, and returns the channel of the result.
func entering(t *testing.T, all *turns.Turns, key string) <-chan func() {
	t.Helper()
	in := make(chan func(), 1)
	go func() {
		if leave, err := all.Enter(t.Context(), key); err == nil {
			in <- leave
		}
	}()
	return in
}

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
			in := entering(t, all, "a")
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
	t.Run("All/ThoseThatWaitGetOneOfEachKeyInTurn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := turns.Within(turns.Bounds{Key: 2, All: 2})
			first, err := all.Enter(t.Context(), "a")
			require.NoError(t, err)
			second, err := all.Enter(t.Context(), "z")
			require.NoError(t, err)
			got := make(chan string, 10)
			goOn := make(chan struct{})
			wait := func(key string) {
				go func() {
					leave, err := all.Enter(t.Context(), key)
					if err != nil {
						return
					}
					got <- key
					<-goOn
					leave()
				}()
				synctest.Wait()
			}
			for _, key := range []string{"a", "a", "a", "b", "c"} {
				wait(key)
			}
			_, ok := all.Try("d")
			require.False(t, ok)
			require.Empty(t, got)
			first()
			synctest.Wait()
			var order []string
			for len(order) < 5 {
				order = append(order, <-got)
				goOn <- struct{}{}
				synctest.Wait()
			}
			require.Equal(t, []string{"a", "b", "c", "a", "a"}, order)
			second()
			require.Zero(t, all.Keys())
		})
	})
	t.Run("All/WhoHasItsOwnBoundIsPassedBy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := turns.Within(turns.Bounds{Key: 1, All: 2})
			a, err := all.Enter(t.Context(), "a")
			require.NoError(t, err)
			in := entering(t, all, "a")
			synctest.Wait()
			b, err := all.Enter(t.Context(), "b")
			require.NoError(t, err)
			b()
			require.Empty(t, in)
			a()
			(<-in)()
			require.Zero(t, all.Keys())
		})
	})
	t.Run("All/WhoGivesUpLeavesTheTurnToTheNext", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := turns.Within(turns.Bounds{Key: 1, All: 1})
			a, err := all.Enter(t.Context(), "a")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() {
				_, err := all.Enter(ctx, "b")
				gone <- err
			}()
			synctest.Wait()
			in := entering(t, all, "c")
			synctest.Wait()
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
			a()
			(<-in)()
			require.Zero(t, all.Keys())
		})
	})
	t.Run("Waiting/NoMoreOfAKey", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := turns.Within(turns.Bounds{Key: 1, Waiting: 1})
			leave, err := all.Enter(t.Context(), "a")
			require.NoError(t, err)
			in := entering(t, all, "a")
			synctest.Wait()
			_, err = all.Enter(t.Context(), "a")
			require.ErrorIs(t, err, turns.ErrFull)
			other, err := all.Enter(t.Context(), "b")
			require.NoError(t, err)
			other()
			leave()
			(<-in)()
			require.Zero(t, all.Keys())
		})
	})
	t.Run("Bounds/HoldWhoeverGivesUp", func(t *testing.T) {
		bounds := turns.Bounds{Key: 2, All: 3, Waiting: 4}
		all := turns.Within(bounds)
		var mu sync.Mutex
		total, by := 0, map[string]int{}
		change := func(key string, d int) (ok bool) {
			mu.Lock()
			defer mu.Unlock()
			total, by[key] = total+d, by[key]+d
			return total <= bounds.All && by[key] <= bounds.Key
		}
		var crowd sync.WaitGroup
		broken := make(chan string, 1000)
		for i := range 40 {
			key := string(rune('a' + i%4))
			crowd.Go(func() {
				for n := range 50 {
					ctx, cancel := context.WithCancel(t.Context())
					if n%3 == 0 {
						cancel()
					}
					if leave, err := all.Enter(ctx, key); err == nil {
						if !change(key, 1) {
							broken <- key
						}
						runtime.Gosched()
						change(key, -1)
						leave()
					}
					cancel()
				}
			})
		}
		crowd.Wait()
		require.Empty(t, broken)
		require.Zero(t, all.Keys())
	})
}

func TestComputing(t *testing.T) {
	t.Parallel()
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		all, got := turns.NewComputing(processors), 0
		for _, ok := all.Try("a"); ok; _, ok = all.Try("a") {
			got++
		}
		require.Equal(t, want, got, "of %d processors", processors)
		_, ok := all.Try("b")
		require.True(t, ok, "another key has its own")
	}
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
			require.Less(t, all.Known(), 3_000, "those of the last second, and as many again")
		})
	})
	t.Run("WhoUsesLessDoesNotStandBack", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			all := turns.NewResting(1)
			uses(t, all, "a", 100*time.Millisecond)
			uses(t, all, "b", 20*time.Millisecond)
			require.Zero(t, waits(t, all, "b"))
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
