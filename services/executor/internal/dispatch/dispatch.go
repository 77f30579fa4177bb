// Package dispatch owns the working side of the job queue: it takes the jobs that the journal's drivers
// inserted with their causes, and hands each to the handler of its kind. It knows River and no table of ours.
// It must not know the work of a job, nor the database that stores it.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"riverqueue.com/riverui"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Job is one job as a handler gets it.
type Job struct {
	ID   int64
	Kind journal.JobKind
	// Args are the inserted arguments; JobArgs are decoded from them for jobs about a run.
	Args []byte
	journal.JobArgs
	// Attempt counts the tries, this one included.
	Attempt int
	// At is when it was due.
	At time.Time
}

// Handler works one job. Jobs come at least once, and to one handler at a time unless an executor dies or a
// job exceeds its Timeout. After an error the job comes again with an increasing pause; after Later it comes
// again at a time of the handler's choice.
type Handler func(ctx context.Context, j Job) error

// Kind is a kind of jobs and who works them.
type Kind struct {
	Name   journal.JobKind
	Handle Handler
	// Timeout bounds one try; 0 means 30 s.
	Timeout time.Duration
	// Every inserts a job of this kind without arguments that often, by the executor that leads; 0 means
	// never. The first one comes when an executor begins to lead.
	Every time.Duration
}

