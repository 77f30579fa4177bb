package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readClasses reads tasks that are classes with a method that says what they require, as Luigi's are.
func readClasses(all []*form.Stmt) *program {
	p := newProgram(93, "classes")
	p.r.Stated = true
	index := map[string]int{}
	var classes []*form.Stmt
	for _, st := range all {
		if st.Word != "class" {
			continue
		}
		if isTaskClass(st) {
			index[st.Name.Text] = p.item(st.Name.Text, st.Name.Text, true, st.Off, st.End)
			classes = append(classes, st)
			continue
		}
		for _, m := range st.Body {
			if n := m.Name.Text; m.Word == "def" && (n == "run" || n == "requires" || n == "execute" || n == "output") {
				index[st.Name.Text] = p.item(st.Name.Text, st.Name.Text, true, st.Off, st.End)
				classes = append(classes, st)
				break
			}
		}
	}
	if len(classes) == 0 {
		p.nextSteps(all)
	}
	for _, st := range classes {
		for _, m := range st.Body {
			if m.Word != "def" || m.Name.Text != "requires" && m.Name.Text != "depends_on" {
				continue
			}
			each(m.Body, func(x *form.Stmt) {
				walk(x.Expr, 0, func(e *form.Expr) bool {
					if k, ok := index[e.Path()]; ok {
						p.link(k, index[st.Name.Text], Stated, e.Off)
					}
					return true
				})
			})
		}
	}
	if len(p.r.Links) == 0 {
		return nil
	}
	return p
}

// nextSteps reads the methods of a class that each say which ones come next, as Metaflow's do:
// self.next(self.clean).
func (p *program) nextSteps(all []*form.Stmt) {
	for _, class := range all {
		if class.Word != "class" {
			continue
		}
		next := map[string][]*form.Expr{}
		known := map[string]bool{}
		for _, m := range class.Body {
			if m.Word != "def" || len(m.Marks) == 0 {
				continue
			}
			known[m.Name.Text] = true
			each(m.Body, func(st *form.Stmt) {
				if e := st.Expr; e != nil && e.Kind == form.Call && (e.Base.Path() == "self.next" || e.Base.Path() == "this.next") {
					next[m.Name.Text] = append(next[m.Name.Text], positional(e)...)
				}
			})
		}
		if len(next) == 0 {
			continue
		}
		index := map[string]int{}
		for _, m := range class.Body {
			if known[m.Name.Text] && m.Word == "def" {
				index[m.Name.Text] = p.item(m.Name.Text, m.Name.Text, true, m.Off, m.End)
			}
		}
		for _, m := range class.Body {
			for _, e := range next[m.Name.Text] {
				if k, ok := index[e.Text]; ok && e.Kind == form.Attr {
					p.link(index[m.Name.Text], k, Stated, e.Off)
				}
			}
		}
	}
}

// isTaskClass reports whether a class is derived from one of tasks.
func isTaskClass(st *form.Stmt) bool {
	for _, base := range st.Params {
		if strings.HasSuffix(base, "Task") || strings.HasSuffix(base, "Step") || strings.HasSuffix(base, "Job") {
			return true
		}
	}
	return false
}

// readTopology reads a dictionary of tasks with sets of those that they need, as TopologicalSorter takes it.
func readTopology(all []*form.Stmt) *program {
	var dict *form.Expr
	sorted := false
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			sorted = sorted || e.Kind == form.Call && strings.Contains(strings.ToLower(callName(e)), "topolog")
			if dict == nil && e.Kind == form.List && len(e.Args) > 1 && e.Args[0].Key != "" && e.Args[0].Val.Kind != form.Text {
				dict = e
			}
			return true
		})
	})
	if dict == nil || !sorted {
		return nil
	}
	p := newProgram(93, "topology")
	p.r.Stated = true
	index := map[string]int{}
	for _, a := range dict.Args {
		if a.Key == "" || a.Val.Kind != form.List && a.Val.Kind != form.Call {
			return nil
		}
		index[a.Key] = p.item(a.Key, a.Key, true, a.Val.Off, a.Val.End)
	}
	for _, a := range dict.Args {
		walk(a.Val, 0, func(e *form.Expr) bool {
			if k, ok := index[e.Text]; ok && e.Kind == form.Text {
				p.link(k, index[a.Key], Stated, e.Off)
			} else if e.Kind == form.Text {
				p.r.Links = append(p.r.Links, Link{From: e.Text, To: a.Key, Source: Stated, Off: e.Off})
			}
			return true
		})
	}
	if len(p.seen) == 0 {
		return nil
	}
	return p
}

