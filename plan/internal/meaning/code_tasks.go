package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// described is a task that a program defines or describes: a class, a decorated function, an entry of a
// dictionary, or a call or object with an id.
type described struct {
	id       string
	off, end int
	open     bool
	named    bool       // the id is in a keyword argument
	expr     *form.Expr // the call or object, or the decorators of a definition
	def      bool
	refs     []taskRef
}

// taskRef is a name or text in the description of a task. key is the argument, or the kind of place, that
// holds it. A loose reference may mean something other than a task.
type taskRef struct {
	id, key string
	off     int
	loose   bool
}

// describer collects tasks in groups by the way in which they are described.
type describer struct {
	groups map[string][]described
	names  []string          // of the groups, in order of appearance
	called map[string]bool   // functions that are called with arguments
	vars   map[string]string // the id of the task that a variable holds
}

func (b *describer) add(group string, d described) {
	if b.groups[group] == nil {
		b.names = append(b.names, group)
	}
	b.groups[group] = append(b.groups[group], d)
}

// readTasks reads tasks that name one another where they are defined or described: step("b", after=["a"]),
// {"b": {"a"}} for a TopologicalSorter, Luigi's classes, Metaflow's methods, Dagster's assets.
func readTasks(src *form.Source, all []*form.Stmt) *program {
	b := &describer{groups: map[string][]described{}, called: map[string]bool{}, vars: map[string]string{}}
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			if b.expression(st, e); e.Kind == form.Call && len(e.Args) > 0 {
				b.called[callName(e)] = true
			}
			return true
		})
	})
	b.dictionary(all)
	b.definitions(all, "")
	var mixed []described
	for _, name := range b.names {
		if p := linkTasks(src, b.groups[name]); p != nil {
			return p
		}
		for _, d := range b.groups[name] {
			if d.named {
				mixed = append(mixed, d) // the tasks are made by calls of several functions
			}
		}
	}
	if len(b.names) > 1 {
		return linkTasks(src, mixed)
	}
	return nil
}

// definitions collects classes with a method that states requirements, and decorated functions. References
// are names in the requirements, parameters, decorators and calls of self.next().
func (b *describer) definitions(all []*form.Stmt, class string) {
	for _, st := range all {
		name := st.Name.Text
		d := described{id: name, off: st.Off, end: st.End, def: true}
		mention := func(key string) func(e *form.Expr) bool {
			return func(e *form.Expr) bool {
				id := e.Path()
				if isText(e) || strings.HasPrefix(id, "self.") {
					id = e.Text
				}
				d.refs = append(d.refs, taskRef{id, key, e.Off, true})
				return true
			}
		}
		switch {
		case st.Word == "class":
			task := isTaskClass(st)
			for _, m := range st.Body {
				switch m.Name.Text {
				case "requires", "depends_on":
					each(m.Body, func(x *form.Stmt) { walk(x.Expr, 0, mention("requires")) })
					task = true
				case "run", "execute":
					task = true
				}
			}
			if task {
				b.add(" class", d)
			}
			b.definitions(st.Body, name)
		case st.Word == "def" && len(st.Marks) > 0:
			for _, param := range st.Params {
				d.refs = append(d.refs, taskRef{param, "parameter", st.Name.Off, true})
			}
			marks := &form.Expr{Kind: form.Call, Base: &form.Expr{}}
			for _, m := range st.Marks {
				walk(m, 0, mention("mark"))
				marks.Args = append(marks.Args, m.Args...)
			}
			d.expr = marks
			each(st.Body, func(x *form.Stmt) {
				if e := x.Expr; class != "" && e != nil && e.Kind == form.Call && e.Base.Path() == "self.next" {
					for _, a := range e.Args {
						walk(a.Val, 0, mention("next"))
					}
				}
			})
			if !b.called[name] {
				b.add(" def"+class, d)
			}
		}
	}
}

// isTaskClass reports whether the name of a base class ends in Task, Step or Job.
func isTaskClass(st *form.Stmt) bool {
	return slices.ContainsFunc(st.Params, func(base string) bool {
		return strings.HasSuffix(base, "Task") || strings.HasSuffix(base, "Step") || strings.HasSuffix(base, "Job")
	})
}

