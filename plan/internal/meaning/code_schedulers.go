package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// taskKeys are the arguments by which tasks of schedulers are named.
var taskKeys = []string{"task_id", "id", "name", "task_name", "key", "node_id", "job_id"}

// edgeCalls are the calls that state a link between their first two arguments, and whether they name the later one first.
var edgeCalls = map[string]bool{
	"add_edge": false, "addEdge": false, "edge": false, "connect": false, "link": false, "add_link": false, "addLink": false, "then_run": false,
	"set_downstream": false, "precede": false, "precedes": false, "before": false,
	"set_upstream": true, "add_dependency": true, "addDependency": true, "depends_on": true, "dependsOn": true, "after": true, "add_upstream": true, "depend_on": true, "wait_for": true, "succeed": true,
}

// readScheduler reads what schedulers are told: a >> [b, c], a.set_downstream(b), chain(a, b), graph.add_edge("a", "b").
func readScheduler(all []*form.Stmt) *program {
	p := newProgram(95, "scheduler")
	p.r.Stated = true
	links := 0
	p.schedule(all, &links, false)
	if links == 0 {
		return nil
	}
	p.schedule(all, &links, true)
	if len(p.r.Links) == 0 {
		return nil
	}
	return p
}

// schedule goes over the statements: at first it counts those that state links, then it reads them.
func (p *program) schedule(all []*form.Stmt, links *int, read bool) []int {
	var mine []int
	for _, st := range all {
		if st.Word == "import" || st.Word == "class" {
			continue
		}
		if read && st.Word == "for" && p.loop(st, links) {
			continue
		}
		if st.Word == "def" || st.Word != "" && len(st.Body) > 0 {
			got := p.schedule(st.Body, links, read)
			mine = append(mine, got...)
			if name := aliasOf(st.Expr); name != "" && read {
				p.env[name], p.groups[name] = got, true
			}
			continue
		}
		e := st.Expr
		if e == nil {
			continue
		}
		if len(st.Targets) == 1 && e.Kind == form.Call && strings.HasSuffix(callName(e), "TopologicalSorter") {
			p.sorters[st.Targets[0].Text] = true
		}
		if !read {
			*links += p.statesLinks(e)
			continue
		}
		before := len(p.r.Items)
		if len(st.Targets) == 1 && e.Kind == form.List {
			p.lists[st.Targets[0].Text] = e
		}
		if len(st.Targets) == 0 || p.statesLinks(e) > 0 && e.Kind == form.Call {
			p.stateLinks(e)
		} else if e.Kind == form.Ops {
			p.env[st.Targets[0].Text] = p.chainOf(e)
		} else if e.Kind == form.Call && isTask(e) {
			k := p.task(e, st.Targets[0].Text, st)
			p.env[st.Targets[0].Text] = []int{k}
		}
		for k := before; k < len(p.r.Items); k++ {
			mine = append(mine, k)
		}
	}
	return mine
}

// aliasOf returns the name behind "as" of a with statement.
func aliasOf(e *form.Expr) string {
	if e != nil && e.Kind == form.Ops && len(e.Ops) > 0 && e.Ops[len(e.Ops)-1] == "as" {
		return e.Args[len(e.Args)-1].Val.Path()
	}
	return ""
}

// isTask reports whether an assigned call makes a task rather than the schedule itself.
func isTask(e *form.Expr) bool {
	name := strings.ToLower(callName(e))
	name = name[strings.LastIndexByte(name, '.')+1:]
	switch name {
	case "dag", "flow", "digraph", "stategraph", "graph", "workflow", "pipeline", "deployment", "schedule", "taskgroup", "dict", "timedelta", "datetime", "topologicalsorter", "messagegraph":
		return false
	}
	return !trivial[callName(e)]
}

