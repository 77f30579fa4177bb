package workgraph

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func i64(n int64) *int64 { return &n }

func tokens(n int64) *Budget { return &Budget{Tokens: i64(n)} }

// used is an outcome whose call used tokens, and money unless cost is below 0.
func used(n, cost int64) Outcome {
	u := Usage{Provider: "p", Model: "m", InputTokens: n / 2, OutputTokens: n - n/2}
	if cost >= 0 {
		u.CostNanoUSD = &cost
	}
	return Outcome{Values: one(`1`), Usage: []Usage{u}}
}

func budgeted(t *testing.T, g *Graph, b *Budget) *machine {
	t.Helper()
	p, err := Compile(t.Context(), nodesOf("act", g), nil)
	require.NoError(t, err)
	m := newMachine(t, p)
	m.do(Begin{Budget: b, Now: m.now})
	return m
}

func (m *machine) standsAt(status Status, reason string) {
	m.t.Helper()
	st, why := m.s.Status()
	require.Equal(m.t, []string{string(status), reason}, []string{string(st), why})
}

func TestBudget(t *testing.T) {
	chain := func() *Graph { return nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph() }
	wide := func() *Graph { return nodes(PassDown{}, "A", "B", "C").Edge("A", "C").Graph() }

	t.Run("Cap/PausesInTheDecisionThatReachesIt", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(10))
		m.end("A", used(9, -1))
		require.Equal(t, VisitRunning, m.status("B"))
		n := len(m.events)
		m.end("B", used(1, -1))
		require.Equal(t, VisitHeld, m.status("C"))
		m.standsAt(StatusPaused, ReasonBudget)
		require.Empty(t, m.fx.Starts)
		require.Len(t, m.events, n+2)
		require.Equal(t, OpPause, m.events[n].Steps[0].Op)
		require.Equal(t, RunPaused, m.events[n+1].Kind)
		require.Equal(t, ReasonBudget, m.events[n+1].Reason)
		m.replays()
		require.ErrorIs(t, m.try(Resume{Now: m.now}), ErrBudget)
		require.ErrorIs(t, m.try(Resume{Budget: tokens(10), Now: m.now}), ErrBudget)
		m.do(Resume{Budget: tokens(11), Now: m.now})
		require.Equal(t, tokens(11), m.events[len(m.events)-1].Budget)
		m.replays()
		m.end("C", used(5, -1))
		require.Equal(t, StatusCompleted, m.s.End().Status, "what ends with the last call need not pause")
		require.Equal(t, int64(15), m.s.Spent().Tokens)
		require.Equal(t, RunEnded, m.events[len(m.events)-1].Kind)
		require.NotEqual(t, RunPaused, m.events[len(m.events)-2].Kind)
		m.replays()
	})
	t.Run("Zero/StartsNothing", func(t *testing.T) {
		for _, b := range []*Budget{tokens(0), {NanoUSD: i64(0)}, {NanoUSD: i64(5), Tokens: i64(0)}} {
			m := budgeted(t, wide(), b)
			require.Empty(t, m.open)
			m.standsAt(StatusPaused, ReasonBudget)
			m.replays()
			m.do(Resume{Budget: &Budget{NanoUSD: i64(1), Tokens: i64(1)}, Now: m.now})
			require.Len(t, m.open, 2)
			m.replays()
		}
	})
	t.Run("InFlight/EndsAndIsJournaled", func(t *testing.T) {
		m := budgeted(t, wide(), tokens(4))
		m.end("A", used(4, -1))
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, VisitHeld, m.status("C"))
		require.Equal(t, 1, m.s.InFlight())
		m.end("B", used(7, -1))
		require.Equal(t, VisitCompleted, m.status("B"))
		require.Equal(t, int64(11), m.s.Spent().Tokens)
		require.Equal(t, AttemptEnded, m.events[len(m.events)-1].Kind, "it is told once that the run is paused")
		m.replays()
	})
	t.Run("NotBegun/IsPutBackAndStartsAgain", func(t *testing.T) {
		m := budgeted(t, wide(), tokens(4))
		b := m.ref("B")
		m.end("A", used(4, -1))
		m.fail("B", Errorf(NotPerformed, ReasonBudget, "not begun"))
		require.Equal(t, VisitHeld, m.status("B"))
		require.Zero(t, m.s.InFlight())
		m.replays()
		m.do(Resume{Budget: tokens(100), Now: m.now})
		require.Equal(t, 1, m.open[b].Attempt, "it does not count as an attempt")
		m.replays()
		// In a run that may go on this error is a failure like any other.
		m.fail("B", Errorf(NotPerformed, ReasonBudget, "says who"))
		require.Equal(t, VisitBackoff, m.status("B"))
	})
	t.Run("Failed/AttemptsCountToo", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(4))
		err := Errorf(Retryable, "SHAKY", "")
		err.Usage = used(4, -1).Usage
		m.fail("A", err)
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, VisitBackoff, m.status("A"))
		m.now = m.now.Add(time.Hour)
		m.do(TimerDue{Now: m.now})
		require.Equal(t, VisitHeld, m.status("A"))
		m.replays()
	})
	t.Run("Money/UnpricedCallsAreCountedAndDoNotPause", func(t *testing.T) {
		m := budgeted(t, chain(), &Budget{NanoUSD: i64(10)})
		m.end("A", used(1000, -1))
		require.Equal(t, Spent{Tokens: 1000, Unpriced: 1}, m.s.Spent())
		require.Equal(t, VisitRunning, m.status("B"))
		m.end("B", used(1, 10))
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, Spent{Tokens: 1001, NanoUSD: 10, Unpriced: 1}, m.s.Spent())
		m.replays()
	})
	t.Run("Task/WhatItUsedCounts", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(10))
		m.end("A", Outcome{Wait: &Wait{Completion: &CompletionWait{}}})
		out := used(10, -1)
		m.do(AttemptCompleted{Ref: Ref{Node: "A", Visit: 1}, Attempt: 1, Outcome: &out, Now: m.now})
		require.Equal(t, int64(10), m.s.Spent().Tokens)
		require.Equal(t, VisitHeld, m.status("B"))
		m.standsAt(StatusPaused, ReasonBudget)
		m.replays()
	})
	t.Run("NoUsage/GoesOn", func(t *testing.T) {
		m := budgeted(t, chain(), &Budget{NanoUSD: i64(1), Tokens: i64(1)})
		for _, id := range []string{"A", "B", "C"} {
			m.end(id, Outcome{})
		}
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Both/EitherPauses", func(t *testing.T) {
		m := budgeted(t, chain(), &Budget{NanoUSD: i64(10), Tokens: i64(1000)})
		m.end("A", used(1, 10))
		m.standsAt(StatusPaused, ReasonBudget)
		require.ErrorIs(t, m.try(Resume{Budget: tokens(5000), Now: m.now}), ErrBudget, "the other cap still holds")
		m.do(Resume{Budget: &Budget{NanoUSD: i64(11)}, Now: m.now})
		require.Equal(t, &Budget{NanoUSD: i64(11), Tokens: i64(1000)}, m.s.Budget(), "a cap that is not named stays")
	})
	t.Run("Sums/StayAtTheLargest", func(t *testing.T) {
		m := budgeted(t, chain(), &Budget{NanoUSD: i64(math.MaxInt64), Tokens: i64(math.MaxInt64)})
		m.end("A", Outcome{Usage: []Usage{{Model: "m", InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CostNanoUSD: i64(math.MaxInt64)}}})
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, Spent{NanoUSD: math.MaxInt64, Tokens: math.MaxInt64}, m.s.Spent())
		m = budgeted(t, chain(), tokens(5))
		m.end("A", Outcome{Usage: []Usage{{Model: "m", InputTokens: -50, OutputTokens: 4, CostNanoUSD: i64(-1)}}})
		require.Equal(t, Spent{Tokens: 4}, m.s.Spent(), "nobody gets tokens back")
	})
	t.Run("Negative/IsRefused", func(t *testing.T) {
		p, err := Compile(t.Context(), nodesOf("act", chain()), nil)
		require.NoError(t, err)
		_, _, err = New(p, "run").Advance(Begin{Budget: tokens(-1)})
		require.ErrorIs(t, err, ErrState)
		m := budgeted(t, chain(), tokens(5))
		require.ErrorIs(t, m.try(Resume{Budget: &Budget{NanoUSD: i64(-1)}, Now: m.now}), ErrState)
	})
	t.Run("OtherPause/StaysTheReasonAndResumeIsRefused", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(5))
		m.do(Pause{Reason: "MINE", Now: m.now})
		m.end("A", used(5, -1))
		m.standsAt(StatusPaused, "MINE")
		require.ErrorIs(t, m.try(Resume{Now: m.now}), ErrBudget)
		m.do(Resume{Budget: tokens(6), Now: m.now})
		m.standsAt(StatusRunning, "")
		m.replays()
	})
	t.Run("Changed/WhileTheRunGoesOn", func(t *testing.T) {
		m := budgeted(t, chain(), nil)
		m.end("A", used(5, -1))
		require.Nil(t, m.s.Budget())
		m.do(Resume{Budget: tokens(8), Now: m.now})
		require.Equal(t, BudgetChanged, m.events[len(m.events)-1].Kind)
		require.Equal(t, int64(5), m.s.Spent().Tokens, "what was used before counts")
		m.replays()
		m.do(Resume{Budget: tokens(2), Now: m.now})
		m.standsAt(StatusPaused, ReasonBudget)
		m.replays()
		m.end("B", used(1, -1))
		require.Equal(t, VisitHeld, m.status("C"))
		m.replays()
		require.ErrorIs(t, m.try(Resume{Now: m.now}), ErrBudget)
	})
	t.Run("Canceled/RunEnds", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(5))
		m.end("A", used(5, -1))
		m.do(Cancel{Now: m.now})
		require.Equal(t, StatusCanceled, m.s.End().Status)
		m.replays()
	})
	t.Run("Failure/WithTheLastOfTheBudgetFailsTheRun", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(5))
		err := Errorf(Permanent, "BROKEN", "")
		err.Usage = used(5, -1).Usage
		m.fail("A", err)
		require.Equal(t, StatusFailed, m.s.End().Status)
		m.replays()
	})
}

