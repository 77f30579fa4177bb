package workgraph

import (
	"context"
	"fmt"
	"math/bits"
)

// This file is what keeps a question of approval in the way of what it is asked for: an amendment must not
// lead around it.

// guards finds which of up to reachBatch nodes guard each node of a program: a node is guarded by one that
// asks if it cannot begin before a visit of that one is over, since each way to it leads through the other, or
// it waits for the other beside others. All of those that ask are looked at in one pass over the edges, each
// by a bit of its own.
type guards struct {
	p *Program
	// own has the bit of each node that asks.
	own map[int32]reachSet
	// free are the questions without which the node can begin; fresh is what of that was not handed on.
	free, fresh []reachSet
	// come counts, for each question, the edges into the node that come without it: the first set has the
	// lowest binary digit of all these numbers.
	come [][]reachSet
	// senders has, for each node, the inboxes that name it.
	senders map[int32][]int32
	// rank orders the nodes so that those come first that lead to others. queue has a bit for each rank
	// whose node has something fresh.
	rank  []int32
	queue bitset
}

// guardedBy tells of each node which of those that ask guard it, each by the bit of its place in the list, of
// at most reachBatch; -1 in the list guards nothing.
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

// start begins what waits for nothing in the graph.
func (g *guards) start(all reachSet) {
	for i := range g.p.nodes {
		n, pn := int32(i), &g.p.nodes[i]
		switch {
		case pn.inbox == nil:
			if len(pn.in) == 0 && !pn.mailed {
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

// begin notes that the node can begin without these questions.
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

// handOn lets what the node leads to begin without the questions without which the node newly can.
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
		case pe.message, g.p.regions[to.region].token: // each that comes begins a visit
			g.begin(pe.to, fresh)
		case pe.kind == BackEdge: // its loop has begun
		default:
			need := int(to.quorum)
			if need == 0 {
				need = len(to.in)
			}
			g.begin(pe.to, g.count(pe.to, len(to.in), need, fresh))
		}
	}
}

// count adds one to the numbers of these questions at the node, of whose edges at most so many come, and
// gives those whose number is the needed one now.
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

// stillGuarded refuses an amendment after which something need not wait any more for what was asked at one of
// the visits, which are of different nodes.
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

// lostGuards refuses that the node need not wait any more for some of what was asked at the visits.
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
