package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Registry receives the items. Every method is idempotent, and returns *errs.Error values.
type Registry interface {
	Confirm(ctx context.Context, namespace string, c Confirm) error
	Settle(ctx context.Context, namespace string, s Settle) error
	Learn(ctx context.Context, namespace string, l Learned) error
	// RecordChanges takes changes of runs and threads, those of each in their order.
	RecordChanges(ctx context.Context, namespace string, list Changes) error
	// Spent returns what a run that has ended and all below it used, once all of it is booked; else ErrLater.
	// It is nil for a run that is not there any more.
	Spent(ctx context.Context, namespace, runID string) (*Used, error)
	// RecordUsage returns what each entry cost in nano-USD, in their order; nil where no price is known.
	RecordUsage(ctx context.Context, namespace string, entries []Entry) ([]*int64, error)
}

// Options tune a Deliverer; zero fields take the defaults named at each.
type Options struct {
	// Batch is how many items are claimed at once; default 500.
	Batch int
	// Hold is how long a claim hides its items from other deliverers; default ten seconds, which is also how
	// late costs are booked that a crash cut off.
	Hold time.Duration
	// Poll is the pause after which an idle deliverer looks again, without being woken; default one second.
	Poll time.Duration
	// Gather is how long what nobody waits for waits for more of its kind; default 100 milliseconds. A
	// claim and an acknowledgement are a transaction each, which many short runs share then:
	// BenchmarkToldRuns.
	Gather time.Duration
	// Parallel is how many runs of a namespace are delivered for at the same time; default 8.
	Parallel int
	// CallTimeout bounds one call of the registry; default five seconds.
	CallTimeout time.Duration
	// MaxBackoff bounds the pause after failures; default 30 seconds.
	MaxBackoff time.Duration

	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Deliverer hands items over. Several may work on one outbox.
type Deliverer struct {
	box     journal.Outbox
	reg     Registry
	o       Options
	tracer  trace.Tracer
	refused metric.Int64Counter
	wake    chan struct{} // by what is urgent
	soon    chan struct{} // by what is not

	mu   sync.Mutex
	next chan struct{} // closed by the next acknowledgement
	away bool
	// slow are namespaces for which the registry did not answer in time, until when no calls are made for
	// them.
	slow map[string]time.Time
}

const scope = "github.com/epigraph-run/epigraph/services/executor/internal/outbox"

// New returns a deliverer that does nothing until Run runs.
func New(box journal.Outbox, reg Registry, o Options) (*Deliverer, error) {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	span := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&o.Batch, 500)
	def(&o.Parallel, 8)
	span(&o.Hold, 10*time.Second)
	span(&o.Poll, time.Second)
	span(&o.Gather, 100*time.Millisecond)
	span(&o.CallTimeout, 5*time.Second)
	span(&o.MaxBackoff, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noopmetric.NewMeterProvider()
	}
	refused, err := o.MeterProvider.Meter(scope).Int64Counter("epigraph.outbox.refused",
		metric.WithDescription("What the registry refused for good, by kind: items of the outbox, and of USAGE the calls that are not booked."))
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return &Deliverer{box: box, reg: reg, o: o, tracer: o.TracerProvider.Tracer(scope), refused: refused,
		wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), next: make(chan struct{}), slow: map[string]time.Time{}}, nil
}

// Acknowledged returns a channel that is closed once more items were delivered by this deliverer, and whether
// the registry was unreachable at the last call.
func (d *Deliverer) Acknowledged() (next <-chan struct{}, away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next, d.away
}

// batchEnded records the result of a batch.
func (d *Deliverer) batchEnded(delivered, away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away = away; delivered || away {
		close(d.next)
		d.next = make(chan struct{})
	}
}

// Wake signals that something may be due. Unless it is urgent it may wait for more. It never blocks.
func (d *Deliverer) Wake(urgent bool) {
	to := d.soon
	if urgent {
		to = d.wake
	}
	select {
	case to <- struct{}{}:
	default:
	}
}

// pause returns when it was woken, or after most.
func (d *Deliverer) pause(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	soon := d.soon
	var gathered <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-d.wake:
			return
		case <-gathered:
			return
		case <-soon:
			soon, gathered = nil, time.After(d.o.Gather) // the first one decides for those behind it
		}
	}
}

