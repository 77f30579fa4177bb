package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrExprCost marks evaluations that cost more than their account has.
var ErrExprCost = errors.New("beyond the cost limit")

// Account is what several evaluations may cost together: as much as a single one may alone. It is for
// one goroutine. Make it by NewAccount.
type Account struct {
	ctx   context.Context //nolint:containedctx // as in a meter: an account lives as long as a call
	spent uint64
	err   error
}

// NewAccount is an account that nothing was charged to. Its evaluations end when ctx does.
func NewAccount(ctx context.Context) *Account { return &Account{ctx: ctx} }

// Err is ErrExprCost once the account is empty, or ErrInterrupted once its context has ended an
// evaluation. What was evaluated since then has no value.
func (a *Account) Err() error { return a.err }

// Charge charges what is done beside expressions, such as a search in a text. It is false once Err is
// set: the work must not be done then.
func (a *Account) Charge(units uint64) bool {
	if a.err != nil {
		return false
	}
	a.spent += units
	return !a.empty()
}

// empty reports whether more was charged than there is, and keeps that as the error.
func (a *Account) empty() bool {
	if a.spent <= exprCostLimit {
		return false
	}
	a.err = fmt.Errorf("%w: expressions that are evaluated together may cost %d units", ErrExprCost, exprCostLimit)
	return true
}

// EvalOn is EvalLazy that charges an account. Once Err is set nothing is evaluated any more.
func (e *Expr) EvalOn(a *Account, vars func(name string) (json.RawMessage, bool)) (json.RawMessage, error) {
	if a.err != nil {
		return nil, a.err
	}
	m := newMeter(a.ctx, exprCostLimit-min(exprCostLimit, a.spent))
	v, err := e.eval(m, rawVars(vars))
	a.spent += m.spent()
	switch {
	case a.empty():
		return nil, a.err
	case errors.Is(err, ErrInterrupted):
		a.err = err
	}
	if err != nil {
		return nil, err
	}
	return celJSON(v)
}
