// Package limittest is the suite that every limit.Store passes, by itself and below limiters of several
// executors. It must not know which driver it tests.
package limittest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// Driver makes stores.
type Driver struct {
	// Fresh returns a place with an empty, migrated database.
	Fresh func(testing.TB) string
	// Open opens a place. Closing the journal is the suite's, after closing the store.
	Open func(ctx context.Context, place string) (journal.Journal, limit.Store, error)
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	t.Run("Store", func(t *testing.T) { t.Parallel(); stores(t, d) })
	t.Run("Quotas", func(t *testing.T) { t.Parallel(); quotas(t, d) })
	t.Run("Limiter", func(t *testing.T) { t.Parallel(); limiters(t, d) })
}

// replica is what one executor has open.
type replica struct {
	journal.Journal
	limit.Store
	journal.Owner
	turn int64
}

func (d Driver) replica(t *testing.T, place, id string) *replica {
	t.Helper()
	j, s, err := d.Open(t.Context(), place)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, j.Close())
	})
	o, err := j.Register(t.Context(), id, "")
	require.NoError(t, err)
	return &replica{Journal: j, Store: s, Owner: o}
}

func (r *replica) sync(t *testing.T, asks ...limit.Ask) []limit.Grant {
	t.Helper()
	r.turn++
	g, err := r.Sync(t.Context(), r.Owner, r.turn, asks)
	require.NoError(t, err)
	require.Len(t, g, len(asks))
	return g
}

func (r *replica) put(t *testing.T, l limit.Limit) limit.Limit {
	t.Helper()
	require.NoError(t, l.Validate())
	l, err := r.Update(t.Context(), l.Key, limit.To(l))
	require.NoError(t, err)
	return l
}

