// Package registry owns the registry service: it opens the store of the configuration, serves
// epigraph.registry.v1.RegistryService, WorkflowService, MemoryService, KeyService and AuditService from
// it, and sweeps expired rows. It must not know the other services nor how it is reached.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/auditing"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/keys"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/remembering"
	"github.com/epigraph-run/epigraph/services/registry/internal/rpc"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlite"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Config names the store. DefaultConfig gives the defaults.
type Config struct {
	// Store is "sqlite" or "postgres".
	Store string `help:"database of the registry: sqlite or postgres"`
	// SQLitePath is the file to use; it is made if it is not there.
	SQLitePath string `conf:"sqlite_path" help:"SQLite file"`
	// PostgresURL names the database; the tables are in its schema "registry".
	PostgresURL conf.Secret `conf:"postgres_url" help:"PostgreSQL URL"`
	// MaxConns bounds the pool on PostgreSQL; 0 leaves it to the URL.
	MaxConns int32 `help:"maximum number of PostgreSQL connections"`
	// Migrate migrates the schema when the service opens; without it an old schema is an error.
	Migrate bool `help:"migrate the schema at start"`
	// Workflows is a folder of workflows that are put into the catalog at the start, and when its
	// files change: see workflowfiles.Folder. Files that lie in no folder of a namespace go to the
	// default one.
	Workflows string `help:"folder of workflows that the catalog takes: SLUG.yaml or SLUG@VERSION.yaml (or .json), in NAMESPACE/ for others than the default"`
	// SweepInterval is the pause between two sweeps.
	SweepInterval time.Duration `help:"pause between two sweeps of expired claims and request ids"`
	// FeedEvents, FeedBytes and FeedAge bound how much of the feed of a namespace is kept. A sweep
	// removes the rest.
	FeedEvents int64         `help:"events of the feed that are kept of a namespace"`
	FeedBytes  conf.Bytes    `help:"size of the events of the feed that are kept of a namespace"`
	FeedAge    time.Duration `help:"how long events of the feed are kept"`
	// FeedWatches is how many watches of the feed of one namespace are served at once.
	FeedWatches int `help:"maximum number of watches of the feed of one namespace at once"`
	// MemoryEntries and MemoryBytes bound what a namespace remembers in all of its scopes.
	MemoryEntries int64      `help:"maximum number of entries of the memory of a namespace"`
	MemoryBytes   conf.Bytes `help:"maximum size of the entries of the memory of a namespace"`
	// AuditAge is how long an entry of the audit log is kept.
	AuditAge time.Duration `help:"time after which an entry of the audit log is removed"`
}

// DefaultConfig uses a SQLite file in the working directory and migrates it.
func DefaultConfig() Config {
	return Config{Store: "sqlite", SQLitePath: "registry.db", Migrate: true, SweepInterval: 10 * time.Second,
		FeedEvents: 1_000_000, FeedBytes: 1 << 30, FeedAge: 7 * 24 * time.Hour, FeedWatches: accounting.DefaultBounds().Watches,
		MemoryEntries: memory.DefaultBounds().Entries, MemoryBytes: conf.Bytes(memory.DefaultBounds().Bytes), AuditAge: auditing.DefaultAge}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	switch c.Store {
	case "sqlite":
		if c.SQLitePath == "" {
			faults = append(faults, errors.New("sqlite_path must be set when store is sqlite"))
		}
	case "postgres":
		if c.PostgresURL.IsZero() {
			faults = append(faults, errors.New("postgres_url must be set when store is postgres"))
		}
	default:
		faults = append(faults, fmt.Errorf("store must be sqlite or postgres, got %q", c.Store))
	}
	if c.MaxConns < 0 {
		faults = append(faults, fmt.Errorf("max_conns must not be negative, got %d", c.MaxConns))
	}
	if c.SweepInterval <= 0 {
		faults = append(faults, fmt.Errorf("sweep_interval must be positive, got %s", c.SweepInterval))
	}
	if c.FeedEvents <= 0 {
		faults = append(faults, fmt.Errorf("feed_events must be positive, got %d", c.FeedEvents))
	}
	if c.FeedBytes <= 0 {
		faults = append(faults, fmt.Errorf("feed_bytes must be positive, got %d", c.FeedBytes))
	}
	if c.FeedWatches <= 0 {
		faults = append(faults, fmt.Errorf("feed_watches must be positive, got %d", c.FeedWatches))
	}
	if c.MemoryEntries <= 0 {
		faults = append(faults, fmt.Errorf("memory_entries must be positive, got %d", c.MemoryEntries))
	}
	if c.MemoryBytes <= 0 {
		faults = append(faults, fmt.Errorf("memory_bytes must be positive, got %d", c.MemoryBytes))
	}
	if c.AuditAge <= 0 {
		faults = append(faults, fmt.Errorf("audit_age must be positive, got %s", c.AuditAge))
	}
	if c.FeedAge <= 0 {
		faults = append(faults, fmt.Errorf("feed_age must be positive, got %s", c.FeedAge))
	}
	return errors.Join(faults...)
}

