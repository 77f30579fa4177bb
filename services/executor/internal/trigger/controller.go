package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/places"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// scanPause is the pause between two looks for deliveries whose job was lost, lag how long a job may take
	// to come, overdue how many one look finds.
	scanPause, lag, overdue = time.Second, 2 * time.Second, 500
	// forgetPause is the pause between two rounds of forgetting, handful how many rows one statement removes.
	forgetPause, handful = 10 * time.Minute, 1000
	// minPause and maxPause bound how long a delivery waits that cannot be carried out just now.
	minPause, maxPause = 500 * time.Millisecond, 10 * time.Minute
	// Places is how many jobs are worked at here at once, maxBusy how many of them are of one namespace.
	// minWait and maxWait bound how long one is put off for which there is no place.
	Places, maxBusy  = 32, 8
	minWait, maxWait = 250 * time.Millisecond, 5 * time.Minute
	// fullPause is how long the end of a run waits while as many deliveries wait as may.
	fullPause = 5 * time.Second
	// spare is how long whoever takes an event and carries it out itself has for that, before a job does it.
	spare = 10 * time.Second
	// early is how much before its time a delivery is tried: the clocks of machines differ.
	early = time.Second
	// maxMessage bounds the stored text of a failure.
	maxMessage = 500
)

// Runs starts runs and tells of them. It must be safe for concurrent use.
type Runs interface {
	// Start starts the run d.RunID of the trigger's version with these inputs. A second call for the same
	// delivery starts nothing, and is no error. It returns the id of the run.
	Start(ctx context.Context, t *Trigger, d *Delivery, inputs map[string]json.RawMessage) (runID string, err error)
	// Exists reports whether there is such a run.
	Exists(ctx context.Context, namespace, runID string) (bool, error)
	// End tells how a run ended. ok is false if there is no such run, or it has not.
	End(ctx context.Context, namespace, runID string) (e End, ok bool, err error)
	// Depth is how many runs that triggers started the root of a run is the last of; 0 if no trigger started
	// it, or it is not there.
	Depth(ctx context.Context, namespace, runID string) (int, error)
}

// Config bounds triggers.
type Config struct {
	// Max is how many active triggers a namespace may have.
	Max int `help:"maximum number of active triggers of one namespace"`
	// EventRate is how many events of the feed one trigger takes in a minute.
	EventRate int `help:"number of events of the feed that one trigger takes in a minute; those beyond it start nothing"`
	// MaxDeliveries is how many deliveries of a namespace are kept that have ended.
	MaxDeliveries int `help:"number of ended deliveries of triggers that are kept of one namespace"`
	// MaxBytes is how many bytes they may have together.
	MaxBytes conf.Bytes `help:"size of the ended deliveries of triggers that are kept of one namespace"`
	// Retention is how long a delivery is kept after its end.
	Retention time.Duration `help:"retention of deliveries of triggers after their end"`
}

// DefaultConfig keeps deliveries for 30 days.
func DefaultConfig() Config {
	return Config{Max: 1000, EventRate: 600, MaxDeliveries: 100_000, MaxBytes: 1 << 30, Retention: 30 * 24 * time.Hour}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.Max <= 0 {
		faults = append(faults, fmt.Errorf("max must be positive, got %d", c.Max))
	}
	if c.EventRate <= 0 {
		faults = append(faults, fmt.Errorf("event_rate must be positive, got %d", c.EventRate))
	}
	if c.MaxDeliveries <= 0 {
		faults = append(faults, fmt.Errorf("max_deliveries must be positive, got %d", c.MaxDeliveries))
	}
	if c.MaxBytes <= 0 {
		faults = append(faults, errors.New("max_bytes must be positive"))
	}
	if c.Retention < Patience {
		faults = append(faults, fmt.Errorf("retention must be at least %s, for which deliveries are tried, got %s", Patience, c.Retention))
	}
	return errors.Join(faults...)
}

// Controller carries deliveries out. It is safe for concurrent use, and so are any number of controllers on
// one store.
type Controller struct {
	store     Store
	runs      Runs
	catalog   Catalog
	feed      Feed
	schedules Schedules
	cfg       Config
	log       *slog.Logger
	ended     metric.Int64Counter
	places    *places.Places
	computing *turns.Turns
}

