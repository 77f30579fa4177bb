package accounting

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Budget is what the namespace, an epic or a task may spend and what it has spent, whether it ever had
// a cap or not.
func (b *Accounts) Budget(ctx context.Context, namespace string, id ledger.ID) (ledger.Account, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (ledger.Account, error) {
		return budget(ctx, r, namespace, id)
	})
}

func budget(ctx context.Context, r store.Reader, namespace string, id ledger.ID) (ledger.Account, error) {
	var t usage.Totals
	switch id.Level {
	case ledger.Epic:
		e, err := r.Epic(ctx, namespace, id.Name)
		if err != nil {
			return ledger.Account{}, err
		}
		t = e.Spent
	case ledger.Task:
		v, err := r.Task(ctx, namespace, id.Name)
		if err != nil {
			return ledger.Account{}, err
		}
		t = v.Actual
	default:
		all, err := r.NamespaceTotals(ctx, namespace)
		if err != nil {
			return ledger.Account{}, err
		}
		t = all
	}
	found, err := r.Accounts(ctx, namespace, []ledger.ID{id})
	if err != nil || len(found) == 0 {
		return ledger.Account{ID: id, Spent: ledger.Amount{Tokens: t.Tokens, NanoUSD: t.NanoUSD}}, err
	}
	return found[0], nil
}

// SetBudget is SetCaps for a request that may be repeated, and for a caller that has seen the caps. The
// etag of c is that of the account. It returns the account as it is then.
func (b *Accounts) SetBudget(ctx context.Context, namespace string, c Change, id ledger.ID, hard, soft ledger.Caps) (a ledger.Account, err error) {
	change := func(ctx context.Context, tx store.Tx) error {
		if a, err = budget(ctx, tx, namespace, id); err != nil {
			return err
		}
		if err := a.CheckEtag(c.Etag); err != nil {
			return err
		}
		a, err = setCaps(ctx, tx, namespace, id, hard, soft, true)
		return err
	}
	now := dbkit.Now()
	if id.Level == ledger.Epic {
		_, err = b.changeEpic(ctx, namespace, "SetBudget", id.Name, Change{Once: c.Once}, func(ctx context.Context, tx store.Tx, e *epic.Epic, _ time.Time) error {
			e.BudgetTokens, e.BudgetNanoUSD = hard.Tokens, hard.NanoUSD
			return change(ctx, tx)
		})
	} else {
		err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
			earlier, err := c.Earlier(ctx, tx, namespace, "SetBudget", id.Text(), now)
			if err != nil || earlier != "" {
				return err
			}
			return change(ctx, tx)
		})
	}
	if err == nil && id.Level == ledger.Namespace {
		b.changed.add(namespace)
		select {
		case b.changed.wake <- struct{}{}:
		default:
		}
	}
	if err != nil || a.Level != 0 {
		return a, err
	}
	return b.Budget(ctx, namespace, id) // the request came earlier
}

// SetCaps sets the caps of a namespace, an epic or a task, which replace those it had. The hard caps of an
// epic are its budget. Those of a run come with its reservations.
func (b *Accounts) SetCaps(ctx context.Context, namespace string, id ledger.ID, hard, soft ledger.Caps) (a ledger.Account, err error) {
	if id.Level == ledger.Run {
		return a, errs.New(errs.InvalidArgument, ReasonNoCapsOfRuns, "the caps of a run are its budget").Hint("give the run a budget when it is started, or with ResumeRun")
	}
	if id.Level == ledger.Epic {
		_, err := b.changeEpic(ctx, namespace, "SetCaps", id.Name, Change{}, func(ctx context.Context, tx store.Tx, e *epic.Epic, _ time.Time) error {
			e.BudgetTokens, e.BudgetNanoUSD = hard.Tokens, hard.NanoUSD
			a, err = setCaps(ctx, tx, namespace, id, hard, soft, true)
			return err
		})
		return a, err
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		a, err = setCaps(ctx, tx, namespace, id, hard, soft, true)
		return err
	})
	return a, err
}

// setCaps sets the caps of a namespace, an epic or a task, whose account it opens with what has been spent.
// An epic is locked by the caller. direct says that caps are set as such, and not with the budget of an epic,
// which must stay below them.
func setCaps(ctx context.Context, tx store.Tx, namespace string, id ledger.ID, hard, soft ledger.Caps, direct bool) (ledger.Account, error) {
	spent, err := spentOf(ctx, tx, namespace, id)
	if err != nil {
		return ledger.Account{}, err
	}
	if err := tx.OpenAccounts(ctx, namespace, []ledger.Account{{ID: id, Spent: spent}}); err != nil {
		return ledger.Account{}, err
	}
	locked, err := tx.LockAccounts(ctx, namespace, []ledger.ID{id})
	if err != nil {
		return ledger.Account{}, err
	}
	a := locked[0]
	if direct {
		a.Ceiling, a.CeilingBy = hard, request.Caller(ctx)
	} else if err := a.CheckCeiling(hard); err != nil {
		return ledger.Account{}, err
	}
	a.Hard, a.Soft, a.Principal = hard, soft, request.Caller(ctx)
	return a, tx.PutAccounts(ctx, namespace, []ledger.Account{a})
}

// capEpic gives the account of a locked epic the caps of its budget. An epic that never had one has no
// account.
func capEpic(ctx context.Context, tx store.Tx, e epic.Epic) error {
	id := ledger.ID{Level: ledger.Epic, Name: e.ID}
	hard := ledger.Caps{Tokens: e.BudgetTokens, NanoUSD: e.BudgetNanoUSD}
	have, err := tx.Accounts(ctx, e.Namespace, []ledger.ID{id})
	if err != nil || hard.IsZero() && len(have) == 0 {
		return err
	}
	var soft ledger.Caps
	if len(have) > 0 {
		soft = have[0].Soft
	}
	_, err = setCaps(ctx, tx, e.Namespace, id, hard, soft, false)
	return err
}

// spentOf is what was booked of a level, which stays as it is until the end of the transaction.
func spentOf(ctx context.Context, tx store.Tx, namespace string, id ledger.ID) (ledger.Amount, error) {
	var t usage.Totals
	switch id.Level {
	case ledger.Namespace:
		all, err := tx.LockNamespaceTotals(ctx, namespace)
		if err != nil {
			return ledger.Amount{}, err
		}
		t = all
	case ledger.Epic:
		e, err := tx.LockEpic(ctx, namespace, id.Name)
		if err != nil {
			return ledger.Amount{}, err
		}
		t = e.Spent
	case ledger.Task:
		v, err := tx.Task(ctx, namespace, id.Name)
		if err != nil {
			return ledger.Amount{}, err
		}
		if _, err := tx.LockEpic(ctx, namespace, v.EpicID); err != nil {
			return ledger.Amount{}, err
		}
		if v, err = tx.Task(ctx, namespace, id.Name); err != nil {
			return ledger.Amount{}, err
		}
		t = v.Actual
	}
	return ledger.Amount{Tokens: t.Tokens, NanoUSD: t.NanoUSD}, nil
}

// Account is what a level may spend; it is zero for one that has never had a cap.
func (b *Accounts) Account(ctx context.Context, namespace string, id ledger.ID) (ledger.Account, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (ledger.Account, error) {
		found, err := r.Accounts(ctx, namespace, []ledger.ID{id})
		if err != nil || len(found) == 0 {
			return ledger.Account{ID: id}, err
		}
		return found[0], nil
	})
}
