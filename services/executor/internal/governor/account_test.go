package governor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func minute(per governor.Cost) governor.Limits {
	return governor.Limits{Per: per, Interval: time.Minute}
}

// wants is an ask for calls of equal cost.
func wants(l governor.Limits, namespace string, c governor.Cost, calls int) governor.Ask {
	a := governor.Ask{Account: "acc", Limits: l, Lines: []governor.Line{{Namespace: namespace, Calls: calls}}}
	for range min(calls, 64) {
		a.Lines[0].Costs = append(a.Lines[0].Costs, c)
	}
	return a
}

// decide asks alone, after a time.
func decide(s *governor.State, after time.Duration, a governor.Ask) governor.Answer {
	return s.Decide(start.Add(after), a, true, a.Held, nil).Answer
}

func TestDecide(t *testing.T) {
	t.Parallel()
	request := governor.Cost{1}
	t.Run("ATwentiethBeginsAtOnceAndTheRestEvenly", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{600})
		require.Equal(t, 30, decide(&s, 0, wants(l, "n", request, 64)).Granted[0])
		answer := decide(&s, 0, wants(l, "n", request, 64))
		require.Zero(t, answer.Granted[0])
		require.InDelta(t, 50*time.Millisecond, answer.Again, float64(time.Millisecond), "30 calls last 3.05 seconds, of which three are caught up")
		require.Equal(t, 10, decide(&s, time.Second, wants(l, "n", request, 64)).Granted[0])
	})
	t.Run("AnAbsurdUseCountsForOneIntervalAtMost", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 1000})
		small := governor.Cost{1, 10}
		require.Equal(t, 1, decide(&s, 0, wants(l, "n", small, 1)).Granted[0])
		a := wants(l, "n", small, 1)
		a.Corrections = []governor.Correction{{At: start.UnixMicro(), Delta: governor.Cost{0, 1 << 50}}}
		require.Equal(t, 0, decide(&s, time.Second, a).Granted[0])
		require.Equal(t, 1, decide(&s, 65*time.Second, wants(l, "n", small, 1)).Granted[0])
	})
	t.Run("WithoutLimitsEverythingBegins", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		require.Equal(t, 64, decide(&s, 0, wants(minute(governor.Cost{}), "n", request, 64)).Granted[0])
	})
	t.Run("ALargeCallWaitsUntilTheWindowHasRoom", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 1000})
		large := governor.Cost{1, 400}
		require.Equal(t, 1, decide(&s, 0, wants(l, "n", large, 1)).Granted[0])
		require.Equal(t, 1, decide(&s, 25*time.Second, wants(l, "n", large, 1)).Granted[0])
		require.Equal(t, 0, decide(&s, 59*time.Second, wants(l, "n", large, 1)).Granted[0])
		require.Equal(t, 1, decide(&s, 62*time.Second, wants(l, "n", large, 1)).Granted[0])
	})
	t.Run("ACallAsLargeAsTheLimitBeginsAlone", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 1000})
		require.Equal(t, 1, decide(&s, 0, wants(l, "n", governor.Cost{1, 1}, 1)).Granted[0])
		require.Equal(t, 0, decide(&s, 30*time.Second, wants(l, "n", governor.Cost{1, 1000}, 1)).Granted[0])
		require.Equal(t, 1, decide(&s, 62*time.Second, wants(l, "n", governor.Cost{1, 1000}, 1)).Granted[0])
	})
	t.Run("ARefundMakesRoomAtOnce", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 1000})
		took := decide(&s, 0, wants(l, "n", governor.Cost{1, 1000}, 1))
		again := wants(l, "n", governor.Cost{1, 900}, 1)
		require.Zero(t, decide(&s, time.Second, again).Granted[0])
		again.Corrections = []governor.Correction{{At: took.At, Delta: governor.Cost{0, -950}}}
		require.Equal(t, 1, decide(&s, time.Second, again).Granted[0])
	})
	t.Run("WhatWasUsedBeyondTheEstimateCountsFromNowOn", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 1000})
		took := decide(&s, 0, wants(l, "n", governor.Cost{1, 100}, 1))
		more := governor.Ask{Limits: l, Corrections: []governor.Correction{{At: took.At, Delta: governor.Cost{0, 200}}}}
		require.InDelta(t, .3, decide(&s, 30*time.Second, more).Used[1], 1e-9)
		require.InDelta(t, .2, decide(&s, 62*time.Second, governor.Ask{Limits: l}).Used[1], 1e-9)
		require.Zero(t, decide(&s, 92*time.Second, governor.Ask{Limits: l}).Used[1])
	})
	t.Run("ACallThatBeganLateCountsFromThen", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{10})
		took := decide(&s, 0, wants(l, "n", request, 1))
		late := governor.Ask{Limits: l, Corrections: []governor.Correction{{At: took.At, To: took.At + 4e6, Delta: request}}}
		decide(&s, 5*time.Second, late)
		require.InDelta(t, .1, decide(&s, 64*time.Second, governor.Ask{Limits: l}).Used[0], 1e-9)
		require.Zero(t, decide(&s, 66*time.Second, governor.Ask{Limits: l}).Used[0])
	})
	t.Run("AClockThatGoesBackGivesNothing", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{600})
		decide(&s, 0, wants(l, "n", request, 64))
		require.Zero(t, decide(&s, -time.Hour, wants(l, "n", request, 64)).Granted[0])
		require.Equal(t, 10, decide(&s, time.Second, wants(l, "n", request, 64)).Granted[0])
	})
	t.Run("CallsUnderWayAreBounded", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := governor.Limits{MaxConcurrent: 5, Interval: time.Minute}
		a := wants(l, "n", request, 9)
		a.Held = 1
		d := s.Decide(start, a, true, 1, []governor.Standing{{Owner: journal.Owner{ID: "other"}, Held: 2, Asked: start}})
		require.Equal(t, 2, d.Answer.Granted[0])
		require.Equal(t, 3, d.Held)
	})
}

