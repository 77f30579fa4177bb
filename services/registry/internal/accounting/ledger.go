package accounting

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Reservation asks for what one call may use at most, before it is made.
type Reservation struct {
	// Key is that of the usage entry which settles it.
	Key            usage.Key
	Kind           usage.Kind
	TaskID, EpicID string
	Provider       string
	Model          string
	ledger.Want
	// Runs are the runs with caps that the call belongs to: its own and those above it.
	Runs []RunCaps
	// Incarnation is that of the owner of the run that asks; 0 if it is not known.
	Incarnation int64
	// guessed is how far the estimate of a call without a limit reaches.
	guessed guessed
}

// Call is a call that is told as the entry which it would become at most.
type Call struct {
	usage.Entry
	// Runs and Incarnation are those of its Reservation.
	Runs        []RunCaps
	Incarnation int64
	// Unlimited says that it states no limit of its own of what it puts out, so that its output tokens are
	// to be estimated. Its OutputTokens are then the limit that is sent for it, or 0 if there is none.
	Unlimited bool
}

// RunCaps are the caps of a run as they are now.
type RunCaps struct {
	RunID      string
	Hard, Soft ledger.Caps
	// Spent is what the run has used by now. It opens the account unless more is booked of the run
	// itself. Calls of which the ledger has not heard yet may be in it, and then count twice, so that a
	// cap that is set late may stop a little early.
	Spent ledger.Amount
}

// Reserved is the answer to a reservation.
type Reserved struct {
	// Refusal is nil if it is granted.
	Refusal *ledger.Refusal
	// Soft are the accounts that are over a soft cap by it.
	Soft []ledger.ID
	// Capped says that an account bounds the call. If none does, nothing was written.
	Capped bool
}

const (
	// MaxReservations bounds the calls of one Reserve or Release.
	MaxReservations = 256
	// MaxRunCaps bounds the runs with caps of one call.
	MaxRunCaps = 64
	// maxWant bounds what one call may ask for, in tokens and in nano-USD: about 36 million dollars.
	maxWant = 1 << 55
)

// checkReservations refuses more or larger reservations than can be meant.
func checkReservations(in []Reservation) error {
	if len(in) > MaxReservations {
		return errs.New(errs.InvalidArgument, ReasonTooManyReservations, "%d reservations at once, the limit is %d", len(in), MaxReservations)
	}
	for i, r := range in {
		a := r.Amount()
		if a.Tokens < 0 || a.NanoUSD < 0 || a.Tokens > maxWant || a.NanoUSD > maxWant {
			return errs.New(errs.InvalidArgument, usage.ReasonOutOfRange, "reservation %d asks for %d tokens and %d nano-USD; each may be 0 to %d", i, a.Tokens, a.NanoUSD, int64(maxWant))
		}
		if len(r.Runs) > MaxRunCaps {
			return errs.New(errs.InvalidArgument, ReasonTooManyReservations, "reservation %d names %d runs, the limit is %d", i, len(r.Runs), MaxRunCaps)
		}
	}
	return nil
}

// Reserve takes what calls may use at most from the accounts of their namespace, epic, task and runs, each
// call from all of them or from none. A call that was reserved or booked before is granted again and takes
// nothing, whatever it asks for now. Levels without caps are not looked at. What is granted is settled when
// the usage of the call is recorded, given back by Release, or, if neither comes within the lease, booked as
// it was asked for.
func (b *Accounts) Reserve(ctx context.Context, namespace string, lease time.Duration, in []Reservation) ([]Reserved, error) {
	if err := checkReservations(in); err != nil {
		return nil, err
	}
	epics, capped, err := b.mayBeCapped(ctx, namespace, in)
	if err != nil || !capped {
		return make([]Reserved, len(in)), err
	}
	return b.take(ctx, namespace, lease, in, epics, false)
}

