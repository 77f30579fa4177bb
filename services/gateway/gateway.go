// Package gateway is the service that speaks HTTP: REST for every method of the suite, server-sent
// events for runs, health, and the OpenAPI document. It owns API keys, limits and the JSON view of
// messages; it keeps nothing, and must not know how the services behind it work.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/auth"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
	"github.com/epigraph-run/epigraph/services/gateway/internal/rest"
)

// Config says where the gateway listens, whom it lets in, and what it allows them. DefaultConfig gives
// the defaults.
type Config struct {
	Addr string `help:"address of the HTTP API, host:port"`
	// TLS secures the address, for REST and for gRPC. The files are read again when they change.
	TLS TLS
	// Keys are the API keys, each bound to one namespace. Without any, everyone is let in, which is
	// allowed on a loopback address only.
	Keys []grpckit.APIKey `help:"API keys: name, namespace, secret, role or scopes, as in auth.keys"`
	// Anonymous lets requests without a key in although there are keys; on a loopback address only.
	Anonymous bool `help:"accept requests without a key; on a loopback address only"`

	MaxBodyBytes   conf.Bytes    `help:"maximum size of a request body"`
	BodyTimeout    time.Duration `help:"time limit for the arrival of a request's body"`
	RequestTimeout time.Duration `help:"time limit of a request, event streams excepted"`
	WriteTimeout   time.Duration `help:"time limit of a write to a client that does not read"`
	HealthTimeout  time.Duration `help:"time limit of the health check of a service"`

	// TrustedProxies may say by X-Forwarded-For for whom they call.
	TrustedProxies []string `help:"proxies before the gateway whose X-Forwarded-For is believed: addresses or prefixes, such as 10.0.0.0/8; none by default"`

	CORSOrigins []string `conf:"cors_origins" help:"origins whose pages may call the API, or *; none by default"`

	KeepAlive time.Duration `help:"longest silence on an event stream"`
	Retry     time.Duration `help:"pause before clients of an event stream reconnect"`

	// PublicURL is where clients reach the gateway, through a proxy that ends TLS for example.
	PublicURL string `conf:"public_url" help:"address of the gateway as clients know it, for cards of agents and logins, such as https://host; that of each request by default"`

	// OIDC has the providers at which people prove who they are.
	OIDC OIDC `conf:"oidc"`

	// Console is what the pages of the console are told besides the API.
	Console Console

	Grace time.Duration `help:"time that requests under way get when stopping"`

	// Cells are the databases with their executors and registries that namespaces are spread over.
	// Without any there is one: that of upstream.executor and upstream.registry.
	Cells []Cell `help:"cells: name, executor, registry; without any, calls go to upstream.executor and upstream.registry"`
	// Placements say where namespaces live. The first that matches holds.
	Placements []PlacementRule `help:"placements of namespaces in cells: namespaces (a pattern), cell, closed"`
	// DefaultCell is where namespaces live that no placement names; empty refuses them.
	DefaultCell string `help:"cell of the namespaces without a placement; empty refuses them"`
	// CellInFlight bounds the calls under way to one service of one cell, so that a hanging cell
	// blocks only its own calls.
	CellInFlight int `help:"maximum number of calls under way to one service of one cell"`
}

type (
	// OIDC says whose tokens are believed, and how browsers log in.
	OIDC = oidc.Config
	// Issuer is an OpenID provider.
	Issuer = oidc.Issuer
	// Grant gives the users of a group a role in a namespace.
	Grant = oidc.Grant
)

// TLS names the certificate with which the gateway serves; without one it serves plain text.
type TLS struct {
	CertFile string `help:"PEM certificate of the gateway's address, for REST and gRPC; read again when it changes"`
	KeyFile  string `help:"PEM private key of that certificate"`
}

// Console has the templates of links that the pages of the console show. In them {trace_id}, {run_id},
// {namespace}, {from} and {to} stand for what a link is about; the last two are times in milliseconds.
type Console struct {
	TraceURL string `conf:"trace_url" help:"link to a trace, such as https://host/trace/{trace_id}; also {run_id}, {namespace}, {from}, {to}"`
	LogsURL  string `conf:"logs_url" help:"link to the logs of a run, such as https://host/logs?run={run_id}; also {trace_id}, {namespace}, {from}, {to}"`
}

