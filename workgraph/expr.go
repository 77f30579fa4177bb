package workgraph

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// exprCostLimit bounds one evaluation in CEL cost units; expressions may come from a model. It is enough to build a list of
// ten thousand items and ends a runaway within a fraction of a second.
const exprCostLimit = 1_000_000

// maxExprLen bounds the text of one expression.
const maxExprLen = 16 << 10

// maxExprResult bounds the JSON that one expression gives. Values share what they hold, so a small one in memory may be
// endless when it is written. maxExprValues bounds the values in it.
const (
	maxExprResult = 16 << 20
	maxExprValues = 2 << 20
)

// exprNames are the variables an expression may use. Which of them have a value depends on where the expression stands.
var exprNames = [...]string{
	"input", "result", "values", "args", "named", "state", "nodes", "node", "visit", "attempt", "item", "context",
}

var exprEnv = sync.OnceValues(func() (*cel.Env, error) {
	opts := []cel.EnvOption{ext.Strings(), ext.Math(), ext.Lists(), ext.Sets(), cel.CrossTypeNumericComparisons(true)}
	for _, n := range exprNames {
		opts = append(opts, cel.Variable(n, cel.DynType))
	}
	return cel.NewEnv(opts...)
})

// Expr is a compiled CEL expression over the variables of this package. It is immutable and safe for concurrent use.
type Expr struct {
	src string
	prg cel.Program
	// nodeRefs are the ids in nodes.ID selections, for validation.
	nodeRefs []string
}

// CompileExpr compiles src. Syntax errors, unknown variables and unknown functions are reported.
func CompileExpr(src string) (*Expr, error) {
	if len(src) > maxExprLen {
		return nil, fmt.Errorf("expression is longer than %d bytes", maxExprLen)
	}
	env, err := exprEnv()
	if err != nil {
		return nil, err
	}
	checked, iss := env.Compile(src)
	if iss.Err() != nil {
		return nil, errors.New(firstLine(iss.Err().Error()))
	}
	prg, err := env.Program(checked, cel.CostLimit(exprCostLimit), cel.CostTracking(dynCosts{}), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	e := &Expr{src: src, prg: prg}
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if x.Kind() == ast.SelectKind {
			if op := x.AsSelect().Operand(); op.Kind() == ast.IdentKind && op.AsIdent() == "nodes" {
				e.nodeRefs = append(e.nodeRefs, x.AsSelect().FieldName())
			}
		}
	}))
	return e, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimPrefix(s, "ERROR: ")
}

// errMissing marks the use of a key, an index or a variable that is not there.
var errMissing = errors.New("missing")

// Eval evaluates the expression over raw JSON variables. A variable that is not in vars counts as missing. The result is raw
// JSON: CEL ints stay integers, doubles keep a fraction.
func (e *Expr) Eval(vars map[string]json.RawMessage) (json.RawMessage, error) {
	return e.EvalLazy(func(name string) (json.RawMessage, bool) {
		raw, ok := vars[name]
		return raw, ok
	})
}

// EvalLazy is Eval for variables that cost something to write down: only those that the expression uses are asked for, each
// possibly more than once.
func (e *Expr) EvalLazy(vars func(name string) (json.RawMessage, bool)) (json.RawMessage, error) {
	v, err := e.eval(rawVars(vars))
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}

// Missing reports whether an evaluation failed because it used a key, an index or a variable that is not there.
func Missing(err error) bool { return errors.Is(err, errMissing) }

func (e *Expr) eval(a cel.Activation) (ref.Val, error) {
	v, _, err := e.prg.Eval(&resolved{of: a})
	if err != nil {
		msg := err.Error()
		for _, p := range []string{"no such key", "index out of bounds", "no such attribute"} {
			if strings.Contains(msg, p) {
				return nil, fmt.Errorf("%w: %s", errMissing, msg)
			}
		}
		return nil, errors.New(msg)
	}
	return v, nil
}

// cond evaluates a condition: a missing key makes it false with a note, any other failure is an error.
func (e *Expr) cond(a cel.Activation) (ok bool, note string, err error) {
	v, err := e.eval(a)
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
		return false, noteCondition, nil
	}
	return true, "", nil
}

// resolved keeps each variable for one evaluation: a comprehension asks for it in every round, and to decode it is not counted
// in the cost.
type resolved struct {
	of   cel.Activation
	vars map[string]any
}

