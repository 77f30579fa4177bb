package meaning

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readCode reads programs: calls and assignments, scheduler code, and pseudo code.
func readCode(src *form.Source) []*Reading {
	var best []*Reading
	add := func(r *Reading) {
		if r != nil && (r.Weight >= 30 || r.Not != "") {
			best = append(best, r)
		}
	}
	for _, b := range codeBlocks(src) {
		if src.Ended() {
			return nil
		}
		for _, read := range codeReaders {
			if r := read(src, b[0], b[1]); r != nil {
				add(r)
				break
			}
		}
	}
	return best
}

// codeReaders read the lines [first, end). The first reader that accepts them wins.
var codeReaders = [...]func(src *form.Source, first, end int) *Reading{readShell, readDeclared, readPseudo, readProgram}

// codeBlocks returns the line ranges that may hold code: each fence, and the text between fences.
func codeBlocks(src *form.Source) (out [][2]int) {
	from := 0
	for i := 0; i <= len(src.Lines); i++ {
		if i < len(src.Lines) && !src.Lines[i].Fence {
			continue
		}
		if i > from && codeLang(src.Lines[from].Lang) {
			out = append(out, [2]int{from, i})
		}
		from = i + 1
		if len(out) > 50 {
			break
		}
	}
	return out
}

func codeLang(lang string) bool {
	switch lang {
	case "json", "yaml", "yml", "xml", "html", "sql", "toml", "ini", "css", "csv", "mermaid", "dot", "graphviz", "plantuml", "diff", "make", "makefile", "d2":
		return false
	}
	return true
}

// trivial functions only compute something from their arguments. A call of one is no step of a plan.
var trivial = setOf("int str float bool len list dict set tuple sorted range print println min max sum abs round type isinstance enumerate zip map datetime timedelta date time now Path input repr any all next iter super vars getattr setattr hasattr Symbol String Number Boolean Array Object JSON.parse JSON.stringify json.dumps json.loads os.path.join os.getenv os.environ.get console.log console.error logging.info logger.info fmt.Println fmt.Printf log.Println datetime.now echo printf Date Math.max Math.min time.time uuid4 timedelta dict.get sizeof append extend push Ok Some Err None Result Promise useState")

// wrappers pass on the call in their first argument. gathers wait for several calls. methods run the function
// that they are called on. results take the result of a call.
var (
	wrappers = setOf("asyncio.run asyncio.create_task create_task ensure_future asyncio.ensure_future delayed task tg.create_task tg.start_soon run_until_complete loop.run_until_complete await_ Promise.resolve memoize cached partial functools.partial asyncio.to_thread asyncio.wait_for unwrap shield asyncio.shield")
	gathers  = setOf("asyncio.gather gather Promise.all Promise.allSettled asyncio.wait tokio.join tokio.try_join try_join futures.join join! all_of parallel Parallel par concurrently join_all futures.wait as_completed dask.compute ray.get wait wait_all when_all Task.WhenAll")
	methods  = setOf("submit delay s si remote apply_async map starmap expand override with_options run call invoke execute delay_async spawn_task")
	results  = setOf("await result compute get join wait value unwrap read output then_return block_until_complete await_result as_completed items keys values copy close strip Get Result Wait Await unwrap expect orElseThrow get_result wait_for_completion ok")
)

