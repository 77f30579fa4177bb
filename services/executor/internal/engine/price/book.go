// Package price asks what calls cost. It stops asking for a while for a namespace whose price book does not
// answer. The circuit breaker is by hand: a caller that gave up must count neither as a success nor as a
// failure, and the entry that was asked for last is what the probe asks for again.
package price

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Prices knows what calls cost.
type Prices interface {
	// Prices is what each entry costs in nano-USD, in their order; nil where no price is known. Nothing is
	// booked.
	Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error)
}

const (
	// askTime is how long prices are waited for.
	askTime = 2 * time.Second
	// Pause is how long nobody asks again after nobody answered.
	Pause = time.Second
)

// Book asks for prices, and stops asking for a while where nobody answers. It is safe for concurrent use.
type Book struct {
	prices Prices
	Fuses  fuses
	log    *slog.Logger
}

// New asks prices; nil if that is nil.
func New(prices Prices, log *slog.Logger) *Book {
	if prices == nil {
		return nil
	}
	return &Book{prices: prices, log: log}
}

// errPricesAway answers for a price book that has just not answered.
var errPricesAway = errs.New(errs.Unavailable, "PRICES_AWAY", "the price book did not answer a moment ago")

// fuses are those of all namespaces: one whose price book does not answer, since it calls it too often itself
// for instance, keeps no other from asking. It is safe for concurrent use.
type fuses struct {
	mu sync.Mutex
	by map[string]*fuse
}

func (f *fuses) of(namespace string) *fuse {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*fuse{}
	}
	if f.by[namespace] == nil {
		f.by[namespace] = &fuse{}
	}
	return f.by[namespace]
}

// All are the fuses by namespace.
func (f *fuses) All() map[string]*fuse {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// fuse lets nobody ask for a while what has just not answered, and then one at a time until it answers. The
// zero value lets everybody ask. It is safe for concurrent use.
type fuse struct {
	mu      sync.Mutex
	until   time.Time // zero while all is well
	probing bool
	// entry is what was asked for last without an answer.
	entry outbox.Entry
	// back says that it answered again since somebody last looked.
	back bool
}

// enter reports whether the caller may ask; then leave must be called.
func (f *fuse) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return true
	}
	if f.probing || time.Now().Before(f.until) {
		return false
	}
	f.probing = true
	return true
}

// leave tells how asking for entry went; asked says that the caller did not give up meanwhile.
func (f *fuse) leave(asked, answered bool, entry outbox.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing = false
	switch {
	case !asked:
	case answered:
		f.back = f.back || !f.until.IsZero()
		f.until = time.Time{}
	default:
		f.until, f.entry = time.Now().Add(Pause), entry
	}
}

// Blown is what to ask for while there is no answer.
func (f *fuse) Blown() (entry outbox.Entry, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry, !f.until.IsZero()
}

// CameBack reports, once, that there was an answer after there was none.
func (f *fuse) CameBack() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	back := f.back
	f.back = false
	return back
}

// unanswered reports whether an error says nothing of prices: asking again may help.
func unanswered(err error) bool {
	return err != nil && !errs.Is(err, errs.InvalidArgument) && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.FailedPrecondition)
}

// Ask finds out what entries cost. One that the price book refuses has no price.
func (b *Book) Ask(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	fuse := b.Fuses.of(namespace)
	if !fuse.enter() {
		return nil, errPricesAway
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	costs, err := b.prices.Prices(asking, namespace, entries)
	if err == nil && len(costs) != len(entries) {
		err = errs.New(errs.Internal, errs.ReasonInternal, "%d prices for %d calls", len(costs), len(entries))
	}
	// A caller that gave up meanwhile knows nothing of the price book.
	fuse.leave(ctx.Err() == nil, !unanswered(err), entries[0])
	if err != nil && !unanswered(err) {
		b.log.WarnContext(ctx, "calls are not priced, so they do not count against their run's budget", "err", err)
		return make([]*int64, len(entries)), nil
	}
	return costs, err
}

// Priced is usage in the form in which its price is asked for. It is in no books.
func Priced(runID string, u *workgraph.Usage, at time.Time, call int) outbox.Entry {
	return outbox.Entry{RunID: runID, Call: call, Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens, Time: at, Tool: u.Model == ""}
}

// SpentBefore is what a run has spent that gets its first cap in money, as far as the price book answers; the
// machine has it settled in any case.
func (b *Book) SpentBefore(ctx context.Context, row journal.Run, prior []workgraph.Unsettled) (sum int64) {
	entries := make([]outbox.Entry, len(prior))
	for i := range prior {
		entries[i] = Priced(row.ID, &prior[i].Usage, prior[i].At, i)
	}
	costs, err := b.Ask(ctx, row.Namespace, entries)
	if err != nil {
		return 0
	}
	for i, cost := range costs {
		if cost == nil {
			cost = prior[i].Usage.CostNanoUSD
		}
		if cost != nil && sum <= math.MaxInt64-max(*cost, 0) {
			sum += max(*cost, 0)
		}
	}
	return sum
}