// DefaultConfig listens on the loopback address and lets everyone in.
func DefaultConfig() Config {
	return Config{
		Addr:           "127.0.0.1:8080",
		MaxBodyBytes:   8 << 20,
		BodyTimeout:    30 * time.Second,
		RequestTimeout: 60 * time.Second,
		WriteTimeout:   30 * time.Second,
		HealthTimeout:  2 * time.Second,
		KeepAlive:      15 * time.Second,
		Retry:          3 * time.Second,
		Grace:          host.DefaultGrace,
		CellInFlight:   4096,
		OIDC:           oidc.DefaultConfig(),
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
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		faults = append(faults, errors.New("tls.cert_file and tls.key_file go together"))
	}
	if c.MaxBodyBytes <= 0 {
		faults = append(faults, errors.New("max_body_bytes must be positive"))
	}
	for name, d := range map[string]time.Duration{
		"body_timeout": c.BodyTimeout, "request_timeout": c.RequestTimeout, "write_timeout": c.WriteTimeout,
		"health_timeout": c.HealthTimeout, "keep_alive": c.KeepAlive, "retry": c.Retry, "grace": c.Grace,
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
	if _, err := c.proxies(); err != nil {
		faults = append(faults, err)
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
		faults = append(faults, fmt.Errorf("public_url: %q is no address of a server; write it as https://host", c.PublicURL))
	}
	faults = append(append(faults, c.OIDC.Validate(c.PublicURL)...), c.Console.validate()...)
	return errors.Join(append(faults, c.validateCells()...)...)
}

// proxies are the trusted ones.
func (c Config) proxies() (out rest.Proxies, err error) {
	for _, text := range c.TrustedProxies {
		prefix, bad := netip.ParsePrefix(text)
		if ip, one := netip.ParseAddr(text); one == nil {
			prefix, bad = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if bad != nil {
			return nil, fmt.Errorf("trusted_proxies: %q is neither an address nor a prefix such as 10.0.0.0/8", text)
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}

// open reports whether requests without an API key are let in.
func (c Config) open() bool { return c.Anonymous || len(c.Keys) == 0 && len(c.OIDC.Issuers) == 0 }

// CheckOrigins refuses pages of every origin where no API key is needed. Open does so, too.
func (c Config) CheckOrigins() error {
	if !c.open() || !slices.Contains(c.CORSOrigins, "*") {
		return nil
	}
	return errs.New(errs.InvalidArgument, "CORS_OPEN", "the gateway does not let pages of every origin in where no API key is needed: any web site could read everything through a browser").
		Hint("name the origins in gateway.cors_origins, or set gateway.keys and leave gateway.anonymous off")
}

// CellConns are the connections to one cell, made by grpckit.Dial for it alone.
type CellConns struct {
	Executor, Registry *grpc.ClientConn
}

// Deps are what the gateway works with; the connections are required and stay the caller's to close.
type Deps struct {
	// The connections are made by grpckit.Dial with the service token: they carry the namespace of
	// each request to the services.
	// Executor and Registry are those of the only cell, and not used when Config.Cells names any.
	Planner, Executor, Registry *grpc.ClientConn
	// Cells are the connections to the cells of Config.Cells, by name.
	Cells map[string]CellConns
	// Version is that of the binary, which clients are told; may be empty.
	Version string
	// Telemetry reports spans, metrics and logs; nil means none.
	Telemetry *obs.Telemetry
	// Ready is the process's own readiness, which /readyz shows beside that of the services; nil means
	// always ready.
	Ready *host.Readiness
	// Budget is shared by everything in the process that decodes requests; nil means one of the
	// gateway's own.
	Budget *inflight.Budget
	// Connections is shared by the servers of the process and bounds their connections; nil means
	// one of the gateway's own, with the default bounds.
	Connections *conns.Pool
	// TLS is what Config.TLS comes to; nil serves plain text.
	TLS *tls.Config
	// Listener is used in place of listening on Config.Addr. The service closes it.
	Listener net.Listener
}

// Service is an HTTP server that listens; requests are answered while Run runs.
type Service struct {
	listener net.Listener
	server   host.Service
	// wait waits for the end of the WebSockets, which the server does not know.
	wait  func(context.Context)
	grace time.Duration
	audit *audit.Log
}

const scope = "github.com/epigraph-run/epigraph/services/gateway"

const (
	// cellFailures is how many calls in a row must fail before a service of a cell is left alone.
	cellFailures = 5
	// cellPause is for how long that is, before one call tries again.
	cellPause = time.Second
)

// firstEvent is how long an event stream waits for its first event before it begins without one.
const firstEvent = time.Second

// Open listens, so that an address which is taken is found here. It refuses to listen without keys, or
// with Anonymous, on anything but a loopback address.
func Open(ctx context.Context, cfg Config, d Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, conf.ReasonInvalid, "gateway: %v", err)
	}
	if d.Planner == nil || len(cfg.Cells) == 0 && (d.Executor == nil || d.Registry == nil) {
		return nil, errs.New(errs.Internal, "DEPS_INCOMPLETE", "gateway: connections to planner, executor and registry are required")
	}
	if cfg.TLS.CertFile != "" && d.TLS == nil {
		return nil, errs.New(errs.Internal, "DEPS_INCOMPLETE", "gateway: a certificate is named and not given")
	}
	if d.Telemetry == nil {
		d.Telemetry = obs.Noop()
	}
	if d.Budget == nil {
		d.Budget = inflight.New(0)
	}
	anonymous := cfg.open()
	if anonymous && !loopback(cfg, d) {
		what, hint := "without API keys", "set gateway.keys, or listen on 127.0.0.1"
		if len(cfg.Keys)+len(cfg.OIDC.Issuers) > 0 {
			what, hint = "with gateway.anonymous", "turn gateway.anonymous off, or listen on 127.0.0.1"
		}
		return nil, errs.New(errs.InvalidArgument, "ADDRESS_NOT_LOOPBACK",
			"the gateway does not listen on %s %s: anyone who reaches it could do anything", cfg.Addr, what).Hint(hint)
	}
	if err := cfg.CheckOrigins(); err != nil {
		return nil, err
	}
	router, err := cfg.router(d)
	if err != nil {
		return nil, err
	}
	keyring, users, err := cfg.callers(router, d)
	if err != nil {
		return nil, err
	}
	log, err := audit.New(WriteAudit(registryv1.NewAuditServiceClient(router.Conn(cells.Registry))), d.Telemetry)
	if err != nil {
		return nil, err
	}
	proxies, err := cfg.proxies()
	if err != nil {
		return nil, err
	}
	handler, err := rest.New(ctx, rest.Options{
		Planner: d.Planner, Cells: router,
		Keyring: keyring, Users: users, Telemetry: d.Telemetry, Ready: d.Ready, Budget: d.Budget,
		MaxBodyBytes: int64(cfg.MaxBodyBytes), MessageTimeout: cfg.BodyTimeout, RequestTimeout: cfg.RequestTimeout,
		WriteTimeout: cfg.WriteTimeout, HealthTimeout: cfg.HealthTimeout, CORSOrigins: cfg.CORSOrigins,
		KeepAlive: cfg.KeepAlive, FirstEvent: firstEvent, Retry: cfg.Retry,
		Proxies: proxies, Audit: log,
		Info:      rest.Info{Version: d.Version, TraceURL: cfg.Console.TraceURL, LogsURL: cfg.Console.LogsURL},
		PublicURL: cfg.PublicURL,
	})
	if err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	s := &Service{listener: d.Listener, wait: handler.Wait, grace: cfg.Grace, audit: log}
	if s.listener == nil {
		if s.listener, err = host.Listen(ctx, cfg.Addr); err != nil {
			return nil, err
		}
	}
	s.server = host.HTTP(handler, s.listener, host.HTTPOptions{
		Logger: d.Telemetry.Logger, MaxBodyBytes: -1, BodyTimeout: cfg.BodyTimeout, Grace: cfg.Grace, TLS: d.TLS,
		Connections: d.Connections,
	})
	return s, nil
}

// callers knows the keys, and the users.
func (c Config) callers(router *cells.Router, d Deps) (*auth.Keyring, *oidc.Users, error) {
	users, err := oidc.New(c.OIDC, c.PublicURL, d.TLS != nil)
	if err != nil {
		return nil, nil, err
	}
	trusted := slices.DeleteFunc(slices.Clone(c.CORSOrigins), func(o string) bool { return o == "*" })
	made := apikey.NewRing(LookUpKey(registryv1.NewKeyServiceClient(router.Conn(cells.Registry))))
	keyring, err := auth.New(c.Keys, made, users, c.open(), trusted...)
	return keyring, users, err
}

func loopback(cfg Config, d Deps) bool {
	if d.Listener != nil {
		tcp, ok := d.Listener.Addr().(*net.TCPAddr)
		return !ok || tcp.IP.IsLoopback() // others, such as unix sockets, do not leave the machine
	}
	host, _, err := net.SplitHostPort(cfg.Addr)
	return err == nil && auth.Loopback(host)
}

// Addr is the listening address, with the port that was chosen if Config.Addr left it open.
func (s *Service) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends. Then it ends event streams, whose clients resume elsewhere, and
// lets the requests under way end for Config.Grace. It returns nil on a clean stop, and can run once.
func (s *Service) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	log, stop := context.WithCancel(context.WithoutCancel(ctx))
	writing.Go(func() { _ = s.audit.Run(log) }) // it fails never
	defer writing.Wait()
	defer stop()
	err := s.server.Run(ctx)
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	s.wait(rest)
	return err
}

// Close frees the address and cuts off everything under way. It is idempotent.
func (s *Service) Close() error { return errors.Join(s.server.Close(), s.audit.Close()) }
