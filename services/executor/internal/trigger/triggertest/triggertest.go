// Package triggertest is the suite that every trigger.Store passes, by itself and below controllers that die
// at any step. It must not know which driver it tests.
package triggertest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// Driver makes stores.
type Driver struct {
	// Fresh returns a place with an empty, migrated database.
	Fresh func(testing.TB) string
	// Open opens a place; closing the store closes the journal too.
	Open func(ctx context.Context, place string) (trigger.Store, func() error, error)
}

func (d Driver) store(t *testing.T) trigger.Store {
	t.Helper()
	s, end, err := d.Open(t.Context(), d.Fresh(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
	return s
}

var errDead = errs.New(errs.Unavailable, "DEAD", "the executor has died")

// ledger records which runs were started, as a journal would: a run that is there already is not started
// again.
type ledger struct {
	mu     sync.Mutex
	runs   map[string]map[string]json.RawMessage
	starts int
	// fails are the answers of the next starts; lost ones come after the run was made.
	fails, lost []error
	ends        map[string]trigger.End
	depths      map[string]int
}

func newLedger() *ledger {
	return &ledger{runs: map[string]map[string]json.RawMessage{}, ends: map[string]trigger.End{}}
}

// Start implements trigger.Runs.
func (l *ledger) Start(_ context.Context, _ *trigger.Trigger, d *trigger.Delivery, inputs map[string]json.RawMessage) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.starts++; len(l.fails) > 0 {
		err := l.fails[0]
		if l.fails = l.fails[1:]; err != nil {
			return "", err
		}
	}
	l.runs[d.RunID] = inputs
	if len(l.lost) > 0 {
		err := l.lost[0]
		if l.lost = l.lost[1:]; err != nil {
			return "", err
		}
	}
	return d.RunID, nil
}

// Exists implements trigger.Runs.
func (l *ledger) Exists(_ context.Context, _, runID string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[runID] != nil, nil
}

// End implements trigger.Runs.
func (l *ledger) End(_ context.Context, _, runID string) (trigger.End, bool, error) {
	e, ok := l.ends[runID]
	return e, ok, nil
}

// shelf is a catalog and the schedules of cron triggers.
type shelf struct {
	mu        sync.Mutex
	versions  map[string]trigger.Version
	away      error
	schedules map[string]string
	deaths    int // how many puts and removals die
}

func newShelf() *shelf {
	return &shelf{versions: map[string]trigger.Version{}, schedules: map[string]string{}}
}

// put makes a version what its reference stands for.
func (s *shelf) put(ref, id string, number int64, triggers ...workflow.Trigger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := strings.Cut(ref, "@")
	s.versions[ref] = trigger.Version{Workflow: name, WorkflowID: id, Number: number, Triggers: triggers}
}

// Version implements trigger.Catalog.
func (s *shelf) Version(_ context.Context, _, ref string) (trigger.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.versions[ref]
	switch {
	case s.away != nil:
		return v, s.away
	case !ok:
		return v, errs.New(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", ref)
	}
	return v, nil
}

// Check implements trigger.Schedules.
func (s *shelf) Check(x *workflow.Trigger) error {
	if x.Cron == "never" {
		return errs.New(errs.InvalidArgument, "BAD", "bad").Violate("schedule.cron", "BAD", "is never")
	}
	return nil
}

// Put implements trigger.Schedules.
func (s *shelf) Put(_ context.Context, t *trigger.Trigger) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaths > 0 {
		s.deaths--
		return errDead
	}
	s.schedules[t.ID] = t.Spec.Cron
	return nil
}

// Remove implements trigger.Schedules.
func (s *shelf) Remove(_ context.Context, k trigger.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaths > 0 {
		s.deaths--
		return errDead
	}
	delete(s.schedules, k.ID)
	return nil
}

func (s *shelf) crons() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{}
	for _, c := range s.schedules {
		out = append(out, c)
	}
	return out
}

// dying is a store whose process dies at the step of this number, before or after the step has happened.
type dying struct {
	trigger.Store
	step  *atomic.Int64
	at    int64
	after bool
}

func (d dying) do(f func() error) error {
	step := d.step.Add(1)
	switch {
	case step > d.at:
		return errDead
	case step < d.at || d.after:
		if err := f(); err != nil {
			return err
		}
	}
	if step == d.at {
		return errDead
	}
	return nil
}

