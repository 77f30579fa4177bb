package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

var (
	// plainRoots are packages and objects whose functions compute, log or prepare. A call of one is no step.
	plainRoots = setOf("context errgroup sync log logger logging slog fmt errors strings strconv math console sys Channel params time datetime Math JSON Object Array Date asyncio.Queue")
	// controls are methods of objects that run steps or hold a graph of steps, not methods of results of
	// steps.
	controls = setOf("Go go Wait wait Add Done create_task createTask start_soon submit add_node addNode add_edge addEdge add_conditional_edges addConditionalEdges set_entry_point setEntryPoint set_finish_point compile shutdown TryGo SetLimit")
	// starters run the function in their arguments concurrently with the statements that follow.
	starters = setOf("Go go spawn start_soon TryGo Run submit fork async launch")
	// barriers wait for the steps that were started.
	barriers = setOf("Wait wait wait_all waitAll join WaitAll all")
)

// isTrivial reports whether a function only computes, logs or prepares something, so that a call of it is no
// step of a plan.
func isTrivial(name string) bool {
	if trivial[name] || strings.HasSuffix(name, "Config") {
		return true
	}
	root, _, ok := strings.Cut(name, ".")
	return ok && plainRoots[root]
}

// control finds the runners: variables that hold functions, or objects that run steps or hold a graph of
// steps. Assigning to such a variable is no step.
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

// controlled reports whether an assignment sets only runners, contexts and unused variables.
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

// ofRunner reports whether a call is a method of a runner that adds no step, as in app = graph.compile().
func (p *program) ofRunner(e *form.Expr) bool {
	return e.Base.Kind == form.Attr && p.runners[e.Base.Base.Path()] && (len(e.Args) == 0 || !isText(e.Args[0].Val) && taskID(e) == "")
}

// spare are variables that hold no result of a step: errors, contexts and unused variables.
var spare = setOf("err error _ ok ctx cancel e __")

// withoutSpare returns the variables that may hold a result.
func withoutSpare(targets []form.Piece) []form.Piece {
	var out []form.Piece
	for _, t := range targets {
		if !spare[t.Text] {
			out = append(out, t)
		}
	}
	return out
}

// hooks store the function in their arguments for later: tests, routes and event handlers.
var hooks = setOf("it test describe expect beforeEach afterEach useEffect on once get post put patch delete all use addEventListener setTimeout setInterval schedule listen subscribe")

// functionOf returns the anonymous function in the arguments of a call, if it has a body of statements. It
// also returns the name that the call gives it as a step: step.run("fetch", async () => { … }).
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

// starts reads a statement that starts a function concurrently: g.Go(func() error { … }). It returns false
// for other statements.
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

// barrier reads a statement that waits for all started steps, or for the results that it names. It returns
// false for other statements.
func (p *program) barrier(e *form.Expr) bool {
	if e.Kind != form.Call {
		return false
	}
	name := e.Base.Text
	if !barriers[name] && !gathers[e.Base.Path()] || name == "join" && len(e.Args) > 0 {
		return false // join(a, b) joins strings or lists
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
