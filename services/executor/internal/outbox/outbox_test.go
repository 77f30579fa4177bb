package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeRegistry is a registry whose refusals can be set.
type fakeRegistry struct {
	mu     sync.Mutex
	fail   error
	failOf map[string]error // by namespace
	failed atomic.Int64     // calls for one of those
	never  map[string]error // by node: why its entries are refused, and every call that has one of them
	calls  int              // for usage
	// neverChange is the run of which no change is recorded, and waits the one whose usage is not booked.
	neverChange, waits string
	log                []string
	entries            map[string]int
}

func (b *fakeRegistry) do(ns, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	if err := b.failOf[ns]; err != nil {
		b.failed.Add(1)
		return err
	}
	b.log = append(b.log, what)
	return nil
}

func (b *fakeRegistry) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *fakeRegistry) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.log...)
}

func (b *fakeRegistry) Confirm(_ context.Context, ns string, c outbox.Confirm) error {
	return b.do(ns, fmt.Sprintf("confirm %s %s", ns, c.RunID))
}

func (b *fakeRegistry) Settle(_ context.Context, ns string, s outbox.Settle) error {
	return b.do(ns, fmt.Sprintf("settle %s %s %s", ns, s.RunID, s.Outcome))
}

func (b *fakeRegistry) RecordChanges(_ context.Context, ns string, list outbox.Changes) error {
	if b.neverChange != "" && slices.ContainsFunc(list.Runs, func(c outbox.RunChange) bool { return c.RunID == b.neverChange }) {
		return errs.New(errs.InvalidArgument, "NEVER", "no such change can be recorded")
	}
	var told []string
	for _, c := range list.Runs {
		text := fmt.Sprintf("%s %s %d", c.RunID, c.State, c.Seq)
		if c.Used != nil {
			text += fmt.Sprintf(" %d", c.Used.Tokens)
		}
		told = append(told, text)
	}
	for _, c := range list.Threads {
		told = append(told, fmt.Sprintf("%s %s %d %s", c.ThreadID, c.State, c.Seq, c.Role))
	}
	return b.do(ns, fmt.Sprintf("changes %s: %s", ns, strings.Join(told, ", ")))
}

func (b *fakeRegistry) Spent(_ context.Context, _, runID string) (*outbox.Used, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits == runID {
		return nil, outbox.ErrLater
	}
	return &outbox.Used{Tokens: 7}, nil
}

func (b *fakeRegistry) Learn(_ context.Context, ns string, l outbox.Learned) error {
	return b.do(ns, fmt.Sprintf("learned %s %s %s %d", ns, l.RunID, l.Workflow, len(l.Learnings)))
}

func (b *fakeRegistry) RecordUsage(_ context.Context, ns string, es []outbox.Entry) ([]*int64, error) {
	b.mu.Lock()
	b.calls++
	for _, e := range es {
		if err := b.never[e.Node]; err != nil {
			b.mu.Unlock()
			return nil, err
		}
	}
	b.mu.Unlock()
	if err := b.do(ns, fmt.Sprintf("usage %s %s %d", ns, es[0].RunID, len(es))); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		b.entries = map[string]int{}
	}
	costs := make([]*int64, len(es))
	for i, e := range es {
		b.entries[fmt.Sprintf("%s/%s/%d", e.RunID, e.Node, e.Call)]++
		if e.Model != "" {
			c := e.InputTokens * 5
			costs[i] = &c
		}
	}
	return costs, nil
}

type world struct {
	j        journal.Journal
	me       journal.Owner
	registry *fakeRegistry
	d        *outbox.Deliverer

	reader *sdkmetric.ManualReader
}

// refused is what the registry refused for good, by kind.
func (w *world) refused(t *testing.T) map[string]int64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(t, w.reader.Collect(t.Context(), &got))
	out := map[string]int64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.Equal(t, "epigraph.outbox.refused", m.Name)
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				kind, _ := p.Attributes.Value("kind")
				out[kind.AsString()] = p.Value
			}
		}
	}
	return out
}

func open(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Options{})
	require.NoError(t, err)
	_, err = s.Migrations().Up(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &world{j: s, registry: &fakeRegistry{}}
	w.me, err = s.Register(t.Context(), "me", "")
	require.NoError(t, err)
	w.reader = sdkmetric.NewManualReader()
	w.d, err = outbox.New(s, w.registry, outbox.Options{Logger: testkit.Logger(t), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))})
	require.NoError(t, err)
	return w
}