// dictionary collects the entries of the first dictionary of tasks and needs. The program has to sort it
// topologically, or each entry has to begin with a function: {"b": (clean, "a")}.
func (b *describer) dictionary(all []*form.Stmt) {
	var dict *form.Expr
	sorted, functions := false, true
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			sorted = sorted || e.Kind == form.Call && strings.Contains(strings.ToLower(callName(e)), "topolog")
			if dict == nil && e.Kind == form.List && len(e.Args) > 1 && e.Args[0].Key != "" && e.Args[0].Val.Kind != form.Text {
				dict = e
			}
			return true
		})
	})
	if dict == nil {
		return
	}
	for _, a := range dict.Args {
		if a.Key == "" || a.Val.Kind != form.List && a.Val.Kind != form.Call {
			return
		}
		functions = functions && a.Val.Kind == form.List && len(a.Val.Args) > 0 && a.Val.Args[0].Val.Kind == form.Ident
	}
	if !sorted && !functions {
		return
	}
	for _, a := range dict.Args {
		d := described{id: a.Key, off: a.Val.Off, end: a.Val.End}
		walk(a.Val, 0, func(e *form.Expr) bool {
			if isText(e) {
				d.refs = append(d.refs, taskRef{e.Text, "entry", e.Off, !sorted})
			}
			return true
		})
		b.add(" dictionary", d)
	}
}

// expression collects calls with an id, and lists of objects with ids of which at least one can only be code:
// { id: "b", run: () => f(), after: ["a"] }, {ID: "b", After: []string{"a"}}.
func (b *describer) expression(st *form.Stmt, e *form.Expr) {
	if (e.Kind == form.Call || e.Kind == form.List) && slices.ContainsFunc(e.Args, holdsCode) {
		for _, a := range e.Args {
			b.describe("{", taskID(a.Val), st, a.Val)
		}
	}
	if e.Kind != form.Call || len(e.Args) == 0 {
		return
	}
	id, name := taskID(e), e.Base.Path()
	if a := e.Args[0]; id == "" && (a.Key == "" && (isText(a.Val) || a.Val.Kind == form.Digits) || a.Key == "nr") {
		id = a.Val.Text
	}
	if e.Base.Kind == form.Attr {
		name = "." + e.Base.Text
	}
	b.describe(name, id, st, e)
}

// describe adds the task that a call or object describes.
func (b *describer) describe(name, id string, st *form.Stmt, e *form.Expr) {
	if id == "" || name == "" {
		return
	}
	if len(st.Targets) == 1 && st.Expr == e {
		b.vars[st.Targets[0].Text] = id
	}
	d := described{id: id, off: e.Off, end: e.End, open: e.Open, expr: e, named: len(e.Args) > 1 && taskID(e) == id}
	for n, a := range e.Args {
		if n == 0 && a.Key == "" || a.Val.Text == id && a.Val.Kind != form.List {
			continue
		}
		vals := []form.ArgExpr{a}
		if a.Val.Kind == form.List {
			vals = a.Val.Args
		}
		key := a.Key
		if key == "" {
			key = itoa(n)
		}
		for _, v := range vals {
			x := strings.TrimPrefix(v.Val.Text, ":")
			switch v.Val.Kind {
			case form.Ident:
				x = b.vars[x]
			case form.Text, form.Digits:
			default:
				x = ""
			}
			if x != "" {
				d.refs = append(d.refs, taskRef{x, key, v.Val.Off, false})
			}
		}
	}
	b.add(name, d)
}

// holdsCode reports whether an argument is an object that contains a function or a typed value. Such an
// object is read as code.
func holdsCode(object form.ArgExpr) bool {
	return object.Val.Kind == form.List && slices.ContainsFunc(object.Val.Args, func(a form.ArgExpr) bool {
		v := a.Val
		return v.Kind == form.Func || v.Kind == form.List && v.Text != "" || v.Kind == form.Ops && v.Ops[len(v.Ops)-1] == "=>"
	})
}

// linkTasks links the tasks of a group by the keys under which some of them name others. It returns nil if
// none does.
func linkTasks(src *form.Source, group []described) *program {
	known, keys := map[string]bool{}, map[string]bool{}
	for _, d := range group {
		known[d.id] = true
	}
	for _, d := range group {
		for _, r := range d.refs {
			if known[r.id] && r.id != d.id {
				keys[r.key] = true
			}
		}
	}
	if len(known) < 2 || len(keys) == 0 {
		return nil
	}
	p := newProgram(src, 93, "tasks")
	p.r.Stated = true
	for _, d := range group {
		title := d.id
		for _, r := range d.refs {
			if !keys[r.key] && !r.loose && !digits(r.id) && roleOf(r.key, r.id) == "" {
				title = r.id
				break
			}
		}
		p.origins[p.item(d.id, title, true, d.off, d.end)] = origin{d.expr, keys, d.def}
		if d.open {
			p.note(true, "UNCLOSED", d.id, "the call that describes "+d.id+" is not closed", "write the closing )", d.off)
		}
		for _, r := range d.refs {
			if !keys[r.key] || r.loose && (!known[r.id] || r.id == d.id) {
				continue
			}
			l := Link{From: r.id, To: d.id, Source: Stated, Off: r.off}
			if role, _ := lexicon.Field(r.key); role == lexicon.Next {
				l.From, l.To = l.To, l.From
			}
			p.r.Links = append(p.r.Links, l)
		}
	}
	return p
}

