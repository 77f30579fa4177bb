package workgraph

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waits are outcomes that begin a wait.
func waits() map[string]Outcome {
	return map[string]Outcome{
		"Timer":     {Wait: &Wait{Timer: &Timer{After: Duration(time.Hour)}}},
		"Children":  spawn("x"),
		"Interrupt": {Wait: &Wait{Interrupt: &Interrupt{ID: "q", Prompt: json.RawMessage(`"?"`)}}},
		"Signal":    {Wait: &Wait{Signal: &SignalWait{Name: "s"}}},
		"Task":      {Wait: &Wait{Completion: &CompletionWait{}}},
	}
}

// lostRace is a run in which B was faster than A, whose call is still under way. C runs beside them.
func lostRace(t *testing.T, change func(*Graph)) *machine {
	t.Helper()
	g := nodes(FirstArg(), "A", "B", "J", "C").Edge("A", "J").Edge("B", "J").Graph()
	g.Nodes[2].Join = Join{Mode: Any, Losers: CancelLosers}
	change(g)
	m := newMachine(t, compile(t, g))
	m.begin()
	if g.Nodes[0].Effect == Unsafe {
		m.do(Attempt{Ref: m.ref("A"), Attempt: 1, Now: m.now})
	}
	m.end("B", Outcome{Values: one("1")})
	m.end("J", Outcome{})
	return m
}

// completes ends C and so the run.
func completes(m *machine) {
	m.t.Helper()
	require.Nil(m.t, m.s.End(), "C goes on")
	m.end("C", Outcome{Values: one("3")})
	require.NotNil(m.t, m.s.End())
	require.Equal(m.t, StatusCompleted, m.s.End().Status)
	require.Empty(m.t, m.s.End().Reason)
	m.replays()
}

// TestStoppedLosers is about calls that were told to stop, since no join needs them any more, and that answer
// anyway.
func TestStoppedLosers(t *testing.T) {
	stopped := func(t *testing.T, change func(*Graph)) *machine {
		m := lostRace(t, change)
		require.Equal(t, []Ref{{Node: "A", Visit: 1}}, m.cancels)
		return m
	}
	plain := func(*Graph) {}
	t.Run("Terminate/EndsNothing", func(t *testing.T) {
		m := stopped(t, plain)
		m.end("A", Outcome{Values: one("1"), Stop: Terminate})
		require.Equal(t, VisitCompleted, m.status("A"))
		completes(m)
	})
	t.Run("Abstained/LeavesItsValueOut", func(t *testing.T) {
		m := stopped(t, plain)
		m.end("A", Outcome{Values: one("1"), Stop: AbstainResult})
		require.Equal(t, VisitAbstained, m.status("A"))
		completes(m)
	})
	t.Run("State/StaysAsItIs", func(t *testing.T) {
		m := stopped(t, func(g *Graph) { g.State = map[string]StateKey{"k": {Reducer: Replace, Initial: json.RawMessage("1")}} })
		m.end("A", Outcome{Values: one("1"), State: map[string]json.RawMessage{"k": json.RawMessage("2")}})
		require.Equal(t, VisitCompleted, m.status("A"))
		require.JSONEq(t, "1", string(m.s.StateValues()["k"]))
		completes(m)
	})
	t.Run("Transform/ThatFailsFailsNothing", func(t *testing.T) {
		m := stopped(t, func(g *Graph) { g.Nodes[0].Transform = "result.x" })
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, VisitCanceled, m.status("A"))
		completes(m)
	})
	t.Run("Condition/ThatFailsFailsNothing", func(t *testing.T) {
		m := stopped(t, func(g *Graph) { g.Edges[0].When = "1/0 == 1" })
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, VisitCompleted, m.status("A"))
		completes(m)
	})
	t.Run("Self/NoneIsInALoop", func(t *testing.T) {
		m := lostRace(t, func(g *Graph) { g.Edges = append(g.Edges, Edge{From: "A", To: "A", Kind: BackEdge, When: "true"}) })
		require.Empty(t, m.cancels, "a loop ends as a whole")
		m.end("A", Outcome{Values: one("1"), Select: &Select{Self: true}})
		require.Equal(t, 2, m.ref("A").Visit)
		m.end("A", Outcome{Values: one("1"), Select: &Select{}})
		completes(m)
	})
}

// TestUnsafeLosers is about UNSAFE calls, which run to their end although no join needs them any more.
func TestUnsafeLosers(t *testing.T) {
	unsafe := func(g *Graph) { g.Nodes[0].Effect = Unsafe }
	race := func(t *testing.T) *machine {
		m := lostRace(t, unsafe)
		require.Empty(t, m.cancels)
		return m
	}
	// counts checks that a fork counts the call as made.
	counts := func(m *machine) {
		m.t.Helper()
		require.Equal(m.t, []Ref{{Node: "A", Visit: 1}}, PerformedUnsafe(m.s))
	}
	for name, out := range waits() {
		t.Run("Wait/IsNotBegun/"+name, func(t *testing.T) {
			m := race(t)
			m.end("A", out)
			require.Empty(t, m.fx.Spawns)
			require.Empty(t, m.fx.Opened)
			require.Equal(t, VisitCanceled, m.status("A"))
			counts(m)
			completes(m)
		})
	}
	t.Run("Wait/IsBegunWhileSomebodyNeedsIt", func(t *testing.T) {
		m := lostRace(t, func(g *Graph) {
			unsafe(g)
			g.Edges = append(g.Edges, Edge{From: "A", To: "C"})
		})
		m.end("A", waits()["Task"])
		require.Equal(t, VisitWaiting, m.status("A"))
		m.replays()
	})
	t.Run("Call/IsNotMadeAgain", func(t *testing.T) {
		m := race(t)
		m.fail("A", Errorf(NotPerformed, "X", ""))
		require.Equal(t, VisitCanceled, m.status("A"))
		completes(m)
	})
	t.Run("Graph/IsNotExpanded", func(t *testing.T) {
		m := race(t)
		m.end("A", Outcome{Values: one("1"), Expand: nodes(FirstArg(), "x").Graph()})
		require.Equal(t, VisitCompleted, m.status("A"))
		require.Len(t, m.s.Graph().Nodes, 4)
		completes(m)
	})
	t.Run("Terminate/EndsTheRun", func(t *testing.T) {
		m := race(t)
		m.end("A", Outcome{Values: one("1"), Stop: Terminate})
		m.end("C", Outcome{})
		require.Equal(t, ReasonTerminated, m.s.End().Reason)
		m.replays()
	})
	t.Run("Condition/ThatFailsFailsNothing", func(t *testing.T) {
		m := lostRace(t, func(g *Graph) {
			unsafe(g)
			g.Edges[0].When = "1/0 == 1"
		})
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, VisitCompleted, m.status("A"))
		completes(m)
	})
	t.Run("Unknown/FoundNotPerformedIsNotMadeAgain", func(t *testing.T) {
		m := race(t)
		m.fail("A", Errorf(Unknown, "X", ""))
		require.Equal(t, VisitReconciliation, m.status("A"))
		m.do(Reconcile{Ref: Ref{Node: "A", Visit: 1}, Err: Errorf(NotPerformed, "X", ""), By: "me", Now: m.now})
		require.Equal(t, VisitCanceled, m.status("A"))
		m.do(Resume{Now: m.now})
		completes(m)
	})
}
