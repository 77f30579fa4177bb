// Package executor owns the executor service: it opens the journal of the configuration, runs graphs
// from it, reports their usage to the registry, and serves epigraph.executor.v1.ExecutorService. It
// must not know the internals of other services, nor how it is reached.
package executor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/turns"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/builtin"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/services/executor/internal/bots"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/services/executor/internal/worker"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Bot is a bot of Telegram, in Config.Telegram.
type Bot = bots.Bot

// Config says where the journal is kept and how much may run. DefaultConfig gives the defaults.
type Config struct {
	// Store is "sqlite" or "postgres".
	Store string `help:"database of the journal: sqlite or postgres"`
	// SQLitePath is the file to use; it is made if it is not there.
	SQLitePath string `conf:"sqlite_path" help:"SQLite file"`
	// PostgresURL names the database; the tables are in its schema "executor".
	PostgresURL conf.Secret `conf:"postgres_url" help:"PostgreSQL URL"`
	// MaxConns bounds the connections that answer the API on PostgreSQL; 0 leaves it to the URL.
	MaxConns int32 `help:"maximum number of PostgreSQL connections for the API"`
	// Migrate migrates the schema when the service opens; without it an old schema is an error.
	Migrate bool `help:"migrate the schema at start"`

	// ID names this executor among those of one database; empty means the host name. An executor that
	// restarts under its old name continues its runs at once, else they wait for the lease to end.
	ID string `conf:"id" help:"name of this executor; default the host name"`
	// Addr is where other replicas reach this one.
	Addr string `help:"address at which other replicas reach this one"`
	// Lease is how old a heartbeat may get before other executors take over; 0 means what fits the
	// store.
	Lease time.Duration `help:"age of the last heartbeat at which other executors take over; 0 means 3s, or 15s on SQLite, where the end of a process is noticed at once"`
	// Parallel is how many actors are called at once.
	Parallel int `help:"maximum number of attempts that run at once"`
	// MaxPayload bounds one value.
	MaxPayload conf.Bytes `help:"maximum size of one argument or result"`
	// MaxNodes and MaxEdges bound one graph.
	MaxNodes int `help:"maximum number of nodes in a graph"`
	MaxEdges int `help:"maximum number of edges in a graph"`
	// Drain is how long calls in flight may go on when the service stops.
	Drain time.Duration `help:"time that attempts in flight get when stopping"`
	// ScanInterval is the pause between two looks for runs without an owner.
	ScanInterval time.Duration `help:"pause between two scans for runs of dead executors"`
	// MaxTakeovers is how many take-overs without progress quarantine a run.
	MaxTakeovers int `help:"number of take-overs without progress after which a run is quarantined"`
	// KeepAlive is the longest silence on a watch.
	KeepAlive time.Duration `help:"longest silence on a watch"`
	// EvictAfter is how long a run must have to wait for a timer before it leaves memory.
	EvictAfter time.Duration `help:"shortest wait for a timer that evicts the run"`
	// MaxLive bounds the memory of all live runs. Beyond it starts are refused, and accepted runs wait
	// as rows. 0 means an eighth of Go's memory limit.
	MaxLive conf.Bytes `help:"memory of all live runs; 0 means an eighth of the memory limit, or 1GiB without one"`
	// MaxDepth is how deep below its root a run may stand.
	MaxDepth int `help:"maximum depth of child runs below their root"`
	// MaxRecursion is how deep below its root a run may stand that runs the graph of its parent again.
	MaxRecursion int `help:"maximum depth below their root of child runs with the graph of their parent"`
	// MaxFanOut is how many children one visit may spawn.
	MaxFanOut int `help:"maximum number of children of one visit"`
	// MaxDescendants is how many runs one root and all below it may be, and MaxOpenDescendants how many
	// of them may be open at once.
	MaxDescendants     int `help:"maximum number of runs of one root: itself and its descendants"`
	MaxOpenDescendants int `help:"maximum number of open runs of one root: itself and its descendants"`
	// MaxSchedules is how many schedules a namespace may have.
	MaxSchedules int `help:"maximum number of schedules of one namespace"`
	// MaxWatches is how many watches of one namespace are served at once.
	MaxWatches int `help:"maximum number of watches of one namespace at once"`

	// Blobs is the URL of the store of large values (file, s3, gs or mem), or "off". Empty means a
	// directory beside the SQLite file; on PostgreSQL it means that they stay in the database, up to
	// MaxPayload.
	Blobs string `help:"store of large values: file:///dir, s3://bucket or off (gs://bucket in a binary built with -tags gcs); default beside the SQLite file, or in PostgreSQL itself"`
	// BlobOver is the size from which on a value goes there.
	BlobOver conf.Bytes `help:"size from which values are stored in executor.blobs"`
	// BlobGrace is how long an unreferenced value is kept; it must be longer than any write can be
	// under way.
	BlobGrace time.Duration `help:"retention of unreferenced values in executor.blobs"`
	// Retention is how long a run is kept after its end; 0 keeps all. With Archive it is written there
	// first.
	Retention time.Duration `help:"retention of runs after their end; 0 keeps them"`
	// Archive is the URL of a store that gets each run, as one object, before it is removed.
	Archive string `help:"store to which runs are archived before they are removed: file:///dir or s3://bucket (gs://bucket in a binary built with -tags gcs); default none"`
	// Partition is how much time one partition of the journal holds on PostgreSQL.
	Partition time.Duration `help:"time span of one partition of the journal on PostgreSQL"`
	// Compress is the size from which on a value is compressed where that makes it smaller; 0 means
	// never.
	Compress conf.Bytes `help:"size from which values are compressed; 0 means never"`

	// RiverUI makes pages of the job queue: see Service.JobPages.
	RiverUI bool `conf:"river_ui" help:"show the job queue of all namespaces at /river of the admin port, for operators only"`

	// Actors configures the built-in actors.
	Actors builtin.Config
	// Models are the models that actors may ask. They are configured for all services at once.
	Models providers.Config `conf:"-"`
	// Workers bounds what remote workers may do.
	Workers worker.Config
	// Approvals say who may decide approvals.
	Approvals Approvals
	// Threads bounds what threads take.
	Threads thread.Config
	// Triggers bounds what starts workflows.
	Triggers trigger.Config
	// Telegram has the bots that workflows hear.
	Telegram bots.Config
	// MaxStreamAge makes workers reconnect now and then; 0 means never. It is the maximum age of
	// connections.
	MaxStreamAge time.Duration `conf:"-"`
	// TokenKeys sign attempt tokens; the first signs new ones. All executors of a database need the
	// same. The key that is stored in the database comes last.
	TokenKeys [][]byte `conf:"-"`
}

