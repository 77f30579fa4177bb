package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestMachineSurvivesChanges is TestMachineSurvivesEverything with visits that expand and with amendments.
func TestMachineSurvivesChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		(&chaos{gen: gen{t: t, losers: true}, changing: true}).survive(t)
	})
}

// part is a random graph to expand to. Some of them are refused.
func (c *chaos) part() *Graph {
	g := &Graph{}
	n := c.num(1, 3, "part")
	for i := range n {
		node := Node{ID: fmt.Sprint("p", i), Actor: "act", Effect: Idempotent, PassDown: c.mode()}
		node.Effect = rapid.SampledFrom([]Effect{Pure, Idempotent, Unsafe}).Draw(c.t, "part effect")
		if c.chance(20, "part join") {
			node.Join = Join{Mode: Any, Losers: CancelLosers}
		}
		if c.chance(15, "part continue") {
			node.OnError.Action = Continue
		}
		g.Nodes = append(g.Nodes, node)
		for k := range i {
			if c.chance(50, "part edge") {
				g.Edges = append(g.Edges, c.cond(Edge{From: fmt.Sprint("p", k), To: node.ID}))
			}
		}
	}
	if c.chance(20, "part loop") {
		to := c.num(0, n-1, "part back")
		g.Edges = append(g.Edges, Edge{From: fmt.Sprint("p", n-1), To: fmt.Sprint("p", to), Kind: BackEdge, When: c.round()})
	}
	return g
}

// change amends the run at random, or expects a refusal.
func (c *chaos) change(g *Graph) {
	var p Patch
	pick := func(label string) string { return g.Nodes[c.num(0, len(g.Nodes)-1, label)].ID }
	for range c.num(1, 3, "changes") {
		c.asked++
		switch c.num(0, 4, "kind of change") {
		case 0:
			p.RemoveNodes = append(p.RemoveNodes, pick("remove"))
		case 1:
			n := g.Nodes[c.num(0, len(g.Nodes)-1, "put")]
			n.Name = fmt.Sprint("v", c.asked)
			p.PutNodes = append(p.PutNodes, n)
		case 2:
			id := fmt.Sprint("new", c.asked)
			p.PutNodes = append(p.PutNodes, Node{ID: id, Actor: "act", Effect: Idempotent, PassDown: c.mode()})
			for range c.num(0, 2, "from") {
				p.AddEdges = append(p.AddEdges, c.cond(Edge{From: pick("from"), To: id}))
			}
			if c.chance(40, "leads") {
				p.AddEdges = append(p.AddEdges, Edge{From: id, To: pick("to")})
			}
			if c.chance(20, "loops") {
				p.AddEdges = append(p.AddEdges, Edge{From: id, To: id, Kind: BackEdge, When: c.round()})
			}
		case 3:
			if len(g.Edges) > 0 {
				p.RemoveEdges = append(p.RemoveEdges, g.Edges[c.num(0, len(g.Edges)-1, "cut")])
			}
		case 4:
			p.AddEdges = append(p.AddEdges, c.cond(Edge{From: pick("add from"), To: pick("add to")}))
		}
	}
	next, faults := ApplyPatch(g, p)
	if len(faults) > 0 {
		return
	}
	q, err := Recompile(context.Background(), next, nil)
	if err != nil {
		return
	}
	revision := c.s.GraphRevision()
	plan, err := c.s.PlanAmend(context.Background(), q, c.now)
	cmd := Amended{Program: q, Revision: revision, By: "me", Now: c.now}
	if err != nil {
		require.ErrorIs(c.t, c.s.refused(cmd), ErrState)
		require.Equal(c.t, revision, c.s.GraphRevision())
		return
	}
	before := len(c.open)
	require.NoError(c.t, c.do(cmd))
	var starts []Ref
	for _, st := range c.open[before:] {
		starts = append(starts, st.Ref)
	}
	require.Equal(c.t, plan.Starts, starts)
	want, err := next.Hash()
	require.NoError(c.t, err)
	got, err := c.s.Graph().Hash()
	require.NoError(c.t, err)
	require.Equal(c.t, want, got)
	// Late reports of canceled attempts are refused.
	late := slices.Clone(c.open)
	c.open = slices.DeleteFunc(c.open, func(st Start) bool {
		u, ok := c.s.find(st.Ref)
		return !ok || u.try().pos < 0 || int(u.try().no) != st.Attempt
	})
	for _, st := range late {
		if !slices.ContainsFunc(c.open, func(o Start) bool { return o.Ref == st.Ref && o.Attempt == st.Attempt }) && c.s.End() == nil {
			require.ErrorIs(c.t, c.s.refused(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: &Outcome{}, Now: c.now}), ErrStale)
		}
	}
}

