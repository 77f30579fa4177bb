package purse_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
)

// registry grants calls of tasks other than "broke", takes a while, and may be away. Calls without a
// task, and those of tasks called "free…", are not capped.
type registry struct {
	// releasing are the incarnations of those that gave back.
	releasing []int64
	mu        sync.Mutex
	away      bool
	takes     time.Duration
	// loses is set if answers are lost on their way back.
	loses bool
	record
}

// record is what a registry was asked.
type record struct {
	batches  []int
	asked    int
	released []string
	// order tells the calls of all requests, one after the other.
	order []string
}

// seen is what it was asked until now.
func (r *registry) seen() record {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.record
	c.batches, c.released, c.order = slices.Clone(c.batches), slices.Clone(c.released), slices.Clone(c.order)
	return c
}

func (r *registry) Reserve(_ context.Context, _ string, calls []purse.Call, askOnly bool) ([]purse.Answer, error) {
	r.mu.Lock()
	takes := r.takes
	r.mu.Unlock()
	time.Sleep(takes) //nolint:forbidigo // in a synctest bubble
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, errors.New("away")
	}
	if askOnly {
		r.asked += len(calls)
	} else {
		r.batches = append(r.batches, len(calls))
	}
	out := make([]purse.Answer, len(calls))
	for i, c := range calls {
		r.order = append(r.order, "reserve "+c.Node)
		if out[i].Capped = c.TaskID != "" && !strings.HasPrefix(c.TaskID, "free"); c.TaskID == "broke" {
			out[i].Refusal = &purse.Refusal{Budget: "task/broke", Reason: "BUDGET_EXCEEDED"}
		}
	}
	if r.loses {
		return nil, errors.New("lost")
	}
	return out, nil
}

// lose sets whether answers are lost on their way back.
func (r *registry) lose(loses bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses = loses
}

func (r *registry) Release(_ context.Context, _ string, calls []outbox.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return errors.New("away")
	}
	for _, c := range calls {
		r.released, r.order = append(r.released, c.Node), append(r.order, "release "+c.Node)
		r.releasing = append(r.releasing, c.Incarnation)
	}
	return nil
}

// slow sets how long an answer takes.
func (r *registry) slow(takes time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes = takes
}

