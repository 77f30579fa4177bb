package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// spender uses 10 tokens in every call and does not report their cost.
type spender struct{ recorder }

func (s *spender) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	out, err := s.recorder.Call(ctx, c)
	out.Usage = []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 6, OutputTokens: 4}}
	return out, err
}

func (s *spender) all() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.calls {
		n += k
	}
	return n
}

// priceList has a price of 3 nano-USD per token. Its first calls find it closed.
type priceList struct {
	mu     sync.Mutex
	closed int
}

func (p *priceList) Prices(ctx context.Context, _ string, entries []outbox.Entry) ([]*int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed > 0 {
		p.closed--
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	out := make([]*int64, len(entries))
	for i, e := range entries {
		cost := 3 * (e.InputTokens + e.OutputTokens)
		out[i] = &cost
	}
	return out, nil
}

// books is a registry, so that usage entries are made. Nothing is delivered.
type books struct{}

func (books) Claim(context.Context, string, string, string, time.Duration) (string, error) {
	return "", nil
}
func (books) Release(context.Context, string, string, string) error { return nil }

func cap64(n int64) *int64 { return &n }

func budget(b workgraph.Budget) func(*command.StartRequest) {
	return func(r *command.StartRequest) { r.Budget = &b }
}

func budgetOf(t *testing.T, row journal.Run) *workgraph.Budget {
	t.Helper()
	given, err := record.CallerDataOf(row.Metadata)
	require.NoError(t, err)
	return given.Budget
}

func TestRunBudget(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		sp := &spender{}
		g := newGate()
		inner := chain(4, "spend")
		a := actors{"spend": sp, "gate": g, "ok": &recorder{}, "spawn": spawns(workgraph.Child{Graph: inner}),
			"modest": spawns(workgraph.Child{Graph: inner, Budget: &workgraph.Budget{Tokens: cap64(15)}})}
		prices := &priceList{closed: 2}
		opt := func(c *engine.Config, d *engine.Deps) {
			c.Parallel = 1
			d.Prices, d.Claims = prices, books{}
		}
		l := run(t, s, a, opt)
		l.jobs(t)
		resume := func(id string, b workgraph.Budget) error {
			return l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Budget: &b})
		}
		spent := func(t *testing.T, id string) journal.Run {
			t.Helper()
			row := l.evicted(t, id, journal.StatePaused)
			require.Equal(t, workgraph.ReasonBudget, row.Reason)
			return row
		}
		blockers := func(t *testing.T, id string) []query.Blocker {
			t.Helper()
			x, err := l.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.NotEmpty(t, x.Blockers)
			require.Equal(t, query.BlockerBudget, x.Blockers[0].Kind, x.Summary)
			return x.Blockers
		}

		t.Run("Cap/PausesAndGoesOnWithMore", func(t *testing.T) {
			id := l.start(t, chain(4, "spend"), budget(workgraph.Budget{Tokens: cap64(20)}))
			row := spent(t, id)
			require.Equal(t, int64(20), row.Usage.InputTokens+row.Usage.OutputTokens)
			require.Equal(t, int32(2), row.Nodes.Completed)
			h := blockers(t, id)[0]
			require.Equal(t, "the run has used up its budget: 20 of 20 tokens, and holds 1 start back", h.Message)
			require.Equal(t, "`epigraph runs resume "+id+" --budget-tokens N` continues it with more than it has used", h.Hint)
			err := resume(id, workgraph.Budget{})
			require.Equal(t, workgraph.ReasonBudget, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.FailedPrecondition))
			require.Equal(t, "20", errs.From(err).Meta["used_tokens"])
			require.Equal(t, workgraph.ReasonBudget, errs.ReasonOf(resume(id, workgraph.Budget{Tokens: cap64(20)})))
			require.Equal(t, command.ReasonBudgetInvalid, errs.ReasonOf(resume(id, workgraph.Budget{Tokens: cap64(-1)})))
			req := command.ResumeRequest{Namespace: ns, RunID: id, Request: journal.Request{ID: "more", BodyHash: "a"}, Budget: &workgraph.Budget{Tokens: cap64(25)}}
			require.NoError(t, l.Resume(t.Context(), req))
			testkit.Eventually(t, func() bool { return len(attemptsOf(l.events(t, id))) == 3 })
			row = spent(t, id)
			require.Equal(t, int64(25), *budgetOf(t, row).Tokens)
			require.NoError(t, l.Resume(t.Context(), req), "it was carried out")
			require.Equal(t, row.LastSeq, l.row(t, id).LastSeq)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(1000)}))
			l.wait(t, id, journal.StateCompleted)
			evs := l.events(t, id)
			require.Len(t, kinds(evs, workgraph.RunPaused), 2)
			require.Len(t, kinds(evs, workgraph.RunResumed), 2)
			require.Len(t, attemptsOf(evs), 4)
		})
		t.Run("Money/IsPricedBeforeItCounts", func(t *testing.T) {
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(60)}))
			spent(t, id)
			require.Contains(t, blockers(t, id)[0].Message, "$0.00000006 of $0.00000006")
			require.Len(t, attemptsOf(l.events(t, id)), 2)
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(100)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Zero/StartsNothing", func(t *testing.T) {
			id := l.start(t, chain(2, "spend"), budget(workgraph.Budget{NanoUSD: cap64(0)}))
			spent(t, id)
			require.Empty(t, attemptsOf(l.events(t, id)))
			blockers(t, id)
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(1_000_000)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Wide/WhatHasNotBegunWaits", func(t *testing.T) {
			wide := &workgraph.Graph{}
			for i := range 20 {
				wide.Nodes = append(wide.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "spend"})
			}
			before := sp.all()
			id := l.start(t, wide, budget(workgraph.Budget{Tokens: cap64(25)}))
			row := spent(t, id)
			require.Equal(t, 3, sp.all()-before, "one call at a time: the third comes to the cap")
			require.Equal(t, int32(3), row.Nodes.Completed)
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: 100})
			require.NoError(t, err)
			held := 0
			for _, v := range visits {
				if v.Status == workgraph.VisitHeld {
					require.Zero(t, v.Attempts)
					held++
				}
			}
			require.Equal(t, 17, held)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(10_000)}))
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, 20, sp.all()-before, "and nothing twice")
		})
		t.Run("Running/TakesAnotherBudget", func(t *testing.T) {
			two := chain(2, "gate")
			two.Nodes[1].Actor = "spend"
			id := l.start(t, two)
			g.next(t)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(0)}))
			testkit.Eventually(t, func() bool {
				b := budgetOf(t, l.row(t, id))
				return b != nil && *b.Tokens == 0
			})
			require.Equal(t, journal.StatePaused, l.wait(t, id, journal.StatePaused).State)
			g.open <- struct{}{}
			row := spent(t, id)
			require.Equal(t, int32(1), row.Nodes.Completed, "what was in flight has ended")
			require.Len(t, kinds(l.events(t, id), workgraph.BudgetChanged), 1)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(1)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Pending/BeginsWithIt", func(t *testing.T) {
			id := l.start(t, chain(2, "spend"), budget(workgraph.Budget{Tokens: cap64(0)}), func(r *command.StartRequest) { r.StartTime = time.Now().Add(300 * time.Millisecond) })
			require.Equal(t, command.ReasonNotStarted, errs.ReasonOf(resume(id, workgraph.Budget{Tokens: cap64(5)})))
			spent(t, id)
		})
		t.Run("Fork/CopiesItOrGetsAnother", func(t *testing.T) {
			id := l.start(t, chain(2, "spend"), budget(workgraph.Budget{Tokens: cap64(10)}))
			spent(t, id)
			fork := func(b *workgraph.Budget) string {
				id, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, Budget: b})
				require.NoError(t, err)
				return id
			}
			same := fork(nil)
			l.wait(t, same, journal.StateCompleted)
			require.Equal(t, int64(10), *budgetOf(t, l.row(t, same)).Tokens, "what was taken over does not count, so it comes to its end")
			none := fork(&workgraph.Budget{Tokens: cap64(0)})
			spent(t, none)
		})
		t.Run("Children/UseTheRestOfTheirParentsBudget", func(t *testing.T) {
			parent := chain(3, "spend")
			parent.Nodes[1].Actor = "spawn"
			id := l.start(t, parent, budget(workgraph.Budget{Tokens: cap64(40)}))
			var child string
			testkit.Eventually(t, func() bool {
				x, err := l.Explain(t.Context(), ns, id)
				require.NoError(t, err)
				if len(x.Blockers) == 0 || x.Blockers[0].Kind != query.BlockerBudget {
					return false
				}
				child = x.Blockers[0].RunIDs[0]
				require.Contains(t, x.Blockers[0].Hint, "epigraph runs resume "+id)
				return true
			})
			require.Equal(t, int64(30), *budgetOf(t, spent(t, child)).Tokens)
			require.Equal(t, journal.StateWaiting, l.row(t, id).State)
			// A larger budget of the parent raises the child's.
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(45)}))
			testkit.Eventually(t, func() bool { return l.row(t, child).State == journal.StateCompleted })
			require.Equal(t, int64(35), *budgetOf(t, l.row(t, child)).Tokens)
			row := spent(t, id)
			require.Equal(t, int64(50), row.Usage.InputTokens+row.Usage.OutputTokens)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(51)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Children/OwnBudgetIsRaisedAlone", func(t *testing.T) {
			parent := chain(1, "modest")
			id := l.start(t, parent)
			var child string
			testkit.Eventually(t, func() bool {
				for _, h := range func() []query.Blocker { x, _ := l.Explain(t.Context(), ns, id); return x.Blockers }() {
					if h.Kind == query.BlockerBudget {
						child = h.RunIDs[0]
					}
				}
				return child != ""
			})
			spent(t, child)
			require.NoError(t, resume(child, workgraph.Budget{Tokens: cap64(1000)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("None/NothingIsKept", func(t *testing.T) {
			id := l.start(t, chain(2, "spend"))
			row := l.wait(t, id, journal.StateCompleted)
			require.Empty(t, row.Metadata)
			for _, ev := range l.events(t, id) {
				b, err := json.Marshal(ev.Durable.Event)
				require.NoError(t, err)
				require.NotContains(t, string(b), "budget")
			}
		})
		t.Run("Restart/IsKept", func(t *testing.T) {
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{Tokens: cap64(10)}))
			spent(t, id)
			l.stop()
			l = run(t, s, a, opt, named("next"))
			l.jobs(t)
			require.Equal(t, workgraph.ReasonBudget, errs.ReasonOf(resume(id, workgraph.Budget{})))
			blockers(t, id)
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(1000)}))
			l.wait(t, id, journal.StateCompleted)
			require.Len(t, attemptsOf(l.events(t, id)), 3)
		})
	})
}

// costly is a gate whose calls use 10 tokens.
type costly struct{ *gate }

func (c costly) Call(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
	out, err := c.gate.Call(ctx, call)
	out.Usage = []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 6, OutputTokens: 4}}
	return out, err
}

func TestPricesWhileLeaving(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		a := actors{"spend": costly{g}}
		opt := func(c *engine.Config, d *engine.Deps) {
			c.Drain = time.Minute
			d.Prices, d.Claims = &priceList{}, books{}
		}
		l := run(t, s, a, opt)
		id := l.start(t, chain(2, "spend"), budget(workgraph.Budget{NanoUSD: cap64(30)}))
		g.next(t)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			l.stop()
		}()
		// From here on the executor only waits for calls in flight.
		testkit.Eventually(t, func() bool { return l.Owner().IsZero() })
		g.open <- struct{}{}
		<-stopped
		close(g.open)
		l = run(t, s, a, opt, named("next"))
		l.jobs(t)
		testkit.Eventually(t, func() bool { return l.row(t, id).State != journal.StateRunning })
		require.Equal(t, workgraph.ReasonBudget, l.row(t, id).Reason, "what ended last counts like everything else")
	})
}
