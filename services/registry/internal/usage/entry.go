// Package usage owns the usage of calls and its cost: entries and their keys, the dated price book, exact
// arithmetic on money, and totals. It must not know any database or protocol, nor epics and tasks beyond
// their ids. Money is integer nano-USD.
package usage

import (
	"cmp"
	"math"
	"time"
)

// Kind is the kind of the called thing. Its numbers are those of the API and of the stores.
type Kind int16

// The kinds. The zero value counts as Model.
const (
	Model Kind = iota + 1
	Tool
	// Overhead is a model called for what an agent reasons for no task.
	Overhead
	// Embedding is a model called for vectors of the memory.
	Embedding
)

// Source is the reporter of a call. Its numbers are those of the API and of the stores.
type Source int16

// The sources.
const (
	// Executor made the call. Its outbox delivers one entry any number of times, always the same.
	Executor Source = iota + 1
	// Client is whoever has an API key.
	Client
	// Estimate is what a call may have used whose reservation was forgotten.
	Estimate
	// Reversal takes an estimate back, once it is known what the call really used.
	Reversal
)

// Key identifies a booked call of a namespace. Each source has keys of its own, so that none can take
// another's.
type Key struct {
	Source                     Source
	RunID, NodeID              string `json:",omitempty"`
	Visit, Item, Attempt, Call int32  `json:",omitempty"`
}

// Compare orders keys, so that all who book several take them in the same order.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Source, o.Source), cmp.Compare(k.RunID, o.RunID), cmp.Compare(k.NodeID, o.NodeID), cmp.Compare(k.Visit, o.Visit),
		cmp.Compare(k.Item, o.Item), cmp.Compare(k.Attempt, o.Attempt), cmp.Compare(k.Call, o.Call))
}

// Entry is one booked call. Entries are added and never changed.
type Entry struct {
	Key
	// ID orders entries of the same time; it is not part of the key.
	ID              string `json:",omitempty"`
	Kind            Kind   `json:",omitempty"`
	TaskID, EpicID  string `json:",omitempty"`
	Provider, Model string `json:",omitempty"`
	// Actor is that which made the call; it may be empty.
	Actor                          string `json:",omitempty"`
	InputTokens, CachedInputTokens int64  `json:",omitempty"`
	OutputTokens, ReasoningTokens  int64  `json:",omitempty"`
	// CostNanoUSD is by the price with PriceID, else what the call says itself that it cost, else nil.
	CostNanoUSD *int64 `json:",omitempty"`
	PriceID     string `json:",omitempty"`
	Time        time.Time
	Failed      bool `json:",omitempty"`
	// DurationMS is how long the attempt took that made the call, on its first call alone; 0 if it is not
	// known.
	DurationMS int64 `json:",omitempty"`
	// By is who recorded it as they say themselves, Principal who did by the API key that was shown.
	By, Principal string `json:",omitempty"`
}

// Repeats reports whether an entry equals the one that is booked under its key. Added fields do not count,
// nor a time that is left open, nor a duration, which versions before did not keep, nor a cost that the price
// book replaced.
func (e Entry) Repeats(booked Entry) bool {
	if booked.PriceID == "" && !sameCost(e.CostNanoUSD, booked.CostNanoUSD) {
		return false
	}
	e.ID, e.Principal, e.CostNanoUSD, e.PriceID = booked.ID, booked.Principal, booked.CostNanoUSD, booked.PriceID
	e.DurationMS = booked.DurationMS
	if e.Time.IsZero() {
		e.Time = booked.Time
	}
	if e.TaskID != "" {
		e.EpicID = booked.EpicID // that of the task
	}
	e.Kind = max(e.Kind, Model)
	return e == booked
}

func sameCost(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// Totals is a sum of entries.
type Totals struct {
	Tokens, NanoUSD int64
	// UnpricedCalls counts calls without a known price; tools that used no tokens are not among them.
	UnpricedCalls int64
	// OverheadTokens and OverheadNanoUSD are the part that agents' own reasoning has in the first two.
	OverheadTokens, OverheadNanoUSD int64
	ModelCalls, ToolCalls           int64
}

// Reversed is the entry that takes back this one, which is an estimate.
func (e Entry) Reversed() Entry {
	e.Source = Reversal
	e.InputTokens, e.CachedInputTokens, e.OutputTokens, e.ReasoningTokens = -e.InputTokens, -e.CachedInputTokens, -e.OutputTokens, -e.ReasoningTokens
	if e.CostNanoUSD != nil {
		cost := -*e.CostNanoUSD
		e.CostNanoUSD = &cost
	}
	return e
}

// Totals returns what the entry alone adds up to.
func (e Entry) Totals() (Totals, error) {
	if e.Source == Reversal {
		e = e.Reversed()
		e.Source = Estimate
		t, err := e.Totals()
		return Totals{}.minus(t), err
	}
	var t Totals
	var err error
	if t.Tokens, err = Add(e.InputTokens, e.OutputTokens); err != nil {
		return Totals{}, err
	}
	if e.CostNanoUSD != nil {
		t.NanoUSD = *e.CostNanoUSD
	} else if e.Kind != Tool || t.Tokens > 0 {
		t.UnpricedCalls = 1
	}
	switch e.Kind {
	case Tool:
		t.ToolCalls = 1
	case Overhead:
		t.OverheadTokens, t.OverheadNanoUSD = t.Tokens, t.NanoUSD
		t.ModelCalls = 1
	default:
		t.ModelCalls = 1
	}
	return t, nil
}

// minus returns the difference; both are sums of few entries, so it is in range.
func (t Totals) minus(o Totals) Totals {
	a, b := t.parts(), o.parts()
	for i := range a {
		*a[i] -= *b[i]
	}
	return t
}

// Plus returns the sum of both, or an error if a part of it is out of range.
func (t Totals) Plus(o Totals) (Totals, error) {
	a, b := t.parts(), o.parts()
	for i := range a {
		sum, err := Add(*a[i], *b[i])
		if err != nil {
			return Totals{}, err
		}
		*a[i] = sum
	}
	return t, nil
}

// ClientShare is how far clients may take a sum. The rest of its range is left to executors, so that no
// client can keep them from booking what runs use.
const ClientShare = math.MaxInt64 / 2

// Within returns an error if a part of the sum is above most.
func (t Totals) Within(most int64) error {
	for _, p := range t.parts() {
		if *p > most {
			return outOfRange()
		}
	}
	return nil
}

// parts points into t, which Plus has as its own copy.
func (t *Totals) parts() [7]*int64 {
	return [...]*int64{&t.Tokens, &t.NanoUSD, &t.UnpricedCalls, &t.OverheadTokens, &t.OverheadNanoUSD, &t.ModelCalls, &t.ToolCalls}
}

// Size implements page.Row.
func (e Entry) Size() int {
	return 256 + len(e.RunID) + len(e.NodeID) + len(e.Provider) + len(e.Model) + len(e.Actor) + len(e.By) + len(e.Principal)
}
