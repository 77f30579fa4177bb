package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replayed checks that the journal, and a replay from every snapshot, lead to the same state.
func (m *machine) replayed(p *Program) {
	m.t.Helper()
	want, err := m.s.Snapshot()
	require.NoError(m.t, err)
	s := New(p, "run")
	var snaps [][]byte
	for _, ev := range m.events {
		raw, err := json.Marshal(ev)
		require.NoError(m.t, err)
		back, err := DecodeEvent(raw)
		require.NoError(m.t, err)
		_, err = s.Apply(m.t.Context(), back)
		require.NoError(m.t, err)
		snap, err := s.Snapshot()
		require.NoError(m.t, err)
		snaps = append(snaps, snap)
	}
	got, err := s.Snapshot()
	require.NoError(m.t, err)
	require.Equal(m.t, string(want), string(got), "replay")
	for i, snap := range snaps {
		s, err := Restore(m.t.Context(), p, snap)
		require.NoError(m.t, err)
		again, err := s.Snapshot()
		require.NoError(m.t, err)
		require.Equal(m.t, string(snap), string(again), "snapshot after event %d", i+1)
		for _, ev := range m.events[i+1:] {
			_, err = s.Apply(m.t.Context(), ev)
			require.NoError(m.t, err)
		}
		got, err := s.Snapshot()
		require.NoError(m.t, err)
		require.Equal(m.t, string(want), string(got), "from the snapshot after event %d", i+1)
	}
}

// openRefs are the attempts in flight, by node and visit.
func (m *machine) openRefs() []string {
	var out []string
	for _, st := range m.s.Outstanding() {
		out = append(out, st.Ref.String())
	}
	return out
}

func pass(p PassDown) func(*Edge) { return func(e *Edge) { e.PassDown = p } }

