package workgraph

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// interruptsGraph has a number of asking nodes, each guarding a chain of eight nodes, and one end to which
// all of them lead.
func interruptsGraph(questions int) *Graph {
	g := &Graph{Nodes: []Node{{ID: "end", Actor: "noop"}}}
	for i := range questions {
		before := fmt.Sprintf("ask%d", i)
		g.Nodes = append(g.Nodes, Node{ID: before, Actor: "noop"})
		for k := range 8 {
			id := fmt.Sprintf("n%d-%d", i, k)
			g.Nodes = append(g.Nodes, Node{ID: id, Actor: "noop"})
			g.Edges = append(g.Edges, Edge{From: before, To: id})
			before = id
		}
		g.Edges = append(g.Edges, Edge{From: before, To: "end"})
	}
	return g
}

// allAsked is a run of the graph in which every start node has asked for an approval.
func allAsked(tb testing.TB, g *Graph) *State {
	tb.Helper()
	p, err := Compile(tb.Context(), g, nil)
	require.NoError(tb, err)
	s := New(p, "run")
	now := time.Unix(0, 0)
	_, fx, err := s.Advance(Begin{Now: now})
	require.NoError(tb, err)
	for i, st := range fx.Starts {
		out := &Outcome{Wait: &Wait{Interrupt: &Interrupt{ID: fmt.Sprintf("q%d", i), Approve: json.RawMessage(`{"a":1}`)}}}
		_, _, err := s.Advance(Ended{Ref: st.Ref, Attempt: 1, Outcome: out, Now: now})
		require.NoError(tb, err)
	}
	return s
}

// BenchmarkAmendGuarded examines an amendment of the end of a graph of about ten thousand nodes with a
// thousand open interrupts.
func BenchmarkAmendGuarded(b *testing.B) {
	g := interruptsGraph(1000)
	s := allAsked(b, g)
	g.Nodes[0].Named = map[string]json.RawMessage{"to": json.RawMessage(`"other"`)}
	q, err := Recompile(b.Context(), g, nil)
	require.NoError(b, err)
	for b.Loop() {
		a, err := s.examineAmend(b.Context(), q)
		require.NoError(b, err)
		require.Empty(b, a.refusals)
		require.Len(b, a.resets, 1000)
	}
}

// guardedByOne is guardedBy for one interrupt, node by node.
func guardedByOne(p *Program, asks int32) []bool {
	free := make([]bool, len(p.nodes)) // those that can begin without the answer
	come := make([]int32, len(p.nodes))
	var queue []int32
	begin := func(n int32) {
		if n != asks && !free[n] {
			free[n] = true
			queue = append(queue, n)
		}
	}
	senders := map[string][]int32{} // by node: inboxes that take messages from it
	for i := range p.nodes {
		n, pn := int32(i), &p.nodes[i]
		switch {
		case pn.inbox == nil:
			if len(pn.in) == 0 && !pn.edgeIn {
				begin(n)
			}
		case len(pn.inbox.From) == 0:
			begin(n)
		default:
			for _, from := range pn.inbox.From {
				if _, inside := p.index[from]; inside {
					senders[from] = append(senders[from], n)
				} else {
					begin(n)
				}
			}
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, to := range senders[p.nodes[n].ID] {
			begin(to)
		}
		for _, e := range p.nodes[n].out {
			pe := &p.edges[e]
			to := &p.nodes[pe.to]
			come[pe.to]++
			switch {
			case pe.message, p.regions[to.region].token: // each delivery begins a visit
				begin(pe.to)
			case pe.kind == BackEdge: // its loop has already begun
			case to.quorum == 0 && int(come[pe.to]) < len(to.in):
			case come[pe.to] >= to.quorum:
				begin(pe.to)
			}
		}
	}
	guarded := make([]bool, len(p.nodes))
	for n := range guarded {
		guarded[n] = !free[n] && int32(n) != asks
	}
	return guarded
}

// TestGuardedByAgreesWithOneByOne asks about all nodes of random graphs together, and one by one.
func TestGuardedByAgreesWithOneByOne(t *testing.T) {
	t.Parallel()
	agrees := func(t *rapid.T, p *Program) {
		asks := make([]int32, 0, reachBatch)
		for n := range p.nodes {
			asks = append(asks, int32(n))
		}
		asks = rapid.Permutation(asks).Draw(t, "asks")
		got, err := p.guardedBy(t.Context(), asks)
		require.NoError(t, err)
		for i, asks := range asks {
			for n, want := range guardedByOne(p, asks) {
				require.Equal(t, want, got[n].has(i), "%s by %s in\n%s", p.nodes[n].ID, p.nodes[asks].ID, mustJSON(p.g))
			}
		}
	}
	t.Run("JoinsAndLoops", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			g := &gen{t: t}
			p, err := Compile(t.Context(), g.graph().g, nil)
			require.NoError(t, err)
			agrees(t, p)
		})
	})
	t.Run("InboxesAndQuorums", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p, err := Compile(t.Context(), messageGraph(&gen{t: t}), nil)
			if err != nil {
				t.Skip(err)
			}
			agrees(t, p)
		})
	})
}

// messageGraph makes up to eighty nodes with random forward edges, joins and inboxes.
func messageGraph(g *gen) *Graph {
	out := &Graph{}
	size := g.num(2, g.num(2, 80, "most"), "size")
	for i := range size {
		n := Node{ID: fmt.Sprintf("n%d", i), Actor: "act", Effect: Idempotent}
		in := 0
		for k := range i {
			if g.chance(300/size+5, "edge") {
				out.Edges, in = append(out.Edges, Edge{From: fmt.Sprintf("n%d", k), To: n.ID}), in+1
			}
		}
		switch g.num(0, 5, "kind") {
		case 0:
			n.Join.Mode = Any
		case 1:
			if in > 0 {
				n.Join = Join{Mode: Quorum, N: g.num(1, in, "quorum")}
			}
		case 2:
			n.On = &Trigger{Inbox: &Inbox{}}
			for range g.num(0, 2, "senders") {
				n.On.Inbox.From = append(n.On.Inbox.From, fmt.Sprintf("n%d", g.num(0, size-1, "sender")))
			}
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}
