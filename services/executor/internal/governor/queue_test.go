package governor_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// inWorld runs a test in a bubble with one executor, or more.
func inWorld(t *testing.T, name string, replicas int, limits llm.AccountLimits, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, replicas, limits)) })
	})
}

// admit makes the first step of a call whose tokens are estimated right.
func (w *world) admit(ctx context.Context, namespace string, tokens int64) (llm.Permit, error) {
	return w.governors[0].Admit(ctx, w.account, namespace, llm.Usage{Input: tokens})
}

// used is the part of a limit that is taken, once all is told.
func (w *world) used(kind int) float64 {
	elapse(time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	var n int64
	for _, x := range w.state.Slots {
		if time.Since(time.UnixMicro(x.At)) < 62*time.Second {
			n += x.Used[kind]
		}
	}
	return float64(n) / float64([]int64{w.account.RequestsPerMinute, w.account.TokensPerMinute}[kind])
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	limits := llm.AccountLimits{RequestsPerMinute: 100, TokensPerMinute: 1000}
	for name, x := range map[string]struct {
		used             llm.Usage
		failed           *llm.Error
		requests, tokens float64
	}{
		"UsageIsWhatTheServerSays":          {llm.Usage{Input: 150, Output: 50, Known: true}, nil, .01, .2},
		"UnknownUsageIsTheEstimate":         {llm.Usage{}, nil, .01, .5},
		"WhatWasNotSentIsGivenBack":         {llm.Usage{}, &llm.Error{Class: llm.NotPerformed}, 0, 0},
		"WhatWasRefusedTookNoTokens":        {llm.Usage{}, &llm.Error{Class: llm.Permanent, Status: 400}, .01, 0},
		"WhatMayHaveBeenDoneIsTheEstimate":  {llm.Usage{}, &llm.Error{Class: llm.Unknown, Status: 200}, .01, .5},
		"AServerThatFailedMayHaveBegunNone": {llm.Usage{}, &llm.Error{Class: llm.Retryable, Status: 500}, .01, 0},
	} {
		inWorld(t, name, 1, limits, func(t *testing.T, w *world) {
			p, err := w.admit(t.Context(), "n", 500)
			require.NoError(t, err)
			require.InDelta(t, .5, w.used(1), 1e-9)
			p.Done(x.used, x.failed)
			p.Done(llm.Usage{Input: 1, Known: true}, nil) // counts once only
			require.InDelta(t, x.requests, w.used(0), 1e-9)
			require.InDelta(t, x.tokens, w.used(1), 1e-9)
		})
	}
	inWorld(t, "ACanceledWaitTakesNothing", 1, limits, func(t *testing.T, w *world) {
		_, err := w.admit(t.Context(), "n", 900)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = w.admit(ctx, "n", 900)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		elapse(time.Minute)
		require.Zero(t, w.used(1))
	})
	inWorld(t, "NobodyWaitsForEver", 1, llm.AccountLimits{RequestsPerMinute: 1, MaxConcurrent: 1}, func(t *testing.T, w *world) {
		_, err := w.admit(t.Context(), "n", 1)
		require.NoError(t, err)
		began := time.Now()
		_, err = w.admit(t.Context(), "n", 1)
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, llm.NotPerformed, e.Class, "so the run tries again")
		require.Equal(t, "ACCOUNT_LIMIT", e.Code)
		require.Positive(t, e.RetryAfter)
		require.Equal(t, 2*time.Minute, time.Since(began))
	})
	inWorld(t, "NoMoreThanAThousandOfANamespaceWait", 1, llm.AccountLimits{MaxConcurrent: 1}, func(t *testing.T, w *world) {
		_, err := w.admit(t.Context(), "n", 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() { _, _ = w.admit(ctx, "n", 1) })
		}
		synctest.Wait()
		_, err = w.admit(ctx, "n", 1)
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Contains(t, e.Message, "1000 calls of the namespace wait for it")
		other, cancelOther := context.WithTimeout(ctx, time.Second)
		defer cancelOther()
		_, err = w.admit(other, "m", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "another namespace waits in a line of its own")
		cancel()
		waiting.Wait()
	})
	inWorld(t, "TheEndOfACallLetsTheNextBegin", 3, llm.AccountLimits{MaxConcurrent: 2}, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		w.load(ctx, 30, "n", func() size { return size{100, 50, 50, time.Second} })
		elapse(60 * time.Second)
		stop()
		for _, u := range w.meter.Uses() {
			under := 0
			for _, o := range w.meter.Uses() {
				if !o.At.After(u.At) && (o.End.After(u.At) || o.End.IsZero()) {
					under++
				}
			}
			require.LessOrEqual(t, under, 2)
		}
		require.Greater(t, len(w.meter.Uses()), 60, "of 120; which of those who wait looks first is chance")
	})
	inWorld(t, "ARefusalSlowsAllExecutors", 3, llm.AccountLimits{RequestsPerMinute: 600}, func(t *testing.T, w *world) {
		w.limits.Requests = 300 // the account is smaller than the configuration says
		ctx, stop := context.WithCancel(t.Context())
		w.load(ctx, 300, "n", func() size { return size{100, 50, 50, time.Second} })
		elapse(10 * time.Minute)
		stop()
		uses := len(w.meter.Uses())
		t.Logf("%d calls, %d refused", uses, w.meter.Refused())
		require.Less(t, w.meter.Refused(), uses/20)
		require.Greater(t, uses, 10*300/2)
	})
}