func TestDecideIsFair(t *testing.T) {
	t.Parallel()
	l, request := minute(governor.Cost{60}), governor.Cost{1}
	elsewhere := func(asked time.Duration, calls int) []governor.Standing {
		return []governor.Standing{{Owner: journal.Owner{ID: "other"}, Asked: start.Add(asked), Waits: []governor.Waits{{Namespace: "there", Calls: calls, Mean: request, Since: start}}}}
	}
	t.Run("NamespacesAlternate", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		got := map[string]int{}
		for i := range 60 {
			a := wants(l, "loud", request, 64)
			a.Lines = append(a.Lines, governor.Line{Namespace: "other", Calls: 64, Costs: a.Lines[0].Costs})
			answer := decide(&s, time.Duration(i)*time.Second, a)
			got["loud"] += answer.Granted[0]
			got["other"] += answer.Granted[1]
		}
		require.InDelta(t, got["loud"], got["other"], 1)
		require.Greater(t, got["loud"], 28)
	})
	t.Run("TokensCountNotCalls", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		l := minute(governor.Cost{0, 60_000})
		got := map[string]int{}
		for i := range 60 {
			a := wants(l, "large", governor.Cost{1, 1000}, 64)
			a.Lines = append(a.Lines, wants(l, "small", governor.Cost{1, 100}, 64).Lines...)
			answer := decide(&s, time.Duration(i)*time.Second, a)
			got["large"] += answer.Granted[0]
			got["small"] += answer.Granted[1]
		}
		require.InDelta(t, 10*got["large"], got["small"], 20)
	})
	t.Run("ANewcomerGoesBeforeWhoHadMuch", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		decide(&s, 0, wants(l, "loud", request, 64))
		a := wants(l, "loud", request, 64)
		a.Lines = append(a.Lines, governor.Line{Namespace: "quiet", Calls: 1, Costs: []governor.Cost{request}})
		require.Equal(t, []int{0, 1}, decide(&s, time.Second, a).Granted)
	})
	t.Run("WhatIdlenessLeftIsNotSaved", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		for i := range 30 {
			decide(&s, time.Duration(i)*time.Second, wants(l, "loud", request, 64))
		}
		got := 0
		for i := 30; i < 60; i++ {
			a := wants(l, "loud", request, 64)
			a.Lines = append(a.Lines, governor.Line{Namespace: "late", Calls: 64, Costs: a.Lines[0].Costs})
			got += decide(&s, time.Duration(i)*time.Second, a).Granted[1]
		}
		require.InDelta(t, 15, got, 2)
	})
	t.Run("AnotherExecutorIsLeftItsPart", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		answer := s.Decide(start, wants(l, "here", request, 64), true, 0, elsewhere(0, 64)).Answer
		require.Equal(t, 2, answer.Granted[0], "of the three that may begin at once")
	})
	t.Run("AnExecutorThatDoesNotAskKeepsNobodyOut", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		answer := s.Decide(start, wants(l, "here", request, 64), true, 0, elsewhere(-3*time.Second, 64)).Answer
		require.Equal(t, 3, answer.Granted[0])
	})
}

