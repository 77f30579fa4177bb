// Package gateway is the service that speaks HTTP: REST for every method of the suite, server-sent
// events for runs, health, and the OpenAPI document. It owns API keys, limits and the JSON view of
// messages; it keeps nothing, and must not know how the services behind it work.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/gateway/internal/auth"
	"github.com/epigraph-run/epigraph/services/gateway/internal/rest"
)

// Config says where the gateway listens, whom it lets in, and what it allows them. DefaultConfig gives
// the defaults.
type Config struct {
	Addr string `help:"address of the HTTP API, host:port"`
	// Keys are the API keys, each bound to one namespace. Without any, everyone is let in, which is
	// allowed on a loopback address only.
	Keys []grpckit.APIKey `help:"API keys: name, namespace, secret"`
	// Anonymous lets requests without a key in although there are keys; on a loopback address only.
	Anonymous bool `help:"let requests without a key in; on a loopback address only"`

	MaxBodyBytes   conf.Bytes `help:"largest request body"`
	MaxHeaderBytes conf.Bytes `help:"largest request header"`

	HeaderTimeout  time.Duration `help:"time in which a request's header must arrive"`
	BodyTimeout    time.Duration `help:"time in which a request's body must arrive"`
	RequestTimeout time.Duration `help:"time in which a request is answered; event streams have no end"`
	WriteTimeout   time.Duration `help:"time for which a client may refuse to take what it is sent"`
	IdleTimeout    time.Duration `help:"time for which an idle connection is kept"`
	HealthTimeout  time.Duration `help:"time in which each service must say that it is ready"`

	CORSOrigins []string `conf:"cors_origins" help:"origins whose pages may call the API, or *; none by default"`

	KeepAlive time.Duration `help:"longest silence on an event stream"`
	Retry     time.Duration `help:"pause before clients of an event stream connect again"`

	DrainDelay   time.Duration `help:"time between not being ready and refusing connections"`
	DrainTimeout time.Duration `help:"time that requests under way have to end"`
}

// DefaultConfig listens on the loopback address and lets everyone in.
func DefaultConfig() Config {
	return Config{
		Addr:           "127.0.0.1:8080",
		MaxBodyBytes:   8 << 20,
		MaxHeaderBytes: 64 << 10,
		HeaderTimeout:  10 * time.Second,
		BodyTimeout:    30 * time.Second,
		RequestTimeout: 60 * time.Second,
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    2 * time.Minute,
		HealthTimeout:  2 * time.Second,
		KeepAlive:      15 * time.Second,
		Retry:          3 * time.Second,
		DrainTimeout:   10 * time.Second,
	}
}

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.Addr == "" {
		faults = append(faults, errors.New("addr must be host:port"))
	}
	if err := (grpckit.AuthConfig{Keys: c.Keys}).Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.MaxBodyBytes <= 0 || c.MaxHeaderBytes <= 0 {
		faults = append(faults, errors.New("max_body_bytes and max_header_bytes must be positive"))
	}
	for name, d := range map[string]time.Duration{
		"header_timeout": c.HeaderTimeout, "body_timeout": c.BodyTimeout, "request_timeout": c.RequestTimeout,
		"write_timeout": c.WriteTimeout, "idle_timeout": c.IdleTimeout, "health_timeout": c.HealthTimeout,
		"keep_alive": c.KeepAlive, "retry": c.Retry, "drain_timeout": c.DrainTimeout,
	} {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("%s must be positive, got %v", name, d))
		}
	}
	for _, o := range c.CORSOrigins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			faults = append(faults, fmt.Errorf("cors_origins: %q is no origin; write it as https://host", o))
		}
	}
	return errors.Join(faults...)
}

// Deps are what the gateway works with; the connections are required and stay the caller's to close.
type Deps struct {
	// The connections are made by grpckit.Dial with the service token: they carry the namespace of
	// each request to the services.
	Planner, Executor, Registry *grpc.ClientConn
	// Telemetry reports spans, metrics and logs; nil means none.
	Telemetry *obs.Telemetry
	// Version is shown in the OpenAPI document.
	Version string
	// Listener is used in place of listening on Config.Addr. The service closes it.
	Listener net.Listener
}

// Service is an HTTP server that listens; requests are answered while Run runs.
type Service struct {
	cfg      Config
	log      *slog.Logger
	listener net.Listener
	server   *http.Server
	draining chan struct{}
	stopping chan struct{}
	drain    func()
	stop     func()
}

// firstEvent is how long an event stream waits for its first event before it begins without one.
const firstEvent = time.Second