// ReserveCalls is Reserve for calls that are told as the entries which they would become at most. It
// prices them as RecordUsage would: by the price book, else by the cost that the entry reports. What
// calls without a limit put out is estimated first. If askOnly is set, it answers whether there is room
// and reserves nothing. Calls of one request count as if each before them were reserved, so that room
// for one call is not told to all that wait for it.
func (b *Accounts) ReserveCalls(ctx context.Context, namespace string, lease time.Duration, calls []Call, askOnly bool) ([]Reserved, error) {
	calls = slices.Clone(calls)
	in := make([]Reservation, len(calls))
	for i := range calls {
		c := &calls[i]
		in[i] = Reservation{
			Key: c.Key, Kind: c.Kind, TaskID: c.TaskID, EpicID: c.EpicID, Provider: c.Provider, Model: c.Model, Runs: c.Runs, Incarnation: c.Incarnation,
		}
	}
	if err := b.expectOutputs(ctx, namespace, calls, in); err != nil {
		return nil, err
	}
	for i := range calls {
		tokens, err := usage.Add(calls[i].InputTokens, calls[i].OutputTokens)
		if err != nil {
			return nil, err
		}
		in[i].Tokens = tokens
	}
	if err := checkReservations(in); err != nil {
		return nil, err
	}
	epics, capped, err := b.mayBeCapped(ctx, namespace, in)
	if err != nil || !capped {
		return make([]Reserved, len(in)), err
	}
	if err := b.priceMost(ctx, namespace, calls, in); err != nil {
		return nil, err
	}
	return b.take(ctx, namespace, lease, in, epics, askOnly)
}

// take reserves for checked and priced calls, or with askOnly finds out whether it could. It pauses the epics
// whose budgets, or whose namespace's caps, are too small, and lets those go on that the latter had stopped.
// epics are those of the tasks.
func (b *Accounts) take(ctx context.Context, namespace string, lease time.Duration, in []Reservation, epics map[string]string, askOnly bool) (out []Reserved, err error) {
	if err := b.openRuns(ctx, namespace, in); err != nil {
		return nil, err
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		if out, err = reserve(ctx, tx, namespace, lease, in, epics); err == nil && askOnly {
			return errAskedOnly
		}
		return err
	})
	if err != nil && !errors.Is(err, errAskedOnly) {
		return nil, err
	}
	if askOnly {
		if err := b.resumeWithRoom(ctx, namespace, in, out); err != nil {
			return nil, err
		}
	}
	return out, b.stopRefused(ctx, namespace, in, out)
}

// errAskedOnly rolls back what was reserved by a caller that only asks.
var errAskedOnly = errors.New("it was only asked")

// priceMost sets the most that calls may cost: that of the dearest mix of cached and other input, and
// of reasoning and other output. A cost that is too large to be reserved counts as unknown.
func (b *Accounts) priceMost(ctx context.Context, namespace string, calls []Call, in []Reservation) error {
	now := dbkit.Now()
	mixes := make([]usage.Entry, 0, 4*len(calls))
	for i := range calls {
		e := calls[i].Entry
		e.Time = now
		for _, cached := range []int64{0, e.InputTokens} {
			for _, reasoning := range []int64{0, e.OutputTokens} {
				e.CachedInputTokens, e.ReasoningTokens = cached, reasoning
				mixes = append(mixes, e)
			}
		}
	}
	if err := b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error { return price(ctx, r, namespace, mixes) }); err != nil {
		return err
	}
	for i := range in {
		for _, e := range mixes[4*i : 4*i+4] {
			if e.CostNanoUSD == nil || *e.CostNanoUSD < 0 || *e.CostNanoUSD > maxWant {
				in[i].NanoUSD = nil
				break
			}
			if in[i].NanoUSD == nil || *e.CostNanoUSD > *in[i].NanoUSD {
				in[i].NanoUSD = e.CostNanoUSD
			}
		}
		in[i].NanoUSD = in[i].guessed.bounded(in[i].NanoUSD)
	}
	return nil
}

// mayBeCapped reports whether there is an account for one of the calls. It also returns the epics of their
// tasks: these never change, so they are read ahead of the transaction that takes the reservations.
func (b *Accounts) mayBeCapped(ctx context.Context, namespace string, in []Reservation) (epics map[string]string, capped bool, err error) {
	found, epics, err := b.store.AccountsOfCalls(ctx, namespace, accountsOf(in, nil), taskIDs(in))
	capped = slices.ContainsFunc(in, func(r Reservation) bool { return len(r.Runs) > 0 }) || slices.ContainsFunc(found, func(a ledger.Account) bool { return a.Bounds() })
	return epics, capped, err
}