// late is the outcome of used if the price could not be asked for.
func late(n, own int64) Outcome {
	out := used(n, own)
	out.Usage[0].Unsettled = true
	return out
}

func money(n int64) *Budget { return &Budget{NanoUSD: i64(n)} }

func (m *machine) settlePrices(costs ...*int64) {
	m.t.Helper()
	m.do(Settled{Costs: costs, Now: m.now})
}

func TestCapAbove(t *testing.T) {
	capped := func(m *machine, node string) {
		st := m.open[Ref{Node: node, Visit: 1}]
		m.do(Ended{Ref: st.Ref, Attempt: st.Attempt, Err: Errorf(NotPerformed, ReasonCap, "the epic has no room"), Capped: true, Now: m.now})
	}
	wide := nodes(PassDown{}, "A", "B", "C").Edge("A", "C").Graph()

	t.Run("Attempt/IsPutBackAndTheRunPauses", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		n := len(m.events)
		capped(m, "A")
		m.standsAt(StatusPaused, ReasonCap)
		require.True(t, m.events[n].PutBack())
		require.Equal(t, RunPaused, m.events[n+1].Kind)
		capped(m, "B")
		m.standsAt(StatusPaused, ReasonCap)
		require.True(t, m.events[n+2].PutBack())
		require.Len(t, m.events, n+3, "it pauses once")
		m.replays()
		m.do(Resume{Now: m.now})
		require.Equal(t, 1, m.open[Ref{Node: "A", Visit: 1}].Attempt, "the same attempt")
		m.end("A", used(1, -1))
		m.end("B", used(1, -1))
		m.end("C", used(1, -1))
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("Attempt/ThatSaysSoItselfIsRepeated", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		n := len(m.events)
		m.fail("A", Errorf(NotPerformed, ReasonCap, "says who"))
		require.False(t, m.events[n].PutBack())
		m.standsAt(StatusRunning, "")
	})
	t.Run("Raise/EndsThePause", func(t *testing.T) {
		m := budgeted(t, wide, tokens(10))
		capped(m, "A")
		m.do(Resume{Budget: tokens(20), Raise: true, Now: m.now})
		m.standsAt(StatusRunning, "")
		m.replays()
	})
	t.Run("Pause/OfSomebodyStays", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		m.do(Pause{Reason: "USER", Now: m.now})
		capped(m, "A")
		m.standsAt(StatusPaused, "USER")
		m.replays()
	})
	t.Run("Pause/TakesThePlaceOfThatOfACap", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		capped(m, "A")
		m.standsAt(StatusPaused, ReasonCap)
		m.do(Pause{Reason: "USER", Now: m.now})
		m.standsAt(StatusPaused, "USER")
		require.Nil(t, m.s.Refused(), "it waits for the user, and not for room")
		capped(m, "B")
		m.standsAt(StatusPaused, "USER")
		m.replays()
	})
	wants := func(m *machine, node string, tokens int64) {
		st := m.open[Ref{Node: node, Visit: 1}]
		err := Errorf(NotPerformed, ReasonCap, "no room for %d", tokens)
		err.Wanted = &Usage{Model: "m", OutputTokens: tokens}
		m.do(Ended{Ref: st.Ref, Attempt: st.Attempt, Err: err, Capped: true, Now: m.now})
	}
	t.Run("Refused/IsTheFirstCallUntilTheRunGoesOn", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		require.Nil(t, m.s.Refused())
		wants(m, "A", 7)
		wants(m, "B", 9)
		require.Equal(t, &Refused{Ref: Ref{Node: "A", Visit: 1}, Attempt: 1, Wanted: Usage{Model: "m", OutputTokens: 7}, Message: "no room for 7", At: m.s.Refused().At}, m.s.Refused())
		m.replays()
		m.do(Resume{Reason: ReasonRoom, Now: m.now})
		m.standsAt(StatusRunning, "")
		require.Nil(t, m.s.Refused())
		wants(m, "B", 9)
		require.Equal(t, "B", m.s.Refused().Node)
		m.replays()
	})
	t.Run("Refused/IsKeptInASnapshot", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		wants(m, "A", 7)
		b, err := m.s.Snapshot()
		require.NoError(t, err)
		again, err := Restore(t.Context(), m.p, b)
		require.NoError(t, err)
		require.Equal(t, m.s.Refused(), again.Refused())
	})
	t.Run("Refused/IsNoneWhileSomebodyHasPausedTheRun", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		m.do(Pause{Reason: "USER", Now: m.now})
		wants(m, "A", 7)
		require.Nil(t, m.s.Refused(), "nothing resumes it by itself")
		m.replays()
	})
	t.Run("Refused/CallThatSaysNotWhatItWantsIsNone", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		capped(m, "A")
		require.Nil(t, m.s.Refused())
	})
	t.Run("End/IsNotHeldUp", func(t *testing.T) {
		m := budgeted(t, wide, nil)
		m.do(Cancel{Reason: "USER", Now: m.now})
		capped(m, "A")
		capped(m, "B")
		require.Equal(t, StatusCanceled, m.s.End().Status)
		m.replays()
	})
}