// statesLinks counts the links that an expression states.
func (p *program) statesLinks(e *form.Expr) int {
	switch e.Kind {
	case form.Ops:
		for _, op := range e.Ops {
			if op != ">>" && op != "<<" {
				return 0
			}
		}
		for _, a := range e.Args {
			if a.Val.Kind == form.Text || a.Val.Kind == form.Digits {
				return 0
			}
		}
		return len(e.Ops)
	case form.Call:
		name, args := e.Base.Text, positional(e)
		if listCalls[name] && len(args) > 0 && (args[len(args)-1].Kind == form.List && len(args[len(args)-1].Args) > 0 || args[len(args)-1].Kind == form.Ident && len(args) == 1 && name != "DiGraph") ||
			name == "add" && e.Base.Kind == form.Attr && p.sorters[e.Base.Base.Path()] && len(args) > 1 {
			return 1
		}
		if _, ok := edgeCalls[name]; ok && e.Base.Kind == form.Attr && (len(args) == 2 || len(args) == 1 && e.Base.Base.Kind == form.Ident) {
			return 1
		}
		if (name == "chain" || name == "cross_downstream") && e.Base.Kind == form.Ident && len(args) > 1 {
			for _, a := range args {
				if a.Kind != form.Ident && a.Kind != form.List {
					return 0
				}
			}
			return 1
		}
	}
	return 0
}

func positional(e *form.Expr) (out []*form.Expr) {
	for _, a := range e.Args {
		if a.Key == "" {
			out = append(out, a.Val)
		}
	}
	return out
}

// stateLinks reads the links that an expression states, and nodes that it adds.
func (p *program) stateLinks(e *form.Expr) {
	if e.Kind == form.Ops && p.statesLinks(e) > 0 {
		p.chainOf(e)
		return
	}
	if e.Kind != form.Call {
		return
	}
	name, args := e.Base.Text, positional(e)
	if p.statesLinks(e) == 0 {
		switch name {
		case "add":
			if e.Base.Kind == form.Attr && p.sorters[e.Base.Base.Path()] && len(args) > 0 {
				p.end(args[0], "")
			}
		case "add_nodes_from":
			if len(args) > 0 {
				p.ends(args[0])
			}
		case "add_conditional_edges", "addConditionalEdges":
			p.conditional(e, args)
		case "add_node", "addNode", "node", "add_task", "addTask", "add_step", "add_vertex":
			if len(args) > 0 {
				title := ""
				if t := arg(e, "label", "title", "description"); isText(t) {
					title = t.Text
				} else if len(args) > 1 && isText(args[1]) {
					title = args[1].Text
				}
				p.end(args[0], title)
			}
		}
		return
	}
	if listCalls[name] {
		p.pairs(args[len(args)-1], name == "add_path")
		return
	}
	if name == "add" {
		to := p.ends(args[0])
		for _, a := range args[1:] {
			p.linkAll(p.ends(a), to, e.Off)
		}
		return
	}
	if e.Base.Kind == form.Ident { // chain(a, b) and cross_downstream(a, b)
		before := p.ends(args[0])
		for _, a := range args[1:] {
			now := p.ends(a)
			if name == "chain" && len(before) > 1 && len(before) == len(now) {
				for k := range now {
					p.link(before[k], now[k], Stated, a.Off)
				}
			} else {
				p.linkAll(before, now, a.Off)
			}
			before = now
		}
		return
	}
	a, b := e.Base.Base, args[0]
	if len(args) == 2 {
		a, b = args[0], args[1]
	}
	from, to := p.ends(a), p.ends(b)
	if edgeCalls[name] {
		from, to = to, from
	}
	p.linkAll(from, to, e.Off)
}

// listCalls state the links of a list of pairs, or along a list.
var listCalls = setOf("add_edges_from add_weighted_edges_from add_path DiGraph")

// pairs reads the links of a list of pairs, or along a list of tasks.
func (p *program) pairs(e *form.Expr, along bool) {
	if held := p.lists[e.Path()]; held != nil {
		e = held
	}
	if e.Kind != form.List {
		return
	}
	var before []int
	for k, a := range e.Args {
		switch {
		case along:
			now := p.ends(a.Val)
			if k > 0 {
				p.linkAll(before, now, a.Val.Off)
			}
			before = now
		case a.Val.Kind == form.List && len(a.Val.Args) >= 2:
			p.linkAll(p.ends(a.Val.Args[0].Val), p.ends(a.Val.Args[1].Val), a.Val.Off)
		}
	}
}

