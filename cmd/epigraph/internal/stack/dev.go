package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/gateway"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The default addresses of development mode.
const (
	DefaultHTTPAddr = "127.0.0.1:8080"
	DefaultGRPCAddr = "127.0.0.1:7400"
)

// ringSize is how many spans are kept for display: those of the last few hundred runs.
const ringSize = 50_000

// DevOptions say how the suite runs in one process.
type DevOptions struct {
	// DataDir holds the stores, the API key and the lock; empty means DefaultDataDir.
	DataDir string
	// HTTPAddr is where REST is served; empty means Config.Gateway.Addr, which is 127.0.0.1:8080 by default.
	HTTPAddr string
	// GRPCAddr is where all gRPC APIs are served; empty means DefaultGRPCAddr.
	GRPCAddr string
	// Config is usually DevConfig with what the user set. Stores named by relative SQLite paths lie in
	// DataDir.
	Config Config
	// Actors are called in place of those of the same names, for tests of workflows.
	Actors workgraph.Actors
}

// DefaultDataDir is $XDG_DATA_HOME/epigraph, else ~/.local/share/epigraph.
func DefaultDataDir() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "epigraph"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errs.New(errs.InvalidArgument, "DATA_DIR_UNKNOWN", "there is no home directory to keep data in").
			Hint("name a directory with --data").With(err)
	}
	return filepath.Join(home, ".local", "share", "epigraph"), nil
}

// Dev is the whole suite in one process. The services talk over in-memory connections, through the same
// interceptors and wire format as over the network, and each reports under its own name.
type Dev struct {
	dataDir  string
	httpAddr string
	grpcAddr string
	key      conf.Secret
	ring     *obs.Ring
	tel      *obs.Telemetry // of the gRPC port
	// computing are the turns of all services.
	computing *turns.Turns
	executor  ready
	actors    workgraph.Actors
	services  []host.Service // in the order in which they open
}

// OpenDev opens everything: faulty settings, a data directory in use, addresses that are taken and a store
// that cannot be opened are found here, in this order. Nothing is taken or created before the settings are
// checked.
func OpenDev(ctx context.Context, o DevOptions) (_ *Dev, err error) {
	cfg := o.Config
	if o.DataDir == "" {
		if o.DataDir, err = DefaultDataDir(); err != nil {
			return nil, err
		}
	}
	if o.HTTPAddr != "" {
		cfg.Gateway.Addr = o.HTTPAddr
	}
	if o.GRPCAddr == "" {
		o.GRPCAddr = DefaultGRPCAddr
	}
	// This process is one cell.
	cfg.Gateway.Cells, cfg.Gateway.Placements, cfg.Gateway.DefaultCell = nil, nil, ""
	if cfg.Executor.ID == "" {
		cfg.Executor.ID = "dev"
	}
	cfg.InDir(o.DataDir)
	cfg.Gateway.Anonymous = loopback(cfg.Gateway.Addr)
	// The secret of dev's own key is in the data directory, which is read after the settings were looked at.
	own := len(cfg.Auth.Keys)
	cfg.Auth.Keys = append(slices.Clone(cfg.Auth.Keys),
		grpckit.APIKey{Name: "dev", Namespace: grpckit.DefaultNamespace, Secret: conf.NewSecret(rand.Text()), Scopes: access.Scopes()})
	web, rpc, pages := flagPort(cfg.Gateway.Addr, "--http"), flagPort(o.GRPCAddr, "--grpc"), &devPort{addr: cfg.Admin.Addr, hint: "set " + setting("admin.addr") + " to another address"}
	ports := []*devPort{web, rpc}
	if pages.addr != "" {
		ports = append(ports, pages)
	}
	faults := []error{cfg.ValidateFor(Services()...), cfg.gatewayConfig().CheckOrigins()}
	for _, p := range ports {
		faults = append(faults, p.blame(host.CheckAddress(ctx, p.addr)))
	}
	if err := together(faults...); err != nil {
		return nil, err
	}
	d := &Dev{dataDir: o.DataDir, ring: obs.NewRing(ringSize), actors: o.Actors}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, errs.New(errs.InvalidArgument, "DATA_DIR_UNUSABLE", "cannot make the data directory: %v", err).
			Hint("name another directory with --data").With(err)
	}
	unlock, err := lock(o.DataDir)
	if err != nil {
		return nil, err
	}
	d.add(host.Func(nil, unlock))
	if d.key, err = apiKey(filepath.Join(o.DataDir, "api_key")); err != nil {
		return nil, err
	}
	for _, p := range ports {
		faults = append(faults, d.take(ctx, p))
	}
	if err := together(faults...); err != nil {
		return nil, err
	}
	d.httpAddr, d.grpcAddr = web.lis.Addr().String(), rpc.lis.Addr().String()

	cfg.Auth.Keys[own].Secret = d.key
	if err := cfg.Auth.Validate(); err != nil { // another key may have this secret
		return nil, invalid(fmt.Errorf("auth: %w", err))
	}
	if err := d.assemble(ctx, cfg, web.lis, rpc.lis, pages.lis); err != nil {
		return nil, err
	}
	return d, nil
}