func (r *registry) set(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func call(task string, n int) purse.Call {
	return purse.Call{Entry: outbox.Entry{RunID: "run", Node: strconv.Itoa(n), TaskID: task, OutputTokens: 1}}
}

func TestPurse(t *testing.T) {
	// in runs a test in a bubble, with a registry whose answers take a millisecond.
	in := func(t *testing.T, fn func(t *testing.T, r *registry, p *purse.Purse)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := &registry{takes: time.Millisecond}
			fn(t, r, purse.New(r, testkit.Logger(t)))
			synctest.Wait()
		})
	}
	try := func(t *testing.T, p *purse.Purse, task string, n int) purse.Answer {
		t.Helper()
		a, err := p.Try(t.Context(), "ns", call(task, n))
		require.NoError(t, err)
		return a
	}
	t.Run("Calls/OfOneMomentAreAskedForTogether", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			var all sync.WaitGroup
			for n := range 600 {
				all.Go(func() {
					if a, err := p.Try(t.Context(), "ns", call("task", n)); err != nil || !a.Capped || a.Refusal != nil {
						t.Errorf("%+v, %v", a, err)
					}
				})
			}
			all.Wait()
			sum := 0
			for _, n := range r.seen().batches {
				require.LessOrEqual(t, n, 256)
				sum += n
			}
			require.Equal(t, 600, sum)
			require.LessOrEqual(t, len(r.seen().batches), 5, "one request is under way, and the others gather: %v", r.seen().batches)
		})
	})
	t.Run("Uncapped/CostsOneQuestionASecond", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			for n := range 1000 {
				require.False(t, try(t, p, "", n).Capped)
			}
			require.Len(t, r.seen().batches, 1)
			time.Sleep(purse.Fresh) //nolint:forbidigo // in a synctest bubble
			try(t, p, "", 0)
			require.Len(t, r.seen().batches, 2)
			require.True(t, try(t, p, "task", 0).Capped, "another task is another question")
		})
	})
	t.Run("Refusal/IsToldAndAskedForAnew", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			for n := range 2 {
				require.Equal(t, "task/broke", try(t, p, "broke", n).Refusal.Budget)
			}
			require.Len(t, r.seen().batches, 2)
		})
	})
	t.Run("Room/ReservesNothing", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			a, err := p.Room(t.Context(), "ns", call("broke", 0))
			require.NoError(t, err)
			require.NotNil(t, a.Refusal)
			require.Empty(t, r.seen().batches)
			require.Equal(t, 1, r.seen().asked)
		})
	})
	t.Run("Away/HoldsWhatWasCappedAndNothingElse", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			require.True(t, try(t, p, "task", 0).Capped)
			require.False(t, try(t, p, "", 0).Capped)
			time.Sleep(2 * purse.Fresh) //nolint:forbidigo // in a synctest bubble
			r.set(true)
			require.Equal(t, purse.ReasonAway, try(t, p, "task", 1).Refusal.Reason)
			require.Nil(t, try(t, p, "", 1).Refusal)
			require.Equal(t, purse.ReasonAway, try(t, p, "new", 1).Refusal.Reason, "the namespace has caps, and nothing is known of the task")
			a, err := p.Try(t.Context(), "other", call("new", 1))
			require.NoError(t, err)
			require.Nil(t, a.Refusal, "the namespace has no caps")
			r.set(false)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Nil(t, try(t, p, "task", 1).Refusal)
		})
	})
	t.Run("Away/LeavesNoRoomForWhatWasRefused", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.set(true)
			for range 2 { // asked, and not asked again at once
				a, err := p.Room(t.Context(), "ns", call("new", 0))
				require.NoError(t, err)
				require.Equal(t, purse.ReasonAway, a.Refusal.Reason, "an executor that knows of no cap knows that there was one")
			}
		})
	})
	t.Run("Away/IsAskedOnceASecond", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.set(true)
			begin := time.Now()
			for n := range 1000 {
				try(t, p, "task", n)
			}
			require.Less(t, time.Since(begin), 10*time.Millisecond)
		})
	})
	t.Run("Caller/ThatGivesUpLeavesNothingReserved", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			cause := errors.New("canceled")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Microsecond, cause)
			defer cancel()
			_, err := p.Try(ctx, "ns", call("task", 7))
			require.ErrorIs(t, err, cause)
			time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
			require.Equal(t, []string{"7"}, r.seen().released)
		})
	})
	t.Run("Release/WaitsForARegistryThatIsAway", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			try(t, p, "task", 7)
			r.set(true)
			p.Release("ns", call("task", 7).Entry)
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Empty(t, r.seen().released)
			r.set(false)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Equal(t, []string{"7"}, r.seen().released)
		})
	})
	t.Run("Release/ByALaterOwnerIsNotReplacedByAnEarlierOne", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.set(true)
			for _, incarnation := range []int64{1, 2, 1} {
				e := call("task", 7).Entry
				e.Incarnation = incarnation
				p.Release("ns", e)
			}
			time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
			r.set(false)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Equal(t, []int64{2}, r.releasing)
		})
	})
	t.Run("Release/ComesBeforeTheSameCallIsAskedForAgain", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			try(t, p, "task", 7)
			var first sync.WaitGroup
			first.Go(func() { _, _ = p.Try(t.Context(), "ns", call("task", 1)) })
			synctest.Wait()
			p.Release("ns", call("task", 7).Entry)
			try(t, p, "task", 7)
			first.Wait()
			require.Equal(t, []string{"reserve 7", "reserve 1", "release 7", "reserve 7"}, r.seen().order)
		})
	})
	t.Run("Runs/WithBudgetsAreAlwaysAskedFor", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			require.False(t, try(t, p, "", 0).Capped)
			bounded := call("", 1)
			bounded.Runs = []purse.RunBudget{{RunID: "parent"}}
			_, err := p.Try(t.Context(), "ns", bounded)
			require.NoError(t, err)
			require.Len(t, r.seen().batches, 2, "the task is not capped, and the run is")
			r.set(true)
			a, err := p.Try(t.Context(), "ns", bounded)
			require.NoError(t, err)
			require.Equal(t, purse.ReasonAway, a.Refusal.Reason)
			r.set(false)
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
		})
	})
	t.Run("Answer/ThatIsLostLeavesNothingReserved", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			try(t, p, "task", 1)
			r.lose(true)
			require.Equal(t, purse.ReasonAway, try(t, p, "task", 7).Refusal.Reason)
			r.lose(false)
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Equal(t, []string{"7"}, r.seen().released)
		})
	})
	t.Run("Answer/ThatIsLostKeepsWhatACallIsMadeWith", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.lose(true)
			a := try(t, p, "task", 7)
			require.Nil(t, a.Refusal, "no cap is known")
			require.True(t, a.Capped, "something may be reserved, and is given back if the call uses nothing")
			r.lose(false)
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Empty(t, r.seen().released)
		})
	})
	t.Run("Release/ThatIsNotAnsweredComesBeforeTheCallIsAskedForAgain", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			try(t, p, "task", 7)
			r.set(true)
			p.Release("ns", call("task", 7).Entry)
			require.Equal(t, purse.ReasonAway, try(t, p, "task", 7).Refusal.Reason)
			r.set(false)
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
			require.Nil(t, try(t, p, "task", 7).Refusal)
			require.Equal(t, []string{"reserve 7", "release 7", "reserve 7"}, r.seen().order)
		})
	})
	t.Run("Tasks/ThatAreForgottenCountAsCapped", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.slow(0)
			try(t, p, "task", 0)
			for n := range 110_000 {
				_, err := p.Try(t.Context(), "ns", call("free"+strconv.Itoa(n), n))
				require.NoError(t, err)
			}
			r.set(true)
			time.Sleep(2 * purse.Fresh) //nolint:forbidigo // in a synctest bubble
			free := func(task int) purse.Answer { return try(t, p, "free"+strconv.Itoa(task), 0) }
			require.NotNil(t, free(0).Refusal)
			require.Nil(t, free(109_999).Refusal)
			r.set(false)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
		})
	})
	t.Run("Namespaces/ThatAreForgottenCountAsCapped", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.slow(0)
			for n := range 5000 {
				_, err := p.Try(t.Context(), strconv.Itoa(n), call("task", 0))
				require.NoError(t, err)
			}
			r.set(true)
			time.Sleep(2 * purse.Fresh) //nolint:forbidigo // in a synctest bubble
			for n := range 5000 {
				a, err := p.Try(t.Context(), strconv.Itoa(n), call("task", 0))
				require.NoError(t, err)
				require.NotNil(t, a.Refusal, "namespace %d", n)
			}
			r.set(false)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
		})
	})
	t.Run("Namespace/ThatWaitsHoldsUpNoOther", func(t *testing.T) {
		in(t, func(t *testing.T, r *registry, p *purse.Purse) {
			r.slow(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := p.Try(ctx, "slow", call("task", 1))
			require.Error(t, err)
			r.slow(time.Millisecond)
			begin := time.Now()
			try(t, p, "task", 2)
			require.Less(t, time.Since(begin), 10*time.Millisecond)
			time.Sleep(2 * time.Second) //nolint:forbidigo // in a synctest bubble
		})
	})
}
