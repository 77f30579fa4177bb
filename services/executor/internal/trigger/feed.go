package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// ReasonRate is the reason of an event beyond those that a trigger takes in a minute.
	ReasonRate = "TRIGGER_RATE"
	// ReasonCondition is the reason of an event for which the condition of a trigger cannot be told.
	ReasonCondition = "TRIGGER_CONDITION_FAILED"
	// ReasonCursorGone is the reason with which the registry refuses a cursor behind which events are gone.
	ReasonCursorGone = "FEED_CURSOR_GONE"
	// ReasonCursorAhead is the reason with which the registry refuses a cursor that the feed has not reached.
	ReasonCursorAhead = "FEED_CURSOR_AHEAD"
	// ReasonNoFeed is the reason when an event trigger is turned on where there is no feed.
	ReasonNoFeed = "NO_FEED"

	// MaxEventTriggers is how many active triggers of the type event a namespace may have: each event is held
	// against all of them.
	MaxEventTriggers = 100

	// lookPause is the pause between two looks for namespaces with event triggers.
	lookPause = time.Second
	// heardBatch is how many events are heard at once, between two writes of the cursor.
	heardBatch = 100
	// minFeedPause and maxFeedPause bound the pause after a failure.
	minFeedPause, maxFeedPause = 250 * time.Millisecond, 10 * time.Second
)

// Feed is the feed of the registry. It must be safe for concurrent use.
type Feed interface {
	// End is the cursor of the last event of a namespace.
	End(ctx context.Context, namespace string) (int64, error)
	// Watch tells the events of some kinds behind a cursor, as they come, until ctx ends or tell fails.
	// ReasonCursorGone, ReasonCursorAhead.
	Watch(ctx context.Context, namespace string, after int64, kinds []string, tell func(Heard) error) error
}

// Heard is an event of the feed. Without a kind it says only how far the feed was read.
type Heard struct {
	// Seq is the cursor of the event.
	Seq            int64
	Time           time.Time
	Kind           string
	Epic, Workflow string
	// Runs are those of which the change comes: the one that made it, and those that stand before that.
	Runs []string
	// Body is what triggers are told.
	Body json.RawMessage
}

// id names the event to triggers. The time tells it from another one with its sequence, in a registry that
// was restored from an older copy.
func (h *Heard) id() string {
	return strconv.FormatInt(h.Seq, 10) + "/" + h.Time.UTC().Format(time.RFC3339Nano)
}

// hears reports whether a trigger waits for an event, whatever its condition says.
func (t *Trigger) hears(h *Heard) bool {
	x := &t.Spec
	return h.Seq > t.Since && slices.Contains(x.Kinds, h.Kind) && (x.Epic == "" || x.Epic == h.Epic) && (x.Workflow == "" || x.Workflow == h.Workflow)
}

// Listener has the events of the registry's feed start the runs of triggers. It reads the feed of each
// namespace that has event triggers by a cursor in the database. An event becomes deliveries first, under its
// own id, and the cursor moves then: whoever dies between makes the same deliveries again, which start
// nothing. Two listeners of one namespace do no harm for the same reason, and the one that finds the cursor
// moved begins anew.
type Listener struct {
	store Store
	feed  Feed
	c     *Controller
	mine  func(context.Context) (bool, error)
	rate  int
	log   *slog.Logger
}

// NewListener returns a listener for the triggers of c. mine reports whether this executor is the one that
// listens.
func NewListener(c *Controller, mine func(context.Context) (bool, error)) *Listener {
	return &Listener{store: c.store, feed: c.feed, c: c, mine: mine, rate: c.cfg.EventRate, log: c.log}
}

// Run follows feeds until ctx ends. It returns nil: every failure is tried again.
func (f *Listener) Run(ctx context.Context) error {
	if f.feed == nil {
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	followed := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range followed {
			stop()
		}
	}()
	for {
		wanted, err := f.wanted(ctx)
		if err != nil && ctx.Err() == nil {
			f.log.WarnContext(ctx, "feeds to follow not found", "err", err)
		}
		if err == nil {
			for namespace, stop := range followed {
				if !wanted[namespace] {
					stop()
					delete(followed, namespace)
				}
			}
			for namespace := range wanted {
				if followed[namespace] == nil {
					own, stop := context.WithCancel(ctx)
					followed[namespace] = stop
					all.Go(func() { f.follow(own, namespace) })
				}
			}
		}
		if !sleep.For(ctx, lookPause) {
			return nil
		}
	}
}

// wanted are the namespaces whose feeds this executor follows.
func (f *Listener) wanted(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for after := (Key{}); ; {
		list, err := f.store.Active(ctx, workflow.EventTrigger, "", after, 1)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			break
		}
		out[list[0].Namespace] = true
		after = Key{list[0].Namespace, "~"} // above every id of it
	}
	if len(out) == 0 {
		return out, nil
	}
	mine, err := f.mine(ctx)
	if err != nil || !mine {
		return nil, err
	}
	return out, nil
}