func setOf(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// readProgram reads the statements in the lines [first, end).
func readProgram(src *form.Source, first, end int) *Reading {
	all := form.Statements(src, first, end)
	if len(all) == 0 {
		return nil
	}
	for _, read := range [...]func(*form.Source, []*form.Stmt) *program{readScheduler, readTasks, readPipeline, readCalls} {
		if p := read(src, all); p != nil && len(p.r.Items) > 0 {
			p.arguments(src.Text)
			r := p.reading()
			if r.Evidence[0] == "calls" && ordinary(src, first, end) {
				return &Reading{Form: "code", Not: "a program that computes something", Start: r.Start, End: r.End}
			}
			withImports(r, all)
			if src.Lines[first].InCode {
				r.Open = !(end < len(src.Lines) && src.Lines[end].Fence)
			}
			return r
		}
	}
	return nil
}

// withImports extends a reading to the imports and definitions in front of its first step.
func withImports(r *Reading, all []*form.Stmt) {
	for _, st := range all {
		if st.Word == "import" || st.Word == "def" || st.Word == "class" || st.Word == "with" {
			r.Start, r.End = min(r.Start, st.Off), max(r.End, st.End)
		}
	}
}

// program collects the items and links of a program.
type program struct {
	r           *Reading
	env         map[string][]int // the items whose results a variable holds
	defs        map[string]*form.Stmt
	ids         map[string]int // how often an id was used
	seen        map[[2]int]bool
	uses        bool  // the use of a variable has made a link
	prev        []int // in nested blocks: the items of the statements before
	order       [][2]int
	depth       int
	laterLabels map[string]int // labels that are set further down
	bare        map[int]bool   // calls without uses of variables and without a target
	// origins holds the expression that an item was made from, by the index of the item.
	origins map[int]origin
	// fresh are the items from which the current statement has made links.
	fresh map[int]bool
	// nested is set if the program is a single expression.
	nested bool
	// groups are the variables that stand for the tasks of a group, lists those that hold a list, and sorters
	// those that hold a topological sorter.
	groups   map[string]bool
	lists    map[string]*form.Expr
	sorters  map[string]bool
	maxLinks int
	rounds   int // how often loop bodies were read
	// runners are the variables that hold functions, or objects that run steps. started are the steps that
	// run concurrently until a statement waits for them.
	runners map[string]bool
	started []int
}

func newProgram(src *form.Source, weight int, why string) *program {
	return &program{
		maxLinks: src.MaxLinks,
		r:        &Reading{Form: "code", Weight: weight, Evidence: []string{why}, Start: -1, Open: true},
		env:      map[string][]int{}, defs: map[string]*form.Stmt{}, ids: map[string]int{}, seen: map[[2]int]bool{}, laterLabels: map[string]int{}, bare: map[int]bool{}, origins: map[int]origin{},
		groups: map[string]bool{}, lists: map[string]*form.Expr{}, sorters: map[string]bool{}, runners: map[string]bool{},
	}
}

// item adds an item and returns its index. An id that was used before gets a number, unless it is shown.
func (p *program) item(id, title string, shown bool, off, end int) int {
	if n := p.ids[id]; n > 0 && !shown {
		p.ids[id]++
		id += "#" + strconv.Itoa(n+1)
	}
	p.r.Items = append(p.r.Items, Item{ID: id, Shown: shown, Title: title, Parent: -1, Off: off, End: end})
	if p.r.Start < 0 || off < p.r.Start {
		p.r.Start = off
	}
	p.r.End = max(p.r.End, end)
	p.ids[id]++
	return len(p.r.Items) - 1
}

// link adds a link between two items, unless it exists or there are too many.
func (p *program) link(a, b int, source Source, off int) {
	if a == b || len(p.r.Links) > p.maxLinks || p.seen[[2]int{a, b}] {
		return
	}
	p.seen[[2]int{a, b}] = true
	if p.fresh == nil {
		p.fresh = map[int]bool{}
	}
	p.fresh[a] = true
	p.uses = p.uses || source == Variable
	p.r.Links = append(p.r.Links, Link{From: p.r.Items[a].ID, To: p.r.Items[b].ID, Source: source, Off: off})
}

func (p *program) note(fault bool, code, element, message, hint string, off int) {
	if len(p.r.Notes) < 200 {
		p.r.Notes = append(p.r.Notes, Note{Fault: fault, Code: code, Element: element, Message: message, Hint: hint, Off: off})
	}
}

// reading completes the reading: it sorts the items by offset.
func (p *program) reading() *Reading {
	r := p.r
	sort.SliceStable(r.Items, func(i, j int) bool { return r.Items[i].Off < r.Items[j].Off })
	r.Stated = r.Stated || len(r.Links) > 0
	if r.Start < 0 {
		r.Start = 0
	}
	return r
}

// walk visits an expression and the expressions in it. It does not descend where visit returns false.
func walk(e *form.Expr, depth int, visit func(*form.Expr) bool) {
	if e == nil || depth > 200 || !visit(e) {
		return
	}
	walk(e.Base, depth+1, visit)
	for _, a := range e.Args {
		walk(a.Val, depth+1, visit)
	}
	each(e.Stmts, func(st *form.Stmt) { walk(st.Expr, depth+1, visit) })
}

// each visits all statements, nested ones included.
func each(all []*form.Stmt, visit func(*form.Stmt)) {
	for _, st := range all {
		visit(st)
		each(st.Body, visit)
	}
}

// eachStep visits all statements, nested ones included, except for the bodies of functions and classes.
func eachStep(all []*form.Stmt, visit func(*form.Stmt)) {
	for _, st := range all {
		if visit(st); st.Word != "def" && st.Word != "class" {
			eachStep(st.Body, visit)
		}
	}
}

// unwrapCall returns the call inside of wrappers: f(x) in tg.create_task(f(x)).
func unwrapCall(e *form.Expr) *form.Expr {
	for range 5 {
		if e.Kind == form.Attr && e.Base.Kind == form.Call && results[e.Text] && !isTrivial(callName(e.Base)) {
			e = e.Base // f(x).await
			continue
		}
		if e.Kind == form.Call && e.Base.Kind == form.Attr && results[e.Base.Text] && e.Base.Base.Kind == form.Call && callName(e.Base.Base) != "" && !isTrivial(callName(e.Base.Base)) && !gathers[e.Base.Base.Base.Path()] {
			e = e.Base.Base // f(x).get()
			continue
		}
		// async { f(x) }
		if e.Kind == form.Call && len(e.Args) == 1 && e.Args[0].Val.Kind == form.Func && starters[e.Base.Path()] {
			if f := e.Args[0].Val; len(f.Stmts) == 1 && f.Stmts[0].Expr != nil && f.Stmts[0].Expr.Kind == form.Call {
				e = f.Stmts[0].Expr
				continue
			}
		}
		if e.Kind != form.Call || len(e.Args) == 0 || e.Args[0].Val.Kind != form.Call {
			return e
		}
		if !wrappers[e.Base.Path()] && !(e.Base.Kind == form.Attr && wrappers[e.Base.Text]) {
			return e
		}
		e = e.Args[0].Val
	}
	return e
}

// executors are common names of variables that hold an executor.
var executors = setOf("ex executor pool tpe e threadpool client")

// callers run the function that one of their first arguments names: workflow.ExecuteActivity(ctx, Reserve,
// b).
var callers = setOf("ExecuteActivity ExecuteLocalActivity ExecuteChildWorkflow execute_activity execute_local_activity execute_child_workflow executeActivity executeChild start_activity call_activity callActivity CallActivityAsync call_sub_orchestrator CallSubOrchestratorAsync run_in_executor run_sync to_thread apply_async supplyAsync runAsync StartNew")

// calledBy returns the name of the function that a call of one of the callers runs, or "".
func calledBy(e *form.Expr) string {
	b := e.Base
	if b.Kind != form.Attr && b.Kind != form.Ident || !callers[b.Text] {
		return ""
	}
	for _, a := range e.Args[:min(len(e.Args), 3)] {
		if name := a.Val.Path(); name != "" && !spare[name] && a.Key == "" {
			return name
		}
		if isText(a.Val) && a.Key == "" {
			return a.Val.Text
		}
	}
	return ""
}

// callName returns the name of the function that a call runs: "f" for f(x), f.submit(x), delayed(f)(x) and
// tg.create_task(f(x)).
func callName(e *form.Expr) string {
	if e == nil || e.Kind != form.Call {
		return ""
	}
	if name := calledBy(e); name != "" {
		return name
	}
	b := e.Base
	if b.Kind == form.Attr && b.Text == "submit" && len(e.Args) > 0 && executors[strings.ToLower(b.Base.Path())] {
		if n := e.Args[0].Val.Path(); n != "" {
			return n
		}
	}
	if b.Kind == form.Attr && methods[b.Text] {
		if n := b.Base.Path(); n != "" {
			return n
		}
		return callName(b.Base)
	}
	if b.Kind == form.Call {
		if wrappers[b.Base.Path()] && len(b.Args) > 0 {
			return b.Args[0].Val.Path()
		}
		return callName(b)
	}
	if b.Kind == form.Attr && b.Base.Kind == form.Call {
		return b.Text
	}
	return b.Path()
}

// arg returns the value of the argument with the first of the keys that is present, or nil.
func arg(e *form.Expr, keys ...string) *form.Expr {
	for _, k := range keys {
		for _, a := range e.Args {
			if strings.EqualFold(a.Key, k) {
				return a.Val
			}
		}
	}
	return nil
}

func isText(e *form.Expr) bool { return e != nil && e.Kind == form.Text }

// readCalls reads a program whose statements are the plan. Problems are named after their labels or
// variables.
func readCalls(src *form.Source, all []*form.Stmt) *program {
	p := newProgram(src, 0, "calls")
	total, bad := 0, 0
	each(all, func(st *form.Stmt) {
		if st.Word == "def" {
			p.defs[st.Name.Text] = st
		}
	})
	p.control(all)
	body, wrapped := p.mainBody(all)
	body = trimProse(body)
	eachStep(body, func(st *form.Stmt) {
		if st.Word == "" || st.Word == "return" {
			total++
		}
	})
	labels, prose := 0, 0
	for _, st := range body {
		if st.Label.Text != "" && !labeled(st) {
			prose++
		}
		if st.Label.Text != "" && st.Expr != nil && st.Expr.Kind == form.Call {
			labels++
			p.laterLabels[strings.TrimLeft(st.Label.Text, "$")]++
		}
	}
	var steps []*form.Stmt
	for _, st := range body {
		if st.Word != "def" && st.Word != "class" && st.Word != "import" {
			steps = append(steps, st)
		}
	}
	if len(steps) == 1 && steps[0].Expr != nil && steps[0].Expr.Kind == form.Call && holdsCalls(steps[0].Expr) {
		p.nested = true
		steps[0].Label, labels = form.Piece{}, 0
		if len(steps[0].Targets) == 1 {
			steps[0].Targets = nil
		}
	}
	p.run(body, 0)
	work := len(p.r.Items)
	computing := 0
	eachStep(body, func(st *form.Stmt) {
		if !st.Clean {
			bad++
		}
		if st.Word == "" && st.Expr != nil && computes(st) {
			computing++
		}
	})
	if work == 0 {
		return nil
	}
	if prose*3 > labels && prose > 0 {
		return nil
	}
	p.r.Weight = callWeight(p, body, wrapped, labels, total, work, bad, computing)
	eachStep(body, func(st *form.Stmt) {
		if !st.Clean && st.Word == "" && st.Expr != nil && st.Expr.Kind != form.Other {
			name := st.Expr.Path() + callName(st.Expr)
			p.note(false, "SKIPPED_TEXT", name, "a part of the line that begins with "+name+" was not understood", "write name = call(arguments)", st.Off)
		}
	})
	p.finish(labels > 0)
	return p
}

// holdsCalls reports whether the arguments of a call contain calls.
func holdsCalls(e *form.Expr) bool {
	found := false
	for _, a := range e.Args {
		walk(a.Val, 0, func(x *form.Expr) bool {
			found = found || x.Kind == form.Call && !trivial[callName(x)]
			return !found
		})
	}
	return found
}

// labeled reports whether a labeled statement is a call rather than a sentence with brackets.
func labeled(st *form.Stmt) bool {
	e := st.Expr
	if e == nil || !st.Clean || e.Kind != form.Call && !isJoin(e.Text) {
		return false
	}
	for _, a := range e.Args {
		role, _ := lexicon.Field(a.Key)
		if a.Val.Kind == form.Other || a.Key != "" && role == lexicon.Requires {
			return false // 提交平台审核(依赖:4)
		}
	}
	return true
}

// callWeight returns the weight of a reading of calls: how likely they are a plan.
func callWeight(p *program, body []*form.Stmt, wrapped string, labels, total, work, bad, computing int) int {
	if computing*3 > total || bad > work || len(p.r.Items) == 1 && labels == 0 || p.nested && len(p.r.Links) == 0 {
		return 0
	}
	links := len(p.r.Links)
	switch {
	case labels > 1 && labels*2 >= total:
		return 92
	case wrapped == "plain" && (links+1 < work || work < 3 || computing > 0):
		return 0
	case wrapped == "plain":
		return 45
	case links > 0 && computing == 0 && bad*4 <= work:
		return 90
	case links > 0:
		return 60
	case work >= 2 && bad == 0:
		return 50
	}
	return 0
}

// computes reports whether a statement does arithmetic instead of calling a function or setting a value.
func computes(st *form.Stmt) bool {
	return st.Expr.Kind == form.Other || st.Expr.Kind == form.Ops && !slices.ContainsFunc(st.Expr.Ops, func(op string) bool {
		return op == "," || op == "=>" || op == "|" || op == "&&" || op == ">>"
	})
}

// trimProse drops prose around the program: leading and trailing statements without a call or an assignment.
func trimProse(body []*form.Stmt) []*form.Stmt {
	code := func(st *form.Stmt) bool {
		return len(st.Body) > 0 && (st.Word != "" || st.Expr != nil && st.Expr.Kind == form.Ident) || st.Expr != nil && st.Clean && (st.Expr.Kind == form.Call || len(st.Targets) > 0 || st.Label.Text != "" && st.Expr.Kind == form.Ident || st.Word == "return")
	}
	for len(body) > 0 && !code(body[0]) {
		body = body[1:]
	}
	for len(body) > 0 && !code(body[len(body)-1]) {
		body = body[:len(body)-1]
	}
	return body
}

// mainBody returns the statements that are the plan: the top level, or the body of the function with the most
// calls. wrapped is "flow" if that function is marked or named as a workflow, "plain" if not, and "" for the
// top level.
func (p *program) mainBody(all []*form.Stmt) (body []*form.Stmt, wrapped string) {
	top := 0
	for _, st := range all {
		if st.Word == "" && st.Expr != nil && st.Expr.Kind == form.Call {
			if d := p.defs[callName(st.Expr)]; d == nil || len(d.Body) < 2 {
				top += b2i(st.Clean && !trivial[callName(st.Expr)] && !wrappers[callName(st.Expr)])
			}
		}
		if (st.Word == "with" || st.Word == "if" || st.Word == "for") && len(st.Body) > 0 {
			top += len(st.Body)
		}
	}
	if top >= 2 {
		return all, ""
	}
	var best *form.Stmt
	most := 1
	each(all, func(st *form.Stmt) {
		if st.Word != "def" {
			return
		}
		n := 0
		for _, x := range st.Body {
			if x.Expr != nil && (x.Expr.Kind == form.Call || x.Word == "with" || len(x.Body) > 0) {
				n += 1 + b2i(x.Expr.Kind == form.Call && holdsCalls(x.Expr))
			}
		}
		if n > most {
			best, most = st, n
		}
	})
	each(all, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool {
			n := 0
			for _, x := range e.Stmts {
				n += b2i(x.Expr != nil && x.Expr.Kind == form.Call)
			}
			if n > most {
				best, most = &form.Stmt{Word: "def", Body: e.Stmts, Off: e.Off, End: e.End}, n
				for _, t := range st.Targets {
					best.Name = t
				}
			}
			return true
		})
	})
	if best == nil {
		return all, ""
	}
	wrapped = "plain"
	for _, m := range best.Marks {
		name := strings.ToLower(m.Path() + callPath(m))
		if strings.Contains(name, "flow") || strings.Contains(name, "dag") || strings.Contains(name, "pipeline") || strings.Contains(name, "job") || strings.Contains(name, "graph") || strings.Contains(name, "orchestrat") {
			wrapped = "flow"
		}
	}
	awaits := 0
	each(best.Body, func(st *form.Stmt) {
		walk(st.Expr, 0, func(e *form.Expr) bool { awaits += b2i(e.Await); return true })
	})
	name := strings.ToLower(best.Name.Text)
	for _, w := range [...]string{"main", "plan", "workflow", "pipeline", "flow", "dag", "orchestrat", "schedule"} {
		if strings.Contains(name, w) {
			wrapped = "flow"
		}
	}
	if awaits > 1 {
		wrapped = "flow"
	}
	return best.Body, wrapped
}

func callPath(e *form.Expr) string {
	if e != nil && e.Kind == form.Call {
		return e.Base.Path()
	}
	return ""
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
