package workgraph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndLoops asks loops to end, and takes single rounds. crash restores the machine from its journal and
// from its snapshot.
func TestEndLoops(t *testing.T) {
	t.Parallel()
	round := func(t *testing.T) *machine {
		t.Helper()
		g := nodes(FirstArg(), "a", "b", "after").Edge("a", "b").Back("b", "a", "true").Edge("b", "after").Graph()
		for i := range g.Nodes {
			def(&g.Nodes[i].Actor, "x")
			def(&g.Nodes[i].Effect, Idempotent)
		}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin("1")
		m.end("a", Outcome{Values: one("1")})
		return m
	}
	t.Run("Stop/FollowsNoBackEdge", func(t *testing.T) {
		t.Parallel()
		m := round(t)
		m.do(EndLoops{Reason: "enough", Now: m.now})
		require.True(t, m.s.Stopping())
		seq := m.s.Seq()
		m.do(EndLoops{Reason: "again", Now: m.now})
		require.Equal(t, seq, m.s.Seq(), "once is enough")
		m.crash()
		require.True(t, m.s.Stopping())
		m.end("b", Outcome{Values: one("2")})
		require.Empty(t, m.open[Ref{Node: "a", Visit: 2}].Node)
		require.True(t, m.open[Ref{Node: "after", Visit: 1}].Stopping, "calls are told")
		m.end("after", Outcome{Values: one("3")})
		status, _ := m.s.Status()
		require.Equal(t, StatusCompleted, status)
	})
	t.Run("Stop/LeavesItToAnActorThatSelects", func(t *testing.T) {
		t.Parallel()
		m := round(t)
		m.do(EndLoops{Now: m.now})
		out := Outcome{Values: one("2")}
		out.Select = &Select{Others: SelectNames, Names: []string{"a"}}
		m.end("b", out)
		require.True(t, m.open[Ref{Node: "a", Visit: 2}].Stopping)
	})
	t.Run("Step/PausesAfterOneRound", func(t *testing.T) {
		t.Parallel()
		m := round(t)
		m.do(Pause{Reason: "LUNCH", Now: m.now})
		m.do(Resume{Step: true, Now: m.now})
		m.crash()
		m.end("b", Outcome{Values: one("2")})
		_, reason := m.s.Status()
		require.Equal(t, ReasonStep, reason)
		m.crash()
		m.do(Resume{Now: m.now})
		m.end("a", Outcome{Values: one("1")})
		m.end("b", Outcome{Values: one("2")})
		status, _ := m.s.Status()
		require.Equal(t, StatusRunning, status, "a step is one round")
	})
}
