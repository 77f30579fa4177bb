package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Expr is a compiled CEL expression over the variables of this package. It is immutable and safe for
// concurrent use.
type Expr struct {
	src string
	prg cel.Program
	// patterns are its constant regular expressions.
	patterns map[string]*pattern
	// steps are the instructions of its patterns.
	steps int
	// nodeRefs are the ids in nodes.ID and nodes["ID"]. Validation reads them.
	nodeRefs []string
	// unknownFields are uses of nodes.ID.FIELD with a field that no node has.
	unknownFields []nodeField
	// unknownInput are the keys in input.KEY that no input has.
	unknownInput []string
	// stateKeys are the keys in state.KEY and state["KEY"]. wholeState says that the state is also used in
	// another way.
	stateKeys  []string
	wholeState bool
	// ofResult says that it reads result or values.
	ofResult bool
	// constant says that it names no variable, so that its value is always the same.
	constant bool
	// gives is the type of all its values as far as the text determines it, else empty. wholeNode says that
	// the expression is only nodes.ID.
	gives     string
	wholeNode bool
}

// CompileExpr compiles src. Syntax errors, unknown variables and unknown functions are errors. The length of
// src is bounded so that this takes a fraction of a second. The error is ErrInterrupted if ctx ends first.
func CompileExpr(ctx context.Context, src string) (*Expr, error) {
	env, err := exprEnv()
	if err != nil {
		return nil, err
	}
	return compileIn(ctx, env, src)
}

// CompileEventExpr is CompileExpr for an expression over the variable `event` alone: what starts a run is
// known before there is one.
func CompileEventExpr(ctx context.Context, src string) (*Expr, error) {
	env, err := eventEnv()
	if err != nil {
		return nil, err
	}
	return compileIn(ctx, env, src)
}

func compileIn(ctx context.Context, env *environment, src string) (*Expr, error) {
	parsed, err := env.parse(ctx, src)
	if err != nil {
		return nil, err
	}
	checked, iss := env.Check(parsed)
	if err := env.firstIssue(src, iss); err != nil {
		return nil, err
	}
	p := &planner{m: newMeter(ctx, compileCostLimit), patterns: map[string]*pattern{}}
	p.m.blame = fmt.Sprintf("the patterns and other constants of the expression are beyond the cost limit of %d units", compileCostLimit)
	e := &Expr{src: src, patterns: p.patterns, constant: true}
	stopped := p.m.protect(func() { e.prg, err = env.Program(checked, cel.CustomDecoratorV2(p.decorate)) })
	p.m = nil // the library keeps the decorator as long as the program, and the meter holds ctx
	if stopped != nil {
		return nil, stopped
	}
	if err != nil {
		return nil, err
	}
	for _, re := range e.patterns {
		e.steps += re.steps
	}
	whole, parts, itemInput := 0, 0, false
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() == ast.IdentKind {
			e.constant = false
		}
		if x.Kind() == ast.IdentKind && (x.AsIdent() == "result" || x.AsIdent() == "values") {
			e.ofResult = true
		}
		if id, ok := nodeRef(x); ok && !slices.Contains(e.nodeRefs, id) {
			e.nodeRefs = append(e.nodeRefs, id)
		}
		if f, ok := fieldOfNode(x); ok && !slices.Contains(nodeFields, f.field) && !slices.Contains(e.unknownFields, f) {
			e.unknownFields = append(e.unknownFields, f)
		}
		if key, ok := partOf("input", x); ok && !slices.Contains(inputFields, key) && !slices.Contains(e.unknownInput, key) {
			e.unknownInput = append(e.unknownInput, key)
		}
		if x.Kind() == ast.ComprehensionKind && slices.Contains([]string{x.AsComprehension().IterVar(), x.AsComprehension().IterVar2()}, "input") {
			itemInput = true
		}
		if x.Kind() == ast.IdentKind && strings.TrimPrefix(x.AsIdent(), ".") == "state" {
			whole++
		}
		if key, ok := partOf("state", x); ok {
			parts++
			e.stateKeys = append(e.stateKeys, key)
		}
	}))
	e.wholeState = whole > parts
	if itemInput { // the variable of a macro is called input
		e.unknownInput = nil
	}
	root := checked.NativeRep().Expr()
	_, e.wholeNode = nodeRef(root)
	e.gives = typeOf(root, checked.OutputType())
	return e, nil
}

// typeOf is the type of an expression's values, or empty if it is not known. checked is the type that CEL's
// checker found, for which every variable may be anything.
func typeOf(x ast.Expr, checked *cel.Type) string {
	if _, ok := nodeRef(x); ok {
		return "map"
	}
	if x.Kind() == ast.IdentKind {
		switch strings.TrimPrefix(x.AsIdent(), ".") {
		case "input", "nodes", "state", "named":
			return "map"
		case "args", "values":
			return "list"
		case "node":
			return "string"
		case "visit", "attempt":
			return "int"
		}
	}
	switch checked.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.BytesKind, types.ListKind, types.MapKind,
		types.TimestampKind, types.DurationKind:
		return checked.TypeName()
	}
	return ""
}

// nodeRef is the id in nodes.ID or nodes["ID"].
func nodeRef(x ast.Expr) (id string, ok bool) { return partOf("nodes", x) }

// nodeFields are the fields of nodes.ID.
var nodeFields = []string{"result", "values", "visit"}

// inputFields are the fields of input.
var inputFields = []string{"args", "named"}

// nodeField is a field of a node that an expression reads.
type nodeField struct{ id, field string }