// Receive implements trigger.Store.
func (d dying) Receive(ctx context.Context, x trigger.Delivery, most int) (out trigger.Delivery, err error) {
	err = d.do(func() error { out, err = d.Store.Receive(ctx, x, most); return err })
	return out, err
}

// Record implements trigger.Store.
func (d dying) Record(ctx context.Context, x trigger.Delivery) error {
	return d.do(func() error { return d.Store.Record(ctx, x) })
}

// Delivery implements trigger.Store.
func (d dying) Delivery(ctx context.Context, k trigger.Key) (out trigger.Delivery, err error) {
	err = d.do(func() error { out, err = d.Store.Delivery(ctx, k); return err })
	return out, err
}

// Trigger implements trigger.Store.
func (d dying) Trigger(ctx context.Context, k trigger.Key) (out trigger.Trigger, err error) {
	err = d.do(func() error { out, err = d.Store.Trigger(ctx, k); return err })
	return out, err
}

// Tried implements trigger.Store.
func (d dying) Tried(ctx context.Context, x trigger.Delivery, attempts int) error {
	return d.do(func() error { return d.Store.Tried(ctx, x, attempts) })
}

func controller(t *testing.T, s trigger.Store, l *ledger, x *shelf) *trigger.Controller {
	t.Helper()
	cfg := trigger.DefaultConfig()
	cfg.Max = 10
	c, err := trigger.New(cfg, trigger.Deps{Store: s, Runs: l, Catalog: x, Schedules: x, Logger: slog.New(slog.DiscardHandler), Meters: noop.NewMeterProvider()})
	require.NoError(t, err)
	return c
}

// bench is a store with a controller, and a workflow with one chat trigger that is active.
type bench struct {
	trigger.Store
	c     *trigger.Controller
	runs  *ledger
	shelf *shelf
	t     trigger.Trigger
}

func (d Driver) bench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Store: d.store(t), runs: newLedger(), shelf: newShelf()}
	b.c = controller(t, b.Store, b.runs, b.shelf)
	b.shelf.put("talk", "wf_1", 1, workflow.Trigger{ID: "chat_1", Type: "chat"})
	_, list, err := b.c.Activate(t.Context(), "n", "talk")
	require.NoError(t, err)
	require.Len(t, list, 1)
	b.t = list[0]
	return b
}

func (b *bench) event(id string) trigger.Event {
	return trigger.Event{Trigger: b.t.Key, ID: id, Body: json.RawMessage(`{"message": "hi"}`), At: time.Now()}
}

func (b *bench) work(t *testing.T, d trigger.Delivery) trigger.Delivery {
	t.Helper()
	_, err := b.c.Work(t.Context(), journal.TriggerArgs{Namespace: d.Namespace, DeliveryID: d.ID})
	require.NoError(t, err)
	d, err = b.Delivery(t.Context(), d.Key)
	require.NoError(t, err)
	return d
}

// Run tests a driver.
func Run(t *testing.T, d Driver) {
	t.Run("Deliveries", func(t *testing.T) { t.Parallel(); d.deliveries(t) })
	t.Run("Heard", func(t *testing.T) { t.Parallel(); d.heard(t) })
	t.Run("Dies", func(t *testing.T) { t.Parallel(); d.dies(t) })
	t.Run("Activations", func(t *testing.T) { t.Parallel(); d.activations(t) })
	t.Run("Ends", func(t *testing.T) { t.Parallel(); d.ends(t) })
	t.Run("Feed", func(t *testing.T) { t.Parallel(); d.feed(t) })
	t.Run("FeedDies", func(t *testing.T) { t.Parallel(); d.feedDies(t) })
	t.Run("FeedOfTwo", func(t *testing.T) { t.Parallel(); d.feedOfTwo(t) })
}

