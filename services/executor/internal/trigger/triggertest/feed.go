package triggertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// tape is the feed of a registry for one namespace.
type tape struct {
	mu      sync.Mutex
	events  []trigger.Heard
	gone    int64 // events up to it were removed
	changed chan struct{}
	watches int
}

func newTape() *tape { return &tape{changed: make(chan struct{})} }

func (f *tape) end() int64 { return int64(len(f.events)) }

// add adds an event of an epic, and returns its sequence.
func (f *tape) add(kind, epic, body string, runs ...string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq := f.end() + 1
	f.events = append(f.events, trigger.Heard{Seq: seq, Time: time.Unix(1_700_000_000+seq, 0), Kind: kind, Epic: epic, Workflow: "job", Runs: runs,
		Body: json.RawMessage(fmt.Sprintf(`{"seq": %d, "kind": %q, "message": %q%s}`, seq, kind, epic, body))})
	close(f.changed)
	f.changed = make(chan struct{})
	return seq
}

// End implements trigger.Feed.
func (f *tape) End(context.Context, string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end(), nil
}

// Watch implements trigger.Feed.
func (f *tape) Watch(ctx context.Context, _ string, after int64, kinds []string, tell func(trigger.Heard) error) error {
	for first := true; ; first = false {
		f.mu.Lock()
		if first {
			f.watches++
		}
		changed := f.changed
		var err error
		switch {
		case after > 0 && after < f.gone:
			err = errs.New(errs.FailedPrecondition, trigger.ReasonCursorGone, "the oldest one is %d", f.gone+1)
		case after > f.end():
			err = errs.New(errs.FailedPrecondition, trigger.ReasonCursorAhead, "its last event is %d", f.end())
		}
		var some []trigger.Heard
		if err == nil {
			some = slices.Clone(f.events[max(after, f.gone):])
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
		for _, h := range some {
			if after = h.Seq; !slices.Contains(kinds, h.Kind) {
				h = trigger.Heard{Seq: h.Seq}
			}
			if err := tell(h); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// hearing is a bench whose workflow `hear` has event triggers.
type hearing struct {
	*bench
	tape *tape
	cfg  trigger.Config
	// computing are the turns of conditions.
	computing *turns.Turns
}

func event(id string, kinds ...string) workflow.Trigger {
	return workflow.Trigger{ID: id, Type: "event", Kinds: kinds}
}

func (d Driver) hearing(t *testing.T, before int, triggers ...workflow.Trigger) *hearing {
	t.Helper()
	b := &hearing{bench: d.bench(t), tape: newTape(), cfg: trigger.DefaultConfig()}
	for range before {
		b.tape.add("task_updated", "ep_1", "")
	}
	b.c = b.controller(t, b.Store)
	b.shelf.put("hear", "wf_9", 1, triggers...)
	b.on(t)
	return b
}

// on turns the triggers on.
func (b *hearing) on(t *testing.T) {
	t.Helper()
	_, _, err := b.c.Activate(t.Context(), "n", "hear")
	require.NoError(t, err)
}

func (b *hearing) controller(t *testing.T, s trigger.Store) *trigger.Controller {
	t.Helper()
	c, err := trigger.New(b.cfg, trigger.Deps{Store: s, Runs: b.runs, Catalog: b.shelf, Feed: b.tape, Schedules: b.shelf, Computing: b.computing, Logger: slog.New(slog.DiscardHandler), Meters: noop.NewMeterProvider()})
	require.NoError(t, err)
	return c
}

// follow follows the feed by a store until done reports true.
func (b *hearing) follow(t *testing.T, s trigger.Store, done func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	f := trigger.NewListener(b.controller(t, s), func(context.Context) (bool, error) { return true, nil })
	all.Go(func() { _ = f.Run(ctx) })
	testkit.Eventually(t, done)
	stop()
	all.Wait()
}

// heardAll follows the feed to its end.
func (b *hearing) heardAll(t *testing.T) {
	t.Helper()
	b.follow(t, b.Store, func() bool { return b.cursor(t) == b.tape.end() })
}

func (b *hearing) cursor(t *testing.T) int64 {
	at, err := b.FeedCursor(t.Context(), "n")
	require.NoError(t, err)
	return at
}

// told are the deliveries of a trigger of `hear`, the oldest first, as SEQ STATE REASON.
func (b *hearing) told(t *testing.T, id string) (out []string) {
	t.Helper()
	for _, x := range b.deliveries(t, id) {
		var e struct {
			Seq int64 `json:"seq"`
		}
		require.NoError(t, json.Unmarshal(x.Event, &e))
		text := fmt.Sprintf("%d %s", e.Seq, x.Status)
		if x.Reason != "" {
			text += " " + x.Reason
		}
		out = append(out, text)
	}
	return out
}

func (b *hearing) deliveries(t *testing.T, id string) []trigger.Delivery {
	t.Helper()
	list, err := b.List(t.Context(), "n", "hear", "", 100)
	require.NoError(t, err)
	for i := range list {
		if list[i].Spec.ID == id {
			found, err := b.Deliveries(t.Context(), "n", trigger.Filter{Trigger: list[i].ID}, "", 1000)
			require.NoError(t, err)
			slices.Reverse(found)
			return found
		}
	}
	require.Fail(t, "no such trigger", id)
	return nil
}

// FeedCursor implements trigger.Store.
func (d dying) FeedCursor(ctx context.Context, namespace string) (at int64, err error) {
	err = d.do(func() error { at, err = d.Store.FeedCursor(ctx, namespace); return err })
	return at, err
}

// MoveFeed implements trigger.Store.
func (d dying) MoveFeed(ctx context.Context, namespace string, from, to int64, now time.Time) (ok bool, err error) {
	err = d.do(func() error { ok, err = d.Store.MoveFeed(ctx, namespace, from, to, now); return err })
	return ok, err
}

// Depth implements trigger.Runs.
func (l *ledger) Depth(_ context.Context, _, runID string) (int, error) { return l.depths[runID], nil }

// costly is beyond the cost limit of an expression.
const costly = `lists.range(1000).map(a, lists.range(1000).map(b, b)).size() > 0`

func (d Driver) feed(t *testing.T) {
	t.Run("BeginsWhereTheTriggerWasTurnedOn", func(t *testing.T) {
		b := d.hearing(t, 3, event("e", "task_updated"))
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		require.Equal(t, []string{"4 RECEIVED"}, b.told(t, "e"))
		require.Equal(t, "4/2023-11-14T22:13:24Z", b.deliveries(t, "e")[0].EventID)
	})
	t.Run("StartsOneRunWithTheEvent", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		got := b.work(t, b.deliveries(t, "e")[0])
		require.Equal(t, trigger.Started, got.Status)
		require.JSONEq(t, `"ep_1"`, string(b.runs.runs[got.RunID]["message"]))
	})
	for name, tt := range map[string]struct {
		x    workflow.Trigger
		want []string
	}{
		"Kinds":            {event("e", "epic_updated", "task_created"), []string{"1 RECEIVED", "3 RECEIVED"}},
		"Epic":             {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"task_updated", "epic_updated"}, Epic: "ep_2"}, []string{"4 RECEIVED"}},
		"OtherWorkflow":    {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"task_updated"}, Workflow: "other"}, nil},
		"Workflow":         {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"task_updated"}, Workflow: "job"}, []string{"2 RECEIVED", "4 RECEIVED"}},
		"When":             {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"task_updated", "epic_updated"}, When: `event.task.status == "failed"`}, []string{"2 RECEIVED"}},
		"WhenIsNoTruth":    {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"epic_updated"}, When: `event.kind`}, []string{"1 REFUSED TRIGGER_CONDITION_FAILED"}},
		"WhenCostsTooMuch": {workflow.Trigger{ID: "e", Type: "event", Kinds: []string{"epic_updated"}, When: costly}, []string{"1 REFUSED TRIGGER_CONDITION_FAILED"}},
	} {
		t.Run("Filters/"+name, func(t *testing.T) {
			b := d.hearing(t, 0, tt.x)
			b.tape.add("epic_updated", "ep_1", "")
			b.tape.add("task_updated", "ep_1", `, "task": {"status": "failed"}`)
			b.tape.add("task_created", "ep_2", "")
			b.tape.add("task_updated", "ep_2", `, "task": {"status": "running"}`)
			b.tape.add("usage_booked", "ep_2", "")
			b.heardAll(t)
			require.Equal(t, tt.want, b.told(t, "e"))
		})
	}
	t.Run("ConditionWaitsForATurnToComputeAndIsNotRefusedForIt", func(t *testing.T) {
		x := event("e", "task_updated")
		x.When = `event.kind == "task_updated"`
		b := d.hearing(t, 0, x)
		b.computing = turns.Within(turns.Bounds{Key: 1, Waiting: 1})
		leave, err := b.computing.Enter(t.Context(), "n")
		require.NoError(t, err)
		b.tape.add("task_updated", "ep_1", "")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		b.follow(t, b.Store, func() bool { // the condition waits when there is no room to wait beside it
			_, err := b.computing.Enter(over, "n")
			return errors.Is(err, turns.ErrFull)
		})
		require.Zero(t, b.cursor(t), "an executor that stops meanwhile leaves the event to the next one")
		require.Empty(t, b.told(t, "e"))
		leave()
		b.heardAll(t)
		require.Equal(t, []string{"1 RECEIVED"}, b.told(t, "e"))
	})
	t.Run("WhatHappensWhileItIsOffIsNotHeard", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		_, err := b.c.Deactivate(t.Context(), "n", "hear")
		require.NoError(t, err)
		b.tape.add("task_updated", "ep_1", "")
		b.on(t)
		require.EqualValues(t, 2, b.cursor(t), "events from before are not read again")
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		require.Equal(t, []string{"1 RECEIVED", "3 RECEIVED"}, b.told(t, "e"))
	})
	t.Run("ANewVersionHearsFromWhereTheOldOneWasOn", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.tape.add("task_updated", "ep_1", "")
		b.shelf.put("hear", "wf_9", 2, event("e", "task_updated"), event("new", "task_updated"))
		b.on(t)
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		require.Equal(t, []string{"1 RECEIVED", "2 RECEIVED"}, b.told(t, "e"))
		require.Equal(t, []string{"2 RECEIVED"}, b.told(t, "new"))
	})
	t.Run("AChainOfRunsEnds", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.runs.depths = map[string]int{"run_3": 3, "run_16": trigger.MaxDepth}
		b.tape.add("task_updated", "ep_1", "", "run_3")
		b.tape.add("task_updated", "ep_1", "", "run_3", "run_16")
		b.heardAll(t)
		require.Equal(t, []string{"1 RECEIVED", "2 REFUSED " + trigger.ReasonTooDeep}, b.told(t, "e"))
		require.Equal(t, 4, b.deliveries(t, "e")[0].Depth)
	})
	t.Run("WhatIsBeyondTheRateIsSkippedAndToldOnce", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.cfg.EventRate = 2
		for range 6 {
			b.tape.add("task_updated", "ep_1", "")
		}
		b.heardAll(t)
		require.Equal(t, []string{"1 RECEIVED", "2 RECEIVED", "3 REFUSED " + trigger.ReasonRate}, b.told(t, "e"))
	})
	t.Run("AnEventThatIsTooLargeIsRefusedAndTheNextOneHeard", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		b.tape.add("task_updated", "ep_1", `, "text": "`+strings.Repeat("x", trigger.MaxEvent)+`"`)
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		require.Equal(t, []string{"1 REFUSED " + trigger.ReasonEventTooLarge, "2 RECEIVED"}, b.told(t, "e"))
		require.Less(t, len(b.deliveries(t, "e")[0].Event), 1<<10)
	})
	t.Run("ACursorThatIsGoneIsTold", func(t *testing.T) {
		b := d.hearing(t, 3, event("e", "task_updated"))
		for range 5 {
			b.tape.add("task_updated", "ep_1", "")
		}
		b.tape.gone = 6
		b.heardAll(t)
		require.Equal(t, []string{"0 REFUSED FEED_CURSOR_GONE", "7 RECEIVED", "8 RECEIVED"}, b.told(t, "e"))
	})
	t.Run("AnOlderCopyOfTheRegistryIsFollowedFromItsEnd", func(t *testing.T) {
		b := d.hearing(t, 3, event("e", "task_updated"))
		old := b.tape
		b.tape = newTape()
		b.tape.add("task_updated", "ep_1", "")
		b.follow(t, b.Store, func() bool { return b.cursor(t) == 1 })
		b.tape.add("task_updated", "ep_1", "")
		b.heardAll(t)
		require.Equal(t, []string{"0 REFUSED FEED_CURSOR_AHEAD", "2 RECEIVED"}, b.told(t, "e"))
		require.EqualValues(t, 3, old.end())
	})
	t.Run("TooManyOfANamespaceAreRefused", func(t *testing.T) {
		b := d.hearing(t, 0, event("e", "task_updated"))
		for i := range trigger.MaxEventTriggers / workflow.MaxTriggers {
			var some []workflow.Trigger
			for k := range workflow.MaxTriggers {
				some = append(some, event(fmt.Sprintf("e%d", k), "task_updated"))
			}
			name := fmt.Sprintf("many%d", i)
			b.shelf.put(name, "wf_"+name, 1, some...)
			_, _, err := b.c.Activate(t.Context(), "n", name)
			if i < trigger.MaxEventTriggers/workflow.MaxTriggers-1 {
				require.NoError(t, err)
				continue
			}
			require.Equal(t, trigger.ReasonTooManyEvents, errs.ReasonOf(err), "%v", err)
		}
	})
	t.Run("AMovedCursorIsNotMovedAgain", func(t *testing.T) {
		b := d.hearing(t, 3, event("e", "task_updated"))
		for _, want := range []bool{true, false} {
			ok, err := b.MoveFeed(t.Context(), "n", 3, 5, time.Now())
			require.NoError(t, err)
			require.Equal(t, want, ok)
		}
		require.EqualValues(t, 5, b.cursor(t))
	})
}

