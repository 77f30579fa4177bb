package workgraph

import (
	"errors"
	"slices"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// planner decorates the nodes of one expression while the library plans it. It folds constants within its own
// meter, and makes every function call be charged before it runs.
type planner struct {
	m *meter
	// patterns are the constant regular expressions.
	patterns map[string]*pattern
}

func (p *planner) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch n := i.(type) {
	case interpreter.InterpretableConst, interpreter.InterpretableAttribute:
		return i, nil
	case interpreter.InterpretableConstructor:
		if constant(n.InitVals()) {
			return p.fold(n)
		}
		return &sized{n}, nil
	case interpreter.InterpretableCall:
		return p.call(n)
	}
	return &sized{i}, nil
}

func (p *planner) call(n interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	r := exprRules[n.Function()]
	if r.cost == nil && r.run == nil {
		return n, nil // the library charges a unit for it
	}
	c := &guarded{InterpretableV2: n, args: n.Args(), rule: r, name: n.Function(), overload: n.OverloadID(), op: operation(n.Function(), n.OverloadID())}
	if n.Function() == overloads.Matches && len(c.args) == 2 {
		if text, ok := constantText(c.args[1]); ok {
			re, err := p.m.compilePattern(text)
			if err != nil {
				return nil, errors.New(PatternFault(text, err))
			}
			p.patterns[text] = re
		}
	}
	if overloads.IsTypeConversionFunction(n.Function()) && constant(c.args) {
		return p.fold(c)
	}
	return c, nil
}

// fold evaluates a node whose operands are constant.
func (p *planner) fold(n interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	frame, err := interpreter.NewExecutionFrame(interpreter.EmptyActivation())
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	frame.SetCostTracker(&p.m.tracker)
	v := n.Exec(frame)
	if e, ok := v.(*types.Err); ok {
		return nil, e
	}
	p.m.room(p.m.size(v))
	return interpreter.NewConstValue(n.ID(), v), nil
}

func constant(args []interpreter.InterpretableV2) bool {
	return !slices.ContainsFunc(args, func(a interpreter.InterpretableV2) bool {
		_, ok := a.(interpreter.InterpretableConst)
		return !ok
	})
}

func constantText(i interpreter.InterpretableV2) (string, bool) {
	c, ok := i.(interpreter.InterpretableConst)
	if !ok {
		return "", false
	}
	s, ok := c.Value().(types.String)
	return string(s), ok
}

// sized is a node that makes a value out of others: a list, a map, or the result of a macro. The value is
// measured.
type sized struct{ interpreter.InterpretableV2 }

func (s *sized) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := s.InterpretableV2.Exec(frame)
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		m := meterOf(frame)
		m.room(m.size(v))
	}
	return v
}

func (s *sized) Eval(a interpreter.Activation) ref.Val { return interpreter.EvalActivation(a, s.Exec) }

// guarded calls a function after its rule has charged for it.
type guarded struct {
	interpreter.InterpretableV2
	name, overload string
	args           []interpreter.InterpretableV2
	rule           rule
	op             *functions.Overload
}

func (c *guarded) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, c.Exec)
}

func (c *guarded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	m := meterOf(frame)
	base := len(m.args)
	for _, a := range c.args {
		v := a.Exec(frame)
		if types.IsUnknownOrError(v) {
			m.args = m.args[:base]
			return v
		}
		m.args = append(m.args, v)
	}
	args := m.args[base:len(m.args):len(m.args)]
	v := c.invoke(m, args)
	m.args = m.args[:base]
	return types.LabelErrNode(c.ID(), v)
}

func (c *guarded) invoke(m *meter, args []ref.Val) ref.Val {
	if c.rule.cost != nil {
		c.rule.cost(m, args)
	}
	if c.rule.run != nil {
		if v := c.rule.run(m, args); v != nil {
			return v
		}
	}
	m.check()
	return unsuited(c.library(args), c.name, args)
}

// library calls the library's own implementation in the same way as the library's planner.
func (c *guarded) library(args []ref.Val) ref.Val {
	if o := c.op; o != nil && (o.OperandTrait == 0 || args[0].Type().HasTrait(o.OperandTrait)) {
		switch {
		case len(args) == 1 && o.Unary != nil:
			return o.Unary(args[0])
		case len(args) == 2 && o.Binary != nil:
			return o.Binary(args[0], args[1])
		case o.Function != nil:
			return o.Function(args...)
		}
	}
	if r, ok := args[0].(traits.Receiver); ok && args[0].Type().HasTrait(traits.ReceiverType) {
		return r.Receive(c.name, c.overload, args[1:])
	}
	return types.NewErr("no such overload: %s", c.name)
}

// equal compares like ==, but step by step: a value may contain the same part so often that its size cannot
// be counted.
func (m *meter) equal(a, b ref.Val) bool {
	m.step()
	switch x := a.(type) {
	case types.String:
		y, ok := b.(types.String)
		if !ok || len(x) != len(y) {
			return false
		}
		if len(x) > textUnit {
			m.text(len(x))
		}
		return x == y
	case types.Bytes:
		m.text(len(x))
	case traits.Lister:
		y, ok := b.(traits.Lister)
		if !ok || x.Size() != y.Size() {
			return false
		}
		for i, n := 0, length(x.Size()); i < n; i++ {
			if !m.equal(x.Get(types.Int(i)), y.Get(types.Int(i))) {
				return false
			}
		}
		return true
	case traits.Mapper:
		y, ok := b.(traits.Mapper)
		if !ok || x.Size() != y.Size() {
			return false
		}
		for it := x.Iterator(); it.HasNext() == types.True; {
			k := it.Next()
			v, _ := x.Find(k)
			w, found := y.Find(k)
			if !found || !m.equal(v, w) {
				return false
			}
		}
		return true
	}
	return types.Equal(a, b) == types.True
}

// has reports whether an element of l equals v.
func (m *meter) has(l traits.Lister, v ref.Val) bool {
	for i, n := 0, length(l.Size()); i < n; i++ {
		if m.equal(v, l.Get(types.Int(i))) {
			return true
		}
	}
	return false
}

// hasAll reports whether every element of sub is in l.
func (m *meter) hasAll(l, sub traits.Lister) bool {
	for i, n := 0, length(sub.Size()); i < n; i++ {
		if !m.has(l, sub.Get(types.Int(i))) {
			return false
		}
	}
	return true
}

func (m *meter) hasAny(l, other traits.Lister) bool {
	for i, n := 0, length(other.Size()); i < n; i++ {
		if m.has(l, other.Get(types.Int(i))) {
			return true
		}
	}
	return false
}

// distinct is l without elements that equal earlier ones.
func (m *meter) distinct(l traits.Lister) ref.Val {
	var out []ref.Val
	for i, n := 0, length(l.Size()); i < n; i++ {
		v := l.Get(types.Int(i))
		if !slices.ContainsFunc(out, func(u ref.Val) bool { return m.equal(v, u) }) {
			m.step()
			out = append(out, v)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(out)
}

// concat joins two lists by copying them. A view of views would become slower and slower to read.
func (m *meter) concat(a, b traits.Lister) ref.Val {
	m.room(m.size(a) + m.size(b))
	n, k := length(a.Size()), length(b.Size())
	out := make([]ref.Val, 0, n+k)
	for i := range n {
		out = append(out, a.Get(types.Int(i)))
	}
	for i := range k {
		out = append(out, b.Get(types.Int(i)))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}
