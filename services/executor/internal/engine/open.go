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
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/suspect"
	"github.com/epigraph-run/epigraph/workgraph"
)

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/engine"

// New returns an engine that owns nothing until Run runs.
func New(cfg Config, d Deps) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "EXECUTOR_CONFIG_INVALID", "executor: %v", err)
	}
	e := &Engine{cfg: cfg, journal: d.Journal, packer: d.Packer, actors: d.Actors, claims: d.Claims, cancellations: d.Cancellations, wake: d.WakeOutbox, workflows: d.Workflows, log: d.Logger,
		ready: make(chan struct{})}
	e.remote, e.egress, e.jobWorker = d.Remote, d.Egress, d.JobWorker
	if e.quotas = d.Quotas; e.quotas == nil {
		e.quotas = unbounded{}
	}
	if e.gates = d.Gates; !slices.ContainsFunc(e.gates, func(g sched.Gate) bool { return g.Kind() == sched.GateKey }) {
		e.gates = append([]sched.Gate{sched.NewKeyGate()}, e.gates...)
	}
	if e.wake == nil {
		e.wake = func() {}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.prices = price.New(d.Prices, e.log)
	if d.Delivered == nil {
		d.Delivered = func() (<-chan struct{}, bool) { return nil, false }
	}
	e.booked = feed.NewBooked(d.Journal, d.Claims != nil, d.Delivered)
	e.feed = feed.New(d.Journal, e.booked, e, feed.Options{Poll: cfg.WatchPoll, KeepAlive: cfg.KeepAlive, Watches: cfg.MaxWatches})
	e.Handler = command.New(command.Deps{Journal: d.Journal, Live: liveRuns{e}, Positions: replay.NewSource(d.Journal, e.programs, e.log), Programs: e.programs, Computing: e.computing,
		Prices: e.prices, Feed: e.feed, Tokens: e.Tokens(), Logger: e.log}, cfg.MaxPayload)
	e.deliveries = feed.NewDeliveries(d.Journal, e.booked)
	if d.TracerProvider == nil {
		d.TracerProvider = noop.NewTracerProvider()
	}
	if d.MeterProvider == nil {
		d.MeterProvider = metricnoop.NewMeterProvider()
	}
	e.tracer = d.TracerProvider.Tracer(scope)
	e.calling = inflight.New(max(cfg.MaxLiveBytes/2, 4*int64(cfg.MaxPayload)))
	e.results = inflight.New(max(cfg.MaxLiveBytes/4, 4*int64(cfg.MaxPayload)))
	e.calling = inflight.New(max(cfg.MaxLiveBytes/2, 4*int64(cfg.MaxPayload)))
	e.results = inflight.New(max(cfg.MaxLiveBytes/4, 4*int64(cfg.MaxPayload)))
	e.computing = turns.NewResting(computingLimit(host.Processors()))
	e.programs = program.New(d.Actors, program.Bounds{Nodes: cfg.MaxNodes, Edges: cfg.MaxEdges, GraphBytes: cfg.MaxGraphBytes}, e.computing, d.Evaluated, cfg.MaxLiveBytes/4)
	e.suspects, e.roomWait = suspect.NewTurn(suspect.TurnTime), roomWait
	e.starts, e.counts = turns.New(childStarts), turns.NewResting(1)
	e.outcomes = workgraph.NewOutcomeCache(maxKeptOutcomes)
	var err error
	if e.meters, err = newMeters(d.MeterProvider.Meter(scope), e.observed); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return e, nil
}

// Run owns runs until ctx ends, then lets go of them in good order. If the ownership is lost on the way it is
// taken up anew.
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
				e.log.WarnContext(ctx, "executor stopped untidily", "err", err)
			}
			return nil
		}
		e.setAway(dbkit.Away(err))
		if time.Since(begin) > e.cfg.Lease {
			wait = 50 * time.Millisecond
		}
		e.log.WarnContext(ctx, "executor lost its ownership and begins anew", "err", err, "executor", e.cfg.ID)
		sleep.For(ctx, wait)
		wait = min(2*wait, 5*time.Second)
	}
}

// observed are the gauges as they are now.
func (e *Engine) observed(ctx context.Context) (now observed) {
	if t := e.current(); t != nil {
		now = observed{owns: true, live: int64(t.live()), bytes: t.memory.Used(), waiting: int64(t.sched.Backlog()), gates: t.sched.AtGates}
	}
	n, err := e.journal.OutboxBacklog(ctx)
	now.outbox, now.outboxKnown = n, err == nil
	return now
}