// conditional reads add_conditional_edges("a", choose, {"x": "b"}). A link that leads back to a is left out.
func (p *program) conditional(e *form.Expr, args []*form.Expr) {
	if len(args) == 0 {
		return
	}
	from := p.ends(args[0])
	var to []int
	for _, a := range args[1:] {
		if a.Kind == form.List {
			to = append(to, p.ends(a)...)
		}
	}
	for _, a := range from {
		for _, b := range to {
			id, other := p.r.Items[a].ID, p.r.Items[b].ID
			if a == b || p.leads(b, a, 0) {
				p.note(false, "AMBIGUOUS", other, "a condition leads from "+id+" back to "+other+"; it was left out", "write each step that is to be done", e.Off)
				continue
			}
			p.link(a, b, Stated, e.Off)
			p.note(false, "AMBIGUOUS", other, "only on a condition "+other+" comes after "+id, "write the steps that are to be done", e.Off)
		}
	}
	if len(to) == 0 && len(from) > 0 {
		id := p.r.Items[from[0]].ID
		p.note(false, "AMBIGUOUS", id, "what comes after "+id+" is decided by a function", "state what comes after "+id, e.Off)
	}
}

// leads reports whether links lead from one task to another.
func (p *program) leads(from, to, depth int) bool {
	if depth > 60 || len(p.seen) > 2000 {
		return false
	}
	for pair := range p.seen {
		if pair[0] == from && (pair[1] == to || p.leads(pair[1], to, depth+20)) {
			return true
		}
	}
	return false
}

// loop reads a loop over a list that the program holds: its body is read for each element.
func (p *program) loop(st *form.Stmt, links *int) bool {
	e := st.Expr
	if e == nil || e.Kind != form.Ops || e.Ops[len(e.Ops)-1] != "in" {
		return false
	}
	over := e.Args[len(e.Args)-1].Val
	if held := p.lists[over.Path()]; held != nil {
		over = held
	}
	if over.Kind != form.List || len(over.Args) > 2000 {
		return false
	}
	vars := e.Args[:len(e.Args)-1]
	for _, a := range over.Args {
		values := []form.ArgExpr{a}
		if len(vars) > 1 && a.Val.Kind == form.List {
			values = a.Val.Args
		}
		for k, v := range vars {
			if k < len(values) {
				p.env[v.Val.Path()] = p.ends(values[k].Val)
			}
		}
		p.schedule(st.Body, links, true)
	}
	return len(over.Args) > 0
}

// inside leaves of the tasks of a group those that no other one of it comes before, or after.
func (p *program) inside(e *form.Expr, tasks []int, last bool) []int {
	if !p.groups[e.Path()] || len(tasks) > 200 {
		return tasks
	}
	var out []int
	for _, a := range tasks {
		hidden := false
		for _, b := range tasks {
			hidden = hidden || !last && p.seen[[2]int{b, a}] || last && p.seen[[2]int{a, b}]
		}
		if !hidden {
			out = append(out, a)
		}
	}
	return out
}

func (p *program) linkAll(from, to []int, off int) {
	if len(from)*len(to) > maxArrows {
		return
	}
	for _, a := range from {
		for _, b := range to {
			p.link(a, b, Stated, off)
		}
	}
}

// chainOf reads a >> b << c and returns what stands last.
func (p *program) chainOf(e *form.Expr) []int {
	before := p.ends(e.Args[0].Val)
	for k, op := range e.Ops {
		if k+1 >= len(e.Args) {
			break
		}
		now := p.ends(e.Args[k+1].Val)
		if len(now) == 0 || len(before) == 0 {
			p.note(true, "EMPTY_ID", "", "one side of "+op+" names no task", "name a task on both sides", e.Off)
		}
		left, right := e.Args[k].Val, e.Args[k+1].Val
		if op == "<<" {
			p.linkAll(p.inside(right, now, true), p.inside(left, before, false), right.Off)
		} else {
			p.linkAll(p.inside(left, before, true), p.inside(right, now, false), right.Off)
		}
		before = now
	}
	return before
}