// byHand writes an expansion into a graph as a person with a text editor would.
func byHand(g *Graph, id string, part *Graph) *Graph {
	out := &Graph{}
	name := func(inner string) string { return id + "#1/" + inner }
	mode := PassDown{}
	for _, n := range g.Nodes {
		out.Nodes = append(out.Nodes, n)
		if n.ID == id {
			mode = n.PassDown
			for _, inner := range part.Nodes {
				inner.ID = name(inner.ID)
				out.Nodes = append(out.Nodes, inner)
			}
		}
	}
	has := func(inner string, in bool) bool {
		return slices.ContainsFunc(part.Edges, func(e Edge) bool {
			return in && e.To == inner && e.Kind != BackEdge || !in && e.From == inner && e.Kind == ""
		})
	}
	for _, e := range g.Edges {
		if e.From != id || e.Kind != "" {
			out.Edges = append(out.Edges, e)
			continue
		}
		if e.PassDown.Mode == "" {
			e.PassDown = mode
		}
		for _, inner := range part.Nodes {
			if !has(inner.ID, false) {
				e.From = name(inner.ID)
				out.Edges = append(out.Edges, e)
			}
		}
	}
	for _, inner := range part.Nodes {
		if !has(inner.ID, true) {
			out.Edges = append(out.Edges, Edge{From: id, To: name(inner.ID)})
		}
	}
	for _, e := range part.Edges {
		e.From, e.To = name(e.From), name(e.To)
		out.Edges = append(out.Edges, e)
	}
	return out
}