// run records a run with a confirm, a usage item of two calls for each node ("a" and "b" if none is named),
// and a settle.
func (w *world) run(t *testing.T, id string, nodes ...string) {
	t.Helper()
	w.runOf(t, "acme", id, nodes...)
}

func (w *world) runOf(t *testing.T, namespace, id string, nodes ...string) {
	t.Helper()
	now := dbkit.Now()
	if nodes == nil {
		nodes = []string{"a", "b"}
	}
	items := []journal.Out{item(t, outbox.Confirm{TaskID: "tk", RunID: id, Start: now})}
	for _, node := range nodes {
		items = append(items, item(t, outbox.Usage{Entries: []outbox.Entry{
			{RunID: id, Node: node, Visit: 1, Attempt: 1, Model: "m", InputTokens: 3, Time: now},
			{RunID: id, Node: node, Visit: 1, Attempt: 1, Call: 1, Tool: true, Time: now}}}))
	}
	w.start(t, namespace, id, append(items, item(t, outbox.Settle{TaskID: "tk", RunID: id, Outcome: outbox.Completed, End: now}))...)
}

// attempt records a run with one usage item, of one call of each node.
func (w *world) attempt(t *testing.T, id string, nodes ...string) {
	t.Helper()
	var u outbox.Usage
	for i, node := range nodes {
		u.Entries = append(u.Entries, outbox.Entry{RunID: id, Node: node, Visit: 1, Attempt: 1, Call: i, Model: "m", InputTokens: 3, Time: dbkit.Now()})
	}
	w.start(t, "acme", id, item(t, u))
}

func item(t *testing.T, v interface{ Out() (journal.Out, error) }) journal.Out {
	t.Helper()
	o, err := v.Out()
	require.NoError(t, err)
	return o
}