// ends returns the tasks that an expression names.
func (p *program) ends(e *form.Expr) []int {
	p.depth++
	defer func() { p.depth-- }()
	if e == nil || p.depth > 100 {
		return nil
	}
	switch e.Kind {
	case form.List:
		var out []int
		for _, a := range e.Args {
			out = append(out, p.ends(a.Val)...)
		}
		return out
	case form.Ops:
		if e.Ops[0] != ">>" && e.Ops[0] != "<<" { // a & b
			return p.ends(&form.Expr{Kind: form.List, Args: e.Args})
		}
		return p.chainOf(e)
	case form.Call:
		if id := taskID(e); id == "" && e.Base.Kind == form.Attr && p.env[e.Base.Base.Path()] != nil {
			return p.env[e.Base.Base.Path()]
		}
		return []int{p.task(e, "", nil)}
	}
	return p.end(e, "")
}

// end returns the task that a name or text stands for, adding it if it is new. Starts and ends are none.
func (p *program) end(e *form.Expr, title string) []int {
	id := e.Path()
	if isText(e) {
		id = e.Text
	} else if e.Kind == form.Digits {
		id = e.Text
	}
	if held, ok := p.env[id]; ok {
		return held
	}
	switch id {
	case "", "START", "END", "__start__", "__end__":
		return nil
	}
	if title == "" {
		title = id
	}
	k := p.item(id, title, true, e.Off, e.End)
	p.env[id] = []int{k}
	return p.env[id]
}

// taskID is the id that a call gives its task.
func taskID(e *form.Expr) string {
	for _, key := range taskKeys {
		if t := arg(e, key); isText(t) {
			return t.Text
		}
	}
	return ""
}

// task adds the task that a call makes.
func (p *program) task(e *form.Expr, variable string, st *form.Stmt) int {
	id := taskID(e)
	if id == "" || strings.Contains(id, " ") && variable != "" {
		title := id
		if id = variable; id == "" {
			id = callName(e)
		}
		if title != "" {
			return p.item(id, title, variable != "", e.Off, e.End)
		}
	}
	title := callName(e)
	if st != nil && st.Note != "" {
		title = st.Note
	}
	for _, key := range [...]string{"bash_command", "python_callable", "command", "cmd", "sql", "description", "doc"} {
		if t := arg(e, key); t != nil {
			if title = t.Path(); isText(t) {
				title = t.Text
			}
			break
		}
	}
	var uses []use
	for _, a := range e.Args {
		p.inner2(a.Val, &uses)
	}
	k := p.item(id, title, true, e.Off, e.End)
	p.r.Items[k].Attrs = append(p.r.Items[k].Attrs, Attr{Key: "tool", Role: Tool, Value: quote(callName(e)), Off: e.Off})
	for _, u := range uses {
		for _, x := range u.items {
			p.link(x, k, Variable, u.off)
		}
	}
	if variable != "" {
		p.r.Items[k].Also = append(p.r.Items[k].Also, variable)
	}
	return k
}

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

// readBuilder reads calls of one function that each describe a task: step("b", after=["a"]).
func readBuilder(all []*form.Stmt) *program {
	groups := map[string][]built{}
	vars := map[string]string{}
	var names []string
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
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
	seqCalls = setOf("chain Seq SEQ seq sequence Sequence sequential Sequential series Series Chain pipeline Pipeline pipe compose flow chord then RunnableSequence")
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
		if !p.flow(st.Expr, f, b2i(piped(st))) || len(p.r.Items) < 2 || best != nil && len(best.r.Items) >= len(p.r.Items) {
			return
		}
		f.Order(nil, 0, func(a, b int) { p.link(a, b, Stated, p.r.Items[b].Off) })
		p.r.Stated = true
		best = p
	})
	return best
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
	case (seqCalls[name] || sequenceWord(name)) && len(e.Args) > 0:
		args := e.Args
		if len(args) == 1 && args[0].Val.Kind == form.List && name != "chord" {
			args = args[0].Val.Args
		}
		return p.parts(args, f.Add("seq", 0), depth)
	case e.Base.Kind == form.Call && e.Base.Base.Path() == "chord": // chord(group)(callback)
		seq := f.Add("seq", 0)
		p.parts(e.Base.Args, seq, depth)
		return p.parts(e.Args, seq, depth)
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
