package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exprLoad is the result of an expression and its cost.
type exprLoad struct {
	out   json.RawMessage
	err   error
	bytes uint64 // allocated
	units uint64
}

// load compiles and evaluates src and measures the cost besides time, which depends on other work on the
// machine.
func load(t *testing.T, ctx context.Context, src string, vars map[string]json.RawMessage) exprLoad {
	t.Helper()
	e, err := CompileExpr(ctx, src)
	if err != nil {
		return exprLoad{err: err}
	}
	return loadExpr(ctx, e, vars, exprCostLimit)
}

func loadExpr(ctx context.Context, e *Expr, vars map[string]json.RawMessage, limit uint64) (l exprLoad) {
	m := newMeter(ctx, limit)
	before := allocated()
	v, err := e.eval(m, rawVars(func(name string) (json.RawMessage, bool) { raw, ok := vars[name]; return raw, ok }))
	if err == nil {
		l.out, err = celJSON(v)
	}
	l.err, l.bytes, l.units = err, allocated()-before, m.spent()
	return l
}

// allocated is the sum of all allocations since the test program began, freed memory included.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

const (
	// mostBytes is more than any evaluation may allocate, freed memory included.
	mostBytes = 300 << 20
	// timeout is how long an attack may take on a busy machine. Without bounds it took minutes.
	timeout = 60 * time.Second
)

// largeVars are made once, because that takes seconds under the race detector.
var largeVars = sync.OnceValue(func() map[string]json.RawMessage { return attackVars(1) })

// attackVars are large variables, divided in size by a factor.
func attackVars(factor int) map[string]json.RawMessage {
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return b
	}
	many := make([]int, 100_000/factor)
	texts := make([]string, 20_000/factor)
	for i := range many {
		many[i] = i
	}
	for i := range texts {
		texts[i] = strings.Repeat("x", 100) + fmt.Sprint(i)
	}
	return map[string]json.RawMessage{
		"named":  raw(map[string]any{"s": strings.Repeat("a", 200_000/factor), "needle": strings.Repeat("a", 100_000/factor) + "b", "n": 1}),
		"args":   raw(many),
		"item":   raw(many[:3000/factor]),
		"input":  raw(strings.Repeat("é", 1_000_000/factor)),
		"state":  raw(texts),
		"result": raw(strings.Repeat("a", 2000)),
		"values": json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("[],", 1_200_000/factor), ",") + "]"),
		"nodes":  json.RawMessage(strings.Repeat("[", MaxValueDepth) + strings.Repeat("]", MaxValueDepth)),
	}
}

// doubled is the text of a list that contains itself twice, 25 times over.
var doubled = "[1]" + strings.Repeat(".map(a, [a, a])", 25)

