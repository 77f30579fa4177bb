package workgraph

import (
	"context"
	"errors"
	"fmt"

	"cel.dev/cel-go/common/types/ref"
)

// evaluations is what the expressions of one command share.
type evaluations struct {
	ctx   context.Context //nolint:containedctx // the value is as short-lived as the command that it belongs to
	end   context.CancelFunc
	spent uint64
}

// ErrAborted is the cause with which the context of a command's evaluations ends when the command is to come to nothing: Advance returns it, and
// the State must be discarded and rebuilt.
var ErrAborted = errors.New("the evaluation was aborted")

// OnEvaluation has begin make the context under which the expressions of one command are evaluated, all together; it is called when the first of them
// is. The returned function is called when the command has been decided. An evaluation whose context ends by anything but ErrAborted fails its visit as
// any other that fails, and that is journaled. Without it nothing but what evaluations may cost ends them.
func (s *State) OnEvaluation(begin func() (context.Context, context.CancelFunc)) { s.evaluates = begin }

// evaluation is the context of the command's expressions, made when it is first asked for.
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

// meter is for the next expression of the command.
func (s *State) meter() *meter {
	ctx, e := s.evaluation(), &s.evaluations
	left := commandCostLimit - min(commandCostLimit, e.spent)
	m := newMeter(ctx, min(exprCostLimit, left))
	if left < exprCostLimit {
		m.blame = fmt.Sprintf("the expressions of one step of the run are beyond the cost limit of %d units together", commandCostLimit)
	}
	return m
}

// close ends what the command has evaluated, and reports whether that was aborted.
func (e *evaluations) close() (aborted bool) {
	if e.end != nil {
		aborted = errors.Is(context.Cause(e.ctx), ErrAborted)
		e.end()
	}
	*e = evaluations{}
	return aborted
}

// eval evaluates x for the command that is being worked on.
func (s *State) eval(x *Expr, sc *scope) (ref.Val, error) {
	m := s.meter()
	v, err := x.eval(m, sc)
	s.evaluations.spent += m.spent()
	return v, err
}

// cond evaluates a condition for the command that is being worked on.
func (s *State) cond(x *Expr, sc *scope) (ok bool, note string, err error) {
	m := s.meter()
	ok, note, err = x.cond(m, sc)
	s.evaluations.spent += m.spent()
	return ok, note, err
}