func TestBudgetUnsettled(t *testing.T) {
	chain := func() *Graph { return nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph() }
	wide := func() *Graph { return nodes(PassDown{}, "A", "B", "C").Edge("A", "C").Graph() }

	t.Run("Call/HoldsTheRunUntilItIsPriced", func(t *testing.T) {
		m := budgeted(t, chain(), &Budget{NanoUSD: i64(10), Tokens: i64(100)})
		m.end("A", late(7, -1))
		m.standsAt(StatusPaused, ReasonUnsettled)
		require.Equal(t, VisitHeld, m.status("B"))
		require.Equal(t, Spent{Tokens: 7}, m.s.Spent(), "tokens count at once")
		require.Len(t, m.s.Unsettled(), 1)
		require.Equal(t, m.now, m.s.Unsettled()[0].At)
		require.Equal(t, RunPaused, m.events[len(m.events)-1].Kind)
		m.replays()
		require.ErrorIs(t, m.try(Resume{Now: m.now}), ErrUnsettled)
		require.ErrorIs(t, m.try(Settled{Now: m.now}), ErrState)
		require.ErrorIs(t, m.try(Settled{Costs: make([]*int64, 2), Now: m.now}), ErrState)
		m.settlePrices(i64(4))
		m.standsAt(StatusRunning, "")
		require.Equal(t, VisitRunning, m.status("B"))
		require.Equal(t, ReasonSettled, m.events[len(m.events)-1].Reason)
		require.Equal(t, Spent{Tokens: 7, NanoUSD: 4}, m.s.Spent())
		require.Equal(t, int64(4), *m.s.Usage()[0].CostNanoUSD)
		require.Empty(t, m.s.Unsettled())
		m.replays()
		m.end("B", late(1, -1))
		m.settlePrices(i64(6))
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, VisitHeld, m.status("C"))
		m.replays()
		m.do(Resume{Budget: money(11), Now: m.now})
		m.end("C", late(1, -1))
		require.Equal(t, StatusCompleted, m.s.End().Status, "nothing was left to hold up")
		m.replays()
	})
	t.Run("Unknown/PriceFallsBackOnWhatTheCallSays", func(t *testing.T) {
		m := budgeted(t, wide(), money(10))
		m.end("A", late(5, 3))
		m.end("B", late(5, -1))
		require.Zero(t, m.s.Spent().NanoUSD)
		m.settlePrices(nil)
		m.standsAt(StatusPaused, ReasonUnsettled)
		m.replays()
		m.settlePrices(nil)
		m.standsAt(StatusRunning, "")
		require.Equal(t, Spent{Tokens: 10, NanoUSD: 3, Unpriced: 1}, m.s.Spent())
		require.Nil(t, m.s.Usage()[0].CostNanoUSD, "one unknown price makes the sum unknown")
		m.replays()
	})
	t.Run("NoMoneyCap/GoesOn", func(t *testing.T) {
		for _, b := range []*Budget{nil, tokens(100)} {
			m := budgeted(t, chain(), b)
			m.end("A", late(5, 2))
			m.standsAt(StatusRunning, "")
			require.Empty(t, m.s.Unsettled())
			require.Equal(t, int64(2), *m.s.Usage()[0].CostNanoUSD)
			require.False(t, m.s.Usage()[0].Unsettled)
			m.replays()
		}
	})
	t.Run("NotBegun/IsPutBackAndStartsAgain", func(t *testing.T) {
		m := budgeted(t, wide(), money(10))
		b := m.ref("B")
		m.end("A", late(4, -1))
		require.Equal(t, ReasonUnsettled, m.s.BudgetBlocker())
		m.fail("B", Errorf(NotPerformed, ReasonUnsettled, "not begun"))
		require.True(t, m.events[len(m.events)-1].PutBack())
		require.Equal(t, VisitHeld, m.status("B"))
		m.replays()
		m.settlePrices(i64(1))
		require.Equal(t, 1, m.open[b].Attempt)
		m.replays()
	})
	t.Run("OtherPause/TakesItsPlaceAndIsEndedBySomebody", func(t *testing.T) {
		m := budgeted(t, chain(), money(10))
		m.end("A", late(4, -1))
		m.do(Pause{Reason: "MINE", Now: m.now})
		m.standsAt(StatusPaused, "MINE")
		m.replays()
		m.settlePrices(i64(1))
		m.standsAt(StatusPaused, "MINE")
		m.do(Resume{Now: m.now})
		m.standsAt(StatusRunning, "")
		m.do(Pause{Reason: "MINE", Now: m.now})
		m.end("B", late(1, -1))
		m.standsAt(StatusPaused, "MINE")
		m.do(Resume{Now: m.now})
		m.standsAt(StatusPaused, ReasonUnsettled)
		require.Equal(t, VisitHeld, m.status("C"), "the wish to go on is kept")
		m.replays()
		m.settlePrices(i64(1))
		require.Equal(t, VisitRunning, m.status("C"))
		m.replays()
	})
	t.Run("OtherPause/OfTheSameNameIsEndedBySomebody", func(t *testing.T) {
		for _, caps := range []*Budget{nil, money(10)} {
			m := budgeted(t, chain(), caps)
			m.do(Pause{Reason: ReasonUnsettled, Now: m.now})
			m.standsAt(StatusPaused, ReasonUnsettled)
			m.do(Resume{Now: m.now})
			m.standsAt(StatusRunning, "")
			m.replays()
			m.do(Pause{Reason: ReasonUnsettled, Now: m.now})
			m.do(Resume{Budget: money(20), Now: m.now})
			m.standsAt(StatusRunning, "")
			m.replays()
		}
	})
	t.Run("Exhausted/IsSettledWhileItStandsStill", func(t *testing.T) {
		m := budgeted(t, wide(), &Budget{NanoUSD: i64(10), Tokens: i64(4)})
		m.end("A", used(4, 1))
		m.end("B", late(1, -1))
		m.standsAt(StatusPaused, ReasonBudget)
		m.do(Resume{Budget: tokens(50), Now: m.now})
		m.standsAt(StatusPaused, ReasonUnsettled)
		m.do(Resume{Budget: tokens(60), Now: m.now})
		require.Equal(t, BudgetChanged, m.events[len(m.events)-1].Kind)
		m.replays()
		m.settlePrices(i64(1))
		m.standsAt(StatusRunning, "")
		m.replays()
	})
	t.Run("Loop/StaysAtItsLimit", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B").Graph()
		g.Nodes[0].MaxVisits = 1
		g.Edges = append(g.Edges, Edge{From: "A", To: "A", Kind: BackEdge, When: "visit < 5"})
		m := budgeted(t, g, money(10))
		m.end("B", late(1, -1))
		m.end("A", used(1, 1))
		m.standsAt(StatusPaused, ReasonUnsettled)
		m.settlePrices(i64(1))
		m.standsAt(StatusPaused, ReasonMaxVisits)
		m.replays()
		m.do(Resume{Now: m.now})
		m.end("A", used(1, 1))
		m.replays()
	})
	t.Run("Reconciliation/StaysToBeDone", func(t *testing.T) {
		g := wide()
		g.Nodes[1].Effect = Unsafe
		m := budgeted(t, g, money(10))
		b := m.ref("B")
		m.do(Attempt{Ref: b, Attempt: 1, Now: m.now})
		m.end("A", late(1, -1))
		m.fail("B", Errorf(Unknown, "LOST", ""))
		m.standsAt(StatusPaused, ReasonUnsettled)
		m.settlePrices(i64(1))
		m.standsAt(StatusPaused, ReasonReconciliation)
		m.replays()
	})
	t.Run("FirstCap/PricesWhatWasUsedBefore", func(t *testing.T) {
		for _, before := range []*Budget{nil, tokens(1000)} {
			m := budgeted(t, chain(), before)
			m.end("A", used(5, -1))
			m.do(Resume{Budget: money(10), Price: true, Now: m.now})
			require.Equal(t, BudgetChanged, m.events[len(m.events)-2].Kind)
			m.standsAt(StatusPaused, ReasonUnsettled)
			require.Equal(t, int64(5), m.s.Unsettled()[0].Usage.tokens())
			m.replays()
			m.settlePrices(i64(9))
			require.Equal(t, Spent{Tokens: 5, NanoUSD: 9}, m.s.Spent())
			m.standsAt(StatusRunning, "")
			m.do(Resume{Budget: money(9), Price: true, Now: m.now})
			m.standsAt(StatusPaused, ReasonBudget)
			require.Empty(t, m.s.Unsettled(), "it is priced once")
			m.replays()
		}
	})
	t.Run("FirstCap/OfAPausedRun", func(t *testing.T) {
		m := budgeted(t, chain(), tokens(5))
		m.end("A", used(5, 50))
		m.do(Resume{Budget: &Budget{NanoUSD: i64(10), Tokens: i64(500)}, Price: true, Now: m.now})
		m.standsAt(StatusPaused, ReasonUnsettled)
		require.Zero(t, m.s.Spent().NanoUSD, "the price book goes first")
		m.replays()
		m.settlePrices(i64(3))
		m.standsAt(StatusRunning, "")
		require.Equal(t, int64(3), m.s.Spent().NanoUSD)
		m.replays()
	})
	t.Run("FirstCap/OfARunThatUsedNothing", func(t *testing.T) {
		m := budgeted(t, chain(), nil)
		m.end("A", Outcome{})
		m.do(Resume{Budget: money(10), Price: true, Now: m.now})
		m.standsAt(StatusRunning, "")
		m.replays()
	})
	t.Run("Child/HandsOnWhatItCouldNotPrice", func(t *testing.T) {
		for _, b := range []*Budget{money(10), tokens(100)} {
			m := budgeted(t, chain(), b)
			m.end("A", Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{ID: "x", Ref: "self"}, {ID: "y", Ref: "self"}}}}})
			ref := Ref{Node: "A", Visit: 1}
			open := late(4, 2).Usage[0]
			open.Unsettled = false
			sum := used(4, 0).Usage
			m.do(ChildEnded{Ref: ref, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Usage: sum, Spent: &Spent{Tokens: 4},
				Unsettled: []Unsettled{{Usage: open, At: m.now}}}, Now: m.now})
			m.replays()
			if !b.capsMoney() {
				m.standsAt(StatusRunning, "")
				require.Equal(t, int64(2), *m.s.Usage()[0].CostNanoUSD)
				continue
			}
			m.standsAt(StatusPaused, ReasonUnsettled)
			require.Zero(t, *m.s.Allowance(nil).NanoUSD, "nobody knows what is left")
			m.settlePrices(i64(3))
			m.standsAt(StatusRunning, "")
			require.Equal(t, int64(7), *m.s.Allowance(nil).NanoUSD)
			m.replays()
		}
	})
	t.Run("Raise/ThatChangesNothingIsNotWritten", func(t *testing.T) {
		m := budgeted(t, chain(), money(10))
		n := len(m.events)
		m.do(Resume{Raise: true, Budget: money(10), Now: m.now})
		m.do(Resume{Raise: true, Budget: money(4), Now: m.now})
		require.Len(t, m.events, n)
	})
	t.Run("Canceled/RunEnds", func(t *testing.T) {
		m := budgeted(t, chain(), money(5))
		m.end("A", late(5, -1))
		m.do(Cancel{Now: m.now})
		require.Equal(t, StatusCanceled, m.s.End().Status)
		require.Len(t, m.s.Unsettled(), 1, "its parent prices it")
		m.replays()
	})
}

