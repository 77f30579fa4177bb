package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/fieldmask"
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

// limitFields are the fields of a limit that an update may change.
var limitFields = []string{"max_concurrent", "max_rate", "rate_interval", "max_open_runs", "max_fan_out", "max_bytes", "max_pending_runs", "retention"}

func limitOf(k limit.Key, principal string, m *executorv1.Limit) limit.Limit {
	return limit.Limit{
		Key: k, MaxConcurrent: m.GetMaxConcurrent(), MaxRate: m.GetMaxRate(), RateInterval: m.GetRateInterval().AsDuration(),
		MaxOpenRuns: m.GetMaxOpenRuns(), MaxFanOut: m.GetMaxFanOut(), MaxBytes: m.GetMaxBytes(), MaxPendingRuns: m.GetMaxPendingRuns(),
		Retention: m.GetRetention().AsDuration(), Principal: principal,
	}
}

// UpdateLimit implements the service.
func (s *LimitServer) UpdateLimit(ctx context.Context, req *executorv1.UpdateLimitRequest) (*executorv1.Limit, error) {
	fields, err := fieldmask.Fields("limit", req.GetLimit(), req.GetUpdateMask(), limitFields)
	if err != nil {
		return nil, err
	}
	key, by := limit.Key{Namespace: grpckit.Namespace(ctx), Name: req.GetLimit().GetName()}, grpckit.PrincipalOf(ctx).String()
	l, err := s.store.Update(ctx, key, func(old limit.Limit, found bool) (limit.Limit, error) {
		m := req.GetLimit()
		switch {
		case found:
			m = limitMessage(old)
			fieldmask.Apply(m, req.GetLimit(), fields)
			if m.GetMaxRate() == 0 && !slices.Contains(fields, "rate_interval") {
				m.RateInterval = nil // goes with the rate that it was of
			}
		case !req.GetAllowMissing():
			return limit.Limit{}, limit.NotFound(key.Name)
		}
		l := limitOf(key, by, m)
		err := l.Validate()
		return l, err
	})
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
func (s *LimitServer) DeleteLimit(ctx context.Context, req *executorv1.DeleteLimitRequest) (*emptypb.Empty, error) {
	if err := s.store.Delete(ctx, limit.Key{Namespace: grpckit.Namespace(ctx), Name: req.GetName()}); err != nil {
		return nil, away(err)
	}
	if err := s.refresh(ctx); err != nil {
		return nil, away(err)
	}
	return &emptypb.Empty{}, nil
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
		out[i] = limitMessage(l)
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

// limitMessage is a limit without what is under way.
func limitMessage(l limit.Limit) *executorv1.Limit {
	m := &executorv1.Limit{Name: l.Name, MaxConcurrent: l.MaxConcurrent, MaxRate: l.MaxRate, MaxOpenRuns: l.MaxOpenRuns, MaxFanOut: l.MaxFanOut,
		MaxBytes: l.MaxBytes, MaxPendingRuns: l.MaxPendingRuns, UpdateTime: timestamppb.New(l.UpdateTime), Principal: l.Principal}
	if l.RateInterval > 0 {
		m.RateInterval = durationpb.New(l.RateInterval)
	}
	if l.Retention > 0 {
		m.Retention = durationpb.New(l.Retention)
	}
	return m
}

// away is the error for callers while the database does not answer, which is no fault of ours nor theirs.
func away(err error) error {
	if dbkit.ConnectionLost(err) {
		return errs.DatabaseUnreachable("executor").With(err)
	}
	return err
}
