// Package governortest is the suite that every governor.Store passes, by itself and below the governors of
// several executors that call a scripted model. It must not know which driver it tests.
package governortest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Driver makes stores.
type Driver struct {
	// Fresh returns a place with an empty, migrated database.
	Fresh func(testing.TB) string
	// Open opens a place. Closing the journal, after end was called, is the caller's.
	Open func(ctx context.Context, place string) (j journal.Journal, s governor.Store, end func() error, err error)
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	t.Run("Store", func(t *testing.T) { t.Parallel(); stores(t, d) })
	t.Run("Load", func(t *testing.T) { t.Parallel(); load(t, d) })
}

// replica is what one executor has open.
type replica struct {
	journal.Journal
	governor.Store
	journal.Owner
	turn int64
}

func (d Driver) replica(t testing.TB, place, id string) *replica {
	t.Helper()
	j, s, end, err := d.Open(t.Context(), place)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, end())
		require.NoError(t, j.Close())
	})
	o, err := j.Register(t.Context(), id, "")
	require.NoError(t, err)
	return &replica{Journal: j, Store: s, Owner: o}
}

// wants is an ask for calls of a namespace that cost a request and 10 tokens each.
func wants(limits governor.Limits, namespace string, calls int) governor.Ask {
	a := governor.Ask{Account: "acc", Limits: limits, Lines: []governor.Line{{Namespace: namespace, Calls: calls}}}
	for range calls {
		a.Lines[0].Costs = append(a.Lines[0].Costs, governor.Cost{1, 10, 5, 5})
	}
	return a
}

func (r *replica) ask(t *testing.T, a governor.Ask) governor.Answer {
	t.Helper()
	if len(a.Corrections) > 0 || a.Refused != nil {
		r.turn++
	}
	a.Turn = r.turn
	answer, err := r.Exchange(t.Context(), r.Owner, a)
	require.NoError(t, err)
	require.Len(t, answer.Granted, len(a.Lines))
	return answer
}

