package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// exprCostLimit bounds one evaluation. A unit is a step, sixteen bytes of text that are read or made, a value that is decoded, or
// a few list elements that are compared or copied: some hundred nanoseconds, and at most about a hundred bytes.
const exprCostLimit = 1_000_000

// compileCostLimit bounds what it takes to prepare the constants of one expression: patterns, times.
const compileCostLimit = 200_000

// commandCostLimit bounds all evaluations of one command together: a node may have a thousand edges with a condition each.
const commandCostLimit = 10 * exprCostLimit

const (
	// maxValueParts bounds every value that an expression makes: its elements and entries, and a part for each sixteen bytes of
	// text. Values share what they hold, so a small one in memory may be endless when it is compared, printed or written.
	maxValueParts = 1 << 20
	textUnit      = 16
	// stepsPerUnit is how many comparisons of elements, or parts that are counted, make a unit.
	stepsPerUnit = 8
	// stepsPerCheck is how many steps there are between two looks at the context. None takes longer than some milliseconds.
	stepsPerCheck = 32
)

// ErrInterrupted marks an evaluation or a compilation that was stopped because its context had ended.
var ErrInterrupted = errors.New("interrupted")

func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}

// meter charges one evaluation for what it does, before it is done, and ends it by a panic that the library or protect catches. The
// library charges the same account for the nodes of an expression that call nothing.
type meter struct {
	ctx  context.Context //nolint:containedctx // the library calls back without one; a meter lives as long as one evaluation
	done <-chan struct{}
	// tracker is the account.
	tracker cost.Tracker
	limit   uint64
	// blame says in an error what has taken too much.
	blame string
	// next is what the tracker is told that a call costs.
	next   uint64
	checks uint32
	steps  uint32
	// ended says why the evaluation was stopped.
	ended error
	// args holds the operands of the calls under way.
	args []ref.Val
	// fixed are the constant patterns of the expression, patterns those that this evaluation made.
	fixed, patterns map[string]*pattern
}

// meterStop is what the meter panics with; why is in the meter, since the library turns every panic into an error of its own.
type meterStop struct{}

var account = func() *cost.Tracker {
	t, err := cost.NewTracker(nil, cost.TrackerLimitExceededHandler(func() { panic(meterStop{}) }))
	if err != nil {
		panic(err) // no option that could fail
	}
	return t
}()

func newMeter(ctx context.Context, limit uint64) *meter {
	m := &meter{ctx: ctx, done: ctx.Done(), tracker: *account, limit: limit, next: 1}
	m.tracker.Limit, m.tracker.Estimator = &m.limit, m
	return m
}

// meterOf is the meter of the evaluation that frame belongs to.
func meterOf(frame *interpreter.ExecutionFrame) *meter { return frame.CostTracker().Estimator.(*meter) }

// CallCost tells the tracker what a call costs: a unit, or what charge says.
func (m *meter) CallCost(string, string, []ref.Val, ref.Val) *uint64 {
	m.check()
	return &m.next
}

// check looks now and then whether the evaluation is to stop.
func (m *meter) check() {
	if m.checks++; m.checks%stepsPerCheck != 0 || m.done == nil {
		return
	}
	select {
	case <-m.done:
		m.stop(interrupted(m.ctx))
	default:
	}
}

// anyCall is a call of which the tracker need know nothing.
type anyCall struct{}

func (anyCall) Function() string   { return "" }
func (anyCall) OverloadID() string { return "" }

// charge takes n units, and ends the evaluation if it has not that many left.
func (m *meter) charge(n uint64) {
	m.next = n
	m.tracker.EvalZeroArity(nil, 0, anyCall{}, nil)
	m.next = 1
}

// step charges for one of many small steps.
func (m *meter) step() {
	if m.steps++; m.steps%stepsPerUnit == 0 {
		m.charge(1)
	}
}

// text charges for going through n bytes of text.
func (m *meter) text(n int) { m.charge(1 + uint64(n)/textUnit) }

// spent is what was charged.
func (m *meter) spent() uint64 { return m.tracker.ActualCost() }

// stop ends the evaluation.
func (m *meter) stop(err error) {
	m.ended = err
	panic(meterStop{})
}

// over says why the meter has ended the evaluation; nil if it has not.
func (m *meter) over() error {
	switch {
	case m.ended != nil:
		return m.ended
	case m.spent() <= m.limit:
		return nil
	case m.blame != "":
		return errors.New(m.blame)
	}
	return fmt.Errorf("the expression is beyond the cost limit of %d units", m.limit)
}

