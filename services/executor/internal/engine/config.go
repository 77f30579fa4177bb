package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Config bounds what an engine does. DefaultConfig is usable as it is, except for ID.
type Config struct {
	// ID names this executor. A restart under the same id gets its runs back at once. Two live executors must
	// not share one.
	ID string
	// Addr is where other replicas may reach it.
	Addr string
	// Lease is how old a heartbeat may get before others take over.
	Lease time.Duration
	// Parallel is how many attempts run at once. One namespace alone gets seven eighths of them.
	Parallel int
	// ParallelRemote is how many attempts wait for remote workers at once. They do not count for Parallel.
	ParallelRemote int
	// TokenKeys sign attempt tokens. The first key signs new tokens, and every key verifies. All executors of
	// a database need the same keys.
	TokenKeys [][]byte
	// MaxPayload is the hard limit in bytes of one argument, and of the values of one outcome together.
	MaxPayload int
	// ApprovedByAnother refuses the decision of an approval by whoever started its run, or the root
	// of that.
	ApprovedByAnother bool
	// MaxRunBytes bounds in bytes what all results of one run may hold together, since a live run is held in
	// memory.
	MaxRunBytes int64
	// MaxNodes, MaxEdges and MaxGraphBytes bound one graph.
	MaxNodes, MaxEdges, MaxGraphBytes int
	// Drain is how long a stopping engine lets attempts in flight go on.
	Drain time.Duration
	// Grace is how long an actor may take to return once its context has ended. Then it is given up.
	Grace time.Duration
	// EvictAfter is how far away a timer must be for the run to be evicted while it waits for it. A run that
	// waits for anything else is evicted at once.
	EvictAfter time.Duration
	// IdleTTL is how long a run that waits for children stays in memory, since most children are quick. A
	// large one stays longer, up to a minute, while there is plenty of memory. With 0 it is evicted at once.
	IdleTTL time.Duration
	// MaxLiveBytes is about how much memory live runs may take together. Further runs wait as rows.
	MaxLiveBytes int64
	// CommandPoll is how often the owner looks for commands of which it got no notice.
	CommandPoll time.Duration
	// MaxDepth is how deep below its root a run may stand.
	MaxDepth int
	// MaxRecursion is how deep below its root a run may stand that runs the graph of its parent again: those
	// multiply with every level.
	MaxRecursion int
	// MaxFanOut is how many children one visit may spawn.
	MaxFanOut int
	// MaxDescendants is how many runs a root and its descendants may be together, and MaxOpenDescendants how
	// many of them may be open at once.
	MaxDescendants, MaxOpenDescendants int
	// DetailsEvery is the least time between two writes of one run's heartbeat details.
	DetailsEvery time.Duration
	// ThreadRoom is what the threads of one namespace may take.
	ThreadRoom thread.Room
	// MaxWatches is how many watches of one namespace this executor serves at once.
	MaxWatches int
	// SnapshotEvery is the least number of events between two snapshots of a busy run.
	SnapshotEvery int
	// ScanInterval is the pause between two looks for runs without an owner.
	ScanInterval time.Duration
	// RecoverParallel is how many runs are loaded at once.
	RecoverParallel int
	// IDWait is how old the last heartbeat of another executor with this id must be before this one replaces
	// it; 0 means Lease.
	IDWait time.Duration
	// MaxTakeovers is how many take-overs without progress quarantine a run.
	MaxTakeovers int
	// ProgressAfter is how long a run must go on after a take-over before it counts as harmless.
	ProgressAfter time.Duration
	// WatchPoll is how often a watcher looks for events of a run that another replica owns.
	WatchPoll time.Duration
	// KeepAlive is the longest silence of a watch.
	KeepAlive time.Duration
	// ClaimLease is how long a task stays claimed for a run that is not recorded.
	ClaimLease time.Duration
}

