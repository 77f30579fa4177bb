package stack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/memlimit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/turns"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/gateway"
	"github.com/epigraph-run/epigraph/services/planner"
	"github.com/epigraph-run/epigraph/services/registry"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// flushLimit bounds the last export of telemetry.
	flushLimit = 5 * time.Second
	// healthInterval is the pause between two looks at whether a service may be called.
	healthInterval = time.Second
	// openPatience is how long callers wait for a service that opens, before the answer is that it waits for
	// its database.
	openTimeout = 3 * time.Second
	// openRetry is the pause between two attempts to open a service whose database does not answer.
	openRetry = 500 * time.Millisecond
)

// api is what every service with a gRPC API offers.
type api interface {
	host.Service
	Register(r grpc.ServiceRegistrar)
}

// ready is a service that knows whether it may be called.
type ready interface {
	Ready(ctx context.Context) error
}

// Process is one service as a process: its listeners are taken, and Run serves.
type Process struct {
	name      string
	cfg       Config
	listener  net.Listener
	admin     net.Listener // nil when none is served
	tel       *obs.Telemetry
	readiness *host.Readiness
	budget    *inflight.Budget
	conns     *conns.Pool
	opened    atomic.Bool
	waits     atomic.Pointer[error] // why the service is not open yet
	pages     pages
}

// FitMachine makes the process respect the memory limit of its container, leave threads to those who mostly
// wait and, until ctx ends, give memory back that it needs no more. Call it once, before a configuration is
// made.
func FitMachine(ctx context.Context) {
	memlimit.Respect(os.Getenv)
	host.SpareThreads(os.Getenv)
	go host.GiveMemoryBack(ctx)
}

// Serve runs one service until ctx ends and it has stopped in good order.
func Serve(ctx context.Context, service string, cfg Config) error {
	p, err := Open(ctx, service, cfg)
	if err != nil {
		return err
	}
	obs.HandleErrors(p.tel.Logger)
	obs.HandleLog(p.tel.Logger)
	return p.Run(ctx)
}

// Open checks the configuration of one service, takes its addresses and logs the effective configuration. The
// service itself opens in Run, which waits for its database.
func Open(ctx context.Context, service string, cfg Config) (_ *Process, err error) {
	if err := cfg.ValidateFor(service); err != nil {
		return nil, err
	}
	if len(cfg.Auth.Keys) > 0 && cfg.Auth.ServiceToken.IsZero() {
		return nil, errs.New(errs.InvalidArgument, conf.ReasonInvalid, "auth.keys without auth.service_token would keep the services from each other").
			Hint("set auth.service_token to the same secret everywhere, or use gateway.keys, which guard REST alone")
	}
	key, addr := cfg.addr(service)
	if service != Gateway {
		if err := cfg.guard(key, addr); err != nil {
			return nil, err
		}
	}
	p := &Process{name: service, cfg: cfg, budget: inflight.New(int64(cfg.MaxInFlightBytes)), conns: conns.New(conns.DefaultBounds()), readiness: &host.Readiness{}}
	if p.tel, err = telemetry(ctx, cfg, service, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.abandon())
		}
	}()
	if p.listener, err = listen(ctx, key, addr); err != nil {
		return nil, err
	}
	if cfg.Admin.Addr != "" {
		if p.admin, err = listen(ctx, "admin.addr", cfg.Admin.Addr); err != nil {
			return nil, err
		}
	}
	if p.cfg.Executor.Addr == "" {
		p.cfg.Executor.Addr = advertised(p.listener.Addr())
	}
	p.readiness.Add(service, func(context.Context) error {
		if p.opened.Load() {
			return nil
		}
		starting := errs.New(errs.Unavailable, "STARTING", "starting")
		if why := p.waits.Load(); why != nil {
			return starting.With(*why)
		}
		return starting
	})
	p.tel.Logger.InfoContext(ctx, "starting", slog.String("version", cfg.Version), slog.String("commit", cfg.Commit), slog.String("addr", p.listener.Addr().String()), slog.Int64("memory_limit", memlimit.Bytes()),
		conf.Attr("config", cfg))
	warnExposed(ctx, p.tel.Logger, cfg.secretFiles(service)...)
	return p, nil
}

