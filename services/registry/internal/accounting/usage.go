package accounting

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// entryPrefix starts the id of every usage entry.
const entryPrefix = "us"

// RecordUsage books entries, each at most once by its key, and adds the new ones to their task, epic and
// namespace. It returns them in order as they are booked. The caller decides about the key space: clients
// cannot reach the executor's keys. Of the executor's entries the first one of a key stays, whatever comes
// later; a client whose entry differs from the one under its key is refused, and nothing is booked. Costs
// that would overflow a sum are refused to clients; the executor's calls are booked without them, as calls
// without a price. A missing task or epic gets nothing, but the namespace does: the usage was real.
func (b *Accounts) RecordUsage(ctx context.Context, namespace string, in []usage.Entry) (out []usage.Entry, err error) {
	now, source, principal := dbkit.Now(), usage.Client, request.Caller(ctx)
	if access.Of(ctx).IsService() {
		source = usage.Executor
	}
	in = slices.Clone(in)
	for i := range in {
		in[i].Source, in[i].Principal, in[i].Time = source, principal, dbkit.Micros(in[i].Time)
	}
	unique, at := distinct(in, now)
	// Prices never change, so they are looked up before others have to wait.
	if err := b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error { return price(ctx, r, namespace, unique) }); err != nil {
		return nil, err
	}
	record := func(unpriced bool) error {
		return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
			booked, err := book(ctx, tx, namespace, slices.Clone(unique), unpriced, now)
			if err != nil {
				return err
			}
			out = make([]usage.Entry, len(in))
			for i, j := range at {
				if source == usage.Client && !in[i].Repeats(booked[j]) {
					return otherUsage(i, in[i].Key)
				}
				out[i] = booked[j]
			}
			return nil
		})
	}
	err = record(false)
	if source == usage.Executor && errs.ReasonOf(err) == usage.ReasonOutOfRange {
		// A run cannot reduce its usage, and a refused entry comes again until it is booked.
		err = record(true)
	}
	return out, err
}

func otherUsage(i int, k usage.Key) error {
	field := fmt.Sprintf("entries[%d]", i)
	return errs.New(errs.InvalidArgument, ReasonRequestIDReused, "call %d of attempt %d of %s/%s came earlier with other figures", k.Call, k.Attempt, k.RunID, k.NodeID).
		Violate(field, ReasonRequestIDReused, "its key is taken by an entry that says something else").
		Hint("give every call a key of its own; an entry that is booked cannot be changed")
}

// PriceUsage returns entries with what they would cost if they were booked.
func (b *Accounts) PriceUsage(ctx context.Context, namespace string, in []usage.Entry) ([]usage.Entry, error) {
	out, now := slices.Clone(in), dbkit.Now()
	for i := range out {
		if out[i].Time = dbkit.Micros(out[i].Time); out[i].Time.IsZero() {
			out[i].Time = now
		}
	}
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) ([]usage.Entry, error) {
		return out, price(ctx, r, namespace, out)
	})
}

// price sets what entries cost by the price book.
func price(ctx context.Context, r store.Reader, namespace string, entries []usage.Entry) error {
	models := make([]string, 0, len(entries))
	for i := range entries {
		models = append(models, entries[i].Model)
	}
	slices.Sort(models)
	prices, err := r.PriceBook(ctx, namespace, slices.Compact(models))
	if err != nil {
		return err
	}
	for i := range entries {
		prices.Price(&entries[i])
	}
	return nil
}

// distinct completes entries, drops repeated keys but the first, and sorts by key, the one order in which
// everybody books. at gives for each entry of in its index in unique.
func distinct(in []usage.Entry, now time.Time) (unique []usage.Entry, at []int) {
	firsts := make(map[usage.Key]bool, len(in))
	for _, e := range in {
		if firsts[e.Key] {
			continue
		}
		firsts[e.Key] = true
		e.ID = ids.New(entryPrefix)
		e.Kind = max(e.Kind, usage.Model)
		if e.Time.IsZero() {
			e.Time = now
		}
		unique = append(unique, e)
	}
	slices.SortFunc(unique, func(a, b usage.Entry) int { return a.Compare(b.Key) })
	place := make(map[usage.Key]int, len(unique))
	for i, e := range unique {
		place[e.Key] = i
	}
	at = make([]int, len(in))
	for i, e := range in {
		at[i] = place[e.Key]
	}
	return unique, at
}