// Run delivers until ctx ends. It returns nil: every failure is retried.
func (d *Deliverer) Run(ctx context.Context) error {
	fails := 0
	for {
		select {
		case <-d.soon: // it is taken now
		default:
		}
		n, err := d.Once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := d.o.Poll
		if err != nil {
			fails++
			wait = d.backoff(fails)
			d.o.Logger.WarnContext(ctx, "outbox is not readable", "err", err)
		} else {
			fails = 0
			if n == d.o.Batch {
				continue
			}
		}
		d.pause(ctx, wait)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Once claims one batch, delivers it and returns how many items it held.
func (d *Deliverer) Once(ctx context.Context) (int, error) {
	items, err := d.box.ClaimOutbox(ctx, d.o.Batch, d.o.Hold)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	// Work that outlives the hold could be done twice at the same time; the registry would bear it, but it is
	// waste.
	held, cancel := context.WithTimeout(ctx, d.o.Hold-d.o.Hold/4)
	defer cancel()
	var (
		mu     sync.Mutex
		faults []error
		all    sync.WaitGroup
	)
	down := d.slowNow()
	failpoint.Hit(failpoint.OutboxBefore)
	groups := byRun(items)
	// Every namespace by itself, so that none waits for the calls of another.
	for _, own := range byNamespace(groups) {
		all.Go(func() {
			err := d.namespace(ctx, held, own, down)
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err)
		})
	}
	all.Wait()
	d.slower(down.late)
	d.batchEnded(false, down.whole(groups))
	return len(items), errors.Join(faults...)
}

// slowPause is how long no calls are made for a namespace for which the registry did not answer in time: the
// end of a batch waits for such a call, too.
const slowPause = 10 * time.Second

// slowNow returns the known slow namespaces before a batch.
func (d *Deliverer) slowNow() *outage {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.slow, func(_ string, until time.Time) bool { return !until.After(now) })
	return &outage{slow: maps.Clone(d.slow), late: map[string]bool{}}
}

func (d *Deliverer) slower(late map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for namespace := range late {
		d.slow[namespace] = time.Now().Add(slowPause)
	}
}

