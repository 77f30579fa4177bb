package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const serviceToken = "token-that-the-services-share"

type planner struct {
	plannerv1.UnimplementedPlannerServiceServer
	compile func(context.Context, *plannerv1.CompilePlanRequest) (*plannerv1.CompilePlanResponse, error)
}

func (p *planner) CompilePlan(ctx context.Context, r *plannerv1.CompilePlanRequest) (*plannerv1.CompilePlanResponse, error) {
	return p.compile(ctx, r)
}

type executor struct {
	executorv1.UnimplementedExecutorServiceServer
	start func(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error)
	get   func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error)
	// validate is unimplemented if it is nil.
	validate func(context.Context, *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error)
	list     func(context.Context, *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error)
	stop     func(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error)
	send     func(context.Context, *executorv1.SendMessageRequest) (*executorv1.Run, error)
	watch    func(*executorv1.WatchRunRequest, grpc.ServerStreamingServer[executorv1.RunEvent]) error
}

func (e *executor) ValidateGraph(ctx context.Context, r *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
	if e.validate == nil {
		return e.UnimplementedExecutorServiceServer.ValidateGraph(ctx, r)
	}
	return e.validate(ctx, r)
}

func (e *executor) StartRun(ctx context.Context, r *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return e.start(ctx, r)
}

func (e *executor) GetRun(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return e.get(ctx, r)
}

func (e *executor) ListRuns(ctx context.Context, r *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
	return e.list(ctx, r)
}

func (e *executor) CancelRun(ctx context.Context, r *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	return e.stop(ctx, r)
}

func (e *executor) SendMessage(ctx context.Context, r *executorv1.SendMessageRequest) (*executorv1.Run, error) {
	return e.send(ctx, r)
}

func (e *executor) WatchRun(r *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
	return e.watch(r, s)
}

// noThreads is an executor that keeps no threads any more.
type noThreads struct {
	executorv1.UnimplementedThreadServiceServer
}

func (noThreads) GetThread(context.Context, *executorv1.GetThreadRequest) (*executorv1.Thread, error) {
	return nil, errs.New(errs.NotFound, "THREAD_NOT_FOUND", "there is no such thread")
}

type registry struct {
	registryv1.UnimplementedRegistryServiceServer
	updateEpic func(context.Context, *registryv1.UpdateEpicRequest) (*registryv1.Epic, error)
	updateTask func(context.Context, *registryv1.UpdateTaskRequest) (*registryv1.Task, error)
	createEpic func(context.Context, *registryv1.CreateEpicRequest) (*registryv1.Epic, error)
	deleteEpic func(context.Context, *registryv1.DeleteEpicRequest) (*emptypb.Empty, error)

	watchEvents func(*registryv1.WatchEventsRequest, grpc.ServerStreamingServer[registryv1.FeedEvent]) error
	listEvents  func(context.Context, *registryv1.ListEventsRequest) (*registryv1.ListEventsResponse, error)
	getEpic     func(context.Context, *registryv1.GetEpicRequest) (*registryv1.Epic, error)
}

func (s *registry) ListEvents(ctx context.Context, r *registryv1.ListEventsRequest) (*registryv1.ListEventsResponse, error) {
	return s.listEvents(ctx, r)
}

func (s *registry) GetEpic(ctx context.Context, r *registryv1.GetEpicRequest) (*registryv1.Epic, error) {
	return s.getEpic(ctx, r)
}

func (s *registry) WatchEvents(r *registryv1.WatchEventsRequest, stream grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
	return s.watchEvents(r, stream)
}

func (s *registry) UpdateEpic(ctx context.Context, r *registryv1.UpdateEpicRequest) (*registryv1.Epic, error) {
	return s.updateEpic(ctx, r)
}

func (s *registry) UpdateTask(ctx context.Context, r *registryv1.UpdateTaskRequest) (*registryv1.Task, error) {
	return s.updateTask(ctx, r)
}

func (s *registry) CreateEpic(ctx context.Context, r *registryv1.CreateEpicRequest) (*registryv1.Epic, error) {
	return s.createEpic(ctx, r)
}

func (s *registry) DeleteEpic(ctx context.Context, r *registryv1.DeleteEpicRequest) (*emptypb.Empty, error) {
	return s.deleteEpic(ctx, r)
}

// rig is a gateway on a real port before three services in memory.
type rig struct {
	t        *testing.T
	net      *grpckit.BufNet
	planner  *planner
	executor *executor
	registry *registry
	servers  map[string]*grpckit.Server
	url      string
	client   *http.Client
	logs     *testkit.LogBuffer
	stop     func()
	behalf   bool
}

