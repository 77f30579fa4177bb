package accounting

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// SetCaps sets the caps of a namespace, an epic or a task, which replace those it had. The hard caps of an
// epic are its budget. Those of a run come with its reservations.
func (b *Accounts) SetCaps(ctx context.Context, namespace string, id ledger.ID, hard, soft ledger.Caps) (a ledger.Account, err error) {
	if id.Level == ledger.Run {
		return a, errs.New(errs.InvalidArgument, ReasonNoCapsOfRuns, "the caps of a run are its budget").Hint("give the run a budget when it is started, or with UpdateBudget")
	}
	if id.Level == ledger.Epic {
		_, err := b.changeEpic(ctx, namespace, "SetCaps", id.Name, Change{}, func(ctx context.Context, tx store.Tx, e *epic.Epic, _ time.Time) error {
			e.BudgetTokens, e.BudgetNanoUSD = hard.Tokens, hard.NanoUSD
			a, err = setCaps(ctx, tx, namespace, id, hard, soft)
			return err
		})
		return a, err
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		a, err = setCaps(ctx, tx, namespace, id, hard, soft)
		return err
	})
	return a, err
}

// setCaps sets the caps of a namespace, an epic or a task, whose account it opens with what has been spent.
// An epic is locked by the caller.
func setCaps(ctx context.Context, tx store.Tx, namespace string, id ledger.ID, hard, soft ledger.Caps) (ledger.Account, error) {
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
	a.Hard, a.Soft = hard, soft
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
	_, err = setCaps(ctx, tx, e.Namespace, id, hard, soft)
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
