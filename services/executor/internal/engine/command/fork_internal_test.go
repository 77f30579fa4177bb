package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// forked is a graph "a -> b -> c" of PURE nodes.
func forked() *workgraph.Graph {
	node := func(id string) workgraph.Node { return workgraph.Node{ID: id, Actor: "ok", Effect: workgraph.Pure} }
	return &workgraph.Graph{Nodes: []workgraph.Node{node("a"), node("b"), node("c")}, Edges: []workgraph.Edge{{From: "a", To: "b"}, {From: "b", To: "c"}}}
}

func TestWithArgs(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	from := &workgraph.Ref{Node: "b", Visit: 1}
	g := forked()
	g.Nodes[1].Named = map[string]json.RawMessage{"style": raw(`"long"`), "to": raw(`"ada"`)}
	g.Nodes[1].Args = []json.RawMessage{raw(`1`)}
	for _, c := range []struct {
		name  string
		req   ForkRequest
		named map[string]json.RawMessage
		args  []json.RawMessage
	}{
		{"Nothing", ForkRequest{From: from}, g.Nodes[1].Named, g.Nodes[1].Args},
		{"NamedOverlayThoseOfTheNode", ForkRequest{From: from, Named: map[string]json.RawMessage{"style": raw(`"short"`), "new": raw(`2`)}},
			map[string]json.RawMessage{"style": raw(`"short"`), "to": raw(`"ada"`), "new": raw(`2`)}, g.Nodes[1].Args},
		{"ArgsReplaceThoseOfTheNode", ForkRequest{From: from, ReplaceArgs: true, Args: []json.RawMessage{raw(`2`), raw(`3`)}}, g.Nodes[1].Named, []json.RawMessage{raw(`2`), raw(`3`)}},
		{"ArgsAreRemoved", ForkRequest{From: from, ReplaceArgs: true}, g.Nodes[1].Named, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before, err := g.Hash()
			require.NoError(t, err)
			out, err := withArgs(g, c.req)
			require.NoError(t, err)
			require.Equal(t, c.named, out.Nodes[1].Named)
			require.Equal(t, c.args, out.Nodes[1].Args)
			after, err := g.Hash()
			require.NoError(t, err)
			require.Equal(t, before, after, "the given graph stays as it is")
		})
	}
	t.Run("NodeWithoutNamedArguments", func(t *testing.T) {
		t.Parallel()
		out, err := withArgs(g, ForkRequest{From: &workgraph.Ref{Node: "a", Visit: 1}, Named: map[string]json.RawMessage{"x": raw(`1`)}})
		require.NoError(t, err)
		require.Equal(t, map[string]json.RawMessage{"x": raw(`1`)}, out.Nodes[0].Named)
	})
	for name, from := range map[string]*workgraph.Ref{"WithoutAVisit": nil, "NodeThatIsMissing": {Node: "x", Visit: 1}} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := withArgs(g, ForkRequest{From: from, ReplaceArgs: true})
			require.Equal(t, "visit", requireRefused(t, err, errs.InvalidArgument, ReasonVisitNotFound).Violations[0].Field)
		})
	}
}

func TestCheckUnchanged(t *testing.T) {
	t.Parallel()
	reused := []workgraph.ReusedVisit{{Ref: workgraph.Ref{Node: "a", Visit: 1}}, {Ref: workgraph.Ref{Node: "b", Visit: 1}}}
	for _, c := range []struct {
		name   string
		from   *workgraph.Ref
		change func(*workgraph.Graph)
		places []string
	}{
		{"Same", nil, func(*workgraph.Graph) {}, nil},
		{"NodeThatRunsAgain", nil, func(g *workgraph.Graph) { g.Nodes[2].Actor = "other" }, nil},
		{"NodeOfTheVisitThatRunsAgain", &workgraph.Ref{Node: "b", Visit: 2}, func(g *workgraph.Graph) { g.Nodes[1].Actor = "other" }, nil},
		{"NewNodeAtTheEnd", nil, func(g *workgraph.Graph) {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: "d", Actor: "ok"})
			g.Edges = append(g.Edges, workgraph.Edge{From: "c", To: "d"})
		}, nil},
		{"ReusedNode", nil, func(g *workgraph.Graph) { g.Nodes[0].Actor = "other" }, []string{"graph.nodes[a]"}},
		{"EdgeToAReusedNode", nil, func(g *workgraph.Graph) { g.Edges[0].When = "false" }, []string{"graph.edges[a -> b]"}},
		{"NewEdgeToAReusedNode", nil, func(g *workgraph.Graph) {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: "d", Actor: "ok"})
			g.Edges = append(g.Edges, workgraph.Edge{From: "d", To: "b"})
		}, []string{"graph.edges[d -> b]"}},
		{"BackEdgeToAReusedNode", nil, func(g *workgraph.Graph) {
			g.Edges = append(g.Edges, workgraph.Edge{From: "c", To: "b", Kind: workgraph.BackEdge, When: "result == 1"})
		}, nil},
		{"RemovedReusedNode", nil, func(g *workgraph.Graph) {
			g.Nodes = g.Nodes[1:]
			g.Edges = g.Edges[1:]
		}, []string{"graph.nodes[a]", "graph.edges[a -> b]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			after := forked()
			c.change(after)
			err := checkUnchanged(t.Context(), forked(), after, reused, c.from)
			if c.places == nil {
				require.NoError(t, err)
				return
			}
			var places []string
			for _, v := range requireRefused(t, err, errs.InvalidArgument, ReasonForkChangesReused).Violations {
				places = append(places, v.Field)
			}
			require.Equal(t, c.places, places)
		})
	}
}