// protect calls f and turns its end by the meter into an error.
func (m *meter) protect(f func()) (err error) {
	defer func() {
		p := recover()
		if err = m.over(); err == nil && p != nil {
			err = fmt.Errorf("the evaluation failed: %v", p)
		}
	}()
	f()
	return nil
}

// room charges for a value that is made of others, which is n parts large, and ends the evaluation if that is too large.
func (m *meter) room(n int) {
	if n > maxValueParts {
		m.stop(fmt.Errorf("a value would have more than %d parts (elements, entries, and each %d bytes of text)", maxValueParts, textUnit))
	}
	m.charge(uint64(n) / stepsPerUnit)
}

// size is how many parts v has, counting what it holds as often as it holds it. It stops beyond the limit.
func (m *meter) size(v any) int {
	left := weigh(v, maxValueParts)
	return maxValueParts - left
}

// weigh takes the parts of v from left and stops when that is below zero.
func weigh(v any, left int) int {
	if left--; left < 0 {
		return left
	}
	switch x := v.(type) {
	case string:
		return left - len(x)/textUnit
	case types.String:
		return left - len(x)/textUnit
	case types.Bytes:
		return left - len(x)/textUnit
	case []any:
		return weighAll(x, left)
	case []ref.Val:
		return weighAll(x, left)
	case []string:
		return weighAll(x, left)
	case map[string]any:
		for k, e := range x {
			if left = weigh(e, left-len(k)/textUnit); left < 0 {
				break
			}
		}
		return left
	case map[ref.Val]ref.Val:
		for k, e := range x {
			if left = weigh(e, weigh(k, left)); left < 0 {
				break
			}
		}
		return left
	case traits.Lister, traits.Mapper:
		inner := x.(ref.Val).Value()
		switch inner.(type) {
		case []any, []ref.Val, []string, map[string]any, map[ref.Val]ref.Val:
			return weigh(inner, left)
		}
		return weighOther(x.(ref.Val), left)
	}
	return left
}

func weighAll[T any](list []T, left int) int {
	for i := range list {
		if left = weigh(list[i], left); left < 0 {
			break
		}
	}
	return left
}

// weighOther weighs a list or map of an inner form that is not known here.
func weighOther(v ref.Val, left int) int {
	if m, ok := v.(traits.Mapper); ok {
		for it := m.Iterator(); left >= 0 && it.HasNext() == types.True; {
			k := it.Next()
			e, _ := m.Find(k)
			left = weigh(e, weigh(k, left))
		}
		return left
	}
	l := v.(traits.Lister)
	for i, n := 0, length(l.Size()); i < n && left >= 0; i++ {
		left = weigh(l.Get(types.Int(i)), left)
	}
	return left
}

// decode reads raw JSON for an expression. It charges for every value in it first.
func (m *meter) decode(raw json.RawMessage) any {
	m.charge(1 + jsonParts(raw))
	v, err := decodeJSON(raw)
	if err != nil {
		return types.NewErr("not JSON: %v", err)
	}
	if v == nil {
		return types.NullValue
	}
	return v
}

func (m *meter) decodeList(vals []json.RawMessage) any {
	out := make([]any, len(vals))
	for i, v := range vals {
		out[i] = m.decode(v)
	}
	return out
}

func (m *meter) decodeMap(vals map[string]json.RawMessage) any {
	out := make(map[string]any, len(vals))
	for k, v := range vals {
		out[k] = m.decode(v)
	}
	return out
}

// jsonParts is how many values stand in raw, and a part for each sixteen bytes.
func jsonParts(raw json.RawMessage) uint64 {
	n, quoted := len(raw)/textUnit, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return uint64(n)
}

// settle puts together what a result still leaves to its reader.
func (m *meter) settle(v ref.Val) ref.Val {
	if n, ok := v.(*nodesVal); ok {
		return n.asMap()
	}
	return v
}

func length(v ref.Val) int {
	n, ok := v.(types.Int)
	if !ok || n < 0 {
		return 0
	}
	return int(n)
}

// times multiplies what may be too much to be counted.
func times(a, b int) uint64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if uint64(a) > math.MaxUint32 || uint64(b) > math.MaxUint32 {
		return math.MaxUint64 / 2
	}
	return uint64(a) * uint64(b)
}