// TestExprAttack checks every function whose result grows, or whose time is worse than linear.
func TestExprAttack(t *testing.T) {
	// A tenth of the limit, with a tenth of the input: the cost of an evaluation grows with both.
	const factor = 10
	vars := attackVars(factor)
	ctx, cancel := context.WithTimeout(t.Context(), 10*timeout)
	defer cancel()
	for _, src := range []string{
		// Results that grow.
		`named.s.replace("a", named.s)`, `named.s.replace("", named.s)`, `named.s.replace("a", named.s, 100000)`,
		`item.map(x, named.s).join(named.s)`, `state.join(named.s)`, `input.split("")`, `values.map(x, input.split("é"))`,
		`lists.range(1000000)`, `item.map(x, lists.range(900))`, `item.map(x, "%.99f %s".format([1e300, args]))`,
		`args.map(x, item + item)`, `args.map(x, args)`, `args.map(x, input)`, `args.map(x, bytes(named.s))`, `args.map(x, input.substring(1))`,
		`args.map(x, input.upperAscii())`, `args.map(x, strings.quote(input))`, `args.map(x, args.reverse())`, `args.map(x, args.slice(1, 90000))`,
		"[named.s]" + strings.Repeat(".map(a, a + a)", 20),
		// Worse than linear.
		`sets.equivalent(args, args)`, `sets.contains(args, args)`, `sets.intersects(args, [-1, -2, -3].map(x, x) + args.map(x, -x))`,
		`args.hasAll(args)`, `args.hasOnly(args)`, `args.map(x, -x).hasAny(args)`, `args.hasExactly(args)`,
		`args.distinct()`, `args.all(x, x in args)`, `item.map(x, args.sort())`, `item.sortBy(x, named.s)`, `named.s.indexOf(named.needle)`,
		`named.s.lastIndexOf(named.needle)`, `args.all(x, args == args.map(y, y))`, `args.all(x, input.matches("(é|e)*x"))`,
		`args.map(x, math.greatest(args))`, `args.map(x, timestamp("2026-01-02T03:04:05Z").getHours("Europe/Berlin"))`,
		`args.map(x, input.size())`, `args.map(x, input < input + "é")`, `args.map(x, input.contains("éx"))`, `args.map(x, input.trim())`, `args.map(x, input.charAt(0))`,
		// Rounds that call nothing.
		`args.filter(x, args.filter(y, false) == [])`, `args.all(x, args.all(y, true))`, `args.exists(x, args.exists(y, false))`,
		`args.exists_one(x, args.exists_one(y, false))`,
		// Errors that print their value and that an operator swallows.
		`args.exists(x, {}[values] == 1)`, `args.exists(x, [1][input.size() > 0 ? args : args] == 1)`, `args.exists(x, int(input) == 1)`,
		`args.exists(x, timestamp(input) == null)`, `args.exists(x, [args].join() == "")`, `args.exists(x, {}[input] == 1)`,
		// Shared structure.
		doubled, doubled + " == " + doubled, doubled + " in [" + doubled + "]", `{}[` + doubled + `]`, `{"a": ` + doubled + `}`, `"%s".format([` + doubled + `])`,
		doubled + `.flatten(100)`, `[dyn(` + doubled + `)].join()`, `sets.contains([` + doubled + `], [` + doubled + `])`, `[` + doubled + `].distinct()`,
		`type(` + doubled + `) == list && ` + doubled + ` != [[]]`, `args` + strings.Repeat(" + args", 40),
		// Variables that are large when they are read.
		`values`, `values == values`, `values.flatten()`,
	} {
		t.Run(src[:min(len(src), 60)], func(t *testing.T) {
			e, err := CompileExpr(ctx, src)
			if err != nil {
				require.ErrorContains(t, err, "no matching overload")
				return
			}
			l := loadExpr(ctx, e, vars, exprCostLimit/factor)
			require.Error(t, l.err)
			require.False(t, Missing(l.err), l.err)
			require.NotErrorIs(t, l.err, ErrInterrupted)
			require.Less(t, l.bytes, uint64(mostBytes/factor), "after %v", l.err)
		})
	}
	t.Run("WholeLimit", func(t *testing.T) {
		vars := largeVars()
		for _, src := range []string{
			`named.s.replace("a", named.s)`, `sets.equivalent(args, args)`, `args.distinct()`, doubled + " == " + doubled, `item.map(x, item + item)`,
			`args.exists(x, timestamp(input) == null)`, `values`,
		} {
			l := load(t, ctx, src, vars)
			require.Error(t, l.err)
			require.NotErrorIs(t, l.err, ErrInterrupted)
			require.Less(t, l.bytes, uint64(mostBytes), "%s: %v", src, l.err)
		}
	})
}

// TestExprRoom checks that large but reasonable evaluations are allowed.
func TestExprRoom(t *testing.T) {
	vars := largeVars()
	for _, src := range []string{
		`state.sort().size() == 20000`, `args.reverse() != args`, `item.distinct().size() == 3000`, `input.substring(10).size() == 999990`,
		`named.s.replace("a", "bc").size() == 400000`, `named.s.split("a").size() == 200001`, `state.map(x, x.size()).size() == 20000`,
		`state.join(", ").size() > 2000000`, `sets.contains(args, [1, 2, 3])`, `item.filter(x, x % 2 == 0).size() == 1500`,
		`result.matches("^a+$")`, `named.s.matches("ab?a{3}$")`, `{"all": args, "few": args.slice(0, 10)}.few.size() == 10`, `nodes == nodes`,
		`state == state.map(x, x)`, `"%s has %d".format([result, args.size()]).size() == 2011`,
	} {
		t.Run(src, func(t *testing.T) {
			l := load(t, t.Context(), src, vars)
			require.NoError(t, l.err)
			require.Equal(t, "true", string(l.out))
		})
	}
}