func TestUnexpanded(t *testing.T) {
	t.Parallel()
	t.Run("WithoutExpansionsTheGraph", func(t *testing.T) {
		t.Parallel()
		g := forked()
		require.Same(t, g, Unexpanded(g))
	})
	t.Run("GivesTheGraphBeforeTheExpansion", func(t *testing.T) {
		t.Parallel()
		g := forked()
		g.Nodes[2].On = &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"a", "b"}}}
		expanded := g.Clone()
		expanded.Nodes = append(expanded.Nodes, workgraph.Node{ID: "b#1/x", Actor: "ok"}, workgraph.Node{ID: "b#1/y", Actor: "ok"})
		expanded.Nodes[2].On.Inbox.From = []string{"a", "b", "b#1/x"}
		// The expansion starts at x and y, whose results go to the successors of b.
		expanded.Edges = []workgraph.Edge{{From: "a", To: "b"}, {From: "b", To: "b#1/x"}, {From: "b", To: "b#1/y"}, {From: "b#1/x", To: "c"}, {From: "b#1/y", To: "c"}}
		require.Equal(t, g, Unexpanded(expanded))
		require.Len(t, expanded.Nodes, 5, "the given graph stays as it is")
		require.Equal(t, []string{"a", "b", "b#1/x"}, expanded.Nodes[2].On.Inbox.From)
	})
}

func TestRefuseRepeats(t *testing.T) {
	t.Parallel()
	p, err := workgraph.Compile(t.Context(), forked(), nil)
	require.NoError(t, err)
	ref := func(node string) workgraph.Ref { return workgraph.Ref{Node: node, Visit: 1} }
	for _, c := range []struct {
		name  string
		again []workgraph.Ref
		below []string
		want  string
	}{
		{"Nothing", nil, nil, ""},
		{"NodeThatTheNewGraphLacks", []workgraph.Ref{ref("gone")}, nil, ""},
		{"Visit", []workgraph.Ref{ref("b")}, nil, ref("b").String()},
		{"VisitOfAnExpansion", []workgraph.Ref{ref("b#1/x")}, nil, ref("b#1/x").String()},
		{"InADescendant", nil, []string{"pay#1 of run_2"}, "pay#1 of run_2"},
		{"Many", nil, strings.Split(strings.Repeat("x,", 24)+"x", ","), strings.Repeat("x, ", 19) + "x and 5 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := refuseRepeats(p, c.again, c.below)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, c.want, requireRefused(t, err, errs.FailedPrecondition, ReasonForkRepeatsUnsafe).Meta["visits"])
		})
	}
}

func TestCheckReached(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p, err := workgraph.Compile(t.Context(), forked(), nil)
	require.NoError(t, err)
	s := workgraph.New(p, "run_1")
	_, _, err = s.Advance(workgraph.Begin{Now: now})
	require.NoError(t, err)
	_, _, err = s.Advance(workgraph.Ended{Ref: workgraph.Ref{Node: "a", Visit: 1}, Attempt: 1, Outcome: &workgraph.Outcome{}, Now: now})
	require.NoError(t, err)
	require.NoError(t, checkReached(s, nil))
	require.NoError(t, checkReached(s, &workgraph.Ref{Node: "a", Visit: 1}))
	require.NoError(t, checkReached(s, &workgraph.Ref{Node: "b", Visit: 1}), "it is under way")
	for _, c := range []struct {
		name, node, message, hint string
		visit                     int
	}{
		{"LaterVisit", "a", "its last one is 1", "", 2},
		{"NotReachedYet", "c", "has not reached node \"c\"", "ListVisits", 1},
		{"UnknownNode", "zzzzzz", "has no node \"zzzzzz\"", "GetRunGraph", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := requireRefused(t, checkReached(s, &workgraph.Ref{Node: c.node, Visit: c.visit}), errs.InvalidArgument, ReasonVisitNotFound)
			require.Contains(t, e.Message, c.message)
			require.Contains(t, e.HintText(), c.hint)
		})
	}
}