// Options tune a Dispatcher; zero fields take the defaults named at each.
type Options struct {
	// Kinds are all that is worked here. A job of a kind that nobody here knows fails and comes again:
	// another release may know it.
	Kinds []Kind
	// Wakes, Starts, Schedules, Webhooks, Triggers and Work are how many jobs of each queue are worked at
	// once; defaults 64, 32, 16, 64, 32 and 8.
	Wakes, Starts, Schedules, Webhooks, Triggers, Work int
	// Drain is how long jobs in progress may go on when Run is to end; default 5 s.
	Drain time.Duration
	// Retention is how long a finished job is kept for inspection; default 1 minute. Discarded jobs are kept
	// for a day.
	Retention time.Duration
	// ID is under which name jobs are worked; empty leaves it to River.
	ID string
	// RescueAfter is when a job that nobody ended comes again, besides the time that its kind may take;
	// default 1 minute. Jobs of a dead executor come again earlier: see journal.Members.RescueJobs.
	RescueAfter time.Duration
	// Schema is where River's tables are, empty for SQLite.
	Schema string
	// Logger gets the jobs that fail; nil discards.
	Logger *slog.Logger
	// TracerProvider and MeterProvider get River's spans and metrics; nil means none.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

const (
	// poll is the longest wait of a job whose notification was missed, or which was not due yet when it came.
	// Jobs with a time are due early, and their handlers hold them until the instant. pollWork is the same
	// for jobs that nobody waits for.
	poll     = 500 * time.Millisecond
	pollWork = 2 * time.Second
	// cooldown is the shortest pause between two looks at a queue.
	cooldown = 2 * time.Millisecond

	defaultTimeout = 30 * time.Second
	// startAgain is the pause between two tries to start while the database does not answer.
	startAgain = 500 * time.Millisecond
)

// client is the used part of River's client, for any type of transaction.
type client interface {
	Start(ctx context.Context) error
	Stopped() <-chan struct{}
}

// Dispatcher works jobs while Run runs. It is safe for concurrent use.
type Dispatcher struct {
	c client
	// over is set before the client is stopped.
	over *atomic.Bool
	log  *slog.Logger
	ui   func(prefix string) (*UI, error)
}

// New returns a dispatcher over one of the journal's drivers: see their JobDriver. It neither connects nor
// migrates.
func New[TTx any](driver riverdriver.Driver[TTx], o Options) (*Dispatcher, error) {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&o.Wakes, 64)
	def(&o.Starts, 32)
	def(&o.Schedules, 16)
	def(&o.Webhooks, 64)
	def(&o.Triggers, 32)
	def(&o.Work, 8)
	if o.Drain <= 0 {
		o.Drain = 5 * time.Second
	}
	if o.Retention <= 0 {
		o.Retention = time.Minute
	}
	if o.RescueAfter <= 0 {
		o.RescueAfter = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	workers := river.NewWorkers()
	var periodic []*river.PeriodicJob
	longest := defaultTimeout
	for _, k := range o.Kinds {
		if k.Name == "" || k.Handle == nil {
			return nil, errors.New("dispatch: a kind needs a name and a handler")
		}
		w := &worker{kind: k}
		longest = max(longest, w.Timeout(nil))
		river.AddWorkerArgs(workers, args{kind: string(k.Name)}, river.Worker[args](w))
		if k.Every > 0 {
			periodic = append(periodic, everyPeriod(k))
		}
	}
	queue := func(n int) river.QueueConfig { return river.QueueConfig{MaxWorkers: n} }
	over := &atomic.Bool{}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = slog.New(quiet{o.Logger.Handler(), over})
	cfg := &river.Config{
		ID: o.ID, Schema: o.Schema, Workers: workers, PeriodicJobs: periodic,
		Queues: map[string]river.QueueConfig{
			journal.JobWake.Queue(): queue(o.Wakes), journal.JobStart.Queue(): queue(o.Starts), journal.JobSchedule.Queue(): queue(o.Schedules),
			journal.JobTrigger.Queue():  queue(o.Triggers),
			journal.JobWebhook.Queue():  {MaxWorkers: o.Webhooks, FetchPollInterval: pollWork},
			journal.JobKind("").Queue(): {MaxWorkers: o.Work, FetchPollInterval: pollWork},
		},
		FetchPollInterval: poll, FetchCooldown: cooldown,
		JobTimeout: defaultTimeout, RescueStuckJobsAfter: longest + o.RescueAfter, MaxAttempts: 1000, RetryPolicy: retryPolicy{},
		CompletedJobRetentionPeriod: o.Retention, CancelledJobRetentionPeriod: 24 * time.Hour, DiscardedJobRetentionPeriod: 24 * time.Hour,
		SoftStopTimeout: o.Drain, Logger: o.Logger, ReindexerIndexNames: []string{"river_job_prioritized_fetching_index"},
	}
	if o.TracerProvider != nil && o.MeterProvider != nil {
		cfg.Middleware = []rivertype.Middleware{otelriver.NewMiddleware(&otelriver.MiddlewareConfig{
			TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider, EnableWorkSpanJobKindSuffix: true,
		})}
	}
	c, err := river.NewClient(requeue[TTx]{driver}, cfg)
	if err != nil {
		return nil, fmt.Errorf("make job client: %w", err)
	}
	return &Dispatcher{c: c, over: over, log: o.Logger, ui: func(prefix string) (*UI, error) {
		h, err := riverui.NewHandler(&riverui.HandlerOpts{Endpoints: riverui.NewEndpoints(c, nil), Logger: o.Logger, Prefix: prefix})
		if err != nil {
			return nil, fmt.Errorf("make job pages: %w", err)
		}
		return &UI{h}, nil
	}}, nil
}

// Run works jobs until ctx ends, from when the database answers on; then those in progress may end within
// Options.Drain.
func (d *Dispatcher) Run(ctx context.Context) error {
	jobs, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		d.over.Store(true)
		stop()
	})()
	for {
		err := d.c.Start(jobs)
		switch {
		case err == nil:
			<-d.c.Stopped()
			return nil
		case ctx.Err() != nil:
			return nil
		case !dbkit.Away(err):
			return fmt.Errorf("start working jobs: %w", err)
		}
		d.log.WarnContext(ctx, "jobs are not worked yet", "err", err)
		if !sleep.For(ctx, startAgain) {
			return nil
		}
	}
}

