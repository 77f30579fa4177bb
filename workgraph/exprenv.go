package workgraph

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

// exprNames are the variables that an expression may use. Which of them have a value depends on the place of
// the expression.
var exprNames = [...]string{
	"input", "result", "values", "args", "named", "state", "nodes", "node", "visit", "attempt", "item", "context",
}

// Functions of our own, which an expression's text cannot name. See rewriter.
const (
	stepFunction  = "@step"
	indexFunction = "@index"
)

// environment is the language of expressions.
type environment struct {
	*cel.Env
	// names are its variables.
	names []string
	// operations are the implementations of functions, by name and by overload id.
	operations map[string]*functions.Overload
}

var exprEnv = sync.OnceValues(func() (*environment, error) { return newEnv(exprNames[:]) })

// eventNames are the variables of an expression over an event.
var eventNames = [...]string{"event"}

var eventEnv = sync.OnceValues(func() (*environment, error) { return newEnv(eventNames[:]) })

func newEnv(names []string) (*environment, error) {
	anything := cel.TypeParamType("T")
	opts := []cel.EnvOption{
		ext.Strings(), ext.Math(), ext.Lists(), ext.Sets(), cel.CrossTypeNumericComparisons(true),
		cel.Function(stepFunction, cel.Overload("step", nil, cel.BoolType, cel.FunctionBinding(func(...ref.Val) ref.Val { return types.True }))),
		cel.Function(indexFunction, cel.Overload("index", []*cel.Type{anything}, anything, cel.UnaryBinding(asIndex))),
		cel.ParserRecursionLimit(maxExprDepth), cel.ParserErrorRecoveryLimit(1),
	}
	for _, n := range names {
		opts = append(opts, cel.Variable(n, cel.DynType))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, err
	}
	e := &environment{Env: env, names: names, operations: map[string]*functions.Overload{}}
	for name, f := range env.Functions() {
		if _, ok := exprRules[name]; !ok {
			return nil, fmt.Errorf("nobody has said what the function %q costs", name)
		}
		bound, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		for _, o := range bound {
			e.operations[o.Operator] = o
		}
	}
	return e, nil
}

// operation is the implementation that the library would call. Nil leaves the call to the first operand.
func operation(name, overload string) *functions.Overload {
	env, err := exprEnv()
	if err != nil {
		return nil
	}
	if o := env.operations[overload]; o != nil && overload != "" {
		return o
	}
	return env.operations[name]
}

// asIndex accepts values that can be a key or an index. An error of the library would print any other value,
// whatever its size.
func asIndex(v ref.Val) ref.Val {
	switch v.(type) {
	case types.String, types.Int, types.Uint, types.Double, types.Bool:
		return v
	}
	return types.NewErr("a %s is neither an index nor a key", v.Type().TypeName())
}

// rule says what a call costs before it is made, and may make the call in place of the library. The zero rule
// is for calls whose short time does not depend on the arguments.
type rule struct {
	cost func(m *meter, args []ref.Val)
	// run returns nil to leave the call to the library.
	run func(m *meter, args []ref.Val) ref.Val
}

