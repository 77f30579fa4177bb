// Package mcpserver offers the suite to clients of the Model Context Protocol: tools that read, run
// and watch plans, answer questions, steer epics and tasks and keep memories, a tool for each
// exposed workflow, and runs, epics and workflows as resources. It owns the tools, their arguments
// and their answers. It must not know how the services are reached, nor who calls: both come with
// the context. The gateway serves it over HTTP, and the command line over its input and output.
package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/lru"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Options are what a Server works with. The clients and Log are required.
type Options struct {
	Planner   plannerv1.PlannerServiceClient
	Executor  executorv1.ExecutorServiceClient
	Registry  registryv1.RegistryServiceClient
	Workflows registryv1.WorkflowServiceClient
	Memory    registryv1.MemoryServiceClient
	Log       *slog.Logger
	// RequestTimeout bounds one call to a service; 0 means a minute.
	RequestTimeout time.Duration
	// Stopping returns a channel that is closed when the server drains; nil means that it never
	// does.
	Stopping func(context.Context) <-chan struct{}
	// Namespace names the tenant of a call, for what is kept from call to call; nil means that
	// there is one.
	Namespace func(context.Context) string
}

const (
	// toolsVersion is the version of this set of tools, told to clients as that of the server.
	toolsVersion = "1"
	// maxSchemas bounds the schemas that are kept, in bytes.
	maxSchemas = 8 << 20
	// versionStateless is the first version of the protocol without sessions.
	versionStateless = "2026-07-28"
)

const instructions = "Epigraph runs plans and workflows durably. run_plan starts a plan that you wrote as text, and waits for it; " +
	"watch_run goes on waiting. A run that asks something is answered with answer_run. epic_create and task_create keep track of work in several steps."

// Server answers clients. It is safe for concurrent use.
type Server struct {
	Options
	byName map[string]*tool
	server *mcp.Server
	http   http.Handler

	mu      sync.Mutex
	schemas *lru.Cache[string, []byte] // of inputs, by namespace, workflow and version
	calls   map[callKey]context.CancelCauseFunc
}

// New returns a server.
func New(o Options) (*Server, error) {
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = time.Minute
	}
	if o.Stopping == nil {
		o.Stopping = func(context.Context) <-chan struct{} { return nil }
	}
	if o.Namespace == nil {
		o.Namespace = func(context.Context) string { return "" }
	}
	s := &Server{Options: o, byName: map[string]*tool{}, schemas: lru.New[string, []byte](maxSchemas), calls: map[callKey]context.CancelCauseFunc{}}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "epigraph", Title: "Epigraph", Version: toolsVersion}, &mcp.ServerOptions{
		Instructions: instructions,
		PageSize:     maxList, // with those of a namespace, a page has all tools
		Logger:       slog.New(slog.DiscardHandler),
		Capabilities: changing(),
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, list := range [][]*tool{planTools(), runTools(), spawnTools(), delegationTools(), catalogTools(), memoryTools()} {
		for _, t := range list {
			if err := t.named(); err != nil {
				return nil, fmt.Errorf("schema of the tool %s: %w", t.name, err)
			}
			s.byName[t.name] = t
			s.server.AddTool(t.told(), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return s.call(ctx, t, r), nil
			})
		}
	}
	s.addWorkflowTool(s.server)
	s.addResources()
	s.server.AddReceivingMiddleware(s.extend)
	s.http = mcp.NewStreamableHTTPHandler(s.serverOf, &mcp.StreamableHTTPOptions{
		Stateless:                    true, // any replica answers any request
		Logger:                       slog.New(slog.DiscardHandler),
		MaxRequestBodyBytes:          -1, // whoever serves it has bounded the body
		PropagateRequestCancellation: true,
		DisableLocalhostProtection:   true, // whoever serves it has checked host and origin
	})
	return s, nil
}

// addWorkflowTool adds the tool behind all tools of workflows.
func (s *Server) addWorkflowTool(to *mcp.Server) {
	behind := &tool{name: anyWorkflow, description: "Runs a workflow.", schema: anyObject, does: runExposed}
	to.AddTool(behind.told(), func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return s.call(ctx, behind, r), nil
	})
}

// extend answers for the workflows and the resources of the namespace, which the library does not
// know.
func (s *Server) extend(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ctx, stop := tied(ctx)
		defer stop()
		switch r := req.(type) {
		case *mcp.InitializeRequest:
			res, err := next(ctx, method, req)
			if told, ok := res.(*mcp.InitializeResult); ok && err == nil && overHTTP(ctx) {
				told.Capabilities = constant(told.Capabilities)
			}
			return res, err
		case *mcp.ListToolsRequest:
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				list.Tools = append(slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == anyWorkflow }), s.workflowTools(ctx)...)
			}
			return res, err
		case *mcp.CallToolRequest:
			if s.byName[r.Params.Name] == nil {
				within, named, err := s.named(ctx, r)
				if _, protocol := errors.AsType[*jsonrpc.Error](err); protocol {
					return nil, err
				}
				if err != nil {
					return s.refused(ctx, r.Params.Name, err), nil
				}
				return next(within, method, named)
			}
		case *mcp.ListResourcesRequest:
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListResourcesResult); ok && err == nil {
				list.Resources = append(list.Resources, s.newest(ctx)...)
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// Run answers one client over a reader and a writer until the client closes them, or ctx ends.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() { s.watchChanges(ctx, func(tools, resources bool) { s.tell(s.server, tools, resources) }) })
	err := s.server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	// The client is gone, or it is stopped.
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || ctx.Err() != nil {
		return nil
	}
	return err
}