// devBudgets are what requests under way may hold in dev. The gateway holds a request while a service behind
// it holds it as well. With one budget, requests that the gateway let in would leave no room for the same
// requests at the services, and all would wait for each other. So what comes in has two thirds of the total,
// and what the gateway passes on, in fewer copies, the rest.
func devBudgets(total int64) (front, behind *inflight.Budget) {
	total = cmp.Or(total, inflight.DefaultTotal()/2*3)
	return inflight.New(total / 3 * 2), inflight.New(total / 3)
}

// assemble opens the services in order, each behind a server of its own that only this process reaches.
func (d *Dev) assemble(ctx context.Context, cfg Config, web, rpc, adminLis net.Listener) error {
	pool := conns.New(conns.DefaultBounds())
	readiness, admitted := &host.Readiness{}, &admission.Control{}
	d.computing = turns.NewComputing(host.Processors())
	front, behind := devBudgets(int64(cfg.MaxInFlightBytes))
	token := conf.NewSecret(rand.Text()) // shared by the services of this process, and never leaves it
	internal := grpckit.AuthConfig{ServiceToken: token}
	plain := cfg
	plain.GRPC.TLS = TLS{}                      // in-memory connections need none
	plain.Executor.TokenKeys = tokenKeys(d.key) // token is another one at every start
	plain.Upstream = Upstream{Planner: Planner, Executor: Executor, Registry: Registry}
	buf := &grpckit.BufNet{}

	open := map[string]api{}
	tels := map[string]*obs.Telemetry{}
	var all []*obs.Telemetry
	for _, name := range append(Services(), "dev") {
		t, err := telemetry(ctx, cfg, name, d.ring)
		if err != nil {
			return err
		}
		tels[name], all = t, append(all, t)
		d.add(host.Flush(flushLimit, t.Shutdown))
	}
	d.tel = tels["dev"]
	d.tel.Logger.InfoContext(ctx, "starting", slog.String("version", cfg.Version), slog.String("commit", cfg.Commit), slog.String("data_dir", d.dataDir),
		slog.String("http", d.httpAddr), slog.String("grpc", d.grpcAddr), conf.Attr("config", cfg))
	warnExposed(ctx, d.tel.Logger, append(append(cfg.secretFiles(Executor), cfg.secretFiles(Registry)...), d.dataDir, filepath.Join(d.dataDir, "api_key"))...)
	jobs := &pages{}
	if adminLis != nil {
		d.add(admin(cfg, adminLis, readiness, jobs, pool, all...))
	}
	var log *audit.Log // of all services
	for _, name := range []string{Registry, Executor, Planner} {
		conns := &connections{cfg: plain, tel: tels[name], buf: buf, token: token, admission: admitted, computing: d.computing, actors: d.actors}
		d.add(host.Func(nil, func() error { conns.close(); return nil }))
		s, err := openAPI(ctx, name, plain, conns, tels[name])
		if err != nil {
			return err
		}
		d.add(s)
		jobs.show(s)
		open[name] = s
		if r, ok := s.(ready); ok {
			readiness.Add(name, r.Ready)
		}
		if log == nil {
			if log, err = auditLog(ctx, plain, s, conns, tels[name]); err != nil {
				return err
			}
			d.add(log)
		}
		server, err := newServer(plain, internal, log, behind, pool, tels[name])
		if err != nil {
			return err
		}
		s.Register(server)
		lis, err := buf.Listen(name)
		if err != nil {
			return err
		}
		d.add(whenReady(s, host.GRPC(server, lis, cfg.GRPC.Grace)))
	}
	d.executor, _ = open[Executor].(ready)

	conns := &connections{cfg: plain, tel: tels[Gateway], buf: buf, token: token, onBehalf: true}
	d.add(host.Func(nil, func() error { conns.close(); return nil }))
	deps := gateway.Deps{Version: cfg.Version, Telemetry: tels[Gateway], Ready: readiness, Budget: front, Connections: pool, Listener: web}
	for name, conn := range map[string]**grpc.ClientConn{Planner: &deps.Planner, Executor: &deps.Executor, Registry: &deps.Registry} {
		var err error
		if *conn, err = conns.dial(name); err != nil {
			return err
		}
	}
	var err error
	if deps.TLS, err = cfg.gatewayTLS(); err != nil {
		return err
	}
	g, err := gateway.Open(ctx, cfg.gatewayConfig(), deps)
	if err != nil {
		return err
	}
	d.add(g)

	auth := cfg.Auth
	auth.Anonymous = loopback(rpc.Addr().String()) // callers on this machine need no key
	if auth.Resolve, err = keyRing(plain, open[Registry], conns); err != nil {
		return err
	}
	public, err := newServer(cfg, auth, log, front, pool, d.tel)
	if err != nil {
		return err
	}
	for _, s := range open {
		s.Register(public)
	}
	d.add(whenReady(open[Executor], host.GRPC(public, rpc, cfg.GRPC.Grace)))
	d.add(watchHealth(public, readiness))
	d.add(host.Drainer(readiness, cfg.DrainDelay))
	return nil
}

