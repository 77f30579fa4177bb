package trigger

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// fair is a store that namespaces use in turns. The requests of the controller for all of them need no turn.
type fair struct {
	Store
	turns *dbkit.Turns
}

// Fair returns s such that requests for one namespace take turns for its connections.
func Fair(s Store, t *dbkit.Turns) Store { return fair{s, t} }

// Activate implements Store.
func (f fair) Activate(ctx context.Context, a Activation, list []Trigger, most int, was time.Time) ([]Trigger, error) {
	return dbkit.Read(ctx, f.turns, a.Namespace, func(ctx context.Context) ([]Trigger, error) { return f.Store.Activate(ctx, a, list, most, was) })
}

// End implements Store.
func (f fair) End(ctx context.Context, a Activation, was time.Time) (Activation, error) {
	return dbkit.Read(ctx, f.turns, a.Namespace, func(ctx context.Context) (Activation, error) { return f.Store.End(ctx, a, was) })
}

// Activation implements Store.
func (f fair) Activation(ctx context.Context, namespace, workflow string) (Activation, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Activation, error) {
		return f.Store.Activation(ctx, namespace, workflow)
	})
}

// Trigger implements Store.
func (f fair) Trigger(ctx context.Context, k Key) (Trigger, error) {
	return dbkit.Read(ctx, f.turns, k.Namespace, func(ctx context.Context) (Trigger, error) { return f.Store.Trigger(ctx, k) })
}

// ByPath implements Store.
func (f fair) ByPath(ctx context.Context, namespace, path string) (Trigger, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (Trigger, error) { return f.Store.ByPath(ctx, namespace, path) })
}

// List implements Store.
func (f fair) List(ctx context.Context, namespace, workflow, after string, limit int) ([]Trigger, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Trigger, error) {
		return f.Store.List(ctx, namespace, workflow, after, limit)
	})
}

// SetSecret implements Store.
func (f fair) SetSecret(ctx context.Context, k Key, secret string, now time.Time) (Trigger, error) {
	return dbkit.Read(ctx, f.turns, k.Namespace, func(ctx context.Context) (Trigger, error) { return f.Store.SetSecret(ctx, k, secret, now) })
}

// Receive implements Store.
func (f fair) Receive(ctx context.Context, d Delivery, most int) (Delivery, error) {
	return dbkit.Read(ctx, f.turns, d.Namespace, func(ctx context.Context) (Delivery, error) { return f.Store.Receive(ctx, d, most) })
}

// Record implements Store.
func (f fair) Record(ctx context.Context, d Delivery) error {
	return f.turns.Do(ctx, d.Namespace, func(ctx context.Context) error { return f.Store.Record(ctx, d) })
}

// Delivery implements Store.
func (f fair) Delivery(ctx context.Context, k Key) (Delivery, error) {
	return dbkit.Read(ctx, f.turns, k.Namespace, func(ctx context.Context) (Delivery, error) { return f.Store.Delivery(ctx, k) })
}

// Deliveries implements Store.
func (f fair) Deliveries(ctx context.Context, namespace string, x Filter, before string, limit int) ([]Delivery, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) ([]Delivery, error) {
		return f.Store.Deliveries(ctx, namespace, x, before, limit)
	})
}

// Tried implements Store.
func (f fair) Tried(ctx context.Context, d Delivery, attempts int) error {
	return f.turns.Do(ctx, d.Namespace, func(ctx context.Context) error { return f.Store.Tried(ctx, d, attempts) })
}

// FeedCursor implements Store.
func (f fair) FeedCursor(ctx context.Context, namespace string) (int64, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (int64, error) { return f.Store.FeedCursor(ctx, namespace) })
}

// MoveFeed implements Store.
func (f fair) MoveFeed(ctx context.Context, namespace string, from, to int64, now time.Time) (bool, error) {
	return dbkit.Read(ctx, f.turns, namespace, func(ctx context.Context) (bool, error) { return f.Store.MoveFeed(ctx, namespace, from, to, now) })
}

// ResetFeed implements Store.
func (f fair) ResetFeed(ctx context.Context, namespace string, from, to int64, anew bool, now time.Time) error {
	return f.turns.Do(ctx, namespace, func(ctx context.Context) error { return f.Store.ResetFeed(ctx, namespace, from, to, anew, now) })
}
