package workgraph

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patched is the program of the run's graph with a patch.
func (m *machine) patched(p Patch) *Program {
	m.t.Helper()
	for i := range p.PutNodes {
		if p.PutNodes[i].Actor == "" {
			p.PutNodes[i].Actor = "x"
		}
	}
	g, faults := ApplyPatch(m.s.Graph(), p)
	require.Empty(m.t, faults)
	q, err := Recompile(m.t.Context(), g, nil)
	require.NoError(m.t, err)
	return q
}

func (m *machine) amend(p Patch) {
	m.t.Helper()
	q := m.patched(p)
	before, err := m.s.Snapshot()
	require.NoError(m.t, err)
	plan, err := m.s.PlanAmend(m.t.Context(), q, m.now)
	require.NoError(m.t, err)
	after, err := m.s.Snapshot()
	require.NoError(m.t, err)
	require.Equal(m.t, string(before), string(after), "a plan changes nothing")
	open := map[Ref]Start{}
	for r, st := range m.open {
		open[r] = st
	}
	m.do(Amended{Program: q, Revision: m.s.GraphRevision(), By: "somebody", Now: m.now})
	for _, r := range plan.Cancels {
		if st, ok := m.open[r]; ok && st.Attempt == open[r].Attempt {
			delete(m.open, r)
		}
	}
	var starts []Ref
	for i := range m.fx.Starts {
		starts = append(starts, m.fx.Starts[i].Ref)
	}
	require.Equal(m.t, plan.Starts, starts)
}

func (m *machine) refused(p Patch) []string {
	m.t.Helper()
	q := m.patched(p)
	plan, err := m.s.PlanAmend(m.t.Context(), q, m.now)
	var no *AmendRefused
	require.ErrorAs(m.t, err, &no)
	require.ErrorIs(m.t, err, ErrState)
	require.Equal(m.t, plan.Refusals, no.Refusals)
	before, err := m.s.Snapshot()
	require.NoError(m.t, err)
	require.ErrorAs(m.t, m.try(Amended{Program: q, Revision: m.s.GraphRevision(), Now: m.now}), &no)
	after, err := m.s.Snapshot()
	require.NoError(m.t, err)
	require.Equal(m.t, string(before), string(after))
	var out []string
	for _, f := range no.Refusals {
		require.NotEmpty(m.t, f.Message)
		require.NotEmpty(m.t, f.Hint)
		place := f.Node
		if f.From != "" {
			place = f.From + ">" + f.To
		}
		out = append(out, f.Code+" "+place+" "+f.Field)
	}
	return out
}

func put(id string, opts ...func(*Node)) Node {
	n := Node{ID: id, Actor: "x", Effect: Idempotent}
	for _, o := range opts {
		o(&n)
	}
	return n
}