func TestExpand(t *testing.T) {
	two := nodesOf("x", nodes(Key("found"), "x", "y").Graph())
	t.Run("Sinks/TakeThePlaceOfTheNode", func(t *testing.T) {
		p := compile(t, nodes(Key("found"), "A", "B", "C").Edge("A", "C").Edge("B", "C").Graph())
		m := newMachine(t, p)
		m.begin("7")
		m.end("A", Outcome{Values: one(`"a"`), Expand: two})
		require.Equal(t, []string{"B", "A#1/x", "A#1/y"}, m.openRefs())
		require.Equal(t, `"a"`, string(m.open[Ref{Node: "A#1/x", Visit: 1}].Named["found"]), "the start nodes receive what the visit passes down")
		require.Equal(t, []string{"7"}, m.args("A#1/x"))
		m.end("B", Outcome{Values: one(`"b"`)})
		m.end("A#1/y", Outcome{Values: one(`"y"`)})
		m.end("A#1/x", Outcome{Values: one(`"x"`)})
		require.Equal(t, `["x","y","b"]`, string(m.open[m.ref("C")].Named["found"]), "in declared order")
		m.end("C", Outcome{Values: one(`"c"`)})
		require.Equal(t, `"c"`, string(m.s.End().Result))
		m.replayed(p)
	})
	t.Run("Edges/KeepConditionAndPassDown", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B", "C").Edge("A", "B", When("result > 1"), pass(FirstArg())).Edge("A", "C", When("result < 2")).Graph()
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin("0")
		m.end("A", Outcome{Values: one("0"), Expand: nodesOf("x", nodes(PassDown{}, "x").Graph())})
		m.end("A#1/x", Outcome{Values: one("2")})
		require.Equal(t, []string{"B"}, m.openRefs(), "the conditions are about the sink's result")
		require.Equal(t, []string{"2"}, m.args("B"))
		m.end("B", Outcome{})
		m.replayed(p)
	})
	t.Run("Errors/StayWithTheNode", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B", "E").Edge("A", "B").Edge("A", "E", OnFailure()).Graph()
		g.Nodes[0].OnError.Action = Route
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin()
		m.end("A", Outcome{Expand: nodesOf("x", nodes(PassDown{}, "x").Graph())})
		require.Equal(t, VisitSkipped, m.status("E"))
		m.fail("A#1/x", Errorf(Permanent, "NO", ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
		require.Equal(t, "A#1/x", m.s.End().Failed.Node)
		m.replayed(p)
	})
	t.Run("Nested/ExpandsAgain", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "A", "Z").Chain("A", "Z").Graph()).WithLimits(Limits{Depth: 2})
		m := newMachine(t, p)
		m.begin("0")
		sub := nodesOf("x", nodes(FirstArg(), "x", "y").Chain("x", "y").Graph())
		m.end("A", Outcome{Values: one("1"), Expand: sub})
		m.end("A#1/x", Outcome{Values: one("2"), Expand: sub})
		m.end("A#1/x#1/x", Outcome{Values: one("3")})
		m.end("A#1/x#1/y", Outcome{Values: one("4")})
		require.Equal(t, []string{"4"}, m.args("A#1/y"))
		m.end("A#1/y", Outcome{Values: one("5")})
		require.Equal(t, []string{"5"}, m.args("Z"))
		require.EqualValues(t, 2, m.s.GraphRevision())
		m.end("Z", Outcome{Values: one("6")})
		m.replayed(p)
	})
	t.Run("Loop/InsideTheSubGraphAndFreshAtEachVisit", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "A", "Z").Chain("A", "Z").Graph())
		m := newMachine(t, p)
		m.begin("0")
		m.end("A", Outcome{Values: one("0"), Expand: nodesOf("x", nodes(FirstArg(), "h", "w").Edge("h", "w").Back("w", "h", "result < 2").Graph())})
		for i := range 3 {
			m.end("A#1/h", Outcome{Values: []json.RawMessage{js(i)}})
			m.end("A#1/w", Outcome{Values: []json.RawMessage{js(i)}})
		}
		require.Equal(t, []string{"2"}, m.args("Z"))
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
	t.Run("Names/MeanTheNodesOfTheSameSubGraphFirst", func(t *testing.T) {
		p := compile(t, nodes(PassDown{}, "x", "A", "Z").Edge("x", "A").Edge("A", "Z", When(`nodes.x.result == "outer"`)).Graph())
		m := newMachine(t, p)
		m.begin()
		m.end("x", Outcome{Values: one(`"outer"`)})
		m.end("A", Outcome{Expand: nodesOf("x", nodes(PassDown{}, "x", "y", "z").Edge("x", "y").Edge("y", "z", When(`nodes.x.result == "inner" && nodes.A.visit == 1`)).Graph())})
		m.end("A#1/x", Outcome{Values: one(`"inner"`)})
		m.end("A#1/y", Outcome{})
		m.end("A#1/z", Outcome{})
		require.Equal(t, []string{"Z"}, m.openRefs(), "the edge to Z was written in the graph around")
		m.replayed(p)
	})
	t.Run("Wait/ExpandsWhenItIsOver", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "A", "Z").Chain("A", "Z").Graph())
		m := newMachine(t, p)
		m.begin("0")
		m.end("A", Outcome{Expand: two, Wait: &Wait{Interrupt: &Interrupt{ID: "q"}}})
		require.Zero(t, m.s.GraphRevision())
		m.do(Answered{ID: "q", Answer: json.RawMessage("1"), Now: m.now})
		require.Equal(t, []string{"A#1/x", "A#1/y"}, m.openRefs())
		m.replayed(p)
	})
	t.Run("Effects/HaveTheWholeGraph", func(t *testing.T) {
		p := compile(t, nodes(PassDown{}, "A", "B", "C").Chain("A", "B", "C").Graph())
		s := New(p, "run")
		_, _, err := s.Advance(Begin{})
		require.NoError(t, err)
		_, fx, err := s.Advance(Ended{Ref: Ref{Node: "A", Visit: 1}, Attempt: 1, Outcome: &Outcome{Expand: two}})
		require.NoError(t, err)
		var ids, edges []string
		for _, n := range fx.Graph.Nodes {
			ids = append(ids, n.ID)
			require.NotEmpty(t, n.Effect)
		}
		for _, e := range fx.Graph.Edges {
			edges = append(edges, e.From+">"+e.To)
		}
		require.Equal(t, []string{"A", "A#1/x", "A#1/y", "B", "C"}, ids)
		require.Equal(t, []string{"A#1/x>B", "A#1/y>B", "B>C", "A>A#1/x", "A>A#1/y"}, edges)
		want, err := fx.Graph.Hash()
		require.NoError(t, err)
		got, err := s.Graph().Hash()
		require.NoError(t, err)
		require.Equal(t, want, got)
		again, err := Recompile(t.Context(), fx.Graph, nil)
		require.NoError(t, err)
		require.Equal(t, s.Graph(), again.Graph())
		_, err = Compile(t.Context(), fx.Graph, nil)
		require.ErrorContains(t, err, CodeReservedID, "a run cannot be begun with such ids")
	})
	t.Run("Drain/ComesTooLateToExpand", func(t *testing.T) {
		p := compile(t, nodes(PassDown{}, "A", "B").Graph())
		m := newMachine(t, p)
		m.begin()
		m.end("B", Outcome{Stop: Terminate})
		m.end("A", Outcome{Values: one("1"), Expand: two})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Zero(t, m.s.GraphRevision())
		m.replayed(p)
	})
	t.Run("Runner/RunsIt", func(t *testing.T) {
		actors := Actors{
			"plan": ActorFunc(func(context.Context, *Call) (Outcome, error) {
				return Outcome{Expand: NewBuilder("").Node("a", "work").Node("b", "other").Edge("a", "b").Graph()}, nil
			}),
			"work": noop,
			"other": ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
				return Outcome{Values: one(`"` + c.Node + `"`)}, nil
			}),
		}
		res, err := Run(t.Context(), NewBuilder("").Node("p", "plan").Graph(), actors, Input{})
		require.NoError(t, err)
		require.Equal(t, `"p#1/b"`, string(res.Result))
	})
}