// quiet is the log of the client without lines that are of no use to operators. While the client stops it
// reports interrupted statements: their work is done after the next start, since jobs are hints. When it
// gives up recording the ends of jobs, it logs no error, after a line with the error for each try.
type quiet struct {
	slog.Handler
	over *atomic.Bool
}

// gaveUp ends the message, which begins with the part of the client that gave up.
const gaveUp = ": Too many errors; giving up"

func (h quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug && (h.over.Load() || strings.HasSuffix(r.Message, gaveUp)) {
		if r.Level = slog.LevelDebug; !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{h.Handler.WithAttrs(attrs), h.over}
}

func (h quiet) WithGroup(name string) slog.Handler {
	return quiet{h.Handler.WithGroup(name), h.over}
}

// UI returns pages that show the jobs of all tenants and let their reader cancel and repeat them: they are
// for operators only. prefix is the path below which they are mounted.
func (d *Dispatcher) UI(prefix string) (*UI, error) { return d.ui(prefix) }

// UI is an http.Handler that answers once its Start was called; everything started by it ends with its
// context.
type UI struct {
	*riverui.Handler
}

// Later lets a job come again after a pause, which is no failure.
func Later(after time.Duration) error { return river.JobSnooze(max(after, 0)) }

// Never ends a job for good, with its work undone.
func Never(err error) error { return river.JobCancel(err) }

// Again lets a job that failed come again after a pause of the handler's choice.
func Again(err error, after time.Duration) error { return &again{err, max(after, 0)} }

type again struct {
	error
	after time.Duration
}

// Unwrap returns why the job failed.
func (a *again) Unwrap() error { return a.error }

// args are the arguments of a job of any kind, as they are.
type args struct {
	kind string
	raw  json.RawMessage
	// next is when a job that failed is to come again, if its handler said so.
	next time.Time
}

func (a args) Kind() string { return a.kind }

func (a args) MarshalJSON() ([]byte, error) {
	if len(a.raw) == 0 {
		return []byte("{}"), nil
	}
	return a.raw, nil
}

func (a *args) UnmarshalJSON(b []byte) error {
	a.raw = append(a.raw[:0], b...)
	return nil
}

type worker struct {
	river.WorkerDefaults[args]
	kind Kind
}

func (w *worker) Timeout(*river.Job[args]) time.Duration {
	if w.kind.Timeout > 0 {
		return w.kind.Timeout
	}
	return defaultTimeout
}

func (w *worker) Work(ctx context.Context, j *river.Job[args]) error {
	out := Job{ID: j.ID, Kind: w.kind.Name, Args: j.Args.raw, Attempt: j.Attempt, At: j.ScheduledAt}
	// Arguments of another shape are the handler's own.
	_ = json.Unmarshal(out.Args, &out.JobArgs)
	err := w.kind.Handle(ctx, out)
	if a, ok := errors.AsType[*again](err); ok {
		j.Args.next = time.Now().Add(a.after)
	}
	// A deleted run needs no work.
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return nil
	}
	return err
}

// NextRetry is the handler's choice; the zero time leaves it to the client.
func (w *worker) NextRetry(j *river.Job[args]) time.Time { return j.Args.next }

func everyPeriod(k Kind) *river.PeriodicJob {
	// Not twice within half a period, whichever executor leads.
	once := river.UniqueOpts{ByPeriod: max(k.Every/2, time.Second)}
	return river.NewPeriodicJob(river.PeriodicInterval(k.Every), func() (river.JobArgs, *river.InsertOpts) {
		return args{kind: string(k.Name)}, &river.InsertOpts{Queue: k.Name.Queue(), Priority: 3, UniqueOpts: once, MaxAttempts: 3}
	}, &river.PeriodicJobOpts{ID: string(k.Name), RunOnStart: true})
}

// retryPolicy retries a failed job soon at first, then ever later, up to half a minute.
type retryPolicy struct{}

func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	wait := min(100*time.Millisecond<<min(len(job.Errors), 12), 30*time.Second)
	return time.Now().Add(wait/2 + rand.N(wait))
}