func TestAmend(t *testing.T) {
	begun := func(t *testing.T, g *Graph) (*machine, *Program) {
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin("7")
		return m, p
	}
	chain := nodes(FirstArg(), "A", "B", "C").Chain("A", "B", "C").Graph()
	t.Run("Pending/TakesTheNewDefinition", func(t *testing.T) {
		m, p := begun(t, chain)
		m.amend(Patch{PutNodes: []Node{put("C", Named("more", js(1)))}})
		m.end("A", Outcome{Values: one("1")})
		m.end("B", Outcome{Values: one("2")})
		require.Equal(t, "1", string(m.open[m.ref("C")].Named["more"]))
		require.Equal(t, []string{"2"}, m.args("C"))
		m.end("C", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("New/StartsAtOnceOnTheRightInputs", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1")})
		m.amend(Patch{PutNodes: []Node{put("N"), put("S"), put("W")},
			AddEdges: []Edge{{From: "A", To: "N"}, {From: "A", To: "W"}, {From: "B", To: "W"}, {From: "N", To: "C"}}})
		require.Equal(t, []string{"B", "N", "S"}, m.openRefs(), "its parents have ended, it has none; W waits for B")
		require.Equal(t, []string{"1"}, m.args("N"))
		require.Equal(t, "A", m.open[m.ref("N")].Upstream[0].Node)
		require.Equal(t, []string{"7"}, m.args("S"), "a start node receives the run's input")
		m.end("S", Outcome{})
		m.end("B", Outcome{Values: one("2")})
		require.Equal(t, []string{"1", "2"}, m.args("W"))
		m.end("N", Outcome{Values: one("3")})
		require.Len(t, m.args("C"), 2)
		m.end("W", Outcome{})
		m.end("C", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("New/EdgesOfEndedNodesAreDecidedAndJournaled", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1")})
		m.amend(Patch{PutNodes: []Node{put("yes"), put("no"), put("odd")}, AddEdges: []Edge{{From: "A", To: "yes", When: "result == 1"},
			{From: "A", To: "no", When: "result == 2"}, {From: "A", To: "odd", When: "result.x.y == 2"}}})
		require.Equal(t, []string{"B", "yes"}, m.openRefs())
		require.Equal(t, VisitSkipped, m.status("no"))
		require.Equal(t, VisitSkipped, m.status("odd"))
		var steps []string
		for _, st := range m.events[len(m.events)-1].Steps {
			steps = append(steps, string(st.Op)+" "+st.Node+st.To+" "+st.Note)
		}
		require.Contains(t, steps, "EDGE Ano CONDITION_FALSE")
		m.replayed(p)
	})
	t.Run("New/DeadWhereTheSourceFailedOrWasSkipped", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C", "D").Edge("A", "B", When("false")).Edge("B", "C").Graph()
		g.Nodes[0].OnError.Action = Continue
		m, p := begun(t, g)
		m.fail("A", Errorf(Permanent, "NO", ""))
		m.amend(Patch{PutNodes: []Node{put("N"), put("M")}, AddEdges: []Edge{{From: "A", To: "N"}, {From: "B", To: "M"}}})
		require.Equal(t, VisitSkipped, m.status("N"))
		require.Equal(t, VisitSkipped, m.status("M"))
		m.end("D", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Running/IsCanceledAndBegunAgain", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1")})
		old := m.open[m.ref("B")]
		m.amend(Patch{PutNodes: []Node{put("B", Named("x", js(2)), func(n *Node) { n.Effect = Unsafe })}})
		require.Equal(t, []Ref{{Node: "B", Visit: 1}}, m.cancels)
		now := m.open[m.ref("B")]
		require.Equal(t, []int{2, 2}, []int{now.Attempt, now.Generation})
		require.NotEqual(t, old.EffectKey(), now.EffectKey())
		require.ErrorIs(t, m.try(Ended{Ref: old.Ref, Attempt: old.Attempt, Outcome: &Outcome{}, Now: m.now}), ErrStale)
		require.Equal(t, []string{"1"}, m.args("B"))
		m.fail("B", Errorf(NotPerformed, "NO", ""))
		require.Equal(t, VisitFailed, m.status("B"), "an UNSAFE node has one call, again")
		m.replayed(p)
	})
	t.Run("Running/RetriesCountAnew", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()
		g.Nodes[1].Effect, g.Nodes[1].Retry = Pure, Retry{MaxAttempts: 2, Jitter: Unlimited}
		m, p := begun(t, g)
		m.end("A", Outcome{})
		m.fail("B", Errorf(Retryable, "NO", ""))
		m.amend(Patch{PutNodes: []Node{put("B", func(n *Node) { n.Effect, n.Retry, n.Name = Pure, Retry{MaxAttempts: 2, Jitter: Unlimited}, "b" })}})
		require.Equal(t, 3, m.open[m.ref("B")].Attempt, "the back-off is over")
		m.fail("B", Errorf(Retryable, "NO", ""))
		at, ok := m.s.NextTimer()
		require.True(t, ok)
		require.Equal(t, m.now.Add(time.Second), at, "the first back-off")
		m.do(TimerDue{Now: at})
		m.fail("B", Errorf(Retryable, "NO", ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Running/RemovedIsGone", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1")})
		old := m.open[m.ref("B")]
		m.amend(Patch{RemoveNodes: []string{"B"}, AddEdges: []Edge{{From: "A", To: "C"}}})
		require.Equal(t, []string{"C"}, m.openRefs())
		require.ErrorIs(t, m.try(Ended{Ref: old.Ref, Attempt: 1, Outcome: &Outcome{}, Now: m.now}), ErrStale)
		m.amend(Patch{PutNodes: []Node{put("B")}, AddEdges: []Edge{{From: "A", To: "B"}}})
		require.Equal(t, 2, m.open[m.ref("B")].Attempt, "a node that comes back goes on from where it was")
		require.Equal(t, 2, m.open[m.ref("B")].Generation)
		require.ErrorIs(t, m.try(Ended{Ref: old.Ref, Attempt: 1, Outcome: &Outcome{}, Now: m.now}), ErrStale)
		m.end("B", Outcome{})
		m.end("C", Outcome{})
		m.replayed(p)
	})
	t.Run("Waiting/IsDroppedWithItsWaits", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Wait: &Wait{Interrupt: &Interrupt{ID: "q"}}})
		m.amend(Patch{PutNodes: []Node{put("A", Pass(FirstArg()), Named("x", js(2)))}})
		require.ErrorIs(t, m.try(Answered{ID: "q", Answer: js(1), Now: m.now}), ErrStale)
		require.Equal(t, 2, m.open[m.ref("A")].Attempt)
		m.end("A", Outcome{Wait: &Wait{Signal: &SignalWait{Name: "go"}}})
		m.amend(Patch{PutNodes: []Node{put("N")}})
		m.do(Signaled{Name: "go", Payload: js(5), Now: m.now})
		require.Equal(t, []string{"5"}, m.args("B"), "waits of other nodes go on")
		m.replayed(p)
	})
	t.Run("Mapped/BeginsAgainWithOtherEffectKeys", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()
		g.Nodes[1].Map, g.Nodes[1].Effect = &Map{Over: "[1,2,3]", MaxParallel: 2}, Pure
		m, p := begun(t, g)
		m.end("A", Outcome{})
		m.endRef(Ref{Node: "B", Visit: 1, Item: 2}, &Outcome{Values: one("1")}, nil)
		m.amend(Patch{PutNodes: []Node{put("B", func(n *Node) { n.Map, n.Effect = &Map{Over: "[7]"}, Pure })}})
		require.ElementsMatch(t, []Ref{{Node: "B", Visit: 1, Item: 1}, {Node: "B", Visit: 1, Item: 3}}, m.cancels)
		require.Equal(t, []string{"B[1]"}, m.openRefs())
		require.Equal(t, 2, m.open[Ref{Node: "B", Visit: 1, Item: 1}].Generation)
		m.endRef(Ref{Node: "B", Visit: 1, Item: 1}, &Outcome{Values: one("1")}, nil)
		require.JSONEq(t, `[{"ok":1}]`, string(m.s.End().Result))
		m.replayed(p)
	})
	t.Run("Joins/ARemovedEdgeReleasesThem", func(t *testing.T) {
		m, p := begun(t, diamond(FirstArg()))
		first := m.openRefs()[0]
		m.end(first, Outcome{Values: one("1")})
		open := m.openRefs()
		require.Len(t, open, 2)
		m.end(open[0], Outcome{Values: one("2")})
		var join string
		for _, e := range m.s.Graph().Edges {
			if e.From == open[1] {
				join = e.To
			}
		}
		m.amend(Patch{RemoveEdges: []Edge{{From: open[1], To: join}}})
		require.Equal(t, []string{"2"}, m.args(join))
		m.replayed(p)
	})
	t.Run("Joins/AnAddedEdgeHoldsARunningVisitBack", func(t *testing.T) {
		m, p := begun(t, nodes(FirstArg(), "A", "S", "B").Chain("A", "B").Graph())
		m.end("A", Outcome{Values: one("1")})
		m.amend(Patch{AddEdges: []Edge{{From: "S", To: "B"}}})
		require.Equal(t, []string{"S"}, m.openRefs())
		delete(m.open, Ref{Node: "B", Visit: 1})
		m.end("S", Outcome{Values: one("2")})
		require.Equal(t, []string{"1", "2"}, m.args("B"))
		require.Equal(t, 2, m.open[m.ref("B")].Attempt)
		m.replayed(p)
	})
	t.Run("Paused/HoldsWhatStarts", func(t *testing.T) {
		m, p := begun(t, chain)
		m.do(Pause{Reason: "user", Now: m.now})
		m.amend(Patch{PutNodes: []Node{put("N"), put("A", Named("x", js(2)))}})
		require.Zero(t, m.s.InFlight())
		require.Equal(t, VisitHeld, m.status("N"))
		m.do(Resume{Now: m.now})
		require.ElementsMatch(t, []string{"A", "N"}, m.openRefs())
		m.replayed(p)
	})
	t.Run("Expansion/ItsPendingNodesCanBeChanged", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1"), Expand: nodesOf("x", nodes(FirstArg(), "x", "y").Chain("x", "y").Graph())})
		m.amend(Patch{PutNodes: []Node{put("A#1/y", Named("k", js(1)))}, RemoveNodes: []string{"C"}})
		m.end("A#1/x", Outcome{Values: one("2")})
		require.Equal(t, "1", string(m.open[m.ref("A#1/y")].Named["k"]))
		require.Contains(t, m.refused(Patch{RemoveNodes: []string{"A#1/x"}}), "NODE_ENDED A#1/x ")
		m.end("A#1/y", Outcome{Values: one("3"), Expand: nodesOf("x", nodes(FirstArg(), "z").Graph())})
		m.end("A#1/y#1/z", Outcome{Values: one("4")})
		m.end("B", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Revision/MustBeTheOneThatTheChangeWasMadeFor", func(t *testing.T) {
		m, _ := begun(t, chain)
		q := m.patched(Patch{PutNodes: []Node{put("N")}})
		require.ErrorIs(t, m.try(Amended{Program: q, Revision: 1, Now: m.now}), ErrState)
		m.do(Amended{Program: q, Now: m.now, By: "me"})
		require.EqualValues(t, 1, m.s.GraphRevision())
		ev := m.events[len(m.events)-1]
		require.Equal(t, GraphAmended, ev.Kind)
		require.Equal(t, "me", ev.By)
		require.Equal(t, m.s.Graph(), ev.Graph)
		require.ErrorIs(t, m.try(Amended{Program: q, Now: m.now}), ErrState)
	})
	t.Run("End/NothingIsLeftToDo", func(t *testing.T) {
		m, p := begun(t, chain)
		m.end("A", Outcome{Values: one("1")})
		m.amend(Patch{RemoveNodes: []string{"B", "C"}})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, "1", string(m.s.End().Result))
		m.replayed(p)
		require.ErrorIs(t, m.try(Amended{Now: m.now}), ErrEnded)
	})
}

