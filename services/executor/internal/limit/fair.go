package limit

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// fair is a store that namespaces use in turns. The exchange of executors for all of them needs no turn.
type fair struct {
	Store
	turns *dbkit.Turns
}

// Fair returns s such that requests for one namespace take turns for its connections.
func Fair(s Store, t *dbkit.Turns) Store { return fair{s, t} }

// Update implements Store.
func (f fair) Update(ctx context.Context, k Key, change Change) (Limit, error) {
	return dbkit.Write(ctx, f.turns, k.Namespace, func(ctx context.Context) (Limit, error) { return f.Store.Update(ctx, k, change) })
}

// Delete implements Store.
func (f fair) Delete(ctx context.Context, k Key) error {
	return f.turns.Do(ctx, k.Namespace, func(ctx context.Context) error { return f.Store.Delete(ctx, k) })
}

// List implements Store.
func (f fair) List(ctx context.Context, namespace, after string, most int) ([]Limit, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Limit, error) { return f.Store.List(ctx, namespace, after, most) })
}

// Figures implements Store. A request is for one namespace.
func (f fair) Figures(ctx context.Context, keys []Key) ([]Figure, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return dbkit.Read(ctx, f.turns, keys[0].Namespace, func(ctx context.Context) ([]Figure, error) { return f.Store.Figures(ctx, keys) })
}

// OpenRuns implements Store.
func (f fair) OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		open, pending, err = f.Store.OpenRuns(ctx, namespace, bound)
		return err
	})
	return open, pending, err
}
