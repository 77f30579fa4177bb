package workgraph

import (
	"context"
	"fmt"
)

// This file is what keeps a question of approval in the way of what it is asked for: an amendment must not
// lead around it.

// guardedBy marks the nodes that cannot begin before a visit of the node is over: each way to them leads
// through it, or they wait for it beside others.
func (p *Program) guardedBy(ctx context.Context, asks int32) ([]bool, error) {
	free := make([]bool, len(p.nodes)) // those that can
	come := make([]int32, len(p.nodes))
	var queue []int32
	begin := func(n int32) {
		if n != asks && !free[n] {
			free[n] = true
			queue = append(queue, n)
		}
	}
	senders := map[string][]int32{} // inboxes that take messages of a node
	for i := range p.nodes {
		n, pn := int32(i), &p.nodes[i]
		switch {
		case pn.inbox == nil:
			if len(pn.in) == 0 && !pn.mailed {
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
	for looked := 0; len(queue) > 0; looked++ {
		if looked%1000 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
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
			case pe.message, p.regions[to.region].token: // each that comes begins a visit
				begin(pe.to)
			case pe.kind == BackEdge: // its loop has begun
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
	return guarded, nil
}

// stillGuarded refuses an amendment after which something need not wait any more for what was asked at the
// visit.
func (a *amendment) stillGuarded(ctx context.Context, ns *nodeState) error {
	was, err := a.s.p.guardedBy(ctx, ns.n)
	if err != nil {
		return err
	}
	var is []bool
	if to := a.nodes[ns.n]; to >= 0 {
		if is, err = a.q.guardedBy(ctx, to); err != nil {
			return err
		}
	}
	asks := a.s.node(ns).ID
	for n, guarded := range was {
		to := a.nodes[n]
		if !guarded || to < 0 || is != nil && is[to] {
			continue
		}
		if ended, begun := a.ended(int32(n)); ended && !begun {
			continue
		}
		id := a.q.nodes[to].ID
		a.refuse(Fault{Code: CodeApproved, Node: id, Message: fmt.Sprintf("the node waits for what is asked at %s, and would not any more", a.s.ref(ns, 0)),
			Hint: "remove it too, or leave " + asks + " and the way from there to it as they are"})
	}
	return nil
}
