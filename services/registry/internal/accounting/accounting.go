// Package accounting owns the use cases of the registry: one method per request, each one transaction over
// the store, in which the rules of epic and usage are applied to the stored rows. It must not know any
// protocol or driver.
package accounting

import (
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// ReasonRequestIDReused refuses a request id that came earlier with another body.
	ReasonRequestIDReused = request.ReasonReused
	// RequestLife is how long a request id is remembered.
	RequestLife = 72 * time.Hour
)

// Accounts applies the use cases to a store. It is safe for concurrent use.
type Accounts struct {
	store  store.Store
	bounds Bounds
	tails  *tails
	// changed are the caps of namespaces that were changed here.
	changed *changedCaps
}

// New returns the use cases over a store, which stays the caller's to close.
func New(s store.Store) *Accounts {
	return (&Accounts{store: s, changed: newChangedCaps()}).Within(DefaultBounds())
}

type (
	// Once makes a request repeatable.
	Once = request.Once
	// Change is what every change of something that exists carries.
	Change = request.Change
)

// CreateEpic records a fresh epic.
func (b *Accounts) CreateEpic(ctx context.Context, namespace string, o Once, in epic.Epic) (out epic.Epic, err error) {
	now := dbkit.Now()
	in = epic.New(namespace, in, now)
	in.Principal, in.Maker = request.Caller(ctx), request.Maker(ctx, in.Labels)
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := o.Earlier(ctx, tx, namespace, "CreateEpic", in.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Epic(ctx, namespace, earlier)
			return err
		}
		have, err := tx.CountEpics(ctx, namespace, b.bounds.Epics)
		if err != nil {
			return err
		}
		if err := room(have, b.bounds.Epics, ReasonTooManyEpics, "a namespace", "epics"); err != nil {
			return err
		}
		out = in
		if err := tx.InsertEpic(ctx, in); err != nil {
			return err
		}
		if err := epicWords(ctx, tx, &epic.Epic{}, &in); err != nil {
			return err
		}
		return capEpic(ctx, tx, in)
	})
	return out, err
}

// Epic reads one.
func (b *Accounts) Epic(ctx context.Context, namespace, id string) (epic.Epic, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (epic.Epic, error) { return r.Epic(ctx, namespace, id) })
}

// Epics lists.
func (b *Accounts) Epics(ctx context.Context, q store.EpicQuery) (store.Found[epic.Epic], error) {
	q.Text = epic.Fold(q.Text)
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) (store.Found[epic.Epic], error) {
		return r.Epics(ctx, q)
	})
}

// changeEpic runs one change of an epic, with request id and etag.
func (b *Accounts) changeEpic(ctx context.Context, namespace, method, id string, c Change,
	fn func(ctx context.Context, tx store.Tx, e *epic.Epic, now time.Time) error,
) (out epic.Epic, err error) {
	now := dbkit.Now()
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := c.Earlier(ctx, tx, namespace, method, id, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Epic(ctx, namespace, earlier)
			return err
		}
		e, err := tx.LockEpic(ctx, namespace, id)
		if err != nil {
			return err
		}
		if err := e.CheckEtag(c.Etag); err != nil {
			return err
		}
		before, over := e, e.Revision
		if err := fn(ctx, tx, &e, now); err != nil {
			return err
		}
		if err := follow(ctx, tx, before, &e, now); err != nil {
			return err
		}
		e.Touch(now, request.Caller(ctx))
		out = e
		if err := tx.PutEpic(ctx, e, over); err != nil {
			return err
		}
		if err := epicWords(ctx, tx, &before, &e); err != nil {
			return err
		}
		return keepProcedure(ctx, tx, before.State, &e, now)
	})
	return out, err
}

// UpdateEpic takes these fields from in. Another dependency policy decides at once about tasks that wait in
// vain.
func (b *Accounts) UpdateEpic(ctx context.Context, namespace, id string, c Change, in epic.Epic, fields []string) (epic.Epic, error) {
	return b.changeEpic(ctx, namespace, "UpdateEpic", id, c, func(ctx context.Context, tx store.Tx, e *epic.Epic, now time.Time) error {
		policy := e.DependencyPolicy
		for _, f := range fields {
			e.Take(f, in)
		}
		if slices.Contains(fields, "budget_tokens") || slices.Contains(fields, "budget_nano_usd") {
			if err := capEpic(ctx, tx, *e); err != nil {
				return err
			}
		}
		if e.DependencyPolicy == policy {
			return nil
		}
		dead, err := tx.Dead(ctx, namespace, id)
		if err != nil {
			return err
		}
		return end(ctx, tx, e, dead, now)
	})
}