func (r *resolved) ResolveName(name string) (any, bool) {
	if v, ok := r.vars[name]; ok {
		return v, true
	}
	v, ok := r.of.ResolveName(name)
	if ok {
		if r.vars == nil {
			r.vars = make(map[string]any, 2)
		}
		r.vars[name] = v
	}
	return v, ok
}

func (r *resolved) Parent() cel.Activation { return nil }

// rawVars resolves variables from raw JSON, decoding only what is used.
type rawVars func(name string) (json.RawMessage, bool)

func (r rawVars) ResolveName(name string) (any, bool) {
	raw, ok := r(name)
	if !ok {
		return nil, false
	}
	return celValue(raw), true
}

func (r rawVars) Parent() cel.Activation { return nil }

// celValue decodes raw JSON for CEL: integers become ints (uints beyond int64), other numbers doubles.
func celValue(raw json.RawMessage) any {
	v, err := decodeJSON(raw)
	if err != nil {
		return types.NewErr("not JSON: %v", err)
	}
	if v == nil {
		return types.NullValue
	}
	return v
}

func celList(vals []json.RawMessage) any {
	out := make([]any, len(vals))
	for i, v := range vals {
		out[i] = celValue(v)
	}
	return out
}

func celMap(m map[string]json.RawMessage) any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = celValue(v)
	}
	return out
}

// celJSON writes a CEL value as JSON.
func celJSON(v ref.Val) (json.RawMessage, error) {
	w := celWriter{left: maxExprValues}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.b, nil
}

// celWriter writes JSON within the limits.
type celWriter struct {
	b    []byte
	left int // values that may still come
}

func (w *celWriter) value(v ref.Val, depth int) (err error) {
	if depth > 1000 {
		return errors.New("value is nested too deeply")
	}
	if w.left--; w.left < 0 {
		return fmt.Errorf("the result has more than %d values", maxExprValues)
	}
	switch x := v.(type) {
	case types.Null:
		w.b = append(w.b, "null"...)
	case types.Bool:
		w.b = strconv.AppendBool(w.b, bool(x))
	case types.Int:
		w.b = appendInt(w.b, int64(x))
	case types.Uint:
		w.b = appendUint(w.b, uint64(x))
	case types.Double:
		w.b, err = appendFloat(w.b, float64(x))
	case types.String:
		err = w.text(string(x))
	case types.Bytes:
		if err = w.room(len(x)); err == nil {
			err = w.text(base64.StdEncoding.EncodeToString(x))
		}
	case traits.Lister:
		return w.list(x, depth)
	case traits.Mapper:
		return w.object(x, depth)
	case *types.Err:
		return x
	case types.Timestamp, types.Duration:
		s, ok := v.ConvertToType(types.StringType).(types.String)
		if !ok {
			return fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
		}
		err = w.text(string(s))
	default:
		return fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
	}
	return err
}

// room reports whether n more bytes are too many.
func (w *celWriter) room(n int) error {
	if len(w.b)+n > maxExprResult {
		return fmt.Errorf("the result is longer than %d bytes", maxExprResult)
	}
	return nil
}

func (w *celWriter) text(s string) (err error) {
	if err = w.room(len(s)); err != nil {
		return err
	}
	w.b, err = appendString(w.b, s)
	return err
}

func (w *celWriter) list(l traits.Lister, depth int) error {
	n := int(l.Size().(types.Int))
	if n > w.left {
		return fmt.Errorf("the result has more than %d values", maxExprValues)
	}
	w.b = append(w.b, '[')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.value(l.Get(types.Int(i)), depth+1); err != nil {
			return err
		}
	}
	w.b = append(w.b, ']')
	return nil
}

func (w *celWriter) object(m traits.Mapper, depth int) error {
	fields := map[string]ref.Val{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		ks, ok := k.ConvertToType(types.StringType).(types.String)
		if !ok {
			return fmt.Errorf("a map key of type %s has no JSON form", k.Type().TypeName())
		}
		fields[string(ks)] = m.Get(k)
	}
	w.b = append(w.b, '{')
	for i, k := range sortedKeys(fields) {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.text(k); err != nil {
			return err
		}
		w.b = append(w.b, ':')
		if err := w.value(fields[k], depth+1); err != nil {
			return err
		}
	}
	w.b = append(w.b, '}')
	return nil
}
