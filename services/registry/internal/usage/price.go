package usage

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
)

const (
	// PricePrefix starts the id of every price.
	PricePrefix = "pr"
	// ReasonOutOfRange refuses amounts whose sum does not fit into 64 bits.
	ReasonOutOfRange = "AMOUNT_OUT_OF_RANGE"
	// ReasonModelPattern refuses a "*" that is not the last character.
	ReasonModelPattern = "MODEL_PATTERN_INVALID"

	// MaxRate is the highest price of a million tokens: the largest call that an executor books, with a
	// million million tokens of input and as many of output, has a cost that fits into 64 bits.
	MaxRate = math.MaxInt64 / (2 * million)

	million = 1_000_000
)

// Price is what a model costs from some time on, in nano-USD per million tokens.
type Price struct {
	// Namespace is empty for the prices that come with the registry.
	Namespace, ID   string
	Provider, Model string
	ValidFrom       time.Time
	// ValidUntil is where the next price of the same namespace, provider and model begins, else zero.
	ValidUntil time.Time
	Input      int64
	// CachedInput is nil for the same as Input.
	CachedInput *int64
	Output      int64
	// Reasoning is nil for the same as Output.
	Reasoning *int64
	// Principal is who added it, from the API key that was shown.
	Principal string
}

// NewPrice returns in with an id, or InvalidArgument.
func NewPrice(namespace string, in Price) (Price, error) {
	if i := strings.IndexByte(in.Model, '*'); i >= 0 && i != len(in.Model)-1 {
		return Price{}, errs.New(errs.InvalidArgument, ReasonModelPattern, `a "*" may only end a model's name, not stand inside %q`, in.Model).
			Violate("price.model", ReasonModelPattern, `only the last character may be "*"`)
	}
	for _, rate := range []struct {
		field string
		nano  int64
	}{
		{"price.input_per_million", in.Input},
		{"price.cached_input_per_million", deref(in.CachedInput, 0)},
		{"price.output_per_million", in.Output},
		{"price.reasoning_per_million", deref(in.Reasoning, 0)},
	} {
		if rate.nano > MaxRate {
			return Price{}, errs.New(errs.InvalidArgument, ReasonOutOfRange, "a million tokens may cost at most %d nano-USD", int64(MaxRate)).
				Violate(rate.field, ReasonOutOfRange, "it is too high")
		}
	}
	in.Namespace, in.ID, in.ValidUntil = namespace, ids.New(PricePrefix), time.Time{}
	return in, nil
}

// SameRates reports whether both cost the same in every class of tokens.
func (p Price) SameRates(o Price) bool {
	return p.Input == o.Input && p.Output == o.Output && sameCost(p.CachedInput, o.CachedInput) && sameCost(p.Reasoning, o.Reasoning)
}

// Covers reports whether the price is for this call.
func (p Price) Covers(provider, model string, at time.Time) bool {
	if p.Provider != "" && p.Provider != provider {
		return false
	}
	if at.Before(p.ValidFrom) || !p.ValidUntil.IsZero() && !at.Before(p.ValidUntil) {
		return false
	}
	if prefix, ok := strings.CutSuffix(p.Model, "*"); ok {
		return strings.HasPrefix(model, prefix)
	}
	return p.Model == model
}

// Book is a set of prices to choose from.
type Book []Price

// Find returns the price of a call: one of the namespace before one that came with the registry,
// then the longest match of the model (an exact one is longer than any pattern), then one that names
// the provider, then the one that began last.
func (b Book) Find(provider, model string, at time.Time) (Price, bool) {
	best, found := Price{}, false
	for _, p := range b {
		if p.Covers(provider, model, at) && (!found || p.beats(best)) {
			best, found = p, true
		}
	}
	return best, found
}

// Covering returns the models with those of the patterns, which end in "*", that cover one of them.
func Covering(patterns, models []string) []string {
	sorted := slices.Sorted(slices.Values(models))
	out := slices.Clone(models)
	for _, p := range patterns {
		prefix := strings.TrimSuffix(p, "*")
		// Models that begin so stand together, and the first of them is the first that is not less.
		if i, _ := slices.BinarySearch(sorted, prefix); i < len(sorted) && strings.HasPrefix(sorted[i], prefix) {
			out = append(out, p)
		}
	}
	return out
}

func (p Price) beats(o Price) bool {
	if own, other := p.Namespace != "", o.Namespace != ""; own != other {
		return own
	}
	if a, b := p.specificity(), o.specificity(); a != b {
		return a > b
	}
	if named, other := p.Provider != "", o.Provider != ""; named != other {
		return named
	}
	return p.ValidFrom.After(o.ValidFrom)
}

func (p Price) specificity() int {
	if prefix, ok := strings.CutSuffix(p.Model, "*"); ok {
		return len(prefix)
	}
	return math.MaxInt
}

// Cost is the price of these tokens, rounded half up to a nano-USD once, at the end. Cached and
// reasoning tokens are parts of input and output; a provider that reports more of them than of the
// whole is taken to mean all of it.
func (p Price) Cost(e Entry) (int64, error) {
	cached := min(e.CachedInputTokens, e.InputTokens)
	reasoning := min(e.ReasoningTokens, e.OutputTokens)
	var sum wide
	for _, part := range []struct{ tokens, rate int64 }{
		{e.InputTokens - cached, p.Input},
		{cached, deref(p.CachedInput, p.Input)},
		{e.OutputTokens - reasoning, p.Output},
		{reasoning, deref(p.Reasoning, p.Output)},
	} {
		if part.tokens < 0 || part.rate < 0 {
			return 0, outOfRange()
		}
		// Four products of two 63-bit numbers always fit into 128 bits.
		sum.add(bits.Mul64(uint64(part.tokens), uint64(part.rate)))
	}
	sum.add(0, million/2)
	if sum.hi >= million {
		return 0, outOfRange()
	}
	q, _ := bits.Div64(sum.hi, sum.lo, million)
	if q > math.MaxInt64 {
		return 0, outOfRange()
	}
	return int64(q), nil
}

// Price sets the cost of an entry by the book. Without a price, or with one that makes the cost overflow 64
// bits, the reported cost stays, or the cost is unknown.
func (b Book) Price(e *Entry) {
	e.PriceID = ""
	p, ok := b.Find(e.Provider, e.Model, e.Time)
	if !ok {
		return
	}
	if cost, err := p.Cost(*e); err == nil {
		e.CostNanoUSD, e.PriceID = &cost, p.ID
	}
}

// Add returns the sum of two amounts, or an error if it does not fit.
func Add(a, b int64) (int64, error) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, outOfRange()
	}
	return a + b, nil
}

type wide struct{ hi, lo uint64 }

func (w *wide) add(hi, lo uint64) {
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

func deref(p *int64, or int64) int64 {
	if p == nil {
		return or
	}
	return *p
}

func outOfRange() error {
	return errs.New(errs.InvalidArgument, ReasonOutOfRange, "the amount does not fit into 64 bits")
}

// Size implements page.Row.
func (p Price) Size() int { return 256 + len(p.Provider) + len(p.Model) }