func reserve(ctx context.Context, tx store.Tx, namespace string, lease time.Duration, in []Reservation, epics map[string]string) ([]Reserved, error) {
	if err := takeOver(ctx, tx, namespace, in); err != nil {
		return nil, err
	}
	accounts, known, err := openAccounts(ctx, tx, namespace, in, epics)
	if err != nil {
		return nil, err
	}
	out := make([]Reserved, len(in))
	var held []ledger.Held
	taken := map[ledger.ID]*ledger.Account{}
	for i := range in {
		key := reservedAs(in[i].Key)
		if answer, again := known[key]; again {
			out[i] = answer
			continue
		}
		h := holding(key, in[i], epics, accounts)
		of := make([]*ledger.Account, len(h.Accounts))
		for j, id := range h.Accounts {
			of[j] = accounts[id]
		}
		out[i].Capped = len(of) > 0
		out[i].Refusal = ledger.Unestimated(of, in[i].guessed.tokens, in[i].guessed.money)
		if out[i].Refusal == nil {
			out[i].Soft, out[i].Refusal = ledger.Reserve(of, in[i].Want)
		}
		if known[key] = out[i]; out[i].Refusal != nil || len(of) == 0 {
			continue
		}
		held = append(held, h)
		for _, id := range h.Accounts {
			taken[id] = accounts[id]
		}
	}
	return out, tx.TakeReservations(ctx, namespace, held, lease, inOrder(taken))
}

// takeOver gives reservations that are there to the owners that ask for their calls again, unless a
// later owner has asked. So what an earlier owner gives back late is not that of a call which is made.
func takeOver(ctx context.Context, tx store.Tx, namespace string, in []Reservation) error {
	owners := map[usage.Key]int64{}
	for i := range in {
		if k := reservedAs(in[i].Key); in[i].Incarnation > owners[k] {
			owners[k] = in[i].Incarnation
		}
	}
	if len(owners) == 0 {
		return nil
	}
	there, err := tx.Reservations(ctx, namespace, slices.SortedFunc(maps.Keys(owners), usage.Key.Compare))
	if err != nil {
		return err
	}
	var later []ledger.Held
	for _, h := range there {
		if owner := owners[h.Key]; owner > h.Incarnation {
			h.Incarnation = owner
			later = append(later, h)
		}
	}
	return tx.OwnReservations(ctx, namespace, later)
}

