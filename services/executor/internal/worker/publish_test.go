package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

// scribe is a journal that may fail.
type scribe struct {
	*sqlite.Store
	// fault says why a change is not taken; late, that it was taken all the same.
	fault func(journal.WorkerSync) error
	late  bool
	calls []journal.WorkerSync
}

func (s *scribe) SyncWorkers(ctx context.Context, self journal.Owner, c journal.WorkerSync) error {
	s.calls = append(s.calls, c)
	if s.fault != nil {
		if err := s.fault(c); err != nil {
			if s.late {
				return errors.Join(err, s.Store.SyncWorkers(ctx, self, c))
			}
			return err
		}
	}
	return s.Store.SyncWorkers(ctx, self, c)
}

// refuses is a fault of whatever has a row of the namespace.
func refuses(namespace string) func(journal.WorkerSync) error {
	return func(c journal.WorkerSync) error {
		if slices.ContainsFunc(c.Put, func(w journal.Worker) bool { return w.Namespace == namespace }) ||
			slices.ContainsFunc(c.Drop, func(d journal.WorkerID) bool { return d.Namespace == namespace }) ||
			slices.ContainsFunc(c.Routes, func(r journal.NamedRoute) bool { return r.Namespace == namespace }) {
			return errors.New("a row is not taken")
		}
		return nil
	}
}

type publishWorld struct {
	t         *testing.T
	j         *scribe
	me        journal.Owner
	publisher *publisher
	now       time.Time
	workers   []journal.Worker
}

func newPublishWorld(t *testing.T) *publishWorld {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Migrations().Up(t.Context())
	require.NoError(t, err)
	w := &publishWorld{t: t, j: &scribe{Store: s}, now: time.Now()}
	w.publisher = &publisher{journal: w.j, log: testkit.Logger(t)}
	w.register()
	return w
}

func (w *publishWorld) register() {
	w.t.Helper()
	var err error
	w.me, err = w.j.Register(w.t.Context(), "me", "addr")
	require.NoError(w.t, err)
}

// add connects a worker that serves one actor of its own name.
func (w *publishWorld) add(namespace, id string) {
	w.workers = append(w.workers, journal.Worker{Namespace: namespace, ID: id, ExecutorID: "me", Actors: []string{id}, Slots: 1, ConnectTime: dbkit.Now()})
}

func (w *publishWorld) round() (more bool, err error) {
	routes := map[name]journal.NamedRoute{}
	for _, x := range w.workers {
		routes[name{x.Namespace, x.Actors[0]}] = journal.NamedRoute{Namespace: x.Namespace, Actor: x.Actors[0], Slots: x.Slots, Busy: x.Busy}
	}
	return w.publisher.publish(w.t.Context(), w.me, w.now, w.workers, routes)
}

// publish carries out rounds until nothing is left.
func (w *publishWorld) publish() {
	w.t.Helper()
	for {
		more, err := w.round()
		require.NoError(w.t, err)
		if !more {
			return
		}
	}
}

// seen are the workers of a namespace that others see, with the slots that their actors have.
func (w *publishWorld) seen(namespace string) (out []string) {
	w.t.Helper()
	list, err := w.j.Workers(w.t.Context(), namespace, time.Hour)
	require.NoError(w.t, err)
	for _, x := range list {
		routes, err := w.j.Routes(w.t.Context(), namespace, x.Actors[0], time.Hour)
		require.NoError(w.t, err)
		require.Len(w.t, routes, 1, x.ID)
		out = append(out, fmt.Sprintf("%s %d/%d", x.ID, routes[0].Busy, routes[0].Slots))
	}
	return out
}