// advertised is how others reach a listening address: by the host's name if it is that of every interface.
func advertised(addr net.Addr) string {
	h, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(h); ip != nil && ip.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			return ""
		}
		h = name
	}
	return net.JoinHostPort(h, port)
}

// Addr is where the service is served: HTTP for the gateway, gRPC for the others.
func (p *Process) Addr() string { return p.listener.Addr().String() }

// AdminAddr is where probes and metrics are served, or empty.
func (p *Process) AdminAddr() string {
	if p.admin == nil {
		return ""
	}
	return p.admin.Addr().String()
}

// Close gives back what Open took, if Run is not to be called.
func (p *Process) Close() error { return p.abandon() }

// Run serves until ctx ends. Then readiness fails, after the drain delay calls are refused and those under
// way may end, the service hands back its work, and telemetry is flushed last. It returns nil after a clean
// stop, and can run once.
func (p *Process) Run(ctx context.Context) error {
	list := []host.Service{host.Flush(flushLimit, p.tel.Shutdown)}
	if p.admin != nil {
		list = append(list, admin(p.cfg, p.admin, p.readiness, &p.pages, p.conns, p.tel))
	}
	list = append(list, host.Func(p.serve, func() error { return closeQuietly(p.listener) }), host.Drainer(p.readiness, p.cfg.DrainDelay))
	return host.Run(ctx, list...)
}

