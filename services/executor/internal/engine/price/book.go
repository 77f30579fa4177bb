// Package price asks the price book what calls cost. If the price book does not answer for a namespace, the
// package stops asking for a while. The circuit breaker is its own code because a caller that gave up must
// count neither as a success nor as a failure, and because the probe repeats the entry that was asked for
// last.
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

// Prices is the price book.
type Prices interface {
	// Prices returns the price of each entry in nano-USD, in the order of the entries; nil where no price
	// is known. It books nothing.
	Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error)
}

const (
	// askTime bounds one request to the price book.
	askTime = 2 * time.Second
	// Pause is how long requests stop after one got no answer.
	Pause = time.Second
)

// Book asks for prices, and stops asking for a while if there is no answer. It is safe for concurrent use.
type Book struct {
	prices   Prices
	Breakers breakers
	log      *slog.Logger
}

// New returns a Book over prices, or nil if prices is nil.
func New(prices Prices, log *slog.Logger) *Book {
	if prices == nil {
		return nil
	}
	return &Book{prices: prices, log: log}
}

// errPricesAway is returned while a breaker is open.
var errPricesAway = errs.New(errs.Unavailable, "PRICES_AWAY", "the price book did not answer a moment ago")

// breakers has one breaker for each namespace, so that a namespace whose requests get no answer, because it
// makes too many, stops no other. It is safe for concurrent use.
type breakers struct {
	mu sync.Mutex
	by map[string]*breaker
}

func (f *breakers) of(namespace string) *breaker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*breaker{}
	}
	if f.by[namespace] == nil {
		f.by[namespace] = &breaker{}
	}
	return f.by[namespace]
}

// All returns the breakers by namespace.
func (f *breakers) All() map[string]*breaker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// breaker stops requests for a while after one got no answer, and then lets one request at a time through
// until one is answered. The zero value lets all through. It is safe for concurrent use.
type breaker struct {
	mu      sync.Mutex
	until   time.Time // zero while closed
	probing bool
	// entry is the last entry that got no answer.
	entry outbox.Entry
	// recovered is set when an answer came after none, until Recovered reads it.
	recovered bool
}

// enter reports whether the caller may ask. If so it must call leave afterwards.
func (f *breaker) enter() bool {
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

// leave reports the result of a request. asked is false if the caller gave up meanwhile.
func (f *breaker) leave(asked, answered bool, entry outbox.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing = false
	switch {
	case !asked:
	case answered:
		f.recovered = f.recovered || !f.until.IsZero()
		f.until = time.Time{}
	default:
		f.until, f.entry = time.Now().Add(Pause), entry
	}
}

// Open reports whether the breaker is open, and the entry to probe with.
func (f *breaker) Open() (entry outbox.Entry, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry, !f.until.IsZero()
}

// Recovered reports, once, that an answer came after there was none.
func (f *breaker) Recovered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	back := f.recovered
	f.recovered = false
	return back
}

// unanswered reports whether the price book gave no answer, so that asking again may help.
func unanswered(err error) bool {
	return err != nil && !errs.Is(err, errs.InvalidArgument) && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.FailedPrecondition)
}

// Ask returns the prices of entries. An entry that the price book refuses has no price.
func (b *Book) Ask(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	fuse := b.Breakers.of(namespace)
	if !fuse.enter() {
		return nil, errPricesAway
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	costs, err := b.prices.Prices(asking, namespace, entries)
	if err == nil && len(costs) != len(entries) {
		err = errs.New(errs.Internal, errs.ReasonInternal, "%d prices for %d calls", len(costs), len(entries))
	}
	// A request whose caller gave up proves nothing about the price book.
	fuse.leave(ctx.Err() == nil, !unanswered(err), entries[0])
	if err != nil && !unanswered(err) {
		b.log.WarnContext(ctx, "calls are not priced, so they do not count against their run's budget", "err", err)
		return make([]*int64, len(entries)), nil
	}
	return costs, err
}

// EntryOf is usage as the price book wants it. It is not for booking.
func EntryOf(runID string, u *workgraph.Usage, at time.Time, call int) outbox.Entry {
	return outbox.Entry{RunID: runID, Call: call, Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens, Time: at, Tool: u.Model == ""}
}

// SpentBefore is the money that a run has spent so far, when it gets its first cap in money, as far as the
// price book answers. The machine settles it in any case.
func (b *Book) SpentBefore(ctx context.Context, row journal.Run, prior []workgraph.Unsettled) (sum int64) {
	entries := make([]outbox.Entry, len(prior))
	for i := range prior {
		entries[i] = EntryOf(row.ID, &prior[i].Usage, prior[i].At, i)
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
