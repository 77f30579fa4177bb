package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// unwanted hands out each run to cancel once, and records which were acknowledged.
type unwanted struct {
	runs atomic.Pointer[[]engine.Order]
	done chan []engine.Order
}

func (u *unwanted) Lease(context.Context, int, time.Duration) ([]engine.Order, error) {
	if list := u.runs.Swap(nil); list != nil {
		return *list, nil
	}
	return nil, nil
}

func (u *unwanted) Acknowledge(ctx context.Context, done []engine.Order, _ []engine.RefusedStart) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	u.done <- done
	return nil
}

// acknowledges waits until the cancel of this run, and of no other, was acknowledged.
func (u *unwanted) acknowledges(t *testing.T, id string) {
	t.Helper()
	select {
	case done := <-u.done:
		require.Len(t, done, 1)
		require.Equal(t, id, done[0].RunID)
	case <-time.After(time.Minute):
		require.Fail(t, "nothing was acknowledged")
	}
}

// stuckQueue is a journal in which commands for one run, and for all runs of one namespace, block until
// the caller gives up.
type stuckQueue struct {
	journal.Journal
	run, namespace string
}

func (j stuckQueue) Enqueue(ctx context.Context, p journal.EnqueueRequest) (journal.Enqueued, error) {
	if p.Command.RunID == j.run || p.Command.Namespace == j.namespace {
		<-ctx.Done()
		return journal.Enqueued{}, ctx.Err()
	}
	return j.Journal.Enqueue(ctx, p)
}

// TestCancellations cancels two runs, of which one blocks for as long as it may. The other one is
// acknowledged.
func TestCancellations(t *testing.T) {
	t.Parallel()
	u, g := &unwanted{done: make(chan []engine.Order, 1)}, newGate()
	l := run(t, sqliteStore(t), actors{"gate": g}, func(_ *engine.Config, d *engine.Deps) {
		d.Orders, d.Journal = u, stuckQueue{Journal: d.Journal, run: "run_stuck"}
	})
	id := l.start(t, chain(1, "gate"))
	g.next(t)
	u.runs.Store(&[]engine.Order{{Namespace: ns, RunID: "run_stuck", Confirmed: true}, {Namespace: ns, RunID: id, Confirmed: true}})
	l.wait(t, id, journal.StateCanceled)
	u.acknowledges(t, id)
}

// heldQueue is a journal in which commands for one run block until it is released.
type heldQueue struct {
	journal.Journal
	run        string
	came, goOn chan struct{}
}

func (j heldQueue) Enqueue(ctx context.Context, p journal.EnqueueRequest) (journal.Enqueued, error) {
	if p.Command.RunID == j.run {
		close(j.came)
		<-j.goOn
	}
	return j.Journal.Enqueue(ctx, p)
}

// TestCancellationsBesideASlowOne blocks the cancel of one run for the whole test. Those of the same
// batch and of the next are canceled and acknowledged meanwhile.
func TestCancellationsBesideASlowOne(t *testing.T) {
	t.Parallel()
	u, g := &unwanted{done: make(chan []engine.Order, 2)}, newGate()
	slow := heldQueue{run: "run_slow", came: make(chan struct{}), goOn: make(chan struct{})}
	l := run(t, sqliteStore(t), actors{"gate": g}, func(_ *engine.Config, d *engine.Deps) {
		slow.Journal = d.Journal
		d.Orders, d.Journal = u, slow
	})
	defer close(slow.goOn)
	beside, next := l.start(t, chain(1, "gate")), l.start(t, chain(1, "gate"))
	g.next(t)
	g.next(t)
	u.runs.Store(&[]engine.Order{{Namespace: ns, RunID: slow.run, Confirmed: true}, {Namespace: ns, RunID: beside, Confirmed: true}})
	<-slow.came
	t.Run("SameBatch/IsAcknowledged", func(t *testing.T) {
		u.acknowledges(t, beside)
		l.wait(t, beside, journal.StateCanceled)
	})
	t.Run("NextBatch/IsTaken", func(t *testing.T) {
		u.runs.Store(&[]engine.Order{{Namespace: ns, RunID: slow.run, Confirmed: true}, {Namespace: ns, RunID: next, Confirmed: true}})
		u.acknowledges(t, next)
		l.wait(t, next, journal.StateCanceled)
	})
}

// TestCancellationsOfANamespaceHoldUpNoOther blocks the cancels of all runs of one namespace. The run
// of another namespace is canceled.
func TestCancellationsOfANamespaceHoldUpNoOther(t *testing.T) {
	t.Parallel()
	u, g := &unwanted{done: make(chan []engine.Order, 1)}, newGate()
	l := run(t, sqliteStore(t), actors{"gate": g}, func(_ *engine.Config, d *engine.Deps) {
		d.Orders, d.Journal = u, stuckQueue{Journal: d.Journal, namespace: "slow"}
	})
	id := l.start(t, chain(1, "gate"))
	g.next(t)
	var list []engine.Order
	for i := range 20 {
		list = append(list, engine.Order{Namespace: "slow", RunID: fmt.Sprintf("run_%d", i), Confirmed: true})
	}
	list = append(list, engine.Order{Namespace: ns, RunID: id, Confirmed: true})
	u.runs.Store(&list)
	u.acknowledges(t, id)
	l.wait(t, id, journal.StateCanceled)
}
