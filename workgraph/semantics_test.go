package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func compile(t *testing.T, g *Graph) *Program {
	t.Helper()
	p, err := Compile(t.Context(), nodesOf("x", g), nil)
	require.NoError(t, err)
	return p
}

// star is n start nodes that join in J.
func star(n int, join Join) *Graph {
	b := NewBuilder("")
	for i := range n {
		b.Node(fmt.Sprintf("s%d", i), "x", Pass(FirstArg()))
	}
	b.Add(Node{ID: "J", Actor: "x", Join: join})
	for i := range n {
		b.Edge(fmt.Sprintf("s%d", i), "J")
	}
	return b.Graph()
}

func TestJoins(t *testing.T) {
	t.Run("Any/RunsOnTheFirstAndIgnoresTheRest", func(t *testing.T) {
		m := newMachine(t, compile(t, star(3, Join{Mode: Any})))
		m.begin()
		m.end("s1", Outcome{Values: one(`"first"`)})
		require.Equal(t, []string{`"first"`}, m.args("J"))
		m.end("J", Outcome{Values: one(`"J"`)})
		require.Nil(t, m.s.End(), "the losers finish by default")
		m.end("s0", Outcome{Values: one(`"late"`)})
		m.end("s2", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.JSONEq(t, `"J"`, string(m.s.End().Result))
	})
	t.Run("Any/CancelsLosersAndWhatOnlyServesThem", func(t *testing.T) {
		g := star(2, Join{Mode: Any, Losers: CancelLosers})
		g.Nodes = append(g.Nodes, Node{ID: "before", Actor: "x"})
		g.Edges = append(g.Edges, Edge{From: "before", To: "s1"})
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("s0", Outcome{Values: one("1")})
		require.Equal(t, []Ref{{Node: "before", Visit: 1}}, m.cancels, "s1 has not begun, what it waits for serves nothing else")
		require.Equal(t, VisitCanceled, m.status("s1"))
		m.end("J", Outcome{})
		m.fail("before", Errorf(Unknown, ReasonCanceled, ""))
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Any/AllDeadIsSkipped", func(t *testing.T) {
		m := newMachine(t, compile(t, star(2, Join{Mode: Any})))
		m.begin()
		m.end("s0", Outcome{Stop: AbstainResult})
		m.end("s1", Outcome{Stop: AbstainResult})
		require.Equal(t, VisitSkipped, m.status("J"))
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Quorum/RunsWhenMet", func(t *testing.T) {
		m := newMachine(t, compile(t, star(3, Join{Mode: Quorum, N: 2})))
		m.begin()
		m.end("s2", Outcome{Values: one("2")})
		m.end("s0", Outcome{Values: one("0")})
		require.Equal(t, []string{"0", "2"}, m.args("J"), "inputs in declared order")
	})
	t.Run("Quorum/UnreachableFailsTheVisit", func(t *testing.T) {
		m := newMachine(t, compile(t, star(3, Join{Mode: Quorum, N: 2})))
		m.begin()
		m.end("s0", Outcome{Stop: AbstainResult})
		m.end("s1", Outcome{Stop: AbstainResult})
		m.fail("s2", Errorf(Unknown, ReasonCanceled, "")) // canceled by the failing run
		require.Equal(t, StatusFailed, m.s.End().Status)
		require.Equal(t, ReasonQuorumUnreachable, m.s.End().Error.Reason)
		require.Equal(t, &Ref{Node: "J", Visit: 1}, m.s.End().Failed)
	})
	t.Run("Quorum/OfABranchThatWasNotTakenIsSkipped", func(t *testing.T) {
		// The design fails a quorum that cannot be met. If none of its sources ran, the branch was not taken
		// at all, and the skip goes on as for the other joins.
		g := star(2, Join{Mode: Quorum, N: 2})
		g.Nodes[0].When, g.Nodes[1].When = "false", "false"
		m := newMachine(t, compile(t, g))
		m.begin()
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitSkipped, m.status("J"))
	})
	t.Run("Skipped/GoesOn", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B", "C", "D").Chain("A", "B", "C", "D").Graph()
		g.Nodes[1].When = "false"
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitSkipped, m.status("D"))
		require.JSONEq(t, "1", string(m.s.End().Result))
	})
	t.Run("MissingKey/MakesTheConditionFalseAndIsRecorded", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B").Edge("A", "B", When("result.absent == 1")).Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one(`{"there": 1}`)})
		step := m.events[1].Steps[1]
		require.Equal(t, OpEdge, step.Op)
		require.False(t, step.Live)
		require.Contains(t, step.Note, "missing: no such key: absent")
	})
	t.Run("BrokenCondition/FailsItsSource", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B").Edge("A", "B", When(`result < "text"`)).Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, ReasonConditionFailed, m.s.End().Error.Reason)
	})
	t.Run("Integers/KeepSixtyFourBits", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Edge("A", "B", When("result.id == 9007199254740993 && type(result.id) == int")).Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one(`{"id":9007199254740993}`)})
		require.Equal(t, []string{`{"id":9007199254740993}`}, m.args("B"))
	})
	t.Run("CostLimit/EndsARunawayExpression", func(t *testing.T) {
		big := "[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]"
		g := nodes(FirstArg(), "A", "B").Edge("A", "B", When("result.all(x, result.all(y, x == y))")).Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one(big)})
		require.Equal(t, ReasonConditionFailed, m.s.End().Error.Reason)
		require.Contains(t, m.s.End().Error.Message, "cost limit")
	})
}