func TestExpandInLoop(t *testing.T) {
	// H -> A -> B, back from B to H, B -> Z; A expands in some of its visits.
	g := nodes(Key("k"), "H", "A", "B", "Z").Chain("H", "A", "B", "Z").Back("B", "H", "visit < 4").Graph()
	p := compile(t, g)
	m := newMachine(t, p)
	m.begin("0")
	sub := nodesOf("x", nodes(Key("k"), "x", "y").Graph())
	for v := 1; v <= 4; v++ {
		m.end("H", Outcome{Values: []json.RawMessage{js(fmt.Sprint("h", v))}})
		out := Outcome{Values: []json.RawMessage{js(fmt.Sprint("a", v))}}
		if v == 2 || v == 3 {
			out.Expand = sub
		}
		m.end("A", out)
		want := fmt.Sprintf(`"a%d"`, v)
		if out.Expand != nil {
			require.Len(t, m.openRefs(), 2)
			m.end(fmt.Sprintf("A#%d/y", v), Outcome{Values: []json.RawMessage{js(fmt.Sprint("y", v))}})
			m.end(fmt.Sprintf("A#%d/x", v), Outcome{Values: []json.RawMessage{js(fmt.Sprint("x", v))}})
			want = fmt.Sprintf(`["x%d","y%d"]`, v, v)
		}
		require.Equal(t, want, string(m.open[m.ref("B")].Named["k"]), "visit %d", v)
		m.end("B", Outcome{Values: []json.RawMessage{js(fmt.Sprint("b", v))}})
	}
	m.end("Z", Outcome{Values: one(`"z"`)})
	require.Equal(t, StatusCompleted, m.s.End().Status)
	require.Equal(t, map[string]json.RawMessage{"Z": json.RawMessage(`"z"`)}, m.s.End().Outputs)
	var seen []string
	m.s.Visits(func(v VisitInfo) bool {
		if strings.Contains(v.Node, "#") {
			seen = append(seen, v.Ref.String())
		}
		return true
	})
	require.Equal(t, []string{"A#2/x@2", "A#2/y@2", "A#3/x@3", "A#3/y@3"}, seen, "an expansion belongs to one visit")
	m.replayed(p)

	t.Run("Exit/OnlyTheLatestRoundCounts", func(t *testing.T) {
		// A itself leaves the loop. The visit that did not expand comes after one that did, and then before
		// it.
		for _, at := range []int{1, 2} {
			p := compile(t, nodes(Key("k"), "H", "A", "Z").Chain("H", "A", "Z").Back("A", "H", "visit < 2").Graph())
			m := newMachine(t, p)
			m.begin("0")
			for v := 1; v <= 2; v++ {
				m.end("H", Outcome{})
				out := Outcome{Values: []json.RawMessage{js(v)}}
				if v == at {
					out.Expand = sub
				}
				m.end("A", out)
				if v == at {
					m.end(fmt.Sprintf("A#%d/x", v), Outcome{Values: one(`"x"`)})
					m.end(fmt.Sprintf("A#%d/y", v), Outcome{Values: one(`"y"`)})
				}
			}
			want := `2`
			if at == 2 {
				want = `["x","y"]`
			}
			require.Equal(t, want, string(m.open[m.ref("Z")].Named["k"]))
			require.Len(t, m.open[m.ref("Z")].Upstream, map[int]int{1: 1, 2: 2}[at])
			m.end("Z", Outcome{})
			require.Equal(t, StatusCompleted, m.s.End().Status)
			m.replayed(p)
		}
	})
	t.Run("Self/ANodeThatGoesRoundByItselfExpandsEachTime", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "A", "Z").Edge("A", "Z").Edge("A", "A", func(e *Edge) { e.Kind = BackEdge }).Graph())
		m := newMachine(t, p)
		m.begin("0")
		for v := 1; v <= 3; v++ {
			m.end("A", Outcome{Values: []json.RawMessage{js(v)}, Select: &Select{Self: v < 3}, Expand: nodesOf("x", nodes(FirstArg(), "x").Graph())})
			m.end(fmt.Sprintf("A#%d/x", v), Outcome{Values: []json.RawMessage{js(10 * v)}})
		}
		require.Equal(t, []string{"30"}, m.args("Z"))
		m.end("Z", Outcome{Values: one("9")})
		require.Equal(t, `{"Z":9}`, string(js(m.s.End().Outputs)))
		m.replayed(p)
	})
	t.Run("Nested/ALoopWithinTheExpansionOfARound", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "H", "A", "B", "Z").Chain("H", "A", "B", "Z").Back("B", "H", "visit < 3").Graph())
		m := newMachine(t, p)
		m.begin("0")
		for v := 1; v <= 3; v++ {
			m.end("H", Outcome{})
			if v != 2 {
				m.end("A", Outcome{Values: one("0"), Expand: nodesOf("x", nodes(FirstArg(), "h", "w", "q").Chain("h", "w", "q").Back("w", "h", "result < 1").Graph())})
				for i := range 2 {
					m.end(fmt.Sprintf("A#%d/h", v), Outcome{})
					out := Outcome{Values: []json.RawMessage{js(i)}}
					m.end(fmt.Sprintf("A#%d/w", v), out)
				}
				// A node of the round expands once more.
				m.end(fmt.Sprintf("A#%d/q", v), Outcome{Values: one("5"), Expand: nodesOf("x", nodes(FirstArg(), "last").Graph())})
				m.end(fmt.Sprintf("A#%d/q#%d/last", v, v), Outcome{Values: one("6")})
				require.Equal(t, []string{"6"}, m.args("B"))
			} else {
				m.end("A", Outcome{Values: one("7")})
				require.Equal(t, []string{"7"}, m.args("B"))
			}
			m.end("B", Outcome{})
		}
		m.end("Z", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(p)
	})
}