func (d *Dev) add(s host.Service) { d.services = append(d.services, s) }

// Run serves until ctx ends and everything has stopped in good order. Runs that are under way go on at the
// next start.
func (d *Dev) Run(ctx context.Context) error {
	obs.HandleLog(d.tel.Logger)
	return host.Run(ctx, d.services...)
}

// Ready returns when runs are taken, or when ctx ends. Call it while Run runs.
func (d *Dev) Ready(ctx context.Context) error {
	return awaitReady(ctx, d.executor)
}

// Close frees everything. It is idempotent, and needed only if Run is not called.
func (d *Dev) Close() error { return host.Close(d.services...) }

// DataDir is where the stores are.
func (d *Dev) DataDir() string { return d.dataDir }

// HTTPAddr is where REST is served, host:port.
func (d *Dev) HTTPAddr() string { return d.httpAddr }

// GRPCAddr is where the gRPC APIs are served, host:port.
func (d *Dev) GRPCAddr() string { return d.grpcAddr }

// APIKey opens the default namespace. It was made at the first start and is kept in the file api_key of the
// data directory.
func (d *Dev) APIKey() string { return d.key.Reveal() }

// Ring holds the last spans of all services.
func (d *Dev) Ring() *obs.Ring { return d.ring }

// devPort is an address on which dev listens.
type devPort struct {
	addr string
	// hint says how to choose another one.
	hint string
	lis  net.Listener
}

func flagPort(addr, flag string) *devPort {
	return &devPort{addr: addr, hint: "choose another address with " + flag + ", such as " + flag + "=127.0.0.1:0 for any free port"}
}

// blame adds to a fault of the address how to choose another one.
func (p *devPort) blame(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return e.Hint(p.hint)
	}
	return err
}

// take listens on an address until d is closed.
func (d *Dev) take(ctx context.Context, p *devPort) error {
	lis, err := host.Listen(ctx, p.addr)
	if err != nil {
		return p.blame(err)
	}
	p.lis = lis
	d.add(host.Func(nil, func() error { return closeQuietly(lis) }))
	return nil
}

// together is one error that says what all of them say, with the reason of the first; nil if there is none.
func together(faults ...error) error {
	var first *errs.Error
	var messages, hints []string
	for _, f := range faults {
		e, ok := errors.AsType[*errs.Error](f)
		if f == nil {
			continue
		} else if !ok {
			return errors.Join(faults...)
		}
		first = cmp.Or(first, e)
		messages, hints = append(messages, e.Message), append(hints, e.HintText())
	}
	if len(messages) < 2 {
		return errors.Join(faults...)
	}
	return errs.New(first.Kind, first.Reason, "%s", strings.Join(messages, "\n")).Hint(strings.Join(hints, "; ")).With(errors.Join(faults...))
}

// InDir puts the stores that are named by relative SQLite paths into a data directory, as OpenDev does.
func (c *Config) InDir(dir string) {
	for _, path := range []*string{&c.Executor.SQLitePath, &c.Registry.SQLitePath} {
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// apiKey reads the key of a file, or makes one.
func apiKey(path string) (conf.Secret, error) {
	text, err := os.ReadFile(path)
	if key := strings.TrimSpace(string(text)); err == nil && key != "" {
		return conf.NewSecret(key), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return conf.Secret{}, fmt.Errorf("read API key: %w", err)
	}
	key := "ek_" + strings.ToLower(rand.Text())
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return conf.Secret{}, fmt.Errorf("keep API key: %w", err)
	}
	return conf.NewSecret(key), nil
}

// closeQuietly closes a listener that its server may have closed before.
func closeQuietly(l net.Listener) error {
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// inUse is the error of a second process on one data directory.
func inUse(dir, by string) error {
	return errs.New(errs.AlreadyExists, "DATA_DIR_IN_USE", "another process%s works in the data directory %s", by, dir).
		Hint("stop it, or name another directory with --data")
}