type options struct {
	config  func(*gateway.Config)
	deps    func(*gateway.Deps)
	tel     *obs.Telemetry // of the gateway
	service *obs.Telemetry // of the services
	behalf  bool           // tells the services for whom it calls
}

func start(t *testing.T, o options) *rig {
	t.Helper()
	r := &rig{
		t: t, net: &grpckit.BufNet{}, planner: &planner{}, executor: &executor{}, registry: &registry{},
		servers: map[string]*grpckit.Server{}, logs: &testkit.LogBuffer{},
	}
	for _, name := range []string{"planner", "executor", "registry"} {
		s, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: conf.NewSecret(serviceToken)}, Telemetry: o.service})
		require.NoError(t, err)
		switch name {
		case "planner":
			plannerv1.RegisterPlannerServiceServer(s, r.planner)
		case "executor":
			executorv1.RegisterExecutorServiceServer(s, r.executor)
			executorv1.RegisterWorkerServiceServer(s, listening{})
			executorv1.RegisterThreadServiceServer(s, noThreads{})
		case "registry":
			registryv1.RegisterRegistryServiceServer(s, r.registry)
		}
		s.SetServing(true)
		lis, err := r.net.Listen(name)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(lis)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		r.servers[name] = s
	}
	if o.tel == nil {
		o.tel = obs.Noop()
	}
	o.tel.Logger = slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := gateway.DefaultConfig()
	cfg.Addr = "127.0.0.1:0"
	cfg.Grace = 2 * time.Second
	if o.config != nil {
		o.config(&cfg)
	}
	r.behalf = o.behalf
	deps := gateway.Deps{
		Planner: r.dial("planner", o.tel), Executor: r.dial("executor", o.tel), Registry: r.dial("registry", o.tel),
		Telemetry: o.tel,
	}
	if o.deps != nil {
		o.deps(&deps)
	}
	s, err := gateway.Open(t.Context(), cfg, deps)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-ran)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
		})
	}
	r.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.stop()
	})
	r.url = "http://" + s.Addr().String()
	return r
}

func (r *rig) dial(name string, tel *obs.Telemetry) *grpc.ClientConn {
	conn, err := grpckit.Dial(name, grpckit.DialOptions{Buf: r.net, Token: conf.NewSecret(serviceToken), Telemetry: tel, OnBehalf: r.behalf})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, conn.Close()) })
	return conn
}

type reply struct {
	status int
	header http.Header
	body   string
}

// call sends a request. headers are name, value, name, value …; a body is JSON unless they say otherwise.
func (r *rig) call(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, in)
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return reply{res.StatusCode, res.Header, string(b)}
}

// apiError is the shape of every answer that is no success.
type apiError struct {
	Code       int               `json:"code"`
	Status     string            `json:"status"`
	Reason     string            `json:"reason"`
	Message    string            `json:"message"`
	Hint       string            `json:"hint"`
	RequestID  string            `json:"requestId"`
	Violations []violation       `json:"violations"`
	Metadata   map[string]string `json:"metadata"`
}

type violation struct {
	Field       string `json:"field"`
	Reason      string `json:"reason"`
	Description string `json:"description"`
}

func (p reply) error(t testing.TB) apiError {
	t.Helper()
	return parseError(t, p.status, p.header, p.body)
}

func parseError(t testing.TB, status int, header http.Header, body string) apiError {
	t.Helper()
	require.Equal(t, "application/json", header.Get("Content-Type"), body)
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	var e apiError
	require.NoError(t, d.Decode(&e), body)
	require.Equal(t, status, e.Code, body)
	require.NotEmpty(t, e.Status)
	require.NotEmpty(t, e.Reason)
	require.NotEmpty(t, e.Message)
	require.Equal(t, header.Get("X-Request-Id"), e.RequestID)
	require.NotNil(t, e.Violations)
	return e
}

func echoRun(_ context.Context, r *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: "run_1", Args: r.GetArgs(), Named: r.GetNamed(), Context: r.GetContext(), TaskId: r.GetTaskId(), Labels: r.GetLabels()}, nil
}

func echoGet(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.GetRunId(), Namespace: grpckit.Namespace(ctx), UserId: fmt.Sprint(grpckit.PrincipalOf(ctx).Kind), ChatId: grpckit.RequestID(ctx)}, nil
}
