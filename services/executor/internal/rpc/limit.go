package rpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// countedRuns is how far open runs are counted for an answer.
const countedRuns = 1_000_000

// LimitServer answers epigraph.executor.v1.LimitService.
type LimitServer struct {
	executorv1.UnimplementedLimitServiceServer
	store limit.Store
	// refresh makes this executor see a change before its answer.
	refresh func(context.Context) error
	unknown UnknownActor
}

// UnknownActor reports whether a namespace has no such actor, and which ones may have been meant.
type UnknownActor func(ctx context.Context, namespace, actor string) (unknown bool, near []string, err error)

// NewLimitServer returns a server of the limits in store. refresh is called after each change.
func NewLimitServer(store limit.Store, refresh func(context.Context) error, unknown UnknownActor) *LimitServer {
	return &LimitServer{store: store, refresh: refresh, unknown: unknown}
}

// PutLimit implements the service. Putting a limit that is there already changes nothing but its time.
func (s *LimitServer) PutLimit(ctx context.Context, req *executorv1.PutLimitRequest) (*executorv1.Limit, error) {
	m := req.GetLimit()
	l := limit.Limit{
		Key:           limit.Key{Namespace: grpckit.Namespace(ctx), Name: m.GetName()},
		MaxConcurrent: m.GetMaxConcurrent(), MaxRate: m.GetMaxRate(), RateInterval: m.GetRateInterval().AsDuration(),
		MaxOpenRuns: m.GetMaxOpenRuns(), MaxFanOut: m.GetMaxFanOut(), MaxBytes: m.GetMaxBytes(), MaxPendingRuns: m.GetMaxPendingRuns(),
		Retention: m.GetRetention().AsDuration(), Principal: grpckit.PrincipalOf(ctx).String(),
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	l, err := s.store.Put(ctx, l)
	if err != nil {
		return nil, away(err)
	}
	if err := s.refresh(ctx); err != nil {
		return nil, away(err)
	}
	out, err := s.messages(ctx, []limit.Limit{l})
	if err != nil {
		return nil, err
	}
	if actor, ok := strings.CutPrefix(l.Name, "actor/"); ok {
		if unknown, near, err := s.unknown(ctx, l.Namespace, actor); err == nil && unknown {
			// without an answer there is no warning
			out[0].Warning = fmt.Sprintf("no actor is called %q, so that the limit bounds nothing until one is", errs.Clip(actor, 80))
			if len(near) > 0 {
				out[0].Warning += "; did you mean " + strings.Join(near, " or ") + "?"
			}
		}
	}
	return out[0], nil
}

// ListLimits implements the service.
func (s *LimitServer) ListLimits(ctx context.Context, req *executorv1.ListLimitsRequest) (*executorv1.ListLimitsResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: "ListLimits", Parent: ns, Order: "name"})
	if err != nil {
		return nil, err
	}
	ls, err := s.store.List(ctx, ns, pg.After.ID, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	ls, next := page.Cut(pg, ls, func(l limit.Limit) page.Cursor { return page.Cursor{ID: l.Name} })
	out, err := s.messages(ctx, ls)
	if err != nil {
		return nil, err
	}
	return &executorv1.ListLimitsResponse{Limits: out, NextPageToken: next}, nil
}

// DeleteLimit implements the service.
func (s *LimitServer) DeleteLimit(ctx context.Context, req *executorv1.DeleteLimitRequest) (*executorv1.DeleteLimitResponse, error) {
	if err := s.store.Delete(ctx, limit.Key{Namespace: grpckit.Namespace(ctx), Name: req.GetName()}); err != nil {
		return nil, away(err)
	}
	if err := s.refresh(ctx); err != nil {
		return nil, away(err)
	}
	return &executorv1.DeleteLimitResponse{}, nil
}

// messages are limits with their use.
func (s *LimitServer) messages(ctx context.Context, ls []limit.Limit) ([]*executorv1.Limit, error) {
	keys := make([]limit.Key, len(ls))
	for i, l := range ls {
		keys[i] = l.Key
	}
	figures, err := s.store.Figures(ctx, keys)
	if err != nil {
		return nil, away(err)
	}
	out := make([]*executorv1.Limit, len(ls))
	for i, l := range ls {
		out[i] = &executorv1.Limit{Name: l.Name, MaxConcurrent: l.MaxConcurrent, MaxRate: l.MaxRate, MaxOpenRuns: l.MaxOpenRuns, MaxFanOut: l.MaxFanOut,
			MaxBytes: l.MaxBytes, MaxPendingRuns: l.MaxPendingRuns, UpdateTime: timestamppb.New(l.UpdateTime), Principal: l.Principal}
		if l.RateInterval > 0 {
			out[i].RateInterval = durationpb.New(l.RateInterval)
		}
		if l.Retention > 0 {
			out[i].Retention = durationpb.New(l.Retention)
		}
		if l.Name != limit.Namespace {
			out[i].Running = int32(figures[i].Running)
			continue
		}
		if out[i].OpenRuns, _, err = s.store.OpenRuns(ctx, l.Namespace, countedRuns); err != nil {
			return nil, away(err)
		}
	}
	return out, nil
}

// away is the error for callers while the database does not answer, which is no fault of ours nor theirs.
func away(err error) error {
	if dbkit.ConnectionLost(err) {
		return errs.DatabaseUnreachable("executor").With(err)
	}
	return err
}
