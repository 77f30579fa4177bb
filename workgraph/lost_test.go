package workgraph

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// again ends the back-off of the only open visit.
func again(m *machine) {
	m.t.Helper()
	at, ok := m.s.NextTimer()
	require.True(m.t, ok)
	m.now = at
	m.do(TimerDue{Now: m.now})
}

func TestLost(t *testing.T) {
	t.Run("Attempt/DoesNotCountAgainstMaxAttempts", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A").Graph()))
		m.begin()
		for range MaxLost - 1 {
			m.fail("A", Lostf(Unknown, "the worker was killed"))
			require.Equal(t, VisitBackoff, m.status("A"))
			again(m)
		}
		// None of its own three attempts is used up.
		for range 2 {
			m.fail("A", Errorf(Retryable, "X", ""))
			again(m)
		}
		st := m.open[m.ref("A")]
		require.Equal(t, "run/A/1/0/3", st.EffectKey(), "losses keep the key")
		m.fail("A", Errorf(Retryable, "X", ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
	})
	t.Run("Attempt/IsPutOffByItsOwnNumber", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = Retry{Jitter: Unlimited}
		m := newMachine(t, compile(t, g))
		m.begin()
		for _, c := range []struct {
			err  *Error
			want time.Duration
		}{{Lostf(Unknown, ""), time.Second}, {Errorf(Retryable, "X", ""), time.Second}, {Lostf(Unknown, ""), 2 * time.Second}, {Errorf(Retryable, "X", ""), 2 * time.Second}} {
			m.fail("A", c.err)
			at, _ := m.s.NextTimer()
			require.Equal(t, c.want, at.Sub(m.now))
			again(m)
		}
	})
	t.Run("Attempt/PausesTheRunWhenItIsLostTooOften", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A").Graph()))
		m.begin()
		for range 2 {
			for range MaxLost {
				require.Equal(t, StatusRunning, status(m.s))
				m.fail("A", Lostf(Unknown, "the worker was killed"))
				again(m)
			}
			st, reason := m.s.Status()
			require.Equal(t, StatusPaused, st)
			require.Equal(t, ReasonCallsLost, reason)
			m.do(Resume{Now: m.now})
		}
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Unsafe/OneThatWasNotPerformedKeepsItsTry", func(t *testing.T) {
		g := nodesOf("x", nodes(FirstArg(), "U").Graph())
		g.Nodes[0].Effect, g.Nodes[0].Retry = Unsafe, Retry{MaxAttempts: 2}
		m := newMachine(t, compile(t, g))
		m.begin()
		for range 3 {
			m.do(Attempt{Ref: m.ref("U"), Attempt: m.open[m.ref("U")].Attempt, Now: m.now})
			m.do(Recover{Now: m.now})
			require.Equal(t, VisitReconciliation, m.status("U"))
			m.do(Reconcile{Ref: m.ref("U"), Err: Errorf(NotPerformed, "NO", ""), Now: m.now})
			m.do(Resume{Now: m.now})
		}
		m.fail("U", Errorf(NotPerformed, "NO", ""))
		require.Equal(t, VisitBackoff, m.status("U"), "the second of two tries is left")
	})
}

// TestLostNeverFails loses executors, workers and connections again and again. A run whose actors always
// succeed must not fail because of that.
func TestLostNeverFails(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{gen: gen{t: t}}
		g := c.graph().g
		for i := range g.Nodes {
			g.Nodes[i].Effect = rapid.SampledFrom([]Effect{Pure, Idempotent, Unsafe}).Draw(t, "effect")
			g.Nodes[i].Check = nil
			if c.chance(20, "map") {
				g.Nodes[i].Map = &Map{Over: "[1,2,3]", MaxParallel: 2}
			}
		}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err, "%s", mustJSON(g))
		c.s, c.j, c.now = New(p, "run"), &journalOf{p: p, snaps: map[int64]string{}}, time.Unix(5000, 0)
		require.NoError(t, c.do(Begin{Now: c.now}))
		killed := 0
		for c.s.End() == nil {
			switch {
			case len(c.open) > 0:
				i := c.num(0, len(c.open)-1, "pick")
				st := c.open[i]
				if !c.begin(&st) {
					c.open = append(c.open[:i:i], c.open[i+1:]...)
					continue
				}
				kill := 3
				if killed < 100 {
					kill = c.num(0, 5, "kill")
				}
				if kill == 0 { // the executor
					require.NoError(t, c.do(Recover{Now: c.now}))
					snap, err := c.s.Snapshot()
					require.NoError(t, err)
					c.s, err = Restore(t.Context(), p, snap)
					require.NoError(t, err)
					c.open = c.s.Outstanding()
					killed++
					continue
				}
				c.open = append(c.open[:i:i], c.open[i+1:]...)
				end := Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: &Outcome{Values: []json.RawMessage{json.RawMessage("1")}}, Now: c.now}
				if kill < 3 { // the worker, or the connection to it
					end.Outcome, end.Err = nil, Lostf(Unknown, "killed")
					killed++
				}
				require.NoError(t, c.do(end))
			case c.s.unknown > 0:
				c.s.Visits(func(v VisitInfo) bool {
					if v.Status == VisitReconciliation {
						require.NoError(t, c.do(Reconcile{Ref: v.Ref, Err: Errorf(NotPerformed, "NO", ""), Now: c.now}))
					}
					return v.Status != VisitReconciliation
				})
			default:
				if at, ok := c.s.NextTimer(); ok {
					c.now = at
					require.NoError(t, c.do(TimerDue{Now: c.now}))
				}
				if c.s.paused && c.s.unknown == 0 {
					require.NoError(t, c.do(Resume{Now: c.now}))
				}
			}
		}
		if end := c.s.End(); end.Status == StatusFailed { // because of the graph itself
			require.Contains(t, []string{ReasonQuorumUnreachable, ReasonPassDownFailed, ReasonConditionFailed}, end.Error.Reason, "%v\ngraph %s", end, mustJSON(g))
		}
		c.j.check(t, "run")
	})
}

func status(s *State) Status {
	st, _ := s.Status()
	return st
}