func TestLoops(t *testing.T) {
	// refine loops H -> W -> back to H until W's result is good enough, and then goes on to X.
	refine := func(limit int) *Graph {
		g := nodes(FirstArg(), "H", "W", "X").Chain("H", "W").Edge("W", "X").Back("W", "H", "result < 3").Graph()
		g.Nodes[0].MaxVisits = limit
		return g
	}
	t.Run("Back/VisitsCountAndTheExitCarriesTheLastRound", func(t *testing.T) {
		tr := newTrace(t).on("H", add(1)).on("W", add(0)).on("X", args)
		result(t, []any{3}, tr.run(refine(0), 0))
		require.Equal(t, "H W H W H W X", strings.Join(tr.calls, " "))
	})
	t.Run("Limit/PausesWithWorkKeptAndResumes", func(t *testing.T) {
		tr := newTrace(t).on("H", add(1)).on("W", add(0)).on("X", args)
		res := tr.run(refine(2), 0)
		require.Equal(t, StatusPaused, res.Status)
		require.Equal(t, ReasonMaxVisits, res.Reason)
		require.JSONEq(t, "2", string(res.Result), "the work so far is kept")

		m := newMachine(t, compile(t, refine(2)))
		m.begin("0")
		for range 2 {
			m.end("H", Outcome{Values: one("1")})
			m.end("W", Outcome{Values: one("1")})
		}
		st, reason := m.s.Status()
		require.Equal(t, StatusPaused, st)
		require.Equal(t, ReasonMaxVisits, reason)
		m.do(Resume{Now: m.now})
		require.Equal(t, Ref{Node: "H", Visit: 3}, m.ref("H"))
		m.end("H", Outcome{Values: one("1")})
		m.end("W", Outcome{Values: one("3")})
		m.end("X", Outcome{Values: one(`"done"`)})
		require.JSONEq(t, `"done"`, string(m.s.End().Result))
	})
	t.Run("Default/HundredVisits", func(t *testing.T) {
		g := nodes(FirstArg(), "n").Back("n", "n", "true").Graph()
		tr := newTrace(t).on("n", add(1))
		res := tr.run(g, 0)
		require.Equal(t, StatusPaused, res.Status)
		require.Len(t, tr.calls, DefaultMaxVisits)
	})
	t.Run("Rounds/StartWhenEveryBackEdgeIsDecided", func(t *testing.T) {
		g := nodes(FirstArg(), "H", "F", "S", "J").Edge("H", "F").Edge("H", "S").Edge("F", "J").Edge("S", "J").
			Back("F", "H", "visit < 2").Back("J", "H", "false").Graph()
		m := newMachine(t, compile(t, g))
		m.begin("0")
		m.end("H", Outcome{Values: one("1")})
		m.end("F", Outcome{Values: one(`"f1"`)})
		require.NotContains(t, m.open, Ref{Node: "H", Visit: 2}, "the BACK edge from J may still deliver")
		m.end("S", Outcome{Values: one(`"s1"`)})
		require.Equal(t, []string{`"f1"`, `"s1"`}, m.args("J"))
		m.end("J", Outcome{})
		require.Contains(t, m.open, Ref{Node: "H", Visit: 2})
	})
	t.Run("Rounds/OverlapAndJoinsMatchByVisit", func(t *testing.T) {
		// There is no barrier between rounds: a slow node of round 1 runs beside round 2, and delivers to its
		// own round only.
		g := nodes(FirstArg(), "H", "F", "S", "J", "X").Edge("H", "F").Edge("H", "S").Edge("F", "J").Edge("S", "J").
			Back("J", "H", "visit < 2").Edge("J", "X").Graph()
		g.Nodes[3].Join.Mode = Any
		m := newMachine(t, compile(t, g))
		m.begin("0")
		m.end("H", Outcome{Values: one("1")})
		m.end("F", Outcome{Values: one(`"f1"`)})
		m.end("J", Outcome{Values: one(`"j1"`)})
		m.end("H", Outcome{Values: one("2")})
		require.Contains(t, m.open, Ref{Node: "S", Visit: 1})
		require.Contains(t, m.open, Ref{Node: "S", Visit: 2})
		m.endRef(Ref{Node: "S", Visit: 1}, &Outcome{Values: one(`"late"`)}, nil)
		require.NotContains(t, m.open, Ref{Node: "J", Visit: 2}, "the late arrival belongs to round 1")
		m.end("F", Outcome{Values: one(`"f2"`)})
		require.Equal(t, []string{`"f2"`}, m.args("J"))
		m.end("J", Outcome{Values: one(`"j2"`)})
		require.NotContains(t, m.open, Ref{Node: "X", Visit: 1}, "exit edges resolve when the loop has ended")
		m.end("S", Outcome{})
		require.Equal(t, []string{`"j2"`}, m.args("X"))
	})
	t.Run("Nested/InnerLoopRunsAnewInEveryOuterRound", func(t *testing.T) {
		g := nodes(PassDown{}, "O", "I", "E", "X").Chain("O", "I", "E", "X").Back("I", "I", "visit % 2 == 1").Back("E", "O", "visit < 3").Graph()
		tr := newTrace(t).on("O", text("o")).on("I", text("i")).on("E", text("e")).on("X", text("x"))
		result(t, "x", tr.run(g))
		require.Equal(t, "O I I E O I I E O I I E X", strings.Join(tr.calls, " "))
	})
	t.Run("Skipped/ALoopThatIsNotEnteredIsSkippedAsAWhole", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "H", "W", "X").Edge("A", "H", When("false")).Chain("H", "W").Edge("W", "X").Back("W", "H", "true").Graph()
		tr := newTrace(t).on("A", text("a"))
		result(t, "a", tr.run(g))
	})
	t.Run("Irreducible/WithAnyJoinsEveryDeliveryIsAVisit", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "L", "R", "X").Edge("A", "L").Edge("A", "R").Edge("L", "R").Back("R", "L", "visit < 3").Edge("R", "X").Graph()
		g.Nodes[1].Join.Mode, g.Nodes[2].Join.Mode = Any, Any
		require.Empty(t, faultsOf(nodesOf("x", g), nil))
		tr := newTrace(t).on("A", add(0)).on("L", add(1)).on("R", add(1)).on("X", args)
		res := tr.run(g, 0)
		require.Equal(t, StatusCompleted, res.Status)
		require.Equal(t, 1, strings.Count(strings.Join(tr.calls, " "), "X"), "the exit resolves once, when the loop has ended")
		g.Nodes[2].Join.Mode = All
		require.Equal(t, CodeIrreducible, faultsOf(nodesOf("x", g), nil)[0].Code)
	})
}