func TestExprPattern(t *testing.T) {
	vars := largeVars()
	t.Run("Large/IsRefusedBeforeItIsCompiled", func(t *testing.T) {
		for _, src := range []string{
			`(x{0,1000}){0,1}y{0,999}z`, `((a{0,9}){0,9}){0,9}b`, `(a|aa|b{0,20}){0,400}`, `(((((a{9}){9})b){9})c)`,
			strings.Repeat("(a|b)", 500), `(?i)` + strings.Repeat(`[A-\x{1e942}]`, 70), `(?i)[` + strings.Repeat(`α-ω`, 5) + `]`, `(?si)` + strings.Repeat(`[B-𞥂]`, 9),
		} {
			literal, err := json.Marshal(src)
			require.NoError(t, err)
			before := allocated()
			_, err = CompileExpr(t.Context(), `result.matches(`+string(literal)+`)`)
			require.Error(t, err, src)
			require.Less(t, allocated()-before, uint64(20<<20))
			v := map[string]json.RawMessage{"item": literal, "result": vars["result"]}
			require.Error(t, load(t, t.Context(), `result.matches(item)`, v).err, src)
		}
	})
	t.Run("Many/AreCounted", func(t *testing.T) {
		one := `"".matches("(?i)[A-\\x{1e942}][A-\\x{1e942}]")`
		_, err := CompileExpr(t.Context(), one)
		require.NoError(t, err)
		_, err = CompileExpr(t.Context(), one+strings.Repeat(` || `+strings.Replace(one, "[A", "[B", 1), 30))
		require.ErrorContains(t, err, "cost limit")
		require.Error(t, load(t, t.Context(), `item.all(x, result.matches("(a" + string(x) + "){100}|a"))`, vars).err)
	})
	t.Run("OnLongTexts/CountsEveryStep", func(t *testing.T) {
		require.ErrorContains(t, load(t, t.Context(), `named.s.matches("(a?){100}a{100}b")`, vars).err, "cost limit")
	})
	t.Run("Ordinary/Works", func(t *testing.T) {
		for _, p := range []string{`^[a-z0-9._%+-]+@[a-z0-9.-]+$`, `(?i)^(yes|no|maybe)\b`, `\pL{1,40}`, `(?i)[α-ω]+`, `^\d{4}-\d{2}-\d{2}T`} {
			literal, err := json.Marshal(p)
			require.NoError(t, err)
			require.NoError(t, load(t, t.Context(), `result.matches(`+string(literal)+`)`, vars).err, p)
		}
	})
}

