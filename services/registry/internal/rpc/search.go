package rpc

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// SearchEpics implements registryv1.RegistryServiceServer.
func (s *Server) SearchEpics(ctx context.Context, req *registryv1.SearchEpicsRequest) (*registryv1.SearchEpicsResponse, error) {
	p, err := paged(ctx, "SearchEpics", req)
	if err != nil {
		return nil, err
	}
	q := store.SearchQuery{
		Namespace: grpckit.Namespace(ctx), AnyTag: req.GetTags(), Owners: store.Owners{UserID: req.GetUserId(), OpenTo: req.GetOpenToUserId()},
	}
	if q.States, err = enums[epic.State]("states", req.GetStates(), epic.Canceled); err != nil {
		return nil, err
	}
	if q.From, err = instant("create_time_from", req.GetCreateTimeFrom()); err != nil {
		return nil, err
	}
	if q.Until, err = instant("create_time_until", req.GetCreateTimeUntil()); err != nil {
		return nil, err
	}
	if req.GetQuery() == "" {
		return s.newestEpics(ctx, q, p)
	}
	// A token keeps the score in the place of a time.
	after := epic.Hit{ID: p.After.ID}
	if after.ID != "" {
		after.Score = p.After.CreateTime.UnixMicro()
	}
	found, err := s.accounts.SearchEpics(ctx, req.GetQuery(), q, after, p.Limit+1)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, found, func(m accounting.Match) page.Cursor {
		return page.Cursor{CreateTime: time.UnixMicro(m.Hit.Score), ID: m.Hit.ID}
	})
	return &registryv1.SearchEpicsResponse{Matches: each(rows, epicMatchTo), NextPageToken: next}, nil
}

// newestEpics is a search without words.
func (s *Server) newestEpics(ctx context.Context, q store.SearchQuery, p page.Page) (*registryv1.SearchEpicsResponse, error) {
	found, err := s.accounts.NewestEpics(ctx, store.EpicQuery{
		Namespace: q.Namespace, States: q.States, AnyTag: q.AnyTag, Owners: q.Owners, From: q.From, Until: q.Until, After: p.After, Limit: p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	rows, next := page.CutAt(p, found.Rows, found.Stopped, func(m accounting.Match) page.Cursor {
		return page.Cursor{CreateTime: m.Epic.CreateTime, ID: m.Epic.ID}
	})
	return &registryv1.SearchEpicsResponse{Matches: each(rows, epicMatchTo), NextPageToken: next}, nil
}

func epicMatchTo(m accounting.Match) *registryv1.EpicMatch {
	out := &registryv1.EpicMatch{Epic: epicTo(m.Epic), WorkflowSlugs: m.Slugs, Words: slices.Sorted(maps.Keys(m.Hit.Weights)), Score: m.Hit.Score}
	if rate, known := m.Epic.SuccessRate(); known {
		out.SuccessRate = &rate
	}
	return out
}