// fieldOfNode splits nodes.ID.FIELD and nodes.ID["FIELD"].
func fieldOfNode(x ast.Expr) (f nodeField, ok bool) {
	of, field, ok := keyOf(x)
	if !ok {
		return f, false
	}
	id, ok := nodeRef(of)
	return nodeField{id, field}, ok
}

// partOf is the key in VARIABLE.KEY or VARIABLE["KEY"].
func partOf(variable string, x ast.Expr) (key string, ok bool) {
	of, key, ok := keyOf(x)
	return key, ok && of.Kind() == ast.IdentKind && strings.TrimPrefix(of.AsIdent(), ".") == variable
}

// keyOf splits OF.KEY and OF["KEY"].
func keyOf(x ast.Expr) (of ast.Expr, key string, ok bool) {
	switch x.Kind() {
	case ast.SelectKind:
		return x.AsSelect().Operand(), x.AsSelect().FieldName(), true
	case ast.CallKind:
		if c := x.AsCall(); c.FunctionName() == operators.Index && c.Args()[1].Kind() == ast.LiteralKind {
			s, ok := c.Args()[1].AsLiteral().(types.String)
			return c.Args()[0], string(s), ok
		}
	}
	return nil, "", false
}

// errMissing marks the use of a key, an index or a variable that does not exist.
var errMissing = errors.New("missing")

// missingNote begins the note of a condition that uses something missing.
const missingNote = "missing: "

// Eval evaluates the expression over raw JSON variables. A variable that is not in vars counts as missing.
// The result is raw JSON: CEL ints stay integers, doubles keep a fraction. The cost of an evaluation is
// bounded. The error is ErrInterrupted if ctx ends first.
func (e *Expr) Eval(ctx context.Context, vars map[string]json.RawMessage) (json.RawMessage, error) {
	return e.EvalLazy(ctx, func(name string) (json.RawMessage, bool) {
		raw, ok := vars[name]
		return raw, ok
	})
}

// EvalLazy is Eval for variables that are expensive to write as JSON. Only the variables that the expression
// uses are asked for, each once.
func (e *Expr) EvalLazy(ctx context.Context, vars func(name string) (json.RawMessage, bool)) (json.RawMessage, error) {
	v, err := e.eval(newMeter(ctx, exprCostLimit), rawVars(vars))
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}

// EvalEvent is Eval for a condition over an event that nobody pays for: it may cost eventCostLimit.
func (e *Expr) EvalEvent(ctx context.Context, event json.RawMessage) (json.RawMessage, error) {
	v, err := e.eval(newMeter(ctx, eventCostLimit), rawVars(func(name string) (json.RawMessage, bool) { return event, name == "event" }))
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}

// Missing reports whether an evaluation failed because it used a key, an index or a variable that does not
// exist.
func Missing(err error) bool { return errors.Is(err, errMissing) }

// variables gives an expression its values and charges each to the evaluation that reads it.
type variables interface {
	value(m *meter, name string) (any, bool)
}

func (e *Expr) eval(m *meter, vars variables) (ref.Val, error) {
	if m.ctx.Err() != nil {
		return nil, interrupted(m.ctx)
	}
	m.fixed = e.patterns
	frame, err := interpreter.NewExecutionFrame(&resolved{of: vars, m: m})
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	frame.SetCostTracker(&m.tracker)
	v, _, err := e.prg.Eval(frame)
	if over := m.over(); over != nil {
		return nil, over
	}
	if err == nil {
		// A large value, or one that is put together only now, is charged within protect.
		return v, m.protect(func() { v = m.complete(v) })
	}
	msg := err.Error()
	missing := false
	for _, p := range []string{"no such key", "index out of bounds", "no such attribute"} {
		missing = missing || strings.Contains(msg, p)
	}
	// Calls report this in their own words, so it comes from one of the operators below.
	if msg == noSuchOverload {
		msg = "a value has a type that its operator does not take: &&, ||, ! and ? take true or false, and - takes numbers"
	}
	if len(msg) > maxIssue {
		msg = strings.ToValidUTF8(msg[:maxIssue], "") + "…"
	}
	if missing {
		return nil, fmt.Errorf("%w: %s", errMissing, msg)
	}
	return nil, errors.New(msg)
}

// cond evaluates a condition. A missing key makes it false with a note. Any other failure is an error.
func (e *Expr) cond(m *meter, vars variables) (ok bool, note string, err error) {
	v, err := e.eval(m, vars)
	if Missing(err) {
		return false, err.Error(), nil
	}
	if err != nil {
		return false, "", err
	}
	b, isBool := v.(types.Bool)
	if !isBool {
		return false, "", fmt.Errorf("the condition gives %s, not a bool", v.Type().TypeName())
	}
	if !b {
		return false, ReasonConditionFalse, nil
	}
	return true, "", nil
}

// resolved keeps each variable for one evaluation, because a comprehension reads it in every round.
type resolved struct {
	of   variables
	m    *meter
	vars map[string]any
}

func (r *resolved) ResolveName(name string) (any, bool) {
	if v, ok := r.vars[name]; ok {
		return v, true
	}
	v, ok := r.of.value(r.m, name)
	if ok {
		if r.vars == nil {
			r.vars = make(map[string]any, 2)
		}
		r.vars[name] = v
	}
	return v, ok
}

func (r *resolved) Parent() cel.Activation { return nil }

// rawVars resolves variables from raw JSON and decodes only those that are used.
type rawVars func(name string) (json.RawMessage, bool)

func (r rawVars) value(m *meter, name string) (any, bool) {
	raw, ok := r(name)
	if !ok {
		return nil, false
	}
	return m.decode(raw), true
}
