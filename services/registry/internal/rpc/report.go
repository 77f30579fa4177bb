package rpc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// ReportUsage implements registryv1.RegistryServiceServer.
func (s *Server) ReportUsage(ctx context.Context, req *registryv1.ReportUsageRequest) (*registryv1.ReportUsageResponse, error) {
	p, err := paged(ctx, "ReportUsage", req)
	if err != nil {
		return nil, err
	}
	q := store.ReportQuery{
		Namespace: grpckit.Namespace(ctx), EpicID: req.GetEpicId(), TaskID: req.GetTaskId(), RunID: req.GetRunId(), Limit: p.Limit + 1,
	}
	if q.By, err = enums[usage.ReportKey]("by", req.GetBy(), usage.ByDay); err != nil {
		return nil, err
	}
	if q.Kind, err = optionalEnum("kind", req.GetKind(), usage.Embedding); err != nil {
		return nil, err
	}
	if q.From, err = day("from_day", req.GetFromDay()); err != nil {
		return nil, err
	}
	if q.To, err = day("to_day", req.GetToDay()); err != nil {
		return nil, err
	}
	if q.From != nil && q.To != nil && *q.From > *q.To {
		return nil, invalid("to_day", usage.ReasonDayInvalid, "must not be before from_day")
	}
	if !p.After.IsZero() {
		q.After = &store.ReportPlace{}
		if _, err := fmt.Sscanf(p.After.ID, "%d/%d", &q.After.NanoUSD, &q.After.Skip); err != nil || q.After.Skip < 0 {
			return nil, invalid("page_token", page.ReasonInvalid, "is not a token of this report")
		}
	}
	found, err := s.accounts.Report(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, placed(found.Rows, q.After), placedRow.cursor)
	return &registryv1.ReportUsageResponse{
		Rows: each(rows, func(r placedRow) *registryv1.ReportRow {
			return &registryv1.ReportRow{Keys: keysTo(r.Keys, q.By), Sum: sumTo(r.Sum)}
		}),
		Total: sumTo(found.All), TotalRows: found.Groups, NextPageToken: next,
	}, nil
}

// ImportPrices implements registryv1.RegistryServiceServer.
func (s *Server) ImportPrices(ctx context.Context, req *registryv1.ImportPricesRequest) (*registryv1.ImportPricesResponse, error) {
	in := make([]usage.Price, len(req.GetPrices()))
	for i, p := range req.GetPrices() {
		var err error
		if in[i], err = priceFrom(p); err != nil {
			return nil, err
		}
	}
	added, err := s.accounts.ImportPrices(ctx, grpckit.Namespace(ctx), in)
	if err != nil {
		return nil, err
	}
	return &registryv1.ImportPricesResponse{Added: int32(added), Unchanged: int32(len(in) - added)}, nil
}

// placedRow is a row of a report with its place.
type placedRow struct {
	usage.Report
	place store.ReportPlace
}

func (r placedRow) cursor() page.Cursor {
	return page.Cursor{CreateTime: time.Unix(0, 0).UTC(), ID: fmt.Sprintf("%d/%d", r.place.NanoUSD, r.place.Skip)}
}

// placed gives the rows behind a place their own places.
func placed(rows []usage.Report, after *store.ReportPlace) []placedRow {
	out := make([]placedRow, len(rows))
	var last store.ReportPlace
	if after != nil {
		last = *after
	}
	for i, r := range rows {
		if r.NanoUSD != last.NanoUSD || i == 0 && after == nil {
			last = store.ReportPlace{NanoUSD: r.NanoUSD}
		}
		last.Skip++
		out[i] = placedRow{r, last}
	}
	return out
}

func day(field, s string) (*usage.Day, error) {
	if s == "" {
		return nil, nil
	}
	d, err := usage.ParseDay(field, s)
	return &d, err
}

// keysTo writes days as dates.
func keysTo(keys []string, by []usage.ReportKey) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k
		if n, err := strconv.ParseInt(k, 10, 64); by[i] == usage.ByDay && err == nil {
			out[i] = usage.Day(n).String()
		}
	}
	return out
}

func sumTo(s usage.Sum) *registryv1.UsageSum {
	return &registryv1.UsageSum{
		Calls: s.Calls, FailedCalls: s.FailedCalls, UnpricedCalls: s.UnpricedCalls, InputTokens: s.InputTokens, CachedInputTokens: s.CachedInputTokens,
		OutputTokens: s.OutputTokens, ReasoningTokens: s.ReasoningTokens, NanoUsd: s.NanoUSD,
	}
}
