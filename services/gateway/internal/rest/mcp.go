package rest

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/paced"
	"github.com/epigraph-run/epigraph/services/gateway/mcpserver"
)

// mcpRoute serves clients of the Model Context Protocol. Each tool needs the rights of the calls
// that it makes.
func (s *Server) mcpRoute() (*route, error) {
	executor, registry := authorized{s.Cells.Conn(cells.Executor), s}, authorized{s.Cells.Conn(cells.Registry), s}
	server, err := mcpserver.New(mcpserver.Options{
		Planner: plannerv1.NewPlannerServiceClient(authorized{s.Planner, s}), Executor: executorv1.NewExecutorServiceClient(executor), Registry: registryv1.NewRegistryServiceClient(registry),
		Workflows: registryv1.NewWorkflowServiceClient(registry), Memory: registryv1.NewMemoryServiceClient(registry),
		Log: s.log, RequestTimeout: s.RequestTimeout, Stopping: host.Draining, Namespace: grpckit.Namespace,
	})
	if err != nil {
		return nil, err
	}
	rt := newRoute(http.MethodPost, "/mcp")
	rt.stream, rt.behind = true, true
	rt.handler = s.countStreams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := s.Budget.Share(grpckit.Namespace(r.Context()))
		defer share.Free()
		err := checkEncoding(r)
		var body []byte
		if err == nil {
			body, err = readBody(w, r, s.MaxBodyBytes, &share)
		}
		if err == nil {
			err = server.Serve(paced.New(w, s.WriteTimeout), r, body)
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	}))
	return rt, nil
}

// authorized is a connection on which the rights of whoever calls are checked before each call, as
// those to a route of REST are. The services check them, too.
type authorized struct {
	grpc.ClientConnInterface
	server *Server
}

// Invoke implements grpc.ClientConnInterface.
func (c authorized) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if err := c.server.authorize(ctx, grpckit.PrincipalOf(ctx), grpckit.Namespace(ctx), method); err != nil {
		return err
	}
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c authorized) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := c.server.authorize(ctx, grpckit.PrincipalOf(ctx), grpckit.Namespace(ctx), method); err != nil {
		return nil, err
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}
