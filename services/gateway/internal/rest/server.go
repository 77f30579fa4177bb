// Package rest owns the HTTP side of the suite: routes, limits, errors, health, the OpenAPI document,
// and the way of a request from bytes to a gRPC call. It must not know the meaning of calls, nor how a
// process starts and stops.
package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/turns"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/auth"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/console"
	"github.com/epigraph-run/epigraph/services/gateway/internal/grpcproxy"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
	"github.com/epigraph-run/epigraph/services/gateway/internal/live"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
	"github.com/epigraph-run/epigraph/services/gateway/internal/paced"
	"github.com/epigraph-run/epigraph/services/gateway/internal/socket"
)

const scope = "github.com/epigraph-run/epigraph/services/gateway"

// Options are what a Server needs; all are required but CORSOrigins and Ready.
type Options struct {
	Planner   *grpc.ClientConn
	Cells     *cells.Router // finds executor and registry
	Keyring   *auth.Keyring
	Users     *oidc.Users // offers browsers a login; nil offers none
	Telemetry *obs.Telemetry
	Ready     *host.Readiness
	Budget    *inflight.Budget // bound of the memory of requests under way

	MaxBodyBytes   int64
	MessageTimeout time.Duration // in which the message of a gRPC call must come
	RequestTimeout time.Duration
	WriteTimeout   time.Duration
	HealthTimeout  time.Duration
	CORSOrigins    []string

	KeepAlive  time.Duration
	FirstEvent time.Duration
	Retry      time.Duration

	// Proxies may say for whom they call.
	Proxies Proxies
	// Audit keeps the entries of changes that are refused here; nil keeps none.
	Audit grpckit.Auditor

	Info Info // what clients are told of the server

	PublicURL string // where clients reach the server, for cards of agents; may be empty
}

// Server serves the API over HTTP. It is safe for concurrent use.
type Server struct {
	Options
	log      *slog.Logger
	away     obs.Seldom // limits the log lines about requests that failed because something is unreachable
	routes   routes
	calls    map[string]*route // of gRPC, by path
	places   map[string]string // of calls by the names of their methods, such as "GET /v1/runs"
	underWay *turns.Turns      // requests, by namespace
	hooks    *turns.Turns      // calls of webhooks, by namespace
	mux      *runtime.ServeMux
	observed http.Handler
	streams  metric.Int64UpDownCounter
	panics   metric.Int64Counter
	health   *health
	live     *socket.Server
	pages    *console.Pages
	console  *route // of the pages; it is none of the API's routes
}

var errRequestTimeout = errors.New("request timeout of the gateway")