func TestErrorPolicies(t *testing.T) {
	broken := Errorf(Permanent, "BROKEN", "it broke")
	t.Run("Fail/CancelsPureDrainsUnsafe", func(t *testing.T) {
		g := nodesOf("x", nodes(PassDown{}, "bad", "pure", "unsafe", "new").Edge("pure", "new").Graph())
		g.Nodes[1].Effect, g.Nodes[2].Effect = Pure, Unsafe
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.do(Attempt{Ref: m.ref("unsafe"), Attempt: 1, Now: m.now})
		m.fail("bad", broken)
		require.Equal(t, []Ref{{Node: "pure", Visit: 1}}, m.cancels)
		require.True(t, m.s.Draining())
		m.end("pure", Outcome{Values: one("1")})
		require.NotContains(t, m.open, Ref{Node: "new", Visit: 1})
		m.end("unsafe", Outcome{Values: one("2")})
		end := m.s.End()
		require.Equal(t, StatusFailed, end.Status)
		require.Equal(t, "bad: BROKEN: it broke", end.Message)
		require.JSONEq(t, `{"pure":1,"unsafe":2}`, string(js(end.Outputs)), "finished work is kept")
	})
	t.Run("Continue/MakesTheEdgesDead", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B").Chain("A", "B").Graph()
		g.Nodes[0].OnError.Action = Continue
		m := newMachine(t, compile(t, g))
		m.begin()
		m.fail("A", broken)
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitFailed, m.status("A"))
		require.Equal(t, VisitSkipped, m.status("B"))
	})
	t.Run("Route/FiresErrorEdgesOnFailureOnly", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "ok", "rescue").Edge("A", "ok").Edge("A", "rescue", OnFailure()).Graph()
		g.Nodes[0].OnError.Action = Route
		m := newMachine(t, compile(t, g))
		m.begin()
		m.fail("A", broken)
		require.Equal(t, VisitSkipped, m.status("ok"))
		require.JSONEq(t, `{"type":"PERMANENT","reason":"BROKEN","message":"it broke"}`, m.args("rescue")[0])

		m = newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{})
		require.Equal(t, VisitSkipped, m.status("rescue"))
	})
	t.Run("Route/AnErrorThatNoEdgeTakesFailsTheRun", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "rescue").Edge("A", "rescue", OnFailure(), When(`result.reason == "OTHER"`)).Graph()
		g.Nodes[0].OnError.Action = Route
		m := newMachine(t, compile(t, g))
		m.begin()
		m.fail("A", broken)
		require.Equal(t, StatusFailed, m.s.End().Status)
	})
}

