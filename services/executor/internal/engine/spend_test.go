package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
	"github.com/epigraph-run/epigraph/workgraph"
)

// boundPurse has room for so many calls of each run, or more once it is raised.
type boundPurse struct {
	mu       sync.Mutex
	room     int
	taken    map[string]map[outbox.Entry]bool
	released map[string]int
	asked    map[string]int
	// releasing is called with each call that is given back, unless it is nil.
	releasing func(outbox.Entry)
}

func newPurse() *boundPurse {
	return &boundPurse{taken: map[string]map[outbox.Entry]bool{}, released: map[string]int{}, asked: map[string]int{}}
}

func (p *boundPurse) set(room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room = room
}

func (p *boundPurse) Try(_ context.Context, _ string, c purse.Call) (purse.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := c.Entry
	call.Time = time.Time{}
	if p.taken[call.RunID] == nil {
		p.taken[call.RunID] = map[outbox.Entry]bool{}
	}
	if len(p.taken[call.RunID]) >= p.room && !p.taken[call.RunID][call] {
		return p.refusal(), nil
	}
	p.taken[call.RunID][call] = true
	return purse.Answer{Capped: true}, nil
}

func (p *boundPurse) refusal() purse.Answer {
	return purse.Answer{Capped: true, Refusal: &purse.Refusal{Budget: "epic/ep_1", Reason: "BUDGET_EXCEEDED", Message: "a call of up to 7 tokens does not fit"}}
}

func (p *boundPurse) Room(_ context.Context, _ string, call purse.Call) (purse.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[call.RunID]++; call.OutputTokens != 7 || call.Model != "m" || call.Node == "" || call.Attempt != 1 {
		return purse.Answer{Refusal: &purse.Refusal{Message: "it is another call"}}, nil
	}
	if len(p.taken[call.RunID]) >= p.room {
		return p.refusal(), nil
	}
	return purse.Answer{Capped: true}, nil
}

func (p *boundPurse) Release(_ string, call outbox.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released[call.RunID]++; p.releasing != nil {
		p.releasing(call)
	}
}

func (p *boundPurse) of(m map[string]int, id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return m[id]
}

func TestCapsAbove(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		p := newPurse()
		idle := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "REFUSED", "the server was not reached")
		})
		l := run(t, s, actors{"spend": &spender{}, "idle": idle}, func(c *engine.Config, d *engine.Deps) {
			c.EvictAfter = 50 * time.Millisecond
			d.Claims, d.Purse = books{}, p
			d.MostUsed = func(s *workgraph.Start) (workgraph.Usage, bool) {
				return workgraph.Usage{Model: "m", OutputTokens: 7}, true
			}
		})
		l.jobs(t)
		capped := func(t *testing.T, id string) journal.Run {
			t.Helper()
			row := l.evicted(t, id, journal.StatePaused)
			require.Equal(t, workgraph.ReasonCap, row.Reason)
			return row
		}
		t.Run("Run/IsEvictedAndGoesOnOnceThereIsRoom", func(t *testing.T) {
			p.set(1)
			id := l.start(t, chain(3, "spend"))
			row := capped(t, id)
			require.False(t, row.WakeTime.IsZero())
			require.Len(t, attemptsOf(l.events(t, id)), 2, "one is put back")
			x, err := l.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, query.BlockerBudget, x.Blockers[0].Kind)
			require.Contains(t, x.Blockers[0].Message, "a call of up to 7 tokens does not fit; `epigraph budgets set --epic ep_1 --hard-tokens N` raises the cap")
			testkit.Eventually(t, func() bool { return p.of(p.asked, id) > 1 })
			require.Equal(t, journal.StatePaused, l.row(t, id).State, "there is no room yet")
			p.set(3)
			row = l.wait(t, id, journal.StateCompleted)
			require.Equal(t, int32(3), row.Nodes.Completed)
			resumed := kinds(l.events(t, id), workgraph.RunResumed)
			require.Len(t, resumed, 1)
			require.Equal(t, workgraph.ReasonRoom, resumed[0].Reason)
			require.Zero(t, p.of(p.released, id), "what is used is settled, not released")
			l.sound(t, id)
		})
		t.Run("Call/ThatUsedNothingGivesBackWhatWasReserved", func(t *testing.T) {
			p.set(1)
			durable := make(chan int, 1)
			p.mu.Lock()
			p.releasing = func(call outbox.Entry) { durable <- len(attemptsOf(l.events(t, call.RunID))) }
			p.mu.Unlock()
			id := l.start(t, chain(1, "idle"))
			require.Equal(t, 1, <-durable, "an owner that dies before leaves it to the next one")
			l.wait(t, id, journal.StateFailed)
			require.Equal(t, 1, p.of(p.released, id))
			p.mu.Lock()
			p.releasing = nil
			p.mu.Unlock()
		})
		t.Run("Pause/OfSomebodyStays", func(t *testing.T) {
			p.set(0)
			id := l.start(t, chain(1, "spend"))
			capped(t, id)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "MINE"}))
			p.set(1)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Cancel/EndsARunThatWaitsForRoom", func(t *testing.T) {
			p.set(0)
			id := l.start(t, chain(1, "spend"))
			capped(t, id)
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		})
	})
}
