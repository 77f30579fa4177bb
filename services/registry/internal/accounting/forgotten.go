package accounting

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// ledgerLife is how long the account of a run stays after the last of its calls, and how long an estimate
	// waits for what the call really used.
	ledgerLife = 30 * 24 * time.Hour
	// forgottenAtOnce bounds how many forgotten reservations one sweep settles, sweptAtOnce how many accounts
	// and estimates it removes.
	forgottenAtOnce, sweptAtOnce = 1000, 10_000
	// postponed is how much later a forgotten reservation is looked at again that cannot be booked.
	// What it holds stays reserved meanwhile.
	postponed = time.Hour
)

// SweepLedger settles what was forgotten and removes what is not needed any more. It returns how many
// reservations were settled.
func (b *Accounts) SweepLedger(ctx context.Context) (int, error) {
	if _, _, err := b.store.SweepLedger(ctx, dbkit.Now().Add(-ledgerLife), sweptAtOnce); err != nil {
		return 0, err
	}
	return b.SettleForgotten(ctx, forgottenAtOnce)
}

// SettleForgotten books at their estimates what was reserved for calls of which nothing was heard within
// their lease, at most limit of them. It returns how many there were. One that cannot be booked keeps no
// other from it.
func (b *Accounts) SettleForgotten(ctx context.Context, limit int) (n int, err error) {
	found, err := b.store.ForgottenReservations(ctx, limit)
	if err != nil {
		return 0, err
	}
	for len(found) > 0 {
		namespace := found[0].Namespace
		var keys []usage.Key
		for len(found) > 0 && found[0].Namespace == namespace {
			keys, found = append(keys, found[0].Key), found[1:]
		}
		settled, one := b.estimate(ctx, namespace, keys)
		if n += settled; one != nil && len(keys) > 1 && ctx.Err() == nil {
			one = nil
			for _, k := range keys {
				settled, e := b.estimate(ctx, namespace, []usage.Key{k})
				if n += settled; e != nil && ctx.Err() == nil {
					e = errors.Join(e, b.postpone(ctx, namespace, k))
				}
				one = errors.Join(one, e)
			}
		} else if one != nil && ctx.Err() == nil {
			one = errors.Join(one, b.postpone(ctx, namespace, keys[0]))
		}
		err = errors.Join(err, one)
	}
	return n, err
}

// postpone lets a reservation that cannot be booked be, so that it is not tried at every sweep and does
// not keep others from theirs.
func (b *Accounts) postpone(ctx context.Context, namespace string, k usage.Key) error {
	return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		return tx.RenewReservations(ctx, namespace, []usage.Key{k}, postponed)
	})
}

// estimate books forgotten reservations at their estimates. What was booked already is freed: its reservation
// came after it.
func (b *Accounts) estimate(ctx context.Context, namespace string, keys []usage.Key) (int, error) {
	late, err := view(ctx, b, namespace, func(ctx context.Context, r store.Reader) ([]usage.Key, error) { return r.Booked(ctx, namespace, keys) })
	if err != nil {
		return 0, err
	}
	if len(late) > 0 {
		if err := b.Release(ctx, namespace, late); err != nil {
			return 0, err
		}
	}
	n, twice, err := b.bookHeld(ctx, namespace, keys, func(held []ledger.Held, now time.Time) (out []usage.Entry) {
		for _, h := range held {
			if !h.Estimated {
				out = append(out, estimateOf(h, now))
			}
		}
		return out
	})
	if err != nil || len(twice) == 0 {
		return n, err
	}
	// An entry never changes, so what was estimated and taken back is not estimated again. The call was given
	// back once, and nothing was heard of it since. What it used, if it did, is booked when its usage comes.
	_, err = b.unreserve(ctx, namespace, twice, func(ledger.Held) bool { return false })
	return n, err
}

// bookHeld books entries that stand for reservations, and returns how many those were. Reservations whose
// estimate is taken back are forgotten. twice are the reservations of which an earlier entry has the key.
func (b *Accounts) bookHeld(ctx context.Context, namespace string, keys []usage.Key,
	entriesOf func([]ledger.Held, time.Time) []usage.Entry,
) (n int, twice []usage.Key, err error) {
	now := dbkit.Now()
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		held, err := tx.Reservations(ctx, namespace, keys)
		if err != nil {
			return err
		}
		// Epics are locked before reservations. Only then it is sure that nothing was heard of a call.
		if _, _, err := payers(ctx, tx, namespace, entriesOf(held, now)); err != nil {
			return err
		}
		if held, err = tx.LockReservations(ctx, namespace, keys); err != nil {
			return err
		}
		var entries []usage.Entry
		if entries, twice, err = unbooked(ctx, tx, namespace, entriesOf(held, now)); err != nil {
			return err
		}
		slices.SortFunc(entries, func(a, b usage.Entry) int { return a.Compare(b.Key) })
		n = len(entries)
		if _, err = book(ctx, tx, namespace, entries, false, now); err != nil {
			return err
		}
		var reversed []usage.Key
		for _, e := range entries {
			if e.Source == usage.Reversal {
				reversed = append(reversed, reservedAs(e.Key))
			}
		}
		return tx.DeleteReservations(ctx, namespace, reversed)
	})
	if err != nil {
		return 0, nil, err
	}
	return n, twice, nil
}

// unbooked are the entries whose keys are free, and the keys of the reservations of the others.
func unbooked(ctx context.Context, tx store.Tx, namespace string, entries []usage.Entry) (free []usage.Entry, taken []usage.Key, err error) {
	keys := make([]usage.Key, len(entries))
	for i := range entries {
		keys[i] = entries[i].Key
	}
	booked, err := tx.Booked(ctx, namespace, keys)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if slices.Contains(booked, e.Key) {
			taken = append(taken, reservedAs(e.Key))
		} else {
			free = append(free, e)
		}
	}
	return free, taken, nil
}
