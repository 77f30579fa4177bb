package workgraph

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBudgetHolds runs random graphs under random budgets that are raised again and again. It checks that
// nothing starts at a cap, that the run ends as it would without one, and that every journal replays.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		spec := g.graph()
		p, err := Compile(t.Context(), spec.g, nil)
		require.NoError(t, err)
		now := time.Unix(1000, 0)
		s := New(p, "run")
		j := &journalOf{p: p, snaps: map[int64]string{}}
		limit := rapid.Int64Range(0, 20).Draw(t, "cap")
		free := g.chance(20, "without a budget")
		var b *Budget
		if !free {
			b = tokens(limit)
		}
		var open []Start
		total := int64(0)
		do := func(c Command) {
			evs, fx, err := s.Advance(c)
			require.NoError(t, err)
			j.note(t, s, evs)
			open = append(open, fx.Starts...)
			st, why := s.Status()
			if free {
				require.NotEqual(t, StatusPaused, st)
				require.Nil(t, s.Budget())
				require.Zero(t, s.Spent())
				return
			}
			require.Equal(t, total, s.Spent().Tokens)
			if total < limit {
				require.NotEqual(t, StatusPaused, st)
				return
			}
			require.Empty(t, fx.Starts, "a start at the limit, after %T", c)
			if s.End() == nil && !s.Draining() {
				require.Equal(t, []string{string(StatusPaused), ReasonBudget}, []string{string(st), why})
			}
		}
		do(Begin{Budget: b, Now: now})
		for step := 0; s.End() == nil; step++ {
			require.Less(t, step, 5000, "the run does not end")
			if st, _ := s.Status(); st == StatusPaused && (len(open) == 0 || g.chance(30, "raise")) {
				_, _, err := s.Advance(Resume{Now: now})
				require.ErrorIs(t, err, ErrBudget)
				limit = total + rapid.Int64Range(1, 20).Draw(t, "more")
				do(Resume{Budget: &Budget{Tokens: i64(limit)}, Now: now})
				continue
			}
			if at, ok := s.NextTimer(); ok && (len(open) == 0 || g.chance(50, "timer")) {
				now = at
				do(TimerDue{Now: now})
				continue
			}
			require.NotEmpty(t, open, "the run stands still: %s", mustJSON(spec.g))
			k := g.num(0, len(open)-1, "pick")
			st := open[k]
			open = append(open[:k:k], open[k+1:]...)
			if paused, _ := s.Status(); paused == StatusPaused && g.chance(30, "not begun") {
				do(Ended{Ref: st.Ref, Attempt: st.Attempt, Err: Errorf(NotPerformed, ReasonBudget, ""), Now: now})
				continue
			}
			out, ferr := g.outcome(spec.g, &st)
			n := int64(g.num(0, 5, "tokens"))
			if out != nil {
				out.Usage = used(n, -1).Usage
			} else {
				ferr.Usage = used(n, -1).Usage
			}
			total += n
			do(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: out, Err: ferr, Now: now})
		}
		j.check(t, "run")
	})
}

// TestBudgetSettles runs random graphs under caps in money while prices are often not available. It checks
// that nothing starts while usage is unsettled or the budget is used up, that the amounts are right in the
// end, and that every journal replays.
func TestBudgetSettles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		spec := g.graph()
		p, err := Compile(t.Context(), spec.g, nil)
		require.NoError(t, err)
		now := time.Unix(1000, 0)
		s := New(p, "run")
		j := &journalOf{p: p, snaps: map[int64]string{}}
		limit := rapid.Int64Range(1, 20).Draw(t, "cap")
		var open []Start
		var pending []int64
		total, mine := int64(0), false
		do := func(c Command) {
			evs, fx, err := s.Advance(c)
			require.NoError(t, err, "%T", c)
			j.note(t, s, evs)
			open = append(open, fx.Starts...)
			require.Equal(t, total, s.Spent().NanoUSD)
			require.Len(t, s.Unsettled(), len(pending))
			if s.End() != nil || s.Draining() {
				return
			}
			st, why := s.Status()
			switch {
			case mine:
				require.Equal(t, "MINE", why)
			case total >= limit || len(pending) > 0:
				require.Equal(t, StatusPaused, st)
				require.Contains(t, []string{ReasonBudget, ReasonUnsettled}, why)
				if len(pending) == 0 {
					require.Equal(t, ReasonBudget, why, "it would wait for ever")
				}
			default:
				require.Equal(t, StatusRunning, st, "after %T: %s", c, why)
			}
			if total >= limit || len(pending) > 0 || mine {
				require.Empty(t, fx.Starts, "after %T", c)
			}
		}
		do(Begin{Budget: money(limit), Now: now})
		for step := 0; s.End() == nil; step++ {
			require.Less(t, step, 5000, "the run does not end")
			if len(pending) > 0 && (len(open) == 0 || g.chance(40, "settle")) {
				n := g.num(1, len(pending), "priced")
				costs := make([]*int64, n)
				for i := range costs {
					costs[i] = i64(pending[i])
					total += pending[i]
				}
				pending = pending[n:]
				do(Settled{Costs: costs, Now: now})
				continue
			}
			if mine = mine && !s.Draining(); mine && (len(open) == 0 || g.chance(30, "go on")) {
				mine = false
				if total >= limit {
					limit = total + rapid.Int64Range(1, 20).Draw(t, "more")
				}
				do(Resume{Budget: money(limit), Now: now})
				continue
			}
			if st, why := s.Status(); st == StatusPaused && why == ReasonBudget && (len(open) == 0 || g.chance(30, "raise")) {
				limit = total + rapid.Int64Range(1, 20).Draw(t, "more")
				do(Resume{Budget: money(limit), Now: now})
				continue
			}
			if _, why := s.Status(); !s.Draining() && !mine && why != ReasonBudget && g.chance(5, "pause") {
				mine = true
				do(Pause{Reason: "MINE", Now: now})
				continue
			}
			if at, ok := s.NextTimer(); ok && (len(open) == 0 || g.chance(50, "timer")) {
				now = at
				do(TimerDue{Now: now})
				continue
			}
			require.NotEmpty(t, open, "the run stands still: %s", mustJSON(spec.g))
			k := g.num(0, len(open)-1, "pick")
			st := open[k]
			open = append(open[:k:k], open[k+1:]...)
			if why := s.BudgetBlocker(); why != "" && !s.Draining() && g.chance(30, "not begun") {
				do(Ended{Ref: st.Ref, Attempt: st.Attempt, Err: Errorf(NotPerformed, why, ""), Now: now})
				continue
			}
			out, ferr := g.outcome(spec.g, &st)
			n := int64(g.num(0, 5, "nano-usd"))
			us := used(1, n).Usage
			if g.chance(30, "unsettled") {
				us[0].CostNanoUSD, us[0].Unsettled = nil, true
				pending = append(pending, n)
			} else {
				total += n
			}
			if out != nil {
				out.Usage = us
			} else {
				ferr.Usage = us
			}
			do(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: out, Err: ferr, Now: now})
		}
		j.check(t, "run")
	})
}