// DefaultConfig fits most installations. Only ID must be set.
func DefaultConfig() Config {
	return Config{
		Lease: journal.DefaultLease, Parallel: 256, ParallelRemote: 10_000, MaxPayload: 4 << 20, MaxRunBytes: 128 << 20,
		MaxNodes: 100_000, MaxEdges: 500_000, MaxGraphBytes: 48 << 20,
		Drain: 20 * time.Second, Grace: 10 * time.Second, EvictAfter: 5 * time.Second, SnapshotEvery: 1024,
		ScanInterval: 500 * time.Millisecond, RecoverParallel: 8, MaxTakeovers: journal.DefaultMaxTakeovers, ProgressAfter: time.Minute,
		WatchPoll: 100 * time.Millisecond, KeepAlive: 15 * time.Second, ClaimLease: time.Minute,
		IdleTTL: 200 * time.Millisecond, MaxLiveBytes: memory.DefaultLive(), CommandPoll: time.Second, MaxDepth: 32, MaxRecursion: 3, MaxFanOut: 1000, MaxDescendants: 50_000, MaxOpenDescendants: 10_000, DetailsEvery: time.Second,
		MaxWatches: 64,
	}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	positive := func(name string, v int64) {
		if v <= 0 {
			faults = append(faults, fmt.Errorf("%s must be positive", name))
		}
	}
	if c.ID == "" {
		faults = append(faults, errors.New("id must be set"))
	}
	positive("lease", int64(c.Lease))
	positive("parallel", int64(c.Parallel))
	positive("parallel_remote", int64(c.ParallelRemote))
	positive("max_payload", int64(c.MaxPayload))
	positive("max_run_bytes", c.MaxRunBytes)
	positive("max_nodes", int64(c.MaxNodes))
	positive("max_edges", int64(c.MaxEdges))
	positive("max_graph_bytes", int64(c.MaxGraphBytes))
	positive("drain", int64(c.Drain))
	positive("grace", int64(c.Grace))
	positive("evict_after", int64(c.EvictAfter))
	positive("max_live_bytes", c.MaxLiveBytes)
	positive("command_poll", int64(c.CommandPoll))
	positive("max_depth", int64(c.MaxDepth))
	positive("max_recursion", int64(c.MaxRecursion))
	positive("max_fan_out", int64(c.MaxFanOut))
	positive("max_descendants", int64(c.MaxDescendants))
	positive("max_open_descendants", int64(c.MaxOpenDescendants))
	positive("details_every", int64(c.DetailsEvery))
	positive("max_watches", int64(c.MaxWatches))
	if c.IdleTTL < 0 {
		faults = append(faults, errors.New("idle_ttl must not be negative"))
	}
	positive("snapshot_every", int64(c.SnapshotEvery))
	positive("scan_interval", int64(c.ScanInterval))
	positive("recover_parallel", int64(c.RecoverParallel))
	positive("max_takeovers", int64(c.MaxTakeovers))
	positive("progress_after", int64(c.ProgressAfter))
	positive("watch_poll", int64(c.WatchPoll))
	positive("keep_alive", int64(c.KeepAlive))
	positive("claim_lease", int64(c.ClaimLease))
	return errors.Join(faults...)
}

// Claims reserves tasks of the registry for runs. Errors are *errs.Error values.
type Claims interface {
	// Claim reserves the task for the run until lease has passed or the claim is confirmed. It returns the
	// epic of the task.
	Claim(ctx context.Context, namespace, taskID, runID string, lease time.Duration) (epicID string, err error)
	// Release gives an unconfirmed claim back.
	Release(ctx context.Context, namespace, taskID, runID string) error
}

// Orders hands out what the registry wants of runs. Its errors are *errs.Error values.
type Orders interface {
	// Lease hands out at most limit orders to runs of this database, of all namespaces. It hides them
	// from other executors for the time hold.
	Lease(ctx context.Context, limit int, hold time.Duration) ([]Order, error)
	// Acknowledge says that these orders will certainly be carried out, and that others are refused for
	// good. An order without an acknowledgement is handed out again.
	Acknowledge(ctx context.Context, done []Order, refused []RefusedStart) error
}

// Tasks starts tasks with their workflows.
type Tasks interface {
	// StartTask starts the run of a task, once for each order. lasting says that another try would be
	// refused in the same way.
	StartTask(ctx context.Context, o Order) (lasting bool, err error)
}

