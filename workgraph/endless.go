package workgraph

import (
	"context"
	"strings"

	"cel.dev/cel-go/common/types"
)

// endlessCycles warns of cycles that nothing in the graph ends except max_visits, which pauses the run:
// inboxes that write to each other unconditionally, loops whose conditions are always true, and loops that go
// on while a node fails. These are not faults, because an actor may choose where the run goes on.
func (p *Program) endlessCycles(ctx context.Context, list *faultList) {
	always := &constants{m: newMeter(ctx, exprCostLimit)}
	p.endlessInboxes(always, list)
	ways := exitSearch{p: p, always: always, left: maxLoopWork}
	whileFailing := exitSearch{p: p, always: always, failing: true, left: maxLoopWork}
	for i := range p.edges {
		e := &p.edges[i]
		if ctx.Err() != nil || ways.left < 0 || whileFailing.left < 0 {
			return
		}
		if e.kind != BackEdge || !always.holds(e.when) {
			continue
		}
		f := Fault{Code: CodeEndless, From: p.nodes[e.from].ID, To: p.nodes[e.to].ID, Field: "when"}
		switch {
		case e.from == e.to && e.when == nil: // it goes round only if its node selects itself
			continue
		case ways.unconditional(e.to, e.from):
			f.Message, f.Hint = "the conditions on the way around this loop are always true", "let a condition become false; else only max_visits pauses the run, unless an actor chooses where it goes on"
		case whileFailing.unconditional(e.to, e.from):
			f.Message, f.Hint = "the loop goes on for as long as a node on its way fails", "give the BACK edge a condition that becomes false; else only max_visits pauses the run"
		default:
			continue
		}
		list.add(f)
	}
}

// endlessInboxes warns of inboxes that write to each other unconditionally.
func (p *Program) endlessInboxes(always *constants, list *faultList) {
	n := len(p.nodes)
	arcs := make([]arc, 0, len(p.edges))
	out := make([][]int32, n)
	for i := range p.edges {
		e := &p.edges[i]
		if e.message && p.nodes[e.from].inbox != nil && always.holds(e.when) && always.holds(p.nodes[e.from].when) && always.holds(p.nodes[e.to].when) {
			out[e.from] = append(out[e.from], int32(len(arcs)))
			arcs = append(arcs, arc{from: e.from, to: e.to})
		}
	}
	if len(arcs) == 0 {
		return
	}
	scc := components(n, arcs, out)
	members := map[int32][]string{}
	for _, v := range p.inboxes {
		members[scc[v]] = append(members[scc[v]], p.nodes[v].ID)
	}
	for _, v := range p.inboxes {
		if ids := members[scc[v]]; len(ids) > 1 && ids[0] == p.nodes[v].ID {
			shown := ids[:min(len(ids), 10)]
			list.add(Fault{Code: CodeEndless, Node: ids[0], Field: "on.inbox", Message: "these nodes write to each other, and no condition ends it: " + strings.Join(shown, ", "),
				Hint: "put a condition on one of the edges; else only max_visits pauses the run, unless an actor chooses where its messages go"})
		}
	}
}

// constants says which conditions always hold. A nil *constants treats every condition as one that may be
// false.
type constants struct {
	// m bounds the evaluation of all conditions together. Beyond the bound a condition counts as one that may
	// be false.
	m    *meter
	seen map[*Expr]bool
}

// holds reports whether there is no condition, or one without variables that is true.
func (c *constants) holds(when *Expr) bool {
	switch {
	case when == nil:
		return true
	case c == nil || !when.constant:
		return false
	}
	holds, ok := c.seen[when]
	if !ok {
		v, err := when.eval(c.m, rawVars(nil))
		holds = err == nil && v == types.True
		if c.seen == nil {
			c.seen = map[*Expr]bool{}
		}
		c.seen[when] = holds
	}
	return holds
}