// TestExpandedEqualsWrittenByHand runs a graph whose visits expand side by side with the same graph written
// out by hand. Once the expansion is there, both have the same open attempts with the same arguments, and the
// same outputs in the end.
func TestExpandedEqualsWrittenByHand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{gen: gen{t: t}}
		spec := c.graph()
		hand := spec.g
		parts := map[string]*Graph{}
		looped := map[string]bool{}
		// A quorum is judged by the current edges: it may be out of reach before a later expansion adds more
		// of them.
		counted := map[string]bool{}
		for _, e := range spec.g.Edges {
			if i := slices.IndexFunc(spec.g.Nodes, func(n Node) bool { return n.ID == e.To }); e.Kind == "" && spec.g.Nodes[i].Join.Mode == Quorum {
				counted[e.From] = true
			}
		}
		p, err := Compile(t.Context(), spec.g, nil)
		require.NoError(t, err)
		for i := range p.nodes {
			looped[p.nodes[i].ID] = p.nodes[i].region != 0
		}
		for _, n := range spec.g.Nodes {
			// A fallback has no expansion.
			if !looped[n.ID] && !counted[n.ID] && n.OnError.Action != Fallback && c.chance(30, "expands") {
				parts[n.ID] = c.part()
				for i := range parts[n.ID].Nodes {
					parts[n.ID].Nodes[i].Effect = Idempotent
				}
				longer := byHand(hand, n.ID, parts[n.ID])
				if _, err := Recompile(t.Context(), longer, nil); err != nil {
					delete(parts, n.ID)
					continue
				}
				hand = longer
			}
		}
		q, err := Recompile(t.Context(), hand, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, mustJSON(hand))
		}
		in := Input{Args: []json.RawMessage{json.RawMessage("1")}, Named: map[string]json.RawMessage{"x": json.RawMessage("0")}}
		a, b := New(p, "run"), New(q, "run")
		j := &journalOf{p: p, snaps: map[int64]string{}}
		evs, _, err := a.Advance(Begin{Input: in})
		require.NoError(t, err)
		j.note(t, a, evs)
		_, _, err = b.Advance(Begin{Input: in})
		require.NoError(t, err)
		for a.End() == nil {
			open := a.Outstanding()
			x, y := keys(open), keys(b.Outstanding())
			slices.Sort(x)
			slices.Sort(y)
			if a.drain == drainFail || b.drain == drainFail {
				// The run with more steps may fail before it opens what the other one opened.
				break
			}
			require.Equal(t, y, x, "graph %s", mustJSON(hand))
			require.NotEmpty(t, open)
			st := open[c.num(0, len(open)-1, "pick")]
			out := Outcome{Values: []json.RawMessage{json.RawMessage(fmt.Sprintf("%q", st.Ref.String()))}}
			var ferr *Error
			part := parts[st.Node]
			switch k := c.num(0, 99, "how"); {
			case part != nil:
			case k < 10:
				ferr = Errorf(Permanent, "NO", "")
			case k < 20:
				out.Stop = AbstainResult
			}
			end := Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: &out, Err: ferr}
			if ferr != nil {
				end.Outcome = nil
			}
			_, _, err = b.Advance(end)
			require.NoError(t, err)
			if part != nil {
				expanded := out
				expanded.Expand = part
				end.Outcome = &expanded
			}
			evs, _, err := a.Advance(end)
			require.NoError(t, err)
			j.note(t, a, evs)
		}
		if a.drain == drainFail || b.drain == drainFail {
			require.Equal(t, b.drain, a.drain, "graph %s", mustJSON(hand))
			return
		}
		require.NotNil(t, b.End(), "graph %s", mustJSON(hand))
		require.Equal(t, b.End().Status, a.End().Status)
		if a.End().Status == StatusCompleted {
			require.Equal(t, string(js(b.End().Outputs)), string(js(a.End().Outputs)))
			require.Equal(t, string(b.End().Result), string(a.End().Result))
		}
		j.check(t, "run")
	})
}

func FuzzApplyPatch(f *testing.F) {
	g := nodesOf("x", nodes(FirstArg(), "a", "b", "c").Chain("a", "b", "c").Back("b", "a", "visit < 2").Graph())
	f.Add(string(js(g)), `{"remove_nodes":["b"],"put_nodes":[{"id":"n","actor":"x"}],"add_edges":[{"from":"a","to":"n"}]}`)
	f.Add(string(js(g)), `{"remove_edges":[{"from":"b","to":"a","kind":"BACK"}],"put_nodes":[{"id":"b","actor":"y","named":{"k":1}}]}`)
	f.Add(string(js(g)), `{"put_nodes":[{"id":"a#1/x","actor":"x"}],"add_edges":[{"from":"a","to":"a#1/x"},{"from":"a","to":"b"}]}`)
	f.Fuzz(func(t *testing.T, graph, patch string) {
		g, err := Decode([]byte(graph))
		var p Patch
		if err != nil || json.Unmarshal([]byte(patch), &p) != nil {
			return
		}
		before, err := g.Canonical()
		if err != nil {
			return
		}
		next, faults := ApplyPatch(g, p)
		after, err := g.Canonical()
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "the graph given stays as it is")
		if faults != nil {
			require.Nil(t, next)
			return
		}
		same, err := Diff(t.Context(), next, next)
		require.NoError(t, err)
		require.True(t, same.Empty())
		d, err := Diff(t.Context(), g, next)
		require.NoError(t, err)
		for _, id := range d.AddedNodes {
			require.True(t, slices.ContainsFunc(p.PutNodes, func(n Node) bool { return n.ID == id }))
		}
		for _, id := range d.RemovedNodes {
			require.Contains(t, p.RemoveNodes, id)
		}
		if q, err := Recompile(t.Context(), next, nil); err == nil {
			again, err := Recompile(t.Context(), q.Graph(), nil)
			require.NoError(t, err)
			require.Equal(t, q.Graph(), again.Graph())
		}
	})
}
