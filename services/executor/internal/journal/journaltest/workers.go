package journaltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func workerCases(t *testing.T, d Driver) {
	const lease = time.Minute
	actor := func(name, effect string) journal.RemoteActor {
		return journal.RemoteActor{Name: name, Description: "does " + name, Effect: effect, Version: "1", Schema: []byte(`{"type": "object"}`), LastSeen: base}
	}
	t.Run("Actors/NewestWinsPerNamespace", func(t *testing.T) {
		w := open(t, d)
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{actor("b", "PURE"), actor("a", "UNSAFE")}, lease, 10))
		require.NoError(t, w.j.PutActors(t.Context(), w.me, "other", []journal.RemoteActor{actor("c", "PURE")}, lease, 10))
		newer := actor("a", "PURE")
		newer.Version, newer.Schema = "2", nil
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{newer}, lease, 10))
		got, err := w.j.RemoteActors(t.Context(), ns, nil)
		require.NoError(t, err)
		require.Equal(t, []journal.RemoteActor{newer, actor("b", "PURE")}, got)
		got, err = w.j.RemoteActors(t.Context(), ns, []string{"b", "c"})
		require.NoError(t, err)
		require.Equal(t, []journal.RemoteActor{actor("b", "PURE")}, got)
		got, err = w.j.RemoteActors(t.Context(), ns, []string{})
		require.NoError(t, err)
		require.Empty(t, got)
	})
	t.Run("Actors/AreBounded", func(t *testing.T) {
		w := open(t, d)
		long := actor("forgotten", "PURE")
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{actor("a", "PURE")}, lease, 2))
		fresh := actor("b", "PURE")
		fresh.LastSeen = time.Now()
		long.LastSeen = time.Now().Add(-2 * journal.ForgetActors)
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{{Name: "a", Effect: "PURE", LastSeen: time.Now()}, long}, lease, 2))
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{fresh}, lease, 2), "the forgotten one makes room")
		reason(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{actor("c", "PURE")}, lease, 2), journal.ReasonTooManyActors)
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{fresh}, lease, 2), "one that is there needs no room")
	})
	t.Run("Actors/TheirBytesAreBounded", func(t *testing.T) {
		w := open(t, d)
		large := func(name string, bytes int) journal.RemoteActor {
			return journal.RemoteActor{Name: name, Effect: "PURE", Schema: make([]byte, bytes), LastSeen: time.Now().UTC().Truncate(time.Microsecond)}
		}
		put := func(as ...journal.RemoteActor) error { return w.j.PutActors(t.Context(), w.me, ns, as, lease, 10) }
		const third = journal.MaxActorBytes / 3
		require.NoError(t, put(large("a", third), large("b", third)))
		reason(t, put(large("c", third+100)), journal.ReasonActorsTooLarge)
		require.NoError(t, put(large("a", third)), "what is there needs no room")
		reason(t, put(large("a", 2*third+100)), journal.ReasonActorsTooLarge)
		require.NoError(t, put(large("a", third/2), large("c", third+100)), "what shrinks makes room")
		got, err := w.j.ActorNames(t.Context(), ns)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, got)
		require.NoError(t, w.j.PutActors(t.Context(), w.me, "other", []journal.RemoteActor{large("a", third)}, lease, 10))
		budget := inflight.New(0)
		answer := budget.Answer("other")
		defer answer.Free()
		_, err = w.j.RemoteActors(answer.Context(t.Context()), "other", nil)
		require.NoError(t, err)
		require.Greater(t, budget.Used(), int64(third), "they count for the answer that they are read for")
	})
	t.Run("Actors/EffectStaysWhileOthersServe", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		require.NoError(t, w.j.PutActors(t.Context(), other, ns, []journal.RemoteActor{actor("a", "UNSAFE")}, lease, 10))
		require.NoError(t, w.j.SyncWorkers(t.Context(), other, journal.WorkerSync{Routes: []journal.NamedRoute{{Namespace: ns, Actor: "a", Slots: 2}}}))
		err := w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{actor("b", "PURE"), actor("a", "PURE")}, lease, 10)
		reason(t, err, journal.ReasonActorConflict)
		got, err := w.j.RemoteActors(t.Context(), ns, nil)
		require.NoError(t, err)
		require.Len(t, got, 1, "nothing was written")
		require.NoError(t, w.j.PutActors(t.Context(), other, ns, []journal.RemoteActor{actor("a", "UNSAFE")}, lease, 10))
		require.NoError(t, w.j.Deregister(t.Context(), other))
		require.NoError(t, w.j.PutActors(t.Context(), w.me, ns, []journal.RemoteActor{actor("a", "PURE")}, lease, 10))
	})
	t.Run("Routes/CountWhileTheirExecutorLives", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		put := journal.WorkerSync{Routes: []journal.NamedRoute{{Namespace: ns, Actor: "a", Slots: 3, Busy: 1}, {Namespace: ns, Actor: "b", Slots: 1}}}
		require.NoError(t, w.j.SyncWorkers(t.Context(), other, put))
		require.NoError(t, w.j.SyncWorkers(t.Context(), w.me, put))
		got, err := w.j.Routes(t.Context(), ns, "a", lease)
		require.NoError(t, err)
		require.Equal(t, []journal.WorkerRoute{{Executor: w.me, Addr: "addr-of-exec-a", Slots: 3, Busy: 1}, {Executor: other, Addr: "addr-of-exec-b", Slots: 3, Busy: 1}}, got)
		got, err = w.j.Routes(t.Context(), "other", "a", lease)
		require.NoError(t, err)
		require.Empty(t, got)

		again := w.register("exec-b")
		got, err = w.j.Routes(t.Context(), ns, "a", lease)
		require.NoError(t, err)
		require.Len(t, got, 1, "those of an earlier life do not count")
		reason(t, w.j.SyncWorkers(t.Context(), other, put), journal.ReasonFenced)
		require.NoError(t, w.j.SyncWorkers(t.Context(), again, journal.WorkerSync{All: true, Routes: []journal.NamedRoute{{Namespace: ns, Actor: "b", Slots: 5}}}))
		got, err = w.j.Routes(t.Context(), ns, "b", lease)
		require.NoError(t, err)
		require.Equal(t, 5, got[1].Slots)
		require.NoError(t, w.j.SyncWorkers(t.Context(), again, journal.WorkerSync{Routes: []journal.NamedRoute{{Namespace: ns, Actor: "b"}}}))
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		for _, name := range []string{"a", "b"} {
			got, err = w.j.Routes(t.Context(), ns, name, lease)
			require.NoError(t, err)
			require.Empty(t, got)
		}
	})
	t.Run("Workers/AreListed", func(t *testing.T) {
		w := open(t, d)
		one := journal.Worker{ID: "w1", ExecutorID: "exec-a", Namespace: ns, Actors: []string{"a", "b"}, Slots: 4, Busy: 1, ConnectTime: base, UserAgent: "test/1"}
		two := journal.Worker{ID: "w2", ExecutorID: "exec-a", Namespace: "other", Actors: []string{"a"}, Slots: 1, ConnectTime: base, Draining: true}
		require.NoError(t, w.j.SyncWorkers(t.Context(), w.me, journal.WorkerSync{Put: []journal.Worker{one, two}}))
		one.Busy = 2
		require.NoError(t, w.j.SyncWorkers(t.Context(), w.me, journal.WorkerSync{Put: []journal.Worker{one}}))
		list := func(ns string) []journal.Worker {
			got, err := w.j.Workers(t.Context(), ns, lease)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, []journal.Worker{one}, list(ns))
		require.Equal(t, []journal.Worker{two}, list("other"))
		require.NoError(t, w.j.SyncWorkers(t.Context(), w.me, journal.WorkerSync{Drop: []journal.WorkerID{{Namespace: ns, ID: "w1"}}}))
		require.Empty(t, list(ns))
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		require.Empty(t, list("other"))
	})
	t.Run("Wakes/NotifyOtherReplicas", func(t *testing.T) {
		w := open(t, d)
		far := w.another()
		me := w.register("exec-b")
		wakes, err := far.WorkerWakes(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.j.SyncWorkers(t.Context(), me, journal.WorkerSync{Routes: []journal.NamedRoute{{Namespace: ns, Actor: "a", Slots: 1}}}))
		select {
		case <-wakes:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody was woken")
		}
	})
}