// Deps are the collaborators of a controller.
type Deps struct {
	Store Store
	Runs  Runs
	// Catalog finds workflows; nil means that there is none, so that nothing can be activated.
	Catalog Catalog
	// Feed is the registry's; nil means that there is none, so that no event trigger can be activated.
	Feed      Feed
	Schedules Schedules
	// Computing are the turns in which conditions are evaluated; nil means that they wait for none.
	Computing *turns.Turns
	Logger    *slog.Logger
	Meters    metric.MeterProvider
}

// New returns a controller.
func New(cfg Config, d Deps) (*Controller, error) {
	c := &Controller{store: d.Store, runs: d.Runs, catalog: d.Catalog, feed: d.Feed, schedules: d.Schedules, cfg: cfg, log: d.Logger, computing: d.Computing,
		places: places.New(places.Config{Total: Places, Each: maxBusy, MinPause: minWait, MaxPause: maxWait})}
	var err error
	c.ended, err = d.Meters.Meter("github.com/epigraph-run/epigraph/services/executor/internal/trigger").
		Int64Counter("epigraph.trigger.deliveries", metric.WithDescription("deliveries of triggers that have ended, by kind of the trigger and what became of them"))
	return c, err
}

// compute waits for a turn of a namespace to compute.
func (c *Controller) compute(ctx context.Context, namespace string) (leave func(), err error) {
	if c.computing == nil {
		return func() {}, nil
	}
	return c.computing.Enter(ctx, namespace)
}

// Run handles deliveries whose job was lost, and deletes old ones, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	scan, forget := time.NewTicker(scanPause), time.NewTicker(forgetPause)
	defer scan.Stop()
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-scan.C:
			if _, err := c.store.Overdue(ctx, dbkit.Now().Add(-lag), overdue); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "overdue deliveries of triggers not found", "err", err)
			}
		case <-forget.C:
			c.forget(ctx)
		}
	}
}

func (c *Controller) forget(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := c.store.Forget(ctx, dbkit.Now().Add(-c.cfg.Retention), Room{c.cfg.MaxDeliveries, int64(c.cfg.MaxBytes)}, handful)
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "old deliveries of triggers not forgotten", "err", err)
		}
		if err != nil || n < handful {
			return
		}
	}
}

// Receive takes an event for a trigger, and is durable when it returns: the run starts at once or later, at
// whichever executor. An event that came before gives its first delivery again. ReasonNotFound and
// ReasonNotActive if nobody waits for it, ReasonBusy if it is to come again later.
func (c *Controller) Receive(ctx context.Context, e Event) (Delivery, error) {
	return c.receive(ctx, e, "")
}

func (c *Controller) receive(ctx context.Context, e Event, repeatOf string) (Delivery, error) {
	if err := checkEvent(&e); err != nil {
		return Delivery{}, err
	}
	t, err := c.store.Trigger(ctx, e.Trigger)
	switch {
	case err != nil:
		return Delivery{}, err
	case t.State != Active:
		return Delivery{}, errs.New(errs.FailedPrecondition, ReasonNotActive, "trigger %q is not active: %s", t.ID, t.Reason).Hint("activate the triggers of workflow " + t.Workflow)
	}
	now := dbkit.Now()
	d := Delivery{
		Key: Key{e.Trigger.Namespace, ids.New(DeliveryPrefix)}, Trigger: t.ID, EventID: e.ID, Event: e.Body, Details: e.Details, Status: Received,
		RunID: ids.New("run"), Depth: e.Depth, RepeatOf: repeatOf, ReceiveTime: now, Due: now.Add(e.Spare),
	}
	switch {
	case e.Refusal != nil:
		d.refuse(now, e.Refusal.Reason, e.Refusal.Message)
	case d.Depth > MaxDepth:
		d.refuse(now, ReasonTooDeep, fmt.Sprintf("%d runs that triggers started stand before it, which is as many as may", MaxDepth))
	}
	out, err := c.store.Receive(ctx, d, MaxWaiting)
	if err == nil && !out.Repeated && out.Status != Received {
		c.count(ctx, &t, &out)
	}
	return out, err
}

