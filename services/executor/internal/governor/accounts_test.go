package governor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// two is a store of two accounts. Exchanges about "a" fail by a function while there is one.
type two struct {
	*memory
	a *memory

	mu    sync.Mutex
	fault func(context.Context) error
	tries int
}

func (s *two) Exchange(ctx context.Context, owner journal.Owner, ask governor.Ask) (governor.Answer, error) {
	if ask.Account != "a" {
		return s.memory.Exchange(ctx, owner, ask)
	}
	s.mu.Lock()
	fault := s.fault
	s.tries++
	s.mu.Unlock()
	if fault != nil {
		return governor.Answer{}, fault(ctx)
	}
	return s.a.Exchange(ctx, owner, ask)
}

func TestTheFaultOfOneAccountStopsNoOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault func(context.Context) error
		tries int // at most, in a minute
	}{
		"ItsRowCannotBeRead": {func(context.Context) error { return errors.New("read account a: a newer form") }, 70},
		"ItsRowIsLocked":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				empty := func() *memory {
					return &memory{turns: map[string]int64{}, standings: map[string]governor.Standing{}}
				}
				store := &two{memory: empty(), a: empty(), fault: tt.fault}
				g := governor.New(store, governor.Options{})
				g.Gate(nil).(sched.SessionGate).Begin(journal.Owner{ID: "x0", Incarnation: 1})
				ctx, stop := context.WithCancel(t.Context())
				var busy sync.WaitGroup
				defer busy.Wait()
				defer stop()
				busy.Go(func() { _ = g.Run(ctx) })
				admit := func(account string) error {
					_, err := g.Admit(ctx, llm.Account{Name: account, AccountLimits: llm.AccountLimits{RequestsPerMinute: 6000}}, "n", llm.Usage{})
					return err
				}
				began := time.Now()
				ended := make(chan time.Duration, 1)
				busy.Go(func() {
					if admit("a") == nil {
						ended <- time.Since(began)
					}
				})
				synctest.Wait()
				for range 10 {
					require.NoError(t, admit("b"))
				}
				require.Less(t, time.Since(began), 2*time.Second)
				elapse(time.Minute - time.Since(began))
				store.mu.Lock()
				require.LessOrEqual(t, store.tries, tt.tries)
				require.Greater(t, store.tries, tt.tries/2)
				store.fault = nil
				store.mu.Unlock()
				require.Less(t, <-ended, 72*time.Second, "it is asked again: in a second, or after the exchange that hangs")
			})
		})
	}
}
