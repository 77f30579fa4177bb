package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// taskKeys are the arguments that name a task in the code of schedulers.
var taskKeys = []string{"task_id", "id", "name", "task_name", "key", "node_id", "job_id"}

// edgeCalls are the calls that state a link between their first two arguments. The value is true if the first
// argument is the later task.
var edgeCalls = map[string]bool{
	"add_edge": false, "addEdge": false, "edge": false, "connect": false, "link": false, "add_link": false, "addLink": false, "then_run": false,
	"set_downstream": false, "precede": false, "precedes": false, "before": false,
	"set_upstream": true, "add_dependency": true, "addDependency": true, "depends_on": true, "dependsOn": true, "after": true, "add_upstream": true, "depend_on": true, "wait_for": true, "succeed": true,
}

// readScheduler reads the code of schedulers: a >> [b, c], a.set_downstream(b), chain(a, b),
// graph.add_edge("a", "b").
func readScheduler(src *form.Source, all []*form.Stmt) *program {
	p := newProgram(src, 95, "scheduler")
	p.r.Stated = true
	links := 0
	p.control(all)
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

// schedule goes through the statements and returns the items that they made. Without read it only counts the
// links that they state; with read it reads them.
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
			if len(st.Targets) == 1 && chained(e) {
				p.env[st.Targets[0].Text] = p.ends(e.Args[0].Val)
			}
		} else if e.Kind == form.Ops {
			p.env[st.Targets[0].Text] = p.chainOf(e)
		} else if e.Kind == form.Call && isTask(e) && !p.controlled(st) && !p.ofRunner(e) {
			k := p.task(e, st.Targets[0].Text, st)
			p.env[st.Targets[0].Text] = []int{k}
		} else if e.Kind == form.Call {
			// A compiled graph runs steps, so that app.invoke() is no task: app = graph.compile()
			p.runners[st.Targets[0].Text] = true
		}
		for k := before; k < len(p.r.Items); k++ {
			mine = append(mine, k)
		}
	}
	return mine
}

// aliasOf returns the name behind "as" in a with statement, or "".
func aliasOf(e *form.Expr) string {
	if e != nil && e.Kind == form.Ops && len(e.Ops) > 0 && e.Ops[len(e.Ops)-1] == "as" {
		return e.Args[len(e.Args)-1].Val.Path()
	}
	return ""
}

// isTask reports whether an assigned call makes a task rather than a schedule.
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
		if chained(e) {
			return 1
		}
		if listCalls[name] && len(args) > 0 && (args[len(args)-1].Kind == form.List && len(args[len(args)-1].Args) > 0 || args[len(args)-1].Kind == form.Ident && len(args) == 1 && name != "DiGraph") {
			return 1
		}
		if e.Base.Kind == form.Attr {
			_, ok := edgeCalls[name]
			return b2i(ok && (len(args) == 2 || len(args) == 1 && e.Base.Base.Kind == form.Ident) || p.sorts(e) && len(args) > 1)
		}
		return b2i((name == "chain" || name == "cross_downstream") && e.Base.Kind == form.Ident && len(args) > 1 && !slices.ContainsFunc(args, func(a *form.Expr) bool {
			return a.Kind != form.Ident && a.Kind != form.List
		}))
	}
	return 0
}

// sorts reports whether a call adds a task to a topological sorter: sorter.add("b", "a").
func (p *program) sorts(e *form.Expr) bool {
	return e.Base.Kind == form.Attr && e.Base.Text == "add" && p.sorters[e.Base.Base.Path()]
}

// positional returns the arguments without a key.
func positional(e *form.Expr) (out []*form.Expr) {
	for _, a := range e.Args {
		if a.Key == "" {
			out = append(out, a.Val)
		}
	}
	return out
}

// chained reports whether a call chains tasks: a.next(b).
func chained(e *form.Expr) bool {
	for range 100 {
		if e.Kind != form.Call || e.Base.Kind != form.Attr || e.Base.Text != "next" || len(e.Args) != 1 || e.Args[0].Val.Kind != form.Ident && !chained(e.Args[0].Val) {
			return false
		}
		if e = e.Base.Base; e.Kind == form.Ident {
			return true
		}
	}
	return false
}

// chainedEnds reads a.next(b).next(c) and returns the last tasks.
func (p *program) chainedEnds(e *form.Expr) []int {
	from := p.ends(e.Base.Base)
	to := p.ends(e.Args[0].Val)
	p.linkAll(from, to, e.Off)
	return to
}

// stateLinks reads the links that an expression states, and the nodes that it adds.
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
		case "add", "add_nodes_from":
			if len(args) > 0 && (name != "add" || p.sorts(e)) {
				p.ends(args[0])
			}
		case "add_conditional_edges", "addConditionalEdges":
			if len(args) > 0 {
				p.conditional(e, args)
			}
		case "add_node", "addNode", "node", "add_task", "addTask", "add_step", "add_vertex":
			if len(args) > 0 {
				title := ""
				if t := arg(e, "label", "title", "description"); isText(t) {
					title = t.Text
				} else if len(args) > 1 && isText(args[1]) {
					title = args[1].Text
				}
				before := len(p.r.Items)
				if p.end(args[0], title); len(p.r.Items) > before {
					p.origins[before] = origin{expr: e}
				}
			}
		}
		return
	}
	if chained(e) {
		p.chainedEnds(e)
		return
	}
	if listCalls[name] {
		p.pairs(args[len(args)-1])
		return
	}
	if e.Base.Kind == form.Ident { // chain(a, b) and cross_downstream(a, b)
		for k := range args[1:] {
			p.linkAll(p.ends(args[k]), p.ends(args[k+1]), args[k+1].Off)
		}
		return
	}
	first, others := e.Base.Base, args
	if len(args) > 1 {
		first, others = args[0], args[1:]
	}
	for _, x := range others {
		from, to := p.ends(first), p.ends(x)
		if edgeCalls[name] || p.sorts(e) {
			from, to = to, from
		}
		p.linkAll(from, to, e.Off)
	}
}