// readAssets reads functions that are named as parameters of others, as Dagster's assets are.
func readAssets(all []*form.Stmt) *program {
	p := newProgram(92, "assets")
	p.r.Stated = true
	index := map[string]int{}
	var defs []*form.Stmt
	for _, st := range all {
		if st.Word == "def" && len(st.Marks) > 0 {
			index[st.Name.Text] = -1
			defs = append(defs, st)
		}
	}
	called := 0
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			if _, ok := index[callName(e)]; ok && e.Kind == form.Call && len(e.Args) > 0 {
				called++
			}
			return true
		})
	})
	if len(defs) < 2 || called > 0 {
		return nil
	}
	for _, st := range defs {
		title := st.Name.Text
		if len(st.Body) > 0 && isText(st.Body[0].Expr) {
			title = strings.TrimSpace(st.Body[0].Expr.Text)
		}
		index[st.Name.Text] = p.item(st.Name.Text, title, true, st.Off, st.End)
	}
	for _, st := range defs {
		for _, name := range st.Params {
			if k, ok := index[name]; ok {
				p.link(k, index[st.Name.Text], Variable, st.Name.Off)
			}
		}
		for _, m := range st.Marks {
			walk(m, 0, func(e *form.Expr) bool {
				name := e.Path()
				if isText(e) {
					name = e.Text
				}
				if k, ok := index[name]; ok {
					p.link(k, index[st.Name.Text], Stated, e.Off)
				}
				return true
			})
		}
	}
	if len(p.r.Links) == 0 {
		return nil
	}
	return p
}

// nextKeys are the arguments whose values come after the task.
var nextKeys = setOf("next then before blocks successors downstream leads_to unlocks followed_by triggers on_success weiter siguiente suivant")

// built is a call that describes a task: an id and, in other arguments, ids of others.
type built struct {
	e  *form.Expr
	id string
}

// holdsFunctions reports whether a value among those of an object is a function: such an object is read as
// code.
func holdsFunctions(e *form.Expr) bool {
	return slices.ContainsFunc(e.Args, func(a form.ArgExpr) bool {
		return a.Val.Kind == form.Func || a.Val.Kind == form.Ops && a.Val.Ops[len(a.Val.Ops)-1] == "=>"
	})
}

// readBuilder reads calls of one function that each describe a task: step("b", after=["a"]).
func readBuilder(all []*form.Stmt) *program {
	groups := map[string][]built{}
	vars := map[string]string{}
	var names []string
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			if id := taskID(e); e.Kind == form.List && id != "" && holdsFunctions(e) { // { id: "b", run: () => f(), after: ["a"] }
				if groups["{"] == nil {
					names = append(names, "{")
				}
				groups["{"] = append(groups["{"], built{e, id})
			}
			if e.Kind != form.Call || len(e.Args) == 0 {
				return true
			}
			id := taskID(e)
			if id == "" {
				if a := e.Args[0]; a.Key == "" && (isText(a.Val) || a.Val.Kind == form.Digits) || a.Key == "id" || a.Key == "nr" {
					id = a.Val.Text
				}
			}
			name := e.Base.Path()
			if e.Base.Kind == form.Attr {
				name = "." + e.Base.Text
			}
			if id != "" && name != "" {
				if groups[name] == nil {
					names = append(names, name)
				}
				groups[name] = append(groups[name], built{e, id})
				if len(st.Targets) == 1 && st.Expr == e {
					vars[st.Targets[0].Text] = id
				}
			}
			return true
		})
	})
	var mixed []built
	for _, name := range names {
		if p := buildGroup(groups[name], vars); p != nil {
			return p
		}
		for _, b := range groups[name] {
			if len(b.e.Args) > 1 && taskID(b.e) == b.id {
				mixed = append(mixed, b) // calls of several functions that name what they make
			}
		}
	}
	if len(names) > 1 {
		return buildGroup(mixed, vars)
	}
	return nil
}