func (w *world) start(t *testing.T, namespace, id string, items ...journal.Out) {
	t.Helper()
	now := dbkit.Now()
	res, err := w.j.Commit(t.Context(), w.me, []journal.Write{{Start: &journal.Start{
		Append: journal.Append{Graph: []byte("{}"), Events: []journal.Event{{Time: now, Kind: 10, Data: []byte("{}")}}, Outbox: items}, Run: journal.Run{ID: id, Namespace: namespace, GraphHash: "h", CreateTime: now, Status: journal.Status{State: journal.StateRunning, UpdateTime: now}},
	}}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
}

func (w *world) backlog(t *testing.T) int64 {
	t.Helper()
	n, err := w.j.OutboxBacklog(t.Context())
	require.NoError(t, err)
	return n
}

func TestDeliver(t *testing.T) {
	t.Run("Order/IsKeptPerRun", func(t *testing.T) {
		w := open(t)
		w.run(t, "run_1")
		n, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, []string{"confirm acme run_1", "usage acme run_1 4", "settle acme run_1 COMPLETED"}, w.registry.said())
		require.Zero(t, w.backlog(t))
		row, err := w.j.Get(t.Context(), "acme", "run_1")
		require.NoError(t, err)
		require.Equal(t, int64(30), row.CostNanoUSD)
		require.Equal(t, int64(2), row.UnpricedCalls)
	})
	change := func(id string, state outbox.RunState, seq int64, used bool) outbox.RunChange {
		c := outbox.RunChange{RunID: id, State: state, Seq: seq}
		if used {
			c.Used = &outbox.Used{}
		}
		return c
	}
	t.Run("Changes/OfManyRunsAreToldAtOnce", func(t *testing.T) {
		w := open(t)
		w.start(t, "acme", "run_1", item(t, change("run_1", outbox.Started, 1, false)), item(t, change("run_1", outbox.Ended, 3, true)))
		w.start(t, "acme", "run_2", item(t, change("run_2", outbox.Started, 1, false)), item(t, outbox.Confirm{TaskID: "tk", RunID: "run_2"}), item(t, change("run_2", outbox.Paused, 4, false)))
		w.start(t, "other", "run_3", item(t, change("run_3", outbox.Started, 1, false)))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{
			"changes acme: run_1 STARTED 1, run_1 ENDED 3 0, run_2 STARTED 1", "confirm acme run_2", "changes acme: run_2 PAUSED 4",
			"changes other: run_3 STARTED 1",
		}, w.registry.said())
		require.Zero(t, w.backlog(t))
	})
	t.Run("Changes/OfThreadsAreToldWithThoseOfRuns", func(t *testing.T) {
		w := open(t)
		made := func(id string, messages int) journal.Out {
			told := thread.Told{ID: id, Made: &thread.Thread{ID: id}}
			for i := range messages {
				told.Said = append(told.Said, thread.Said{Seq: int64(i + 1), Role: "user"})
			}
			return outbox.OfThread(told)
		}
		w.start(t, "acme", "run_1", item(t, change("run_1", outbox.Started, 1, false)))
		w.start(t, "acme", "thr_1", made("thr_1", 2))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"changes acme: run_1 STARTED 1, thr_1 CREATED 0 , thr_1 MESSAGE 1 user, thr_1 MESSAGE 2 user"}, w.registry.said())
		for i := range 4 {
			id := fmt.Sprint("thr_large_", i)
			w.start(t, "acme", id, made(id, 300))
		}
		_, err = w.d.Once(t.Context())
		require.NoError(t, err)
		calls := w.registry.said()[1:]
		require.Len(t, calls, 4, "a call has a bound")
		for i, call := range calls {
			require.Contains(t, call, fmt.Sprintf("thr_large_%d MESSAGE 300 user", i))
		}
		require.Zero(t, w.backlog(t))
	})
	t.Run("Changes/AnEndWaitsForTheUsageAndHoldsUpNoOther", func(t *testing.T) {
		w := open(t)
		w.registry.waits = "run_1"
		w.start(t, "acme", "run_1", item(t, change("run_1", outbox.Started, 1, false)), item(t, change("run_1", outbox.Ended, 3, false)))
		w.start(t, "acme", "run_2", item(t, change("run_2", outbox.Started, 1, false)), item(t, change("run_2", outbox.Ended, 2, false)))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"changes acme: run_1 STARTED 1, run_2 STARTED 1", "changes acme: run_2 ENDED 2 7"}, w.registry.said())
		require.Equal(t, int64(1), w.backlog(t))
	})
	t.Run("Changes/OneThatIsRefusedForGoodHoldsUpNoOther", func(t *testing.T) {
		w := open(t)
		w.registry.neverChange = "run_1"
		w.start(t, "acme", "run_1", item(t, change("run_1", outbox.Started, 1, false)))
		w.start(t, "acme", "run_2", item(t, change("run_2", outbox.Started, 1, false)))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"changes acme: run_2 STARTED 1"}, w.registry.said())
		require.Zero(t, w.backlog(t))
		require.Equal(t, map[string]int64{outbox.KindRun: 1}, w.refused(t))
	})
	t.Run("Changes/OfEarlierVersionsAreTold", func(t *testing.T) {
		w := open(t)
		w.start(t, "acme", "run_1", journal.Out{Kind: "PAUSED", Body: []byte(`{"run_id": "run_1", "workflow": "w@1", "seq": 4, "reason": "WHY"}`)},
			journal.Out{Kind: "PAUSED", Body: []byte(`{"run_id": "run_1", "workflow": "w@1", "seq": 5, "resumed": true}`)},
			journal.Out{Kind: "ENDED", Body: []byte(`{"run_id": "run_1", "workflow": "w@1", "outcome": "FAILED"}`)})
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"changes acme: run_1 PAUSED 4, run_1 RESUMED 5", "changes acme: run_1 ENDED 1 7"}, w.registry.said())
	})
	t.Run("Refused/ForGoodIsDropped", func(t *testing.T) {
		w := open(t)
		w.run(t, "run_1")
		w.registry.refuse(errs.New(errs.FailedPrecondition, "CLAIM_LOST", "somebody else has it"))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(3), w.backlog(t), "only the confirm may be dropped, money is kept")
		require.Equal(t, map[string]int64{outbox.KindConfirm: 1}, w.refused(t))
	})
	t.Run("Refused/UsageIsLeftOutAndTheRestGoesOn", func(t *testing.T) {
		for _, kind := range []errs.Kind{errs.InvalidArgument, errs.NotFound, errs.AlreadyExists} {
			t.Run(kind.String(), func(t *testing.T) {
				w := open(t)
				w.run(t, "run_1", "a", "bad", "b")
				w.registry.never = map[string]error{"bad": errs.New(kind, "NEVER", "no such call can be booked")}
				_, err := w.d.Once(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{"confirm acme run_1", "usage acme run_1 2", "usage acme run_1 2", "settle acme run_1 COMPLETED"}, w.registry.said())
				require.Zero(t, w.backlog(t), "nothing is tried for ever")
				row, err := w.j.Get(t.Context(), "acme", "run_1")
				require.NoError(t, err)
				require.Equal(t, int64(30), row.CostNanoUSD)
				require.Equal(t, int64(4), row.UnpricedCalls, "two tools, and two calls that are not booked")
				require.Equal(t, map[string]int64{outbox.KindUsage: 2}, w.refused(t))
			})
		}
	})
	t.Run("Refused/OneCallOfAnAttemptIsLeftOutAlone", func(t *testing.T) {
		w := open(t)
		nodes := make([]string, 2500)
		for i := range nodes {
			nodes[i] = "good"
		}
		nodes[1234] = "bad"
		w.registry.never = map[string]error{"bad": errs.New(errs.InvalidArgument, "NEVER", "no such call can be booked")}
		w.attempt(t, "run_1", nodes...)
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, w.backlog(t))
		row, err := w.j.Get(t.Context(), "acme", "run_1")
		require.NoError(t, err)
		require.Equal(t, int64(2499*15), row.CostNanoUSD)
		require.Equal(t, int64(1), row.UnpricedCalls)
		require.Equal(t, map[string]int64{outbox.KindUsage: 1}, w.refused(t))
	})
	t.Run("Refused/AllOfALargeAttemptTakesFewCalls", func(t *testing.T) {
		w := open(t)
		nodes := make([]string, 1000)
		for i := range nodes {
			nodes[i] = "bad"
		}
		w.registry.never = map[string]error{"bad": errs.New(errs.InvalidArgument, "NEVER", "no such call can be booked")}
		w.attempt(t, "run_1", nodes...)
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, w.backlog(t))
		require.Less(t, w.registry.calls, 100)
		require.Equal(t, map[string]int64{outbox.KindUsage: 1000}, w.refused(t))
	})
	t.Run("Nothing/IsDelivered", func(t *testing.T) {
		w := open(t)
		w.attempt(t, "run_1")
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, w.backlog(t))
		require.Zero(t, w.registry.calls, "no call asks to book nothing")
	})
	t.Run("Refused/UsageIsKeptWhileTheStateMayChange", func(t *testing.T) {
		for _, kind := range []errs.Kind{errs.Internal, errs.Unavailable, errs.ResourceExhausted, errs.FailedPrecondition, errs.PermissionDenied, errs.Unauthenticated, errs.Conflict} {
			t.Run(kind.String(), func(t *testing.T) {
				w := open(t)
				w.run(t, "run_1")
				w.registry.never = map[string]error{"b": errs.New(kind, "LATER", "not now")}
				_, err := w.d.Once(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{"confirm acme run_1"}, w.registry.said())
				require.Equal(t, int64(3), w.backlog(t))
				require.Empty(t, w.refused(t))
			})
		}
	})
	t.Run("Down/KeepsEverythingAndTheOthersWait", func(t *testing.T) {
		w := open(t)
		for i := range 20 {
			w.run(t, fmt.Sprintf("run_%02d", i))
		}
		w.registry.refuse(errs.New(errs.Unavailable, "DOWN", "down"))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(80), w.backlog(t))
	})
	t.Run("Slow/NamespaceDoesNotHoldUpOthers", func(t *testing.T) {
		w := open(t)
		var err error
		w.d, err = outbox.New(w.j, w.registry, outbox.Options{Logger: testkit.Logger(t), Parallel: 1})
		require.NoError(t, err)
		w.registry.failOf = map[string]error{"slow": errs.New(errs.DeadlineExceeded, "DEADLINE_EXCEEDED", "it waits behind calls of its own")}
		w.runOf(t, "slow", "run_1")
		w.runOf(t, "slow", "run_2")
		w.runOf(t, "acme", "run_3")
		_, err = w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"confirm acme run_3", "usage acme run_3 4", "settle acme run_3 COMPLETED"}, w.registry.said())
		require.EqualValues(t, 8, w.backlog(t))
		_, away := w.d.Acknowledged()
		require.False(t, away, "the registry answers others")
		w.runOf(t, "slow", "run_4")
		w.runOf(t, "acme", "run_5")
		_, err = w.d.Once(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, w.registry.failed.Load(), "nobody waits for it a second time so soon")
		require.Len(t, w.registry.said(), 6)
	})
	t.Run("Broken/ItemDoesNotStopOtherRuns", func(t *testing.T) {
		w := open(t)
		w.start(t, "acme", "run_0", journal.Out{Kind: "NONSENSE", Body: []byte("x")}, journal.Out{Kind: outbox.KindUsage, Body: []byte("x")})
		w.run(t, "run_1")
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), w.backlog(t))
		require.Len(t, w.registry.said(), 3)
	})
	t.Run("Broken/ItemDoesNotStopThoseBeforeIt", func(t *testing.T) {
		w := open(t)
		w.start(t, "acme", "run_0", item(t, outbox.Usage{Entries: []outbox.Entry{{RunID: "run_0", Node: "a", Model: "m", InputTokens: 3}}}),
			journal.Out{Kind: outbox.KindUsage, Body: []byte("x")})
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"usage acme run_0 1"}, w.registry.said())
		require.Equal(t, int64(1), w.backlog(t))
	})
}