func stores(t *testing.T, d Driver) {
	key := limit.ConcurrencyKey("n", "k")
	actor := limit.ActorKey("n", "a")
	t.Run("Limits/PutListDelete", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		v, all, err := r.All(t.Context(), -1)
		require.NoError(t, err)
		require.Empty(t, all)
		put := r.put(t, limit.Limit{Key: actor, MaxConcurrent: 3, MaxRate: 5, RateInterval: time.Minute})
		require.False(t, put.UpdateTime.IsZero())
		again := r.put(t, limit.Limit{Key: actor, MaxConcurrent: 4})
		quota := r.put(t, limit.Limit{Key: limit.Key{Namespace: "n", Name: limit.Namespace}, MaxOpenRuns: 1, MaxFanOut: 2, MaxBytes: 3, MaxPendingRuns: 4, Retention: 36 * time.Hour})
		other := r.put(t, limit.Limit{Key: limit.ActorKey("m", "a"), MaxRate: 1, RateInterval: time.Hour})
		list, err := r.Store.List(t.Context(), "n", "", 10)
		require.NoError(t, err)
		require.Equal(t, []limit.Limit{again, quota}, list)
		v2, all, err := r.All(t.Context(), v)
		require.NoError(t, err)
		require.Equal(t, []limit.Limit{other, again, quota}, all)
		require.Greater(t, v2, v)
		_, all, err = r.All(t.Context(), v2)
		require.NoError(t, err)
		require.Nil(t, all)
		more, err := r.Update(t.Context(), actor, func(l limit.Limit, found bool) (limit.Limit, error) {
			require.True(t, found)
			require.Equal(t, again, l)
			l.MaxRate, l.RateInterval = 7, time.Second
			return l, nil
		})
		require.NoError(t, err)
		require.Equal(t, []int32{4, 7}, []int32{more.MaxConcurrent, more.MaxRate})
		_, err = r.Update(t.Context(), limit.ActorKey("n", "none"), func(l limit.Limit, found bool) (limit.Limit, error) {
			require.False(t, found)
			return l, limit.NotFound(l.Name)
		})
		require.Equal(t, limit.ReasonNotFound, errs.ReasonOf(err))
		v2, _, err = r.All(t.Context(), v2)
		require.NoError(t, err)
		require.NoError(t, r.Delete(t.Context(), actor))
		require.Equal(t, limit.ReasonNotFound, errs.ReasonOf(r.Delete(t.Context(), actor)))
		v3, _, err := r.All(t.Context(), v2)
		require.NoError(t, err)
		require.Greater(t, v3, v2)
	})
	t.Run("Places/NeverMoreThanTheLimit", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		a.put(t, limit.Limit{Key: actor, MaxConcurrent: 3})
		require.Equal(t, 2, a.sync(t, limit.Ask{Key: actor, Want: 2})[0].N)
		g := b.sync(t, limit.Ask{Key: actor, Want: 2})[0]
		require.Equal(t, 1, g.N)
		require.False(t, g.Rival)
		g = a.sync(t, limit.Ask{Key: actor, Held: 2, Want: 1})[0]
		require.Zero(t, g.N)
		require.True(t, g.Rival)
		f, err := a.Figures(t.Context(), []limit.Key{actor, key})
		require.NoError(t, err)
		require.Equal(t, []limit.Figure{{Key: actor, Running: 3, Waiting: 2, Holders: []string{"a", "b"}}, {Key: key}}, f)
		a.put(t, limit.Limit{Key: actor, MaxConcurrent: 1})
		require.Equal(t, 2, a.sync(t, limit.Ask{Key: actor, Held: 2})[0].Over)
		require.NoError(t, a.Delete(t.Context(), actor))
		require.True(t, a.sync(t, limit.Ask{Key: actor, Held: 2, Want: 9})[0].Unbounded)
	})
	t.Run("Places/KeyWithoutLimitIsOne", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		require.Equal(t, 1, a.sync(t, limit.Ask{Key: key, Want: 2, Runs: []string{"r1"}})[0].N)
		require.Zero(t, b.sync(t, limit.Ask{Key: key, Want: 1})[0].N)
		require.Equal(t, 1, b.sync(t, limit.Ask{Key: limit.ConcurrencyKey("other", "k"), Want: 1})[0].N)
		f, err := b.Figures(t.Context(), []limit.Key{key})
		require.NoError(t, err)
		require.Equal(t, []string{"r1"}, f[0].Runs)
		b.put(t, limit.Limit{Key: key, MaxConcurrent: 2})
		require.Equal(t, 1, b.sync(t, limit.Ask{Key: key, Want: 1, Age: time.Hour})[0].N)
		b.put(t, limit.Limit{Key: key, MaxRate: 2})
		require.True(t, b.sync(t, limit.Ask{Key: key, Held: 1, Want: 1})[0].Unbounded)
	})
	t.Run("Places/WhoWaitedLongestIsFirst", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b, c := d.replica(t, place, "a"), d.replica(t, place, "b"), d.replica(t, place, "c")
		require.Equal(t, 1, a.sync(t, limit.Ask{Key: key, Want: 1})[0].N)
		require.Zero(t, b.sync(t, limit.Ask{Key: key, Want: 1, Age: time.Second})[0].N)
		require.Zero(t, c.sync(t, limit.Ask{Key: key, Want: 1, Age: time.Minute})[0].N)
		g := a.sync(t, limit.Ask{Key: key, Want: 1})[0]
		require.Zero(t, g.N)
		require.True(t, g.Rival)
		// SQLite counts milliseconds, and both may have asked in the same one.
		require.GreaterOrEqual(t, g.RivalAge, time.Minute)
		require.Zero(t, b.sync(t, limit.Ask{Key: key, Want: 1, Age: time.Second})[0].N)
		require.Equal(t, 1, c.sync(t, limit.Ask{Key: key, Want: 1, Age: time.Minute})[0].N)
	})
	t.Run("Places/AreVoidWithTheirExecutor", func(t *testing.T) {
		t.Parallel()
		for how, end := range map[string]func(t *testing.T, a, b *replica){
			"Restarted": func(t *testing.T, a, _ *replica) {
				_, err := a.Register(t.Context(), "a", "")
				require.NoError(t, err)
			},
			"Left": func(t *testing.T, a, _ *replica) { require.NoError(t, a.Deregister(t.Context(), a.Owner)) },
			"TakenOver": func(t *testing.T, _, b *replica) {
				testkit.Eventually(t, func() bool {
					require.NoError(t, b.Heartbeat(t.Context(), b.Owner))
					_, err := b.TakeOver(t.Context(), b.Owner, journal.TakeOverOptions{Lease: time.Millisecond, Limit: 1})
					require.NoError(t, err)
					ex, err := b.Executors(t.Context())
					require.NoError(t, err)
					return len(ex) == 1
				})
			},
		} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				place := d.Fresh(t)
				a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
				require.Equal(t, 1, a.sync(t, limit.Ask{Key: key, Want: 1})[0].N)
				require.Zero(t, b.sync(t, limit.Ask{Key: key, Want: 1})[0].N)
				end(t, a, b)
				require.Equal(t, 1, b.sync(t, limit.Ask{Key: key, Want: 1})[0].N)
				_, err := a.Sync(t.Context(), a.Owner, 99, []limit.Ask{{Key: key, Want: 1}})
				require.True(t, journal.IsFenced(err), "got %v", err)
				require.NoError(t, b.Sweep(t.Context()))
				f, err := b.Figures(t.Context(), []limit.Key{key})
				require.NoError(t, err)
				require.Equal(t, []string{"b"}, f[0].Holders)
			})
		}
	})
	t.Run("Sync/OvertakenOneCountsForNothing", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		_, err := r.Sync(t.Context(), r.Owner, 5, []limit.Ask{{Key: key, Want: 1}})
		require.NoError(t, err)
		for _, turn := range []int64{4, 5} {
			_, err = r.Sync(t.Context(), r.Owner, turn, []limit.Ask{{Key: key}})
			require.Equal(t, limit.ReasonStale, errs.ReasonOf(err))
		}
		f, err := r.Figures(t.Context(), []limit.Key{key})
		require.NoError(t, err)
		require.Equal(t, 1, f[0].Running)
	})
	t.Run("Rates/BeginningsAreApart", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		a.put(t, limit.Limit{Key: actor, MaxRate: 10, RateInterval: 10 * time.Second})
		a.put(t, limit.Limit{Key: key, MaxRate: 1, RateInterval: time.Hour})
		g := a.sync(t, limit.Ask{Key: actor, Rate: true, Want: 3})[0]
		require.Equal(t, 1, g.N)
		require.Zero(t, g.First)
		require.GreaterOrEqual(t, g.Every, time.Second+g.Slack/10)
		require.Positive(t, g.Again)
		g = b.sync(t, limit.Ask{Key: actor, Rate: true, Want: 1})[0]
		require.Zero(t, g.N)
		require.Positive(t, g.First)
		g = b.sync(t, limit.Ask{Key: key, Rate: true, Also: actor.Name, Want: 1})[0]
		require.Zero(t, g.N, "both must allow it")
		require.NoError(t, b.Delete(t.Context(), actor))
		require.Equal(t, 1, b.sync(t, limit.Ask{Key: key, Rate: true, Also: actor.Name, Want: 1})[0].N)
		require.Zero(t, a.sync(t, limit.Ask{Key: key, Rate: true, Want: 1})[0].N)
		require.True(t, a.sync(t, limit.Ask{Key: actor, Rate: true, Want: 1})[0].Unbounded)
		f, err := a.Figures(t.Context(), []limit.Key{key})
		require.NoError(t, err)
		require.Greater(t, f[0].Next, 59*time.Minute)
	})
	t.Run("Rates/AreGrantedManyAtATime", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		r.put(t, limit.Limit{Key: actor, MaxRate: 1000})
		require.Greater(t, r.sync(t, limit.Ask{Key: actor, Rate: true, Want: 1000})[0].N, 100)
	})
	t.Run("Wakes/GivingBackAndChanges", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a := d.replica(t, place, "a")
		wakes, err := a.Wakes(t.Context())
		require.NoError(t, err)
		o, err := a.Register(t.Context(), "b", "")
		require.NoError(t, err)
		b := &replica{Journal: a.Journal, Store: a.Store, Owner: o}
		a.sync(t, limit.Ask{Key: key, Want: 1})
		b.sync(t, limit.Ask{Key: key, Want: 1})
		a.sync(t, limit.Ask{Key: key})
		a.put(t, limit.Limit{Key: actor, MaxRate: 1})
		want := []limit.Key{key, key, {}, actor}
		for len(want) > 0 {
			select {
			case k := <-wakes:
				if k == want[0] {
					want = want[1:]
				}
			case <-time.After(20 * time.Second):
				require.Empty(t, want, "no word of it")
			}
		}
	})
	t.Run("OpenRuns/CountsUpToABound", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		for i, st := range []journal.State{journal.StateRunning, journal.StatePaused, journal.StateCompleted, journal.StateRunning} {
			run := journal.Run{ID: fmt.Sprintf("run_%d", i), Namespace: "n", GraphHash: "h", CreateTime: time.Now(), Status: journal.Status{State: st}}
			if i == 3 {
				run.Namespace = "m"
			}
			res, err := r.Commit(t.Context(), r.Owner, []journal.Write{{Start: &journal.Start{Run: run, Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 1, Time: time.Now()}}}}}})
			require.NoError(t, err)
			require.NoError(t, res[0].Err)
		}
		open, pending, err := r.OpenRuns(t.Context(), "n", 10)
		require.NoError(t, err)
		require.EqualValues(t, 2, open)
		require.Zero(t, pending)
		open, _, err = r.OpenRuns(t.Context(), "n", 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, open)
	})
}

// most follows how many are inside at once.
type most struct{ now, peak atomic.Int64 }

func (m *most) enter() {
	n := m.now.Add(1)
	for p := m.peak.Load(); n > p && !m.peak.CompareAndSwap(p, n); p = m.peak.Load() {
		continue
	}
}

func (m *most) leave() { m.now.Add(-1) }

// crowd waits for all in wg, or fails.
func crowd(t *testing.T, wg *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(t, "not all got their turns")
	}
}