// buildGroup reads the calls of one function, if their arguments name one another.
func buildGroup(group []built, vars map[string]string) *program {
	index := map[string]int{}
	for k, b := range group {
		if _, twice := index[b.id]; !twice {
			index[b.id] = k
		}
	}
	if len(group) < 2 || len(index) < 2 {
		return nil
	}
	// keys are the arguments that name other tasks.
	keys := map[string]bool{}
	refs := func(b built, visit func(key, id string, off int)) {
		for n, a := range b.e.Args {
			if n == 0 && a.Key == "" || a.Val.Text == b.id && a.Val.Kind != form.List {
				continue
			}
			vals := []form.ArgExpr{a}
			if a.Val.Kind == form.List {
				vals = a.Val.Args
			}
			for _, v := range vals {
				id := v.Val.Text
				if v.Val.Kind == form.Ident {
					if id = vars[id]; id == "" {
						continue
					}
				} else if v.Val.Kind != form.Text && v.Val.Kind != form.Digits {
					continue
				}
				id = strings.TrimPrefix(id, ":")
				key := a.Key
				if key == "" {
					key = string(rune('0' + min(n, 9)))
				}
				visit(key, id, v.Val.Off)
			}
		}
	}
	hits := 0
	for _, b := range group {
		refs(b, func(key, id string, _ int) {
			if _, ok := index[id]; ok && id != b.id {
				keys[key] = true
				hits++
			}
		})
	}
	if hits == 0 {
		return nil
	}
	p := newProgram(94, "builder")
	p.r.Stated = true
	for _, b := range group {
		title := b.id
		for n, a := range b.e.Args {
			if isText(a.Val) && a.Val.Text != b.id && !keys[a.Key] && (n < 3 || a.Key == "title" || a.Key == "desc" || a.Key == "description") {
				title = a.Val.Text
				break
			}
		}
		p.item(b.id, title, true, b.e.Off, b.e.End)
		if b.e.Open {
			p.note(true, "UNCLOSED", b.id, "the call that describes "+b.id+" is not closed", "write the closing )", b.e.Off)
		}
	}
	for _, b := range group {
		refs(b, func(key, id string, off int) {
			if !keys[key] {
				return
			}
			from, to := id, b.id
			if nextKeys[key] {
				from, to = to, from
			}
			p.r.Links = append(p.r.Links, Link{From: from, To: to, Source: Stated, Off: off})
		})
	}
	return p
}

// seqCalls and parCalls are functions whose arguments run one after the other, or side by side.
var (
	seqCalls = setOf("chain Seq SEQ seq sequence Sequence sequential Sequential series Series Chain pipeline Pipeline pipe compose flowRight flow chord then RunnableSequence")
	parCalls = setOf("group both Par Both par parallel Parallel Group gather all Promise.all asyncio.gather concurrently ParallelGroup RunnableParallel fanout fan_out")
)