// Approvals say who may decide approvals, besides that the key needs the scope approve.
type Approvals struct {
	// ByAnother refuses the decision of whoever started the run, its root, or what it was forked from.
	ByAnother bool `help:"refuse the decision of an approval by the principal that started the run, its root, or a run that one of them was forked from"`
}

// tokenKeyBytes is the length of the key that is kept in the database.
const tokenKeyBytes = 32

// DefaultConfig keeps the journal in a SQLite file in the working directory and migrates it.
func DefaultConfig() Config {
	e := engine.DefaultConfig()
	return Config{
		Store: "sqlite", SQLitePath: "executor.db", Migrate: true, Parallel: e.Parallel, MaxPayload: conf.Bytes(e.MaxPayload),
		MaxNodes: e.MaxNodes, MaxEdges: e.MaxEdges, Drain: e.Drain, ScanInterval: e.ScanInterval, MaxTakeovers: e.MaxTakeovers, KeepAlive: e.KeepAlive,
		EvictAfter: e.EvictAfter, MaxDepth: e.MaxDepth, MaxRecursion: e.MaxRecursion, MaxFanOut: e.MaxFanOut, MaxDescendants: e.MaxDescendants, MaxOpenDescendants: e.MaxOpenDescendants, MaxWatches: e.MaxWatches, MaxSchedules: schedule.DefaultMax,
		BlobOver: 256 << 10, BlobGrace: 24 * time.Hour, Compress: 1 << 10, Partition: 7 * 24 * time.Hour,
		Actors: builtin.DefaultConfig(), Models: providers.DefaultConfig(), Workers: worker.DefaultConfig(), Threads: thread.DefaultConfig(), Triggers: trigger.DefaultConfig(),
	}
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
	if c.MaxSchedules <= 0 {
		faults = append(faults, fmt.Errorf("max_schedules must be positive, got %d", c.MaxSchedules))
	}
	e := c.engine()
	if e.ID == "" {
		e.ID = "default"
	}
	if err := c.Actors.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("actors: %w", err))
	}
	if err := c.Models.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("models: %w", err))
	}
	if err := c.Workers.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("workers: %w", err))
	}
	if err := c.Threads.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("threads: %w", err))
	}
	if err := c.Telegram.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("telegram: %w", err))
	}
	if err := c.Triggers.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("triggers: %w", err))
	}
	faults = append(faults, c.validateRetention()...)
	return errors.Join(append(faults, e.Validate())...)
}