func TestAmendRefused(t *testing.T) {
	g := nodesOf("x", nodes(FirstArg(), "A", "B", "C", "D").Chain("A", "B", "C").Edge("D", "C").State("log", Append).Graph())
	g.Nodes[1].Effect = Unsafe
	p, err := Compile(t.Context(), g, nil)
	require.NoError(t, err)
	m := newMachine(t, p)
	m.begin("7")
	m.end("A", Outcome{Values: one("1")})
	for name, c := range map[string]struct {
		patch Patch
		want  []string
	}{
		"Node/Fields":   {Patch{PutNodes: []Node{put("A", func(n *Node) { n.Name, n.Timeout = "a", 5 })}}, []string{"NODE_ENDED A name", "NODE_ENDED A result_pass_down_mode", "NODE_ENDED A timeout"}},
		"Node/Removed":  {Patch{RemoveNodes: []string{"A"}}, []string{"NODE_ENDED A "}},
		"Inputs/Added":  {Patch{AddEdges: []Edge{{From: "D", To: "A"}}}, []string{"INPUTS_DELIVERED A edges"}},
		"Edge/Removed":  {Patch{RemoveEdges: []Edge{{From: "A", To: "B"}}}, []string{"EDGE_DECIDED A>B "}},
		"Edge/Changed":  {Patch{RemoveEdges: []Edge{{From: "A", To: "B"}}, AddEdges: []Edge{{From: "A", To: "B", When: "true"}}}, []string{"EDGE_DECIDED A>B when"}},
		"All/AtOnce":    {Patch{RemoveNodes: []string{"A"}, AddEdges: []Edge{{From: "D", To: "B"}}}, []string{"NODE_ENDED A "}},
		"Loop/AroundIt": {Patch{AddEdges: []Edge{{From: "B", To: "A", Kind: BackEdge, When: "visit < 2"}}}, []string{"LOOP_BEGUN A ", "INPUTS_DELIVERED A edges", "LOOP_BEGUN B ", "LOOP_BEGUN A>B "}},
	} {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, c.want, m.refused(c.patch))
		})
	}
	t.Run("State/Declaration", func(t *testing.T) {
		g := m.s.Graph()
		g.State["log"] = StateKey{Reducer: Add}
		q, err := Recompile(t.Context(), g, nil)
		require.NoError(t, err)
		_, err = m.s.PlanAmend(t.Context(), q, m.now)
		require.ErrorContains(t, err, CodeStateChanged)
	})
	t.Run("Unsafe/InFlight", func(t *testing.T) {
		m.do(Attempt{Ref: m.ref("B"), Attempt: 1, Now: m.now})
		require.Equal(t, []string{"UNSAFE_IN_FLIGHT B "}, m.refused(Patch{RemoveNodes: []string{"B"}}))
		m.fail("B", Errorf(Unknown, "?", ""))
		require.Equal(t, []string{"NEEDS_RECONCILIATION B "}, m.refused(Patch{RemoveNodes: []string{"B"}}))
	})
	t.Run("Draining/IsTooLate", func(t *testing.T) {
		q := m.patched(Patch{PutNodes: []Node{put("N")}})
		m.do(Reconcile{Ref: Ref{Node: "B", Visit: 1}, Outcome: &Outcome{Stop: Terminate}, Now: m.now})
		require.Error(t, m.try(Amended{Program: q, Now: m.now}))
	})
}