// Open listens, so that an address which is taken is found here. It refuses to listen without keys, or
// with Anonymous, on anything but a loopback address.
func Open(ctx context.Context, cfg Config, d Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, conf.ReasonInvalid, "gateway: %v", err)
	}
	if d.Planner == nil || d.Executor == nil || d.Registry == nil {
		return nil, errs.New(errs.Internal, "DEPS_INCOMPLETE", "gateway: connections to planner, executor and registry are required")
	}
	if d.Telemetry == nil {
		d.Telemetry = obs.Noop()
	}
	anonymous := cfg.Anonymous || len(cfg.Keys) == 0
	if anonymous && !loopback(cfg, d) {
		what, hint := "without API keys", "set gateway.keys, or listen on 127.0.0.1"
		if len(cfg.Keys) > 0 {
			what, hint = "with gateway.anonymous", "turn gateway.anonymous off, or listen on 127.0.0.1"
		}
		return nil, errs.New(errs.InvalidArgument, "ADDRESS_NOT_LOOPBACK",
			"the gateway does not listen on %s %s: anyone who reaches it could do anything", cfg.Addr, what).Hint(hint)
	}
	trusted := slices.DeleteFunc(slices.Clone(cfg.CORSOrigins), func(o string) bool { return o == "*" })
	keyring, err := auth.New(cfg.Keys, anonymous, trusted...)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: d.Telemetry.Logger, listener: d.Listener, draining: make(chan struct{}), stopping: make(chan struct{})}
	s.drain = sync.OnceFunc(func() { close(s.draining) })
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	handler, err := rest.New(ctx, rest.Options{
		Planner: d.Planner, Executor: d.Executor, Registry: d.Registry,
		Keyring: keyring, Telemetry: d.Telemetry, Version: d.Version, Anonymous: anonymous,
		MaxBodyBytes: int64(cfg.MaxBodyBytes), BodyTimeout: cfg.BodyTimeout, RequestTimeout: cfg.RequestTimeout,
		WriteTimeout: cfg.WriteTimeout, HealthTimeout: cfg.HealthTimeout, CORSOrigins: cfg.CORSOrigins,
		KeepAlive: cfg.KeepAlive, FirstEvent: firstEvent, Retry: cfg.Retry,
		Draining: s.draining, Stopping: s.stopping,
	})
	if err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	if s.listener == nil {
		if s.listener, err = listen(ctx, cfg.Addr); err != nil {
			return nil, err
		}
	}
	// Clients that know HTTP/2 have all their streams on one connection.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    int(cfg.MaxHeaderBytes),
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

func loopback(cfg Config, d Deps) bool {
	if d.Listener != nil {
		tcp, ok := d.Listener.Addr().(*net.TCPAddr)
		return !ok || tcp.IP.IsLoopback() // others, such as unix sockets, do not leave the machine
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	return err == nil && auth.Loopback(host)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errs.New(errs.FailedPrecondition, "ADDRESS_IN_USE", "%s is taken by another process", addr).
			Hint("stop that process, or set gateway.addr to another port").With(err)
	case errors.Is(err, syscall.EACCES):
		return nil, errs.New(errs.FailedPrecondition, "ADDRESS_DENIED", "this process may not listen on %s", addr).
			Hint("set gateway.addr to a port above 1023").With(err)
	default:
		return nil, errs.New(errs.InvalidArgument, "ADDRESS_INVALID", "cannot listen on %s: %v", addr, err).
			Hint("gateway.addr is host:port")
	}
}

// Addr is where the service listens; it tells the port when Config.Addr left that open.
func (s *Service) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends. Then it says that it is not ready, waits Config.DrainDelay, ends
// event streams, and lets the requests under way end for Config.DrainTimeout. It returns nil on a clean
// stop, and can run once.
func (s *Service) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.server.Serve(s.listener) }()
	select {
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	s.drain()
	delay := time.NewTimer(s.cfg.DrainDelay)
	defer delay.Stop()
	<-delay.C
	s.stop()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.server.Shutdown(late); err != nil {
		s.log.WarnContext(ctx, "requests were cut off", "err", err)
		_ = s.server.Close()
	}
	<-failed
	return nil
}

// Close frees the address and cuts off what is under way. It is idempotent.
func (s *Service) Close() error {
	s.drain()
	s.stop()
	err := s.server.Close()
	if lerr := s.listener.Close(); lerr != nil && !errors.Is(lerr, net.ErrClosed) {
		err = errors.Join(err, lerr)
	}
	return err
}
