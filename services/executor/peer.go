package executor

import (
	"context"

	"google.golang.org/grpc"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
	"github.com/epigraph-run/epigraph/services/executor/internal/worker"
)

// peer answers other executors, and the planner.
type peer struct {
	executorv1.UnimplementedPeerServiceServer
	workers   *worker.Server
	explainer rpc.Explainer
	accounts  rpc.Accounts
	followed  rpc.Followed
}

// Follow implements the service.
func (p peer) Follow(stream grpc.BidiStreamingServer[executorv1.FollowRequest, executorv1.FollowResponse]) error {
	return p.followed.Follow(stream)
}

// Govern implements the service.
func (p peer) Govern(stream grpc.BidiStreamingServer[executorv1.GovernRequest, executorv1.GovernResponse]) error {
	return p.accounts.Govern(stream)
}

// ExplainLocal implements the service.
func (p peer) ExplainLocal(ctx context.Context, req *executorv1.ExplainLocalRequest) (*executorv1.ExplainLocalResponse, error) {
	return p.explainer.ExplainLocal(ctx, req)
}

// Invoke implements the service.
func (p peer) Invoke(stream grpc.BidiStreamingServer[executorv1.InvokeRequest, executorv1.InvokeResponse]) error {
	return p.workers.Invoke(stream)
}
