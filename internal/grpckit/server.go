package grpckit

import (
	"crypto/tls"
	"log/slog"
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

	"github.com/epigraph-run/epigraph/internal/obs"
)

// Options configure a server; the zero value is an open server with the defaults named below.
type Options struct {
	Auth AuthConfig
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
	// MaxStreams bounds concurrent calls per connection; default 1000.
	MaxStreams uint32
	// MaxConnectionAge makes clients reconnect now and then, for balance among replicas; 0 means never.
	MaxConnectionAge time.Duration
	// NoReflection leaves the reflection service out.
	NoReflection bool
}

// Server is a gRPC server with the suite's interceptors and a health service. Register services on it
// before Serve. It starts as not serving: call SetServing.
type Server struct {
	*grpc.Server
	health   *health.Server
	interned *interned
	drain    chan struct{}
	drained  sync.Once
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
	if o.MaxStreams == 0 {
		o.MaxStreams = 1000
	}
	auth, err := NewAuthenticator(o.Auth)
	if err != nil {
		return nil, err
	}
	c, err := newChain(o.Telemetry, o.Logger, auth, o.UnaryTimeout)
	if err != nil {
		return nil, err
	}
	opts := []grpc.ServerOption{
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(o.Telemetry.TracerProvider),
			otelgrpc.WithMeterProvider(o.Telemetry.MeterProvider), otelgrpc.WithPropagators(o.Telemetry.Propagator),
			otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return !exempt(i.FullMethodName) }))),
		grpc.UnaryInterceptor(c.unary),
		grpc.StreamInterceptor(c.stream),
		grpc.ForceServerCodecV2(c.interned),
		grpc.MaxRecvMsgSize(o.MaxRecvBytes),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAge,
		}),
	}
	if o.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s := &Server{Server: grpc.NewServer(opts...), health: health.NewServer(), drain: c.drain, interned: c.interned}
	healthpb.RegisterHealthServer(s.Server, s.health)
	if !o.NoReflection {
		reflection.Register(s.Server)
	}
	s.SetServing(false)
	return s, nil
}

// Drain tells streams without end that the server is about to stop; see Draining. It is idempotent.
func (s *Server) Drain() { s.drained.Do(func() { close(s.drain) }) }

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