// checkEvent refuses what cannot be kept.
func checkEvent(e *Event) error {
	if e.ID == "" || len(e.ID) > MaxEventID || strings.ContainsFunc(e.ID, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errs.New(errs.InvalidArgument, ReasonInvalid, "the id of an event has 1 to %d bytes, all of them printable", MaxEventID)
	}
	if len(e.Body) > MaxEvent {
		return errs.New(errs.InvalidArgument, ReasonEventTooLarge, "the event has %d bytes, the limit is %d", len(e.Body), MaxEvent).Hint("send where the data is in place of the data")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, e.Body); err != nil {
		return errs.New(errs.InvalidArgument, ReasonInvalid, "the event is not JSON")
	}
	e.Body = b.Bytes()
	return nil
}

// refuse ends a delivery that starts nothing.
func (d *Delivery) refuse(now time.Time, reason, message string) {
	d.Status, d.Reason, d.Message, d.RunID, d.Due, d.EndTime = Refused, reason, errs.Clip(message, maxMessage), "", time.Time{}, now
}

// Repeat makes a new delivery of the event of an old one. The same request id repeats it once.
func (c *Controller) Repeat(ctx context.Context, k Key, request string) (Delivery, error) {
	d, err := c.store.Delivery(ctx, k)
	if err != nil {
		return d, err
	}
	if request == "" {
		request = ids.New("rep")
	}
	t, err := c.store.Trigger(ctx, Key{k.Namespace, d.Trigger})
	if err != nil {
		return d, err
	}
	event := Event{Trigger: t.Key, ID: "repeat/" + request, Body: d.Event, At: d.ReceiveTime, Details: d.Details, Depth: d.Depth}
	event.Request, event.BodyHash = "", ""
	if d.Thread != "" {
		event.ID = ThreadEvent(d.Thread, event.ID)
	}
	if t.Spec.Type == workflow.ChatTrigger || t.Spec.Type == workflow.TelegramTrigger {
		// Nobody speaks with the rights of another one.
		by := access.Of(ctx)
		event.Principal, event.Approves = by.String(), by.Has(access.Approve)
	}
	again, err := c.receive(ctx, event, d.ID)
	if err == nil && again.RepeatOf != d.ID {
		return Delivery{}, errs.New(errs.InvalidArgument, journal.ReasonRequestIDReused, "request id %q repeated another delivery before", request).
			Hint("use a new request_id for a new request")
	}
	return again, err
}

// Work carries out what a job asks for. A pause above 0 says that the job is to come again after it.
func (c *Controller) Work(ctx context.Context, args journal.TriggerArgs) (pause time.Duration, err error) {
	leave, pause := c.places.Enter(args.Namespace)
	if leave == nil {
		return pause, nil
	}
	defer leave()
	if args.RunID != "" {
		err := c.tellEnd(ctx, args.Namespace, args.RunID)
		if errs.ReasonOf(err) == ReasonBusy {
			return fullPause, nil // a pause uses up no try of the job
		}
		return 0, err
	}
	return 0, c.deliver(ctx, Key{args.Namespace, args.DeliveryID})
}

// deliver tries a delivery once.
func (c *Controller) deliver(ctx context.Context, k Key) error {
	d, err := c.store.Delivery(ctx, k)
	if errs.ReasonOf(err) == ReasonDeliveryNotFound {
		return nil
	}
	if err != nil || d.Status != Received {
		return err
	}
	// There is a job for that time. Without this, each job that comes before it would be followed by one.
	if time.Until(d.Due) > early {
		return nil
	}
	t, err := c.store.Trigger(ctx, Key{k.Namespace, d.Trigger})
	if err != nil && errs.ReasonOf(err) != ReasonNotFound {
		return err
	}
	attempts := d.Attempts
	if err != nil {
		if err := c.refuse(ctx, &d, ReasonNotActive, "the trigger is gone"); err != nil {
			return err
		}
	} else if err := c.try(ctx, &t, &d); err != nil {
		return err
	}
	if err := c.store.Tried(ctx, d, attempts); err != nil {
		return err
	}
	if d.Status != Received {
		c.count(ctx, &t, &d)
	}
	return nil
}