func (p *Process) abandon() error {
	var faults []error
	for _, l := range []net.Listener{p.listener, p.admin} {
		if l != nil {
			faults = append(faults, closeQuietly(l))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	return errors.Join(append(faults, p.tel.Shutdown(ctx))...)
}

// serve opens the service and its server and runs them. The connections close after what uses them.
func (p *Process) serve(ctx context.Context) error {
	conns := connections{cfg: p.cfg, tel: p.tel, onBehalf: p.name == Gateway}
	defer conns.close()
	if p.name == Gateway {
		s, err := p.openGateway(ctx, &conns)
		if err != nil {
			return err
		}
		p.opened.Store(true)
		return host.Run(ctx, s)
	}
	lis := share(p.listener)
	defer func() { _ = closeQuietly(lis) }() // Run closes it, too
	s, err := p.await(ctx, lis, func() (api, error) { return openAPI(ctx, p.name, p.cfg, &conns, p.tel) })
	if err != nil || s == nil {
		return err
	}
	auth := p.cfg.Auth
	if auth.Resolve, err = keyRing(p.cfg, s, &conns); err != nil {
		return errors.Join(err, s.Close())
	}
	log, err := auditLog(ctx, p.cfg, s, &conns, p.tel)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	server, err := newServer(p.cfg, auth, log, p.budget, p.conns, p.tel)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.Register(server)
	p.pages.show(s)
	if r, ok := s.(ready); ok {
		p.readiness.Add(p.name, r.Ready)
	}
	p.opened.Store(true)
	// The log closes behind the server, and before the store of the service.
	return host.Run(ctx, s, log, whenReady(s, host.GRPC(server, lis, p.cfg.GRPC.Grace)), watchHealth(server, p.readiness))
}

// await opens a service as soon as its database allows it. It returns nil without an error when ctx ends
// first. While the database does not answer, is not migrated, or keeps the service waiting, callers at lis
// get that answer.
func (p *Process) await(ctx context.Context, lis *shared, open func() (api, error)) (api, error) {
	begun := time.Now()
	secure, err := p.cfg.GRPC.TLS.server()
	if err != nil {
		return nil, err
	}
	meanwhile := &standIn{name: p.name, lis: lis, secure: secure}
	defer meanwhile.close()
	late := time.AfterFunc(openTimeout, meanwhile.notReady)
	defer late.Stop()
	for told := ""; ; {
		s, err := open()
		if err == nil {
			return s, nil
		}
		reason := errs.ReasonOf(err)
		passing := errs.Is(err, errs.Unavailable) || reason == dbkit.ReasonSchemaOld
		if limit := p.cfg.StartTimeout; !passing || limit > 0 && time.Since(begun) > limit {
			return nil, err
		}
		p.waits.Store(&err)
		late.Stop()
		switch {
		case databaseAway(err):
			meanwhile.unreachable()
		case reason == dbkit.ReasonSchemaOld:
			meanwhile.notReady()
		}
		if reason != told {
			told = reason
			p.tel.Logger.WarnContext(ctx, "waiting for the database", "err", err, "at_most", p.cfg.StartTimeout)
		}
		if !sleep.For(ctx, openRetry) {
			return nil, nil
		}
	}
}

func (p *Process) openGateway(ctx context.Context, conns *connections) (host.Service, error) {
	d := gateway.Deps{Version: p.cfg.Version, Telemetry: p.tel, Ready: p.readiness, Budget: p.budget, Connections: p.conns, Listener: p.listener, Cells: map[string]gateway.CellConns{}}
	dial := func(target string, conn **grpc.ClientConn) (err error) {
		*conn, err = conns.dial(target)
		return err
	}
	up := p.cfg.Upstream
	err := dial(up.Planner, &d.Planner)
	if len(p.cfg.Gateway.Cells) == 0 {
		err = errors.Join(err, dial(up.Executor, &d.Executor), dial(up.Registry, &d.Registry))
	}
	for _, cell := range p.cfg.Gateway.Cells {
		var c gateway.CellConns
		err = errors.Join(err, dial(cell.Executor, &c.Executor), dial(cell.Registry, &c.Registry))
		d.Cells[cell.Name] = c
	}
	var insecure error
	if d.TLS, insecure = p.cfg.gatewayTLS(); err != nil || insecure != nil {
		return nil, errors.Join(err, insecure)
	}
	return gateway.Open(ctx, p.cfg.gatewayConfig(), d)
}

// openAPI opens a service that serves gRPC.
func openAPI(ctx context.Context, name string, cfg Config, conns *connections, tel *obs.Telemetry) (api, error) {
	cfg.shareModels()
	switch name {
	case Planner:
		d := planner.Deps{Admission: conns.admission, Computing: conns.computing, Telemetry: tel}
		if cfg.Upstream.Registry != "" {
			conn, err := conns.dial(cfg.Upstream.Registry)
			if err != nil {
				return nil, err
			}
			d.Registry = registryv1.NewRegistryServiceClient(conn)
		}
		if cfg.Upstream.Executor != "" && len(cfg.Gateway.Cells) == 0 && len(cfg.Planner.Models.Accounts) > 0 {
			conn, err := conns.dial(cfg.Upstream.Executor)
			if err != nil {
				return nil, err
			}
			d.Accounts = executorv1.NewPeerServiceClient(conn)
		}
		// With several cells only the gateway knows where a namespace lives.
		if cfg.Upstream.Executor != "" && len(cfg.Gateway.Cells) == 0 {
			conn, err := conns.behalf(cfg.Upstream.Executor)
			if err != nil {
				return nil, err
			}
			d.Executor = executorv1.NewExecutorServiceClient(conn)
		}
		return some(planner.Open(ctx, cfg.Planner, d))
	case Registry:
		return some(registry.Open(ctx, cfg.Registry, registry.Deps{Telemetry: tel}))
	case Executor:
		d := executor.Deps{Telemetry: tel, Admission: conns.admission, Computing: conns.computing, Actors: conns.actors}
		if conns.buf == nil && cfg.Executor.Addr != "" {
			d.Peer = conns.fresh
		}
		cfg.Executor.MaxStreamAge = cfg.GRPC.MaxConnectionAge
		if len(cfg.Executor.TokenKeys) == 0 {
			cfg.Executor.TokenKeys = tokenKeys(append([]conf.Secret{cfg.Auth.ServiceToken}, cfg.Auth.OldServiceTokens...)...)
		}
		if cfg.Upstream.Registry != "" {
			conn, err := conns.dial(cfg.Upstream.Registry)
			if err != nil {
				return nil, err
			}
			d.Registry, d.Catalog = registryv1.NewRegistryServiceClient(conn), registryv1.NewWorkflowServiceClient(conn)
			d.Memory = registryv1.NewMemoryServiceClient(conn)
		}
		return some(executor.Open(ctx, cfg.Executor, d))
	}
	return nil, unknownService(name)
}

// tokenKeys are the keys of attempt token, made from secrets that all executors share and that outlive them.
func tokenKeys(secrets ...conf.Secret) [][]byte {
	var keys [][]byte
	for _, s := range secrets {
		if !s.IsZero() {
			h := hmac.New(sha256.New, []byte(s.Reveal()))
			_, _ = h.Write([]byte("epigraph attempt token")) // it never fails
			keys = append(keys, h.Sum(nil))
		}
	}
	return keys
}

// some keeps a nil pointer from becoming an interface that is not nil.
func some[S api](s S, err error) (api, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// connections are a process's connections to other services.
type connections struct {
	cfg   Config
	tel   *obs.Telemetry
	buf   *grpckit.BufNet // nil for real ones
	token conf.Secret     // in place of the configured one
	// onBehalf makes calls those of whoever called this process.
	onBehalf bool
	open     map[kept]*grpc.ClientConn
	// admission and computing are those of the process; nil leaves one to each service.
	admission *admission.Control
	computing *turns.Turns
	actors    workgraph.Actors
}

func (c *connections) dial(target string) (*grpc.ClientConn, error) {
	return c.keep(target, c.onBehalf)
}

// behalf is a connection whose calls are those of whoever called this process.
func (c *connections) behalf(target string) (*grpc.ClientConn, error) { return c.keep(target, true) }

func (c *connections) keep(target string, onBehalf bool) (*grpc.ClientConn, error) {
	key := kept{target, onBehalf}
	if conn := c.open[key]; conn != nil {
		return conn, nil
	}
	conn, err := c.connect(target, meetTime, onBehalf)
	if err != nil {
		return nil, err
	}
	if c.open == nil {
		c.open = map[kept]*grpc.ClientConn{}
	}
	c.open[key] = conn
	return conn, nil
}

// kept tells the connections to one target apart.
type kept struct {
	target   string
	onBehalf bool
}

// meetTime is how long a call waits for another service of an installation that has only just begun.
const meetTime = 5 * time.Second

// fresh makes a connection that is the caller's to close.
func (c *connections) fresh(target string) (*grpc.ClientConn, error) {
	return c.connect(target, 0, c.onBehalf)
}

func (c *connections) connect(target string, meet time.Duration, onBehalf bool) (*grpc.ClientConn, error) {
	o := grpckit.DialOptions{Meet: meet, Token: c.cfg.Auth.ServiceToken, OnBehalf: onBehalf, Telemetry: c.tel, Buf: c.buf, MaxRecvBytes: int(c.cfg.GRPC.MaxRecvBytes)}
	if !c.token.IsZero() {
		o.Token = c.token
	}
	if c.buf == nil {
		var err error
		if o.TLS, err = c.cfg.GRPC.TLS.client(); err != nil {
			return nil, err
		}
	}
	return grpckit.Dial(target, o)
}

func (c *connections) close() {
	for _, conn := range c.open {
		_ = conn.Close() // says only that it was closed before
	}
	c.open = nil
}

// knowsKeys is the service that has the keys which were made by the API.
type knowsKeys interface {
	LookUpKey(ctx context.Context, t apikey.Token) (apikey.Key, bool, error)
}

// keyRing looks keys up at the service itself, or at the registry that it calls. Without either only
// those of the configuration are known.
func keyRing(cfg Config, s api, conns *connections) (grpckit.Resolver, error) {
	if own, ok := s.(knowsKeys); ok {
		return apikey.NewRing(own.LookUpKey), nil
	}
	if cfg.Upstream.Registry == "" {
		return nil, nil
	}
	conn, err := conns.dial(cfg.Upstream.Registry)
	if err != nil {
		return nil, err
	}
	return apikey.NewRing(gateway.LookUpKey(registryv1.NewKeyServiceClient(conn))), nil
}

// keepsAudit is the service that keeps the audit log.
type keepsAudit interface {
	WriteAudit(ctx context.Context, namespace string, entries []audit.Entry) error
}

// auditLog writes to the service itself, or to the registry that it calls.
func auditLog(ctx context.Context, cfg Config, s api, conns *connections, tel *obs.Telemetry) (*audit.Log, error) {
	if own, ok := s.(keepsAudit); ok {
		return audit.New(own.WriteAudit, tel)
	}
	if cfg.Upstream.Registry == "" {
		tel.Logger.WarnContext(ctx, "the changes that this service makes have no entries in the audit log: upstream.registry is not set")
		return audit.New(func(context.Context, string, []audit.Entry) error { return nil }, tel)
	}
	conn, err := conns.dial(cfg.Upstream.Registry)
	if err != nil {
		return nil, err
	}
	return audit.New(gateway.WriteAudit(registryv1.NewAuditServiceClient(conn)), tel)
}

func newServer(cfg Config, auth grpckit.AuthConfig, log *audit.Log, budget *inflight.Budget, pool *conns.Pool, tel *obs.Telemetry) (*grpckit.Server, error) {
	secure, err := cfg.GRPC.TLS.server()
	if err != nil {
		return nil, err
	}
	return grpckit.NewServer(grpckit.Options{
		Auth: auth, Audit: log, Telemetry: tel, TLS: secure, MaxRecvBytes: int(cfg.GRPC.MaxRecvBytes), UnaryTimeout: cfg.GRPC.UnaryTimeout,
		Budget: budget, Connections: pool, MaxConnectionAge: cfg.GRPC.MaxConnectionAge, NoReflection: !cfg.GRPC.Reflection,
	})
}

// whenReady starts a server only when the service behind it may be called for the first time: until then
// connections wait, instead of being refused after the health check said that the service serves.
func whenReady(s api, server host.Service) host.Service {
	r, ok := s.(ready)
	if !ok {
		return server
	}
	return host.Func(func(ctx context.Context) error {
		if err := awaitReady(ctx, r); err != nil {
			return nil // stopped before that
		}
		return server.Run(ctx)
	}, server.Close)
}

// awaitReady returns when r may be called, or when ctx ends.
func awaitReady(ctx context.Context, r ready) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := r.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// watchHealth makes the health service say what readiness says, at once when draining begins.
func watchHealth(server *grpckit.Server, r *host.Readiness) host.Service {
	r.OnDrain(func() { server.SetServing(false) })
	return host.Func(func(ctx context.Context) error {
		wait := healthInterval
		for {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			}
			check, cancel := context.WithTimeout(ctx, 2*healthInterval)
			err := r.Check(check)
			cancel()
			server.SetDatabase(!dbkit.Away(err))
			server.SetServing(err == nil)
			if wait = healthInterval; err != nil {
				wait = healthInterval / 10
			}
		}
	}, nil)
}

func admin(cfg Config, lis net.Listener, r *host.Readiness, p *pages, pool *conns.Pool, tels ...*obs.Telemetry) host.Service {
	h := host.Admin(host.AdminOptions{Ready: r, Metrics: obs.MetricsHandler(tels...), Pprof: cfg.Admin.Pprof,
		Pages: map[string]http.Handler{executor.JobPagesPath: p}})
	return host.HTTP(cfg.Admin.protect(h), lis, host.HTTPOptions{Logger: tels[0].Logger, Grace: time.Second, Connections: pool})
}

func telemetry(ctx context.Context, cfg Config, service string, ring *obs.Ring) (*obs.Telemetry, error) {
	t := cfg.Telemetry
	t.ServiceName, t.ServiceVersion, t.Ring = "epigraph-"+service, cfg.Version, ring
	return obs.Setup(ctx, t)
}

// addr is the setting that says where a service listens, and its value.
func (c Config) addr(service string) (key, addr string) {
	switch service {
	case Planner:
		return "grpc.planner_addr", c.GRPC.PlannerAddr
	case Executor:
		return "grpc.executor_addr", c.GRPC.ExecutorAddr
	case Registry:
		return "grpc.registry_addr", c.GRPC.RegistryAddr
	}
	return "gateway.addr", c.Gateway.Addr
}

// setting names a setting, and the environment variable that sets it.
func setting(key string) string { return fmt.Sprintf("%s (%s)", key, conf.EnvName(EnvPrefix, key)) }

// listen takes an address; if that fails, the error names the setting.
func listen(ctx context.Context, key, addr string) (net.Listener, error) {
	lis, err := host.Listen(ctx, addr)
	if e, ok := errors.AsType[*errs.Error](err); ok {
		how := "set " + setting(key) + " to another address"
		if e.Reason == "PORT_TAKEN" {
			how = "stop the process that listens there, or " + how
		}
		return nil, e.Hint(how)
	}
	return lis, err
}