// sqliteLease is the lease on SQLite when none is set: writers may hold each other up for long there,
// and a process that has ended is not waited for.
const sqliteLease = 15 * time.Second

// lease is the effective lease, for judging the age of a heartbeat.
func (c Config) lease() time.Duration {
	switch {
	case c.Lease != 0:
		return c.Lease
	case c.Store == "sqlite":
		return sqliteLease
	}
	return journal.DefaultLease
}

func (c Config) engine() engine.Config {
	e := engine.DefaultConfig()
	e.ID, e.Addr, e.Lease, e.Parallel, e.MaxPayload = c.ID, c.Addr, c.lease(), c.Parallel, int(c.MaxPayload)
	e.MaxNodes, e.MaxEdges, e.Drain, e.ScanInterval = c.MaxNodes, c.MaxEdges, c.Drain, c.ScanInterval
	e.MaxTakeovers, e.KeepAlive, e.TokenKeys = c.MaxTakeovers, c.KeepAlive, c.TokenKeys
	if c.Store == "sqlite" {
		e.IDWait = min(e.Lease, journal.DefaultLease) // the lease is long there
	}
	e.EvictAfter, e.MaxDepth, e.MaxRecursion, e.MaxFanOut, e.MaxWatches = c.EvictAfter, c.MaxDepth, c.MaxRecursion, c.MaxFanOut, c.MaxWatches
	e.MaxDescendants, e.MaxOpenDescendants = c.MaxDescendants, c.MaxOpenDescendants
	e.ThreadRoom, e.ApprovedByAnother = c.Threads.Room(), c.Approvals.ByAnother
	if c.MaxLive != 0 {
		e.MaxLiveBytes = int64(c.MaxLive)
	}
	return e
}

func (c Config) workers() worker.Config {
	w := c.Workers
	w.MaxPayload, w.Lease, w.MaxAge = int(c.MaxPayload), c.lease(), c.MaxStreamAge
	return w
}

// Deps are the collaborators of the service.
type Deps struct {
	// Peer connects to another executor by its advertised address, with the services' token; nil means
	// that there are no others. The service closes the connection.
	Peer func(addr string) (*grpc.ClientConn, error)
	// Registry is the registry; nil means that there is none: runs cannot work on tasks, and nothing is
	// priced.
	Registry registryv1.RegistryServiceClient
	// Admission is shared by all services of the process; nil means one of the executor's own.
	Admission *admission.Control
	// Computing is shared by all services of the process; nil means one of the executor's own.
	Computing *turns.Turns
	// Catalog is the catalog of workflows; nil means that there is none, and no workflow is found by name.
	Catalog registryv1.WorkflowServiceClient
	// Memory is the memory of the registry; nil means that there is none, and actors cannot read or write it.
	Memory registryv1.MemoryServiceClient
	// Actors are called beside the built-in ones, and in place of those with the same name.
	Actors workgraph.Actors
	// Telemetry reports; nil means none.
	Telemetry *obs.Telemetry
}