func TestPublish(t *testing.T) {
	t.Run("News/AreToldOnce", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns", "a")
		w.add("ns", "b")
		w.publish()
		require.Equal(t, []string{"a 0/1", "b 0/1"}, w.seen("ns"))
		before := len(w.j.calls)
		w.publish()
		require.Len(t, w.j.calls, before)
		w.workers[0].Busy = 1
		w.publish()
		require.Len(t, w.j.calls, before+1)
		require.Len(t, w.j.calls[before].Put, 1)
		require.Equal(t, []string{"a 1/1", "b 0/1"}, w.seen("ns"))
		w.workers = w.workers[:1]
		w.publish()
		require.Equal(t, []string{"a 1/1"}, w.seen("ns"))
	})
	t.Run("News/OfManySmallNamespacesGoTogether", func(t *testing.T) {
		w := newPublishWorld(t)
		for i := range 100 {
			w.add(fmt.Sprint("ns", i), "a")
		}
		w.publish()
		require.Len(t, w.j.calls, 2, "one that clears, one that tells")
	})
	t.Run("Fault/OfOneNamespaceHidesNoOther", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns1", "a")
		w.add("bad", "b")
		w.add("ns2", "c")
		w.j.fault = refuses("bad")
		w.publish()
		require.Equal(t, []string{"a 0/1"}, w.seen("ns1"))
		require.Equal(t, []string{"c 0/1"}, w.seen("ns2"))
		require.Empty(t, w.seen("bad"))
		before := len(w.j.calls)
		w.publish()
		require.Len(t, w.j.calls, before, "it is left alone for a while")
		w.j.fault = nil
		w.now = w.now.Add(syncRest)
		w.publish()
		require.Equal(t, []string{"b 0/1"}, w.seen("bad"))
	})
	t.Run("Fault/AfterTheCommitLeavesNothingBehind", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns", "stays")
		w.add("ns", "goes")
		w.j.fault, w.j.late = refuses("ns"), true
		w.publish()
		w.j.fault = nil
		w.workers = w.workers[:1]
		w.now = w.now.Add(syncRest)
		w.publish()
		require.Equal(t, []string{"stays 0/1"}, w.seen("ns"))
		gone, err := w.j.Routes(t.Context(), "ns", "goes", time.Hour)
		require.NoError(t, err)
		require.Empty(t, gone)
	})
	t.Run("Fault/OfTheJournalIsOfNoNamespace", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns1", "a")
		w.publish()
		w.workers = nil
		w.add("ns1", "b")
		w.add("ns2", "c")
		w.j.fault = func(journal.WorkerSync) error {
			return errs.New(errs.Unavailable, dbkit.ReasonUnreachable, "it is away")
		}
		before := len(w.j.calls)
		_, err := w.round()
		require.True(t, errs.Is(err, errs.Unavailable), "got %v", err)
		require.Len(t, w.j.calls, before+1, "nobody else is tried")
		w.j.fault = nil
		w.publish()
		require.Equal(t, []string{"b 0/1"}, w.seen("ns1"))
		require.Equal(t, []string{"c 0/1"}, w.seen("ns2"))
	})
	t.Run("Large/NamespaceHoldsUpNoOther", func(t *testing.T) {
		w := newPublishWorld(t)
		const many = 2500
		for i := range many {
			w.add("large", fmt.Sprintf("w%04d", i))
		}
		w.add("small", "a")
		more, err := w.round()
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, []string{"a 0/1"}, w.seen("small"))
		w.publish()
		for _, c := range w.j.calls {
			require.LessOrEqual(t, (len(c.Put)+len(c.Drop)+len(c.Routes))*rowBytes, syncBytes)
		}
		list, err := w.j.Workers(t.Context(), "large", time.Hour)
		require.NoError(t, err)
		require.Len(t, list, many)
		w.workers = w.workers[many:]
		w.publish()
		require.Empty(t, w.seen("large"))
		require.Equal(t, []string{"a 0/1"}, w.seen("small"))
	})
	t.Run("Life/BeginsWithNothingOfTheLast", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns", "a")
		w.add("gone", "b")
		w.publish()
		old := w.me
		w.register()
		require.NotEqual(t, old, w.me)
		w.workers = w.workers[:1]
		w.publish()
		require.Equal(t, []string{"a 0/1"}, w.seen("ns"))
		require.Empty(t, w.seen("gone"))
	})
	t.Run("Life/ThatEndedTellsNothing", func(t *testing.T) {
		w := newPublishWorld(t)
		w.add("ns1", "a")
		w.publish()
		old := w.me
		w.register()
		w.me = old
		w.add("ns1", "b")
		w.add("ns2", "c")
		before := len(w.j.calls)
		_, err := w.round()
		require.Equal(t, journal.ReasonFenced, errs.ReasonOf(err), "got %v", err)
		require.Len(t, w.j.calls, before+1)
	})
}

func TestFaultyNamespaceDelaysNoOther(t *testing.T) {
	w := newPublishWorld(t)
	w.j.fault = refuses("bad")
	s := New(DefaultConfig(), Deps{Journal: w.j, Logger: testkit.Logger(t)})
	s.Own(func() journal.Owner { return w.me }, nil)
	for _, namespace := range []string{"bad", "ns"} {
		sess := newSession(s.pool, 1, map[string]int{"a": 0})
		sess.namespace, sess.id, sess.names, sess.connected = namespace, "a", []string{"a"}, dbkit.Now()
		require.NoError(t, s.enlist(sess))
		s.pool.add(sess)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.publishWorkers(ctx)
	}()
	s.touch()
	testkit.Eventually(t, func() bool { return slices.Equal(w.seen("ns"), []string{"a 0/1"}) })
	require.Empty(t, w.seen("bad"))
	cancel()
	<-done
}
