package workgraph

import (
	"context"
	"errors"
	"fmt"

	"cel.dev/cel-go/common/types/ref"
)

// evaluations is what all expressions of one command share.
type evaluations struct {
	ctx   context.Context //nolint:containedctx // the value is as short-lived as the command that it belongs to
	end   context.CancelFunc
	spent uint64
}

// ErrAborted is the cause with which a caller ends the context of a command's evaluations to abort the
// command. Advance then returns it, and the State must be discarded and rebuilt.
var ErrAborted = errors.New("the evaluation was aborted")

// OnEvaluation sets begin, which makes the context for all evaluations of one command. It is called at the
// first of them; the function that it returns is called when the command has been decided. An evaluation
// whose context ends for another cause than ErrAborted fails its visit, and the failure is journaled. Without
// begin only the cost limits end evaluations.
func (s *State) OnEvaluation(begin func() (context.Context, context.CancelFunc)) { s.evaluates = begin }

// evaluation is the context of the command's expressions, made on first use.
func (s *State) evaluation() context.Context {
	e := &s.evaluations
	if e.ctx == nil {
		e.ctx, e.end = context.Background(), func() {}
		if s.evaluates != nil {
			e.ctx, e.end = s.evaluates()
		}
	}
	return e.ctx
}

// meter makes the meter of the command's next expression.
func (s *State) meter() *meter {
	ctx, e := s.evaluation(), &s.evaluations
	left := commandCostLimit - min(commandCostLimit, e.spent)
	m := newMeter(ctx, min(exprCostLimit, left))
	if left < exprCostLimit {
		m.blame = fmt.Sprintf("the expressions of one step of the run are beyond the cost limit of %d units together", commandCostLimit)
	}
	return m
}

// close ends the command's evaluations and reports whether they were aborted.
func (e *evaluations) close() (aborted bool) {
	if e.end != nil {
		aborted = errors.Is(context.Cause(e.ctx), ErrAborted)
		e.end()
	}
	*e = evaluations{}
	return aborted
}

// eval evaluates x for the current command.
func (s *State) eval(x *Expr, sc *scope) (ref.Val, error) {
	m := s.meter()
	v, err := x.eval(m, sc)
	s.evaluations.spent += m.spent()
	return v, err
}

// cond evaluates a condition for the current command.
func (s *State) cond(x *Expr, sc *scope) (ok bool, note string, err error) {
	m := s.meter()
	ok, note, err = x.cond(m, sc)
	s.evaluations.spent += m.spent()
	return ok, note, err
}