// Service is an executor with an open journal. It is safe for concurrent use.
type Service struct {
	engine      *engine.Engine
	journal     journal.Journal
	offload     offloading
	maintenance *maintenance
	grace       time.Duration
	outbox      *outbox.Deliverer // nil without a registry
	// fill makes vectors for the memory until its context ends; nil where no model does.
	fill        func(context.Context)
	limits      *limit.Limiter
	quotas      *limit.Quotas
	governor    *governor.Governor // nil without accounts
	accounts    rpc.Accounts
	server      *rpc.Server
	limitServer *rpc.LimitServer
	workers     *worker.Server
	follower    *rpc.Follower // nil without other executors
	actors      *builtin.Set
	jobs        *dispatch.Dispatcher
	// jobWorker is under which name this process works jobs.
	jobWorker string
	pages     *dispatch.UI // nil unless asked for
	schedules *schedule.Controller
	triggers  *trigger.Controller
	// listener has events of the registry's feed start runs.
	listener *trigger.Listener
	webhooks *webhook.Deliverer

	scheduleServer *rpc.ScheduleServer
	triggerServer  *rpc.TriggerServer
	hookServer     *rpc.HookServer
	threads        *thread.Conductor
	threadServer   *rpc.ThreadServer
	bots           *bots.Bots
	log            *slog.Logger
	// closers are what Open opened; Close closes the last one first.
	closers []io.Closer
	close   sync.Once
	closed  error
}

