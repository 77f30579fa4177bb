package limittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// station is a limiter at work for one executor.
type station struct {
	*replica
	*limit.Limiter
	gates []sched.Gate
	kill  func()
}

func (d Driver) station(t *testing.T, place, id string) *station {
	t.Helper()
	r := d.replica(t, place, id)
	s := &station{replica: r, Limiter: limit.New(r.Store, testkit.Logger(t))}
	s.gates = s.Gates()
	s.gates[0].(sched.SessionGate).Begin(r.Owner)
	require.NoError(t, s.Refresh(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Limiter.Run(ctx) }()
	s.kill = sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-done)
	})
	t.Cleanup(s.kill)
	return s
}

// pass takes a request through the gates that concern it and returns the function that releases them, or nil
// if it did not get in before stop was closed.
func (s *station) pass(req sched.GateRequest, stop <-chan struct{}) func() {
	var releases []func()
	leave := func() {
		for _, f := range releases {
			f()
		}
	}
	for _, g := range s.gates {
		if !g.Concerns(req) {
			continue
		}
		got := make(chan sched.Pass, 1)
		cancel := g.Enter(req, func(p sched.Pass) { got <- p })
		select {
		case p := <-got:
			if p.Release != nil {
				releases = append(releases, p.Release)
			}
		case <-stop:
			cancel()
			leave()
			return nil
		}
	}
	return leave
}