func TestBudgetOfChildren(t *testing.T) {
	child := func(id string, b *Budget) Child { return Child{ID: id, Ref: "self", Budget: b} }
	graph := func() *Graph { return nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph() }
	spawn := func(m *machine) {
		m.end("A", used(4, 2))
		m.end("B", Outcome{Wait: &Wait{Children: &Children{Runs: []Child{child("x", nil), child("y", tokens(3))}}}})
	}
	allowed := func(s *State) map[string]Budget {
		out := map[string]Budget{}
		s.Allowances(func(id string, b *Budget) bool {
			if b != nil {
				out[id] = *b
			}
			return true
		})
		return out
	}

	t.Run("Child/GetsAtMostWhatIsLeft", func(t *testing.T) {
		m := budgeted(t, graph(), &Budget{NanoUSD: i64(10), Tokens: i64(100)})
		spawn(m)
		require.Equal(t, map[string]Budget{"x": {NanoUSD: i64(8), Tokens: i64(96)}, "y": {NanoUSD: i64(8), Tokens: i64(3)}}, allowed(m.s))
		m = budgeted(t, graph(), nil)
		spawn(m)
		require.Equal(t, map[string]Budget{"y": *tokens(3)}, allowed(m.s))
	})
	t.Run("Child/CountsWhenItEnds", func(t *testing.T) {
		m := budgeted(t, graph(), tokens(100))
		spawn(m)
		b := Ref{Node: "B", Visit: 1}
		m.do(ChildEnded{Ref: b, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Usage: used(50, -1).Usage}, Now: m.now})
		require.Equal(t, Spent{Tokens: 54, NanoUSD: 2, Unpriced: 1}, m.s.Spent())
		// The child's own count wins over the sum of its usage.
		m.do(ChildEnded{Ref: b, Slot: ChildSlot{RunID: "y", Status: StatusCompleted, Usage: used(50, -1).Usage,
			Spent: &Spent{Tokens: 50, NanoUSD: 7, Unpriced: 2}}, Now: m.now})
		require.Equal(t, Spent{Tokens: 104, NanoUSD: 9, Unpriced: 3}, m.s.Spent())
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, VisitHeld, m.status("C"))
		m.replays()
	})
	t.Run("Raise/OnlyRaisesAndEndsNoOtherPause", func(t *testing.T) {
		m := budgeted(t, graph(), &Budget{NanoUSD: i64(10), Tokens: i64(4)})
		m.end("A", used(4, 2))
		m.standsAt(StatusPaused, ReasonBudget)
		m.do(Resume{Raise: true, Budget: tokens(1), Now: m.now})
		m.standsAt(StatusPaused, ReasonBudget)
		require.Equal(t, tokens(4).Tokens, m.s.Budget().Tokens)
		m.do(Resume{Raise: true, Budget: &Budget{NanoUSD: i64(3), Tokens: i64(9)}, Now: m.now})
		m.standsAt(StatusRunning, "")
		require.Equal(t, &Budget{NanoUSD: i64(10), Tokens: i64(9)}, m.s.Budget())
		m.do(Pause{Reason: "MINE", Now: m.now})
		m.do(Resume{Raise: true, Budget: tokens(20), Now: m.now})
		m.standsAt(StatusPaused, "MINE")
		require.Equal(t, int64(20), *m.s.Budget().Tokens)
		m.replays()
	})
	t.Run("InMemory/ChildThatComesToItsCapFails", func(t *testing.T) {
		inner := nodes(PassDown{}, "P", "Q").Edge("P", "Q").Graph()
		outer := nodes(PassDown{}, "S").Graph()
		outer.Nodes[0].Actor = "spawn"
		actors := Actors{
			"act": ActorFunc(func(context.Context, *Call) (Outcome, error) { return used(5, -1), nil }),
			"spawn": ActorFunc(func(context.Context, *Call) (Outcome, error) {
				return Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{Graph: inner}}}}}, nil
			}),
		}
		for i := range inner.Nodes {
			inner.Nodes[i].Actor = "act"
		}
		res, err := Run(t.Context(), outer, actors, Input{}, WithBudget(*tokens(5)))
		require.NoError(t, err)
		require.Contains(t, string(res.Result), ReasonBudget)
	})
}