// namespace delivers the runs of one namespace.
func (d *Deliverer) namespace(ctx, held context.Context, groups [][]journal.OutboxItem, down *outage) error {
	var (
		mu      sync.Mutex
		acks    []journal.OutboxAck
		retries []journal.OutboxRetry
	)
	acks, groups = d.early(held, groups, down)
	var g errgroup.Group
	g.SetLimit(d.o.Parallel)
	for _, group := range groups {
		g.Go(func() error {
			a, r := d.group(held, group, down)
			mu.Lock()
			defer mu.Unlock()
			acks = append(acks, a...)
			retries = append(retries, r...)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	failpoint.Hit(failpoint.OutboxAfter)
	// Delivered items are acknowledged even while stopping: else they would be delivered again.
	final, stop := context.WithTimeout(context.WithoutCancel(ctx), d.o.CallTimeout)
	defer stop()
	var faults []error
	if len(acks) > 0 {
		faults = append(faults, d.box.AckOutbox(final, acks))
	}
	if len(retries) > 0 {
		faults = append(faults, d.box.RetryOutbox(final, retries))
	}
	if len(acks) > 0 {
		d.batchEnded(true, false)
	}
	return errors.Join(faults...)
}

func byNamespace(groups [][]journal.OutboxItem) map[string][][]journal.OutboxItem {
	out := map[string][][]journal.OutboxItem{}
	for _, g := range groups {
		ns := g[0].Namespace
		out[ns] = append(out[ns], g)
	}
	return out
}

// outage is the knowledge of one batch about missing answers.
type outage struct {
	mu sync.Mutex
	// all is set when the registry is unreachable. late are the namespaces for which it did not answer in
	// time, slow those that were late before this batch: their calls may wait behind others of the same
	// namespace, which says nothing of other namespaces.
	all  bool
	late map[string]bool
	slow map[string]time.Time
}

// hears takes in why a call for a namespace failed.
func (o *outage) hears(namespace string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch errs.KindOf(err) {
	case errs.Unavailable:
		o.all = true
	case errs.DeadlineExceeded:
		o.late[namespace] = true
	}
}

func (o *outage) hits(namespace string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, slow := o.slow[namespace]
	return o.all || slow || o.late[namespace]
}

// whole reports whether the registry is unreachable: it says so, or was late for several namespaces and
// answered for none.
func (o *outage) whole(groups [][]journal.OutboxItem) bool {
	return o.all || len(o.late) > 1 && !slices.ContainsFunc(groups, func(g []journal.OutboxItem) bool { return !o.hits(g[0].Namespace) })
}

func byRun(items []journal.OutboxItem) [][]journal.OutboxItem {
	index := map[string]int{}
	var groups [][]journal.OutboxItem
	for _, it := range items {
		i, ok := index[it.RunID]
		if !ok {
			i = len(groups)
			index[it.RunID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], it)
	}
	return groups
}

// group delivers the items of one run in order and stops at the first that fails.
func (d *Deliverer) group(ctx context.Context, items []journal.OutboxItem, down *outage) (acks []journal.OutboxAck, retries []journal.OutboxRetry) {
	for i := 0; i < len(items); {
		if down.hits(items[i].Namespace) || ctx.Err() != nil {
			return acks, d.retry(retries, items[i:], errs.New(errs.Unavailable, "REGISTRY_UNAVAILABLE", "the registry cannot be reached"))
		}
		var (
			n    = 1
			done []journal.OutboxAck
			err  error
		)
		if items[i].Kind == KindUsage {
			n, done, err = d.usage(ctx, items[i:])
		} else {
			done, err = d.single(ctx, items[i])
		}
		if errors.Is(err, ErrLater) {
			return acks, d.retry(retries, items[i:], err)
		}
		if err != nil {
			down.hears(items[i].Namespace, err)
			level := slog.LevelWarn
			if !passing(err) {
				level = slog.LevelError
			}
			d.o.Logger.Log(ctx, level, "outbox item not delivered", "err", err, "kind", items[i].Kind, "run_id", items[i].RunID, "attempt", items[i].Attempts)
			return acks, d.retry(retries, items[i:], err)
		}
		acks = append(acks, done...)
		i += n
	}
	return acks, retries
}

func (d *Deliverer) retry(to []journal.OutboxRetry, items []journal.OutboxItem, err error) []journal.OutboxRetry {
	for _, it := range items {
		to = append(to, journal.OutboxRetry{ID: it.ID, After: d.backoff(it.Attempts), Err: errs.ReasonOf(err)})
	}
	return to
}

// backoff is the pause before the next try of an item. It follows from the stored number of attempts, so a
// library that counts in memory does not fit.
func (d *Deliverer) backoff(attempts int) time.Duration {
	wait := 250 * time.Millisecond
	for range min(attempts-1, 20) {
		wait *= 2
		if wait >= d.o.MaxBackoff {
			return d.o.MaxBackoff
		}
	}
	return wait
}

func (d *Deliverer) single(ctx context.Context, it journal.OutboxItem) (acks []journal.OutboxAck, err error) {
	switch it.Kind {
	case KindConfirm:
		c, derr := decode[Confirm](it)
		if derr != nil {
			return nil, derr
		}
		ctx, end := d.begin(ctx, "confirm", c.Trace, it)
		defer func() { end(err) }()
		err = d.reg.Confirm(ctx, it.Namespace, c)
	case KindSettle:
		s, derr := decode[Settle](it)
		if derr != nil {
			return nil, derr
		}
		ctx, end := d.begin(ctx, "settle", s.Trace, it)
		defer func() { end(err) }()
		err = d.reg.Settle(ctx, it.Namespace, s)
	case KindLearned:
		l, derr := decode[Learned](it)
		if derr != nil {
			return nil, derr
		}
		ctx, end := d.begin(ctx, "learned", l.Trace, it)
		defer func() { end(err) }()
		err = d.reg.Learn(ctx, it.Namespace, l)
	case KindRun, kindEnded, kindPaused:
		err = d.change(ctx, it)
	case KindThread:
		list, derr := threadChanges(it)
		if derr != nil {
			return nil, derr
		}
		ctx, end := d.begin(ctx, "thread", Trace{}, it)
		defer func() { end(err) }()
		err = d.reg.RecordChanges(ctx, it.Namespace, Changes{Threads: list})
	default:
		return nil, errs.New(errs.Internal, errs.ReasonInternal, "outbox item %d has the unknown kind %q", it.ID, it.Kind)
	}
	if err != nil && !passing(err) {
		// The task has changed meanwhile (ended or deleted by somebody). Waiting would not change the answer.
		d.o.Logger.WarnContext(ctx, "registry refused for good", "err", err, "kind", it.Kind, "run_id", it.RunID)
		d.refuse(ctx, it.Kind, 1)
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return []journal.OutboxAck{{ID: it.ID}}, nil
}

// passing reports whether the same call may succeed later.
func passing(err error) bool {
	switch errs.KindOf(err) {
	case errs.FailedPrecondition, errs.NotFound, errs.InvalidArgument, errs.AlreadyExists:
		return false
	}
	return true
}

// refuse counts what the registry refused for good.
func (d *Deliverer) refuse(ctx context.Context, kind string, n int) {
	d.refused.Add(ctx, int64(n), metric.WithAttributes(attribute.String("kind", kind)))
}

// begin opens the delivery's span below the stored trace, so that one trace leads from the request to the
// registry.
func (d *Deliverer) begin(ctx context.Context, what string, t Trace, it journal.OutboxItem) (context.Context, func(error)) {
	if t.Parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
	}
	ctx, cancel := context.WithTimeout(ctx, d.o.CallTimeout)
	ctx, span := d.tracer.Start(ctx, "outbox."+what, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("epigraph.run.id", it.RunID), attribute.Int("epigraph.outbox.attempt", it.Attempts)))
	return ctx, func(err error) {
		if err != nil && !errors.Is(err, ErrLater) { // to wait is no fault
			span.SetStatus(codes.Error, errs.ReasonOf(err))
		}
		span.End()
		cancel()
	}
}
