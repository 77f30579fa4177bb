package meaning

import (
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// assign reads a value and assigns it to a variable.
func (p *program) assign(target, id string, e *form.Expr, st *form.Stmt, shown bool) {
	got := p.top(e, id, st, shown)
	if st.Adds {
		got = withoutDoubles(append(got[:len(got):len(got)], p.env[target]...))
	}
	if _, again := p.env[target]; again && target != "" && len(got) > 0 && st.Label.Text != "" {
		p.note(false, "REDEFINED", target, target+" is set again by "+id+"; later uses mean this step", "use another name", st.Off)
	}
	p.env[target] = got
}

// withoutDoubles sorts a list and removes duplicates.
func withoutDoubles(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// top reads the value of a statement and returns the items that it stands for. The outermost call becomes an
// item with the given id.
func (p *program) top(e *form.Expr, id string, st *form.Stmt, shown bool) []int {
	e = unwrapCall(e)
	if e.Open {
		name := id
		if name == "" {
			name = callName(e)
		}
		p.note(true, "UNCLOSED", name, "the call of "+name+" is not closed", "write the closing )", e.Off)
	}
	if parts := p.gathered(e); parts != nil && e.Kind == form.Call {
		var all []int
		for _, x := range parts {
			all = append(all, p.eval(x)...)
		}
		return all
	}
	if c := repeated(e); c != nil && shown && !p.passes(c) {
		k := p.call(c, id, st, shown)
		p.note(false, "AMBIGUOUS", p.r.Items[k].ID, "the program runs "+p.r.Items[k].ID+" repeatedly; it was read as one step", "write each step to do", c.Off)
		return []int{k}
	}
	if e.Kind == form.Call && !shown && p.passes(e) || e.Kind != form.Call || st.Label.Text == "" && p.passes(e) {
		return p.eval(e)
	}
	k := p.call(e, id, st, shown)
	if b := e.Base; b.Kind == form.Attr && b.Base.Kind == form.Ident && len(st.Targets) == 0 && p.env[b.Base.Text] != nil {
		p.env[b.Base.Text] = []int{k} // page.goto(url) changes the page
	}
	return []int{k}
}

// repeated returns f(x) in [f(x) for x in y], or nil.
func repeated(e *form.Expr) *form.Expr {
	for range 3 {
		if len(e.Args) == 1 && (e.Kind == form.List || e.Kind == form.Call && gathers[e.Base.Path()]) {
			e = e.Args[0].Val
		}
	}
	if e.Kind != form.Ops || len(e.Ops) == 0 || e.Ops[0] != "for" || e.Args[0].Val.Kind != form.Call {
		return nil
	}
	return e.Args[0].Val
}

// passes reports whether a call is no step itself: it only computes, starts or waits for something.
func (p *program) passes(e *form.Expr) bool {
	name := callName(e)
	if inner := innerCall(e); inner != nil && trivial[e.Base.Text] {
		return p.passes(inner)
	}
	if isTrivial(name) && !(e.Await && e.Base.Kind == form.Ident) || wrappers[name] || gathers[name] || name == "" {
		return true
	}
	if e.Base.Kind == form.Attr {
		_, held := p.env[e.Base.Base.Path()]
		if held && results[e.Base.Text] && slices.ContainsFunc(e.Args, func(a form.ArgExpr) bool { return p.env[a.Val.Path()] != nil }) {
			return false // a.join(b)
		}
		if held && (results[e.Base.Text] || methods[e.Base.Text]) || trivial[e.Base.Text] && !held {
			return true
		}
	}
	if e.Base.Kind == form.Attr && p.runners[e.Base.Base.Path()] && controls[e.Base.Text] && callName(e) == e.Base.Path() {
		return true
	}
	if f, _ := functionOf(e); f != nil && hooks[e.Base.Text] {
		return true
	}
	d := p.defs[name]
	if d == nil || len(d.Marks) > 0 {
		return false
	}
	works := 0
	for _, x := range d.Body {
		works += b2i(x.Expr != nil && (x.Expr.Kind == form.Call || len(x.Targets) > 0))
	}
	return works > 1 && (name == "main" || len(d.Params) == 0)
}

// innerCall returns the call on whose result a method is called: f(x) in f(x).g(y). It returns nil if there
// is none.
func innerCall(e *form.Expr) *form.Expr {
	if e.Kind == form.Call && e.Base.Kind == form.Attr && e.Base.Base.Kind == form.Call {
		return e.Base.Base
	}
	return nil
}

// chainName returns the name of a chain of calls: df.dropna.groupby.sum.
func chainName(e *form.Expr) string {
	var names []string
	for in := innerCall(e); in != nil; e, in = in, innerCall(in) {
		names = append(names, e.Base.Text)
	}
	names = append(names, e.Base.Path())
	slices.Reverse(names)
	return strings.Join(names, ".")
}

// call adds the item of a call, with links from the items that its arguments use. It returns the item's
// index.
func (p *program) call(e *form.Expr, id string, st *form.Stmt, shown bool) int {
	name := callName(e)
	var uses []use
	if f, step := functionOf(e); f != nil && step != "" {
		name = step // step.run("fetch", async () => { … })
		p.usesIn(f, &uses)
	} else {
		p.args(e, &uses)
	}
	if innerCall(e) != nil && trivial[e.Base.Text] {
		name = chainName(e)
	}
	if id == "" {
		id = name[strings.LastIndexByte(strings.TrimRight(name, "."), '.')+1:]
	}
	title := name
	if st != nil && shown {
		title = strings.TrimSpace(oneLine(st, e, name))
	}
	k := p.item(id, title, shown, e.Off, e.End)
	p.origins[k] = origin{expr: e}
	it := &p.r.Items[k]
	if st != nil && !p.nested {
		it.Off = st.Off
	}
	it.Also = append(it.Also, name)
	it.Attrs = append(it.Attrs, Attr{Key: "tool", Role: Tool, Value: strconv.Quote(name), Off: e.Off})
	for _, u := range uses {
		it.Refs = append(it.Refs, Ref{Text: u.text, To: u.to, Off: u.off})
		for _, x := range u.items {
			p.link(x, k, Variable, u.off)
		}
		if u.items == nil && u.to != "" {
			p.r.Links = append(p.r.Links, Link{From: u.to, To: id, Source: Variable, Off: u.off})
			p.uses = true
		}
	}
	if _, set := p.env[name]; st != nil && !shown && !set {
		p.env[name] = []int{k} // a later TRIM.out means the result of TRIM(reads)
	}
	if st != nil && len(e.Args) == 0 && isJoin(name) {
		for x := range k {
			p.link(x, k, Stated, e.Off)
		}
	} else if st != nil && len(st.Targets) == 0 && len(uses) == 0 {
		p.bare[k] = true
	}
	return k
}

// oneLine returns the title of a call: its comment, or its name with its text arguments.
func oneLine(st *form.Stmt, e *form.Expr, name string) string {
	if st.Note != "" {
		return st.Note
	}
	var texts []string
	for _, a := range e.Args {
		if isText(a.Val) && len(texts) < 3 {
			texts = append(texts, a.Val.Text)
		}
	}
	return name + "(" + strings.Join(texts, ", ") + ")"
}

// isJoin reports whether a call waits for everything before it.
func isJoin(name string) bool {
	switch strings.ToLower(name) {
	case "join", "finish", "join_all", "joinall", "wait_all":
		return true
	}
	return false
}

// use is one use of a variable or label.
type use struct {
	text, to string
	items    []int
	off      int
}

// eval reads an expression and returns the items whose results it uses.
func (p *program) eval(e *form.Expr) []int {
	p.depth++
	defer func() { p.depth-- }()
	if e == nil || p.depth > 200 {
		return nil
	}
	if e.Kind == form.Call && !p.passes(e) {
		if e.Base.Kind == form.Attr {
			if held := p.env[e.Base.Base.Path()]; held != nil {
				var uses []use
				p.args(e, &uses)
				for _, u := range uses {
					held = append(held[:len(held):len(held)], u.items...)
				}
				return held
			}
		}
		return []int{p.call(e, "", nil, false)}
	}
	var uses []use
	p.partUses(e, &uses)
	var out []int
	seen := map[int]bool{}
	for _, u := range uses {
		for _, x := range u.items {
			if !seen[x] {
				seen[x] = true
				out = append(out, x)
			}
		}
	}
	return out
}

// usesIn collects the variables in an expression. Calls in the expression are no steps.
func (p *program) usesIn(e *form.Expr, uses *[]use) {
	walk(e, 0, func(x *form.Expr) bool {
		if x.Kind == form.Ident {
			p.exprUses(x, uses)
		}
		return true
	})
}

// args collects the uses in the arguments of a call. Calls in the arguments become items of their own.
func (p *program) args(e *form.Expr, uses *[]use) {
	name := callName(e)
	for e != nil && e.Kind == form.Call {
		for k, a := range e.Args {
			if e.Base.Kind == form.Call || k > 0 || a.Val.Path() != name {
				p.exprUses(a.Val, uses)
			}
		}
		b := e.Base
		if b.Kind == form.Attr && b.Base.Kind == form.Ident {
			if held, ok := p.env[b.Base.Text]; ok {
				*uses = append(*uses, use{text: b.Base.Text, to: p.nameOf(held), items: held, off: b.Off})
			}
		}
		if b.Kind == form.Attr {
			b = b.Base
		}
		e = b
	}
}

func (p *program) nameOf(held []int) string {
	if len(held) == 0 {
		return ""
	}
	return p.r.Items[held[0]].ID
}

// partUses collects the uses in the parts of an expression.
func (p *program) partUses(e *form.Expr, uses *[]use) {
	switch e.Kind {
	case form.Ident:
		p.exprUses(e, uses)
	case form.Text:
		p.textUses(e, uses)
	default:
		if e.Base != nil {
			p.exprUses(e.Base, uses)
		}
		for _, a := range e.Args {
			p.exprUses(a.Val, uses)
		}
	}
}

// exprUses collects the uses in an expression. A call in it becomes an item of its own.
func (p *program) exprUses(e *form.Expr, uses *[]use) {
	if e == nil {
		return
	}
	switch e.Kind {
	case form.Ident:
		if held, ok := p.env[e.Text]; ok {
			*uses = append(*uses, use{text: e.Text, to: p.nameOf(held), items: held, off: e.Off})
		} else if e.Text[0] == '$' || e.Text[0] == '#' {
			p.label(e.Text, e.Off, uses)
		}
	case form.Text:
		p.textUses(e, uses)
	case form.Call:
		got := p.eval(e)
		*uses = append(*uses, use{text: callName(e), to: p.nameOf(got), items: got, off: e.Off})
	default:
		p.depth++
		if p.depth < 200 {
			p.partUses(e, uses)
		}
		p.depth--
	}
}

// label adds the use of a label such as $1 or #E1. If no item has the label yet, the use refers to it by
// name.
func (p *program) label(text string, off int, uses *[]use) {
	name := strings.TrimLeft(text, "$")
	if !p.holder(text, off, uses) && !p.holder(name, off, uses) && (p.laterLabels[name] > 0 || len(p.laterLabels) > 0 && isNumber(name)) {
		*uses = append(*uses, use{text: text, to: name, off: off})
	}
}

// holder adds the use of a variable and returns whether the variable holds anything.
func (p *program) holder(name string, off int, uses *[]use) bool {
	held := p.env[name]
	if held != nil {
		*uses = append(*uses, use{text: name, to: p.nameOf(held), items: held, off: off})
	}
	return held != nil
}

// textUses collects the uses in a text: $1, ${1}, {x}, {{x}}, #E1.
func (p *program) textUses(e *form.Expr, uses *[]use) {
	s := e.Text
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '$' || c == '{' || c == '#' {
			j := i + 1
			for j < len(s) && (s[j] == '{' || c == '{' && (s[j] == ' ' || s[j] == '$')) {
				j++
			}
			n := nameLength(s[j:], "_")
			if n == 0 {
				continue
			}
			if name := s[j : j+n]; c == '{' {
				p.holder(name, e.Off+1+i, uses)
			} else {
				p.label(string(c)+name, e.Off+1+i, uses)
			}
			i = j + n - 1
		}
	}
}
