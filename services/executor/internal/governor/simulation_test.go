package governor_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// elapse lets time pass in a bubble.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a synctest bubble

// memory is a store of one account in memory, so that hours pass in a bubble. The drivers have their own
// tests.
type memory struct {
	mu        sync.Mutex
	state     governor.State
	turns     map[string]int64
	standings map[string]governor.Standing
	// away fails exchanges, lost those whose answer does not arrive.
	away, lost error
}

// fail makes exchanges fail from now on.
func (m *memory) fail(away, lost error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away, m.lost = away, lost
}

func (m *memory) Exchange(ctx context.Context, owner journal.Owner, a governor.Ask) (governor.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(ctx.Err(), m.away); err != nil {
		return governor.Answer{}, err
	}
	var others []governor.Standing
	for id, o := range m.standings {
		if id != owner.ID {
			others = append(others, o)
		}
	}
	d := m.state.Decide(time.Now(), a, a.Turn > m.turns[owner.ID], m.standings[owner.ID].Held, others)
	m.turns[owner.ID] = a.Turn
	m.standings[owner.ID] = governor.Standing{Owner: owner, Held: d.Held, Asked: time.Now(), Waits: d.Waits}
	return d.Answer, m.lost
}

func (m *memory) Wakes(ctx context.Context) (<-chan string, error) {
	wakes := make(chan string)
	context.AfterFunc(ctx, func() { close(wakes) })
	return wakes, nil
}

func (m *memory) Sweep(context.Context) error { return nil }

// die removes what an executor waits for, as the end of its lease does.
func (m *memory) die(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.standings, id)
}

// world is some executors over one store, and a provider.
type world struct {
	*memory
	governors []*governor.Governor
	limits    fakellm.Limits
	meter     fakellm.Meter
	account   llm.Account
	stop      []context.CancelFunc
	busy      sync.WaitGroup
	// delays are after what time a request leaves, and how long it is on its way; nil means at once.
	delays func() (sent, travel time.Duration)
}

func newWorld(t *testing.T, replicas int, account llm.AccountLimits) *world {
	w := &world{
		memory:  &memory{turns: map[string]int64{}, standings: map[string]governor.Standing{}},
		account: llm.Account{Name: "acc", AccountLimits: account},
		limits:  fakellm.Limits{Requests: account.RequestsPerMinute, Tokens: account.TokensPerMinute, Interval: time.Minute},
	}
	for i := range replicas {
		g := governor.New(w.memory, governor.Options{})
		g.Gate(nil).(sched.SessionGate).Begin(journal.Owner{ID: fmt.Sprint("x", i), Incarnation: 1})
		ctx, stop := context.WithCancel(t.Context())
		w.governors, w.stop = append(w.governors, g), append(w.stop, stop)
		w.busy.Go(func() { _ = g.Run(ctx) })
	}
	t.Cleanup(w.busy.Wait)
	return w
}

// size is what a call is estimated at and uses, and how long it takes.
type size struct {
	estimate, input, output int64
	duration                time.Duration
}

// call makes a call at a replica, and returns how long it waited for its turn.
func (w *world) call(ctx context.Context, replica int, namespace string, s size) (time.Duration, error) {
	queued := time.Now()
	p, err := w.governors[replica].Admit(ctx, w.account, namespace, llm.Usage{Input: s.estimate / 2, Output: s.estimate - s.estimate/2})
	if err != nil {
		return 0, err
	}
	waited := time.Since(queued)
	if w.delays != nil {
		sent, travel := w.delays()
		elapse(sent)
		p.Sent()
		elapse(travel)
	}
	use, after := w.meter.Enter(w.limits, s.input, time.Now())
	if use == nil {
		e := &llm.Error{Class: llm.Retryable, Status: 429, RetryAfter: after}
		p.Done(llm.Usage{}, e)
		return waited, e
	}
	elapse(s.duration)
	w.meter.Leave(use, s.output, time.Now())
	p.Done(llm.Usage{Input: s.input, Output: s.output, Known: true}, nil)
	return waited, nil
}

// load keeps callers busy at all replicas until ctx ends.
func (w *world) load(ctx context.Context, callers int, namespace string, size func() size) {
	for i := range callers {
		w.busy.Go(func() {
			for ctx.Err() == nil {
				_, _ = w.call(ctx, i%len(w.governors), namespace, size())
			}
		})
	}
}

// used is the part of a limit that was used in whole minutes after the first one.
func used(uses []fakellm.Use, from time.Time, minutes int, limits fakellm.Limits) (requests, tokens float64) {
	var n, sum int64
	for _, u := range uses {
		if at := u.At.Sub(from); at >= time.Minute && at < time.Duration(minutes+1)*time.Minute {
			n, sum = n+1, sum+u.Tokens
		}
	}
	share := func(n, limit int64) float64 {
		if limit == 0 {
			return 0
		}
		return float64(n) / float64(limit) / float64(minutes)
	}
	return share(n, limits.Requests), share(sum, limits.Tokens)
}