func TestUnsafe(t *testing.T) {
	unsafe := func(t *testing.T, attempts int) *machine {
		g := nodesOf("x", nodes(FirstArg(), "U", "next").Chain("U", "next").Graph())
		g.Nodes[0].Effect, g.Nodes[0].Retry = Unsafe, Retry{MaxAttempts: attempts, InitialBackoff: 1}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.do(Attempt{Ref: m.ref("U"), Attempt: 1, Now: m.now})
		return m
	}
	needs := func(t *testing.T, m *machine) {
		st, reason := m.s.Status()
		require.Equal(t, StatusPaused, st)
		require.Equal(t, ReasonReconciliation, reason)
		require.Equal(t, VisitReconciliation, m.status("U"))
		require.ErrorIs(t, m.try(Resume{Now: m.now}), ErrReconcile)
	}
	t.Run("Unknown/NeedsReconciliationAndIsNeverRetried", func(t *testing.T) {
		m := unsafe(t, 5)
		m.fail("U", Errorf(Unknown, ReasonTimeout, ""))
		needs(t, m)
		m.do(Reconcile{Ref: Ref{Node: "U", Visit: 1}, Outcome: &Outcome{Values: one(`"it happened"`)}, Now: m.now})
		m.do(Resume{Now: m.now})
		require.Equal(t, []string{`"it happened"`}, m.args("next"))
	})
	t.Run("Unknown/IsInTheEndOfARunThatEndsFirst", func(t *testing.T) {
		told := []Ref{{Node: "U", Visit: 1}}
		ended := func(t *testing.T, m *machine, st Status) {
			t.Helper()
			require.Equal(t, st, m.s.End().Status)
			require.Equal(t, told, m.s.End().Unknown)
			require.Equal(t, told, m.s.Unknown())
		}
		t.Run("CanceledWhileItWaitsForReconciliation", func(t *testing.T) {
			m := unsafe(t, 1)
			m.fail("U", Errorf(Unknown, ReasonTimeout, ""))
			require.Equal(t, told, m.s.Unknown())
			m.do(Cancel{Now: m.now})
			ended(t, m, StatusCanceled)
		})
		t.Run("CanceledWhileItIsUnderWay", func(t *testing.T) {
			m := unsafe(t, 1)
			m.do(Cancel{Now: m.now})
			m.fail("U", Errorf(Unknown, ReasonCanceled, ""))
			ended(t, m, StatusCanceled)
		})
		t.Run("ItemOfAMap", func(t *testing.T) {
			g := nodesOf("x", nodes(FirstArg(), "U").Graph())
			g.Nodes[0].Effect, g.Nodes[0].Map = Unsafe, &Map{Over: "[1, 2]"}
			m := newMachine(t, compile(t, g))
			m.begin()
			at := Ref{Node: "U", Visit: 1, Item: 2}
			for item := 1; item <= 2; item++ {
				m.do(Attempt{Ref: Ref{Node: "U", Visit: 1, Item: item}, Attempt: 1, Now: m.now})
			}
			m.do(Ended{Ref: Ref{Node: "U", Visit: 1, Item: 1}, Attempt: 1, Outcome: &Outcome{}, Now: m.now})
			m.do(Ended{Ref: at, Attempt: 1, Err: Errorf(Unknown, ReasonTimeout, ""), Now: m.now})
			told = []Ref{at}
			m.do(Cancel{Now: m.now})
			ended(t, m, StatusCanceled)
		})
		t.Run("NotWhatIsKnown", func(t *testing.T) {
			m := unsafe(t, 1)
			m.do(Cancel{Now: m.now})
			m.fail("U", Errorf(NotPerformed, ReasonCanceled, ""))
			require.Empty(t, m.s.End().Unknown)
		})
	})
	t.Run("LostOwner/NeedsReconciliation", func(t *testing.T) {
		m := unsafe(t, 1)
		m.do(Recover{Now: m.now})
		needs(t, m)
		key := func() string { st := m.open[m.ref("U")]; return st.EffectKey() }
		before := key()
		m.do(Reconcile{Ref: Ref{Node: "U", Visit: 1}, Err: Errorf(NotPerformed, "NO", ""), Now: m.now})
		m.do(Resume{Now: m.now})
		require.Equal(t, 2, m.open[m.ref("U")].Attempt)
		require.Equal(t, before, key(), "the effect did not happen, so it keeps its key")
	})
	t.Run("NotBegun/IsGivenOutAgain", func(t *testing.T) {
		g := nodesOf("x", nodes(FirstArg(), "U").Graph())
		g.Nodes[0].Effect = Unsafe
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.do(Recover{Now: m.now})
		require.Len(t, m.s.Outstanding(), 1, "without an intent nothing can have happened")
	})
	t.Run("Retry/OnlyWhatWasNotPerformed", func(t *testing.T) {
		m := unsafe(t, 3)
		m.fail("U", Errorf(Retryable, "HTTP_503", ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
		m = unsafe(t, 3)
		m.fail("U", Errorf(NotPerformed, "NO_WORKER", ""))
		require.Equal(t, VisitBackoff, m.status("U"))
	})
	t.Run("Generation/ChangesAfterADefiniteFailureOnly", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		for _, c := range []struct {
			err ErrorType
			gen int
		}{{Unknown, 1}, {Retryable, 2}} {
			m.fail("A", Errorf(c.err, "X", ""))
			m.now = m.now.Add(time.Minute)
			m.do(TimerDue{Now: m.now})
			st := m.open[m.ref("A")]
			require.Equal(t, fmt.Sprintf("run/A/1/0/%d", c.gen), st.EffectKey())
		}
	})
}

func TestTimers(t *testing.T) {
	t.Run("Backoff/GrowsAndHonorsRetryAfter", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = Retry{MaxAttempts: 4, InitialBackoff: Duration(time.Second), Jitter: Unlimited}
		m := newMachine(t, compile(t, g))
		m.begin()
		for _, want := range []time.Duration{time.Second, 2 * time.Second} {
			m.fail("A", Errorf(Retryable, "X", ""))
			at, ok := m.s.NextTimer()
			require.True(t, ok)
			require.Equal(t, want, at.Sub(m.now))
			m.now = at
			m.do(TimerDue{Now: m.now})
		}
		m.fail("A", &Error{Type: Retryable, Reason: "X", RetryAfter: Duration(time.Minute)})
		at, _ := m.s.NextTimer()
		require.Equal(t, time.Minute, at.Sub(m.now))
	})
	t.Run("Backoff/NobodyParksARunForGood", func(t *testing.T) {
		for _, asked := range []time.Duration{MaxRetryAfter + 1, math.MaxInt64} {
			g := nodes(FirstArg(), "A").Graph()
			g.Nodes[0].Retry = Retry{MaxAttempts: 2, InitialBackoff: Duration(time.Second), Jitter: Unlimited}
			m := newMachine(t, compile(t, g))
			m.begin()
			m.fail("A", &Error{Type: Retryable, Reason: "X", RetryAfter: Duration(asked)})
			at, ok := m.s.NextTimer()
			require.True(t, ok)
			require.Equal(t, MaxRetryAfter, at.Sub(m.now))
		}
	})
	t.Run("Wait/EndsTheVisitWithItsValues", func(t *testing.T) {
		g := nodes(FirstArg(), "sleep", "after").Chain("sleep", "after").Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("sleep", Outcome{Values: one(`"slept"`), Wait: &Wait{Timer: &Timer{After: Duration(time.Hour)}}})
		require.Zero(t, m.s.InFlight())
		require.Equal(t, VisitWaiting, m.status("sleep"))
		m.do(TimerDue{Now: m.now.Add(time.Minute)})
		require.Equal(t, VisitWaiting, m.status("sleep"))
		m.do(TimerDue{Now: m.now.Add(time.Hour)})
		require.Equal(t, []string{`"slept"`}, m.args("after"))
	})
	t.Run("Terminate/CancelsBackoffs", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Graph()))
		m.begin()
		m.fail("A", Errorf(Retryable, "X", ""))
		m.end("B", Outcome{Stop: Terminate})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitCanceled, m.status("A"))
	})
}