func limiters(t *testing.T, d Driver) {
	t.Run("Places/NoMoreThanTheLimitOverReplicas", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		first := d.replica(t, place, "x")
		first.put(t, limit.Limit{Key: limit.ActorKey("n", "a"), MaxConcurrent: 3})
		const each = 8
		var (
			perKey [4]most
			all    most
			wg     sync.WaitGroup
		)
		for i := range 3 {
			s := d.station(t, place, fmt.Sprint("s", i))
			for j := range each {
				wg.Go(func() {
					for n := range 4 {
						k := (j + n) % len(perKey)
						leave := s.pass(sched.GateRequest{Namespace: "n", RunID: fmt.Sprint("run", i, j), Actor: "a", Key: fmt.Sprint(k), Priority: 1 + j%4, Queued: time.Now()}, nil)
						perKey[k].enter()
						all.enter()
						<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond) // a call takes time
						all.leave()
						perKey[k].leave()
						leave()
					}
				})
			}
		}
		crowd(t, &wg)
		require.LessOrEqual(t, all.peak.Load(), int64(3))
		for k := range perKey {
			require.EqualValues(t, 1, perKey[k].peak.Load())
		}
		keys := []limit.Key{limit.ActorKey("n", "a"), limit.ConcurrencyKey("n", "0")}
		testkit.Eventually(t, func() bool {
			f, err := first.Figures(t.Context(), keys)
			require.NoError(t, err)
			return f[0].Running == 0 && f[0].Waiting == 0 && f[1].Running == 0
		}, "all is given back")
	})
	t.Run("Places/HoldersThatDieHoldNothing", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		req := sched.GateRequest{Namespace: "n", RunID: "r", Actor: "a", Key: "k", Queued: time.Now()}
		a, b := d.station(t, place, "a"), d.station(t, place, "b")
		require.NotNil(t, a.pass(req, nil))
		in := make(chan struct{})
		go func() {
			defer close(in)
			b.pass(req, nil)
		}()
		select {
		case <-in:
			require.Fail(t, "two at once")
		case <-time.After(100 * time.Millisecond):
		}
		// Its process is gone; the next one knows nothing of the call.
		a.kill()
		_, err := b.Register(t.Context(), "a", "")
		require.NoError(t, err)
		select {
		case <-in:
		case <-time.After(20 * time.Second):
			require.Fail(t, "the dead still hold it")
		}
	})
	t.Run("Places/AFencedOneGetsNothingMore", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a := d.station(t, place, "a")
		_, err := a.Register(t.Context(), "a", "")
		require.NoError(t, err)
		stop := make(chan struct{})
		time.AfterFunc(200*time.Millisecond, func() { close(stop) })
		require.Nil(t, a.pass(sched.GateRequest{Namespace: "n", RunID: "r", Key: "k", Queued: time.Now()}, stop))
	})
	t.Run("Places/NobodyStarves", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		greedy, modest := d.station(t, place, "greedy"), d.station(t, place, "modest")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		req := func() sched.GateRequest {
			return sched.GateRequest{Namespace: "n", RunID: "r", Key: "k", Priority: 2, Queued: time.Now()}
		}
		for range 20 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if leave := greedy.pass(req(), stop); leave != nil {
						leave()
					}
				}
			})
		}
		for range 5 {
			modest.pass(req(), nil)()
		}
		close(stop)
		crowd(t, &wg)
	})
	t.Run("Rates/HoldOverReplicas", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		const n, interval = 20, 500 * time.Millisecond
		d.replica(t, place, "x").put(t, limit.Limit{Key: limit.ActorKey("n", "a"), MaxRate: n, RateInterval: interval})
		var (
			mu   sync.Mutex
			when []time.Time
			wg   sync.WaitGroup
		)
		for i := range 3 {
			s := d.station(t, place, fmt.Sprint("s", i))
			rate := s.gates[2]
			for range 20 {
				req := sched.GateRequest{Namespace: "n", RunID: "r", Actor: "a", Queued: time.Now()}
				require.True(t, rate.Concerns(req))
				require.False(t, s.gates[0].Concerns(req))
				require.False(t, s.gates[1].Concerns(req))
				wg.Add(1)
				var ready func(sched.Pass)
				ready = func(p sched.Pass) {
					mu.Lock()
					defer mu.Unlock()
					// A pass that is stale by now is not used, as in the scheduler.
					if now := time.Now(); now.Before(p.Until) {
						when = append(when, now)
						wg.Done()
						return
					}
					go rate.Enter(req, ready)
				}
				rate.Enter(req, ready)
			}
		}
		crowd(t, &wg)
		slices.SortFunc(when, time.Time.Compare)
		for i := n; i < len(when); i++ {
			require.GreaterOrEqual(t, when[i].Sub(when[i-n]), interval, "calls %d to %d", i-n, i)
		}
	})
	t.Run("Changes/AreSeenSoon", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		s, x := d.station(t, place, "s"), d.replica(t, place, "x")
		req := sched.GateRequest{Namespace: "n", RunID: "r", Actor: "a", Queued: time.Now()}
		require.False(t, s.gates[1].Concerns(req))
		x.put(t, limit.Limit{Key: limit.ActorKey("n", "a"), MaxConcurrent: 1})
		x.put(t, limit.Limit{Key: limit.Key{Namespace: "n", Name: limit.Namespace}, MaxOpenRuns: 7})
		testkit.Eventually(t, func() bool {
			_, ok := s.Quota("n")
			return ok && s.gates[1].Concerns(req)
		})
		leave := s.pass(req, nil)
		in := make(chan struct{})
		go func() {
			defer close(in)
			s.pass(req, nil)()
		}()
		testkit.Eventually(t, func() bool {
			b, ok := s.gates[1].WaitOf(req)
			return ok && b.Name == "actor/a" && slices.Equal(b.HolderRunIDs, []string{"r"})
		})
		bounds, err := s.Explain(t.Context(), "n", "a", "k")
		require.NoError(t, err)
		require.Len(t, bounds, 2)
		require.True(t, bounds[0].Implied)
		require.Equal(t, 1, bounds[1].Running)
		require.Equal(t, []string{"s"}, bounds[1].Holders)
		whole, ok, err := s.ExplainStart(t.Context(), "n")
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 7, whole.MaxOpenRuns)
		require.NoError(t, x.Delete(t.Context(), limit.ActorKey("n", "a")))
		select {
		case <-in:
		case <-time.After(20 * time.Second):
			require.Fail(t, "the limit is lifted, but holds")
		}
		leave()
	})
}