// New builds the routes from the services' annotations.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{Options: o, log: o.Telemetry.Logger, calls: map[string]*route{}, places: map[string]string{}, underWay: turns.New(grpckit.DefaultMaxCalls), hooks: turns.New(maxHookCalls)}
	meter := o.Telemetry.Meter(scope)
	var err error
	if s.streams, err = meter.Int64UpDownCounter("epigraph.gateway.event_streams", metric.WithDescription("Open event streams.")); err != nil {
		return nil, err
	}
	if s.panics, err = meter.Int64Counter("epigraph.gateway.panics", metric.WithDescription("Panics caught while serving HTTP.")); err != nil {
		return nil, err
	}
	nothing := func(string) (string, bool) { return "", false }
	s.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{&runtime.JSONPb{}}),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
			s.writeError(w, r, fromCall(err))
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, _ int) {
			s.writeError(w, r, s.unknownPath(r))
		}),
		// The answer is rendered as an option, since a failure there is reported to the caller alone:
		// the generated code writes a failing marshaler to the global log.
		runtime.WithForwardResponseOption(func(ctx context.Context, _ http.ResponseWriter, m proto.Message) (err error) {
			x := exchangeOf(ctx)
			if x.in != nil {
				x.in.Free() // the answer must not wait for its own request
			}
			if err := x.out.Hold(ctx, answerMemory*int64(proto.Size(m))); err != nil {
				return err
			}
			x.answer, err = jsonview.Encode(m)
			return err
		}),
		runtime.WithForwardResponseRewriter(func(ctx context.Context, _ proto.Message) (any, error) {
			return rendered(exchangeOf(ctx).answer), nil
		}),
		// No headers are passed through: grpckit sets those about the caller.
		runtime.WithIncomingHeaderMatcher(nothing),
		runtime.WithOutgoingHeaderMatcher(nothing),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithWriteContentLength(),
	)
	executor, registry := o.Cells.Conn(cells.Executor), o.Cells.Conn(cells.Registry)
	if err := errors.Join(
		plannerv1.RegisterPlannerServiceHandler(ctx, s.mux, o.Planner),
		executorv1.RegisterExecutorServiceHandlerClient(ctx, s.mux, executorv1.NewExecutorServiceClient(executor)),
		executorv1.RegisterWorkerServiceHandlerClient(ctx, s.mux, executorv1.NewWorkerServiceClient(executor)),
		executorv1.RegisterThreadServiceHandlerClient(ctx, s.mux, executorv1.NewThreadServiceClient(executor)),
		executorv1.RegisterScheduleServiceHandlerClient(ctx, s.mux, executorv1.NewScheduleServiceClient(executor)),
		executorv1.RegisterTriggerServiceHandlerClient(ctx, s.mux, executorv1.NewTriggerServiceClient(executor)),
		executorv1.RegisterLimitServiceHandlerClient(ctx, s.mux, executorv1.NewLimitServiceClient(executor)),
		registryv1.RegisterRegistryServiceHandlerClient(ctx, s.mux, registryv1.NewRegistryServiceClient(registry)),
		registryv1.RegisterWorkflowServiceHandlerClient(ctx, s.mux, registryv1.NewWorkflowServiceClient(registry)),
		registryv1.RegisterMemoryServiceHandlerClient(ctx, s.mux, registryv1.NewMemoryServiceClient(registry)),
		registryv1.RegisterKeyServiceHandlerClient(ctx, s.mux, registryv1.NewKeyServiceClient(registry)),
		registryv1.RegisterAuditServiceHandlerClient(ctx, s.mux, registryv1.NewAuditServiceClient(registry)),
	); err != nil {
		return nil, fmt.Errorf("register handlers: %w", err)
	}
	if err := s.buildRoutes(); err != nil {
		return nil, err
	}
	if s.pages, err = console.New(); err != nil {
		return nil, err
	}
	s.console = fileRoute(http.MethodGet, "/")
	s.console.open, s.console.handler = true, s.pages
	s.observed = otelhttp.NewHandler(http.HandlerFunc(s.serve), "http",
		otelhttp.WithTracerProvider(o.Telemetry.TracerProvider),
		otelhttp.WithMeterProvider(o.Telemetry.MeterProvider),
		otelhttp.WithPropagators(o.Telemetry.Propagator),
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/healthz" && r.URL.Path != "/readyz" }),
	)
	return s, nil
}

// proxy makes the methods of a service reachable by gRPC as well.
func (s *Server) proxy(d protoreflect.ServiceDescriptor) {
	for i := range d.Methods().Len() {
		m := d.Methods().Get(i)
		rt := &route{method: http.MethodPost, template: grpcproxy.Path(m), rpc: m}
		var conn grpc.ClientConnInterface
		switch name := rt.service(); name {
		case "planner":
			conn = s.Planner
		default:
			conn = s.Cells.Conn(name)
		}
		rt.handler = &grpcproxy.Method{Desc: m, Conn: conn, Options: grpcproxy.Options{Budget: s.Budget, MaxBytes: s.MaxBodyBytes, MessageTimeout: s.MessageTimeout,
			Timeout: s.RequestTimeout, WriteTimeout: s.WriteTimeout, Draining: host.Draining}}
		s.calls[rt.template] = rt
	}
}