func stores(t *testing.T, d Driver) {
	perHour := func(requests int64) governor.Limits {
		return governor.Limits{Per: governor.Cost{requests}, Interval: time.Hour}
	}
	t.Run("Exchange/ReplicasShareTheLimit", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		require.Equal(t, []int{1}, a.ask(t, wants(perHour(1), "n", 2)).Granted)
		answer := b.ask(t, wants(perHour(1), "n", 1))
		require.Equal(t, []int{0}, answer.Granted)
		require.InDelta(t, 1, answer.Used[0], 1e-9)
	})
	t.Run("Exchange/CorrectionsAreAppliedOnce", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		limits := governor.Limits{Per: governor.Cost{0, 100}, Interval: time.Hour}
		a := wants(limits, "n", 1)
		a.Lines[0].Costs[0] = governor.Cost{1, 80}
		first := r.ask(t, a)
		require.Equal(t, []int{1}, first.Granted)
		a.Lines = nil
		a.Corrections = []governor.Correction{{At: first.At, Delta: governor.Cost{0, -30}}}
		require.InDelta(t, .5, r.ask(t, a).Used[1], 1e-9)
		r.turn--
		require.InDelta(t, .5, r.ask(t, a).Used[1], 1e-9, "the answer was lost, so it was sent again")
		require.InDelta(t, .2, r.ask(t, a).Used[1], 1e-9)
	})
	t.Run("Exchange/OvertakenOnesAreRefused", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		a := wants(perHour(5), "n", 1)
		a.Turn = 2
		_, err := r.Exchange(t.Context(), r.Owner, a)
		require.NoError(t, err)
		a.Turn = 1
		_, err = r.Exchange(t.Context(), r.Owner, a)
		require.Equal(t, governor.ReasonStale, errs.ReasonOf(err))
	})
	t.Run("Exchange/AFormerOwnerIsRefused", func(t *testing.T) {
		t.Parallel()
		r := d.replica(t, d.Fresh(t), "a")
		require.NoError(t, r.Deregister(t.Context(), r.Owner))
		_, err := r.Exchange(t.Context(), r.Owner, wants(perHour(5), "n", 1))
		require.True(t, journal.IsFenced(err), "%v", err)
	})
	t.Run("Exchange/CallsOfTheDeadAreNotUnderWay", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		limits := governor.Limits{MaxConcurrent: 2, Interval: time.Hour}
		require.Equal(t, []int{2}, a.ask(t, wants(limits, "n", 3)).Granted)
		require.Equal(t, []int{0}, b.ask(t, wants(limits, "n", 3)).Granted)
		require.NoError(t, a.Deregister(t.Context(), a.Owner))
		require.Equal(t, []int{2}, b.ask(t, wants(limits, "n", 3)).Granted)
	})
	t.Run("Exchange/WhatTheDeadTookCountsUntilItIsTooOld", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		limits := governor.Limits{Per: governor.Cost{0, 10}, Interval: time.Second}
		took := time.Now()
		require.Equal(t, []int{1}, a.ask(t, wants(limits, "n", 1)).Granted)
		require.NoError(t, a.Deregister(t.Context(), a.Owner))
		testkit.Eventually(t, func() bool { return b.ask(t, wants(limits, "n", 1)).Granted[0] == 1 })
		require.Greater(t, time.Since(took), time.Second)
	})
	t.Run("Exchange/ARefusalStopsAllReplicas", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		ask := governor.Ask{Account: "acc", Limits: perHour(1000), Refused: &governor.Refusal{Age: time.Second, RetryAfter: time.Minute}}
		a.ask(t, ask)
		answer := b.ask(t, wants(perHour(1000), "n", 1))
		require.Equal(t, []int{0}, answer.Granted)
		require.InDelta(t, time.Minute, answer.Paused, float64(10*time.Second))
		require.InDelta(t, .5, answer.Speed, .01)
	})
	t.Run("Exchange/TogetherTheyTakeNoMoreThanThereIs", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		var took atomic.Int64
		var busy sync.WaitGroup
		for i := range 3 {
			r := d.replica(t, place, fmt.Sprint("x", i))
			busy.Go(func() {
				for range 20 {
					answer, err := r.Exchange(t.Context(), r.Owner, wants(governor.Limits{Per: governor.Cost{30}, Interval: time.Hour}, fmt.Sprint("n", i), 5))
					if err != nil {
						t.Errorf("exchange: %v", err)
						return
					}
					took.Add(int64(answer.Granted[0]))
				}
			})
		}
		busy.Wait()
		require.Equal(t, int64(2), took.Load(), "a twentieth at once, and the call that uses the last of it")
	})
	t.Run("Wakes/ARefundWakesThoseThatWait", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a := d.replica(t, place, "a")
		wakes, err := a.Wakes(t.Context())
		require.NoError(t, err)
		limits := governor.Limits{Per: governor.Cost{0, 10}, Interval: time.Hour}
		took := a.ask(t, wants(limits, "n", 1))
		b, err := a.Register(t.Context(), "b", "")
		require.NoError(t, err)
		_, err = a.Exchange(t.Context(), b, wants(limits, "n", 1))
		require.NoError(t, err)
		a.ask(t, governor.Ask{Account: "acc", Limits: limits, Corrections: []governor.Correction{{At: took.At, Delta: governor.Cost{0, -10}}}})
		select {
		case name := <-wakes:
			require.Equal(t, "acc", name)
		case <-testkit.Context(t, 10*time.Second).Done():
			t.Fatal("no wake came")
		}
	})
	t.Run("Sweep/ForgetsTheDead", func(t *testing.T) {
		t.Parallel()
		place := d.Fresh(t)
		a, b := d.replica(t, place, "a"), d.replica(t, place, "b")
		a.ask(t, wants(perHour(1), "n", 2))
		require.NoError(t, a.Deregister(t.Context(), a.Owner))
		require.NoError(t, b.Sweep(t.Context()))
		again, err := b.Register(t.Context(), "a", "")
		require.NoError(t, err)
		ask := wants(perHour(1), "n", 1)
		ask.Turn = 1
		_, err = b.Exchange(t.Context(), again, ask)
		require.NoError(t, err)
	})
}

