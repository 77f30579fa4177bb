package workgraph

import (
	"context"
	"fmt"
	"math/bits"
)

// This file checks that an amendment does not lead around an approval.

// guards computes which of up to reachBatch asking nodes guard each node of a program. An asking node guards
// a node that cannot begin before a visit of the asking node is over: either every path to the node leads
// through it, or the node's join waits for it. One pass over the edges handles all asking nodes, each as one
// bit.
type guards struct {
	p *Program
	// own has the bit of each node that asks.
	own map[int32]reachSet
	// free are the interrupts without which the node can begin. fresh is the part that was not handed on yet.
	free, fresh []reachSet
	// come counts, for each interrupt, the edges into the node that arrive without it. Each set holds one
	// binary digit of all these numbers, the lowest first.
	come [][]reachSet
	// senders has, for each node, the inboxes that name it.
	senders map[int32][]int32
	// rank orders the nodes with ancestors first. queue has a bit for each rank whose node has something
	// fresh.
	rank  []int32
	queue bitset
}

// guardedBy computes for each node which of the asking nodes guard it, by the bit of their place in asks.
// asks has at most reachBatch entries; an entry of -1 guards nothing.
func (p *Program) guardedBy(ctx context.Context, asks []int32) ([]reachSet, error) {
	g := guards{p: p, own: map[int32]reachSet{}, free: make([]reachSet, len(p.nodes)), fresh: make([]reachSet, len(p.nodes)),
		come: make([][]reachSet, len(p.nodes)), senders: map[int32][]int32{}, rank: make([]int32, len(p.nodes)), queue: newBitset(len(p.nodes))}
	var all reachSet
	for i, n := range asks {
		if n >= 0 {
			var bit reachSet
			bit.add(i)
			g.own[n] = bit
			all.add(i)
		}
	}
	order := p.reaches().order()
	for rank, n := range order {
		g.rank[n] = int32(rank)
	}
	g.start(all)
	looked := 0
	for again := true; again; { // inboxes may lead back in the order
		again = false
		for w := range g.queue {
			for g.queue[w] != 0 {
				again = true
				if looked++; looked%1000 == 0 && ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				n := order[w*64+bits.TrailingZeros64(g.queue[w])]
				g.queue[w] &= g.queue[w] - 1
				g.handOn(n)
			}
		}
	}
	guarded := g.free
	for n := range guarded {
		guarded[n] = all.without(guarded[n]).without(g.own[int32(n)])
	}
	return guarded, nil
}

// start begins the nodes that wait for nothing in the graph.
func (g *guards) start(all reachSet) {
	for i := range g.p.nodes {
		n, pn := int32(i), &g.p.nodes[i]
		switch {
		case pn.inbox == nil:
			if len(pn.in) == 0 && !pn.edgeIn {
				g.begin(n, all)
			}
		case len(pn.inbox.From) == 0:
			g.begin(n, all)
		default:
			for _, from := range pn.inbox.From {
				if sender, inside := g.p.index[from]; inside {
					g.senders[sender] = append(g.senders[sender], n)
				} else {
					g.begin(n, all)
				}
			}
		}
	}
}

// begin notes that the node can begin without these interrupts.
func (g *guards) begin(n int32, without reachSet) {
	fresh := without.without(g.free[n])
	if own, asks := g.own[n]; asks {
		fresh = fresh.without(own)
	}
	if fresh == (reachSet{}) {
		return
	}
	g.free[n].join(fresh)
	g.fresh[n].join(fresh)
	g.queue.add(int(g.rank[n]))
}

// handOn lets the next nodes begin without the interrupts without which the node can now begin.
func (g *guards) handOn(n int32) {
	fresh := g.fresh[n]
	g.fresh[n] = reachSet{}
	for _, to := range g.senders[n] {
		g.begin(to, fresh)
	}
	for _, e := range g.p.nodes[n].out {
		pe := &g.p.edges[e]
		to := &g.p.nodes[pe.to]
		switch {
		case pe.message, g.p.regions[to.region].token: // each delivery begins a visit
			g.begin(pe.to, fresh)
		case pe.kind == BackEdge: // its loop has already begun
		default:
			need := int(to.quorum)
			if need == 0 {
				need = len(to.in)
			}
			g.begin(pe.to, g.count(pe.to, len(to.in), need, fresh))
		}
	}
}

// count adds one to the node's number for each of these interrupts. It returns the interrupts whose number
// has just reached need. most is the largest possible number.
func (g *guards) count(n int32, most, need int, fresh reachSet) reachSet {
	if need == 1 {
		return fresh
	}
	if g.come[n] == nil {
		g.come[n] = make([]reachSet, bits.Len(uint(most)))
	}
	reached, carry := fresh, fresh
	for digit := range g.come[n] {
		d := &g.come[n][digit]
		for k := range d {
			d[k], carry[k] = d[k]^carry[k], d[k]&carry[k]
			if need>>digit&1 == 1 {
				reached[k] &= d[k]
			} else {
				reached[k] &^= d[k]
			}
		}
	}
	return reached
}

// stillGuarded refuses an amendment after which some node need no longer wait for an interrupt that was
// opened at one of these visits. The visits are of different nodes.
func (a *amendment) stillGuarded(ctx context.Context, asked []*nodeState) error {
	for len(asked) > 0 {
		batch := asked[:min(len(asked), reachBatch)]
		asked = asked[len(batch):]
		old, now := make([]int32, len(batch)), make([]int32, len(batch))
		for i, ns := range batch {
			old[i], now[i] = ns.n, a.nodes[ns.n]
		}
		was, err := a.s.p.guardedBy(ctx, old)
		if err != nil {
			return err
		}
		is, err := a.q.guardedBy(ctx, now)
		if err != nil {
			return err
		}
		for n := range was {
			to := a.nodes[n]
			if to < 0 {
				continue
			}
			if lost := was[n].without(is[to]); lost != (reachSet{}) {
				a.lostGuards(int32(n), batch, lost)
			}
		}
	}
	return nil
}

// lostGuards records the refusal for one node, which would no longer wait for the lost interrupts.
func (a *amendment) lostGuards(n int32, asked []*nodeState, lost reachSet) {
	if ended, begun := a.ended(n); ended && !begun {
		return
	}
	for i, ns := range asked {
		if !lost.has(i) {
			continue
		}
		asks := a.s.node(ns).ID
		a.refuse(Fault{Code: CodeApproved, Node: a.q.nodes[a.nodes[n]].ID, Message: fmt.Sprintf("the node waits for what is asked at %s, and would not any more", a.s.ref(ns, 0)),
			Hint: "remove it too, or leave " + asks + " and the way from there to it as they are"})
	}
}
