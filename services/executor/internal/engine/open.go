package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/suspect"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/engine"

// New returns an engine that owns nothing until Run runs.
func New(cfg Config, d Deps) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "EXECUTOR_CONFIG_INVALID", "executor: %v", err)
	}
	d = d.withDefaults()
	e := &Engine{
		cfg: cfg, log: d.Logger, tracer: d.TracerProvider.Tracer(scope), ready: make(chan struct{}),
		journal: d.Journal, packer: d.Packer, actors: d.Actors, claims: d.Claims, payers: knownPayers{ask: d.Payers}, orders: d.Orders, tasks: d.Tasks, workflows: d.Workflows,
		quotas: d.Quotas, gates: d.Gates, wake: d.WakeOutbox, remote: d.Remote, modelCall: d.ModelCall, unfinished: d.Unfinished, egress: d.Egress, jobWorker: d.JobWorker, triggered: d.Triggered,
		prices: price.New(d.Prices, d.Logger), purse: d.Purse, mostUsed: d.MostUsed, outcomes: workgraph.NewOutcomeCache(maxSavedOutcomes), keys: actor.NewExpressions(), threadEnds: thread.NewEnds(),
		calling: inflight.New(max(cfg.MaxLiveBytes/2, 4*int64(cfg.MaxPayload))), results: inflight.New(max(cfg.MaxLiveBytes/4, 4*int64(cfg.MaxPayload))),
		computing: d.Computing, starts: turns.New(childStarts), counts: turns.NewResting(1),
		suspects: suspect.NewTurn(suspect.TurnTime), roomWait: roomWait,
		booked: feed.NewBooked(d.Journal, d.Claims != nil, d.Delivered),
	}
	e.programs = program.New(d.Actors, program.Bounds{Nodes: cfg.MaxNodes, Edges: cfg.MaxEdges, GraphBytes: cfg.MaxGraphBytes}, e.computing, d.Evaluated,
		cfg.MaxLiveBytes/4)
	e.feed = feed.New(d.Journal, e.booked, e, feed.Options{Poll: cfg.WatchPoll, KeepAlive: cfg.KeepAlive, Watches: cfg.MaxWatches})
	e.deliveries = feed.NewDeliveries(d.Journal, e.booked)
	var tellDeleted journal.TellDeleted
	if d.Claims != nil {
		tellDeleted = outbox.OfDeleted
	}
	e.Handler = command.New(command.Deps{Journal: d.Journal, Live: liveRuns{e}, Positions: e.Positions(), Programs: e.programs, Computing: e.computing,
		Prices: e.prices, Feed: e.feed, Tokens: e.Tokens(), Logger: e.log, ApprovedByAnother: cfg.ApprovedByAnother, TellDeleted: tellDeleted}, cfg.MaxPayload)
	var err error
	if e.meters, err = newMeters(d.MeterProvider.Meter(scope), e.observed); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return e, nil
}

// withDefaults fills in optional collaborators.
func (d Deps) withDefaults() Deps {
	if d.Quotas == nil {
		d.Quotas = unbounded{}
	}
	if !slices.ContainsFunc(d.Gates, func(g sched.Gate) bool { return g.Kind() == sched.GateKey }) {
		d.Gates = append([]sched.Gate{sched.NewKeyGate()}, d.Gates...)
	}
	if d.Computing == nil {
		d.Computing = turns.NewComputing(host.Processors())
	}
	if d.WakeOutbox == nil {
		d.WakeOutbox = func(bool) {}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Delivered == nil {
		d.Delivered = func() (<-chan struct{}, bool) { return nil, false }
	}
	if d.TracerProvider == nil {
		d.TracerProvider = noop.NewTracerProvider()
	}
	if d.MeterProvider == nil {
		d.MeterProvider = metricnoop.NewMeterProvider()
	}
	return d
}

// Run owns runs until ctx ends, then hands them back in order. If ownership is lost before, Run registers
// anew.
func (e *Engine) Run(ctx context.Context) error {
	wait := 50 * time.Millisecond
	for {
		begin := time.Now()
		err := e.serve(ctx)
		if errs.ReasonOf(err) == ReasonIDTaken && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			if err != nil {
				e.log.WarnContext(ctx, "executor did not stop cleanly", "err", err)
			}
			return nil
		}
		e.setAway(dbkit.Away(err))
		if time.Since(begin) > e.cfg.Lease {
			wait = 50 * time.Millisecond
		}
		e.log.WarnContext(ctx, "executor lost its ownership and registers again", "err", err, "executor", e.cfg.ID)
		sleep.For(ctx, wait)
		wait = min(2*wait, 5*time.Second)
	}
}

// observed reads the gauges.
func (e *Engine) observed(ctx context.Context) (now observed) {
	if t := e.current(); t != nil {
		now = observed{owns: true, live: int64(t.live()), bytes: t.memory.Used(), waiting: int64(t.sched.Backlog()), gates: t.sched.AtGates}
	}
	n, err := e.journal.OutboxBacklog(ctx)
	now.outbox, now.outboxKnown = n, err == nil
	return now
}