// feedDies has listeners die at each step, and others go on: each event is one delivery and one run.
func (d Driver) feedDies(t *testing.T) {
	b := d.hearing(t, 0, event("e", "task_updated"))
	for at := int64(1); at <= 5; at++ {
		for _, after := range []bool{false, true} {
			step := new(atomic.Int64)
			b.tape.add("task_updated", "ep_1", "")
			b.tape.add("task_updated", "ep_1", "")
			b.follow(t, dying{b.Store, step, at, after}, func() bool { return step.Load() >= at })
		}
	}
	b.heardAll(t)
	list := b.deliveries(t, "e")
	require.Len(t, list, int(b.tape.end()))
	for i := range list {
		require.Contains(t, list[i].EventID, fmt.Sprintf("%d/", i+1))
		for range 2 {
			_, err := b.c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", DeliveryID: list[i].ID})
			require.NoError(t, err)
		}
	}
	require.Len(t, b.runs.runs, len(list))
}

// feedOfTwo has two executors follow one feed at the same time.
func (d Driver) feedOfTwo(t *testing.T) {
	b := d.hearing(t, 0, event("e", "task_updated"))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		f := trigger.NewListener(b.controller(t, b.Store), func(context.Context) (bool, error) { return true, nil })
		all.Go(func() { _ = f.Run(ctx) })
	}
	for range 30 {
		b.tape.add("task_updated", "ep_1", "")
	}
	testkit.Eventually(t, func() bool { return b.cursor(t) == b.tape.end() })
	stop()
	all.Wait()
	list := b.deliveries(t, "e")
	require.Len(t, list, 30)
}
