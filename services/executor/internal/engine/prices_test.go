package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// awayList is a price list that is away while its flag is set.
type awayList struct {
	priceList
	away atomic.Bool
	asks atomic.Int64
}

func (p *awayList) Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	p.asks.Add(1)
	if p.away.Load() {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	return p.priceList.Prices(ctx, namespace, entries)
}

func TestPricesAway(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		inner := chain(2, "spend")
		sp := &spender{}
		a := actors{"spend": sp, "gate": g, "spawngate": spawns(workgraph.Child{Graph: chain(1, "gate")}), "spawn": spawns(workgraph.Child{Graph: inner}, workgraph.Child{Graph: inner})}
		prices := &awayList{}
		opt := func(c *engine.Config, d *engine.Deps) {
			c.EvictAfter = 50 * time.Millisecond
			d.Prices, d.Claims = prices, books{}
		}
		l := run(t, s, a, opt)
		l.jobs(t)
		unsettled := func(t *testing.T, id string) journal.Run {
			t.Helper()
			row := l.evicted(t, id, journal.StatePaused)
			require.Equal(t, workgraph.ReasonUnsettled, row.Reason)
			return row
		}
		resume := func(id string, b workgraph.Budget) error {
			return l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Budget: &b})
		}
		// priced is the sum of the prices in a run's settlements.
		priced := func(t *testing.T, id string) (sum int64) {
			for _, ev := range kinds(l.events(t, id), workgraph.UsageSettled) {
				for _, c := range ev.Costs {
					sum += *c
				}
			}
			return sum
		}
		t.Run("Capped/IsEvictedAndContinuesByItself", func(t *testing.T) {
			prices.away.Store(true)
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(75)}))
			row := unsettled(t, id)
			require.False(t, row.WakeTime.IsZero())
			require.Equal(t, int64(10), row.Usage.InputTokens+row.Usage.OutputTokens, "the work is kept and its tokens count")
			require.Len(t, attemptsOf(l.events(t, id)), 1)
			x, err := l.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, query.BlockerBudget, x.Blockers[0].Kind)
			require.Equal(t, workgraph.ReasonUnsettled, x.Blockers[0].Name)
			require.Contains(t, x.Blockers[0].Message, "the price of 1 call")
			err = l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id})
			require.Equal(t, workgraph.ReasonUnsettled, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.Unavailable))
			free := l.start(t, chain(3, "spend"), budget(workgraph.Budget{Tokens: cap64(1000)}))
			l.wait(t, free, journal.StateCompleted)
			prices.away.Store(false)
			row = l.wait(t, id, journal.StateCompleted)
			require.Equal(t, int64(30), priced(t, id))
			evs := l.events(t, id)
			require.Len(t, attemptsOf(evs), 3)
			require.Len(t, kinds(evs, workgraph.RunResumed), 1)
			require.Equal(t, int32(3), row.Nodes.Completed)
		})
		t.Run("Cap/HoldsAllTheSame", func(t *testing.T) {
			prices.away.Store(true)
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(30)}))
			unsettled(t, id)
			prices.away.Store(false)
			testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonBudget })
			require.Len(t, attemptsOf(l.events(t, id)), 1)
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(1000)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Pause/OfSomebodyHolds", func(t *testing.T) {
			prices.away.Store(true)
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(1000)}))
			unsettled(t, id)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "MINE"}))
			require.Equal(t, "MINE", l.wait(t, id, journal.StatePaused).Reason)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonUnsettled })
			prices.away.Store(false)
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Canceled/Ends", func(t *testing.T) {
			prices.away.Store(true)
			defer prices.away.Store(false)
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(1000)}))
			unsettled(t, id)
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		})
		t.Run("Children/TheirParentLearnsOfUnpricedCalls", func(t *testing.T) {
			prices.away.Store(true)
			parent := chain(2, "spend")
			parent.Nodes[0].Actor = "spawn"
			id := l.start(t, parent, budget(workgraph.Budget{NanoUSD: cap64(1000)}))
			testkit.Eventually(t, func() bool {
				x, err := l.Explain(t.Context(), ns, id)
				require.NoError(t, err)
				return len(x.Blockers) > 0 && x.Blockers[0].Kind == query.BlockerBudget && len(x.Blockers[0].RunIDs) == 2
			})
			prices.away.Store(false)
			row := l.wait(t, id, journal.StateCompleted)
			require.Equal(t, int64(50), row.Usage.InputTokens+row.Usage.OutputTokens)
			spent := int64(0)
			for _, ev := range kinds(l.events(t, id), workgraph.ChildClosed) {
				spent += ev.Spent.NanoUSD
				for _, u := range ev.Unsettled {
					spent += 3 * (u.Usage.InputTokens + u.Usage.OutputTokens)
				}
			}
			require.Equal(t, int64(120), spent)
		})
		t.Run("FirstCap/PricesEarlierUsage", func(t *testing.T) {
			two := chain(3, "spend")
			two.Nodes[1].Actor = "gate"
			id := l.start(t, two)
			g.next(t)
			prices.away.Store(true)
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(30)}))
			testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonUnsettled })
			g.open <- struct{}{}
			unsettled(t, id)
			prices.away.Store(false)
			testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonBudget })
			require.Equal(t, int64(30), priced(t, id))
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(31)}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("FirstCap/ChildrenGetTheRestOnceItIsKnown", func(t *testing.T) {
			parent := chain(3, "spend")
			parent.Nodes[1].Actor = "spawn"
			id := l.start(t, parent)
			l.wait(t, id, journal.StateCompleted)
			// The same with children that still run.
			parent.Nodes[1].Actor = "spawngate"
			id = l.start(t, parent)
			g.next(t)
			testkit.Eventually(t, func() bool { return len(kinds(l.events(t, id), workgraph.AttemptEnded)) == 2 })
			child := kinds(l.events(t, id), workgraph.AttemptEnded)[1].Outcome.Wait.Children.Runs[0].ID
			require.NoError(t, resume(id, workgraph.Budget{NanoUSD: cap64(100)}))
			testkit.Eventually(t, func() bool {
				b := budgetOf(t, l.row(t, child))
				return b != nil && b.NanoUSD != nil && *b.NanoUSD == 70
			})
			g.open <- struct{}{}
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, journal.StateCompleted, l.row(t, child).State)
		})
		t.Run("FirstCap/TooLowForAPausedRunIsRefused", func(t *testing.T) {
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{Tokens: cap64(10)}))
			require.Equal(t, workgraph.ReasonBudget, l.evicted(t, id, journal.StatePaused).Reason)
			err := resume(id, workgraph.Budget{Tokens: cap64(1000), NanoUSD: cap64(30)})
			require.Equal(t, workgraph.ReasonBudget, errs.ReasonOf(err))
			require.Equal(t, "30", errs.From(err).Meta["used_nano_usd"])
			require.NoError(t, resume(id, workgraph.Budget{Tokens: cap64(1000), NanoUSD: cap64(91)}))
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, int64(30), priced(t, id))
		})
		t.Run("Breaker/ADeadPriceBookIsAskedOncePerPause", func(t *testing.T) {
			prices.away.Store(true)
			defer prices.away.Store(false)
			before, begun := prices.asks.Load(), time.Now()
			var all []string
			for range 20 {
				all = append(all, l.start(t, chain(2, "spend"), budget(workgraph.Budget{NanoUSD: cap64(1000)})))
			}
			for _, id := range all {
				testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonUnsettled })
			}
			// Calls that end at once may all find it away.
			require.Less(t, prices.asks.Load()-before, 20+int64(time.Since(begun)/time.Second))
			prices.away.Store(false)
			for _, id := range all {
				l.wait(t, id, journal.StateCompleted)
			}
		})
		t.Run("RequestID/WithAnotherBodyIsRefused", func(t *testing.T) {
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{Tokens: cap64(10)}))
			l.evicted(t, id, journal.StatePaused)
			req := command.ResumeRequest{Namespace: ns, RunID: id, Request: journal.Request{ID: "again", BodyHash: "a"}, Budget: &workgraph.Budget{Tokens: cap64(1000)}}
			require.NoError(t, l.Resume(t.Context(), req))
			require.NoError(t, l.Resume(t.Context(), req))
			l.wait(t, id, journal.StateCompleted)
			require.NoError(t, l.Resume(t.Context(), req), "it was carried out")
			req.Budget, req.Request.BodyHash = &workgraph.Budget{Tokens: cap64(2000)}, "b"
			require.Equal(t, journal.ReasonRequestIDReused, errs.ReasonOf(l.Resume(t.Context(), req)))
			require.Equal(t, int64(1000), *budgetOf(t, l.row(t, id)).Tokens)
			id = l.start(t, chain(1, "gate"))
			g.next(t)
			pause := command.PauseRequest{Namespace: ns, RunID: id, Reason: "one", Request: journal.Request{ID: "again", BodyHash: "a"}}
			require.NoError(t, l.Pause(t.Context(), pause))
			require.NoError(t, l.Pause(t.Context(), pause))
			pause.Reason, pause.Request.BodyHash = "other", "b"
			require.Equal(t, journal.ReasonRequestIDReused, errs.ReasonOf(l.Pause(t.Context(), pause)))
			g.open <- struct{}{}
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("HandOver/TheNextOwnerAsks", func(t *testing.T) {
			prices.away.Store(true)
			id := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(1000)}))
			evicted := l.start(t, chain(3, "spend"), budget(workgraph.Budget{NanoUSD: cap64(1000)}))
			unsettled(t, evicted)
			testkit.Eventually(t, func() bool { return l.row(t, id).Reason == workgraph.ReasonUnsettled })
			l.stop()
			prices.away.Store(false)
			l = run(t, s, a, opt, named("next"))
			l.jobs(t)
			for _, id := range []string{id, evicted} {
				l.wait(t, id, journal.StateCompleted)
				require.Equal(t, int64(30), priced(t, id))
				require.Len(t, attemptsOf(l.events(t, id)), 3)
			}
		})
	})
}

func TestBlockedAndRaised(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		l := run(t, s, actors{"gate": costly{g}, "ok": &recorder{}}, func(c *engine.Config, d *engine.Deps) {
			c.Parallel = 1
			d.Prices, d.Claims = &priceList{}, books{}
		})
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "gate"}, {ID: "b", Actor: "ok", Retry: workgraph.Retry{MaxAttempts: 1}}}},
			budget(workgraph.Budget{Tokens: cap64(100)}))
		g.next(t)
		testkit.Eventually(t, func() bool { return l.FinishBlocked(id, "b") })
		g.open <- struct{}{}
		row := l.wait(t, id, journal.StateCompleted)
		require.Equal(t, int32(2), row.Nodes.Completed)
		for _, ev := range attemptsOf(l.events(t, id)) {
			require.Nil(t, ev.Error, "the attempt that was blocked begins after all")
		}
	})
}
