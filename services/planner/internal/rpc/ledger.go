package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
)

const (
	// remembered is how long it is remembered that a namespace has caps, while the registry is away.
	remembered = 24 * time.Hour
	// maxCapped bounds the namespaces of which that is remembered.
	maxCapped = 4096
)

// Ledger reserves, prices and books calls of models at the registry. It is safe for concurrent use.
type Ledger struct {
	client registryv1.RegistryServiceClient

	mu sync.Mutex
	// capped is until when namespaces count as such with caps while the registry is away, and all until
	// when every namespace does, since some were forgotten.
	capped map[string]time.Time
	all    time.Time
}

var _ author.Ledger = (*Ledger)(nil)

// NewLedger returns a ledger that asks the registry of client.
func NewLedger(client registryv1.RegistryServiceClient) *Ledger {
	return &Ledger{client: client, capped: map[string]time.Time{}}
}

// Price implements author.Ledger.
func (l *Ledger) Price(ctx context.Context, namespace string, calls []author.Call) ([]*int64, error) {
	r, err := l.client.PriceUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.PriceUsageRequest{Entries: entries("plan", calls)})
	if err != nil {
		return nil, away(err)
	}
	return costs(r.GetEntries(), len(calls))
}

// Book implements author.Ledger.
func (l *Ledger) Book(ctx context.Context, namespace, id string, calls []author.Call) ([]*int64, error) {
	r, err := l.client.RecordUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.RecordUsageRequest{Entries: entries(id, calls)})
	if err != nil {
		return nil, away(err)
	}
	return costs(r.GetEntries(), len(calls))
}

// learn remembers whether a cap bounds the calls of a namespace.
func (l *Ledger) learn(namespace string, capped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !capped {
		delete(l.capped, namespace)
		return
	}
	until := time.Now().Add(remembered)
	if _, known := l.capped[namespace]; !known && len(l.capped) >= maxCapped {
		clear(l.capped)
		l.all = until
	}
	l.capped[namespace] = until
}

// mayBeCapped reports whether a cap bounded calls of a namespace when the registry answered last.
func (l *Ledger) mayBeCapped(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return now.Before(l.capped[namespace]) || now.Before(l.all)
}

// Reserve implements author.Ledger. While the registry is away, the calls of a namespace are made
// unless a cap bounded them within a day.
func (l *Ledger) Reserve(ctx context.Context, namespace, id string, n int, most author.Call) (refusal string, err error) {
	r, err := l.client.ReserveUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.ReserveUsageRequest{Calls: []*registryv1.UsageEntry{entry(id, n, most)}})
	if err != nil && ctx.Err() == nil && !l.mayBeCapped(namespace) {
		return "", nil
	}
	if err != nil {
		return "", errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry, which keeps budgets, does not answer for the call of the model now").
			Hint("try again in a moment").With(err)
	}
	if len(r.GetReservations()) != 1 {
		return "", fmt.Errorf("the registry answered %d reservations for one", len(r.GetReservations()))
	}
	l.learn(namespace, r.GetReservations()[0].GetCapped())
	return r.GetReservations()[0].GetRefusal().GetMessage(), nil
}

// Release implements author.Ledger.
func (l *Ledger) Release(ctx context.Context, namespace, id string, calls int) error {
	entries := make([]*registryv1.UsageEntry, calls)
	for n := range entries {
		entries[n] = entry(id, n, author.Call{Time: time.Now()})
	}
	_, err := l.client.ReleaseUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.ReleaseUsageRequest{Calls: entries})
	return err
}

// away is the error for a caller about a registry that does not answer.
func away(err error) error {
	return errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry cannot price the calls of the model now").
		Hint("try again in a moment, or set no limit of money").With(err)
}

func entries(id string, calls []author.Call) []*registryv1.UsageEntry {
	out := make([]*registryv1.UsageEntry, len(calls))
	for i, c := range calls {
		out[i] = entry(id, i, c)
	}
	return out
}

func entry(id string, n int, c author.Call) *registryv1.UsageEntry {
	return &registryv1.UsageEntry{
		RunId: id, NodeId: "author", Visit: 1, Attempt: 1, Call: int32(n), //nolint:gosec // a few rounds
		Kind: registryv1.UsageKind_USAGE_KIND_OVERHEAD, Provider: c.Provider, Model: c.Model,
		InputTokens: c.Usage.Input, CachedInputTokens: c.Usage.CachedInput, OutputTokens: c.Usage.Output, ReasoningTokens: c.Usage.Reasoning,
		Time: timestamppb.New(c.Time),
	}
}

func costs(list []*registryv1.UsageEntry, want int) ([]*int64, error) {
	if len(list) != want {
		return nil, fmt.Errorf("the registry answered %d entries for %d", len(list), want)
	}
	out := make([]*int64, len(list))
	for i, e := range list {
		out[i] = e.CostNanoUsd
	}
	return out, nil
}
