package workgraph

import (
	"context"
	"fmt"

	"cel.dev/cel-go/common/types/ref"
)

// evaluations is what the expressions of one command share.
type evaluations struct {
	ctx   context.Context //nolint:containedctx // the value is as short-lived as the command that it belongs to
	end   context.CancelFunc
	spent uint64
}

// context is made when it is first asked for.
func (e *evaluations) context(l *Limits) context.Context {
	if e.ctx == nil {
		e.ctx, e.end = context.Background(), func() {}
		if l.Evaluation != nil {
			e.ctx, e.end = l.Evaluation()
		}
	}
	return e.ctx
}

// meter is for the next expression of the command.
func (e *evaluations) meter(l *Limits) *meter {
	ctx := e.context(l)
	left := commandCostLimit - min(commandCostLimit, e.spent)
	m := newMeter(ctx, min(exprCostLimit, left))
	if left < exprCostLimit {
		m.blame = fmt.Sprintf("the expressions of one step of the run are beyond the cost limit of %d units together", commandCostLimit)
	}
	return m
}

// close ends what the command has evaluated.
func (e *evaluations) close() {
	if e.end != nil {
		e.end()
	}
	*e = evaluations{}
}

// eval evaluates x for the command that is being worked on.
func (s *State) eval(x *Expr, sc *scope) (ref.Val, error) {
	m := s.evaluations.meter(&s.p.limits)
	v, err := x.eval(m, sc)
	s.evaluations.spent += m.spent()
	return v, err
}

// cond evaluates a condition for the command that is being worked on.
func (s *State) cond(x *Expr, sc *scope) (ok bool, note string, err error) {
	m := s.evaluations.meter(&s.p.limits)
	ok, note, err = x.cond(m, sc)
	s.evaluations.spent += m.spent()
	return ok, note, err
}
