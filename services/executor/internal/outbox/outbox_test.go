package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// books is a registry whose refusals can be set.
type books struct {
	mu      sync.Mutex
	fail    error
	failOf  map[string]error // by namespace
	failed  atomic.Int64     // calls for one of those
	log     []string
	entries map[string]int
}

func (b *books) do(ns, what string) error {
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

func (b *books) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *books) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.log...)
}

func (b *books) Confirm(_ context.Context, ns string, c outbox.Confirm) error {
	return b.do(ns, fmt.Sprintf("confirm %s %s", ns, c.RunID))
}

func (b *books) Settle(_ context.Context, ns string, s outbox.Settle) error {
	return b.do(ns, fmt.Sprintf("settle %s %s %s", ns, s.RunID, s.Outcome))
}

func (b *books) RecordUsage(_ context.Context, ns string, es []outbox.Entry) ([]*int64, error) {
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
	j     journal.Journal
	me    journal.Owner
	books *books
	d     *outbox.Deliverer
}

func open(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Options{})
	require.NoError(t, err)
	_, err = s.Migrations().Up(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &world{j: s, books: &books{}}
	w.me, err = s.Register(t.Context(), "me", "")
	require.NoError(t, err)
	w.d = outbox.New(s, w.books, outbox.Options{Logger: testkit.Logger(t)})
	return w
}

// run records a run with a confirm, two usage items and a settle.
func (w *world) run(t *testing.T, id string) {
	t.Helper()
	w.runOf(t, "acme", id)
}

func (w *world) runOf(t *testing.T, namespace, id string) {
	t.Helper()
	now := dbkit.Now()
	out := func(o journal.Out, err error) journal.Out {
		require.NoError(t, err)
		return o
	}
	usage := func(node string) journal.Out {
		return out(outbox.Usage{Entries: []outbox.Entry{
			{RunID: id, Node: node, Visit: 1, Attempt: 1, Model: "m", InputTokens: 3, Time: now},
			{RunID: id, Node: node, Visit: 1, Attempt: 1, Call: 1, Tool: true, Time: now}}}.Out())
	}
	res, err := w.j.Commit(t.Context(), w.me, []journal.Write{{Start: &journal.Start{
		Graph: []byte("{}"), Events: []journal.Event{{Time: now, Kind: 10, Data: []byte("{}")}},
		Run: journal.Run{ID: id, Namespace: namespace, GraphHash: "h", CreateTime: now, Status: journal.Status{State: journal.StateRunning, UpdateTime: now}},
		Outbox: []journal.Out{out(outbox.Confirm{TaskID: "tk", RunID: id, Start: now}.Out()), usage("a"), usage("b"),
			out(outbox.Settle{TaskID: "tk", RunID: id, Outcome: outbox.Completed, End: now}.Out())},
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
		require.Equal(t, []string{"confirm acme run_1", "usage acme run_1 4", "settle acme run_1 COMPLETED"}, w.books.said())
		require.Zero(t, w.backlog(t))
		row, err := w.j.Get(t.Context(), "acme", "run_1")
		require.NoError(t, err)
		require.Equal(t, int64(30), row.CostNanoUSD)
		require.Equal(t, int64(2), row.UnpricedCalls)
	})
	t.Run("Refused/ForGoodIsDropped", func(t *testing.T) {
		w := open(t)
		w.run(t, "run_1")
		w.books.refuse(errs.New(errs.FailedPrecondition, "CLAIM_LOST", "somebody else has it"))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(3), w.backlog(t), "only the confirm may be dropped, money is kept")
	})
	t.Run("Down/KeepsEverythingAndTheOthersWait", func(t *testing.T) {
		w := open(t)
		for i := range 20 {
			w.run(t, fmt.Sprintf("run_%02d", i))
		}
		w.books.refuse(errs.New(errs.Unavailable, "DOWN", "down"))
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(80), w.backlog(t))
	})
	t.Run("Slow/NamespaceDoesNotHoldUpOthers", func(t *testing.T) {
		w := open(t)
		w.d = outbox.New(w.j, w.books, outbox.Options{Logger: testkit.Logger(t), Parallel: 1})
		w.books.failOf = map[string]error{"slow": errs.New(errs.DeadlineExceeded, "DEADLINE_EXCEEDED", "it waits behind calls of its own")}
		w.runOf(t, "slow", "run_1")
		w.runOf(t, "slow", "run_2")
		w.runOf(t, "acme", "run_3")
		_, err := w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"confirm acme run_3", "usage acme run_3 4", "settle acme run_3 COMPLETED"}, w.books.said())
		require.EqualValues(t, 8, w.backlog(t))
		_, away := w.d.Acknowledged()
		require.False(t, away, "the registry answers others")
		w.runOf(t, "slow", "run_4")
		w.runOf(t, "acme", "run_5")
		_, err = w.d.Once(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, w.books.failed.Load(), "nobody waits for it a second time so soon")
		require.Len(t, w.books.said(), 6)
	})
	t.Run("Broken/ItemDoesNotStopOtherRuns", func(t *testing.T) {
		w := open(t)
		now := dbkit.Now()
		_, err := w.j.Commit(t.Context(), w.me, []journal.Write{{Start: &journal.Start{Graph: []byte("{}"), Events: []journal.Event{{Time: now, Kind: 10, Data: []byte("{}")}},
			Run:    journal.Run{ID: "run_0", Namespace: "acme", GraphHash: "h", CreateTime: now, Status: journal.Status{State: journal.StateRunning, UpdateTime: now}},
			Outbox: []journal.Out{{Kind: "NONSENSE", Body: []byte("x")}, {Kind: outbox.KindUsage, Body: []byte("x")}}}}})
		require.NoError(t, err)
		w.run(t, "run_1")
		_, err = w.d.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), w.backlog(t))
		require.Len(t, w.books.said(), 3)
	})
}

func TestRun(t *testing.T) {
	t.Run("Down/IsRetriedForEver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := open(t)
			w.books.refuse(errs.New(errs.Unavailable, "DOWN", "down"))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.d.Run(ctx) }()
			w.run(t, "run_1")
			w.d.Wake()
			time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
			require.Equal(t, int64(4), w.backlog(t))
			w.books.refuse(nil)
			// The store's own clock decides when a retry is due, and that one is real.
			testkit.Eventually(t, func() bool {
				w.d.Wake()
				return w.backlog(t) == 0
			}, 10*time.Hour, 100*time.Millisecond)
			w.books.mu.Lock()
			for key, n := range w.books.entries {
				require.Equal(t, 1, n, key)
			}
			w.books.mu.Unlock()
			cancel()
			require.NoError(t, <-done)
		})
	})
	t.Run("Stop/WhileTheStoreIsBroken", func(t *testing.T) {
		d := outbox.New(broken{}, &books{}, outbox.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.NoError(t, d.Run(ctx))
	})
}

// broken is an outbox that cannot be read.
type broken struct{ journal.Outbox }

func (broken) ClaimOutbox(context.Context, int, time.Duration) ([]journal.OutboxItem, error) {
	return nil, errors.New("no database")
}
