package limit

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// fair is a store that namespaces ask in turns. What executors exchange for all of them has none.
type fair struct {
	Store
	turns *dbkit.Turns
}

// Fair returns s such that what is asked for one namespace has the turns of its connections.
func Fair(s Store, t *dbkit.Turns) Store { return fair{s, t} }

// Put implements Store.
func (f fair) Put(ctx context.Context, l Limit) (kept Limit, err error) {
	err = f.turns.Do(ctx, l.Namespace, func(ctx context.Context) (err error) {
		kept, err = f.Store.Put(ctx, l)
		return err
	})
	return kept, err
}

// Delete implements Store.
func (f fair) Delete(ctx context.Context, k Key) error {
	return f.turns.Do(ctx, k.Namespace, func(ctx context.Context) error { return f.Store.Delete(ctx, k) })
}

// List implements Store.
func (f fair) List(ctx context.Context, namespace, after string, most int) (list []Limit, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		list, err = f.Store.List(ctx, namespace, after, most)
		return err
	})
	return list, err
}

// Figures implements Store. Whoever asks asks for one namespace.
func (f fair) Figures(ctx context.Context, keys []Key) (figures []Figure, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = f.turns.Read(ctx, keys[0].Namespace, func(ctx context.Context) (err error) {
		figures, err = f.Store.Figures(ctx, keys)
		return err
	})
	return figures, err
}

// OpenRuns implements Store.
func (f fair) OpenRuns(ctx context.Context, namespace string, bound int64) (open, pending int64, err error) {
	err = f.turns.Read(ctx, namespace, func(ctx context.Context) (err error) {
		open, pending, err = f.Store.OpenRuns(ctx, namespace, bound)
		return err
	})
	return open, pending, err
}