// Measured is what a load came to.
type Measured struct {
	Calls, Refused              int
	MostRequests, MostTokens    int64
	RequestsUsed, TokensUsed    float64
	QuietWaitMean, QuietWaitMax time.Duration
}

// Load has a loud and a quiet namespace call a scripted model over HTTP through three executors' governors
// for some intervals after the first one, and measures at the model's server.
func Load(t testing.TB, d Driver, limits llm.AccountLimits, interval time.Duration, intervals, loud int) Measured {
	place := d.Fresh(t)
	server := fakellm.New(fakellm.Script{
		Limits: &fakellm.Limits{Requests: limits.RequestsPerMinute, Tokens: limits.TokensPerMinute, Interval: interval},
		Rules: []fakellm.Rule{ // answers of 3 to 100 tokens, while 60 are asked for
			{Match: "short", Reply: fakellm.Reply{Text: strings.Repeat("abc ", 3), Delay: interval / 100}},
			{Match: "long", Reply: fakellm.Reply{Text: strings.Repeat("abc ", 100), Delay: interval / 50}},
		},
	})
	url, err := server.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	var sets []*llm.Set
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for i := range 3 {
		r := d.replica(t, place, fmt.Sprint("x", i))
		g := governor.New(r.Store, governor.Options{Interval: interval, Logger: testkit.Logger(t)})
		g.Gate(nil).(sched.SessionGate).Begin(r.Owner)
		busy.Go(func() { _ = g.Run(ctx) })
		cfg := providers.DefaultConfig()
		cfg.Accounts = map[string]llm.AccountLimits{"acc": limits}
		cfg.Change(llm.DefaultProfile, func(p *llm.Profile) { p.BaseURL, p.Account = url, "acc" })
		set, err := providers.Open(cfg, llm.Options{Governor: g})
		require.NoError(t, err)
		defer func() { require.NoError(t, set.Close()) }()
		sets = append(sets, set)
	}
	call := func(i int, namespace, text string) error {
		_, err := sets[i%3].Generate(llm.WithCaller(ctx, namespace), llm.Request{Messages: []llm.Message{{Role: llm.User, Content: text}}, MaxOutputTokens: 120})
		return err
	}
	from := time.Now()
	for i := range loud {
		busy.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				_ = call(i, "loud", []string{"short", "long"}[n%2])
			}
		})
	}
	var m Measured
	for i := 0; time.Since(from) < time.Duration(intervals+1)*interval; i++ {
		began := time.Now()
		if err := call(i, "quiet", "short"); err != nil {
			t.Errorf("a call of the quiet namespace: %v", err)
		}
		wait := time.Since(began) - interval/100
		m.QuietWaitMax = max(m.QuietWaitMax, wait)
		m.QuietWaitMean += (wait - m.QuietWaitMean) / time.Duration(i+1)
	}
	uses := server.Meter().Uses()
	var requests, tokens int64
	for _, u := range uses {
		if at := u.At.Sub(from); at >= interval && at < time.Duration(intervals+1)*interval {
			requests, tokens = requests+1, tokens+u.Tokens
		}
	}
	m.Calls, m.Refused = len(uses), server.Meter().Refused()
	m.MostRequests, m.MostTokens = fakellm.Most(uses, interval)
	if n := limits.RequestsPerMinute * int64(intervals); n > 0 {
		m.RequestsUsed = float64(requests) / float64(n)
	}
	if n := limits.TokensPerMinute * int64(intervals); n > 0 {
		m.TokensUsed = float64(tokens) / float64(n)
	}
	return m
}

func load(t *testing.T, d Driver) {
	const interval = 6 * time.Second
	limits := llm.AccountLimits{TokensPerMinute: 12_000}
	m := Load(t, d, limits, interval, 2, 300)
	t.Logf("%+v", m)
	require.LessOrEqual(t, m.MostTokens, limits.TokensPerMinute)
	require.Zero(t, m.Refused)
	// How much is used and how long the quiet one waits depends on the machine: BenchmarkMinutes measures it.
	// This finds a quiet one that waits for the loud one to end.
	require.Greater(t, m.TokensUsed, 0.4)
	require.Less(t, m.QuietWaitMax, 2*interval)
}