func TestACrashLosesNoMoreThanAMinute(t *testing.T) {
	t.Parallel()
	inWorld(t, "", 3, llm.AccountLimits{RequestsPerMinute: 60}, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		w.load(ctx, 60, "n", func() size { return size{100, 50, 50, 5 * time.Second} })
		elapse(2 * time.Minute)
		w.stop[0]()
		w.die("x0")
		died := time.Now()
		elapse(4 * time.Minute)
		stop()
		var n int
		for _, u := range w.meter.Uses() {
			if at := u.At.Sub(died); at >= time.Minute && at < 4*time.Minute {
				n++
			}
		}
		require.Zero(t, w.meter.Refused())
		require.GreaterOrEqual(t, n, 3*57)
	})
}

func TestGate(t *testing.T) {
	t.Parallel()
	limits := llm.AccountLimits{RequestsPerMinute: 60, TokensPerMinute: 6000}
	enter := func(w *world, node string, tokens int64) (chan sched.Pass, sched.Gate, sched.GateRequest, func()) {
		g := w.governors[0].Gate(func(profile string) (llm.Account, bool) {
			if profile == "free" {
				return llm.Account{}, false
			}
			return w.account, profile == "replaceable"
		})
		req := sched.GateRequest{Namespace: "n", RunID: "run_1", Queued: time.Now(), Model: sched.ModelCall{Profile: "fast", Input: tokens}}
		got := make(chan sched.Pass, 1)
		return got, g, req, g.Enter(req, func(p sched.Pass) { got <- p })
	}
	inWorld(t, "OnlyModelCallsWithAnAccountAreConcerned", 1, limits, func(t *testing.T, w *world) {
		_, g, req, cancel := enter(w, "a", 100)
		defer cancel()
		require.True(t, g.Concerns(req))
		req.Model.Profile = "free"
		require.False(t, g.Concerns(req))
		require.False(t, g.Concerns(sched.GateRequest{}))
	})
	inWorld(t, "TheCallUsesTheRoomOfItsAttempt", 1, limits, func(t *testing.T, w *world) {
		got, _, _, _ := enter(w, "a", 600)
		pass := <-got
		p, err := w.admit(pass.Carry(t.Context()), "n", 700)
		require.NoError(t, err)
		require.InDelta(t, 1./60, w.used(0), 1e-9)
		require.InDelta(t, 700./6000, w.used(1), 1e-9, "what the prompt has more than the gate could know")
		_, err = w.admit(pass.Carry(t.Context()), "n", 600)
		require.NoError(t, err, "a second call of the attempt takes room of its own")
		require.InDelta(t, 2./60, w.used(0), 1e-9)
		p.Done(llm.Usage{}, nil)
		pass.Release()
		require.InDelta(t, 2./60, w.used(0), 1e-9)
	})
	inWorld(t, "ACallFarAboveItsEstimateWaitsForThatMuchRoom", 1, limits, func(t *testing.T, w *world) {
		_, err := w.admit(t.Context(), "n", 3000)
		require.NoError(t, err)
		elapse(50 * time.Second)
		got, _, _, _ := enter(w, "a", 100)
		pass := <-got
		began := time.Now()
		_, err = w.admit(pass.Carry(t.Context()), "n", 5000)
		require.NoError(t, err)
		require.Greater(t, time.Since(began), 10*time.Second)
		require.InDelta(t, 5000./6000, w.used(1), 1e-9)
	})
	inWorld(t, "AnAbsurdEstimateIsTheWholeLimit", 1, limits, func(t *testing.T, w *world) {
		_, err := w.governors[0].Admit(t.Context(), w.account, "n", llm.Usage{Input: math.MaxInt64, Output: math.MaxInt64})
		require.NoError(t, err)
		require.InDelta(t, 1, w.used(1), 1e-9)
	})
	inWorld(t, "AnotherNamespaceDoesNotUseIt", 1, limits, func(t *testing.T, w *world) {
		got, _, _, _ := enter(w, "a", 100)
		pass := <-got
		_, err := w.admit(pass.Carry(t.Context()), "m", 100)
		require.NoError(t, err)
		require.InDelta(t, 2./60, w.used(0), 1e-9)
	})
	inWorld(t, "UnusedRoomIsGivenBack", 1, limits, func(t *testing.T, w *world) {
		got, _, _, _ := enter(w, "a", 100)
		pass := <-got
		require.InDelta(t, 1./60, w.used(0), 1e-9)
		pass.Release()
		require.Zero(t, w.used(0))
	})
	inWorld(t, "AnExpiredPassIsWorthNothing", 1, limits, func(t *testing.T, w *world) {
		got, _, _, _ := enter(w, "a", 100)
		pass := <-got
		require.Equal(t, 5*time.Second, time.Until(pass.Until).Round(time.Second))
		elapse(6 * time.Second)
		_, err := w.admit(pass.Carry(t.Context()), "n", 100)
		require.NoError(t, err)
		require.InDelta(t, 1./60, w.used(0), 1e-9, "the one was given back, another was taken")
	})
	inWorld(t, "ALateCallCountsFromWhenItBegan", 1, limits, func(t *testing.T, w *world) {
		got, _, _, _ := enter(w, "a", 100)
		pass := <-got
		elapse(4 * time.Second)
		_, err := w.admit(pass.Carry(t.Context()), "n", 100)
		require.NoError(t, err)
		require.InDelta(t, 1./60, w.used(0), 1e-9)
		elapse(58 * time.Second) // 63 seconds after it took the room
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		p, err := w.admit(ctx, "n", 100) // drops what is too old
		require.NoError(t, err)
		p.Done(llm.Usage{}, &llm.Error{Class: llm.NotPerformed})
		require.InDelta(t, 1./60, w.used(0), 1e-9)
	})
	inWorld(t, "TheEndOfASessionTakesNoCallWithIt", 1, limits, func(t *testing.T, w *world) {
		got, g, _, _ := enter(w, "a", 100)
		pass := <-got
		session := g.(sched.SessionGate)
		session.End(journal.Owner{ID: "x0", Incarnation: 1})
		session.Begin(journal.Owner{ID: "x0", Incarnation: 2})
		p, err := w.admit(pass.Carry(t.Context()), "n", 100)
		require.NoError(t, err)
		p.Done(llm.Usage{}, nil)
		pass.Release()
		require.InDelta(t, 2./60, w.used(0), 1e-9, "what the former session took stays taken")
	})
	inWorld(t, "AWaitSaysUntilWhen", 1, limits, func(t *testing.T, w *world) {
		p, err := w.admit(t.Context(), "n", 100)
		require.NoError(t, err)
		p.Done(llm.Usage{}, &llm.Error{Class: llm.Retryable, Status: 429, RetryAfter: 20 * time.Second})
		got, g, req, cancel := enter(w, "a", 100)
		defer cancel()
		elapse(time.Second)
		require.Empty(t, got)
		wait, ok := g.WaitOf(req)
		require.True(t, ok)
		require.Equal(t, sched.GateAccount, wait.Kind)
		require.Equal(t, "acc", wait.Name)
		require.InDelta(t, 19*time.Second, time.Until(wait.Until), float64(time.Second))
		require.Equal(t, "the provider refused calls and wants none for now", wait.Message)
		elapse(20 * time.Second)
		require.Len(t, got, 1)
	})
}

