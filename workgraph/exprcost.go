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

// exprCostLimit bounds one evaluation. A unit is a step, sixteen bytes of text read or made, a decoded value,
// or a few list elements compared or copied. It takes some hundred nanoseconds and at most about a hundred
// bytes.
const exprCostLimit = 1_000_000

// eventCostLimit bounds one evaluation over an event. Each event of a namespace is held against a hundred
// conditions.
const eventCostLimit = exprCostLimit / 10

// compileCostLimit bounds the preparation of the constants of one expression, such as patterns and times.
const compileCostLimit = 200_000

// commandCostLimit bounds all evaluations of one command together. A node may have a thousand edges with
// conditions.
const commandCostLimit = 10 * exprCostLimit

const (
	// maxValueParts bounds every value that an expression makes, in parts: elements, entries, and each
	// sixteen bytes of text. Values share their contents, so a value that is small in memory may be endless
	// when it is compared, printed or written.
	maxValueParts = 1 << 20
	textUnit      = 16
	// stepsPerUnit is how many comparisons of elements, or counted parts, make a unit.
	stepsPerUnit = 8
	// stepsPerCheck is how many steps there are between two checks of the context. They take some
	// milliseconds at most.
	stepsPerCheck = 32
)

// ErrInterrupted marks an evaluation or a compilation that was stopped because its context had ended.
var ErrInterrupted = errors.New("interrupted")

func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}

// meter charges one evaluation for its work before the work is done. It ends the evaluation by a panic that
// the library or protect recovers. The library charges the same account for nodes of an expression that call
// nothing.
type meter struct {
	ctx  context.Context //nolint:containedctx // the library calls back without one; a meter lives as long as one evaluation
	done <-chan struct{}
	// tracker is the account.
	tracker cost.Tracker
	limit   uint64
	// blame is the error text for a cost beyond the limit, if it is not the usual one.
	blame string
	// next is the cost of the next call, as the tracker is told.
	next   uint64
	checks uint32
	steps  uint32
	// ended is the error with which the evaluation was stopped.
	ended error
	// args holds the operands of the current calls.
	args []ref.Val
	// fixed are the constant patterns of the expression; patterns are those that this evaluation compiled.
	fixed, patterns map[string]*pattern
}

// meterStop is the value of the meter's panic. The reason is in the meter, because the library turns every
// panic into an error of its own.
type meterStop struct{}

var account = func() *cost.Tracker {
	t, err := cost.NewTracker(nil, cost.TrackerLimitExceededHandler(func() { panic(meterStop{}) }))
	if err != nil {
		panic(err) // cannot happen: the option never fails
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

// CallCost tells the tracker the cost of a call: one unit, or the amount that charge set.
func (m *meter) CallCost(string, string, []ref.Val, ref.Val) *uint64 {
	m.check()
	return &m.next
}

// check stops the evaluation if its context has ended. It looks only once in stepsPerCheck calls.
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

// anyCall is a call about which the tracker needs no information.
type anyCall struct{}

func (anyCall) Function() string   { return "" }
func (anyCall) OverloadID() string { return "" }

// charge takes n units. It ends the evaluation if fewer are left.
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

// text charges for reading n bytes of text.
func (m *meter) text(n int) { m.charge(1 + uint64(n)/textUnit) }

// spent is the sum of all charges.
func (m *meter) spent() uint64 { return m.tracker.ActualCost() }

// stop ends the evaluation.
func (m *meter) stop(err error) {
	m.ended = err
	panic(meterStop{})
}

// over is the error with which the meter has ended the evaluation, or nil.
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

// protect calls f and turns a stop by the meter into an error.
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

// room charges for a value of n parts that is made of others. It ends the evaluation if the value is too
// large.
func (m *meter) room(n int) {
	if n > maxValueParts {
		m.stop(fmt.Errorf("a value would have more than %d parts (elements, entries, and each %d bytes of text)", maxValueParts, textUnit))
	}
	m.charge(uint64(n) / stepsPerUnit)
}

// size is the number of parts of v. Shared contents count as often as they occur. It stops counting at the
// limit.
func (m *meter) size(v any) int {
	left := weigh(v, maxValueParts)
	return maxValueParts - left
}

// weigh subtracts the parts of v from left and stops below zero.
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

// weighOther weighs a list or map whose inner form is not one of the known ones.
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

// jsonParts is the number of values in raw, plus one for each sixteen bytes.
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

// complete puts together a result that the library leaves to its reader.
func (m *meter) complete(v ref.Val) ref.Val {
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

// times multiplies and caps the product if it might overflow.
func times(a, b int) uint64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if uint64(a) > math.MaxUint32 || uint64(b) > math.MaxUint32 {
		return math.MaxUint64 / 2
	}
	return uint64(a) * uint64(b)
}