// Open validates cfg and opens the journal. Runs go on, and new ones are taken, once Run runs.
func Open(ctx context.Context, cfg Config, d Deps) (_ *Service, err error) {
	if cfg.ID == "" {
		if cfg.ID, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("executor: name of this host: %w", err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "EXECUTOR_CONFIG_INVALID", "executor: %v", err)
	}
	if d.Telemetry == nil {
		d.Telemetry = obs.Noop()
	}
	if d.Admission == nil {
		d.Admission = &admission.Control{}
	}
	if d.Computing == nil { // runs and the conditions of triggers have the same
		d.Computing = turns.NewComputing(host.Processors())
	}
	// Every loop here logs its failures; while the database does not answer they are the same for all.
	outage := obs.NewOutage(d.Telemetry.Logger, "the executor's database", dbkit.Away)
	s := &Service{grace: cfg.BlobGrace, log: outage.Logger()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	d.Telemetry = d.Telemetry.WithLogger(s.log)
	st, err := s.openStores(ctx, cfg, d, outage.Answered)
	if err != nil {
		return nil, err
	}
	models, err := providers.Open(cfg.Models, llm.Options{Telemetry: d.Telemetry, Governor: governorOrNil(s.governor)})
	if err != nil {
		return nil, err
	}
	s.opened(models)
	cfg.TokenKeys = append(slices.Clip(cfg.TokenKeys), st.tokenKey)
	if err := s.assemble(cfg, d, models, st); err != nil {
		return nil, err
	}
	return s, nil
}

// stores are what a service reads and writes.
type stores struct {
	// journal is the journal itself. shared is the same with a share of its connections for each
	// namespace, and plain is shared with large and compressed values in their plain form.
	journal, shared, plain journal.Journal
	limits                 limit.Store
	schedules              schedule.Store
	triggers               trigger.Store
	// catalog is nil without one.
	catalog *rpc.Catalog
	// tokenKey is the key of attempt tokens that is kept in the database.
	tokenKey []byte
}

// openStores opens the stores and reads the limits. Close closes what it opened, also after an error.
func (s *Service) openStores(ctx context.Context, cfg Config, d Deps, answered func()) (st stores, err error) {
	var tell journal.TellThread
	if d.Registry != nil {
		tell = outbox.OfThread
	}
	j, err := open(ctx, cfg, d.Telemetry, answered, tell)
	if err != nil {
		return stores{}, fmt.Errorf("open journal of executor: %w", err)
	}
	s.opened(j)
	turns := dbkit.NewTurns(j.Readers())
	st.journal = j
	if st.limits, err = openLimits(ctx, cfg, j, turns, d.Telemetry); err != nil {
		return stores{}, err
	}
	s.opened(st.limits)
	if s.governor, err = s.openGovernor(ctx, cfg, j, d.Telemetry); err != nil {
		return stores{}, err
	}
	s.accounts = rpc.Accounts{Governor: governorOrNil(s.governor), Limits: cfg.Models.Accounts}
	if st.schedules, err = openSchedules(ctx, cfg, j, turns, d.Telemetry); err != nil {
		return stores{}, err
	}
	s.opened(st.schedules)
	if st.triggers, err = openTriggers(ctx, cfg, j, turns, d.Telemetry); err != nil {
		return stores{}, err
	}
	s.opened(st.triggers)
	if s.offload, err = openOffload(ctx, cfg, j, d.Telemetry.Logger); err != nil {
		return stores{}, err
	}
	s.opened(s.offload)
	// No namespace takes all connections, and values are read in plain form, however they are stored.
	st.shared = journal.Fair(j, turns)
	st.plain = s.offload.Around(st.shared)
	if s.maintenance, err = openMaintenance(ctx, cfg, j, st.plain, d.Telemetry); err != nil {
		return stores{}, err
	}
	s.opened(s.maintenance)
	if d.Catalog != nil {
		st.catalog = rpc.NewCatalog(d.Catalog)
	}
	s.journal, s.limits = j, limit.New(st.limits, s.log)
	s.maintenance.limits = s.limits
	if err := s.limits.Refresh(ctx); err != nil {
		return stores{}, fmt.Errorf("read limits: %w", err)
	}
	fresh := make([]byte, tokenKeyBytes)
	_, _ = rand.Read(fresh) // it never fails
	if st.tokenKey, err = j.TokenKey(ctx, fresh); err != nil {
		return stores{}, fmt.Errorf("read key of attempt token: %w", err)
	}
	return st, nil
}

// fillPause is how long an executor waits when every entry of the memory has its vector.
const fillPause = 20 * time.Second

// assemble makes the parts of the service over open stores.
func (s *Service) assemble(cfg Config, d Deps, models *llm.Set, st stores) (err error) {
	kit := builtin.Deps{Models: models, Threads: thread.NewCache(st.plain, int64(cfg.Threads.Cache)), Memory: st.plain, Telemetry: d.Telemetry}
	if st.catalog != nil {
		kit.Catalog, kit.Workflows = st.catalog, st.catalog
	}
	if d.Registry != nil {
		kit.Epics = rpc.NewEpics(d.Registry)
	}
	if d.Registry != nil && d.Memory != nil {
		m := rpc.NewMemory(d.Memory, d.Registry)
		kit.Remembered = m
		if models.Embeds() {
			s.fill = (&remember.Filler{
				Entries: m, Embedder: models, Model: models.EmbeddingModel(), Booked: models.EmbeddingBooked(), Payer: rpc.NewMemoryPayer(d.Registry),
				NewID: func() string { return ids.New("emb") }, Every: fillPause, Log: s.log,
			}).Run
		}
	}
	set, err := builtin.New(cfg.Actors, kit)
	if err != nil {
		return fmt.Errorf("make actors: %w", err)
	}
	s.opened(set)
	actors := catalog{builtin: set, more: d.Actors}
	s.actors = set
	s.quotas = s.limits.Quotas()
	s.workers = worker.New(cfg.workers(), worker.Deps{Journal: st.shared, Admission: d.Admission, Builtin: actors, Dial: d.Peer, Reason: engine.EndReason, Logger: s.log})
	deps := engine.Deps{Journal: st.plain, Packer: s.offload, Actors: s.workers, Evaluated: set.Evaluated, Unfinished: set.Unfinished, Computing: d.Computing, Gates: s.limits.Around(s.workers), Quotas: s.quotas, Remote: s.workers.Remote, Logger: s.log, TracerProvider: d.Telemetry.TracerProvider, MeterProvider: d.Telemetry.MeterProvider}
	if s.governor != nil {
		govern(&deps, s.governor, cfg, models)
	}
	var tasks *rpc.Tasks // nil without a registry
	if d.Registry != nil {
		reg := rpc.NewRegistry(d.Registry, d.Memory, databaseName(st.tokenKey), st.journal)
		if s.outbox, err = outbox.New(st.journal, reg, outbox.Options{Logger: s.log, TracerProvider: d.Telemetry.TracerProvider, MeterProvider: d.Telemetry.MeterProvider}); err != nil {
			return err
		}
		deps.Purse, deps.MostUsed = purse.New(rpc.NewReservations(d.Registry), s.log), mostUsed(cfg, models)
		deps.Claims, deps.Payers, deps.Prices, deps.Orders, deps.WakeOutbox, deps.Delivered = reg, reg, reg, reg, s.outbox.Wake, s.outbox.Acknowledged
		tasks = rpc.NewTasks(d.Registry, st.catalog)
		deps.Tasks = tasks
	}
	if deps.Egress, err = egress.NewGuard(cfg.Actors.HTTP.AllowPrivate); err != nil {
		return err
	}
	if s.webhooks, err = webhook.New(deps.Egress, webhook.Options{Logger: s.log, TracerProvider: d.Telemetry.TracerProvider, MeterProvider: d.Telemetry.MeterProvider,
		Propagator: d.Telemetry.Propagator}); err != nil {
		return err
	}
	s.jobWorker = journal.JobWorkerPrefix + cfg.ID + "/" + ids.New("life")
	if deps.JobWorker = s.jobWorker; st.catalog != nil {
		deps.Workflows, deps.Triggered = st.catalog, true
	}
	if s.engine, err = engine.New(cfg.engine(), deps); err != nil {
		return err
	}
	if err := s.limits.Meter(d.Telemetry.MeterProvider, s.engine.Backlog); err != nil {
		return err
	}
	if err := s.assembleJobs(cfg, d, st); err != nil {
		return err
	}
	s.limitServer = rpc.NewLimitServer(st.limits, s.limits.Refresh, s.engine.Programs().UnknownActor)
	s.workers.Own(s.engine.Owner, s.engine.Held)
	s.server = rpc.NewServer(s.engine, archived{st.plain}, actors.specs, s.workers.Registered, d.Registry != nil, d.Admission, st.catalog)
	if tasks != nil {
		tasks.Server = s.server
	}
	if err := s.assembleStarters(cfg, d, st); err != nil {
		return err
	}
	s.threads = thread.NewConductor(st.plain, rpc.Conversing{Server: s.server}, s.log, dbkit.Now)
	s.threadServer = rpc.NewThreadServer(st.plain, s.threads, cfg.Threads.Bounds(), s.engine.Programs().UnknownActor, s.server, d.Admission)
	if err := s.assembleChats(cfg, st); err != nil {
		return err
	}
	s.server.DialPeers(d.Peer)
	if d.Peer != nil {
		s.follower = s.server.Follower(d.Peer, s.log)
		s.engine.Feed().From(s.follower)
	}
	return nil
}

// databaseName identifies the database of executors that share a registry. It is derived from the key
// that is stored in each, and does not reveal it.
func databaseName(kept []byte) string {
	sum := sha256.Sum256(append([]byte("database/"), kept...))
	return hex.EncodeToString(sum[:16])
}

// Register adds the service to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	executorv1.RegisterExecutorServiceServer(r, s.server)
	if r, ok := r.(grpckit.Interner); ok {
		r.Intern((*executorv1.StartRunRequest)(nil), "graph")
	}
	executorv1.RegisterWorkerServiceServer(r, s.workers)
	executorv1.RegisterPeerServiceServer(r, peer{workers: s.workers, explainer: s.server.Explainer(), accounts: s.accounts, followed: s.server.Followed()})
	executorv1.RegisterLimitServiceServer(r, s.limitServer)
	executorv1.RegisterScheduleServiceServer(r, s.scheduleServer)
	executorv1.RegisterTriggerServiceServer(r, s.triggerServer)
	executorv1.RegisterHookServiceServer(r, s.hookServer)
	executorv1.RegisterThreadServiceServer(r, s.threadServer)
}

