package schedule

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// fair is a store that namespaces use in turns. The requests of the controller for all of them need no turn.
type fair struct {
	Store
	turns *dbkit.Turns
}

// Fair returns s such that requests for one namespace take turns for its connections.
func Fair(s Store, t *dbkit.Turns) Store { return fair{s, t} }

// Create implements Store.
func (f fair) Create(ctx context.Context, s Schedule, most int) error {
	return f.turns.Do(ctx, s.Namespace, func(ctx context.Context) error { return f.Store.Create(ctx, s, most) })
}

// Get implements Store.
func (f fair) Get(ctx context.Context, k Key) (Schedule, error) {
	return dbkit.Read(ctx, f.turns, k.Namespace, func(ctx context.Context) (Schedule, error) { return f.Store.Get(ctx, k) })
}

// List implements Store.
func (f fair) List(ctx context.Context, namespace, after string, limit int) ([]Schedule, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Schedule, error) {
		return f.Store.List(ctx, namespace, after, limit)
	})
}

// Change implements Store.
func (f fair) Change(ctx context.Context, k Key, change func(context.Context, Tx, *Schedule) (Change, error)) error {
	return f.turns.Do(ctx, k.Namespace, func(ctx context.Context) error { return f.Store.Change(ctx, k, change) })
}

// Delete implements Store.
func (f fair) Delete(ctx context.Context, k Key, revision int64) error {
	return f.turns.Do(ctx, k.Namespace, func(ctx context.Context) error { return f.Store.Delete(ctx, k, revision) })
}