// exprRules has a rule for every function of the environment.
var exprRules = map[string]rule{
	operators.LogicalNot: {}, operators.LogicalAnd: {}, operators.LogicalOr: {}, operators.Conditional: {}, operators.Index: {},
	operators.NotStrictlyFalse: {}, "__not_strictly_false__": {}, operators.Negate: {}, operators.Subtract: {},
	operators.Multiply: {}, operators.Divide: {}, operators.Modulo: {}, overloads.TypeConvertDyn: {}, overloads.TypeConvertType: {},
	"math.abs": {}, "math.bitAnd": {}, "math.bitNot": {}, "math.bitOr": {}, "math.bitShiftLeft": {}, "math.bitShiftRight": {},
	"math.bitXor": {}, "math.ceil": {}, "math.floor": {}, "math.isFinite": {}, "math.isInf": {}, "math.isNaN": {}, "math.round": {},
	"math.sign": {}, "math.sqrt": {}, "math.trunc": {},
	stepFunction: {}, indexFunction: {cost: readTextCost},

	operators.Add:           {run: runAdd},
	operators.Equals:        {run: runEquals(true)},
	operators.NotEquals:     {run: runEquals(false)},
	operators.In:            {cost: readTextCost, run: runIn},
	operators.OldIn:         {cost: readTextCost, run: runIn},
	overloads.DeprecatedIn:  {cost: readTextCost, run: runIn},
	operators.Less:          {cost: readTextCost},
	operators.LessEquals:    {cost: readTextCost},
	operators.Greater:       {cost: readTextCost},
	operators.GreaterEquals: {cost: readTextCost},

	overloads.Size:       {cost: readTextCost},
	overloads.Contains:   {cost: readTextCost},
	overloads.StartsWith: {cost: readTextCost},
	overloads.EndsWith:   {cost: readTextCost},
	overloads.Matches:    {run: runMatches},
	"trim":               {cost: readTextCost},
	"charAt":             {cost: copyTextCost},
	"substring":          {cost: copyTextCost},
	"lowerAscii":         {cost: copyTextCost},
	"upperAscii":         {cost: copyTextCost},
	"strings.quote":      {cost: copyTextCost},
	"indexOf":            {cost: searchTextCost},
	"lastIndexOf":        {cost: searchTextCost},
	"replace":            {cost: replaceCost},
	"split":              {cost: splitCost},
	"join":               {cost: joinCost},
	"format":             {cost: formatCost},

	overloads.TypeConvertBool: {cost: convertCost}, overloads.TypeConvertBytes: {cost: convertCost}, overloads.TypeConvertDouble: {cost: convertCost},
	overloads.TypeConvertDuration: {cost: convertCost}, overloads.TypeConvertInt: {cost: convertCost}, overloads.TypeConvertString: {cost: convertCost},
	overloads.TypeConvertTimestamp: {cost: convertCost}, overloads.TypeConvertUint: {cost: convertCost},

	overloads.TimeGetDate: {cost: zoneCost}, overloads.TimeGetDayOfMonth: {cost: zoneCost}, overloads.TimeGetDayOfWeek: {cost: zoneCost},
	overloads.TimeGetDayOfYear: {cost: zoneCost}, overloads.TimeGetFullYear: {cost: zoneCost}, overloads.TimeGetHours: {cost: zoneCost},
	overloads.TimeGetMilliseconds: {cost: zoneCost}, overloads.TimeGetMinutes: {cost: zoneCost}, overloads.TimeGetMonth: {cost: zoneCost},
	overloads.TimeGetSeconds: {cost: zoneCost},

	"math.@max":             {cost: copyListCost},
	"math.@min":             {cost: copyListCost},
	"slice":                 {cost: copyListCost},
	"reverse":               {cost: copyListCost},
	"sort":                  {cost: sortCost},
	"@sortByAssociatedKeys": {cost: sortCost},
	"lists.range":           {cost: rangeCost},
	"flatten":               {cost: flattenCost},
	"distinct":              {run: onList(func(m *meter, l traits.Lister) ref.Val { return m.distinct(l) })},
	"sets.contains":         {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAll(a, b) })},
	"sets.intersects":       {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAny(a, b) })},
	"sets.equivalent":       {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAll(a, b) && m.hasAll(b, a) })},
	"hasAll":                {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAll(a, b) })},
	"hasOnly":               {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAll(b, a) })},
	"hasAny":                {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAny(a, b) })},
	"hasExactly":            {run: onLists(func(m *meter, a, b traits.Lister) bool { return m.hasAll(a, b) && m.hasAll(b, a) })},
}

// bytesOf is the length of a text. It is 0 for other values.
func bytesOf(v ref.Val) int {
	switch x := v.(type) {
	case types.String:
		return len(x)
	case types.Bytes:
		return len(x)
	}
	return 0
}

// readTextCost charges for reading every text among args.
func readTextCost(m *meter, args []ref.Val) {
	n := 0
	for _, a := range args {
		n += bytesOf(a)
	}
	m.text(n)
}

// copyTextCost charges for texts that are split into characters, which take four bytes each.
func copyTextCost(m *meter, args []ref.Val) {
	n := 0
	for _, a := range args {
		n += bytesOf(a)
	}
	m.text(2 * n)
}

// searchTextCost charges for a search that compares the whole sought text at every place.
func searchTextCost(m *meter, args []ref.Val) {
	copyTextCost(m, args)
	if len(args) > 1 {
		n, sought := bytesOf(args[0]), bytesOf(args[1])
		m.charge(times(n-sought, sought) / textUnit)
	}
}

// convertCost charges for texts that are converted. A text that cannot be converted is printed in the error.
func convertCost(m *meter, args []ref.Val) {
	n := 0
	for _, a := range args {
		n += bytesOf(a)
	}
	m.text(4 * n)
}

// zoneLookup is the cost of looking up a time zone by its name.
const zoneLookup = 200

func zoneCost(m *meter, args []ref.Val) {
	if len(args) > 1 {
		convertCost(m, args)
		m.charge(zoneLookup)
		return
	}
	m.charge(1)
}

func replaceCost(m *meter, args []ref.Val) {
	if len(args) < 3 {
		return
	}
	text, okText := args[0].(types.String)
	old, okOld := args[1].(types.String)
	by, okBy := args[2].(types.String)
	if !okText || !okOld || !okBy {
		return
	}
	m.text(len(text) + len(old))
	n := strings.Count(string(text), string(old))
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			n = int(min(int64(n), int64(most)))
		}
	}
	m.charge(times(n, len(by)) / textUnit)
	m.room((len(text) + n*len(by)) / textUnit)
}

