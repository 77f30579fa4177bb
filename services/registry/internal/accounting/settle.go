package accounting

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// settlement is what new entries do to the ledger.
type settlement struct {
	// reversals take back estimates, where an entry stands for a call that was booked at its estimate before.
	reversals []usage.Entry
	// freed and spent are what the account of the namespace gets back and pays.
	freed, spent ledger.Amount
	// runs is what entries used whose runs had no account, which may be opened meanwhile.
	runs map[ledger.ID]ledger.Account
}

// settle moves what new entries used from reserved to spent in their accounts, that of the namespace
// excepted. The caller holds the locks of the epics that pay.
func settle(ctx context.Context, tx store.Tx, namespace string, booked []usage.Entry, fresh []bool, now time.Time) (out settlement, err error) {
	entries := make(map[usage.Key]*usage.Entry, len(booked)) // by the keys of their reservations
	var more []ledger.ID
	for i := range booked {
		if e := &booked[i]; fresh[i] {
			if e.Source != usage.Client {
				entries[reservedAs(e.Key)] = e
			}
			more = append(more, payersOf(e, nil)...)
		}
	}
	held, err := tx.LockReservations(ctx, namespace, slices.SortedFunc(maps.Keys(entries), usage.Key.Compare))
	if err != nil {
		return out, err
	}
	for _, h := range held {
		more = append(more, h.Accounts...)
	}
	more = slices.DeleteFunc(more, func(id ledger.ID) bool { return id.Level == ledger.Namespace })
	accounts, err := lockAccounts(ctx, tx, namespace, more)
	if err != nil {
		return out, err
	}
	var settled, estimated []usage.Key
	from := map[usage.Key][]ledger.ID{}
	for _, h := range held {
		from[h.Key] = h.Accounts
		heard := entries[h.Key].Source == usage.Executor
		switch {
		case h.Estimated && heard:
			r := estimateOf(h, now).Reversed()
			out.reversals = append(out.reversals, r)
			if err := out.spend(accounts, payersOf(&r, h.Accounts), &r); err != nil {
				return out, err
			}
		case !h.Estimated:
			out.free(accounts, h)
		}
		if heard {
			settled = append(settled, h.Key)
		} else {
			estimated = append(estimated, h.Key)
		}
	}
	for i := range booked {
		if e := &booked[i]; fresh[i] {
			var of []ledger.ID
			if e.Source != usage.Client {
				of = from[reservedAs(e.Key)]
			}
			if err := out.spend(accounts, payersOf(e, of), e); err != nil {
				return out, err
			}
		}
	}
	if err := tx.DeleteReservations(ctx, namespace, settled); err != nil {
		return out, err
	}
	if err := tx.EstimateReservations(ctx, namespace, estimated); err != nil {
		return out, err
	}
	return out, putAccounts(ctx, tx, namespace, accounts)
}

// finish does to the account of the namespace what the settlement says, and to those of runs that were
// opened since the settlement looked for them. The caller holds the lock of the namespace's totals, so
// that the account and they say the same, and no account of a run is being opened.
func (s *settlement) finish(ctx context.Context, tx store.Tx, namespace string) error {
	ids := append(slices.SortedFunc(maps.Keys(s.runs), ledger.ID.Compare), ledger.ID{Level: ledger.Namespace})
	locked, err := tx.LockAccounts(ctx, namespace, ids)
	if err != nil || len(locked) == 0 {
		return err
	}
	for i := range locked {
		a := &locked[i]
		if a.Level == ledger.Run {
			err = a.Pay(s.runs[a.ID].Spent, *s.runs[a.ID].Beyond)
		} else {
			a.Reserved = a.Reserved.Minus(s.freed)
			err = a.Pay(s.spent, ledger.Amount{})
		}
		if err != nil {
			return err
		}
	}
	return tx.PutAccounts(ctx, namespace, locked)
}

// free gives a reservation back: to the accounts at once, to that of the namespace in the end.
func (s *settlement) free(accounts map[ledger.ID]*ledger.Account, h ledger.Held) {
	giveBack(accounts, h)
	if slices.Contains(h.Accounts, ledger.ID{Level: ledger.Namespace}) {
		s.freed.Tokens += h.Tokens
		s.freed.NanoUSD += h.NanoUSD
	}
}

// spend adds what an entry used to what accounts have spent.
func (s *settlement) spend(accounts map[ledger.ID]*ledger.Account, of []ledger.ID, e *usage.Entry) error {
	t, err := e.Totals()
	if err != nil {
		return err
	}
	used := ledger.Amount{Tokens: t.Tokens, NanoUSD: t.NanoUSD}
	if s.spent, err = s.spent.Plus(used); err != nil {
		return err
	}
	for _, id := range of {
		switch a := accounts[id]; {
		case a != nil:
			if err := a.Spend(used, e.RunID); err != nil {
				return err
			}
		case id.Level == ledger.Run:
			run, known := s.runs[id]
			if !known {
				run = ledger.Account{ID: id, Beyond: &ledger.Amount{}}
			}
			if err := run.Spend(used, e.RunID); err != nil {
				return err
			}
			if s.runs == nil {
				s.runs = map[ledger.ID]ledger.Account{}
			}
			s.runs[id] = run
		}
	}
	return nil
}

// reservedAs is the key of the reservation of an entry.
func reservedAs(k usage.Key) usage.Key {
	k.Source = usage.Executor
	return k
}

// payersOf are the accounts that an entry may belong to, that of the namespace excepted: those of its levels,
// and the runs it was reserved from. The run may have begun another task since then, which pays alone.
func payersOf(e *usage.Entry, reserved []ledger.ID) []ledger.ID {
	out := levels(e.TaskID, e.EpicID, nil)
	if e.Source != usage.Client { // the runs of clients are not those of executors, whatever they are called
		out = append(out, ledger.ID{Level: ledger.Run, Name: e.RunID})
	}
	for _, id := range reserved {
		if id.Level == ledger.Run {
			out = append(out, id)
		}
	}
	out = slices.DeleteFunc(out, func(id ledger.ID) bool { return id.Level == ledger.Namespace })
	slices.SortFunc(out, ledger.ID.Compare)
	return slices.Compact(out)
}

// estimateOf is the entry of a reservation that was forgotten. Its tokens are told as input, since nothing
// is known of them but their number.
func estimateOf(h ledger.Held, now time.Time) usage.Entry {
	e := usage.Entry{
		Key: h.Key, ID: ids.New(entryPrefix), Kind: h.Kind, TaskID: h.TaskID, EpicID: h.EpicID, Provider: h.Provider, Model: h.Model,
		InputTokens: h.Tokens, Time: now,
	}
	e.Source = usage.Estimate
	if !h.Unpriced {
		e.CostNanoUSD = &h.NanoUSD
	}
	return e
}