// Deps are the collaborators of the service.
type Deps struct {
	// Telemetry reports; nil means none.
	Telemetry *obs.Telemetry
}

// Service is a registry with an open store. It is safe for concurrent use.
type Service struct {
	store    store.Store
	accounts *accounting.Accounts
	catalog  *cataloging.Catalog
	memories *remembering.Memories
	keys     *keys.Keys
	audit    *auditing.Book
	folder   *folder
	log      *slog.Logger
	sweep    time.Duration
	kept     feed.Bounds
	close    func() error
}

// Open validates cfg, opens the store, and puts the price list that comes with the registry into it.
func Open(ctx context.Context, cfg Config, d Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if d.Telemetry == nil {
		d.Telemetry = obs.Noop()
	}
	outage := obs.NewOutage(d.Telemetry.Logger, "the registry's database", dbkit.Away)
	d.Telemetry = d.Telemetry.WithLogger(outage.Logger())
	st, migrate, err := open(ctx, cfg, d, outage.Answered)
	if err != nil {
		return nil, fmt.Errorf("open store of registry: %w", err)
	}
	bounds := accounting.DefaultBounds()
	bounds.Watches = cfg.FeedWatches
	remembered := memory.DefaultBounds()
	remembered.Entries, remembered.Bytes = cfg.MemoryEntries, int64(cfg.MemoryBytes)
	s := &Service{
		store: st, accounts: accounting.New(st).Within(bounds), catalog: cataloging.New(st), memories: remembering.New(st).Within(remembered), keys: keys.New(st), audit: auditing.New(st, cfg.AuditAge), log: d.Telemetry.Logger, sweep: cfg.SweepInterval, close: sync.OnceValue(st.Close),
		kept: feed.Bounds{Rows: cfg.FeedEvents, Bytes: int64(cfg.FeedBytes), Age: cfg.FeedAge},
	}
	if err := s.prepare(ctx, cfg, migrate); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.folder, err = openFolder(ctx, cfg.Workflows, rpc.NewWorkflows(s.catalog), s.log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Register adds the service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterRegistryServiceServer(r, rpc.New(s.accounts, s.catalog))
	registryv1.RegisterWorkflowServiceServer(r, rpc.NewWorkflows(s.catalog))
	registryv1.RegisterMemoryServiceServer(r, rpc.NewMemory(s.memories))
	registryv1.RegisterKeyServiceServer(r, rpc.NewKeys(s.keys))
	registryv1.RegisterAuditServiceServer(r, rpc.NewAudit(s.audit))
}

// WriteAudit is an audit.Write, for the entries of calls that this process serves.
func (s *Service) WriteAudit(ctx context.Context, namespace string, entries []audit.Entry) error {
	return s.audit.Write(grpckit.AsService(ctx), namespace, entries)
}

// LookUpKey finds a key that has not ended, for calls that show one to this process itself.
func (s *Service) LookUpKey(ctx context.Context, t apikey.Token) (k apikey.Key, found bool, err error) {
	row, found, err := s.keys.Resolve(grpckit.AsService(ctx), t.Namespace, t.ID, t.Hash)
	return apikey.Key{Hash: row.Hash, Name: row.Name, Scopes: row.Scopes, Expires: row.ExpireTime}, found, err
}

// Run sweeps expired claims, request ids and reservations, and looks at the folder of workflows,
// until ctx ends. What fails is logged, and made up for by the next try.
func (s *Service) Run(ctx context.Context) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() {
		if err := s.store.Follow(ctx); err != nil {
			s.log.WarnContext(ctx, "the feed of other processes cannot be followed", slog.Any("err", err))
		}
	})
	if s.folder != nil {
		looking.Go(func() { s.folder.run(ctx) })
	}
	looking.Go(func() { s.resumeCapped(ctx) })
	tick := time.NewTicker(s.sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.sweepOnce(ctx)
	}
}