func TestExprCompileAttack(t *testing.T) {
	wide := func(one, sep string) string {
		return strings.TrimSuffix(strings.Repeat(one+sep, maxExprLen/(len(one)+len(sep))-1), sep)
	}
	nest := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	for name, src := range map[string]string{
		"ListsInLists":        nest("[", "1", "]", 240),
		"MapsInMaps":          nest("{1:", "1", "}", 230),
		"MacrosInMacros":      nest("args.map(x, ", "1", ")", 120),
		"MacrosInARow":        "args" + strings.Repeat(".map(x, [x])", 120),
		"FiltersInFilters":    nest("args.filter(x, ", "true", ")", 230),
		"DistinctLists":       nest("[", "1", "].distinct()", 200),
		"ManyDeepLists":       "[" + wide(nest("[", "", "]", 30), ",") + "]",
		"ManyDeepMaps":        "[" + wide(nest("{1:", "1", "}", 30), ",") + "]",
		"ManyDeepMacros":      "[" + wide(nest("args.map(x,", "1", ")", 30), ",") + "]",
		"ManyWords":           "[" + wide("1", ",") + "]",
		"ManyUnknownNames":    "[" + wide("q", ",") + "]",
		"ManyLists":           "[" + wide("[]", ",") + "]",
		"ManyComparisons":     wide("[]==[]", "&&"),
		"ManyBrackets":        strings.Repeat("[(", maxExprLen/2-1),
		"ManySigns":           strings.Repeat("!-", maxExprLen/2-1) + "1",
		"Nonsense":            wide("a..b(", " "),
		"TextsThatAreNot":     wide(`"`, "\n"),
		"ConstantConversions": nest("string(", `"`+strings.Repeat("x", 10_000)+`"`, ")", 200),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			before := allocated()
			_, err := CompileExpr(ctx, src)
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrInterrupted)
			require.Less(t, len(err.Error()), 1000)
			require.Less(t, allocated()-before, uint64(150<<20))
		})
	}
	t.Run("Ended/IsInterrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller has gone"))
		_, err := CompileExpr(ctx, "1 + 1")
		require.ErrorIs(t, err, ErrInterrupted)
		require.ErrorContains(t, err, "the caller has gone")
	})
	t.Run("Reasonable/Compiles", func(t *testing.T) {
		var entries []string
		for i := range 200 {
			entries = append(entries, fmt.Sprintf(`"key %d": {"list": [%d, "two"], "of": result.x}`, i, i))
		}
		for _, src := range []string{
			"{" + strings.Join(entries, ", ") + "}", `"` + strings.Repeat("long text ", 1500) + `" + result`,
			strings.TrimSuffix(strings.Repeat(`string(result.a) + " and " + `, 50), "+ "), nest("[", "1", "]", 25),
			`result.a` + strings.Repeat(`.filter(x, x > 1).map(x, x + 1)`, 8), `result == "a"` + strings.Repeat(` || result == "b"`, 300),
		} {
			_, err := CompileExpr(t.Context(), src)
			require.NoError(t, err, src[:min(len(src), 80)])
		}
	})
}

func TestExprInterrupt(t *testing.T) {
	vars := map[string]json.RawMessage{"args": json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]")}
	t.Run("Before/NothingIsRead", func(t *testing.T) {
		e, err := CompileExpr(t.Context(), "args.size()")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = e.EvalLazy(ctx, func(string) (json.RawMessage, bool) {
			t.Error("a variable was asked for")
			return nil, false
		})
		require.ErrorIs(t, err, ErrInterrupted)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, Missing(err))
	})
	for _, src := range []string{
		`args.all(x, args.all(y, x == y))`, `args.filter(x, args.filter(y, false) == []) == []`, `sets.equivalent(args, args.map(x, x + 1))`,
		`args.map(x, x + item).distinct() == []`, `args.exists(x, args.exists(y, item))`,
	} {
		t.Run("During/"+src, func(t *testing.T) {
			e, err := CompileExpr(t.Context(), src)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			asked := false
			m := newMeter(ctx, exprCostLimit)
			_, err = e.eval(m, rawVars(func(name string) (json.RawMessage, bool) {
				if name == "args" && !asked {
					asked = true
					cancel(errors.New("a node's time is up"))
				}
				return vars[name], name == "args"
			}))
			require.ErrorIs(t, err, ErrInterrupted)
			require.ErrorContains(t, err, "a node's time is up")
			require.Less(t, m.spent(), uint64(10_000), "it went on after its end")
		})
	}
}

// TestExprFunctions lists every function of the language with its rule, so that a function of a new release
// of the library must get a rule, too.
func TestExprFunctions(t *testing.T) {
	env, err := exprEnv()
	require.NoError(t, err)
	var lines []string
	for name, f := range env.Functions() {
		r, ok := exprRules[name]
		require.True(t, ok, "the function %q has no rule in exprRules: say what it costs before it runs", name)
		var how []string
		if r.cost != nil {
			how = append(how, "charged")
		}
		if r.run != nil {
			how = append(how, "our own")
		}
		if how == nil {
			how = append(how, "a unit")
		}
		var ids []string
		for _, o := range f.OverloadDecls() {
			ids = append(ids, o.ID())
		}
		slices.Sort(ids)
		lines = append(lines, fmt.Sprintf("%s: %s: %s\n", name, strings.Join(how, ", "), strings.Join(ids, " ")))
	}
	slices.Sort(lines)
	var macros []string
	for _, m := range env.Macros() {
		macros = append(macros, "macro "+m.MacroKey()+"\n")
	}
	slices.Sort(macros)
	got := strings.Join(lines, "") + strings.Join(macros, "")
	path := filepath.Join("testdata", "functions.txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the functions of the language have changed: see that exprRules is right about each, then run with -update")
}

