package workgraph

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIntentNamesTheKeyOfItsCall(t *testing.T) {
	t.Parallel()
	// intend records the intent of the open call and compares its key with that of the call.
	intend := func(t *testing.T, m *machine, ref Ref) string {
		t.Helper()
		st := m.open[ref]
		m.do(Attempt{Ref: ref, Attempt: st.Attempt, Now: m.now})
		ev := m.events[len(m.events)-1]
		require.Equal(t, AttemptStarted, ev.Kind)
		require.Equal(t, st.EffectKey(), EffectKey(st.RunID, ev.Ref, ev.Generation))
		return st.EffectKey()
	}
	unsafe := func(t *testing.T, change func(*Graph)) *machine {
		t.Helper()
		g := nodesOf("x", nodes(FirstArg(), "U").Graph())
		g.Nodes[0].Effect = Unsafe
		change(g)
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin("[1,2]")
		return m
	}
	u := Ref{Node: "U", Visit: 1}
	t.Run("First", func(t *testing.T) {
		m := unsafe(t, func(*Graph) {})
		require.Equal(t, "run/U/1/0/1", intend(t, m, u))
	})
	t.Run("NotPerformedAndTriedAgain", func(t *testing.T) {
		m := unsafe(t, func(g *Graph) { g.Nodes[0].Retry.MaxAttempts = 3 })
		intend(t, m, u)
		m.fail("U", Errorf(NotPerformed, "NO_WORKER", ""))
		m.now = m.now.Add(time.Minute)
		m.do(TimerDue{Now: m.now})
		require.Equal(t, 2, m.open[u].Attempt)
		require.Equal(t, "run/U/1/0/1", intend(t, m, u))
	})
	t.Run("LostAndReconciledAsNotPerformed", func(t *testing.T) {
		m := unsafe(t, func(*Graph) {})
		intend(t, m, u)
		m.do(Recover{Now: m.now})
		m.do(Reconcile{Ref: u, Err: Errorf(NotPerformed, "NO", ""), Now: m.now})
		m.do(Resume{Now: m.now})
		require.Equal(t, "run/U/1/0/1", intend(t, m, u))
	})
	t.Run("Item", func(t *testing.T) {
		m := unsafe(t, func(g *Graph) { g.Nodes[0].Map = &Map{Over: "args[0]"} })
		require.Equal(t, "run/U/1/2/1", intend(t, m, Ref{Node: "U", Visit: 1, Item: 2}))
	})
	t.Run("Round", func(t *testing.T) {
		m := unsafe(t, func(g *Graph) {
			g.Edges = append(g.Edges, Edge{From: "U", To: "U", Kind: BackEdge, When: "visit < 2"})
		})
		intend(t, m, u)
		m.end("U", Outcome{Values: one(`1`)})
		require.Equal(t, "run/U/2/0/1", intend(t, m, Ref{Node: "U", Visit: 2}))
	}) // Nothing else changes the generation of an UNSAFE call, since a definite failure ends its visit.
	t.Run("AmendedAfterARetryableError", func(t *testing.T) {
		m := unsafe(t, func(g *Graph) { g.Nodes[0].Effect, g.Nodes[0].Retry.MaxAttempts = Idempotent, 3 })
		m.fail("U", Errorf(Retryable, "BUSY", ""))
		m.amend(Patch{PutNodes: []Node{put("U", func(n *Node) { n.Effect = Unsafe })}})
		require.Equal(t, "run/U/1/0/3", intend(t, m, u))
	})
	t.Run("Replay/GoesOnUnderTheKeyOfTheIntent", func(t *testing.T) {
		m := unsafe(t, func(*Graph) {})
		intend(t, m, u)
		s := New(m.p, "run")
		for _, ev := range m.events {
			if ev.Kind == AttemptStarted {
				ev.Generation = 7 // as a machine with another way of counting may have recorded it
			}
			_, err := s.Apply(t.Context(), ev)
			require.NoError(t, err)
		}
		require.Equal(t, "run/U/1/0/7", s.Outstanding()[0].EffectKey())
	})
}