func TestPauseAndCancel(t *testing.T) {
	t.Run("Pause/HoldsStartsUntilResume", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()))
		m.begin()
		m.do(Pause{Reason: "BUDGET", Now: m.now})
		m.end("A", Outcome{})
		require.Equal(t, VisitHeld, m.status("B"))
		m.do(Resume{Now: m.now})
		m.end("B", Outcome{Values: one("1")})
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Cancel/ReachesEverythingInFlight", func(t *testing.T) {
		g := nodesOf("x", nodes(FirstArg(), "A", "U", "late").Chain("A", "late").Graph())
		g.Nodes[1].Effect = Unsafe
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.do(Attempt{Ref: m.ref("U"), Attempt: 1, Now: m.now})
		m.do(Cancel{Reason: "user", Now: m.now})
		require.Len(t, m.cancels, 2)
		m.fail("A", Errorf(Unknown, ReasonCanceled, ""))
		m.fail("U", Errorf(Unknown, ReasonCanceled, ""))
		require.Equal(t, StatusCanceled, m.s.End().Status)
		require.Equal(t, "user", m.s.End().Message)
		require.Equal(t, VisitReconciliation, m.status("U"), "nobody knows whether the call took effect")
		require.ErrorIs(t, m.try(Cancel{Now: m.now}), ErrEnded)
	})
}