func taskIDs(in []Reservation) []string {
	seen := map[string]bool{}
	for i := range in {
		if in[i].TaskID != "" {
			seen[in[i].TaskID] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// levels are the accounts that a call may belong to, whether they exist or not.
func levels(taskID, epicID string, epics map[string]string) []ledger.ID {
	out := []ledger.ID{{Level: ledger.Namespace}}
	if of, ok := epics[taskID]; ok {
		epicID = of
	}
	if epicID != "" {
		out = append(out, ledger.ID{Level: ledger.Epic, Name: epicID})
	}
	if taskID != "" {
		out = append(out, ledger.ID{Level: ledger.Task, Name: taskID})
	}
	return out
}

// holding is a reservation of those of its accounts that have caps.
func holding(key usage.Key, r Reservation, epics map[string]string, accounts map[ledger.ID]*ledger.Account) ledger.Held {
	h := ledger.Held{
		Key: key, Amount: r.Amount(), Unpriced: r.NanoUSD == nil, Kind: max(r.Kind, usage.Model), TaskID: r.TaskID, EpicID: r.EpicID,
		Provider: r.Provider, Model: r.Model, Incarnation: r.Incarnation,
	}
	if of, ok := epics[r.TaskID]; ok {
		h.EpicID = of
	}
	of := levels(r.TaskID, r.EpicID, epics)
	for _, run := range r.Runs {
		of = append(of, ledger.ID{Level: ledger.Run, Name: run.RunID})
	}
	for _, id := range of {
		if a := accounts[id]; a != nil && a.Bounds() && !slices.Contains(h.Accounts, id) {
			h.Accounts = append(h.Accounts, id)
		}
	}
	return h
}

// accountsOf are the accounts that some calls may belong to, in the order of their locks.
func accountsOf(in []Reservation, epics map[string]string) []ledger.ID {
	wanted := map[ledger.ID]bool{}
	for i := range in {
		for _, id := range levels(in[i].TaskID, in[i].EpicID, epics) {
			wanted[id] = true
		}
		for _, r := range in[i].Runs {
			wanted[ledger.ID{Level: ledger.Run, Name: r.RunID}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(wanted), ledger.ID.Compare)
}

// openRuns opens those accounts of runs that are not there. A run has spent what it is told to have
// used, or what is booked of it if that is more: its calls are booked while its budget is on the way
// here. The lock of the totals tells which bookings those are: one that has the lock later finds the
// account. The locks of other accounts come before that of the totals, so this is a transaction of its
// own.
func (b *Accounts) openRuns(ctx context.Context, namespace string, in []Reservation) error {
	runs := map[ledger.ID]ledger.Account{}
	for i := range in {
		for _, r := range in[i].Runs {
			id := ledger.ID{Level: ledger.Run, Name: r.RunID}
			runs[id] = ledger.Account{ID: id, Hard: r.Hard, Soft: r.Soft, Spent: r.Spent}
		}
	}
	if len(runs) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(maps.Keys(runs), ledger.ID.Compare)
	there, err := view(ctx, b, namespace, func(ctx context.Context, r store.Reader) ([]ledger.Account, error) {
		return r.Accounts(ctx, namespace, sorted)
	})
	if err != nil {
		return err
	}
	for _, a := range there {
		delete(runs, a.ID)
	}
	if len(runs) == 0 {
		return nil
	}
	return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.LockNamespaceTotals(ctx, namespace); err != nil {
			return err
		}
		var names []string
		var fresh []ledger.Account
		for _, id := range slices.SortedFunc(maps.Keys(runs), ledger.ID.Compare) {
			names, fresh = append(names, id.Name), append(fresh, runs[id])
		}
		booked, err := tx.BookedOfRuns(ctx, namespace, names)
		if err != nil {
			return err
		}
		for i := range fresh {
			a, own := &fresh[i], booked[fresh[i].Name]
			a.Spent = ledger.Amount{Tokens: max(a.Spent.Tokens, own.Tokens), NanoUSD: max(a.Spent.NanoUSD, own.NanoUSD)}
			beyond := a.Spent.Minus(own)
			a.Beyond = &beyond
		}
		return tx.OpenAccounts(ctx, namespace, fresh)
	})
}

// openAccounts locks the accounts of some calls and gives those of runs the caps that they have now. It also
// returns those of the calls that are reserved or booked: whoever reserves for the same call holds the same
// accounts, so it has ended once they are locked. A call that was booked at its estimate still has its
// reservation.
func openAccounts(ctx context.Context, tx store.Tx, namespace string, in []Reservation, epics map[string]string) (map[ledger.ID]*ledger.Account, map[usage.Key]Reserved, error) {
	runs := map[ledger.ID]RunCaps{}
	keys := make([]usage.Key, len(in))
	for i := range in {
		keys[i] = reservedAs(in[i].Key)
		for _, r := range in[i].Runs {
			runs[ledger.ID{Level: ledger.Run, Name: r.RunID}] = r
		}
	}
	locked, there, err := tx.LockForCalls(ctx, namespace, accountsOf(in, epics), keys)
	if err != nil {
		return nil, nil, err
	}
	known := make(map[usage.Key]Reserved, len(there))
	for _, k := range there {
		known[k] = Reserved{Capped: true}
	}
	out := make(map[ledger.ID]*ledger.Account, len(locked))
	for i := range locked {
		a := &locked[i]
		if r, ok := runs[a.ID]; ok {
			a.Hard, a.Soft = r.Hard, r.Soft
		}
		out[a.ID] = a
	}
	return out, known, nil
}

// putAccounts writes accounts in the order in which they are locked.
func putAccounts(ctx context.Context, tx store.Tx, namespace string, accounts map[ledger.ID]*ledger.Account) error {
	return tx.PutAccounts(ctx, namespace, inOrder(accounts))
}

// inOrder are accounts in the order in which they are locked.
func inOrder(accounts map[ledger.ID]*ledger.Account) []ledger.Account {
	out := make([]ledger.Account, 0, len(accounts))
	for _, id := range slices.SortedFunc(maps.Keys(accounts), ledger.ID.Compare) {
		out = append(out, *accounts[id])
	}
	return out
}

// Release gives back what was reserved for calls that were not made, and takes back what was booked for them
// at their estimate. Unknown ones are no error.
func (b *Accounts) Release(ctx context.Context, namespace string, keys []usage.Key) error {
	calls := make([]Call, len(keys))
	for i := range keys {
		calls[i].Key = keys[i]
	}
	return b.ReleaseCalls(ctx, namespace, calls)
}

// ReleaseCalls is Release for owners: what a later owner of the run has asked for stays reserved. Only
// the keys and the incarnations of calls count.
func (b *Accounts) ReleaseCalls(ctx context.Context, namespace string, calls []Call) error {
	if len(calls) > MaxReservations {
		return errs.New(errs.InvalidArgument, ReasonTooManyReservations, "%d releases at once, the limit is %d", len(calls), MaxReservations)
	}
	keys, owners := make([]usage.Key, len(calls)), map[usage.Key]int64{}
	for i := range calls {
		keys[i] = reservedAs(calls[i].Key)
		owners[keys[i]] = max(owners[keys[i]], calls[i].Incarnation)
	}
	keys = executors(keys)
	late := func(h ledger.Held) bool { return owners[h.Key] > 0 && owners[h.Key] < h.Incarnation }
	estimated, err := b.unreserve(ctx, namespace, keys, late)
	if err != nil || !estimated {
		return err
	}
	_, _, err = b.bookHeld(ctx, namespace, keys, func(held []ledger.Held, now time.Time) (out []usage.Entry) {
		for _, h := range held {
			if h.Estimated && !late(h) {
				out = append(out, estimateOf(h, now).Reversed())
			}
		}
		return out
	})
	return err
}

// unreserve gives back what is reserved under keys, which are sorted, except where keep holds.
// estimated says that some were booked at their estimates, and so are not reserved any more.
func (b *Accounts) unreserve(ctx context.Context, namespace string, keys []usage.Key, keep func(ledger.Held) bool) (estimated bool, err error) {
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		held, err := tx.LockReservations(ctx, namespace, keys)
		if err != nil {
			return err
		}
		held = slices.DeleteFunc(held, keep)
		n := len(held)
		held = slices.DeleteFunc(held, func(h ledger.Held) bool { return h.Estimated })
		estimated = len(held) < n
		var of []ledger.ID
		for _, h := range held {
			of = append(of, h.Accounts...)
		}
		accounts, err := lockAccounts(ctx, tx, namespace, of)
		if err != nil {
			return err
		}
		for _, h := range held {
			giveBack(accounts, h)
		}
		if err := tx.DeleteReservations(ctx, namespace, keysOf(held)); err != nil {
			return err
		}
		return putAccounts(ctx, tx, namespace, accounts)
	})
	return estimated, err
}

// giveBack frees what a reservation has taken from those of the accounts that are there.
func giveBack(accounts map[ledger.ID]*ledger.Account, h ledger.Held) {
	for _, id := range h.Accounts {
		if a := accounts[id]; a != nil {
			a.Reserved = a.Reserved.Minus(h.Amount)
		}
	}
}

// executors are keys as those of reservations, each once and in order.
func executors(keys []usage.Key) []usage.Key {
	out := make([]usage.Key, len(keys))
	for i := range keys {
		out[i] = reservedAs(keys[i])
	}
	slices.SortFunc(out, usage.Key.Compare)
	return slices.Compact(out)
}

func keysOf(held []ledger.Held) []usage.Key {
	out := make([]usage.Key, len(held))
	for i := range held {
		out[i] = held[i].Key
	}
	return out
}

// lockAccounts locks those of the accounts that exist.
func lockAccounts(ctx context.Context, tx store.Tx, namespace string, accounts []ledger.ID) (map[ledger.ID]*ledger.Account, error) {
	slices.SortFunc(accounts, ledger.ID.Compare)
	locked, err := tx.LockAccounts(ctx, namespace, slices.Compact(accounts))
	if err != nil {
		return nil, err
	}
	out := make(map[ledger.ID]*ledger.Account, len(locked))
	for i := range locked {
		out[locked[i].ID] = &locked[i]
	}
	return out, nil
}