func TestDecideAfterRefusals(t *testing.T) {
	t.Parallel()
	l := minute(governor.Cost{600})
	refused := func(age, after time.Duration) governor.Ask {
		return governor.Ask{Limits: l, Refused: &governor.Refusal{Age: age, RetryAfter: after}}
	}
	// rate is how many calls begin in the second before a time.
	rate := func(s *governor.State, at time.Duration) int {
		decide(s, at-time.Second, wants(l, "n", governor.Cost{1}, 64))
		return decide(s, at, wants(l, "n", governor.Cost{1}, 64)).Granted[0]
	}
	t.Run("NothingBeginsBeforeTheTime", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		answer := decide(&s, 0, refused(time.Second, 10*time.Second))
		require.Equal(t, 10*time.Second, decide(&s, 0, governor.Ask{Limits: l}).Paused)
		require.InDelta(t, .5, answer.Speed, 1e-9)
		require.Zero(t, decide(&s, 9*time.Second, wants(l, "n", governor.Cost{1}, 64)).Granted[0])
		require.Equal(t, 1, decide(&s, 10*time.Second, wants(l, "n", governor.Cost{1}, 64)).Granted[0], "without a burst")
	})
	t.Run("HalfOfTheRateAndThenMore", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		decide(&s, 0, refused(time.Second, time.Second))
		require.InDelta(t, 5, rate(&s, 3*time.Second), 1)
		require.InDelta(t, 7, rate(&s, 31*time.Second), 1)
		require.InDelta(t, 10, rate(&s, 64*time.Second), 1)
	})
	t.Run("CallsThatBeganBeforeDoNotHalveItAgain", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		decide(&s, 0, refused(time.Second, time.Second))
		require.InDelta(t, .5, decide(&s, 500*time.Millisecond, refused(time.Second, time.Second)).Speed, 1e-9)
		require.InDelta(t, .25, decide(&s, 1600*time.Millisecond, refused(time.Second, time.Second)).Speed, .01)
	})
	t.Run("NoRetryAfterMeansAMoment", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		decide(&s, 0, refused(time.Second, 0))
		require.Equal(t, 2*time.Second, decide(&s, 0, governor.Ask{Limits: l}).Paused)
	})
	t.Run("NobodyCanAskForMoreThanTenMinutes", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		decide(&s, 0, refused(time.Second, 1e6*time.Second))
		require.Equal(t, 10*time.Minute, decide(&s, 0, governor.Ask{Limits: l}).Paused)
	})
	t.Run("OthersThatWaitAreWoken", func(t *testing.T) {
		t.Parallel()
		var s governor.State
		waits := []governor.Standing{{Owner: journal.Owner{ID: "other"}, Asked: start, Waits: []governor.Waits{{Namespace: "n", Calls: 1}}}}
		require.True(t, s.Decide(start, refused(time.Second, 0), true, 0, waits).Notify)
		require.False(t, s.Decide(start, refused(time.Second, 0), true, 0, nil).Notify)
	})
}