// follow follows the feed of a namespace until ctx ends.
func (f *Listener) follow(ctx context.Context, namespace string) {
	n := &listening{Listener: f, namespace: namespace, conditions: map[string]condition{}, taken: map[string]*bucket{}}
	for pause := minFeedPause; ctx.Err() == nil; {
		moved, err := n.once(ctx)
		if moved {
			pause = minFeedPause
		}
		switch errs.ReasonOf(err) {
		case ReasonCursorGone, ReasonCursorAhead:
			if err = n.lost(ctx, err); err == nil {
				continue
			}
		}
		if err != nil && ctx.Err() == nil {
			f.log.InfoContext(ctx, "feed not followed", "err", err, "namespace", namespace, "pause", pause.String())
		}
		sleep.For(ctx, pause)
		pause = min(2*pause, maxFeedPause)
	}
}

// listening hears the feed of one namespace.
type listening struct {
	*Listener

	namespace  string
	conditions map[string]condition
	taken      map[string]*bucket
}

// condition is the condition of a trigger: compiled, or why it cannot be.
type condition struct {
	text  string
	expr  *workgraph.Expr
	fault error
}

// once watches the feed from the cursor on until something fails. moved says that it got further.
func (n *listening) once(ctx context.Context) (moved bool, err error) {
	cursor, err := n.store.FeedCursor(ctx, n.namespace)
	if err != nil {
		return false, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, ended := make(chan Heard, heardBatch), make(chan error, 1)
	go func() {
		ended <- n.feed.Watch(ctx, n.namespace, cursor, workflow.EventKinds(), func(h Heard) error {
			select {
			case events <- h:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		close(events)
	}()
	defer func() { // the watch has ended when this returns
		stop()
		for range events {
		}
	}()
	for {
		first, open := <-events
		if !open {
			return moved, <-ended
		}
		batch := []Heard{first}
		for len(batch) < heardBatch && len(events) > 0 {
			batch = append(batch, <-events)
		}
		to := batch[len(batch)-1].Seq
		if to <= cursor {
			continue
		}
		if err := n.hear(ctx, batch); err != nil {
			return moved, err
		}
		ok, err := n.store.MoveFeed(ctx, n.namespace, cursor, to, dbkit.Now())
		if err != nil || !ok {
			return moved, err // another executor follows, or the triggers were turned on anew
		}
		cursor, moved = to, true
	}
}

// triggers are the active event triggers of the namespace.
func (n *listening) triggers(ctx context.Context) ([]Trigger, error) {
	return n.store.Active(ctx, workflow.EventTrigger, n.namespace, Key{Namespace: n.namespace}, MaxEventTriggers)
}

// hear makes deliveries of events. The triggers are read after the events came: one that was turned on before
// an event happened is among them.
func (n *listening) hear(ctx context.Context, batch []Heard) error {
	if !slices.ContainsFunc(batch, func(h Heard) bool { return h.Kind != "" }) {
		return nil
	}
	list, err := n.triggers(ctx)
	if err != nil {
		return err
	}
	n.forget(list)
	for i := range batch {
		for k := range list {
			if !list[k].hears(&batch[i]) {
				continue
			}
			if err := n.tell(ctx, &list[k], &batch[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget drops what is kept for triggers that are not active any more.
func (n *listening) forget(list []Trigger) {
	gone := func(id string) bool { return !slices.ContainsFunc(list, func(t Trigger) bool { return t.ID == id }) }
	maps.DeleteFunc(n.conditions, func(id string, _ condition) bool { return gone(id) })
	maps.DeleteFunc(n.taken, func(id string, _ *bucket) bool { return gone(id) })
}

// tell tells a trigger of an event, if its condition holds and it takes another one.
func (n *listening) tell(ctx context.Context, t *Trigger, h *Heard) error {
	holds, fault, err := n.holds(ctx, t, h)
	if err != nil {
		return err
	}
	if fault == nil && !holds {
		return nil
	}
	e := Event{Trigger: t.Key, ID: h.id(), Body: h.Body, At: h.Time, Depth: 1}
	if n.taken[t.ID] == nil {
		n.taken[t.ID] = newBucket(n.rate)
	}
	switch room, first := n.taken[t.ID].take(time.Now()); {
	case !room && !first:
		return nil
	case !room:
		e.Refusal = errs.New(errs.ResourceExhausted, ReasonRate, "the trigger takes %d events in a minute: this one and those after it start nothing until there is room", n.rate)
	case fault != nil:
		e.Refusal = errs.New(errs.FailedPrecondition, ReasonCondition, "the condition of the trigger: %v", fault)
	}
	for _, run := range h.Runs {
		depth, err := n.c.runs.Depth(ctx, n.namespace, run)
		if err != nil {
			return err
		}
		e.Depth = max(e.Depth, depth+1)
	}
	err = n.receive(ctx, e)
	if !errs.Is(err, errs.InvalidArgument) {
		return err
	}
	// An event that cannot be kept is refused each time. Its delivery says so in its place, so that the feed
	// gets past it.
	e.Refusal = errs.From(err)
	if e.Body, err = json.Marshal(map[string]any{"seq": h.Seq, "kind": h.Kind, "brief": true}); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return n.receive(ctx, e)
}

// receive makes a delivery. While as many wait as may, the feed waits, too.
func (n *listening) receive(ctx context.Context, e Event) error {
	for {
		_, err := n.c.Receive(ctx, e)
		switch errs.ReasonOf(err) {
		case ReasonNotActive, ReasonNotFound:
			return nil // it ended meanwhile
		case ReasonBusy:
			if !sleep.For(ctx, fullPause) {
				return context.Cause(ctx)
			}
			continue
		}
		return err
	}
}

// holds evaluates the condition of a trigger. A condition that uses what the event does not have is false.
// fault is what is wrong with the condition itself, each time; with err, such as an interruption, nothing is
// known yet. The bound is the cost alone: a bound of time would refuse events for the load of the machine.
func (n *listening) holds(ctx context.Context, t *Trigger, h *Heard) (holds bool, fault, err error) {
	if t.Spec.When == "" {
		return true, nil, nil
	}
	leave, err := n.c.compute(ctx, n.namespace)
	if err != nil {
		return false, nil, err
	}
	defer leave()
	c, err := n.condition(ctx, t)
	if err != nil || c.fault != nil {
		return false, c.fault, err
	}
	v, err := c.expr.EvalEvent(ctx, h.Body)
	switch {
	case workgraph.Missing(err):
		return false, nil, nil
	case errors.Is(err, workgraph.ErrInterrupted):
		return false, nil, err
	case err != nil:
		return false, err, nil
	case string(v) != "true" && string(v) != "false":
		return false, fmt.Errorf("its value is neither true nor false: %s", errs.Clip(string(v), 100)), nil
	}
	return string(v) == "true", nil, nil
}

// condition compiles the condition of a trigger, once for each text of it. forget drops those of
// triggers that are not active, so that there are no more than MaxEventTriggers.
func (n *listening) condition(ctx context.Context, t *Trigger) (condition, error) {
	if c, known := n.conditions[t.ID]; known && c.text == t.Spec.When {
		return c, nil
	}
	expr, err := workgraph.CompileEventExpr(ctx, t.Spec.When)
	if errors.Is(err, workgraph.ErrInterrupted) {
		return condition{}, err
	}
	c := condition{text: t.Spec.When, expr: expr, fault: err}
	n.conditions[t.ID] = c
	return c, nil
}

// lost goes on after the registry has refused the cursor, and tells all triggers. If the events behind it are
// not kept any more, it goes on with the oldest that is. If the feed has not come so far, the registry is
// another one or an older copy, and it goes on at the end.
func (n *listening) lost(ctx context.Context, cause error) error {
	cursor, err := n.store.FeedCursor(ctx, n.namespace)
	if err != nil {
		return err
	}
	to, ahead := int64(0), errs.ReasonOf(cause) == ReasonCursorAhead
	if ahead {
		if to, err = n.feed.End(ctx, n.namespace); err != nil {
			return err
		}
	}
	list, err := n.triggers(ctx)
	if err != nil {
		return err
	}
	said := errs.From(cause)
	body, err := json.Marshal(map[string]any{"kind": "feed_lost", "cursor": cursor})
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	for i := range list {
		e := Event{Trigger: list[i].Key, ID: "lost/" + strconv.FormatInt(cursor, 10) + "/" + said.Reason, Body: body, At: dbkit.Now(), Depth: 1,
			Refusal: errs.New(errs.FailedPrecondition, said.Reason, "events of the feed were missed: %s", said.Message)}
		if err := n.receive(ctx, e); err != nil {
			return err
		}
	}
	n.log.WarnContext(ctx, "events of a feed were missed", "err", cause, "namespace", n.namespace, "cursor", cursor)
	return n.store.ResetFeed(ctx, n.namespace, cursor, to, ahead, dbkit.Now())
}

// bucket counts the events that a trigger takes: as many as are taken in a minute at once, and then as many
// in each minute.
type bucket struct {
	most   float64
	room   float64
	at     time.Time
	toldAt time.Time
}

func newBucket(most int) *bucket { return &bucket{most: float64(most), room: float64(most)} }

// take takes one. first says, if there is no room, that this has not been told for a minute.
func (b *bucket) take(now time.Time) (room, first bool) {
	if !b.at.IsZero() {
		b.room = min(b.most, b.room+b.most*now.Sub(b.at).Minutes())
	}
	b.at = now
	if b.room >= 1 {
		b.room--
		return true, false
	}
	if first = b.toldAt.IsZero() || now.Sub(b.toldAt) >= time.Minute; first {
		b.toldAt = now
	}
	return false, first
}