func TestRun(t *testing.T) {
	t.Run("Down/IsRetriedForEver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := open(t)
			w.registry.refuse(errs.New(errs.Unavailable, "DOWN", "down"))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.d.Run(ctx) }()
			w.run(t, "run_1")
			w.d.Wake(true)
			time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
			require.Equal(t, int64(4), w.backlog(t))
			w.registry.refuse(nil)
			// The store's own clock decides when a retry is due, and that one is real.
			testkit.Within(t, 10*time.Hour, 100*time.Millisecond, func() bool {
				w.d.Wake(true)
				return w.backlog(t) == 0
			})
			w.registry.mu.Lock()
			for key, n := range w.registry.entries {
				require.Equal(t, 1, n, key)
			}
			w.registry.mu.Unlock()
			cancel()
			require.NoError(t, <-done)
		})
	})
	t.Run("Wake/WhatIsNotUrgentWaitsForMore", func(t *testing.T) {
		for name, c := range map[string]struct {
			wakes []bool // whether each is urgent, ten milliseconds after the one before
			want  []time.Duration
		}{
			"Soon":          {[]bool{false}, []time.Duration{0, 100 * time.Millisecond}},
			"Several":       {[]bool{false, false, false}, []time.Duration{0, 100 * time.Millisecond}},
			"Urgent":        {[]bool{true}, []time.Duration{0, 0}},
			"UrgentBetween": {[]bool{false, true}, []time.Duration{0, 10 * time.Millisecond}},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					box := &looks{begin: time.Now()}
					d, err := outbox.New(box, &fakeRegistry{}, outbox.Options{})
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					done := make(chan error, 1)
					go func() { done <- d.Run(ctx) }()
					synctest.Wait()
					for _, urgent := range c.wakes {
						d.Wake(urgent)
						time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
					}
					require.NoError(t, <-done)
					require.Equal(t, c.want, box.at)
				})
			})
		}
	})
	t.Run("Stop/WhileTheStoreIsBroken", func(t *testing.T) {
		d, err := outbox.New(broken{}, &fakeRegistry{}, outbox.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.NoError(t, d.Run(ctx))
	})
}

// looks is an empty outbox that notes when it was looked at.
type looks struct {
	journal.Outbox

	begin time.Time
	at    []time.Duration
}

func (l *looks) ClaimOutbox(context.Context, int, time.Duration) ([]journal.OutboxItem, error) {
	l.at = append(l.at, time.Since(l.begin))
	return nil, nil
}

// broken is an outbox that cannot be read.
type broken struct{ journal.Outbox }

func (broken) ClaimOutbox(context.Context, int, time.Duration) ([]journal.OutboxItem, error) {
	return nil, errors.New("no database")
}