// seqCalls are functions whose arguments run one after the other, parCalls functions whose arguments run in
// parallel.
var (
	seqCalls = setOf("chain Seq SEQ seq sequence Sequence sequential Sequential series Series Chain pipeline Pipeline pipe compose flowRight flow chord then RunnableSequence")
	parCalls = setOf("group both Par Both par parallel Parallel Group gather all Promise.all asyncio.gather concurrently ParallelGroup RunnableParallel fanout fan_out")
)

// readPipeline reads nested pipelines: chain(a, group(b, c), d), a | b | c, and a().then(b).then(c).
func readPipeline(src *form.Source, all []*form.Stmt) *program {
	var best *program
	each(all, func(st *form.Stmt) {
		if st.Expr == nil || st.Word == "import" {
			return
		}
		f := &form.Flow{Kind: "seq"}
		p := newProgram(src, 93, "pipeline")
		if !(len(all) == 1 && p.fluent(st.Expr, f)) && !p.flow(st.Expr, f, b2i(piped(st))) || len(p.r.Items) < 2 || best != nil && len(best.r.Items) >= len(p.r.Items) {
			return
		}
		f.Order(nil, 0, func(a, b int) { p.link(a, b, Stated, p.r.Items[b].Off) })
		p.r.Stated = true
		best = p
	})
	return best
}

// fluent reads a chain of method calls: load("x").filter().embed().cluster().
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
	if e.Kind != form.Call || e.Base.Kind != form.Ident {
		return false // the chain is longer than 200 calls
	}
	if first := e.Base.Text; len(calls) < 4 || seqCalls[first] || parCalls[first] || isTrivial(first) || first == "$" || strings.ToLower(first[:1]) != first[:1] {
		return false
	}
	for _, c := range slices.Backward(calls) {
		name := c.Base.Text
		k := p.item(name, name, true, c.End-1, c.End)
		p.origins[k] = origin{expr: &form.Expr{Kind: form.Call, Base: &form.Expr{}, Args: c.Args}}
		f.Add("step", k)
	}
	return true
}

// piped reports whether a statement assigns a pipe of at least three names: chain = prompt | model | parser.
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

// flow reads an expression as a structure of steps. It returns false if the expression is a single step.
func (p *program) flow(e *form.Expr, f *form.Flow, depth int) bool {
	if e == nil || depth > 100 {
		return false
	}
	if e.Kind == form.Ops && len(e.Ops) > 0 && (e.Ops[0] == "|" || e.Ops[0] == "|>") {
		ok, args, first := false, e.Args, len(p.r.Items)
		if isText(args[0].Val) {
			args = args[1:] // the input of the first step
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
		p.gets(first, e.Args[:len(e.Args)-len(args)])
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
		if name == "compose" || name == "flowRight" { // the last function runs first
			args = slices.Clone(args)
			slices.Reverse(args)
		}
		if len(args) == 1 && args[0].Val.Kind == form.List && name != "chord" {
			args = args[0].Val.Args
		}
		return p.parts(args, f.Add("seq", 0), depth)
	// For example: pipe(f, g)(x)
	case e.Base.Kind == form.Call && seqCalls[e.Base.Base.Path()] && e.Base.Base.Path() != "chord" && depth < 90:
		first := len(p.r.Items)
		ok := p.flow(e.Base, f, depth+1)
		p.gets(first, e.Args)
		return ok
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

// gets sets the arguments of the item at index first, unless a call made the item.
func (p *program) gets(first int, args []form.ArgExpr) {
	if len(p.r.Items) > first && p.origins[first].expr == nil && len(args) > 0 {
		p.origins[first] = origin{expr: &form.Expr{Kind: form.Call, Base: &form.Expr{}, Args: args}}
	}
}

// nestsData reports whether the calls in the arguments have calls as arguments in turn. Such a call composes
// data, not functions: compose(translate(record("x"))).
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

// parts reads the parts of a structure, and returns whether there are any.
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

// leaf adds a step: a name, a call, or the call in an arrow function.
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
	k := p.item(name, name, true, e.Off, e.End)
	if e.Kind == form.Call {
		p.origins[k] = origin{expr: e}
	}
	f.Add("step", k)
}
