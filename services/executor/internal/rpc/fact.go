package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
)

// FactServer answers epigraph.executor.v1.FactService.
type FactServer struct {
	executorv1.UnimplementedFactServiceServer
	store fact.Store
}

// NewFactServer returns a server of the facts in a store.
func NewFactServer(store fact.Store) *FactServer { return &FactServer{store: store} }

// ListFacts implements the service.
func (s *FactServer) ListFacts(ctx context.Context, req *executorv1.ListFactsRequest) (*executorv1.ListFactsResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := listedPage(ctx, "ListFacts", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListFacts(ctx, ns, fact.Filter{Agent: req.GetAgent(), User: req.UserId}, pg.After, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(f fact.Fact) page.Cursor { return page.Cursor{CreateTime: f.Time, ID: f.ID} })
	out := &executorv1.ListFactsResponse{NextPageToken: next}
	for i := range rows {
		f := &rows[i]
		out.Facts = append(out.Facts, &executorv1.Fact{Id: f.ID, Agent: f.Agent, UserId: f.User, Name: f.Name, Content: f.Content,
			ThreadId: f.Thread, RunId: f.Run, LearnTime: stamp(f.Time)})
	}
	return out, nil
}

// DeleteFact implements the service.
func (s *FactServer) DeleteFact(ctx context.Context, req *executorv1.DeleteFactRequest) (*emptypb.Empty, error) {
	if err := s.store.DeleteFact(ctx, grpckit.Namespace(ctx), req.GetFactId()); err != nil {
		return nil, away(err)
	}
	return &emptypb.Empty{}, nil
}