func TestNoMinuteIsBeyondTheLimitsAndNearlyAllIsUsed(t *testing.T) {
	t.Parallel()
	between := func(lo, hi int64) int64 { return lo + rand.Int64N(hi-lo+1) }
	for name, x := range map[string]struct {
		limits  llm.AccountLimits
		callers int
		size    func() size
	}{
		"Requests":                             {llm.AccountLimits{RequestsPerMinute: 600}, 200, func() size { return size{1000, 300, 300, time.Second} }},
		"Tokens/EstimatesAreRight":             {llm.AccountLimits{TokensPerMinute: 300_000}, 200, func() size { return size{600, 300, 300, time.Second} }},
		"Tokens/EstimatesAreThreeTimesTooHigh": {llm.AccountLimits{TokensPerMinute: 300_000}, 200, func() size { return size{1800, 300, 300, 2 * time.Second} }},
		"Tokens/EstimatesAreThreeTimesTooLow":  {llm.AccountLimits{TokensPerMinute: 300_000}, 200, func() size { return size{200, 300, 300, 2 * time.Second} }},
		"Tokens/EstimatesAreAnythingBetween": {llm.AccountLimits{TokensPerMinute: 300_000}, 200, func() size {
			n := between(200, 1800)
			return size{600, n / 2, n - n/2, time.Duration(between(500, 3000)) * time.Millisecond}
		}},
		"Tokens/AnswersAreShortOrLong": {llm.AccountLimits{TokensPerMinute: 120_000}, 1000, func() size {
			if rand.IntN(2) == 0 {
				return size{126, 6, 3, 600 * time.Millisecond}
			}
			return size{126, 6, 100, 1200 * time.Millisecond}
		}},
		"Both": {llm.AccountLimits{RequestsPerMinute: 300, TokensPerMinute: 150_000}, 100, func() size {
			n := between(100, 900)
			return size{600, n / 2, n - n/2, time.Second}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, x.limits)
				ctx, stop := context.WithCancel(t.Context())
				from := time.Now()
				w.load(ctx, x.callers, "n", x.size)
				elapse(6 * time.Minute)
				stop()
				uses := w.meter.Uses()
				mostRequests, mostTokens := fakellm.Most(uses, time.Minute)
				requests, tokens := used(uses, from, 4, w.limits)
				t.Logf("%d calls, %d refused; most in a minute: %d requests, %d tokens; used: %.1f %% of requests, %.1f %% of tokens",
					len(uses), w.meter.Refused(), mostRequests, mostTokens, 100*requests, 100*tokens)
				if n := x.limits.RequestsPerMinute; n > 0 {
					require.LessOrEqual(t, mostRequests, n)
				}
				if n := x.limits.TokensPerMinute; n > 0 {
					require.LessOrEqual(t, mostTokens, n)
				}
				require.GreaterOrEqual(t, max(requests, tokens), 0.95)
				require.Zero(t, w.meter.Refused())
			})
		})
	}
}

// tenant is what the calls of a namespace are like: they use between low and high times their estimate, and
// take longer the more they use if slow is set.
type tenant struct {
	callers   int
	estimate  int64
	low, high float64
	duration  time.Duration
	slow      bool
}

func (x tenant) size() size {
	part := rand.Float64()
	n := int64(float64(x.estimate) * (x.low + part*(x.high-x.low)))
	d := x.duration/2 + time.Duration(rand.Int64N(int64(x.duration/2)))
	if x.slow {
		d = x.duration/10 + time.Duration(part*float64(x.duration))
	}
	return size{x.estimate, n / 2, n - n/2, d}
}

// load3 is a limit and what three executors are asked for.
type load3 struct {
	limit   int64
	tenants []tenant
}

var loads = rapid.Custom(func(rt *rapid.T) (x load3) {
	x.limit = rapid.Int64Range(50_000, 1_000_000).Draw(rt, "limit")
	x.tenants = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) tenant {
		one := tenant{
			callers: rapid.IntRange(5, 60).Draw(rt, "callers"), estimate: rapid.Int64Range(x.limit/500, x.limit/100).Draw(rt, "estimate"),
			low: rapid.Float64Range(0.05, 3).Draw(rt, "low"), slow: rapid.Bool().Draw(rt, "slow"),
			duration: time.Duration(rapid.IntRange(100, 5000).Draw(rt, "duration")) * time.Millisecond,
		}
		one.high = rapid.Float64Range(one.low, 3).Draw(rt, "high")
		return one
	}), 1, 3).Draw(rt, "tenants")
	return x
})

// No stretch of a minute passes the limit, whatever calls use in proportion to their estimates, however long
// they take, and however late they are sent and arrive.
func TestNoStretchPassesTheLimit(t *testing.T) {
	t.Parallel()
	for i := range 16 {
		x := loads.Example(i)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, llm.AccountLimits{TokensPerMinute: x.limit})
				w.limits.Tokens = 0 // it counts and lets everything in
				w.delays = func() (sent, travel time.Duration) {
					return time.Duration(rand.Int64N(int64(1500 * time.Millisecond))), time.Duration(rand.Int64N(int64(500 * time.Millisecond)))
				}
				ctx, stop := context.WithCancel(t.Context())
				for k, one := range x.tenants {
					w.load(ctx, one.callers, fmt.Sprint("n", k), one.size)
				}
				elapse(125 * time.Second)
				stop()
				uses := w.meter.Uses()
				_, most := fakellm.Most(uses, time.Minute)
				t.Logf("%d calls; most in a minute: %.2f %% of the limit; %+v", len(uses), 100*float64(most)/float64(x.limit), x)
				require.LessOrEqual(t, most, x.limit)
			})
		})
	}
}

func TestQuietNamespaceWaitsForAFewCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, llm.AccountLimits{RequestsPerMinute: 120})
		ctx, stop := context.WithCancel(t.Context())
		w.load(ctx, 3000, "loud", func() size { return size{100, 50, 50, time.Second} })
		elapse(3 * time.Minute)
		var waits []time.Duration
		for i := range 20 {
			elapse(time.Duration(rand.Int64N(int64(5 * time.Second))))
			waited, err := w.call(ctx, i%3, "quiet", size{100, 50, 50, time.Second})
			require.NoError(t, err)
			waits = append(waits, waited)
		}
		stop()
		t.Logf("a call lasts %s; waits %s to %s", time.Minute/120, slices.Min(waits), slices.Max(waits))
		require.Less(t, slices.Max(waits), 5*time.Minute/120)
	})
}