func (s *Server) buildRoutes() error {
	streams := live.Options{
		Executor:     executorv1.NewExecutorServiceClient(s.Cells.Conn(cells.Executor)),
		Encode:       jsonview.Encode,
		Fail:         s.writeError,
		Describe:     func(r *http.Request, err error) proto.Message { return s.message(err, exchangeOf(r.Context()).id) },
		FromStatus:   fromCall,
		Log:          s.log,
		KeepAlive:    s.KeepAlive,
		FirstEvent:   s.FirstEvent,
		WriteTimeout: s.WriteTimeout,
		Retry:        s.Retry,
		Stopping:     host.Draining,
	}
	for _, f := range []protoreflect.FileDescriptor{
		plannerv1.File_epigraph_planner_v1_planner_proto,
		executorv1.File_epigraph_executor_v1_executor_proto,
		executorv1.File_epigraph_executor_v1_worker_proto,
		executorv1.File_epigraph_executor_v1_thread_proto,
		executorv1.File_epigraph_executor_v1_schedule_proto,
		executorv1.File_epigraph_executor_v1_trigger_proto,
		executorv1.File_epigraph_executor_v1_limit_proto,
		registryv1.File_epigraph_registry_v1_registry_proto,
		registryv1.File_epigraph_registry_v1_workflow_proto,
		registryv1.File_epigraph_registry_v1_memory_proto,
		registryv1.File_epigraph_registry_v1_key_proto,
		registryv1.File_epigraph_registry_v1_audit_proto,
	} {
		services := f.Services()
		for i := range services.Len() {
			s.proxy(services.Get(i))
			for _, rt := range serviceRoutes(services.Get(i)) {
				if rt.handler = s.forward(rt); rt.rpc.IsStreamingServer() {
					rt.stream, rt.handler = true, s.countStreams(s.streaming(rt, streams))
				}
				s.routes = append(s.routes, rt)
				if name := string(rt.rpc.Name()); s.places[name] == "" {
					// the first of several is the usual one
					s.places[name] = rt.method + " " + rt.template
				}
			}
		}
	}
	events := newRoute(http.MethodGet, "/v1/runs/{run_id}/events")
	events.stream = true
	events.handler = s.countStreams(live.New(streams))
	s.places["WatchRun"] = events.method + " " + events.template
	feed := s.feedRoute(streams)
	s.places["WatchEvents"] = feed.method + " " + feed.template
	s.health = newHealth(s.Options)
	for path, h := range map[string]http.Handler{
		"/healthz":      http.HandlerFunc(s.healthz),
		"/readyz":       http.HandlerFunc(s.readyz),
		"/openapi.json": document(),
	} {
		rt := fileRoute(http.MethodGet, path)
		rt.open, rt.handler = true, h
		s.routes = append(s.routes, rt)
	}
	s.routes = append(append(s.routes, events, feed, s.hookRoute(), s.liveRoute(), s.infoRoute()), s.completionRoutes()...)
	s.routes = append(s.routes, s.loginRoutes()...)
	agents, err := s.mcpRoute()
	if err != nil {
		return err
	}
	s.routes = append(append(s.routes, agents), s.agentRoutes()...)
	slices.SortStableFunc(s.routes, func(a, b *route) int { return strings.Compare(a.template, b.template) })
	return nil
}

// exchange is the state that the links of one request's chain share.
type exchange struct {
	id      string
	reason  string
	route   *route
	allowed []string
	answer  []byte
	// known is set when it is known who calls, bodyRead when the whole body was read.
	known, bodyRead bool
	// namespaces are those in which the user who calls has roles.
	namespaces []string
	// in is what the request holds of the budget, out what the answer does.
	in  *inflight.Share
	out *inflight.Answer
	// grpc says that the answer is to be one of gRPC.
	grpc bool
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

// ServeHTTP finds the route first, so that spans and metrics carry its name from the start.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if x.grpc = grpcproxy.Is(r); x.grpc {
		x.route = s.calls[r.URL.Path]
	} else {
		x.route, x.allowed = s.routes.find(method, r.URL.Path)
	}
	if x.route == nil && !x.grpc && len(x.allowed) == 0 && method == http.MethodGet && s.pages.Wants(r) {
		x.route = s.console
	}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	r.Pattern = ""
	if x.route != nil {
		r.Pattern = x.route.method + " " + x.route.template
	}
	s.observed.ServeHTTP(w, r)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	ctx := r.Context()
	x := exchangeOf(ctx)
	if x.id = r.Header.Get("X-Request-Id"); !grpckit.ValidRequestID(x.id) {
		x.id = ids.New("req")
	}
	h := w.Header()
	h.Set("X-Request-Id", x.id)
	h.Set("X-Content-Type-Options", "nosniff")
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		h.Set("X-Trace-Id", sc.TraceID().String())
	}
	ctx = access.WithOrigin(grpckit.WithRequestID(ctx, x.id), s.origin(r))
	rec := &recorder{ResponseWriter: w}
	var who auth.Identity
	defer func() {
		if v := recover(); v != nil {
			s.caught(ctx, rec, r, v)
		}
		s.access(ctx, r, rec, x, who, time.Since(start))
	}()
	if s.cors(rec, r, x) {
		return
	}
	if !utf8.ValidString(r.URL.Path) {
		s.writeError(rec, r, errs.New(errs.InvalidArgument, "PATH_INVALID", "the path is not valid UTF-8"))
		return
	}
	if x.route == nil {
		s.writeError(rec, r, s.unknownPath(r))
		return
	}
	if !x.route.open {
		var err error
		who, err = s.identify(ctx, r.WithContext(ctx), x)
		if who.Cookie != nil {
			http.SetCookie(rec, who.Cookie)
		}
		if reason := errs.ReasonOf(err); x.route.guests != nil && (reason == "CREDENTIALS_MISSING" || reason == oidc.ReasonEnded) {
			x.route.guests.ServeHTTP(rec, r)
			return
		}
		if err != nil {
			s.refuse(rec, r, err)
			return
		}
		x.namespaces = who.Namespaces
		ctx = grpckit.WithPrincipal(grpckit.WithNamespace(ctx, who.Namespace), who.Principal)
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("epigraph.namespace", who.Namespace))
		h.Set("Cache-Control", "no-store")
		leave, ok := s.underWay.Try(who.Namespace)
		if !ok {
			s.refuse(rec, r, grpckit.TooManyCalls(grpckit.DefaultMaxCalls))
			return
		}
		defer leave()
	}
	r = r.WithContext(ctx)
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet // net/http leaves the body out by itself
	}
	if !x.grpc {
		x.route.bind(r)
	}
	x.route.handler.ServeHTTP(rec, r)
}