// Deps are the engine's collaborators.
type Deps struct {
	Journal journal.Journal
	// Packer turns a write into the form that Journal reads back; nil leaves writes as they are.
	Packer journal.Packer
	Actors program.Actors
	// Evaluated returns the expressions that a call of an actor with these named arguments evaluates, nil if
	// there are none: see workgraph.Program.WithEvaluated. A nil func means that no actor evaluates any.
	Evaluated func(actor string, named map[string]json.RawMessage) []string
	// Computing are the turns for work that takes processors; with nil the engine makes its own. A holder of
	// one must not wait for anything that the engine does.
	Computing *turns.Turns
	// Triggered says that triggers may wait for the ends of runs of workflows.
	Triggered bool
	// JobWorker is the name under which this process works jobs of the queue; empty if it works none.
	JobWorker string
	// Payers is nil if whoever pays for a run pays until the run says otherwise.
	Payers Payers
	// Claims is nil if there is no registry. Runs with a task are refused then, and nothing is booked.
	Claims Claims
	// Prices is nil if there is no price book. Then only costs that calls report count against budgets in
	// money.
	Prices price.Prices
	// Orders is nil if there is no registry.
	Orders Orders
	// Tasks is nil if nothing starts tasks. Then orders to start are left to other executors.
	Tasks Tasks
	// Purse is nil if nothing bounds what runs spend, but their own budgets.
	Purse Purse
	// MostUsed says under which provider and model a call is booked, and how many tokens it may use at
	// most; no output tokens mean that the call states no limit. ok is false for calls that ask no
	// model. It is called for every attempt if there is a Purse, and must not block.
	MostUsed func(*workgraph.Start) (most workgraph.Usage, ok bool)
	// Workflows finds the graphs of workflows that children name. With nil none is found.
	Workflows Workflows
	// WakeOutbox is called after something was put into the outbox. What is not urgent is for the feed
	// alone. It may be nil.
	WakeOutbox func(urgent bool)
	// Delivered says when more of the outbox is delivered next, and whether the registry is known to be away.
	// With nil neither is known.
	Delivered func() (next <-chan struct{}, away bool)
	// Gates are what attempts pass, in this order, before they take a place. Without one for keys the engine
	// uses a KeyGate.
	Gates []sched.Gate
	// Quotas bound what namespaces have open. With nil nothing is bounded.
	Quotas Quotas
	// Remote reports whether remote workers serve an actor. With nil there are none. It is called for every
	// attempt and must not block.
	Remote func(namespace, actor string) bool
	// ModelCall estimates the model call of an attempt, so that gates can wait for it. With nil there are
	// none. It is called for every attempt and must not block.
	ModelCall func(*workgraph.Start) sched.ModelCall
	// Egress refuses webhooks to addresses that must not be reached.
	Egress egress.Guard
	// Unfinished hears of a run that ended otherwise than completed, once its end is durable: its graph, and
	// its state. A crash may keep it from being told. With nil nothing is told.
	Unfinished func(p *workgraph.Program, state map[string]json.RawMessage)

	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// OrderKind is what an order asks for. Its numbers are those of the API.
type OrderKind int32

// The kinds of orders.
const (
	OrderCancel OrderKind = iota + 1
	OrderPause
	OrderResume
	OrderStart
)

// String is a word for logs.
func (k OrderKind) String() string {
	switch k {
	case OrderPause:
		return "pause"
	case OrderResume:
		return "resume"
	case OrderStart:
		return "start"
	}
	return "cancel"
}

// ReasonEpicPaused is the reason of a run that is paused with the epic of its task.
const ReasonEpicPaused = "EPIC_PAUSED"

// Order is what the registry wants of the run of a task. The zero kind is a cancel.
type Order struct {
	// ID distinguishes the order from others to the same run.
	ID                       string
	Kind                     OrderKind
	Namespace, TaskID, RunID string
	// Reason becomes the reason of the run's end or pause.
	Reason string
	// Time is when the order was given.
	Time time.Time
	// Confirmed says that the run was recorded in this database.
	Confirmed bool
}

// RefusedStart is an order to start that cannot be carried out.
type RefusedStart struct {
	Order
	Err error
}

// Quotas says how much namespaces may have open. Implementations are safe for concurrent use. A namespace
// without a quota must cost next to nothing.
type Quotas interface {
	// Accept refuses a run that may not be recorded at all, whether it begins now or later.
	Accept(ctx context.Context, namespace string, nodes int) error
	// AcceptPending refuses a run that would have to wait.
	AcceptPending(ctx context.Context, namespace string) error
	// Admit asks for room for one more open run. ok is false if there is no room. release, if not nil, is
	// called once the beginning is durable or has failed.
	Admit(ctx context.Context, namespace string) (release func(), ok bool, err error)
	// Room reports whether a run that waits may find room now.
	Room(ctx context.Context, namespace string) (bool, error)
	// FanOut is how many children one wait may have; 0 means no bound.
	FanOut(namespace string) int
	// Ended is called at every end of a run. It must not block.
	Ended(namespace string)
}

// unbounded is Quotas for an engine that is given none.
type unbounded struct{}

func (unbounded) Accept(context.Context, string, int) error { return nil }

func (unbounded) AcceptPending(context.Context, string) error { return nil }

func (unbounded) Admit(context.Context, string) (func(), bool, error) { return nil, true, nil }

func (unbounded) Room(context.Context, string) (bool, error) { return true, nil }

func (unbounded) FanOut(string) int { return 0 }

func (unbounded) Ended(string) {}

// Workflows finds the graphs of workflow definitions.
type Workflows interface {
	// Workflow is the version that "workflow/SLUG@version" or "workflow/SLUG@alias" stands for in the
	// namespace, by its number, and its graph. Among the versions of an alias the key chooses, always the
	// same while the alias stays. An error other than errs.Unavailable is final.
	Workflow(ctx context.Context, namespace, ref, key string) (version string, g *workgraph.Graph, err error)
}