func TestMaps(t *testing.T) {
	t.Parallel()
	mapped := func(m Map) *Graph {
		g := nodes(PassDown{}, "M").Graph()
		g.Nodes[0].Map = &m
		g.Nodes[0].Retry.MaxAttempts = 1
		return g
	}
	t.Run("Items/ResultsInItemOrder", func(t *testing.T) {
		tr := newTrace(t).on("M", double)
		result(t, []any{map[string]any{"ok": 2}, map[string]any{"ok": 4}, map[string]any{"ok": 6}}, tr.run(mapped(Map{Over: "[1,2,3]"})))
	})
	t.Run("Window/LimitsWhatIsInFlight", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped(Map{Over: "args[0]", As: "item", MaxParallel: 2})))
		m.begin("[1,2,3,4,5]")
		require.Len(t, m.open, 2)
		st := m.open[Ref{Node: "M", Visit: 1, Item: 2}]
		require.Equal(t, "2", string(st.Named["item"]))
		require.Equal(t, "run/M/1/2/1", st.EffectKey())
		m.endRef(Ref{Node: "M", Visit: 1, Item: 1}, &Outcome{}, nil)
		require.Len(t, m.open, 2)
		require.Contains(t, m.open, Ref{Node: "M", Visit: 1, Item: 3})
	})
	t.Run("TenThousandItems", func(t *testing.T) {
		list := make([]int, 10_000)
		tr := newTrace(t).raw("M", func(*Call) (Outcome, error) { return Outcome{Values: one("1")}, nil })
		res := tr.run(mapped(Map{Over: "args[0]"}), list)
		require.Equal(t, StatusCompleted, res.Status)
		var got []map[string]int
		require.NoError(t, json.Unmarshal(res.Result, &got))
		require.Len(t, got, 10_000)
	})
	t.Run("Empty/CompletesAtOnce", func(t *testing.T) {
		tr := newTrace(t)
		result(t, []any{}, tr.run(mapped(Map{Over: "[]"})))
	})
	odd := func(c *Call) (Outcome, error) {
		if c.Item%2 == 1 {
			return Outcome{}, Errorf(Permanent, "ODD", "")
		}
		return Outcome{Values: one("0")}, nil
	}
	t.Run("Errors/FailFast", func(t *testing.T) {
		tr := newTrace(t).raw("M", odd)
		require.Equal(t, "ODD", tr.run(mapped(Map{Over: "[1,2,3,4]", MaxParallel: 1})).Error.Reason)
		require.Len(t, tr.calls, 1)
	})
	t.Run("Errors/Continue", func(t *testing.T) {
		res := newTrace(t).raw("M", odd).run(mapped(Map{Over: "[1,2]", OnItemError: ContinueItems}))
		require.JSONEq(t, `[{"error":{"type":"PERMANENT","reason":"ODD"}},{"ok":0}]`, string(res.Result))
	})
	t.Run("Errors/Quorum", func(t *testing.T) {
		res := newTrace(t).raw("M", odd).run(mapped(Map{Over: "[1,2,3,4]", OnItemError: QuorumItems, Quorum: 2}))
		require.Equal(t, StatusCompleted, res.Status)
		res = newTrace(t).raw("M", odd).run(mapped(Map{Over: "[1,2,3,4]", OnItemError: QuorumItems, Quorum: 3}))
		require.Equal(t, ReasonQuorumUnreachable, res.Error.Reason)
	})
}