// forward checks a request and hands it to its generated handler.
func (s *Server) forward(rt *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := s.Budget.Share(grpckit.Namespace(r.Context()))
		defer share.Free()
		out := s.Budget.Answer(grpckit.Namespace(r.Context()))
		defer out.Free()
		x := exchangeOf(r.Context())
		x.in, x.out = &share, out
		checked, err := rt.prepare(w, r, s.MaxBodyBytes, &share, func(body []byte, err *errs.Error) error {
			return s.withOthers(r.Context(), rt.bodyMessage(), body, err)
		})
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), s.RequestTimeout, errRequestTimeout)
		defer cancel()
		answer := &silent{Writer: paced.New(w, s.WriteTimeout)}
		answer.Until(time.Now().Add(s.RequestTimeout + s.WriteTimeout))
		s.mux.ServeHTTP(answer, checked.WithContext(ctx))
		if answer.err != nil {
			s.log.DebugContext(ctx, "the answer was not taken", "err", answer.err, "route", r.Pattern, "request_id", x.id)
			panic(http.ErrAbortHandler) // nobody must take it for a whole answer
		}
	})
}

// streaming serves a method that answers with a stream.
func (s *Server) streaming(rt *route, o live.Options) http.Handler {
	if rt.rpc.Name() != "ExportMemory" {
		return s.plans(rt, o)
	}
	client := registryv1.NewMemoryServiceClient(s.Cells.Conn(cells.Registry))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := s.Budget.Share(grpckit.Namespace(r.Context()))
		defer share.Free()
		if _, err := rt.prepare(w, r, s.MaxBodyBytes, &share, func(_ []byte, err *errs.Error) error { return err }); err != nil {
			s.writeError(w, r, err)
			return
		}
		live.Export(o, client, w, r)
	})
}

// plans serves the events of plans that are being written.
func (s *Server) plans(rt *route, o live.Options) http.Handler {
	client := plannerv1.NewPlannerServiceClient(s.Planner)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := s.Budget.Share(grpckit.Namespace(r.Context()))
		defer share.Free()
		checked, err := rt.prepare(w, r, s.MaxBodyBytes, &share, func(_ []byte, err *errs.Error) error { return err })
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		req := &plannerv1.StreamPlanRequest{}
		body, err := io.ReadAll(checked.Body)
		if err == nil && len(body) > 0 {
			err = protojson.Unmarshal(body, req)
		}
		if err != nil {
			s.writeError(w, r, errs.New(errs.InvalidArgument, "BODY_UNREADABLE", "the body is no request").With(err))
			return
		}
		live.Plan(o, client, w, r, req)
	})
}

const feedTemplate = "/v1/events:watch"

// feedRoute serves the feed of a namespace.
func (s *Server) feedRoute(o live.Options) *route {
	rt := newRoute(http.MethodGet, feedTemplate)
	rt.rpc = registryv1.File_epigraph_registry_v1_registry_proto.Services().ByName("RegistryService").Methods().ByName("WatchEvents")
	rt.stream = true
	client := registryv1.NewRegistryServiceClient(s.Cells.Conn(cells.Registry))
	rt.handler = s.countStreams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { live.Feed(o, client, w, r) }))
	return rt
}

