package accounting

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// resumedAtOnce bounds the epics that go on with a change of the caps of their namespace. Others go on with
// the next question of one of their runs.
const resumedAtOnce = 1000

// epicsOf are the epics of those calls for which is holds, each once and in order.
func (b *Accounts) epicsOf(ctx context.Context, namespace string, in []Reservation, is func(i int) bool) ([]string, error) {
	var calls []Reservation
	for i := range in {
		if is(i) {
			calls = append(calls, in[i])
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	tasks, err := view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (map[string]store.TaskTotals, error) {
		return r.TaskTotals(ctx, namespace, taskIDs(calls))
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range calls {
		id := c.EpicID
		if t, ok := tasks[c.TaskID]; ok {
			id = t.EpicID
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// stopCapped pauses the epics that run by themselves for which a call was refused that does not fit under a
// cap of the namespace, whatever calls under way will use. Nothing of them starts then. Their runs stop at
// their next calls.
func (b *Accounts) stopCapped(ctx context.Context, namespace string, in []Reservation, answers []Reserved) error {
	last := map[string]*ledger.Refusal{}
	for i := range answers {
		r := answers[i].Refusal
		if r == nil || r.Account.Level != ledger.Namespace || !r.Exceeds(r.Cap, r.Spent) {
			continue
		}
		ids, err := b.epicsOf(ctx, namespace, in, func(j int) bool { return i == j })
		if err != nil {
			return err
		}
		for _, id := range ids {
			last[id] = r
		}
	}
	for id, r := range last {
		err := b.changeQuietly(ctx, namespace, id, func(ctx context.Context, tx store.Tx, e *epic.Epic) (bool, error) {
			if e.Parallel == 0 || e.State != epic.Active {
				return false, nil
			}
			found, err := tx.Accounts(ctx, namespace, []ledger.ID{r.Account})
			if err != nil || len(found) == 0 {
				return false, err
			}
			limit, spent := found[0].Hard.Tokens, found[0].Spent.Tokens
			if r.Money {
				limit, spent = found[0].Hard.NanoUSD, found[0].Spent.NanoUSD
			}
			if limit == nil || !r.Exceeds(*limit, spent) {
				return false, nil // it was raised meanwhile
			}
			return true, stop(ctx, tx, e, epic.ReasonNamespaceCap, dbkit.Now())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goOnWithRoom lets epics go on that a cap of the namespace had stopped, and for whose calls there is room
// now: one of their runs has asked.
func (b *Accounts) goOnWithRoom(ctx context.Context, namespace string, in []Reservation, answers []Reserved) error {
	ids, err := b.epicsOf(ctx, namespace, in, func(i int) bool { return answers[i].Refusal == nil })
	if err != nil {
		return err
	}
	for _, id := range ids {
		e, err := view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (epic.Epic, error) { return r.Epic(ctx, namespace, id) })
		if errs.ReasonOf(err) == store.ReasonEpicNotFound || err == nil && !stoppedByNamespace(&e) {
			continue
		}
		if err == nil {
			err = b.goOn(ctx, namespace, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goOnUnderCaps lets the epics go on that a cap of the namespace had stopped, after it has changed. Those for
// which it is too small still are stopped again by their next calls.
func (b *Accounts) goOnUnderCaps(ctx context.Context, namespace string) error {
	q := store.EpicQuery{Namespace: namespace, States: []epic.State{epic.Paused}, PauseReason: epic.ReasonNamespaceCap, Limit: resumedAtOnce}
	found, err := b.Epics(ctx, q)
	if err != nil {
		return err
	}
	for i := range found.Rows {
		if stoppedByNamespace(&found.Rows[i]) {
			if err := b.goOn(ctx, namespace, found.Rows[i].ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func stoppedByNamespace(e *epic.Epic) bool {
	return e.State == epic.Paused && e.PauseReason == epic.ReasonNamespaceCap
}

// goOn continues an epic that a cap of its namespace had stopped, and no other.
func (b *Accounts) goOn(ctx context.Context, namespace, id string) error {
	return b.changeQuietly(ctx, namespace, id, func(ctx context.Context, tx store.Tx, e *epic.Epic) (bool, error) {
		if !stoppedByNamespace(e) {
			return false, nil
		}
		before, now := *e, dbkit.Now()
		if err := e.Move(epic.Active, now); err != nil {
			return false, err
		}
		e.Touch(now, "")
		return true, follow(ctx, tx, before, e, now)
	})
}

// changeQuietly changes a locked epic in a transaction of its own, if fn says so. One that is gone is no
// error.
func (b *Accounts) changeQuietly(ctx context.Context, namespace, id string, fn func(context.Context, store.Tx, *epic.Epic) (bool, error)) error {
	err := b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		e, err := tx.LockEpic(ctx, namespace, id)
		if err != nil {
			return err
		}
		read := e.Revision
		changed, err := fn(ctx, tx, &e)
		if err != nil || !changed {
			return err
		}
		e.UpdateTime = dbkit.Now()
		return tx.PutEpic(ctx, e, read)
	})
	if errs.ReasonOf(err) == store.ReasonEpicNotFound {
		return nil
	}
	return err
}
