package workgraph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndLoops asks loops to end, and takes single rounds. crash restores the machine from its journal and
// from its snapshot.
func TestEndLoops(t *testing.T) {
	t.Parallel()
	round := func(t *testing.T, visits ...int) *machine {
		t.Helper()
		g := nodes(FirstArg(), "a", "b", "after").Edge("a", "b").Back("b", "a", "true").Edge("b", "after").Graph()
		for i := range g.Nodes {
			def(&g.Nodes[i].Actor, "x")
			def(&g.Nodes[i].Effect, Idempotent)
			for _, n := range visits {
				g.Nodes[i].MaxVisits = n
			}
		}
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin("1")
		m.end("a", Outcome{Values: one("1")})
		return m
	}
	last := func(m *machine, n int) (kinds []EventKind) {
		for _, ev := range m.events[len(m.events)-n:] {
			kinds = append(kinds, ev.Kind)
		}
		return kinds
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
	for reason, pause := range map[string]func(*machine) Outcome{
		"LUNCH": func(m *machine) Outcome {
			m.do(Pause{Reason: "LUNCH", Now: m.now})
			return Outcome{Values: one("2")}
		},
		"NO_PROGRESS": func(*machine) Outcome { return Outcome{Values: one("2"), Pause: "NO_PROGRESS"} },
	} {
		t.Run("Stop/ThatIsPausedGoesOnToItsEnd/"+reason, func(t *testing.T) {
			t.Parallel()
			m := round(t)
			m.end("b", pause(m))
			_, why := m.s.Status()
			require.Equal(t, reason, why)
			require.Empty(t, m.open)
			m.do(EndLoops{Reason: "enough", Now: m.now})
			require.Equal(t, []EventKind{StopRequested, RunResumed}, last(m, 2))
			m.crash()
			require.True(t, m.open[Ref{Node: "a", Visit: 2}].Stopping, "the round that was decided before")
			m.end("a", Outcome{Values: one("1")})
			m.end("b", Outcome{Values: one("2")})
			m.end("after", Outcome{Values: one("3")})
			status, _ := m.s.Status()
			require.Equal(t, StatusCompleted, status)
		})
	}
	t.Run("Stop/OfALoopAtItsLimitGivesItOneRoundMore", func(t *testing.T) {
		t.Parallel()
		m := round(t, 1)
		m.end("b", Outcome{Values: one("2")})
		_, why := m.s.Status()
		require.Equal(t, ReasonMaxVisits, why)
		m.do(EndLoops{Now: m.now})
		m.crash()
		m.end("a", Outcome{Values: one("1")})
		m.end("b", Outcome{Values: one("2")})
		m.end("after", Outcome{Values: one("3")})
		status, _ := m.s.Status()
		require.Equal(t, StatusCompleted, status)
	})
	t.Run("Stop/AgainEndsAPauseThatCameLater", func(t *testing.T) {
		t.Parallel()
		m := round(t)
		m.do(EndLoops{Now: m.now})
		m.do(Pause{Reason: "LUNCH", Now: m.now})
		m.end("b", Outcome{Values: one("2")})
		m.do(EndLoops{Now: m.now})
		require.Equal(t, []EventKind{RunResumed}, last(m, 1))
		m.end("after", Outcome{Values: one("3")})
		status, _ := m.s.Status()
		require.Equal(t, StatusCompleted, status)
	})
	t.Run("Stop/WithoutBudgetStaysPaused", func(t *testing.T) {
		t.Parallel()
		m := round(t)
		none := int64(0)
		m.do(Resume{Budget: &Budget{Tokens: &none}, Now: m.now})
		_, why := m.s.Status()
		require.Equal(t, ReasonBudget, why)
		m.do(EndLoops{Now: m.now})
		require.Equal(t, []EventKind{StopRequested}, last(m, 1))
		status, _ := m.s.Status()
		require.Equal(t, StatusPaused, status)
		require.True(t, m.s.Stopping())
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