func TestALongPauseKeepsNobodyWhoCanGoElsewhere(t *testing.T) {
	t.Parallel()
	limits := llm.AccountLimits{RequestsPerMinute: 60}
	refuse := func(t *testing.T, w *world, after time.Duration) {
		p, err := w.admit(t.Context(), "n", 1)
		require.NoError(t, err)
		p.Done(llm.Usage{}, &llm.Error{Class: llm.Retryable, Status: 429, RetryAfter: after})
	}
	for profile, leaves := range map[string]bool{"replaceable": true, "only": false} {
		inWorld(t, "Gate/"+profile, 1, limits, func(t *testing.T, w *world) {
			refuse(t, w, time.Minute)
			g := w.governors[0].Gate(func(profile string) (llm.Account, bool) { return w.account, profile == "replaceable" })
			got := make(chan sched.Pass, 1)
			cancel := g.Enter(sched.GateRequest{Namespace: "n", Queued: time.Now(), Model: sched.ModelCall{Profile: profile}}, func(p sched.Pass) { got <- p })
			elapse(5 * time.Second)
			require.Len(t, got, map[bool]int{true: 1}[leaves])
			cancel()
		})
	}
	inWorld(t, "Call", 1, limits, func(t *testing.T, w *world) {
		refuse(t, w, time.Minute)
		began := time.Now()
		_, err := w.admit(t.Context(), "n", 1)
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, llm.NotPerformed, e.Class)
		require.InDelta(t, time.Minute, e.RetryAfter, float64(time.Second))
		require.Less(t, time.Since(began), time.Second)
	})
	inWorld(t, "AShortPauseIsWaitedFor", 1, limits, func(t *testing.T, w *world) {
		refuse(t, w, 5*time.Second)
		began := time.Now()
		_, err := w.admit(t.Context(), "n", 1)
		require.NoError(t, err)
		require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second))
	})
}

func TestAdmitWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	limits := llm.AccountLimits{RequestsPerMinute: 60}
	inWorld(t, "NoCallBeginsThatNobodyCounts", 1, limits, func(t *testing.T, w *world) {
		w.fail(errors.New("away"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := w.admit(ctx, "n", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.fail(nil, nil)
		_, err = w.admit(t.Context(), "n", 1)
		require.NoError(t, err)
	})
	inWorld(t, "WhatHappenedIsToldOnce", 1, limits, func(t *testing.T, w *world) {
		var ps []llm.Permit
		for range 3 {
			p, err := w.admit(t.Context(), "n", 1)
			require.NoError(t, err)
			ps = append(ps, p)
		}
		w.fail(nil, errors.New("the answer is lost"))
		ps[0].Done(llm.Usage{}, &llm.Error{Class: llm.NotPerformed})
		elapse(time.Second)
		ps[1].Done(llm.Usage{}, &llm.Error{Class: llm.NotPerformed})
		require.InDelta(t, 2./60, w.used(0), 1e-9)
		w.fail(nil, nil)
		require.InDelta(t, 1./60, w.used(0), 1e-9)
	})
}
