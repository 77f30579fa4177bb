package inflight_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/inflight"
)

// waiting is a line of claims, each with a name.
type waiting struct {
	b  *inflight.Budget
	in chan string
}

func (w waiting) enter(t *testing.T, name, ns string, n int64) {
	t.Helper()
	go func() {
		if w.b.Await(t.Context(), ns, n) == nil {
			w.in <- name
		}
	}()
	synctest.Wait()
}

// let are those that came in since the last look.
func (w waiting) let() (names []string) {
	synctest.Wait()
	for len(w.in) > 0 {
		names = append(names, <-w.in)
	}
	slices.Sort(names)
	return names
}

// pass is some time in the bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble
	synctest.Wait()
}

// TestNeighbor lets namespace a do its worst with a budget, and checks that b gets its share.
func TestNeighbor(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, b *inflight.Budget, w waiting)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := inflight.New(80 * mib)
				f(t, b, waiting{b, make(chan string, 1000)})
			})
		})
	}
	bubble("Grows/WhatANamespaceHoldsTooMuchTakesNothingFromOthers", func(t *testing.T, b *inflight.Budget, _ waiting) {
		require.True(t, b.Try("a", 1000*mib), "the first of a namespace, however large")
		b.Add("a", 500*mib)
		require.False(t, b.Full())
		require.False(t, b.Try("a", 1))
		require.True(t, b.Room("b", 10*mib))
		for range 3 {
			require.True(t, b.Try("b", 10*mib))
		}
		require.False(t, b.Try("b", mib), "large ones have three quarters of the half")
		require.True(t, b.Try("b", 10_000))
		require.True(t, b.Try("c", 10_000), "small ones of a third use the last quarter")
		require.False(t, b.Try("c", mib))
		require.Equal(t, []string{"a"}, b.Crowded())
		b.Add("b", 40*mib)
		require.True(t, b.Full())
		require.False(t, b.Try("c", 1))
		b.Add("a", -1500*mib)
		require.True(t, b.Try("c", mib))
	})
	bubble("Line/HoweverLongOthersHaveWaitedAShareIsKept", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 10*mib))
		for i := range 20 {
			w.enter(t, fmt.Sprint("a", i), "a", 70*mib)
		}
		pass(time.Hour)
		require.Empty(t, w.let(), "what a holds is over a quarter of its share, and stays")
		for range 3 {
			require.True(t, b.Try("b", 10*mib))
		}
		b.Add("a", -10*mib)
		require.Equal(t, []string{"a0"}, w.let())
		b.Add("b", -30*mib)
		require.Empty(t, w.let(), "b's part is not a's")
		for range 3 {
			require.True(t, b.Try("b", 10*mib))
		}
	})
	bubble("Line/InTheOrderOfComing", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 25*mib))
		for i, n := range []int64{20, 6, 7, 8} {
			w.enter(t, fmt.Sprint(i), "a", n*mib)
		}
		require.Empty(t, w.let())
		require.False(t, b.Try("a", mib), "who comes later does not pass by those in line")
		require.True(t, b.Try("a", 10_000), "only what is small does")
		s := b.Share("a")
		require.Error(t, s.Take(mib))
		b.Add("a", -5*mib)
		require.Empty(t, w.let(), "nor do smaller ones behind the first")
		b.Add("a", -20*mib)
		require.Equal(t, []string{"0", "1"}, w.let())
		b.Add("a", -20*mib)
		require.Equal(t, []string{"2", "3"}, w.let())
	})
	bubble("Line/WhoHoldsSomethingGoesFirst", func(t *testing.T, b *inflight.Budget, w waiting) {
		s := b.Share("a")
		require.NoError(t, s.Take(20*mib))
		require.True(t, b.Try("a", 9*mib))
		w.enter(t, "new", "a", 10*mib)
		done := make(chan error, 1)
		go func() { done <- s.Wait(t.Context(), 5*mib) }()
		synctest.Wait()
		require.NoError(t, s.Take(mib/2), "and needs no place in line")
		b.Add("a", -9*mib)
		require.NoError(t, <-done)
		require.Empty(t, w.let())
		s.Free()
		require.Equal(t, []string{"new"}, w.let())
	})
	bubble("Line/WhatKeepsNothingIsNotWaitedFor", func(t *testing.T, b *inflight.Budget, _ waiting) {
		idle := b.Answer("a")
		require.NoError(t, idle.Await(t.Context(), mib))
		idle.Shrink(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		failed := make(chan time.Duration, 2)
		begin := time.Now()
		shares := []inflight.Share{b.Share("a"), b.Share("a")}
		for i := range shares {
			require.NoError(t, shares[i].Take(14*mib))
		}
		for i := range shares {
			go func() {
				defer shares[i].Free()
				if shares[i].Wait(ctx, 10*mib) != nil {
					failed <- time.Since(begin)
				}
			}()
			synctest.Wait()
		}
		require.Zero(t, <-failed, "all that hold something wait for more: the last one is refused at once")
		synctest.Wait()
		require.Empty(t, failed)
		idle.Free()
		require.Zero(t, b.Used())
	})
	bubble("Line/RoomForAllGoesToWhoHoldsLeast", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 25*mib))
		require.True(t, b.Try("c", 25*mib))
		w.enter(t, "a", "a", 5*mib) // fits
		require.Equal(t, []string{"a"}, w.let())
		w.enter(t, "c", "c", 5*mib)
		require.Equal(t, []string{"c"}, w.let())
		w.enter(t, "d", "d", 20*mib)
		w.enter(t, "b", "b", 10*mib)
		require.Empty(t, w.let())
		b.Add("a", -10*mib)
		require.Equal(t, []string{"b"}, w.let())
		b.Add("c", -10*mib)
		require.Empty(t, w.let())
		require.False(t, b.Try("a", mib), "what becomes free is for d, which will hold less")
		require.True(t, b.Try("a", 10_000))
		require.True(t, b.Try("b", mib), "not for b to wait for, which holds less still")
		b.Add("c", -20*mib)
		require.Equal(t, []string{"d"}, w.let())
	})
	bubble("Line/WhatCannotHaveRoomForHoursLetsOthersPass", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 10*mib)) // and it stays
		w.enter(t, "large", "a", 70*mib)
		w.enter(t, "later", "a", 15*mib)
		require.Empty(t, w.let())
		pass(9 * time.Second)
		require.Empty(t, w.let())
		pass(2 * time.Second)
		require.Equal(t, []string{"later"}, w.let())
		pass(5 * time.Second)
		require.False(t, b.Try("a", mib), "its turn comes again")
		b.Add("a", -25*mib)
		require.Equal(t, []string{"large"}, w.let())
	})
	bubble("Line/IsLookedAtSeldomHoweverLongItIs", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 25*mib))
		for i := range 500 {
			w.enter(t, fmt.Sprint(i), "a", 20*mib)
		}
		before := b.Rounds()
		pass(time.Minute)
		require.Empty(t, w.let())
		require.Less(t, b.Rounds()-before, uint64(200), "not by each of them every second")
		b.Add("a", -25*mib)
		require.Equal(t, []string{"0"}, w.let())
	})
	bubble("Line/NobodyStaysInItWhoHasGivenUp", func(t *testing.T, b *inflight.Budget, w waiting) {
		require.True(t, b.Try("a", 25*mib))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- b.Await(ctx, "a", 20*mib) }()
		synctest.Wait()
		w.enter(t, "small", "a", 2*mib)
		require.Empty(t, w.let())
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.Equal(t, []string{"small"}, w.let())
		b.Add("a", -27*mib)
		require.Zero(t, b.Used())
		require.True(t, b.Try("a", 30*mib))
	})
	bubble("Line/AllOfManyComeIn", func(t *testing.T, b *inflight.Budget, w waiting) {
		var want, got []string
		for i := range 200 {
			ns, name := string(rune('a'+i%5)), fmt.Sprint(i)
			n := int64(i%30+1) * mib
			go func() {
				s := b.Share(ns)
				if s.Wait(t.Context(), n) == nil {
					w.in <- name
					time.Sleep(time.Second) //nolint:forbidigo // the time of the bubble
					s.Free()
				}
			}()
			want = append(want, name)
		}
		pass(10 * time.Minute)
		got = w.let()
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got)
		require.Zero(t, b.Used())
	})
}

// TestExcess checks which namespaces hold more than they may, and by how much.
func TestExcess(t *testing.T) {
	t.Parallel()
	b := inflight.New(100)
	require.False(t, b.Add("a", 40))
	require.False(t, b.Add("b", 50))
	require.Empty(t, b.Excess(), "both are within their halves, and all within the whole")
	require.True(t, b.Add("a", 30))
	require.Equal(t, map[string]int64{"a": 20}, b.Excess(), "what is beyond a half takes nothing from others")
	require.False(t, b.Add("a", -30))
	require.True(t, b.Add("c", 30))
	require.Equal(t, map[string]int64{"b": 20}, b.Excess(), "who holds most is to give back")
	require.True(t, b.Add("c", 20))
	require.Equal(t, map[string]int64{"b": 40}, b.Excess())
}
