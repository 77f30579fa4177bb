package dbkit

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/turns"
)

const (
	// MaxWaiting is how many calls of one namespace may wait for a connection: half of those that may be
	// under way, so that a burst of starts waits instead of being retried.
	MaxWaiting = 1000
	// MaxRead is how long the clients of a namespace may read in one turn.
	MaxRead = 10 * time.Second

	// ReasonBusy is the reason of a ResourceExhausted error when too many calls of the namespace wait for the
	// database.
	ReasonBusy = "NAMESPACE_BUSY"
	// ReasonReadTooLong is the reason of a ResourceExhausted error when a read took longer than MaxRead.
	ReasonReadTooLong = "READ_TOO_LONG"
)

// Turns share a pool of connections among namespaces. One namespace has at most half of the connections, and
// all together have all but one; when these are in use, the waiting namespaces get connections in turn. The
// calls that services make for a namespace have turns of their own, so that they do not wait for those of the
// namespace's clients. The work of a service for itself or for all namespaces needs no turn: one connection
// is always free of clients. Turns are safe for concurrent use.
type Turns struct{ clients, services *turns.Turns }

// NewTurns returns turns for a pool of so many connections. Of a pool of one, clients have that one at most
// one at a time.
func NewTurns(conns int) *Turns {
	b := turns.Bounds{Key: conns / 2, All: max(1, conns-1)}
	services := turns.Within(b) // how many of them wait is bounded where they begin
	b.Waiting = MaxWaiting
	return &Turns{clients: turns.Within(b), services: services}
}

// Do runs fn in a turn of the namespace, for which it waits until ctx ends. Where too many calls of the
// namespace wait already it is refused with ReasonBusy. fn must not ask for another turn.
func (t *Turns) Do(ctx context.Context, namespace string, fn func(context.Context) error) error {
	leave, err := t.of(ctx).Enter(ctx, namespace)
	if errors.Is(err, turns.ErrFull) {
		return errs.New(errs.ResourceExhausted, ReasonBusy, "%d calls of the namespace wait for the database already", MaxWaiting).
			Hint("try again in a moment, and send fewer calls at once").RetryAfter(time.Second).With(err)
	}
	if err != nil {
		return err
	}
	defer leave()
	return fn(ctx)
}

// Read is Do for what only reads. The context of fn ends after MaxRead if a client asks, and then the error
// has ReasonReadTooLong.
func (t *Turns) Read(ctx context.Context, namespace string, fn func(context.Context) error) error {
	if t.of(ctx) == t.services {
		return t.Do(ctx, namespace, fn)
	}
	return t.Do(ctx, namespace, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, MaxRead, errReadTooLong)
		defer cancel()
		err := fn(ctx)
		if err != nil && errors.Is(context.Cause(ctx), errReadTooLong) {
			return errs.New(errs.ResourceExhausted, ReasonReadTooLong, "the database read for more than %s", MaxRead).
				Hint("ask for less: fewer rows a page, or a filter that fewer rows have to be looked at for").With(err)
		}
		return err
	})
}

// Read is Turns.Read for what has an answer.
func Read[T any](ctx context.Context, t *Turns, namespace string, ask func(context.Context) (T, error)) (T, error) {
	return answer(ctx, t.Read, namespace, ask)
}

// Write is Turns.Do for what has an answer.
func Write[T any](ctx context.Context, t *Turns, namespace string, ask func(context.Context) (T, error)) (T, error) {
	return answer(ctx, t.Do, namespace, ask)
}

func answer[T any](ctx context.Context, do func(context.Context, string, func(context.Context) error) error, namespace string,
	ask func(context.Context) (T, error),
) (got T, err error) {
	err = do(ctx, namespace, func(ctx context.Context) (err error) {
		got, err = ask(ctx)
		return err
	})
	return got, err
}

var errReadTooLong = errors.New("the read took too long")

// of returns the turns for the caller of the call in ctx; without a call it is the service itself.
func (t *Turns) of(ctx context.Context) *turns.Turns {
	if kind := access.Of(ctx).Kind; kind != "" && kind != access.Internal {
		return t.clients
	}
	return t.services
}