func splitCost(m *meter, args []ref.Val) {
	if len(args) < 2 {
		return
	}
	text, okText := args[0].(types.String)
	by, okBy := args[1].(types.String)
	if !okText || !okBy {
		return
	}
	m.text(len(text) + len(by))
	n := utf8.RuneCountInString(string(text))
	if by != "" {
		n = strings.Count(string(text), string(by)) + 1
	}
	if len(args) > 2 {
		if most, ok := args[2].(types.Int); ok && most >= 0 {
			n = int(min(int64(n), int64(most)))
		}
	}
	m.charge(uint64(n))
	m.room(n + len(text)/textUnit)
}

func joinCost(m *meter, args []ref.Val) {
	l, ok := args[0].(traits.Lister)
	if !ok {
		return
	}
	n := length(l.Size())
	copyListCost(m, args[:1])
	total := uint64(0)
	if len(args) > 1 {
		total = times(n-1, bytesOf(args[1]))
	}
	for i := range n {
		m.step()
		v := l.Get(types.Int(i))
		if _, ok := v.(types.String); !ok {
			total += uint64(m.size(v)) * textUnit // the error prints it
		}
		total += uint64(bytesOf(v))
	}
	m.charge(total / textUnit)
	m.room(int(min(total/textUnit, math.MaxInt32)))
}

// clauseCost is what a clause of a format may write besides the value itself. A number has up to 309 digits
// before the point and 100 after it.
const clauseCost = 32

func formatCost(m *meter, args []ref.Val) {
	copyTextCost(m, args[:1])
	if len(args) < 2 {
		return
	}
	n := m.size(args[1])
	if l, ok := args[1].(traits.Lister); ok {
		m.charge(times(length(l.Size()), clauseCost))
	}
	m.charge(uint64(n))
	m.room(n)
}

// copyListCost charges for copying the elements of lists and for reversing texts.
func copyListCost(m *meter, args []ref.Val) {
	n := 0
	for _, a := range args {
		if l, ok := a.(traits.Lister); ok {
			n += length(l.Size())
		}
		n += bytesOf(a) / stepsPerUnit
	}
	m.charge(1 + uint64(n)/2)
}

// sortCost charges for n log n comparisons, each of which may read the longest text.
func sortCost(m *meter, args []ref.Val) {
	longest, n := 0, 0
	for _, a := range args {
		l, ok := a.(traits.Lister)
		if !ok {
			continue
		}
		n = max(n, length(l.Size()))
		m.charge(uint64(length(l.Size())))
		for i := range length(l.Size()) {
			longest = max(longest, bytesOf(l.Get(types.Int(i))))
		}
	}
	m.charge(times(n, bits.Len(uint(n))) / 4)
	m.charge(times(n*bits.Len(uint(n)), longest) / (textUnit * stepsPerUnit))
}

func rangeCost(m *meter, args []ref.Val) {
	n, ok := args[0].(types.Int)
	if ok && n > 0 {
		m.charge(uint64(n))
		m.room(int(min(n, maxValueParts+1)))
	}
}

func flattenCost(m *meter, args []ref.Val) { m.charge(uint64(m.size(args[0])) / 2) }

func runAdd(m *meter, args []ref.Val) ref.Val {
	switch a := args[0].(type) {
	case types.String, types.Bytes:
		n := bytesOf(args[0]) + bytesOf(args[1])
		m.text(n)
		m.room(n / textUnit)
	case traits.MutableLister: // the result of a macro so far
		m.charge(1)
	case traits.Lister:
		if b, ok := args[1].(traits.Lister); ok {
			m.charge(1)
			return m.concat(a, b)
		}
	default:
		m.charge(1)
	}
	return nil
}

func runEquals(want bool) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		m.charge(1)
		return types.Bool(m.equal(args[0], args[1]) == want)
	}
}

func runIn(m *meter, args []ref.Val) ref.Val {
	if l, ok := args[1].(traits.Lister); ok {
		return types.Bool(m.has(l, args[0]))
	}
	return nil
}

func onList(f func(*meter, traits.Lister) ref.Val) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		m.charge(1)
		if l, ok := args[0].(traits.Lister); ok {
			return f(m, l)
		}
		return nil
	}
}

func onLists(f func(m *meter, a, b traits.Lister) bool) func(*meter, []ref.Val) ref.Val {
	return func(m *meter, args []ref.Val) ref.Val {
		m.charge(1)
		a, ok := args[0].(traits.Lister)
		b, both := args[1].(traits.Lister)
		if !ok || !both {
			return nil
		}
		return types.Bool(f(m, a, b))
	}
}