// listCalls state the links in a list of pairs.
var listCalls = setOf("add_edges_from add_weighted_edges_from DiGraph")

// pairs reads the links of a list of pairs.
func (p *program) pairs(e *form.Expr) {
	if held := p.lists[e.Path()]; held != nil {
		e = held
	}
	if e.Kind != form.List {
		return
	}
	for _, a := range e.Args {
		if a.Val.Kind == form.List && len(a.Val.Args) >= 2 {
			p.linkAll(p.ends(a.Val.Args[0].Val), p.ends(a.Val.Args[1].Val), a.Val.Off)
		}
	}
}

// conditional reads add_conditional_edges("a", choose, {"x": "b"}). Links that would close a loop are left
// out.
func (p *program) conditional(e *form.Expr, args []*form.Expr) {
	for _, a := range p.ends(args[0]) {
		id := p.r.Items[a].ID
		p.note(false, "AMBIGUOUS", id, "a function decides what comes after "+id, "state what comes after "+id, e.Off)
		for _, to := range args[1:] {
			if to.Kind != form.List {
				continue
			}
			for _, b := range p.ends(to) {
				if !p.seen[[2]int{b, a}] {
					p.link(a, b, Stated, e.Off)
				}
			}
		}
	}
}

// maxRounds bounds how often loop bodies are read.
const maxRounds = 2000

// loop reads a loop over a list in the program, once for each element. It returns false if the list is not
// known.
func (p *program) loop(st *form.Stmt, links *int) bool {
	e := st.Expr
	if e == nil || e.Kind != form.Ops || e.Ops[len(e.Ops)-1] != "in" {
		return false
	}
	vars, over := e.Args[:len(e.Args)-1], e.Args[len(e.Args)-1].Val
	if held := p.lists[over.Path()]; held != nil {
		over = held
	}
	if over.Kind != form.List {
		return false
	}
	for _, a := range over.Args {
		if p.rounds++; p.rounds > maxRounds {
			break
		}
		values := []form.ArgExpr{a}
		if len(vars) > 1 && a.Val.Kind == form.List {
			values = a.Val.Args
		}
		for k, v := range vars[:min(len(vars), len(values))] {
			p.env[v.Val.Path()] = p.ends(values[k].Val)
		}
		p.schedule(st.Body, links, true)
	}
	return len(over.Args) > 0
}

// inside returns the tasks of a group without a successor in it, if last is set, or without a predecessor.
// Tasks that are no group are returned unchanged.
func (p *program) inside(e *form.Expr, tasks []int, last bool) []int {
	if !p.groups[e.Path()] || len(tasks) > 60 {
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
	if len(from)*len(to) > p.maxLinks {
		p.note(true, "LIMIT_REACHED", p.r.Items[from[0]].ID, "the groups on this line make too many edges", "split the line", off)
		return
	}
	for _, a := range from {
		for _, b := range to {
			p.link(a, b, Stated, off)
		}
	}
}

// chainOf reads a >> b << c and returns the last tasks.
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
		if chained(e) {
			return p.chainedEnds(e)
		}

		return []int{p.task(e, "", nil)}
	}
	return p.end(e, "")
}

// end returns the task with a name or text, and adds it if it is new. Markers of a graph's start and end are
// no tasks.
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

// taskID returns the id in the arguments of a call that makes a task, or "".
func taskID(e *form.Expr) string {
	for _, key := range taskKeys {
		if t := arg(e, key); isText(t) {
			return t.Text
		}
	}
	return ""
}

// task adds the task that a call makes, and returns its index. st is the statement around the call, or nil.
func (p *program) task(e *form.Expr, variable string, st *form.Stmt) int {
	id := taskID(e)
	if args := positional(e); id == "" && len(args) > 1 && (args[0].Path() == "this" || args[0].Path() == "self") && isText(args[1]) {
		id = args[1].Text // new LambdaInvoke(this, 'Fetch', { … })
	}
	if id == "" || strings.Contains(id, " ") && variable != "" {
		title := id
		if id = variable; id == "" {
			id = callName(e)
		}
		if title != "" {
			k := p.item(id, title, variable != "", e.Off, e.End)
			p.origins[k] = origin{expr: e}
			return k
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
		p.exprUses(a.Val, &uses)
	}
	k := p.item(id, title, true, e.Off, e.End)
	p.origins[k] = origin{expr: e}
	p.r.Items[k].Attrs = append(p.r.Items[k].Attrs, Attr{Key: "tool", Role: Tool, Value: form.Quote(callName(e)), Off: e.Off})
	for _, u := range uses {
		p.r.Items[k].Refs = append(p.r.Items[k].Refs, Ref{Text: u.text, To: u.to, Off: u.off})
		for _, x := range u.items {
			p.link(x, k, Variable, u.off)
		}
	}
	if variable != "" {
		p.r.Items[k].Also = append(p.r.Items[k].Also, variable)
	}
	return k
}
