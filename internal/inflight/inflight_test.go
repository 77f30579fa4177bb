package inflight_test

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

const mib = 1 << 20

func TestBudget(t *testing.T) {
	t.Parallel()
	take := func(t *testing.T, b *inflight.Budget, ns string, n int64) *inflight.Share {
		t.Helper()
		s := b.Share(ns)
		require.NoError(t, s.Take(n))
		return &s
	}
	refused := func(t *testing.T, b *inflight.Budget, ns string, n int64) *errs.Error {
		t.Helper()
		s := b.Share(ns)
		err := s.Take(n)
		require.True(t, errs.Is(err, errs.ResourceExhausted), "got %v", err)
		return errs.From(err)
	}
	t.Run("Take/ANamespaceGetsItsShareAndOthersGoOn", func(t *testing.T) {
		t.Parallel()
		b := inflight.New(64 * mib)
		require.EqualValues(t, 24*mib, b.Most())
		held := take(t, b, "a", 24*mib)
		e := refused(t, b, "a", mib)
		require.Equal(t, inflight.ReasonBusy, e.Reason)
		require.Equal(t, "1", e.Meta[errs.MetaRetryAfter])
		require.Contains(t, e.Message, "this namespace")
		require.Contains(t, e.Message, "24 MiB")
		small := take(t, b, "a", 60<<10)
		trivial := take(t, b, "b", 100)
		other := take(t, b, "b", 24*mib)
		require.Contains(t, refused(t, b, "c", mib).Message, "all namespaces")
		take(t, b, "c", 60<<10).Free()
		held.Free()
		take(t, b, "a", 23*mib).Free()
		for _, s := range []*inflight.Share{small, trivial, other, held} {
			s.Free()
			s.Free()
		}
		require.Zero(t, b.Used())
	})
	t.Run("Take/WhatNeverFitsIsToldSo", func(t *testing.T) {
		t.Parallel()
		e := refused(t, inflight.New(64*mib), "a", 25*mib)
		require.Equal(t, inflight.ReasonTooLarge, e.Reason)
		require.Empty(t, e.Meta[errs.MetaRetryAfter])
		require.Contains(t, e.Message, "one request may take 24 MiB")
	})
	t.Run("Take/SmallOnesAreBoundedToo", func(t *testing.T) {
		t.Parallel()
		b := inflight.New(64 * mib)
		n := 0
		for ; n < 10_000; n++ {
			s := b.Share("a")
			if s.Take(inflight.Small) != nil {
				break
			}
		}
		require.Equal(t, 32*mib/inflight.Small, n)
		take(t, b, "a", inflight.Tiny)
	})
	t.Run("Take/GrowsAndCountsWhatWasTiny", func(t *testing.T) {
		t.Parallel()
		b := inflight.New(64 * mib)
		s := b.Share("a")
		require.NoError(t, s.Take(4000))
		require.Zero(t, b.Used())
		require.NoError(t, s.Take(1000))
		require.EqualValues(t, 5000, b.Used())
		require.Error(t, s.Take(30*mib))
		require.EqualValues(t, 5000, b.Used(), "what was refused is not held")
		s.Free()
		require.Zero(t, b.Used())
	})
	t.Run("Wait/UntilThereIsRoom", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(64 * mib)
			first := b.Share("a")
			require.NoError(t, first.Take(20*mib))
			done := make(chan error, 1)
			go func() {
				s := b.Share("a")
				defer s.Free()
				done <- s.Wait(t.Context(), 20*mib)
			}()
			synctest.Wait()
			require.Empty(t, done)
			first.Free()
			require.NoError(t, <-done)

			require.NoError(t, first.Take(20*mib))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := b.Share("a")
			require.Equal(t, inflight.ReasonBusy, errs.ReasonOf(s.Wait(ctx, 20*mib)))
			require.Equal(t, inflight.ReasonTooLarge, errs.ReasonOf(s.Wait(t.Context(), 30*mib)))
			first.Free()
			synctest.Wait()
			require.Zero(t, b.Used())
		})
	})
	t.Run("Queue/UntilThereIsRoomForSeconds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(8 * mib)
			first, second := b.Share("a"), b.Share("a")
			require.NoError(t, first.Take(3*mib))
			begin := time.Now()
			require.Equal(t, inflight.ReasonBusy, errs.ReasonOf(second.Queue(t.Context(), 2*mib)))
			require.Equal(t, 5*time.Second, time.Since(begin))
			time.AfterFunc(time.Second, first.Free)
			require.NoError(t, second.Queue(t.Context(), 2*mib))
			require.Equal(t, 6*time.Second, time.Since(begin))
			require.Equal(t, inflight.ReasonTooLarge, errs.ReasonOf(first.Queue(t.Context(), 4*mib)))
			require.Equal(t, 6*time.Second, time.Since(begin), "what never fits does not wait")
		})
	})
	t.Run("Queue/IsShort", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(8 * mib)
			holder := b.Share("a")
			require.NoError(t, holder.Take(3*mib))
			for range 64 {
				go func() {
					s := b.Share("a")
					_ = s.Queue(t.Context(), 2*mib)
				}()
			}
			synctest.Wait()
			begin := time.Now()
			last := b.Share("a")
			require.Equal(t, inflight.ReasonBusy, errs.ReasonOf(last.Queue(t.Context(), 2*mib)))
			require.Zero(t, time.Since(begin), "the line is full")
			other := b.Share("b")
			require.NoError(t, other.Queue(t.Context(), 2*mib))
			time.Sleep(10 * time.Second) //nolint:forbidigo // a bubble's clock: the line is over
			synctest.Wait()
			require.Equal(t, inflight.ReasonBusy, errs.ReasonOf(last.Queue(t.Context(), 2*mib)))
			require.Equal(t, 15*time.Second, time.Since(begin), "the line is open again")
		})
	})
	for name, namespaces := range map[string]int{"OfANamespace": 1, "OfAll": 3} {
		t.Run("Stuck/TheLastOneGivesWayWhenAllHoldSomethingAndWaitForMore/"+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := inflight.New(80 * mib)
				begin := time.Now()
				var refused atomic.Int32
				var all sync.WaitGroup
				for i := range 24 {
					all.Go(func() {
						s := b.Share(fmt.Sprint("n", i%namespaces))
						defer s.Free()
						for range 12 { // in the pace of one who decodes
							if err := s.Queue(t.Context(), mib); err != nil {
								if errs.ReasonOf(err) != inflight.ReasonBusy {
									t.Error(err)
								}
								refused.Add(1)
								return
							}
							time.Sleep(time.Millisecond) //nolint:forbidigo // the time of the bubble
						}
					})
				}
				all.Wait()
				require.Less(t, time.Since(begin), time.Second, "nobody waits for what does not come")
				require.Positive(t, refused.Load())
				require.Less(t, refused.Load(), int32(24), "some get through")
				require.Zero(t, b.Used())
				s := b.Share("n0")
				require.NoError(t, s.Queue(t.Context(), 12*mib))
				s.Free()
			})
		})
	}
	t.Run("Stuck/OneThatStillWorksIsWaitedFor", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := inflight.New(80 * mib)
			works, waits := b.Share("a"), b.Share("a")
			require.NoError(t, works.Take(20*mib))
			require.NoError(t, waits.Take(5*mib))
			done := make(chan error, 1)
			go func() { done <- waits.Queue(t.Context(), 10*mib) }()
			pass(time.Second)
			require.Empty(t, done)
			works.Free()
			require.NoError(t, <-done)
			waits.Free()
		})
	})
	t.Run("Concurrent/NeverMoreThanTheTotal", func(t *testing.T) {
		t.Parallel()
		b := inflight.New(64 * mib)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 500 {
					s := b.Share(string(rune('a' + g%4)))
					_ = s.Take(int64(i) * 50_000)
					if b.Used() > 64*mib {
						t.Error("over the total")
					}
					s.Free()
				}
			})
		}
		wg.Wait()
		require.Zero(t, b.Used())
	})
	t.Run("Zero/CountsNothing", func(t *testing.T) {
		t.Parallel()
		var s inflight.Share
		require.NoError(t, s.Take(math.MaxInt64))
		s.Free()
	})
}

func TestDefaultTotal(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	require.EqualValues(t, 512*mib, inflight.DefaultTotal())
	for limit, want := range map[int64]int64{1000 * mib: 200 * mib, 100 * mib: 64 * mib, 64 << 30: 2048 * mib} {
		debug.SetMemoryLimit(limit)
		require.Equal(t, want, inflight.DefaultTotal())
	}
}
