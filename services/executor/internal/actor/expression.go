package actor

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxExpressionTime is how long the expressions of one call may be compiled and evaluated. The cost limit
	// of an expression ends it much earlier, on a machine that is not overloaded; a template has a thousand
	// expressions.
	maxExpressionTime = 10 * time.Second
	// maxKeptText bounds the text of cached expressions in bytes; compiled they take some hundred times as
	// much.
	maxKeptText = 256 << 10
)

// Expressions compiles and evaluates expressions, and caches the last used ones. It is safe for concurrent
// use.
type Expressions struct {
	mu     sync.Mutex
	byText *lru.Cache[string, *workgraph.Expr]
}

// NewExpressions remembers nothing yet.
func NewExpressions() *Expressions {
	return &Expressions{byText: lru.New[string, *workgraph.Expr](maxKeptText)}
}

// Limited is ctx with the time that a call has for its expressions.
func Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, maxExpressionTime, fmt.Errorf("the expressions of a call take longer than %s", maxExpressionTime))
}

// Eval is the value of an expression. It stops when ctx ends.
func (x *Expressions) Eval(ctx context.Context, text string, sc workgraph.Scope) (json.RawMessage, error) {
	e := x.find(text)
	if e == nil {
		var err error
		if e, err = workgraph.CompileExpr(ctx, text); err != nil {
			return nil, err
		}
		x.remember(text, e)
	}
	return e.EvalIn(ctx, sc)
}

func (x *Expressions) find(text string) *workgraph.Expr {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, _ := x.byText.Get(text)
	return e
}

func (x *Expressions) remember(text string, e *workgraph.Expr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byText.Put(text, e, int64(len(text)))
}
