package workgraph

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A TERMINATE deep in a graph: nodes start breadth-first, attempts in flight finish, and nothing else begins.
// Ours: the original runs one branch to its end before the next one, so that a nested TERMINATE keeps whole
// branches from starting. Here a node starts as soon as its own inputs are there.
func TestNestedTerminate(t *testing.T) {
	type edges [][2]string
	for name, c := range map[string]struct {
		nodes  []string
		edges  edges
		stops  string
		calls  []string
		result any
	}{
		"DeepInTheFirstBranch/TheSecondHasRunAsFar": {
			nodes: []string{"A", "B", "C", "D", "E", "F"}, edges: edges{{"A", "B"}, {"B", "C"}, {"D", "E"}, {"E", "F"}}, stops: "C",
			calls: []string{"A", "D", "B", "E", "C"}, result: []any{"C", "E"}, // the original: A, B, C
		},
		"DeepInTheSecondBranch/TheFirstHasRunAsFar": {
			nodes: []string{"A", "B", "C", "D", "E", "F"}, edges: edges{{"A", "B"}, {"B", "C"}, {"D", "E"}, {"E", "F"}}, stops: "E",
			calls: []string{"A", "D", "B", "E"}, result: []any{"B", "E"}, // the original: A, B, C, D, E
		},
		"UnderOneStart/SiblingsStartBeforeGrandchildren": {
			nodes: []string{"A", "B", "C", "D", "E"}, edges: edges{{"A", "B"}, {"A", "C"}, {"B", "D"}, {"C", "E"}}, stops: "D",
			calls: []string{"A", "B", "C", "D"}, result: []any{"C", "D"}, // the original: A, B, D
		},
		"ShortBranch/EndsALongOneOnItsWay": {
			nodes: []string{"A", "B", "C", "D", "E"}, edges: edges{{"A", "B"}, {"C", "D"}, {"D", "E"}}, stops: "B",
			calls: []string{"A", "C", "B"}, result: []any{"B", "C"},
		},
		"BeforeAJoin/TheOtherInputKeepsItsValue": {
			nodes: []string{"A", "B", "C", "D", "J"}, edges: edges{{"A", "B"}, {"B", "J"}, {"C", "D"}, {"D", "J"}}, stops: "D",
			calls: []string{"A", "C", "B", "D"}, result: []any{"B", "D"},
		},
		"AfterAJoin/NothingElseIsASink": {
			nodes: []string{"A", "B", "J", "K"}, edges: edges{{"A", "J"}, {"B", "J"}, {"J", "K"}}, stops: "J",
			calls: []string{"A", "B", "J"}, result: "J",
		},
		"StartNode/KeepsTheOthersFromStarting": {
			nodes: []string{"A", "B", "C"}, edges: edges{{"A", "C"}}, stops: "A",
			calls: []string{"A"}, result: "A",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrace(t)
			b := nodes(FirstArg(), c.nodes...)
			for _, e := range c.edges {
				b = b.Edge(e[0], e[1])
			}
			for _, id := range c.nodes {
				tr.on(id, text(id))
			}
			tr.raw(c.stops, stop(Terminate, c.stops))
			res := tr.run(b.Graph())
			require.Equal(t, ReasonTerminated, res.Reason)
			require.Equal(t, c.calls, tr.calls)
			result(t, c.result, res)
		})
	}
	t.Run("Loop/EndsTheRunInAnyRound", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C").Edge("A", "B").Edge("B", "C").Graph()
		g.Edges = append(g.Edges, Edge{From: "C", To: "B", Kind: BackEdge, When: "true"})
		round := 0
		tr := newTrace(t).on("A", text("a")).on("C", text("c")).raw("B", func(*Call) (Outcome, error) {
			if round++; round == 3 {
				return Outcome{Values: one(`"third"`), Stop: Terminate}, nil
			}
			return Outcome{Values: one(`"b"`)}, nil
		})
		res := tr.run(g)
		require.Equal(t, []string{"A", "B", "C", "B", "C", "B"}, tr.calls)
		result(t, "third", res)
	})
	t.Run("Expansion/EndsTheWholeRun", func(t *testing.T) {
		sub := &Graph{Nodes: []Node{{ID: "x", Actor: "trace"}, {ID: "y", Actor: "trace"}}, Edges: []Edge{{From: "x", To: "y"}}}
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{Values: one("1"), Expand: sub}, nil }).
			raw("A#1/x", stop(Terminate, "x"))
		res := tr.run(nodes(FirstArg(), "A", "B").Edge("A", "B").Graph())
		require.Equal(t, []string{"A", "A#1/x"}, tr.calls)
		require.Equal(t, ReasonTerminated, res.Reason)
		result(t, "x", res)
	})
	t.Run("Child/EndsItselfAndTheParentGoesOn", func(t *testing.T) {
		child := &Graph{Nodes: []Node{{ID: "c", Actor: "trace"}, {ID: "d", Actor: "trace"}}, Edges: []Edge{{From: "c", To: "d"}}}
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) {
			return Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{Graph: child}}, AsResult: true}}}, nil
		}).raw("c", stop(Terminate, "from below")).on("B", args)
		res := tr.run(nodes(FirstArg(), "A", "B").Edge("A", "B").Graph())
		require.Equal(t, []string{"A", "c", "B"}, tr.calls)
		require.Empty(t, res.Reason)
		result(t, []any{"from below"}, res)
	})
	t.Run("InFlight/FinishesWhateverItsEnd", func(t *testing.T) {
		// A terminates while every other start node is in flight. Each of these ends in its own way, and none
		// of their successors starts.
		names := []string{"A", "done", "failed", "retried", "stops", "waits", "abstains"}
		b := nodes(FirstArg(), append(names, "after")...)
		for _, n := range names[1:] {
			b = b.Edge(n, "after")
		}
		g := nodesOf("x", b.Graph())
		for i := range g.Nodes {
			g.Nodes[i].Effect, g.Nodes[i].Join = Idempotent, Join{Mode: Any}
		}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.end("A", Outcome{Stop: Terminate, Values: one(`"a"`)})
		require.Empty(t, m.cancels, "nothing in flight is canceled")
		require.Nil(t, m.s.End())
		m.end("done", Outcome{Values: one(`"b"`)})
		m.fail("failed", Errorf(Permanent, "NO", "no"))
		m.fail("retried", Errorf(Retryable, "NO", "no"))
		m.end("stops", Outcome{Stop: Terminate, Values: one(`"c"`)})
		m.end("waits", Outcome{Wait: &Wait{Signal: &SignalWait{Name: "s"}}})
		require.Nil(t, m.s.End())
		m.end("abstains", Outcome{Stop: AbstainResult})
		end := m.s.End()
		require.Equal(t, StatusCompleted, end.Status, "what fails on the way out fails the run no more")
		require.Equal(t, ReasonTerminated, end.Reason)
		require.JSONEq(t, `["a", "b", "c"]`, string(end.Result))
		require.Empty(t, m.open)
		require.Equal(t, map[string]VisitStatus{"A": VisitCompleted, "done": VisitCompleted, "failed": VisitFailed, "retried": VisitFailed,
			"stops": VisitCompleted, "waits": VisitCanceled, "abstains": VisitAbstained, "after": ""}, statuses(m, append(names, "after")))
		m.replays()
	})
	t.Run("Map/ItemsInFlightFinishAndTheVisitIsCanceled", func(t *testing.T) {
		g := nodesOf("x", nodes(FirstArg(), "A", "M").Graph())
		g.Nodes[1].Map = &Map{Over: "[1, 2, 3]", MaxParallel: 2}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.end("A", Outcome{Stop: Terminate, Values: []json.RawMessage{js("a")}})
		require.Len(t, m.open, 2, "the third item does not begin")
		m.endRef(Ref{Node: "M", Visit: 1, Item: 1}, &Outcome{Values: one("1")}, nil)
		m.endRef(Ref{Node: "M", Visit: 1, Item: 2}, &Outcome{Values: one("2")}, nil)
		require.Equal(t, ReasonTerminated, m.s.End().Reason)
		require.Equal(t, VisitCanceled, m.status("M"))
		require.JSONEq(t, `"a"`, string(m.s.End().Result))
	})
}

func statuses(m *machine, ids []string) map[string]VisitStatus {
	out := map[string]VisitStatus{}
	for _, id := range ids {
		out[id] = m.status(id)
	}
	return out
}