func TestBudgetCosts(t *testing.T) {
	t.Run("Without/NothingIsWritten", func(t *testing.T) {
		m := budgeted(t, nodes(PassDown{}, "A", "B").Edge("A", "B").Graph(), nil)
		m.end("A", used(5, 5))
		m.end("B", used(5, 5))
		snap, err := m.s.Snapshot()
		require.NoError(t, err)
		for _, text := range []string{mustJSON(m.events), string(snap)} {
			for _, word := range []string{"budget", "spent", "PAUSE"} {
				require.NotContains(t, text, fmt.Sprintf("%q", word))
			}
		}
	})
}

// TestUsed reads what a run has used from a call in it.
func TestUsed(t *testing.T) {
	read := func(m *machine) string {
		t.Helper()
		c := NewCall(Start{}, CallOptions{Scope: m.s.ScopeOf(Ref{Node: "C", Visit: 1})})
		raw, ok := c.Var("usage")
		require.True(t, ok)
		require.True(t, c.Looked(), "an equal call later may read something else")
		return string(raw)
	}
	chain := nodes(PassDown{}, "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph()
	for name, b := range map[string]*Budget{"Free": nil, "Budget": {NanoUSD: i64(1 << 40)}} {
		t.Run(name, func(t *testing.T) {
			m := budgeted(t, chain, b)
			require.JSONEq(t, `{"input_tokens": 0, "output_tokens": 0, "tokens": 0, "nano_usd": 0, "unpriced": 0}`, read(m))
			m.end("A", used(9, 500))
			require.JSONEq(t, `{"input_tokens": 4, "output_tokens": 5, "tokens": 9, "nano_usd": 500, "unpriced": 0}`, read(m))
			m.end("B", Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{ID: "x", Ref: "self"}}}}})
			m.do(ChildEnded{Ref: Ref{Node: "B", Visit: 1}, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Result: one(`1`)[0],
				Usage: []Usage{{Model: "other", InputTokens: 100, OutputTokens: 1}}}, Now: m.now})
			require.Equal(t, VisitRunning, m.status("C"))
			require.JSONEq(t, `{"input_tokens": 104, "output_tokens": 6, "tokens": 110, "nano_usd": 500, "unpriced": 1}`, read(m), "what a child used counts when it has ended")
			m.replays()
		})
	}
	_, ok := NewCall(Start{}, CallOptions{}).Var("usage")
	require.False(t, ok, "a call outside of a run")
}
