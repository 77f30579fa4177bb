package rpc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
)

const (
	// defaultReservation is the lease of reservations that name none.
	defaultReservation = 15 * time.Minute
	// shortestReservation and longestReservation bound the others.
	shortestReservation, longestReservation = time.Millisecond, 24 * time.Hour
)

// SetBudget implements registryv1.RegistryServiceServer.
func (s *Server) SetBudget(ctx context.Context, req *registryv1.SetBudgetRequest) (*registryv1.Budget, error) {
	id, o, err := prepared(req, req.GetRequestId(), func() (ledger.ID, error) { return accountFrom("budget.name", req.GetBudget().GetName()) })
	if err != nil {
		return nil, err
	}
	c := accounting.Change{Once: o, Etag: req.GetBudget().GetEtag()}
	return budgetReply(s.accounts.SetBudget(ctx, grpckit.Namespace(ctx), c, id, capsFrom(req.GetBudget().GetHard()), capsFrom(req.GetBudget().GetSoft())))
}

// GetBudget implements registryv1.RegistryServiceServer.
func (s *Server) GetBudget(ctx context.Context, req *registryv1.GetBudgetRequest) (*registryv1.Budget, error) {
	id, err := accountFrom("name", req.GetName())
	if err != nil {
		return nil, err
	}
	return budgetReply(s.accounts.Budget(ctx, grpckit.Namespace(ctx), id))
}

// ReserveUsage implements registryv1.RegistryServiceServer.
func (s *Server) ReserveUsage(ctx context.Context, req *registryv1.ReserveUsageRequest) (*registryv1.ReserveUsageResponse, error) {
	lease, err := duration("lease", req.GetLease())
	if err != nil {
		return nil, err
	}
	if req.GetLease() == nil {
		lease = defaultReservation
	}
	if lease < shortestReservation || lease > longestReservation {
		return nil, invalid("lease", "DURATION_INVALID", fmt.Sprintf("must be from %s to %s", shortestReservation, longestReservation))
	}
	calls, err := callsFrom(req.GetCalls(), req.GetIncarnations())
	if err != nil {
		return nil, err
	}
	runs, err := runsFrom(req.GetRuns(), len(calls))
	if err != nil {
		return nil, err
	}
	for i := range runs {
		calls[i].Runs = runs[i]
	}
	for _, i := range req.GetUnlimited() {
		if int(i) >= len(calls) {
			return nil, invalid("unlimited", "CALL_UNKNOWN", fmt.Sprintf("names call %d of %d", i, len(calls)))
		}
		calls[i].Unlimited = true
	}
	out, err := s.accounts.ReserveCalls(ctx, grpckit.Namespace(ctx), lease, calls, req.GetAskOnly())
	if err != nil {
		return nil, err
	}
	return &registryv1.ReserveUsageResponse{Reservations: each(out, reservedTo)}, nil
}

// ReleaseUsage implements registryv1.RegistryServiceServer.
func (s *Server) ReleaseUsage(ctx context.Context, req *registryv1.ReleaseUsageRequest) (*registryv1.ReleaseUsageResponse, error) {
	calls, err := callsFrom(req.GetCalls(), req.GetIncarnations())
	if err != nil {
		return nil, err
	}
	return &registryv1.ReleaseUsageResponse{}, s.accounts.ReleaseCalls(ctx, grpckit.Namespace(ctx), calls)
}

// callsFrom are calls with the incarnations of the owners that name them, if they are told.
func callsFrom(list []*registryv1.UsageEntry, incarnations []int64) ([]accounting.Call, error) {
	entries, err := entriesFrom(list)
	if err != nil {
		return nil, err
	}
	if n := len(incarnations); n != 0 && n != len(entries) {
		return nil, invalid("incarnations", "INCARNATIONS_INVALID", fmt.Sprintf("must be none, or one for each of the %d calls", len(entries)))
	}
	out := make([]accounting.Call, len(entries))
	for i := range entries {
		if out[i].Entry = entries[i]; len(incarnations) > 0 {
			out[i].Incarnation = incarnations[i]
		}
	}
	return out, nil
}

func reservedTo(r accounting.Reserved) *registryv1.UsageReservation {
	p := &registryv1.UsageReservation{Capped: r.Capped}
	for _, id := range r.Soft {
		p.OverSoft = append(p.OverSoft, budgetName(id))
	}
	if r.Refusal != nil {
		e := errs.From(r.Refusal.Err())
		p.Refusal = &registryv1.BudgetRefusal{Budget: budgetName(r.Refusal.Account), Reason: e.Reason, Message: e.Message}
	}
	return p
}

// runsFrom are the runs with budgets of each of n calls.
func runsFrom(in []*registryv1.RunBudget, n int) ([][]accounting.RunCaps, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make([][]accounting.RunCaps, n)
	for i, p := range in {
		c := accounting.RunCaps{RunID: p.GetRunId(), Hard: capsFrom(p.GetHard()), Spent: ledger.Amount{Tokens: p.GetSpentTokens(), NanoUSD: p.GetSpentNanoUsd()}}
		for _, call := range p.GetCalls() {
			field := fmt.Sprintf("runs[%d].calls", i)
			switch {
			case int(call) >= n:
				return nil, invalid(field, "CALL_UNKNOWN", fmt.Sprintf("names call %d of %d", call, n))
			case len(out[call]) >= accounting.MaxRunCaps:
				return nil, invalid(field, "TOO_MANY_RUNS", fmt.Sprintf("call %d belongs to more than %d runs with budgets", call, accounting.MaxRunCaps))
			}
			out[call] = append(out[call], c)
		}
	}
	return out, nil
}

// budgetName is the name of an account in the API.
func budgetName(id ledger.ID) string {
	if id.Name == "" {
		return id.Level.String()
	}
	return id.Level.String() + "/" + id.Name
}

// accountFrom reads a name that budgetName wrote.
func accountFrom(field, name string) (ledger.ID, error) {
	level, id, _ := strings.Cut(name, "/")
	for _, l := range []ledger.Level{ledger.Epic, ledger.Task, ledger.Namespace} {
		if l.String() == level && (l == ledger.Namespace) == (id == "") {
			return ledger.ID{Level: l, Name: id}, nil
		}
	}
	return ledger.ID{}, invalid(field, "BUDGET_NAME_INVALID", `must be "namespace", "epic/ID" or "task/ID"`)
}

func capsFrom(p *registryv1.Caps) ledger.Caps {
	if p == nil {
		return ledger.Caps{}
	}
	return ledger.Caps{Tokens: p.Tokens, NanoUSD: p.NanoUsd}
}

func capsTo(c ledger.Caps) *registryv1.Caps {
	if c.IsZero() {
		return nil
	}
	return &registryv1.Caps{Tokens: c.Tokens, NanoUsd: c.NanoUSD}
}

func budgetReply(a ledger.Account, err error) (*registryv1.Budget, error) {
	if err != nil {
		return nil, err
	}
	return &registryv1.Budget{
		Name: budgetName(a.ID), Hard: capsTo(a.Hard), Soft: capsTo(a.Soft), SpentTokens: a.Spent.Tokens, SpentNanoUsd: a.Spent.NanoUSD,
		ReservedTokens: a.Reserved.Tokens, ReservedNanoUsd: a.Reserved.NanoUSD, OverSoft: a.Over(), Etag: a.Etag(), Principal: a.Principal,
	}, nil
}