func TestState(t *testing.T) {
	g := NewBuilder("").Node("A", "x").Node("B", "x").Node("C", "x").Edge("A", "B").
		Edge("B", "C", When(`state.log == ["a","b"] && state.sum == 9007199254740995 && size(state.rows) == 1 && state.last == "B"`)).
		State("log", Append).State("sum", Add).State("rows", AppendByID).State("last", Replace).Graph()
	m := newMachine(t, compile(t, g))
	m.begin()
	m.end("A", Outcome{State: map[string]json.RawMessage{"log": js("a"), "sum": js(9007199254740993), "rows": js([]any{map[string]any{"id": "r", "v": 1}})}})
	m.end("B", Outcome{State: map[string]json.RawMessage{"log": js([]string{"b"}), "sum": js(2), "rows": js(map[string]any{"id": "r", "v": 2}), "last": js("B")}})
	require.JSONEq(t, `{"log":["a","b"],"sum":9007199254740995,"rows":[{"id":"r","v":2}],"last":"B"}`, string(js(m.s.StateValues())))
	m.end("C", Outcome{State: map[string]json.RawMessage{"unknown": js(1)}})
	require.Equal(t, ReasonStateRefused, m.s.End().Error.Reason)
}

func TestPropagationLimits(t *testing.T) {
	t.Parallel()
	echo := Actors{"x": ActorFunc(func(_ context.Context, c *Call) (Outcome, error) { return Outcome{Values: one("1")}, nil })}
	// lattice is n diamonds in a row.
	lattice := func(n int) *Graph {
		b := NewBuilder("").Node("j0", "x")
		for i := range n {
			from, l, r, to := fmt.Sprintf("j%d", i), fmt.Sprintf("l%d", i), fmt.Sprintf("r%d", i), fmt.Sprintf("j%d", i+1)
			b.Node(l, "x").Node(r, "x").Node(to, "x").Edge(from, l).Edge(from, r).Edge(l, to).Edge(r, to)
		}
		return b.Graph()
	}
	t.Run("Positionals/DoNotDoubleWithoutEnd", func(t *testing.T) {
		res, err := Run(t.Context(), lattice(60), echo, Input{Args: one(`"a"`)})
		require.NoError(t, err)
		require.Equal(t, StatusFailed, res.Status)
		require.Equal(t, ReasonTooManyArguments, res.Error.Reason)
		require.Equal(t, "j16", res.Failed.Node)
	})
	t.Run("Positionals/ALatticeWithoutArgumentsRuns", func(t *testing.T) {
		res, err := Run(t.Context(), lattice(60), echo, Input{})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, res.Status)
	})
	t.Run("Positionals/AWideJoinRuns", func(t *testing.T) {
		g := star(maxPropagatedArgs+1, Join{})
		res, err := Run(t.Context(), g, echo, Input{Args: one("1")})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, res.Status, "one for each edge is allowed")
	})
	t.Run("Key/WhatComesTogetherIsBounded", func(t *testing.T) {
		large, err := json.Marshal(strings.Repeat("y", maxPropagatedBytes/8))
		require.NoError(t, err)
		big := Actors{"x": ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{Values: []json.RawMessage{large}}, nil })}
		g := star(9, Join{})
		for i := range g.Edges {
			g.Edges[i].PassDown = PassDown{Mode: KeyPassDown, Key: "k"}
		}
		res, err := Run(t.Context(), g, big, Input{})
		require.NoError(t, err)
		require.Equal(t, ReasonArgumentsTooLarge, res.Error.Reason)
	})
}