// resumeCapped resumes epics that caps of their namespaces have stopped: after each change of such caps, and
// now and then, until ctx ends.
func (s *Service) resumeCapped(ctx context.Context) {
	tick := time.NewTicker(s.sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.accounts.CapsChanged():
		}
		switch n, err := s.accounts.ResumeCapped(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "epics that a cap has stopped were not all resumed", slog.Any("err", err), slog.Int("epics", n))
		case n > 0:
			s.log.InfoContext(ctx, "resumed epics that a cap of their namespace had stopped", slog.Int("epics", n))
		}
	}
}

func (s *Service) sweepOnce(ctx context.Context) {
	claims, requests, err := s.accounts.Sweep(ctx)
	workflows, runs, werr := s.catalog.Sweep(ctx)
	reservations, lerr := s.accounts.SweepLedger(ctx)
	lerr = errors.Join(lerr, s.accounts.AdvanceQuiet(ctx))
	events, ferr := s.accounts.SweepFeed(ctx, s.kept)
	memories, reads, merr := s.memories.Sweep(ctx)
	keys, kerr := s.keys.Sweep(ctx)
	audited, aerr := s.audit.Sweep(ctx)
	switch err = errors.Join(err, werr, lerr, ferr, merr, kerr, aerr); {
	case ctx.Err() != nil:
	case err != nil:
		s.log.WarnContext(ctx, "sweep failed", slog.Any("err", err))
	case claims+requests+workflows+runs+int64(reservations)+events+memories+reads+keys+audited > 0:
		s.log.InfoContext(ctx, "swept", slog.Int64("claims", claims), slog.Int64("requests", requests), slog.Int64("workflows", workflows), slog.Int64("workflow_runs", runs),
			slog.Int("forgotten_reservations", reservations), slog.Int64("events", events),
			slog.Int64("memories", memories), slog.Int64("memory_reads", reads), slog.Int64("keys", keys), slog.Int64("audit", audited))
	}
}

// Close closes the store. It may be called more than once, and without Run.
func (s *Service) Close() error {
	if s.folder == nil {
		return s.close()
	}
	return errors.Join(s.close(), s.folder.files.Close())
}

func (s *Service) prepare(ctx context.Context, cfg Config, migrate func(context.Context) (int, error)) error {
	if cfg.Migrate {
		n, err := migrate(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			s.log.InfoContext(ctx, "migrated", slog.Int("migrations", n))
		}
	}
	if err := s.store.Ready(ctx); err != nil {
		return err
	}
	prices, err := usage.Defaults()
	if err != nil {
		return err
	}
	if err := s.store.SeedPrices(ctx, prices); err != nil {
		return fmt.Errorf("add default prices: %w", err)
	}
	return nil
}

func open(ctx context.Context, cfg Config, d Deps, answered func()) (store.Store, func(context.Context) (int, error), error) {
	if cfg.Store == "postgres" {
		s, err := pg.Open(ctx, cfg.PostgresURL.Reveal(), dbkit.PostgresOptions{
			ApplicationName: "epigraph-registry", TracerProvider: d.Telemetry.TracerProvider, MaxConns: cfg.MaxConns, Answered: answered,
		})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Migrate, nil
	}
	s, err := sqlite.Open(ctx, cfg.SQLitePath, dbkit.SQLiteOptions{TracerProvider: d.Telemetry.TracerProvider})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Migrate, nil
}
