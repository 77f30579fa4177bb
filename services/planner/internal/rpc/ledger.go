package rpc

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
)

// Ledger prices and books calls of models at the registry.
type Ledger struct {
	client registryv1.RegistryServiceClient
}

var _ author.Ledger = (*Ledger)(nil)

// NewLedger returns a ledger that asks the registry of client.
func NewLedger(client registryv1.RegistryServiceClient) *Ledger { return &Ledger{client} }

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

// away is the error for a caller about a registry that does not answer.
func away(err error) error {
	return errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry cannot price the calls of the model now").
		Hint("try again in a moment, or set no limit of money").With(err)
}

func entries(id string, calls []author.Call) []*registryv1.UsageEntry {
	out := make([]*registryv1.UsageEntry, len(calls))
	for i, c := range calls {
		out[i] = &registryv1.UsageEntry{
			RunId: id, NodeId: "author", Visit: 1, Attempt: 1, Call: int32(i), //nolint:gosec // a few rounds
			Kind: registryv1.UsageKind_USAGE_KIND_OVERHEAD, Provider: c.Provider, Model: c.Model,
			InputTokens: c.Usage.Input, CachedInputTokens: c.Usage.CachedInput, OutputTokens: c.Usage.Output, ReasoningTokens: c.Usage.Reasoning,
			Time: timestamppb.New(c.Time),
		}
	}
	return out
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
