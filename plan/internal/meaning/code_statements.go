package meaning

import (
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// run reads statements in order.
func (p *program) run(body []*form.Stmt, depth int) {
	if depth > 100 {
		return
	}
	for _, st := range body {
		if len(p.r.Items) > 9000 {
			p.note(true, "LIMIT_REACHED", p.r.Items[len(p.r.Items)-1].ID, "the program has too many steps", "split it", st.Off)
			return
		}
		switch st.Word {
		case "import", "def", "class", "pass":
			continue
		case "with", "if", "else", "for", "try":
			if st.Word == "if" && len(st.Targets) > 0 { // if err := f(); err != nil {
				p.statement(&form.Stmt{Targets: st.Targets, Expr: st.Expr, Clean: true, Off: st.Off, End: st.End})
			}
			p.block(st, depth)
			continue
		}
		if st.Expr != nil && len(st.Targets) == 0 && p.starts(st.Expr, depth) {
			continue
		}

		p.statement(st)
		if len(st.Body) > 0 {
			p.run(st.Body, depth+1)
		}
	}
}

// block reads the body of a with, if, else, for or try.
func (p *program) block(st *form.Stmt, depth int) {
	before := len(p.r.Items)
	if st.Word == "for" && st.Expr != nil {
		p.loopHead(st.Expr)
	}
	p.run(st.Body, depth+1)
	if st.Word == "if" || st.Word == "else" || st.Word == "for" {
		for _, it := range p.r.Items[before:] {
			p.note(false, "AMBIGUOUS", it.ID, "the program runs "+it.ID+" only under a condition or repeatedly; it was read as one step", "write each step to do", it.Off)
		}
	}
}

// loopHead reads the head of a loop. The loop variables hold the items that the list comes from.
func (p *program) loopHead(e *form.Expr) {
	if e.Kind != form.Ops || len(e.Args) < 2 || e.Ops[len(e.Ops)-1] != "in" && e.Ops[len(e.Ops)-1] != "of" {
		p.eval(e)
		return
	}
	held := p.eval(e.Args[len(e.Args)-1].Val)
	for _, a := range e.Args[:len(e.Args)-1] {
		if name := a.Val.Path(); name != "" {
			p.env[name] = held
		}
	}
}

// statement reads an assignment or a call.
func (p *program) statement(st *form.Stmt) {
	e := st.Expr
	if e == nil {
		return
	}
	if p.appends(e) || p.controlled(st) || len(st.Targets) <= 1 && p.barrier(e) {
		return
	}
	if targets := withoutSpare(st.Targets); len(targets) < len(st.Targets) {
		few := *st
		few.Targets, st = targets, &few
	}
	id := st.Label.Text
	if e.Kind == form.Ident && id != "" && isJoin(e.Text) {
		e = &form.Expr{Kind: form.Call, Base: e, Off: e.Off, End: e.End}
	}
	named := id != ""
	if id == "" && len(st.Targets) == 1 {
		id = st.Targets[0].Text
	}
	first := len(p.r.Items)
	if len(st.Targets) > 1 {
		if parts := p.gathered(e); len(parts) == len(st.Targets) {
			for k, part := range parts {
				p.assign(st.Targets[k].Text, st.Targets[k].Text, part, st, true)
			}
			p.follow(first)
			return
		}
		names := make([]string, len(st.Targets))
		for k, t := range st.Targets {
			names[k] = t.Text
		}
		got := p.top(e, names[0], st, true)
		for _, n := range names {
			p.env[n] = got
		}
		p.follow(first)
		return
	}
	target := ""
	if len(st.Targets) == 1 {
		target = st.Targets[0].Text
	}
	p.assign(target, id, e, st, named || target != "")
	if named {
		k := strings.TrimLeft(st.Label.Text, "$")
		p.env["$"+k], p.env[st.Label.Text] = p.env[target], p.env[target]
		if target == "" {
			delete(p.env, "")
		}
	}
	p.follow(first)
}

// appends reads x.append(f(y)): the items of f are added to those that x holds. It returns false for other
// statements.
func (p *program) appends(e *form.Expr) bool {
	if e.Kind != form.Call || e.Base.Kind != form.Attr || len(e.Args) == 0 {
		return false
	}
	switch e.Base.Text {
	case "append", "push", "add", "extend", "insert":
	default:
		return false
	}
	name := e.Base.Base.Path()
	held, ok := p.env[name]
	if !ok || len(held) > 0 && e.Base.Text == "add" {
		return false
	}
	first := len(p.r.Items)
	for _, a := range e.Args {
		held = append(held[:len(held):len(held)], p.eval(a.Val)...)
	}
	p.env[name] = held
	p.follow(first)
	return true
}

// follow records that the new items from index first on come after the items of the statement before. The new
// items that are not used by other new ones precede the next statement.
func (p *program) follow(first int) {
	if len(p.r.Items) == first {
		return
	}
	for k := first; k < len(p.r.Items); k++ {
		for _, x := range p.prev {
			p.order = append(p.order, [2]int{x, k})
		}
	}
	inner := map[int]bool{}
	for e := range p.fresh {
		inner[e] = true
	}
	p.fresh = nil
	p.prev = nil
	for k := first; k < len(p.r.Items); k++ {
		if !inner[k] {
			p.prev = append(p.prev, k)
		}
	}
}

// gathered returns the calls that run in parallel in gather(a(), b()) or Promise.all([a(), b()]). For a list
// of calls it returns the calls.
func (p *program) gathered(e *form.Expr) []*form.Expr {
	if e.Kind == form.Ops || e.Kind == form.List {
		var out []*form.Expr
		for _, a := range e.Args {
			if a.Val.Kind != form.Call {
				return nil
			}
			out = append(out, a.Val)
		}
		return out
	}
	if e.Kind != form.Call || !gathers[e.Base.Path()] {
		return nil
	}
	args := e.Args
	if len(args) == 1 && args[0].Val.Kind == form.List {
		args = args[0].Val.Args
	}
	var out []*form.Expr
	for _, a := range args {
		out = append(out, a.Val)
	}
	return out
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// finish orders the statements. If no variable connects any, they follow one another in the order of the
// text. Otherwise only calls that share no variable with others are linked in that order, with a note.
func (p *program) finish(labeled bool) {
	if len(p.r.Links) == 0 && len(p.order) > 0 && !labeled {
		for _, e := range p.order {
			p.link(e[0], e[1], ListedOrder, p.r.Items[e[1]].Off)
		}
		return
	}
	if labeled {
		p.r.Stated = true
		return
	}
	if !p.uses {
		return
	}
	linked := make(map[int]bool, len(p.seen))
	for e := range p.seen {
		linked[e[0]], linked[e[1]] = true, true
	}
	lead := 0 // the calls at the start of the program whose results are not used
	for p.bare[lead] && !linked[lead] {
		lead++
	}
	for _, e := range p.order {
		if a, b := p.r.Items[e[0]], p.r.Items[e[1]]; e[0] < lead && e[1] >= lead {
			p.link(e[0], e[1], ListedOrder, b.Off)
			p.note(false, "AMBIGUOUS", a.ID, b.ID+" uses nothing of "+a.ID+"; it was taken to follow it, as in the program", "state what waits for it", a.Off)
		}
		if a, b := p.r.Items[e[0]], p.r.Items[e[1]]; p.bare[e[1]] {
			p.link(e[0], e[1], ListedOrder, b.Off)
			p.note(false, "AMBIGUOUS", b.ID, b.ID+" uses nothing of the other steps; it was taken to follow "+a.ID+", the step before it", "state its needs", b.Off)
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
