package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// watchedReads is a journal that signals its reads, and counts events that readers get.
type watchedReads struct {
	journal.Journal
	whole, heads atomic.Int32
	most         atomic.Int64 // bytes of the largest page of events
	full         atomic.Int32 // pages for which there is no room yet
}

func (r *watchedReads) Get(ctx context.Context, namespace, id string) (journal.Run, error) {
	r.whole.Add(1)
	return r.Journal.Get(ctx, namespace, id)
}

func (r *watchedReads) Head(ctx context.Context, namespace, id string) (journal.Run, error) {
	r.heads.Add(1)
	return r.Journal.Head(ctx, namespace, id)
}

func (r *watchedReads) Events(ctx context.Context, namespace, id string, after int64, limit int) ([]journal.Event, error) {
	if r.full.Add(-1) >= 0 {
		return nil, errs.New(errs.ResourceExhausted, inflight.ReasonBusy, "no room")
	}
	evs, err := r.Journal.Events(ctx, namespace, id, after, limit)
	n := int64(0)
	for i := range evs {
		n += int64(len(evs[i].Data))
		if err := inflight.Read(ctx, int64(len(evs[i].Data))); err != nil {
			return nil, err
		}
	}
	r.most.Store(max(r.most.Load(), n))
	return evs, err
}

// unreading takes the first event when it is told to.
type unreading struct {
	notebook
	began, next chan struct{}
}

func (s *unreading) Event(ev feed.Event) error {
	if ev.Durable != nil && ev.Durable.Seq == 1 {
		close(s.began)
		<-s.next
	}
	return s.notebook.Event(ev)
}

// TestWatchMemory bounds the memory of a watch of a run with large values.
func TestWatchMemory(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		j := &watchedReads{}
		value := strings.Repeat("x", 20_000)
		l := run(t, s, actors{"big": outcome(func(*workgraph.Call) workgraph.Outcome { return text(value) })}, func(c *engine.Config, d *engine.Deps) {
			c.MaxWatches = 1
			j.Journal, d.Journal = d.Journal, j
		})
		id := l.start(t, chain(100, "big"))
		last := l.wait(t, id, journal.StateCompleted).LastSeq
		req := feed.WatchRequest{Namespace: ns, RunID: id}
		budget := inflight.New(64 << 20)
		// watch begins a watch that is not read, and returns how it ends.
		watch := func(t *testing.T) (*unreading, <-chan error) {
			t.Helper()
			held := budget.Answer(ns)
			t.Cleanup(held.Free)
			w, done := &unreading{began: make(chan struct{}), next: make(chan struct{})}, make(chan error, 1)
			ctx := held.Stream(t.Context())
			go func() { done <- l.Feed().Watch(ctx, req, w) }()
			<-w.began
			return w, done
		}
		t.Run("ValuesOfTheRunAreNotRead", func(t *testing.T) {
			before := j.whole.Load()
			require.NoError(t, l.Feed().Watch(t.Context(), req, &notebook{}))
			require.Equal(t, before, j.whole.Load())
		})
		t.Run("UnreadHoldsFewEvents", func(t *testing.T) {
			w, done := watch(t)
			require.Positive(t, budget.Used())
			require.LessOrEqual(t, budget.Used(), int64(512<<10))
			close(w.next)
			require.NoError(t, <-done)
			require.Len(t, w.seqs, int(last))
			require.LessOrEqual(t, j.most.Load(), int64(512<<10))
			require.Zero(t, budget.Used())
		})
		t.Run("NoRoom/HoldsNothingWhileItWaits", func(t *testing.T) {
			j.full.Store(5)
			w, done := watch(t)
			close(w.next)
			require.NoError(t, <-done)
			require.Len(t, w.seqs, int(last))
		})
		t.Run("OneTooMany/ReadsTheRowOnly", func(t *testing.T) {
			w, done := watch(t)
			whole, heads := j.whole.Load(), j.heads.Load()
			refused := req
			refused.Begun = func() { t.Error("a watch that is refused does not begin") }
			err := l.Feed().Watch(t.Context(), refused, &notebook{})
			require.Equal(t, feed.ReasonTooManyWatches, errs.ReasonOf(err), "got %v", err)
			require.Equal(t, []int32{whole, heads + 1}, []int32{j.whole.Load(), j.heads.Load()})
			refused.RunID = "run_none"
			err = l.Feed().Watch(t.Context(), refused, &notebook{})
			require.Equal(t, errs.NotFound, errs.From(err).Kind, "a run that does not exist is told at the limit, too: %v", err)
			close(w.next)
			require.NoError(t, <-done)
		})
	})
}

// TestWatchCursor begins watches at a sequence that their run has not reached.
func TestWatchCursor(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		l := run(t, s, payments(&recorder{}))
		goesOn := l.start(t, flow(does("ask", "asks"), does("pay", "does")))
		l.question(t, goesOn)
		ended := l.start(t, flow(does("pay", "does")))
		l.wait(t, ended, journal.StateCompleted)
		pending := l.start(t, flow(does("pay", "does")), func(r *command.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
		for name, id := range map[string]string{"GoesOn": goesOn, "Ended": ended, "Pending": pending} {
			t.Run(name+"/BeyondTheEndIsRefused", func(t *testing.T) {
				err := l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id, After: 999}, &notebook{})
				require.Equal(t, feed.ReasonSeqNotReached, errs.ReasonOf(err), "got %v", err)
			})
		}
		t.Run("Ended/AtTheEndThereIsNothing", func(t *testing.T) {
			w := &notebook{}
			require.NoError(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: ended, After: l.row(t, ended).LastSeq}, w))
			require.Empty(t, w.seqs)
		})
	})
}