// try starts the run of a delivery, and notes in it what came of that. An error says that nothing is known.
func (c *Controller) try(ctx context.Context, t *Trigger, d *Delivery) error {
	if t.State != Active {
		return c.refuse(ctx, d, ReasonNotActive, "the trigger is not active: "+t.Reason)
	}
	inputs, err := t.Spec.Fill(d.Event)
	if err != nil {
		return c.refuse(ctx, d, ReasonInvalid, err.Error())
	}
	runID, err := c.runs.Start(ctx, t, d, inputs)
	if ctx.Err() != nil {
		return context.Cause(ctx) // we leave: that is no fault of the delivery
	}
	now := dbkit.Now()
	d.Attempts++
	switch {
	case err == nil:
		d.started(now, runID)
	case final(err):
		e := errs.From(err)
		return c.refuse(ctx, d, e.Reason, e.Message)
	case now.Sub(d.ReceiveTime) > Patience:
		return c.giveUp(ctx, d, err)
	default:
		d.Reason, d.Message = errs.ReasonOf(err), errs.Clip(errs.From(err).Message, maxMessage)
		d.Due = now.Add(backoff(d.Attempts))
		c.log.InfoContext(ctx, "delivery of a trigger put off", "err", err, "trigger_id", t.ID, "delivery_id", d.ID, "attempt", d.Attempts)
	}
	return nil
}

func (d *Delivery) started(now time.Time, runID string) {
	d.Status, d.RunID, d.Reason, d.Message, d.Due, d.EndTime = Started, runID, "", "", time.Time{}, now
}

// refuse ends a delivery that starts nothing. Perhaps an earlier try did, and died before that was written.
func (c *Controller) refuse(ctx context.Context, d *Delivery, reason, message string) error {
	there, err := c.runs.Exists(ctx, d.Namespace, d.RunID)
	if err != nil {
		return err
	}
	if there {
		d.started(dbkit.Now(), d.RunID)
		return nil
	}
	d.refuse(dbkit.Now(), reason, message)
	return nil
}

// giveUp ends a delivery that was tried for long enough.
func (c *Controller) giveUp(ctx context.Context, d *Delivery, cause error) error {
	err := c.refuse(ctx, d, errs.ReasonOf(cause), fmt.Sprintf("could not be started for %s: %s", Patience, errs.From(cause).Message))
	if err == nil && d.Status == Refused {
		d.Status = Failed
	}
	return err
}

// backoff is the pause after a number of tries.
func backoff(attempts int) time.Duration {
	wait := minPause
	for range min(attempts-1, 20) {
		if wait *= 2; wait >= maxPause {
			return maxPause
		}
	}
	return wait
}

// final reports whether trying again would not help.
func final(err error) bool {
	switch errs.KindOf(err) {
	case errs.InvalidArgument, errs.NotFound, errs.AlreadyExists, errs.FailedPrecondition:
		return true
	}
	return false
}

func (c *Controller) count(ctx context.Context, t *Trigger, d *Delivery) {
	c.ended.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", t.Spec.Type), attribute.String("state", string(d.Status))))
}

// Active lists up to limit active triggers of a kind after a key, of all namespaces, for what polls.
func (c *Controller) Active(ctx context.Context, kind string, after Key, limit int) ([]Trigger, error) {
	return c.store.Active(ctx, kind, "", after, limit)
}

// ByPath finds the active webhook of a path. ReasonNotFound.
func (c *Controller) ByPath(ctx context.Context, namespace, path string) (Trigger, error) {
	return c.store.ByPath(ctx, namespace, path)
}

// Get reads a trigger. ReasonNotFound.
func (c *Controller) Get(ctx context.Context, k Key) (Trigger, error) { return c.store.Trigger(ctx, k) }

// List reads up to limit triggers after an id; a workflow other than "" chooses its own.
func (c *Controller) List(ctx context.Context, namespace, workflow, after string, limit int) ([]Trigger, error) {
	return c.store.List(ctx, namespace, workflow, after, limit)
}

// Delivery reads a delivery. ReasonDeliveryNotFound.
func (c *Controller) Delivery(ctx context.Context, k Key) (Delivery, error) {
	return c.store.Delivery(ctx, k)
}

// Deliveries reads up to limit deliveries with an id below before, newest first.
func (c *Controller) Deliveries(ctx context.Context, namespace string, f Filter, before string, limit int) ([]Delivery, error) {
	return c.store.Deliveries(ctx, namespace, f, before, limit)
}