// readPipeline reads nested chain(a, group(b, c), d), a | b | c and a().then(b).then(c).
func readPipeline(all []*form.Stmt) *program {
	var best *program
	each(all, func(st *form.Stmt) {
		if st.Expr == nil || st.Word == "import" {
			return
		}
		f := &form.Flow{Kind: "seq"}
		p := newProgram(93, "pipeline")
		if !(len(all) == 1 && p.fluent(st.Expr, f)) && !p.flow(st.Expr, f, b2i(piped(st))) || len(p.r.Items) < 2 || best != nil && len(best.r.Items) >= len(p.r.Items) {
			return
		}
		f.Order(nil, 0, func(a, b int) { p.link(a, b, Stated, p.r.Items[b].Off) })
		p.r.Stated = true
		best = p
	})
	return best
}

// fluent reads a chain of calls, each a method of what the one before returns:
// load("x").filter().embed().cluster().
func (p *program) fluent(e *form.Expr, f *form.Flow) bool {
	if e.Kind == form.List && len(e.Args) == 1 {
		e = e.Args[0].Val
	}
	var calls []*form.Expr
	for range 200 {
		if e.Kind != form.Call {
			return false
		}
		calls = append(calls, e)
		if e.Base.Kind == form.Ident {
			break
		}
		if e.Base.Kind != form.Attr || isTrivial(e.Base.Text) || e.Base.Text == "then" || e.Base.Text == "next" || hooks[e.Base.Text] || results[e.Base.Text] {
			return false
		}
		e = e.Base.Base
	}
	if first := e.Base.Text; len(calls) < 4 || e.Base.Kind != form.Ident || seqCalls[first] || parCalls[first] || isTrivial(first) || first == "$" || strings.ToLower(first[:1]) != first[:1] {
		return false
	}
	for _, c := range slices.Backward(calls) {
		name := c.Base.Text
		f.Add("step", p.item(name, name, true, c.End-1, c.End))
	}
	return true
}

// piped reports whether a variable is given a pipe of nothing but names: chain = prompt | model | parser.
func piped(st *form.Stmt) bool {
	if e := st.Expr; e.Kind == form.Ops && len(st.Targets) == 1 && len(e.Args) > 2 {
		for _, a := range e.Args {
			if a.Val.Kind != form.Ident {
				return false
			}
		}
		return true
	}
	return false
}

// flow reads an expression as a structure of steps; it returns whether it is more than one step.
func (p *program) flow(e *form.Expr, f *form.Flow, depth int) bool {
	if e == nil || depth > 100 {
		return false
	}
	if e.Kind == form.Ops && len(e.Ops) > 0 && (e.Ops[0] == "|" || e.Ops[0] == "|>") {
		ok, args := false, e.Args
		if isText(args[0].Val) {
			args = args[1:] // what the first step gets
		}
		for _, a := range args {
			if a.Val.Kind == form.Call || a.Val.Kind == form.List {
				ok = true
			} else if a.Val.Kind != form.Ident {
				return false
			}
		}
		if !ok && depth == 0 {
			return false
		}
		p.parts(args, f.Add("seq", 0), depth)
		return true
	}
	if e.Kind == form.Ops && len(e.Ops) > 0 && (e.Ops[0] == "||" || e.Ops[0] == "&") && depth > 0 {
		return p.parts(e.Args, f.Add("par", 0), depth)
	}
	if e.Kind == form.List && len(e.Args) == 1 && e.Args[0].Val.Kind == form.Ops {
		return p.flow(e.Args[0].Val, f, depth+1) // brackets around an expression
	}
	if e.Kind == form.List && depth > 0 {
		p.parts(e.Args, f.Add("par", 0), depth)
		return true
	}
	if e.Kind != form.Call && (e.Kind != form.Index || !sequenceWord(e.Base.Path()) && !seqCalls[e.Base.Path()] && !parCalls[e.Base.Path()] && !parallelWord(e.Base.Path())) {
		return false
	}
	name := e.Base.Path()
	switch {
	case seqCalls[name] && nestsData(e):
		return false
	case (seqCalls[name] || sequenceWord(name)) && len(e.Args) > 0:
		args := e.Args
		if name == "compose" || name == "flowRight" { // what stands last is done first
			args = slices.Clone(args)
			slices.Reverse(args)
		}
		if len(args) == 1 && args[0].Val.Kind == form.List && name != "chord" {
			args = args[0].Val.Args
		}
		return p.parts(args, f.Add("seq", 0), depth)
	case e.Base.Kind == form.Call && seqCalls[e.Base.Base.Path()] && e.Base.Base.Path() != "chord" && depth < 90: // pipe(f, g)(x)
		return p.flow(e.Base, f, depth+1)
	case e.Base.Kind == form.Call && e.Base.Base.Path() == "chord": // chord(group)(callback)
		seq := f.Add("seq", 0)
		p.parts(e.Base.Args, seq, depth)
		return p.parts(e.Args, seq, depth)
	case parCalls[name] && nestsData(e):
		return false
	case (parCalls[name] || parallelWord(name)) && depth > 0:
		args := e.Args
		if len(args) == 1 && args[0].Val.Kind == form.List {
			args = args[0].Val.Args
		}
		return p.parts(args, f.Add("par", 0), depth)
	case e.Base.Kind == form.Attr && (e.Base.Text == "then" || e.Base.Text == "pipe" || e.Base.Text == "and_then") && e.Base.Base.Kind == form.Call:
		seq := f.Add("seq", 0)
		if !p.flow(e.Base.Base, seq, depth+1) {
			p.leaf(e.Base.Base, seq)
		}
		p.parts(e.Args, seq, depth)
		return true
	case e.Base.Kind == form.Attr && (e.Base.Text == "catch" || e.Base.Text == "finally" || results[e.Base.Text] || methods[e.Base.Text]) && e.Base.Base.Kind == form.Call && depth < 90:
		return p.flow(e.Base.Base, f, depth+1)
	}
	return false
}

