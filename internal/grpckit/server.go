package grpckit

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
)

// Options configure a server; the zero value is an open server with the defaults named below.
type Options struct {
	Auth AuthConfig
	// Audit keeps the entries of the audit log of what this server serves; nil keeps none.
	Audit Auditor
	// Telemetry reports spans and metrics; nil means none.
	Telemetry *obs.Telemetry
	// Logger is used in place of Telemetry's.
	Logger *slog.Logger
	// TLS secures the server; nil means plain text.
	TLS *tls.Config
	// MaxRecvBytes bounds one incoming message; default 16 MiB.
	MaxRecvBytes int
	// UnaryTimeout bounds unary calls; default 60s, negative means none.
	UnaryTimeout time.Duration
	// WriteTimeout is for how long a caller may refuse to take a piece of an answer before its connection is
	// closed; default 60s. Services are trusted to read.
	WriteTimeout time.Duration
	// MaxCalls bounds the calls of one namespace that are under way at once, streams among them, on however
	// many connections; default 2,000. Calls that a service makes for itself are not counted.
	MaxCalls int
	// MaxConnectionAge makes clients reconnect now and then, for balance among replicas; 0 means never.
	MaxConnectionAge time.Duration
	// Budget is shared by everything in the process that decodes requests; nil means one of this server, of
	// the default size.
	Budget *inflight.Budget
	// Connections is shared by the servers of the process and bounds their connections; nil means one of this
	// server, with the default bounds.
	Connections *conns.Pool
	// MaxConnectionIdle is how long a connection without a call under way stays open; default 5 minutes. A
	// client should go by itself before that.
	MaxConnectionIdle time.Duration
	// NoReflection leaves the reflection service out.
	NoReflection bool
}

// Server is a gRPC server with the suite's interceptors and a health service. Register services on it
// before Serve. It starts as not serving: call SetServing.
type Server struct {
	*grpc.Server
	chain   *chain
	health  *health.Server
	drained sync.Once
}

// maxConnectionIdle is how long a connection stays open on which there is no call.
const maxConnectionIdle = 5 * time.Minute

// DefaultMaxCalls is how many calls of one namespace a server has under way at once: a thousand workers, and
// as many again.
const DefaultMaxCalls = 2000

const (
	// streamWindow is how much of a message may come before it is asked for, and connWindow how much may be
	// on its way on one connection.
	streamWindow = 64 << 10
	connWindow   = 1 << 20
	// maxStreams bounds the calls on one connection. A gateway has one for all namespaces, so it is no bound
	// for any of them: see Options.MaxCalls.
	maxStreams = 100_000
	// maxHeaderBytes bounds the headers of a call, and connectionTimeout the time in which a connection must
	// be made.
	maxHeaderBytes    = 32 << 10
	connectionTimeout = 10 * time.Second
)

// RegisterService registers a service whose methods all go through the chain before a message of theirs is
// read.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	own := *d
	own.Methods = make([]grpc.MethodDesc, len(d.Methods))
	for i, m := range d.Methods {
		own.Methods[i] = s.chain.unary("/"+d.ServiceName+"/"+m.MethodName, m)
	}
	s.Server.RegisterService(&own, impl)
}

// Serve accepts connections on lis, which it closes, until the server stops.
func (s *Server) Serve(lis net.Listener) error {
	return s.Server.Serve(s.chain.conns.Listen(lis))
}

// Strangers is how many connections there are on which no call has shown valid credentials.
func (s *Server) Strangers() int { return s.chain.conns.Strangers() }

// unchained refuses calls of methods that were registered past RegisterService.
func unchained(_ context.Context, _ any, i *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	return nil, ToStatus(context.Background(), fmt.Errorf("%s was registered past the chain", i.FullMethod)).Err()
}

// NewServer returns a server that has the interceptor chain of the suite.
func NewServer(o Options) (*Server, error) {
	if o.Telemetry == nil {
		o.Telemetry = obs.Noop()
	}
	if o.Logger == nil {
		o.Logger = o.Telemetry.Logger
	}
	if o.MaxRecvBytes <= 0 {
		o.MaxRecvBytes = 16 << 20
	}
	if o.UnaryTimeout == 0 {
		o.UnaryTimeout = time.Minute
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = time.Minute
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = DefaultMaxCalls
	}
	if o.Budget == nil {
		o.Budget = inflight.New(0)
	}
	if o.Connections == nil {
		o.Connections = conns.New(conns.DefaultBounds())
	}
	if o.MaxConnectionIdle <= 0 {
		o.MaxConnectionIdle = maxConnectionIdle
	}
	auth, err := NewAuthenticator(o.Auth)
	if err != nil {
		return nil, err
	}
	c, err := newChain(o, auth)
	if err != nil {
		return nil, err
	}
	opts := []grpc.ServerOption{
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(o.Telemetry.TracerProvider),
			otelgrpc.WithMeterProvider(o.Telemetry.MeterProvider), otelgrpc.WithPropagators(o.Telemetry.Propagator),
			otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return !exempt(i.FullMethodName) && !polled(i.FullMethodName) }))),
		grpc.StatsHandler(tagger{c.conns}),
		grpc.StatsHandler(writers{}),
		grpc.UnaryInterceptor(unchained),
		grpc.StreamInterceptor(c.stream),
		grpc.InTapHandle(tapped),
		grpc.ForceServerCodecV2(c.interned),
		grpc.MaxRecvMsgSize(o.MaxRecvBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		// Bytes that arrive before a message is read are bounded by the window of their stream, which must
		// not be enlarged automatically. The window of a connection limits nothing; it is large enough for
		// links with a high latency.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: o.MaxConnectionIdle,
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAge,
		}),
	}
	if o.TLS != nil {
		opts = append(opts, grpc.Creds(plainText{credentials.NewTLS(o.TLS)}))
	}
	s := &Server{Server: grpc.NewServer(opts...), chain: c, health: health.NewServer()}
	healthpb.RegisterHealthServer(s, s.health)
	if !o.NoReflection {
		reflection.Register(s)
	}
	s.SetServing(false)
	return s, nil
}

// Drain signals streams without an end that the server is about to stop; see Draining. It is idempotent.
func (s *Server) Drain() { s.drained.Do(func() { close(s.chain.drain) }) }

// HealthDatabase is the name by which the health service is asked whether the database answers, of a server
// that has one.
const HealthDatabase = "database"

// HealthDatabaseReady is the name by which a server that waits for its database at its start says so, if the
// database may answer and is not ready.
const HealthDatabaseReady = "database/ready"

// SetDatabase sets that answer.
func (s *Server) SetDatabase(ok bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(HealthDatabase, state)
}

// SetServing sets the answer of the health service, for the whole server and each registered service.
func (s *Server) SetServing(ok bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, state)
	}
}