func (d Driver) deliveries(t *testing.T) {
	t.Run("StartOneRun", func(t *testing.T) {
		b := d.bench(t)
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		require.Equal(t, trigger.Received, x.Status)
		n, err := b.Overdue(t.Context(), dbkit.Now().Add(time.Second), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n, "it waits")
		got := b.work(t, x)
		require.Equal(t, trigger.Started, got.Status)
		require.Equal(t, x.RunID, got.RunID)
		require.Equal(t, 1, got.Attempts)
		require.Zero(t, got.Due)
		require.JSONEq(t, `{"message": "\"hi\""}`, string(mustJSON(t, map[string]string{"message": string(b.runs.runs[x.RunID]["message"])})))
		b.work(t, x)
		require.Equal(t, 1, b.runs.starts, "a job that comes twice starts nothing")
		n, err = b.Overdue(t.Context(), dbkit.Now().Add(time.Second), 10)
		require.NoError(t, err)
		require.Zero(t, n)
	})
	t.Run("TheSameEventIsOneDelivery", func(t *testing.T) {
		b := d.bench(t)
		first, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				again, err := b.c.Receive(t.Context(), b.event("a"))
				if err != nil || again.ID != first.ID || !again.Repeated {
					t.Errorf("got %v, %v", again, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 8, b.work(t, first).Repeats)
	})
	t.Run("ArePutOffAndTriedAgain", func(t *testing.T) {
		b := d.bench(t)
		b.runs.fails = []error{errDead, errs.New(errs.ResourceExhausted, "FULL", "no room")}
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		one := b.work(t, x)
		require.Equal(t, trigger.Received, one.Status)
		require.Equal(t, "DEAD", one.Reason)
		require.True(t, one.Due.After(x.Due))
		require.Equal(t, "FULL", b.work(t, x).Reason)
		require.Equal(t, trigger.Started, b.work(t, x).Status)
	})
	t.Run("AreNotTriedBeforeTheirTime", func(t *testing.T) {
		b := d.bench(t)
		b.runs.fails = []error{errDead, errDead, errDead}
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		for range 5 {
			x = b.work(t, x)
		}
		require.Equal(t, 3, b.runs.starts, "the third pause is longer than clocks differ")
		require.Equal(t, trigger.Received, x.Status)
	})
	t.Run("AreNotRefusedIfTheirRunIsThere", func(t *testing.T) {
		b := d.bench(t)
		b.runs.lost = []error{errDead}
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		require.Equal(t, trigger.Received, b.work(t, x).Status)
		_, err = b.c.Deactivate(t.Context(), "n", "talk")
		require.NoError(t, err)
		got := b.work(t, x)
		require.Equal(t, trigger.Started, got.Status)
		require.Equal(t, x.RunID, got.RunID)
	})
	t.Run("AreRefusedForGood", func(t *testing.T) {
		b := d.bench(t)
		b.runs.fails = []error{errs.New(errs.InvalidArgument, "INPUT_INVALID", "does not fit")}
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		got := b.work(t, x)
		require.Equal(t, trigger.Refused, got.Status)
		require.Equal(t, "INPUT_INVALID: does not fit", got.Reason+": "+got.Message)
		require.Empty(t, got.RunID)
		require.NotZero(t, got.EndTime)
	})
	t.Run("FailAfterADay", func(t *testing.T) {
		b := d.bench(t)
		for _, c := range []struct {
			id   string
			want trigger.Status
		}{{"never", trigger.Failed}, {"unheard", trigger.Started}} {
			old := trigger.Delivery{
				Key: trigger.Key{Namespace: "n", ID: "tdl_" + c.id}, Trigger: b.t.ID, EventID: c.id, Event: json.RawMessage(`{}`), Status: trigger.Received,
				RunID: "run_" + c.id, ReceiveTime: dbkit.Now().Add(-trigger.Patience - time.Second), Due: dbkit.Now(),
			}
			_, err := b.Store.Receive(t.Context(), old, 10)
			require.NoError(t, err)
			b.runs.fails, b.runs.lost = []error{errDead}, nil
			if c.want == trigger.Started {
				b.runs.fails, b.runs.lost = nil, []error{errDead}
			}
			require.Equal(t, c.want, b.work(t, old).Status)
		}
	})
	t.Run("AreBounded", func(t *testing.T) {
		b := d.bench(t)
		for _, e := range []trigger.Event{
			{Trigger: b.t.Key, ID: "", Body: json.RawMessage(`1`)}, {Trigger: b.t.Key, ID: "a\x00", Body: json.RawMessage(`1`)},
			{Trigger: b.t.Key, ID: strings.Repeat("a", trigger.MaxEventID+1), Body: json.RawMessage(`1`)}, {Trigger: b.t.Key, ID: "a", Body: json.RawMessage(`{`)},
			{Trigger: b.t.Key, ID: "a", Body: json.RawMessage(`"` + strings.Repeat("a", trigger.MaxEvent) + `"`)},
		} {
			_, err := b.c.Receive(t.Context(), e)
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		}
		x := trigger.Delivery{Key: trigger.Key{Namespace: "n", ID: "tdl_0"}, Trigger: b.t.ID, Event: json.RawMessage(`{}`), Status: trigger.Received, ReceiveTime: dbkit.Now(), Due: dbkit.Now()}
		for i := range 3 {
			x.ID, x.EventID = fmt.Sprintf("tdl_%d", i), fmt.Sprint(i)
			_, err := b.Store.Receive(t.Context(), x, 2)
			require.Equal(t, i == 2, errs.ReasonOf(err) == trigger.ReasonBusy, "%d: %v", i, err)
		}
		_, err := b.Store.Delivery(t.Context(), x.Key)
		require.Equal(t, trigger.ReasonDeliveryNotFound, errs.ReasonOf(err), "what has no room is not kept")
	})
	t.Run("OfATriggerThatIsNotActive", func(t *testing.T) {
		b := d.bench(t)
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		_, err = b.c.Deactivate(t.Context(), "n", "talk")
		require.NoError(t, err)
		require.Equal(t, trigger.ReasonNotActive, b.work(t, x).Reason)
		_, err = b.c.Receive(t.Context(), b.event("b"))
		require.Equal(t, trigger.ReasonNotActive, errs.ReasonOf(err))
		_, err = b.c.Receive(t.Context(), trigger.Event{Trigger: trigger.Key{Namespace: "other", ID: b.t.ID}, ID: "a", Body: json.RawMessage(`1`)})
		require.Equal(t, trigger.ReasonNotFound, errs.ReasonOf(err), "of another namespace")
		require.Empty(t, b.runs.runs)
	})
	t.Run("AreRepeated", func(t *testing.T) {
		b := d.bench(t)
		x, err := b.c.Receive(t.Context(), b.event("a"))
		require.NoError(t, err)
		b.work(t, x)
		again, err := b.c.Repeat(t.Context(), x.Key, "r")
		require.NoError(t, err)
		require.Equal(t, x.ID, again.RepeatOf)
		require.NotEqual(t, x.ID, again.ID)
		same, err := b.c.Repeat(t.Context(), x.Key, "r")
		require.NoError(t, err)
		require.Equal(t, again.ID, same.ID)
		other, err := b.c.Repeat(t.Context(), x.Key, "")
		require.NoError(t, err)
		require.NotEqual(t, again.ID, other.ID)
		require.Equal(t, trigger.Started, b.work(t, again).Status)
		require.Len(t, b.runs.runs, 2)
	})
	t.Run("AreListed", func(t *testing.T) {
		b := d.bench(t)
		var want []string
		for i := range 5 {
			x, err := b.c.Receive(t.Context(), b.event(fmt.Sprint(i)))
			require.NoError(t, err)
			want = append([]string{x.ID}, want...)
			if i < 2 {
				b.work(t, x)
			}
		}
		list := func(f trigger.Filter, before string, limit int) []string {
			rows, err := b.Deliveries(t.Context(), "n", f, before, limit)
			require.NoError(t, err)
			out := []string{}
			for _, x := range rows {
				out = append(out, x.ID)
			}
			return out
		}
		require.Equal(t, want, list(trigger.Filter{}, "", 10))
		require.Equal(t, want[2:4], list(trigger.Filter{Trigger: b.t.ID}, want[1], 2))
		require.Equal(t, want[3:], list(trigger.Filter{Status: trigger.Started}, "", 10))
		require.Equal(t, want[:3], list(trigger.Filter{Trigger: b.t.ID, Status: trigger.Received}, "", 10))
		require.Empty(t, list(trigger.Filter{Trigger: "other"}, "", 10))
	})
	t.Run("AreForgotten", func(t *testing.T) {
		b := d.bench(t)
		var all []trigger.Delivery
		for i := range 4 {
			x, err := b.c.Receive(t.Context(), b.event(fmt.Sprint(i)))
			require.NoError(t, err)
			if all = append(all, x); i < 3 {
				b.work(t, x)
			}
		}
		n, err := b.Forget(t.Context(), dbkit.Now().Add(-time.Hour), trigger.Room{Deliveries: 2, Bytes: 1 << 20}, 10)
		require.NoError(t, err)
		require.Equal(t, 1, n, "the oldest of more than are kept")
		_, err = b.Delivery(t.Context(), all[0].Key)
		require.Equal(t, trigger.ReasonDeliveryNotFound, errs.ReasonOf(err))
		n, err = b.Forget(t.Context(), dbkit.Now().Add(time.Hour), trigger.Room{Deliveries: 100, Bytes: 1 << 20}, 10)
		require.NoError(t, err)
		require.Equal(t, 2, n, "those that wait stay")
	})
	t.Run("AreForgottenByTheirSize", func(t *testing.T) {
		b := d.bench(t)
		var all []trigger.Delivery
		for i := range 4 {
			e := b.event(fmt.Sprint(i))
			e.Body = mustJSON(t, map[string]string{"message": strings.Repeat("x", 10_000*i)})
			x, err := b.c.Receive(t.Context(), e)
			require.NoError(t, err)
			all = append(all, b.work(t, x))
		}
		room := trigger.Room{Deliveries: 100, Bytes: 63_000}
		n, err := b.Forget(t.Context(), dbkit.Now().Add(-time.Hour), room, 10)
		require.NoError(t, err)
		require.Zero(t, n, "they fit")
		room.Bytes = 51_500 // the last two fit
		n, err = b.Forget(t.Context(), dbkit.Now().Add(-time.Hour), room, 1)
		require.NoError(t, err)
		require.Equal(t, 2, n, "in handfuls, and what is too much is looked for once")
		rest, err := b.Deliveries(t.Context(), "n", trigger.Filter{}, "", 10)
		require.NoError(t, err)
		require.Equal(t, []string{all[3].ID, all[2].ID}, []string{rest[0].ID, rest[1].ID})
		require.Len(t, rest, 2)
	})
	t.Run("TakeTurns", func(t *testing.T) {
		b := d.bench(t)
		hold := make(chan struct{})
		c := controller(t, slow{b.Store, hold}, b.runs, b.shelf)
		var all sync.WaitGroup
		turn := make(chan time.Duration, 64)
		for i := range 20 {
			all.Go(func() {
				pause, err := c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", DeliveryID: fmt.Sprint("tdl_", i)})
				if err != nil {
					t.Error(err)
				}
				turn <- pause
			})
		}
		for range 12 {
			require.NotZero(t, <-turn, "more than a namespace has places for come later")
		}
		close(hold)
		all.Wait()
		for range 8 {
			require.Zero(t, <-turn)
		}
	})
}

// slow is a store that reads deliveries once hold is closed.
type slow struct {
	trigger.Store
	hold chan struct{}
}

// Delivery implements trigger.Store.
func (s slow) Delivery(ctx context.Context, k trigger.Key) (trigger.Delivery, error) {
	<-s.hold
	return s.Store.Delivery(ctx, k)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// dies has an executor die at every step of a delivery, before and after it, and in the start of the run. The
// sender sends again what it was not told to have arrived.
func (d Driver) dies(t *testing.T) {
	b := d.bench(t)
	for at := int64(1); at <= 6; at++ {
		for _, after := range []bool{false, true} {
			for _, lost := range []bool{false, true} {
				name := fmt.Sprintf("%d/%v/%v", at, after, lost)
				runs, step := newLedger(), new(atomic.Int64)
				if lost {
					runs.lost = []error{errDead}
				}
				c := controller(t, dying{b.Store, step, at, after}, runs, b.shelf)
				x, err := c.Receive(t.Context(), b.event(name))
				if err == nil {
					_, _ = c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", DeliveryID: x.ID})
				}
				c = controller(t, b.Store, runs, b.shelf)
				again, err := c.Receive(t.Context(), b.event(name))
				require.NoError(t, err)
				for range 3 {
					_, err = c.Work(t.Context(), journal.TriggerArgs{Namespace: "n", DeliveryID: again.ID})
					require.NoError(t, err)
				}
				got, err := b.Delivery(t.Context(), again.Key)
				require.NoError(t, err)
				require.Equal(t, trigger.Started, got.Status, name)
				require.Len(t, runs.runs, 1, name)
				require.Contains(t, runs.runs, got.RunID, name)
			}
		}
	}
}
