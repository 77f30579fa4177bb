package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

var errCut = errors.New("the line is cut")

// line is a journal whose connection to the database can be cut.
type line struct {
	journal.Journal
	cut atomic.Bool
	// late counts down delayed heartbeats, which ignore their context: the last but one fails, the last
	// arrives.
	late atomic.Int32
}

func (l *line) Register(ctx context.Context, id, addr string) (journal.Owner, error) {
	if l.cut.Load() {
		return journal.Owner{}, errCut
	}
	return l.Journal.Register(ctx, id, addr)
}

func (l *line) Heartbeat(ctx context.Context, o journal.Owner) error {
	if l.cut.Load() {
		return errCut
	}
	switch l.late.Load() {
	case 2:
		defer l.late.Add(-1)
		return after(time.Second, func() error { return errCut })
	case 1:
		defer l.late.Add(-1)
		return after(900*time.Millisecond, func() error { return l.Journal.Heartbeat(context.WithoutCancel(ctx), o) })
	}
	return l.Journal.Heartbeat(ctx, o)
}

func (l *line) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if l.cut.Load() {
		return nil, errCut
	}
	return l.Journal.Commit(ctx, o, ws)
}

func (l *line) Mark(ctx context.Context, o journal.Owner, runID, doing, harmless string) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Journal.Mark(ctx, o, runID, doing, harmless)
}

func (l *line) TakeOver(ctx context.Context, o journal.Owner, opts journal.TakeOverOptions) (journal.TakeOverResult, error) {
	if l.cut.Load() {
		return journal.TakeOverResult{}, errCut
	}
	return l.Journal.TakeOver(ctx, o, opts)
}

func (l *line) Deregister(ctx context.Context, o journal.Owner) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Journal.Deregister(ctx, o)
}

func after(d time.Duration, f func() error) error {
	pause := time.NewTimer(d)
	<-pause.C
	return f()
}

func TestZombie(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		short := func(id string) option {
			return func(c *engine.Config, _ *engine.Deps) { c.ID, c.Lease = id, shortLease }
		}
		wire := &line{}
		// The first owner's actor ignores the end of its context, so that its call outlives its owner.
		deaf := newGate()
		a := run(t, s, actors{"ok": &recorder{}, "work": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return deaf.Call(context.WithoutCancel(t.Context()), c)
		})}, short("a"), func(_ *engine.Config, d *engine.Deps) {
			wire.Journal = d.Journal
			d.Journal = wire
		})
		g := chain(3, "ok")
		g.Nodes[1].Actor = "work"
		id := a.start(t, g)
		deaf.next(t)
		wire.cut.Store(true)

		second := &recorder{}
		b := run(t, s, actors{"ok": second, "work": second}, short("b"))
		row := b.wait(t, id, journal.StateCompleted)
		require.Equal(t, "b", row.Owner.ID)
		require.Zero(t, second.of("n0"), "a finished visit ran again")
		require.Equal(t, 1, second.of("n1"))

		// The first owner comes back, and its call returns at last.
		close(deaf.open)
		wire.cut.Store(false)
		testkit.Eventually(t, func() bool { return !a.Owner().IsZero() && a.Owner().Incarnation > b.Owner().Incarnation })
		require.Len(t, attemptsOf(b.events(t, id)), 3, "the zombie's outcome was written")
		other := a.start(t, chain(2, "ok"))
		a.wait(t, other, journal.StateCompleted)
	})
}

// orphaner cuts the connection when the first child is to be recorded. Its parent's commit is durable then.
type orphaner struct{ line }

func (o *orphaner) Commit(ctx context.Context, owner journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Start != nil && w.Start.Run.ParentID != "" {
			o.cut.Store(true)
		}
	}
	return o.line.Commit(ctx, owner, ws)
}

func TestCrashBeforeChildren(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		rec := &recorder{}
		a := actors{"ok": rec, "spawn": spawns(workgraph.Child{Graph: chain(1, "ok")}, workgraph.Child{Graph: chain(2, "ok")})}
		short := func(id string) option {
			return func(c *engine.Config, _ *engine.Deps) { c.ID, c.Lease = id, shortLease }
		}
		wire := &orphaner{}
		first := run(t, s, a, short("a"), func(_ *engine.Config, d *engine.Deps) {
			wire.Journal = d.Journal
			d.Journal = wire
		})
		id := first.start(t, chain(1, "spawn"))
		testkit.Eventually(t, wire.cut.Load)
		below, err := first.j.Descendants(t.Context(), ns, id)
		require.NoError(t, err)
		require.Empty(t, below)
		second := run(t, s, a, short("b"))
		second.jobs(t)
		second.wait(t, id, journal.StateCompleted)
		below, err = second.j.Descendants(t.Context(), ns, id)
		require.NoError(t, err)
		require.Len(t, below, 2)
		require.Len(t, kinds(second.events(t, id), workgraph.ChildClosed), 2)
		require.Equal(t, 2, rec.of("n0"), "each child ran once")
		wire.cut.Store(false)
	})
}

// TestLateHeartbeat lets a heartbeat arrive after half of the lease. The owner must not act for a while, then
// acts again, and nothing that came up meanwhile may be forgotten.
func TestLateHeartbeat(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		wire := &line{}
		a := run(t, s, actors{"ok": &recorder{}, "post": &recorder{}}, func(c *engine.Config, d *engine.Deps) {
			c.ID, c.Lease = "a", shortLease
			wire.Journal = d.Journal
			d.Journal = wire
		})
		g := chain(3, "ok")
		g.Nodes[1].Actor, g.Nodes[1].Effect = "post", workgraph.Unsafe
		a.wait(t, a.start(t, g), journal.StateCompleted)
		before := a.Owner()
		wire.late.Store(2)
		var ids []string
		for wire.late.Load() > 0 {
			ids = append(ids, a.start(t, g))
			require.NoError(t, after(20*time.Millisecond, func() error { return nil }))
		}
		for _, id := range ids {
			a.wait(t, id, journal.StateCompleted)
		}
		require.Equal(t, before, a.Owner(), "the ownership was lost over it, so the test shows nothing")
	})
}
