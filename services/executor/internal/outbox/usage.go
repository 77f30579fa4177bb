package outbox

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// maxEntries is what one call of the registry takes.
	maxEntries = 1000
	// maxSplits bounds the search for the calls of one attempt that the registry does not take: each split is
	// two calls of the registry. It is enough to find three of a thousand.
	maxSplits = 32
)

// usage delivers as many leading usage items of a run as fit one call. When the registry refuses them for
// good it delivers the first alone, so that those without fault are booked.
func (d *Deliverer) usage(ctx context.Context, items []journal.OutboxItem) (n int, acks []journal.OutboxAck, err error) {
	b, err := gather(items)
	if err != nil {
		return 0, nil, err
	}
	acks, err = d.book(ctx, items, b)
	if len(b.ends) > 1 && unbookable(err) {
		if b, err = gather(items[:1]); err != nil {
			return 0, nil, err
		}
		acks, err = d.book(ctx, items, b)
	}
	return len(acks), acks, err
}

// batch is the calls of the leading usage items of a run.
type batch struct {
	entries []Entry
	// ends are the ends of the items' calls.
	ends []int
	// trace is that of the first item.
	trace Trace
}

// gather reads leading usage items, up to what one call takes, but one at least. One that cannot be read
// holds up none before it.
func gather(items []journal.OutboxItem) (b batch, err error) {
	for _, it := range items {
		if it.Kind != KindUsage {
			break
		}
		u, err := decode[Usage](it)
		switch {
		case err != nil && len(b.ends) == 0:
			return batch{}, err
		case err != nil || len(b.ends) > 0 && len(b.entries)+len(u.Entries) > maxEntries:
			return b, nil
		case len(b.ends) == 0:
			b.trace = u.Trace
		}
		b.entries = append(b.entries, u.Entries...)
		b.ends = append(b.ends, len(b.entries))
	}
	return b, nil
}

// book books a batch and returns an acknowledgement for each of its items. If an item is alone in the batch,
// calls that the registry never accepts are left out; they count as calls without a price.
func (d *Deliverer) book(ctx context.Context, items []journal.OutboxItem, b batch) (acks []journal.OutboxAck, err error) {
	ctx, end := d.begin(ctx, "usage", b.trace, items[0])
	defer func() { end(err) }()
	s := search{reg: d.reg, namespace: items[0].Namespace, whole: len(b.ends) > 1}
	costs, err := s.book(ctx, b.entries)
	if err != nil {
		return nil, err
	}
	if len(s.lost) > 0 {
		var tokens int64
		for _, e := range s.lost {
			tokens += e.InputTokens + e.OutputTokens
		}
		first := s.lost[0]
		d.o.Logger.ErrorContext(ctx, "usage is not booked: the registry refused it for good", "err", s.why, "run_id", items[0].RunID, "node", first.Node,
			"visit", first.Visit, "item", first.Item, "attempt", first.Attempt, "call", first.Call, "model", first.Model, "calls", len(s.lost), "tokens", tokens)
		d.refuse(ctx, KindUsage, len(s.lost))
	}
	from := 0
	for i, to := range b.ends {
		ack := journal.OutboxAck{ID: items[i].ID}
		for k, c := range costs[from:to] {
			e := &b.entries[from+k]
			ack.Calls, ack.InputTokens, ack.OutputTokens = ack.Calls+1, ack.InputTokens+e.InputTokens, ack.OutputTokens+e.OutputTokens
			if c == nil {
				ack.UnpricedCalls++
			} else {
				ack.CostNanoUSD += *c
			}
		}
		acks = append(acks, ack)
		from = to
	}
	return acks, nil
}

// search books calls and finds those that the registry never accepts.
type search struct {
	reg       Registry
	namespace string
	// whole says that all are booked or none.
	whole  bool
	splits int
	// lost are the calls that are not booked, why the last refusal.
	lost []Entry
	why  error
}

// book returns what each entry cost, nil for those that are lost.
func (s *search) book(ctx context.Context, entries []Entry) ([]*int64, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if len(entries) <= maxEntries {
		costs, err := s.reg.RecordUsage(ctx, s.namespace, entries)
		switch {
		case err == nil && len(costs) != len(entries):
			return nil, errs.New(errs.Internal, errs.ReasonInternal, "the registry priced %d of %d entries", len(costs), len(entries))
		case err == nil, s.whole, !unbookable(err):
			return costs, err
		case len(entries) == 1 || s.splits == maxSplits:
			s.lost, s.why = append(s.lost, entries...), err
			return make([]*int64, len(entries)), nil
		}
		s.splits++
	}
	half := len(entries) / 2
	front, err := s.book(ctx, entries[:half])
	if err != nil {
		return nil, err
	}
	rear, err := s.book(ctx, entries[half:])
	if err != nil {
		return nil, err
	}
	return append(front, rear...), nil
}

// unbookable reports whether the registry will never accept a call with these entries. A state that refuses
// it now may end, and usage is kept until then.
func unbookable(err error) bool {
	return err != nil && !passing(err) && !errs.Is(err, errs.FailedPrecondition)
}
