package workgraph

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// scope resolves the variables of one expression and decodes only those that are used.
type scope struct {
	s         *State
	ns        *nodeState
	values    []json.RawMessage
	hasResult bool
	args      []json.RawMessage
	named     map[string]json.RawMessage
	item      int32
	// at is the node from whose place names in nodes.ID are resolved. Empty stands for the visit's own node.
	at string
	// over says that the visit itself has completed with values. On the edges that leave it, it is an
	// ancestor like those before it.
	over bool
	// result is the decoded result, once it was asked for.
	result any
}

// outcomeScope is the scope of expressions over a visit's outcome.
func (s *State) outcomeScope(ns *nodeState, item int32, values []json.RawMessage) *scope {
	return &scope{s: s, ns: ns, values: values, hasResult: true, args: ns.args, named: ns.named, item: item}
}

// value is the value of a variable. It is false if the variable has none.
func (c *scope) value(m *meter, name string) (any, bool) {
	switch name {
	case "input":
		return map[string]any{"args": m.decodeList(c.s.input.Args), "named": m.decodeMap(c.s.input.Named)}, true
	case "context":
		if len(c.s.context) == 0 {
			return types.NullValue, true
		}
		return m.decode(c.s.context), true
	case "state":
		return m.decodeMap(c.s.StateValues()), true
	case "nodes":
		at := c.at
		if at == "" {
			at = c.s.node(c.ns).ID
		}
		return &nodesVal{of: stateNodes{c, at}, m: m}, true
	case "args":
		return m.decodeList(c.args), true
	case "named":
		return m.decodeMap(c.named), true
	case "node":
		return c.s.node(c.ns).ID, true
	case "visit":
		return int64(c.ns.f.serial), true
	case "attempt":
		return int64(max(1, unit{c.ns, c.item}.try().no)), true
	case "item":
		if c.item == 0 {
			return nil, false
		}
		return m.decode(c.ns.m.list[c.item-1]), true
	case "result":
		if !c.hasResult {
			return nil, false
		}
		c.result = m.decode(single(c.values))
		return c.result, true
	case "values":
		if !c.hasResult {
			return nil, false
		}
		return m.decodeList(c.values), true
	}
	return nil, false
}

// isResult reports whether a value of the expression is the result itself, which is a map.
func (c *scope) isResult(v ref.Val) bool {
	result, ok := c.result.(map[string]any)
	same, is := v.Value().(map[string]any)
	return ok && is && reflect.ValueOf(result).UnsafePointer() == reflect.ValueOf(same).UnsafePointer()
}

// nodeSource finds the node that nodes.ID stands for.
type nodeSource interface {
	Ancestor(id string) (NodeResult, bool)
	Ancestors() []string
}

// stateNodes are the nodes that a visit sees in its run.
type stateNodes struct {
	c  *scope
	at string
}

func (n stateNodes) Ancestor(id string) (NodeResult, bool) {
	s := n.c.s
	x, ok := s.p.resolve(n.at, id)
	switch {
	case !ok:
		return NodeResult{}, false
	case n.c.over && x == n.c.ns.n:
		return NodeResult{Ref: s.ref(n.c.ns, 0), Values: n.c.values}, true
	}
	if a := s.ancestor(n.c.ns, x, nil); a != nil {
		return s.resultOf(a), true
	}
	return NodeResult{}, false
}

func (n stateNodes) Ancestors() []string {
	s := n.c.s
	list := s.ancestors(n.c.ns)
	if n.c.over && !slices.Contains(list, n.c.ns.n) {
		list = append(list, n.c.ns.n)
		slices.Sort(list)
	}
	return s.ids(list)
}

// EvalIn is Eval over the variables that a call sees of its run. Only those that the expression uses are
// read.
func (e *Expr) EvalIn(ctx context.Context, sc Scope) (json.RawMessage, error) {
	v, err := e.eval(newMeter(ctx, exprCostLimit), scopeVars{sc})
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}

// scopeVars resolves the variables of an expression that a call evaluates.
type scopeVars struct{ of Scope }

func (v scopeVars) value(m *meter, name string) (any, bool) {
	if name == "nodes" {
		return &nodesVal{of: v.of, m: m}, true
	}
	raw, ok := v.of.Var(name)
	if !ok {
		return nil, false
	}
	return m.decode(raw), true
}

// nodesVal is the CEL map of the ancestors that have completed: nodes.ID.result, .values, .visit. It reads
// entries on demand and keeps them for one evaluation.
type nodesVal struct {
	of   nodeSource
	m    *meter
	seen map[string]ref.Val
	ids  []string
}

var _ traits.Mapper = (*nodesVal)(nil)

func (v *nodesVal) Find(key ref.Val) (ref.Val, bool) {
	id, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	if x := v.seen[string(id)]; x != nil {
		return x, true
	}
	r, ok := v.of.Ancestor(string(id))
	if !ok {
		return nil, false
	}
	x := types.DefaultTypeAdapter.NativeToValue(map[string]any{
		"result": v.m.decode(r.Result()), "values": v.m.decodeList(r.Values), "visit": int64(r.Visit),
	})
	if v.seen == nil {
		v.seen = map[string]ref.Val{}
	}
	v.seen[string(id)] = x
	return x, true
}

func (v *nodesVal) Get(key ref.Val) ref.Val {
	if x, ok := v.Find(key); ok || x != nil {
		return x
	}
	return types.NewErr("no such key: %v", key)
}

func (v *nodesVal) Contains(key ref.Val) ref.Val {
	_, ok := v.Find(key)
	return types.Bool(ok)
}

func (v *nodesVal) completed() []string {
	if v.ids != nil {
		return v.ids
	}
	v.ids = append([]string{}, v.of.Ancestors()...)
	v.m.charge(uint64(len(v.ids)) / stepsPerUnit)
	return v.ids
}

func (v *nodesVal) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, v.completed()).Iterator()
}
func (v *nodesVal) Size() ref.Val { return types.Int(len(v.completed())) }

// asMap is the complete map, for the rare use as a whole.
func (v *nodesVal) asMap() ref.Val {
	m := map[string]any{}
	for _, id := range v.completed() {
		m[id] = v.Get(types.String(id))
	}
	return types.DefaultTypeAdapter.NativeToValue(m)
}

func (v *nodesVal) ConvertToNative(t reflect.Type) (any, error) { return v.asMap().ConvertToNative(t) }
func (v *nodesVal) ConvertToType(t ref.Type) ref.Val            { return v.asMap().ConvertToType(t) }
func (v *nodesVal) Equal(o ref.Val) ref.Val                     { return v.asMap().Equal(o) }
func (v *nodesVal) Type() ref.Type                              { return types.MapType }
func (v *nodesVal) Value() any                                  { return v.asMap().Value() }