// book books entries, without their costs if unpriced is set.
func book(ctx context.Context, tx store.Tx, namespace string, entries []usage.Entry, unpriced bool, now time.Time) ([]usage.Entry, error) {
	epics, tasks, err := payers(ctx, tx, namespace, entries)
	if err != nil {
		return nil, err
	}
	if unpriced {
		for i := range entries {
			entries[i].CostNanoUSD, entries[i].PriceID = nil, ""
		}
	}
	booked, fresh, err := tx.Book(ctx, namespace, entries)
	if err != nil {
		return nil, err
	}
	settled, err := settle(ctx, tx, namespace, booked, fresh, now)
	if err != nil {
		return nil, err
	}
	counted := booked
	if len(settled.reversals) > 0 {
		slices.SortFunc(settled.reversals, func(a, b usage.Entry) int { return a.Compare(b.Key) })
		taken, added, err := tx.Book(ctx, namespace, settled.reversals)
		if err != nil {
			return nil, err
		}
		counted, fresh = append(slices.Clone(booked), taken...), append(slices.Clone(fresh), added...)
	}
	most := int64(math.MaxInt64)
	if len(entries) > 0 && entries[0].Source == usage.Client {
		most = usage.ClientShare
	}
	var sum usage.Totals
	epicSums, taskSums := map[string]usage.Totals{}, map[string]usage.Totals{}
	for i, e := range counted {
		if !fresh[i] {
			continue
		}
		one, err := e.Totals()
		if err != nil {
			return nil, err
		}
		if sum, err = sum.Plus(one); err != nil {
			return nil, err
		}
		if v, ok := epics[e.EpicID]; ok {
			if err := add(epicSums, e.EpicID, v, one, most); err != nil {
				return nil, err
			}
		}
		if v, ok := tasks[e.TaskID]; ok {
			if err := add(taskSums, e.TaskID, v.Totals, one, most); err != nil {
				return nil, err
			}
		}
	}
	if !slices.Contains(fresh, true) {
		return booked, nil
	}
	if err := tx.PutTotals(ctx, namespace, epicSums, taskSums, now); err != nil {
		return nil, err
	}
	if err := stopOverspent(ctx, tx, namespace, slices.Sorted(maps.Keys(epicSums)), now); err != nil {
		return nil, err
	}
	// The one row that everybody wants comes last and is held for the shortest time.
	all, err := tx.LockNamespaceTotals(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if all, err = all.Plus(sum); err != nil {
		return nil, err
	}
	if err := all.Within(most); err != nil {
		return nil, err
	}
	if err := tx.PutNamespaceTotals(ctx, namespace, all); err != nil {
		return nil, err
	}
	// No sum of days, runs or epics is above the totals of the namespace, which are in range.
	if err := sumUp(ctx, tx, namespace, counted, fresh); err != nil {
		return nil, err
	}
	return booked, settled.finish(ctx, tx, namespace)
}

// payers locks the epics that pay, sets the epic of each entry that names a task, and returns both.
func payers(ctx context.Context, tx store.Tx, namespace string, entries []usage.Entry) (map[string]usage.Totals, map[string]store.TaskTotals, error) {
	var taskIDs, epicIDs []string
	for _, e := range entries {
		if e.TaskID != "" {
			taskIDs = append(taskIDs, e.TaskID)
		}
		if e.EpicID != "" {
			epicIDs = append(epicIDs, e.EpicID)
		}
	}
	slices.Sort(taskIDs)
	taskIDs = slices.Compact(taskIDs)
	tasks := map[string]store.TaskTotals{}
	var err error
	if len(taskIDs) > 0 {
		if tasks, err = tx.TaskTotals(ctx, namespace, taskIDs); err != nil {
			return nil, nil, err
		}
	}
	for i := range entries {
		// The epic of a task never changes, so it may be read ahead of the lock.
		if t, ok := tasks[entries[i].TaskID]; ok {
			entries[i].EpicID = t.EpicID
			epicIDs = append(epicIDs, t.EpicID)
		}
	}
	of, err := reservedEpics(ctx, tx, namespace, entries, tasks)
	if err != nil {
		return nil, nil, err
	}
	epicIDs = append(epicIDs, of...)
	slices.Sort(epicIDs)
	if epicIDs = slices.Compact(epicIDs); len(epicIDs) == 0 {
		return nil, tasks, nil
	}
	epics, err := tx.LockSpent(ctx, namespace, epicIDs)
	if err != nil {
		return nil, nil, err
	}
	if len(taskIDs) > 0 {
		if tasks, err = tx.TaskTotals(ctx, namespace, taskIDs); err != nil {
			return nil, nil, err
		}
	}
	return epics, tasks, nil
}

// reservedEpics sets the epics of entries whose tasks are gone: those that their calls were reserved from.
func reservedEpics(ctx context.Context, tx store.Tx, namespace string, entries []usage.Entry, tasks map[string]store.TaskTotals) (epics []string, err error) {
	gone := map[usage.Key]int{}
	for i := range entries {
		e := &entries[i]
		if _, there := tasks[e.TaskID]; !there && e.TaskID != "" && e.EpicID == "" && e.Source == usage.Executor {
			gone[e.Key] = i
		}
	}
	held, err := tx.Reservations(ctx, namespace, slices.SortedFunc(maps.Keys(gone), usage.Key.Compare))
	for _, h := range held {
		if h.EpicID != "" {
			entries[gone[h.Key]].EpicID = h.EpicID
			epics = append(epics, h.EpicID)
		}
	}
	return epics, err
}

func add(sums map[string]usage.Totals, id string, base, one usage.Totals, most int64) error {
	have, ok := sums[id]
	if !ok {
		have = base
	}
	sum, err := have.Plus(one)
	if err != nil {
		return err
	}
	sums[id] = sum
	return sum.Within(most)
}

// Entries lists usage entries.
func (b *Accounts) Entries(ctx context.Context, q store.EntryQuery) ([]usage.Entry, error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) ([]usage.Entry, error) { return r.Entries(ctx, q) })
}

// NamespaceTotals is what a namespace has used in all.
func (b *Accounts) NamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (usage.Totals, error) {
		return r.NamespaceTotals(ctx, namespace)
	})
}
