package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

var (
	// plainRoots are packages and objects whose functions compute, log or prepare, and do no step of a plan.
	plainRoots = setOf("context errgroup sync log logger logging slog fmt errors strings strconv math console sys Channel params time datetime Math JSON Object Array Date asyncio.Queue")
	// controls are methods of what runs steps, or keeps a graph of them, rather than of a step's result.
	controls = setOf("Go go Wait wait Add Done create_task createTask start_soon submit add_node addNode add_edge addEdge add_conditional_edges addConditionalEdges set_entry_point setEntryPoint set_finish_point compile shutdown TryGo SetLimit")
	// starters run a function that they are given beside what follows.
	starters = setOf("Go go spawn start_soon TryGo Run submit fork async launch")
	// barriers wait for what was started.
	barriers = setOf("Wait wait wait_all waitAll join WaitAll all")
)

// isTrivial reports whether a function computes, logs or prepares something and does no step of a plan.
func isTrivial(name string) bool {
	if trivial[name] || strings.HasSuffix(name, "Config") {
		return true
	}
	root, _, ok := strings.Cut(name, ".")
	return ok && plainRoots[root]
}

// control finds the variables that hold what runs steps or keeps a graph of them, and those that hold
// functions: what they are given is no step.
func (p *program) control(all []*form.Stmt) {
	set, called := map[string]bool{}, map[string]bool{}
	each(all, func(st *form.Stmt) {
		for _, t := range st.Targets {
			set[t.Text] = true
		}
		walk(st.Expr, 0, func(e *form.Expr) bool {
			if e.Kind != form.Call {
				return true
			}
			if b := e.Base; b.Kind == form.Attr && controls[b.Text] && b.Base.Kind == form.Ident {
				called[b.Base.Text] = true
			} else if b.Kind == form.Ident {
				called[b.Text] = true
			}
			return true
		})
	})
	for name := range called {
		if set[name] {
			p.runners[name] = true
		}
	}
}

// controlled reports whether an assignment gives nothing but what runs steps, or functions, to its variables.
func (p *program) controlled(st *form.Stmt) bool {
	some := false
	for _, t := range st.Targets {
		runner := p.runners[t.Text] || t.Text == "ctx" || t.Text == "cancel"
		if some = some || runner; !runner && !spare[t.Text] {
			return false
		}
	}
	return some && st.Label.Text == ""
}

// ofRunner reports whether a call is a method of what keeps a graph of steps: app = graph.compile().
func (p *program) ofRunner(e *form.Expr) bool {
	return e.Base.Kind == form.Attr && p.runners[e.Base.Base.Path()] && (len(e.Args) == 0 || !isText(e.Args[0].Val) && taskID(e) == "")
}

// spare are variables that hold no result of a step: errors and what is thrown away.
var spare = setOf("err error _ ok ctx cancel e __")

// withoutSpare drops from variables those that hold no result.
func withoutSpare(targets []form.Piece) []form.Piece {
	var out []form.Piece
	for _, t := range targets {
		if !spare[t.Text] {
			out = append(out, t)
		}
	}
	return out
}

// hooks are functions that keep the function that they are given for later: tests, routes and events.
var hooks = setOf("it test describe expect beforeEach afterEach useEffect on once get post put patch delete all use addEventListener setTimeout setInterval schedule listen subscribe")

// functionOf returns the function without a name that a call is given, if it has a body of statements, and
// the name of the step that the call makes of it: step.run("fetch", async () => { … }).
func functionOf(e *form.Expr) (f *form.Expr, name string) {
	if e.Kind != form.Call {
		return nil, ""
	}
	if e.Base.Kind == form.Func { // func() { … }()
		return e.Base, ""
	}
	for _, a := range e.Args {
		switch v := a.Val; {
		case isText(v) && name == "":
			name = v.Text
		case v.Kind == form.Func:
			f = v
		case v.Kind == form.Ops && len(v.Ops) > 0 && v.Ops[len(v.Ops)-1] == "=>":
			if f = v.Args[len(v.Args)-1].Val; f.Kind != form.Func && name == "" {
				f = nil
			}
		}
	}
	return f, name
}

// starts reads a statement that starts a function beside what follows: g.Go(func() error { … }).
func (p *program) starts(e *form.Expr, depth int) bool {
	f, name := functionOf(e)
	if f == nil || name != "" || e.Base.Kind != form.Func && !starters[e.Base.Text] {
		return false
	}
	before := p.prev
	p.run(f.Stmts, depth+1)
	p.started = append(p.started, p.prev...)
	p.prev = before
	return true
}

// barrier reads a statement that waits for what was started, or for the results that it names.
func (p *program) barrier(e *form.Expr) bool {
	if e.Kind != form.Call {
		return false
	}
	name := e.Base.Text
	if !barriers[name] && !gathers[e.Base.Path()] || name == "join" && len(e.Args) > 0 {
		return false // join(a, b) joins what they hold
	}
	var held []int
	for _, x := range p.gathered(&form.Expr{Kind: form.Call, Base: &form.Expr{Kind: form.Ident, Text: "gather"}, Args: e.Args}) {
		got, ok := p.env[x.Path()]
		if !ok {
			return false
		}
		held = append(held, got...)
	}
	if e.Base.Kind == form.Attr {
		held = append(held, p.env[e.Base.Base.Path()]...)
	}
	if len(e.Args) == 0 && len(held) == 0 {
		held = p.started
	}
	if len(held) == 0 {
		return false
	}
	p.prev, p.started = held, nil
	return true
}