func TestExpandRefused(t *testing.T) {
	big := &Graph{}
	for i := range 20 {
		big.Nodes = append(big.Nodes, Node{ID: fmt.Sprint("n", i), Actor: "x"})
	}
	wide := &Graph{Nodes: big.Nodes[:16]}
	actors := Actors{"x": noop}
	for name, c := range map[string]struct {
		sub  *Graph
		want []string
	}{
		"Empty":    {&Graph{}, []string{CodeEmptyGraph}},
		"Ids":      {&Graph{Nodes: []Node{{ID: "a#1", Actor: "x"}, {ID: "b/c", Actor: "x"}}}, []string{CodeReservedID, `"a#1"`, `"b/c"`}},
		"Actors":   {&Graph{Nodes: []Node{{ID: "a", Actor: "x"}, {ID: "b", Actor: "nobody"}}}, []string{CodeUnknownActor, "nobody"}},
		"Cycles":   {nodesOf("x", nodes(PassDown{}, "a", "b").Edge("a", "b").Edge("b", "a").Graph()), []string{CodeCycle}},
		"AllFault": {&Graph{Nodes: []Node{{ID: "a"}, {ID: "a", Actor: "x", When: "("}}}, []string{CodeNoActor, CodeDuplicateNode, CodeBadExpression}},
		"Outside":  {nodesOf("x", nodes(PassDown{}, "a").Edge("a", "Z").Graph()), []string{CodeUnknownNode}},
		"TooLarge": {big, []string{CodeTooLarge, "22 nodes"}},
		"TooWide":  {wide, []string{CodeTooLarge, "32 edges, the limit is 30"}},
		"State":    {&Graph{Nodes: []Node{{ID: "a", Actor: "x"}}, State: map[string]StateKey{"s": {}}}, []string{"state.s"}},
		"LongID":   {&Graph{Nodes: []Node{{ID: strings.Repeat("i", MaxIDLen), Actor: "x"}}}, []string{CodeBadID}},
		"NodeRefs": {&Graph{Nodes: []Node{{ID: "a", Actor: "x", When: "nodes.nope.result == 1"}}}, []string{CodeUnknownNodeRef}},
	} {
		t.Run("Graph/"+name, func(t *testing.T) {
			g := nodesOf("x", nodes(PassDown{}, "A", "Z").Chain("A", "Z").Graph())
			p, err := Compile(t.Context(), g, actors)
			require.NoError(t, err)
			p = p.WithLimits(Limits{Nodes: 20, Edges: 30})
			m := newMachine(t, p)
			m.begin()
			m.end("A", Outcome{Expand: c.sub})
			require.Equal(t, StatusFailed, m.s.End().Status)
			require.Equal(t, ReasonExpandRefused, m.s.End().Error.Reason)
			require.Equal(t, Permanent, m.s.End().Error.Type)
			for _, w := range c.want {
				require.Contains(t, m.s.End().Error.Message, w)
			}
			require.Zero(t, m.s.GraphRevision())
			m.replayed(p)
		})
	}
	t.Run("OnError/IsAppliedAndNothingElseHappens", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "Z").Chain("A", "Z").State("log", Append).Graph()
		g.Nodes[0].OnError = OnError{Action: Fallback, Value: json.RawMessage(`"plan b"`)}
		p := compile(t, g)
		m := newMachine(t, p)
		m.begin("0")
		m.end("A", Outcome{Expand: &Graph{}, State: map[string]json.RawMessage{"log": json.RawMessage("1")}})
		require.Equal(t, []string{`"plan b"`}, m.args("Z"))
		require.Equal(t, "[]", string(m.s.StateValues()["log"]))
		m.replayed(p)
	})
	t.Run("Depth/IsBounded", func(t *testing.T) {
		p := compile(t, nodes(FirstArg(), "A").Graph())
		m := newMachine(t, p)
		m.begin()
		id := "A"
		for range DefaultDepth {
			m.end(id, Outcome{Expand: nodesOf("x", nodes(FirstArg(), "x").Graph())})
			id += "#1/x"
		}
		m.end(id, Outcome{Expand: nodesOf("x", nodes(FirstArg(), "x").Graph())})
		require.Contains(t, m.s.End().Error.Message, CodeTooDeep)
		m.replayed(p)
	})
	for name, out := range map[string]Outcome{
		"Stop":    {Expand: big, Stop: AbstainResult},
		"Select":  {Expand: big, Select: &Select{Others: SelectNone}},
		"NotJSON": {Expand: &Graph{Nodes: []Node{{ID: "a", Actor: "x", Args: one("{")}}}},
	} {
		t.Run("Outcome/"+name, func(t *testing.T) {
			m := newMachine(t, compile(t, nodes(PassDown{}, "A", "Z").Chain("A", "Z").Graph()))
			m.begin()
			m.end("A", out)
			require.Equal(t, ReasonBadOutcome, m.s.End().Error.Reason)
		})
	}
	t.Run("Map/ItemsCannot", func(t *testing.T) {
		g := nodes(PassDown{}, "A").Graph()
		g.Nodes[0].Map = &Map{Over: "[1]"}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.endRef(Ref{Node: "A", Visit: 1, Item: 1}, &Outcome{Expand: big}, nil)
		require.Equal(t, ReasonBadOutcome, m.s.End().Error.Reason)
	})
	t.Run("Irreducible/NodesCannot", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "L", "R", "X").Edge("A", "L").Edge("A", "R").Edge("L", "R").Back("R", "L", "visit < 3").Edge("R", "X").Graph()
		g.Nodes[1].Join.Mode, g.Nodes[2].Join.Mode = Any, Any
		m := newMachine(t, compile(t, g))
		m.begin("1")
		m.end("A", Outcome{})
		m.end("L", Outcome{Expand: big})
		m.end("R", Outcome{})
		require.Equal(t, ReasonExpandRefused, m.s.End().Error.Reason)
	})
}