// MoveEpic takes the epic to another state. A summary that is not empty is kept. Canceling it cancels
// its open tasks and the runs of all of its tasks. Pausing it pauses these runs.
func (b *Accounts) MoveEpic(ctx context.Context, namespace, id string, c Change, to epic.State, summary string) (epic.Epic, error) {
	return b.changeEpic(ctx, namespace, "TransitionEpic", id, c, func(ctx context.Context, tx store.Tx, e *epic.Epic, now time.Time) error {
		if to == epic.Active && e.PauseReason == epic.ReasonBudgetExhausted {
			if err := e.CheckBudget(); err != nil {
				return err
			}
		}
		if err := e.Move(to, now); err != nil {
			return err
		}
		if summary != "" {
			e.ResultSummary = summary
		}
		if to != epic.Canceled {
			return nil
		}
		// Open and canceled tasks are counted alike, so the counters stay.
		if err := tx.EndTasks(ctx, namespace, id, epic.OpenTaskStates(), epic.TaskCanceled, now, request.Caller(ctx)); err != nil {
			return err
		}
		if err := tx.CancelRuns(ctx, namespace, id, "", epic.ReasonEpicCanceled); err != nil {
			return err
		}
		return tx.ReleaseClaims(ctx, namespace, id)
	})
}

// DeleteEpic removes an epic and its tasks, and cancels runs that are still at work on one of them. Usage
// entries stay.
func (b *Accounts) DeleteEpic(ctx context.Context, namespace, id, etag string) error {
	return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		e, err := tx.LockEpic(ctx, namespace, id)
		if err != nil {
			return err
		}
		if err := e.CheckEtag(etag); err != nil {
			return err
		}
		running, err := tx.CountTasks(ctx, namespace, id, epic.TaskRunning)
		if err != nil {
			return err
		}
		if running > 0 {
			return errs.New(errs.FailedPrecondition, "EPIC_RUNNING", "epic %s has %d running tasks", id, running).
				Hint("cancel the epic, or wait until its tasks have ended")
		}
		if err := tx.CancelRuns(ctx, namespace, id, "", epic.ReasonTaskDeleted); err != nil {
			return err
		}
		if err := tx.ForgetStarts(ctx, namespace, id, ""); err != nil {
			return err
		}
		return tx.DeleteEpic(ctx, namespace, id, e.Revision)
	})
}

// CreatePrice adds a price to the price book of a namespace.
func (b *Accounts) CreatePrice(ctx context.Context, namespace string, o Once, in usage.Price) (out usage.Price, err error) {
	now := dbkit.Now()
	in, err = usage.NewPrice(namespace, in)
	if err != nil {
		return usage.Price{}, err
	}
	in.Principal = request.Caller(ctx)
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := o.Earlier(ctx, tx, namespace, "CreatePrice", in.ID, now)
		if err != nil {
			return err
		}
		if earlier == "" {
			earlier = in.ID
			have, err := tx.CountPrices(ctx, namespace, b.bounds.Prices)
			if err != nil {
				return err
			}
			if have >= b.bounds.Prices {
				return errs.New(errs.ResourceExhausted, ReasonTooManyPrices, "a namespace may have %d prices", b.bounds.Prices).
					Hint("let one price cover several models: a model that ends in * covers all that begin so")
			}
			if err := tx.InsertPrice(ctx, in); err != nil {
				return err
			}
		}
		// Read back, because its end depends on what else is in the price book.
		out, err = tx.Price(ctx, namespace, earlier)
		return err
	})
	return out, err
}

// Prices lists the prices that hold for a namespace, the ones that come with the registry included.
func (b *Accounts) Prices(ctx context.Context, q store.PriceQuery) ([]usage.Price, error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) ([]usage.Price, error) { return r.Prices(ctx, q) })
}

// Sweep frees claims that were never confirmed and forgets old request ids.
func (b *Accounts) Sweep(ctx context.Context) (claims, requests int64, err error) {
	return b.store.Sweep(ctx, dbkit.Now().Add(-RequestLife))
}

func view[T any](ctx context.Context, b *Accounts, namespace string, fn func(context.Context, store.Reader) (T, error)) (out T, err error) {
	err = b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		out, err = fn(ctx, r)
		return err
	})
	return out, err
}