// Run takes runs and continues those that others left, until ctx ends. Then calls in flight may end
// within the drain time, their outcomes are recorded, and ownership of the runs is released.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.engine.Run(ctx) })
	g.Go(func() error { return s.jobs.Run(ctx) })
	g.Go(func() error { return s.schedules.Run(ctx) })
	g.Go(func() error { return s.triggers.Run(ctx) })
	g.Go(func() error { return s.listener.Run(ctx) })
	g.Go(func() error { return s.sweep(ctx) })
	g.Go(func() error { return s.resumeTurns(ctx) })
	g.Go(func() error { return s.bots.Run(ctx) })
	g.Go(func() error { return s.workers.Run(ctx) })
	if s.follower != nil {
		g.Go(func() error { return s.follower.Run(ctx) })
	}
	g.Go(func() error { return s.actors.Run(ctx) })
	if s.fill != nil {
		g.Go(func() error { s.fill(ctx); return nil })
	}
	g.Go(func() error { return s.limits.Run(ctx) })
	if s.governor != nil {
		g.Go(func() error { return s.governor.Run(ctx) })
	}
	g.Go(func() error { return s.quotas.Run(ctx, s.engine.Work) })
	if s.outbox != nil {
		g.Go(func() error { return s.outbox.Run(ctx) })
	}
	if s.pages != nil {
		g.Go(func() error {
			if err := s.pages.Start(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "pages of the job queue not started", "err", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// opened has Close close c.
func (s *Service) opened(c io.Closer) { s.closers = append(s.closers, c) }

// Close closes what Open opened, the journal above all. It may be called more than once, and without
// Run.
func (s *Service) Close() error {
	s.close.Do(func() {
		if s.workers != nil {
			s.closed = s.workers.Close()
		}
		if s.webhooks != nil {
			s.webhooks.Close()
		}
		for _, c := range slices.Backward(s.closers) {
			s.closed = errors.Join(s.closed, c.Close())
		}
	})
	return s.closed
}

// sweep deletes expired rows: request ids, unreferenced large values, and outcomes kept for equal
// calls.
func (s *Service) sweep(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := s.journal.SweepRequestIDs(ctx, dbkit.Now().Add(-journal.RequestIDLife)); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "request ids not swept", "err", err)
		}
		if _, err := s.offload.Collect(ctx, s.grace); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "large values that nothing refers to not removed", "err", err)
		}
		if _, err := s.journal.SweepOutcomes(ctx, dbkit.Now(), journal.MaxOutcomes); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "outcomes for equal calls not swept", "err", err)
		}
		if err := s.engine.Purge(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "deleted runs not purged", "err", err)
		}
	}
}

func open(ctx context.Context, cfg Config, tel *obs.Telemetry, answered func(), tell journal.TellThread) (journal.Journal, error) {
	var (
		j   journal.Journal
		m   *dbkit.Migrations
		err error
	)
	switch cfg.Store {
	case "postgres":
		var s *pg.Store
		if s, err = pg.Open(ctx, cfg.PostgresURL.Reveal(), pg.Options{MaxReaders: cfg.MaxConns, TracerProvider: tel.TracerProvider, Answered: answered, TellThread: tell}); err == nil {
			j, m = s, s.Migrations()
		}
	default:
		var s *sqlite.Store
		if s, err = sqlite.Open(ctx, cfg.SQLitePath, sqlite.Options{TracerProvider: tel.TracerProvider, TellThread: tell}); err == nil {
			j, m = s, s.Migrations()
		}
	}
	if err != nil {
		return nil, err
	}
	if cfg.Migrate {
		n, err := m.Up(ctx)
		if err != nil {
			return nil, errors.Join(err, j.Close())
		}
		if n > 0 {
			tel.Logger.InfoContext(ctx, "migrated", "migrations", n)
		}
	}
	if err := m.Check(ctx); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}