// TestExprNodes checks the variable nodes: each result is read once for an evaluation, and charged.
func TestExprNodes(t *testing.T) {
	large := "[" + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") + "]"
	const begun = "C has begun"
	run := func(cond string) string {
		g := nodes(FirstArg(), "A", "B", "C").Chain("A", "B").Edge("B", "C", When(cond)).Graph()
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one(large)})
		m.end("B", Outcome{Values: one("1")})
		switch end := m.s.End(); {
		case end == nil:
			return begun
		case end.Error == nil:
			return "the condition is false"
		default:
			return end.Error.Message
		}
	}
	before := allocated()
	require.Equal(t, begun, run(`lists.range(2000).all(i, nodes.A.result[i] == 1)`))
	require.Less(t, allocated()-before, uint64(50<<20))
	require.Equal(t, begun, run(`nodes.size() == 2 && nodes.all(n, nodes[n].visit == 1)`))
	require.Equal(t, begun, run(`[nodes][0].A.result[0] == 1 && nodes == nodes`))
	require.Contains(t, run(`lists.range(50).map(n, nodes.A.result.map(x, [nodes])) == []`), "cost limit")
}

// TestExprTogether checks the common cost limit of the expressions of one command.
func TestExprTogether(t *testing.T) {
	t.Parallel()
	g := nodes(FirstArg(), "A").Graph()
	for i := range 100 {
		id := fmt.Sprintf("B%d", i)
		g.Nodes = append(g.Nodes, Node{ID: id, Actor: "noop"})
		g.Edges = append(g.Edges, Edge{From: "A", To: id, When: `result.map(x, result.size()).size() > 0`})
	}
	large := "[" + strings.TrimSuffix(strings.Repeat("1,", 20_000), ",") + "]"
	m := newMachine(t, compile(t, g))
	m.begin()
	m.end("A", Outcome{Values: one(large)})
	require.Equal(t, ReasonConditionFailed, m.s.End().Error.Reason)
	require.Contains(t, m.s.End().Error.Message, "together")
}

// TestExprTimeLimit checks the time limit that a program sets for the expressions of one command.
func TestExprTimeLimit(t *testing.T) {
	made, ended := 0, 0
	over := errors.New("over time")
	evaluation := func() (context.Context, context.CancelFunc) {
		made++
		ctx, cancel := context.WithCancelCause(context.Background())
		if made == 2 {
			cancel(over)
		}
		return ctx, func() { ended++; cancel(nil) }
	}
	g := nodes(FirstArg(), "A", "B", "C").Edge("A", "B", When("result == 1")).Edge("A", "C", When("result == 1")).Edge("B", "C", When("result == 2")).Graph()
	m := newMachine(t, compile(t, g))
	m.s.OnEvaluation(evaluation)
	m.begin()
	require.Zero(t, made, "nothing was evaluated")
	m.end("A", Outcome{Values: one("1")})
	require.Nil(t, m.s.End())
	require.Equal(t, []int{1, 1}, []int{made, ended})
	m.end("B", Outcome{Values: one("2")})
	require.Equal(t, ReasonConditionFailed, m.s.End().Error.Reason)
	require.Contains(t, m.s.End().Error.Message, "interrupted: over time")
	require.Equal(t, made, ended)
	t.Run("Aborted/DecidesNothing", func(t *testing.T) {
		m := newMachine(t, compile(t, g))
		m.begin()
		m.s.OnEvaluation(func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(ErrAborted)
			return ctx, func() {}
		})
		evs, fx, err := m.s.Advance(Ended{Ref: m.ref("A"), Attempt: 1, Outcome: &Outcome{Values: one("1")}, Now: m.now})
		require.ErrorIs(t, err, ErrAborted)
		require.Empty(t, evs)
		require.Empty(t, fx.Starts)
	})
}
