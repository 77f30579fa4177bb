package workgraph

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
	prg, err := env.Program(checked, cel.CostLimit(exprCostLimit), cel.EvalOptions(cel.OptOptimize))
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
	v, err := e.eval(rawVars(vars))
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}

// Missing reports whether an evaluation failed because it used a key, an index or a variable that is not there.
func Missing(err error) bool { return errors.Is(err, errMissing) }

func (e *Expr) eval(a cel.Activation) (ref.Val, error) {
	v, _, err := e.prg.Eval(a)
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

// rawVars resolves variables from raw JSON, decoding only what is used.
type rawVars map[string]json.RawMessage

func (r rawVars) ResolveName(name string) (any, bool) {
	raw, ok := r[name]
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
func celJSON(v ref.Val) (json.RawMessage, error) { return appendCEL(nil, v, 0) }

func appendCEL(b []byte, v ref.Val, depth int) ([]byte, error) {
	if depth > 1000 {
		return nil, errors.New("value is nested too deeply")
	}
	switch x := v.(type) {
	case types.Null:
		return append(b, "null"...), nil
	case types.Bool:
		if x {
			return append(b, "true"...), nil
		}
		return append(b, "false"...), nil
	case types.Int:
		return appendInt(b, int64(x)), nil
	case types.Uint:
		return appendUint(b, uint64(x)), nil
	case types.Double:
		return appendFloat(b, float64(x))
	case types.String:
		return appendString(b, string(x))
	case types.Bytes:
		return appendString(b, base64.StdEncoding.EncodeToString(x))
	case traits.Lister:
		b = append(b, '[')
		n := int(x.Size().(types.Int))
		var err error
		for i := range n {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCEL(b, x.Get(types.Int(i)), depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case traits.Mapper:
		return appendCELMap(b, x, depth)
	case *types.Err:
		return nil, x
	case types.Timestamp, types.Duration:
		s, ok := v.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
		}
		return appendString(b, string(s))
	default:
		return nil, fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
	}
}

func appendCELMap(b []byte, m traits.Mapper, depth int) ([]byte, error) {
	fields := map[string]ref.Val{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		ks, ok := k.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, fmt.Errorf("a map key of type %s has no JSON form", k.Type().TypeName())
		}
		fields[string(ks)] = m.Get(k)
	}
	b = append(b, '{')
	for i, k := range sortedKeys(fields) {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendString(b, k); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendCEL(b, fields[k], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