func TestAmendLoops(t *testing.T) {
	g := nodes(FirstArg(), "S", "H", "W", "V", "Z").Edge("S", "H").Chain("H", "W", "V", "Z").Back("V", "H", "visit < 2").Graph()
	start := func(t *testing.T) (*machine, *Program) {
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin("0")
		return m, p
	}
	t.Run("NotBegun/AnyShape", func(t *testing.T) {
		m, p := start(t)
		m.amend(Patch{RemoveEdges: []Edge{{From: "V", To: "H", Kind: BackEdge}}, PutNodes: []Node{put("Q"), put("R")},
			AddEdges: []Edge{{From: "W", To: "H", Kind: BackEdge, When: "visit < 2"}, {From: "S", To: "Q"}, {From: "Q", To: "R"}, {From: "R", To: "Q", Kind: BackEdge, When: "visit < 2"}}})
		m.end("S", Outcome{})
		for range 2 {
			m.end("H", Outcome{})
			m.end("W", Outcome{})
			m.end("Q", Outcome{})
			m.end("R", Outcome{})
		}
		m.end("V", Outcome{})
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("NotBegun/ALoopIsAddedAroundIt", func(t *testing.T) {
		g := nodes(FirstArg(), "s", "o", "h", "e", "z", "l", "f").Chain("s", "o", "h", "e", "z").Edge("h", "z").Edge("h", "f").Edge("f", "e").
			Edge("s", "l").Edge("l", "z").Back("h", "h", "visit < 2").Back("l", "l", "visit < 2").Graph()
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin("0")
		m.amend(Patch{AddEdges: []Edge{{From: "e", To: "o", Kind: BackEdge, When: "visit < 2"}}})
		for m.s.End() == nil {
			require.NotEmpty(t, m.open)
			for r := range m.open {
				m.endRef(r, &Outcome{}, nil)
				break
			}
		}
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitCompleted, m.status("e"))
		m.replayed(p)
	})
	t.Run("NotBegun/ALoopIsAddedBehindAnEndedNode", func(t *testing.T) {
		m, p := start(t)
		m.end("S", Outcome{Values: one("5")})
		m.amend(Patch{PutNodes: []Node{put("Q"), put("R")}, AddEdges: []Edge{{From: "S", To: "Q"}, {From: "Q", To: "R"}, {From: "R", To: "Q", Kind: BackEdge, When: "visit < 2"}}})
		require.Equal(t, []string{"5"}, m.args("Q"))
		m.end("Q", Outcome{})
		m.end("R", Outcome{})
		m.end("Q", Outcome{})
		m.end("R", Outcome{})
		m.replayed(p)
	})
	t.Run("Begun/OutsideOfItAndNodesNotVisited", func(t *testing.T) {
		m, p := start(t)
		m.end("S", Outcome{})
		m.end("H", Outcome{})
		m.amend(Patch{PutNodes: []Node{put("V", Named("k", js(3))), put("W", Named("k", js(2))), put("Z", Named("k", js(1))), put("N")}, AddEdges: []Edge{{From: "Z", To: "N"}}})
		require.Equal(t, 2, m.open[m.ref("W")].Attempt, "under way in the loop, so it begins again")
		for v := 1; v <= 2; v++ {
			if v > 1 {
				m.end("H", Outcome{})
				require.Equal(t, 1, m.open[m.ref("W")].Attempt)
			}
			m.end("W", Outcome{Values: one("1")})
			require.Equal(t, "3", string(m.open[m.ref("V")].Named["k"]))
			m.end("V", Outcome{Values: one("2")})
		}
		require.Equal(t, "1", string(m.open[m.ref("Z")].Named["k"]))
		m.end("Z", Outcome{})
		m.end("N", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Begun/ItsHeadCanBeginAgain", func(t *testing.T) {
		m, p := start(t)
		m.end("S", Outcome{Values: one("4")})
		m.amend(Patch{PutNodes: []Node{put("H", Named("k", js(3)))}})
		require.Equal(t, []string{"4"}, m.args("H"))
		require.Equal(t, 2, m.open[m.ref("H")].Attempt)
		m.replayed(p)
	})
	t.Run("Begun/ItsShapeStays", func(t *testing.T) {
		m, _ := start(t)
		m.end("S", Outcome{})
		for _, p := range []Patch{
			{PutNodes: []Node{put("N")}, AddEdges: []Edge{{From: "H", To: "N"}, {From: "N", To: "V"}}},
			{RemoveNodes: []string{"W"}, AddEdges: []Edge{{From: "H", To: "V"}}},
			{AddEdges: []Edge{{From: "H", To: "V"}}},
			{RemoveEdges: []Edge{{From: "V", To: "H", Kind: BackEdge}}},
			{PutNodes: []Node{put("N")}, AddEdges: []Edge{{From: "W", To: "N"}}},
			{PutNodes: []Node{put("N")}, AddEdges: []Edge{{From: "N", To: "H"}}},
		} {
			refusals := m.refused(p)
			require.NotEmpty(t, refusals)
			for _, r := range refusals {
				require.Contains(t, r, CodeLoopBegun)
			}
		}
	})
	t.Run("Over/ItsLastResultLeadsOn", func(t *testing.T) {
		m, p := start(t)
		m.end("S", Outcome{})
		for v := 1; v <= 2; v++ {
			m.end("H", Outcome{})
			m.end("W", Outcome{Values: []json.RawMessage{js(v)}})
			m.end("V", Outcome{Values: []json.RawMessage{js(10 * v)}})
		}
		m.amend(Patch{PutNodes: []Node{put("N")}, AddEdges: []Edge{{From: "W", To: "N"}}})
		require.Equal(t, []string{"2"}, m.args("N"))
		m.end("N", Outcome{})
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Limit/ARunThatStandsAtItGoesOn", func(t *testing.T) {
		g := *g
		g.Nodes = append([]Node(nil), g.Nodes...)
		g.Nodes[1].MaxVisits = 1
		p := compile(t, &g)
		m := newMachine(t, p)
		m.begin("0")
		m.end("S", Outcome{})
		m.end("H", Outcome{})
		m.end("W", Outcome{})
		m.end("V", Outcome{})
		m.amend(Patch{PutNodes: []Node{put("N")}})
		m.do(Resume{Now: m.now})
		require.ElementsMatch(t, []string{"H@2", "N"}, m.openRefs())
		m.end("N", Outcome{})
		m.end("H", Outcome{})
		m.end("W", Outcome{})
		m.end("V", Outcome{})
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Expanded/ARoundKeepsItsNodes", func(t *testing.T) {
		m, p := start(t)
		m.end("S", Outcome{})
		m.end("H", Outcome{Expand: nodesOf("x", nodes(FirstArg(), "x").Graph())})
		m.amend(Patch{PutNodes: []Node{put("N")}})
		require.NotEmpty(t, m.refused(Patch{RemoveNodes: []string{"H#1/x"}}))
		m.end("N", Outcome{})
		m.end("H#1/x", Outcome{Values: one("9")})
		require.Equal(t, []string{"9"}, m.args("W"))
		m.end("W", Outcome{})
		m.end("V", Outcome{})
		m.end("H", Outcome{Values: one("8")})
		require.Equal(t, []string{"8"}, m.args("W"))
		m.end("W", Outcome{})
		m.end("V", Outcome{})
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
}

func TestAmendPlan(t *testing.T) {
	p := compile(t, nodes(FirstArg(), "A", "B", "C").Chain("A", "B", "C").Graph())
	m := newMachine(t, p)
	m.begin("1")
	m.end("A", Outcome{})
	q := m.patched(Patch{PutNodes: []Node{put("B"), put("N"), put("C")}, RemoveNodes: []string{"C"}, AddEdges: []Edge{{From: "A", To: "N"}, {From: "B", To: "C", When: "true"}}})
	plan, err := m.s.PlanAmend(t.Context(), q, m.now)
	require.NoError(t, err)
	require.Equal(t, AmendPlan{Diff: GraphDiff{AddedNodes: []string{"N"}, ChangedNodes: []NodeChange{{"B", []string{"result_pass_down_mode"}}, {"C", []string{"result_pass_down_mode"}}},
		AddedEdges: []Edge{{From: "A", To: "N", Kind: DataEdge}}, ChangedEdges: []EdgeChange{{"B", "C", DataEdge, []string{"when"}}}},
		Cancels: []Ref{{Node: "B", Visit: 1}}, Starts: []Ref{{Node: "N", Visit: 1}, {Node: "B", Visit: 1}}}, plan)
	_, err = m.s.PlanAmend(t.Context(), nil, m.now)
	require.ErrorIs(t, err, ErrState)
}
