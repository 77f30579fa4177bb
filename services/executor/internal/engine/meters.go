package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// meters are the engine's metrics. No label carries an id.
type meters struct {
	wait      metric.Float64Histogram
	attempts  metric.Int64Counter
	tokens    metric.Int64Counter
	runs      metric.Int64Counter
	batch     metric.Int64Histogram
	commit    metric.Float64Histogram
	takeovers metric.Int64Counter
	pauses    metric.Int64Counter
	agentMeters
	routing *routingMeters
	// byPriority is made in advance, since it is used for every attempt.
	byPriority [sched.MaxPriority + 1]metric.MeasurementOption
	// byEnd caches options by ending. There are as many as series of the counter, but at most maxEndings.
	byEnd   sync.Map
	endings atomic.Int64
}

// endLabels say how an attempt of an actor ended.
type endLabels struct{ actor, outcome string }

const maxEndings = 10_000

func (m *meters) end(e endLabels) metric.MeasurementOption {
	if o, ok := m.byEnd.Load(e); ok {
		return o.(metric.MeasurementOption)
	}
	o := metric.WithAttributeSet(attribute.NewSet(attribute.String("actor", e.actor), attribute.String("outcome", e.outcome)))
	if m.endings.Add(1) <= maxEndings {
		m.byEnd.Store(e, o)
	}
	return o
}

// scheduled counts an attempt that begins now and was queued at the time queued.
func (m *meters) scheduled(queued time.Time, priority int) {
	m.wait.Record(context.Background(), time.Since(queued).Seconds(), m.byPriority[sched.Class(priority)])
}

// ended counts an attempt of an actor that has ended.
func (m *meters) ended(actor string, fail *workgraph.Error, usage []workgraph.Usage) {
	ctx := context.Background()
	outcome := "OK"
	if fail != nil {
		outcome = string(fail.Type)
	}
	m.attempts.Add(ctx, 1, m.end(endLabels{actor, outcome}))
	for _, u := range usage {
		m.token(u.Model, "input", u.InputTokens)
		m.token(u.Model, "cached_input", u.CachedTokens)
		m.token(u.Model, "output", u.OutputTokens)
		m.token(u.Model, "reasoning", u.ReasoningTokens)
	}
}

func (m *meters) token(model, class string, n int64) {
	if n > 0 {
		m.tokens.Add(context.Background(), n, metric.WithAttributes(attribute.String("model", model), attribute.String("class", class)))
	}
}

func (m *meters) run(what string) {
	m.runs.Add(context.Background(), 1, metric.WithAttributes(attribute.String("event", what)))
}

// paused counts a pause. All reasons that clients choose count as OTHER.
func (m *meters) paused(reason string) {
	switch reason {
	case workgraph.ReasonBudget, workgraph.ReasonUnsettled, workgraph.ReasonCap, workgraph.ReasonMaxVisits, workgraph.ReasonReconciliation, journal.ReasonQuarantined:
	default:
		reason = "OTHER"
	}
	m.pauses.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (m *meters) observe(b journal.Batch) {
	m.batch.Record(context.Background(), int64(b.Rows))
	m.commit.Record(context.Background(), b.Duration.Seconds())
}

func (m *meters) takeover(what string, n int) {
	if n > 0 {
		m.takeovers.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("result", what)))
	}
}

// observed are the values of the gauges. Unless owns is set, only the outbox may be known.
type observed struct {
	owns                 bool
	live, bytes, waiting int64
	gates                func(func(kind sched.GateKind, n int))
	outbox               int64
	outboxKnown          bool
}

// newMeters makes the metrics. observe is called whenever the gauges are read.
func newMeters(m metric.Meter, observe func(ctx context.Context) observed) (*meters, error) {
	var (
		ms  meters
		err error
	)
	for p := range ms.byPriority {
		ms.byPriority[p] = metric.WithAttributeSet(attribute.NewSet(attribute.Int("priority", p)))
	}
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60)
	var e1 error
	ms.wait, e1 = m.Float64Histogram("epigraph.attempt.schedule_to_start", metric.WithUnit("s"), seconds,
		metric.WithDescription("Time from the durable decision that an attempt may start to its start."))
	keep(e1)
	ms.attempts, e1 = m.Int64Counter("epigraph.attempts", metric.WithDescription("Attempts that ended, by actor and outcome."))
	keep(e1)
	ms.tokens, e1 = m.Int64Counter("epigraph.tokens", metric.WithDescription("Tokens used, by model and class."))
	keep(e1)
	ms.runs, e1 = m.Int64Counter("epigraph.runs", metric.WithDescription("Runs that started, ended, or left memory to wait for room, by what happened."))
	keep(e1)
	ms.batch, e1 = m.Int64Histogram("epigraph.journal.batch", metric.WithUnit("{row}"), metric.WithDescription("Rows of one commit."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000))
	keep(e1)
	ms.commit, e1 = m.Float64Histogram("epigraph.journal.commit", metric.WithUnit("s"), seconds, metric.WithDescription("Time of one commit, retries included."))
	keep(e1)
	ms.takeovers, e1 = m.Int64Counter("epigraph.takeovers", metric.WithDescription("Runs that were taken over, and those that were quarantined."))
	keep(e1)
	ms.pauses, e1 = m.Int64Counter("epigraph.runs.pauses", metric.WithDescription("Pauses of runs, by reason; a budget's are BUDGET_EXHAUSTED, BUDGET_UNSETTLED and CAP_REACHED."))
	keep(e1)
	ms.agentMeters, e1 = newAgentMeters(m)
	keep(e1)
	ms.routing, e1 = newRoutingMeters(m)
	keep(e1)
	live, e1 := m.Int64ObservableGauge("epigraph.runs.live", metric.WithDescription("Runs in memory."))
	keep(e1)
	bytes, e1 := m.Int64ObservableGauge("epigraph.runs.live_bytes", metric.WithUnit("By"), metric.WithDescription("Memory of the runs in memory, their graphs and what they have waiting to be written."))
	keep(e1)
	queue, e1 := m.Int64ObservableGauge("epigraph.attempts.waiting", metric.WithDescription("Attempts that wait for a place."))
	keep(e1)
	gates, e1 := m.Int64ObservableGauge("epigraph.attempts.at_gates", metric.WithDescription("Attempts that wait at gates, by what they wait for: key, limit, rate, worker, account."))
	keep(e1)
	box, e1 := m.Int64ObservableGauge("epigraph.outbox.backlog", metric.WithDescription("Outbox items that are not acknowledged yet."))
	keep(e1)
	if err != nil {
		return nil, err
	}
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		now := observe(ctx)
		if now.owns {
			o.ObserveInt64(live, now.live)
			o.ObserveInt64(bytes, now.bytes)
			o.ObserveInt64(queue, now.waiting)
			now.gates(func(kind sched.GateKind, n int) {
				o.ObserveInt64(gates, int64(n), metric.WithAttributes(attribute.String("kind", string(kind))))
			})
		}
		if now.outboxKnown {
			o.ObserveInt64(box, now.outbox)
		}
		return nil
	}, live, bytes, queue, gates, box)
	return &ms, err
}