// nestsData reports whether calls among the arguments of one are given calls in turn, and so pass on what
// these return: compose(translate(record("x"))) composes a text, not functions.
func nestsData(e *form.Expr) bool {
	if e.Base.Path() == "compose" || e.Base.Path() == "flowRight" {
		return slices.ContainsFunc(e.Args, func(a form.ArgExpr) bool { return a.Val.Kind != form.Ident && a.Val.Kind != form.Attr })
	}
	for _, a := range e.Args {
		name := callPath(a.Val)
		if name == "" || seqCalls[name] || parCalls[name] || sequenceWord(name) || parallelWord(name) {
			continue
		}
		for _, x := range a.Val.Args {
			if x.Val.Kind == form.Call && !isTrivial(callName(x.Val)) && !seqCalls[callPath(x.Val)] && !parCalls[callPath(x.Val)] {
				return true
			}
		}
	}
	return false
}

// parts reads the parts of a structure and returns whether there are any.
func (p *program) parts(args []form.ArgExpr, f *form.Flow, depth int) bool {
	for _, a := range args {
		if a.Val == nil || a.Key != "" && a.Val.Kind != form.Call {
			continue
		}
		if !p.flow(a.Val, f, depth+1) {
			p.leaf(a.Val, f)
		}
	}
	return len(f.Kids) > 0
}

// leaf adds one step: a name, a call, or what an arrow function calls.
func (p *program) leaf(e *form.Expr, f *form.Flow) {
	name := e.Path()
	switch e.Kind {
	case form.Call:
		name = callName(e)
	case form.Ops:
		last := e.Args[len(e.Args)-1].Val
		if e.Ops[len(e.Ops)-1] == "=>" && (p.flow(last, f, 1) || last.Kind == form.Call) {
			if last.Kind == form.Call && !seqCalls[last.Base.Path()] && !parCalls[last.Base.Path()] {
				name = callName(last)
				break
			}
			return
		}
	case form.Text:
		name = e.Text
	case form.List:
		if len(e.Args) > 1 && isText(e.Args[0].Val) { // ("name", step)
			name = e.Args[0].Val.Text
		}
	}
	if name == "" {
		return
	}
	f.Add("step", p.item(name, name, true, e.Off, e.End))
}