func (s *Server) countStreams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithoutCancel(r.Context())
		s.streams.Add(ctx, 1)
		defer s.streams.Add(ctx, -1)
		h.ServeHTTP(w, r)
	})
}

func (s *Server) unknownPath(r *http.Request) error {
	x := exchangeOf(r.Context())
	if x.grpc {
		return errs.New(errs.NotFound, grpcproxy.ReasonUnimplemented, "there is no method %.200s here", r.URL.Path).Hint("the gateway passes the methods of planner, executor and registry on")
	}
	if len(x.allowed) > 0 {
		return errs.New(errs.InvalidArgument, reasonMethod, "%s is not offered at %s", r.Method, r.URL.Path).
			Hint("use " + strings.Join(x.allowed, " or "))
	}
	e := errs.New(errs.NotFound, reasonPathNotFound, "there is nothing at %s", r.URL.Path)
	if near := s.routes.near(r.URL.Path); len(near) > 0 {
		return e.Hint("near it are " + strings.Join(near, ", ") + "; /openapi.json lists everything")
	}
	return e.Hint("/openapi.json lists everything that is offered")
}

// caught turns a panic into an answer, or into a broken connection when the answer has begun.
func (s *Server) caught(ctx context.Context, rec *recorder, r *http.Request, v any) {
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.panics.Add(ctx, 1)
	s.log.ErrorContext(ctx, "panic while serving", "panic", fmt.Sprint(v), "route", r.Pattern, "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	s.writeError(rec, r, errs.New(errs.Internal, errs.ReasonInternal, "internal error"))
}

func (s *Server) access(ctx context.Context, r *http.Request, rec *recorder, x *exchange, who auth.Identity, took time.Duration) {
	level := slog.LevelInfo
	if x.route != nil && x.route.open {
		level = slog.LevelDebug
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	_, route, _ := strings.Cut(r.Pattern, " ")
	attrs := []slog.Attr{
		slog.String("http_method", r.Method), slog.String("route", route),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", took),
		slog.String("request_id", x.id),
	}
	if who.Namespace != "" {
		attrs = append(attrs, slog.String("namespace", who.Namespace), slog.String("principal", who.Principal.String()))
	}
	if x.reason != "" {
		attrs = append(attrs, slog.String("reason", x.reason))
	}
	s.log.LogAttrs(ctx, level, "served", attrs...)
}

// cors answers preflights and lets the pages of allowed origins read answers. It reports whether the
// request has been answered.
func (s *Server) cors(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if len(s.CORSOrigins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.CORSOrigins, origin) && !slices.Contains(s.CORSOrigins, "*") {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, X-Trace-Id, Retry-After, ETag, Epigraph-Thread, Epigraph-Run, Epigraph-Unused, Mcp-Session-Id")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" || len(x.allowed) == 0 {
		return false
	}
	h.Set("Access-Control-Allow-Methods", strings.Join(x.allowed, ", "))
	h.Set("Access-Control-Allow-Headers", "Authorization, X-Api-Key, X-Epigraph-Namespace, X-Request-Id, Content-Type, Last-Event-ID, Traceparent, Tracestate, Epigraph-Thread, Idempotency-Key, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// fromCall classifies an error of a gRPC call, which grpckit's connections have done already, or one
// that generated code made.
func fromCall(err error) error {
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	if he, ok := errors.AsType[*runtime.HTTPStatusError](err); ok {
		return errs.New(errs.InvalidArgument, "INVALID_PATH", "%v", he.Err)
	}
	return grpckit.FromStatus(err)
}

// recorder records the status and size of the answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// answerMemory is how often an answer is in memory at once: as a message, and as JSON in a buffer that
// doubles.
const answerMemory = 3

// silent keeps why an answer could not be written to itself: generated code would write it to the
// global log.
type silent struct {
	*paced.Writer

	err error
}

func (s *silent) Write(b []byte) (n int, err error) {
	if s.err == nil {
		_, s.err = s.Writer.Write(b)
	}
	return len(b), nil
}

// marshaler writes the REST form of messages. Its input has been turned into protojson before.
type marshaler struct{ *runtime.JSONPb }

// ContentType is that of every answer.
func (marshaler) ContentType(any) string { return jsonType }

// rendered is an answer that is JSON already.
type rendered []byte

// Marshal takes what the response option has rendered.
func (marshaler) Marshal(v any) ([]byte, error) {
	b, ok := v.(rendered)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not rendered", v)
	}
	return b, nil
}
