package workgraph

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// whys are the reasons in short form.
func whys(s *State) []string {
	var out []string
	for _, r := range s.Why(0) {
		text := fmt.Sprintf("%s %s", r.Ref, r.Cause)
		for _, on := range r.On {
			text += " " + on
		}
		if r.Need > 0 {
			text += fmt.Sprintf(" %d/%d", r.Have, r.Need)
		}
		if !r.Due.IsZero() {
			text += " +" + r.Due.Sub(time.Unix(1000, 0)).String()
		}
		if r.Note != "" {
			text += " " + r.Note
		}
		out = append(out, text)
	}
	return out
}

func TestWhy(t *testing.T) {
	t.Run("Everything/HasItsCause", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "run", "back", "kids", "ask", "task", "sig", "timer", "J", "I", "H", "after").
			Edge("run", "J").Edge("ask", "J").Edge("run", "I").Edge("J", "H").Edge("H", "H", func(e *Edge) { e.Kind = BackEdge }).Edge("H", "after").Graph(), Inbox{BatchSize: 3}, "I")
		g.Nodes[1].Retry.Jitter = Unlimited
		m := newMachine(t, compile(t, g))
		require.Empty(t, m.s.Why(0))
		m.begin()
		m.fail("back", Errorf(Retryable, "SHAKY", ""))
		kids := spawn("c1", "c2")
		kids.Wait.Children.Timeout = Duration(time.Hour)
		m.end("kids", kids)
		require.NoError(t, m.child(Ref{Node: "kids", Visit: 1}, "c1", StatusCompleted, ""))
		m.end("ask", ask("q", nil))
		m.end("task", Outcome{Wait: &Wait{Completion: &CompletionWait{}}})
		m.end("sig", Outcome{Wait: &Wait{Signal: &SignalWait{Name: "go"}}})
		m.end("timer", Outcome{Wait: &Wait{Timer: &Timer{After: Duration(time.Minute)}}})
		require.NoError(t, m.send("u", "I", "1"))
		require.Equal(t, []string{"ask INTERRUPT q", "task COMPLETION", "sig SIGNAL go", "kids CHILDREN c2 +1h0m0s", "timer TIMER +1m0s", "back BACKOFF +1s",
			"run RUNNING", "I INBOX 1/3", "J DEPENDENCY run ask", "H DEPENDENCY J", "after DEPENDENCY H"}, whys(m.s))
		require.Len(t, m.s.Why(3), 3)
		m.do(Pause{Reason: "BUDGET", Now: m.now})
		m.end("run", Outcome{})
		m.do(Answered{ID: "q", Now: m.now})
		require.Contains(t, whys(m.s), "J HELD BUDGET")
		m.do(Cancel{Now: m.now})
		require.Empty(t, m.s.Why(0))
	})
	t.Run("Reconciliation/AndLimitComeFirst", func(t *testing.T) {
		g := nodes(FirstArg(), "U", "H").Edge("H", "H", func(e *Edge) { e.Kind, e.When = BackEdge, "true" }).Graph()
		g.Nodes[0].Effect, g.Nodes[1].MaxVisits = Unsafe, 1
		m := newMachine(t, compile(t, g))
		m.begin()
		m.do(Attempt{Ref: m.ref("U"), Attempt: 1, Now: m.now})
		m.fail("U", Errorf(Unknown, "LOST", ""))
		m.end("H", Outcome{})
		require.Equal(t, []string{"U NEEDS_RECONCILIATION", "H@2 MAX_VISITS 1/2"}, whys(m.s))
	})
	t.Run("Attempts/HaveTheirLastErrorAndTheirBound", func(t *testing.T) {
		g := nodes(FirstArg(), "a", "pay").Graph()
		g.Nodes[0].Retry, g.Nodes[1].Effect = Retry{MaxAttempts: 4, Jitter: Unlimited}, Unsafe
		m := newMachine(t, compile(t, g))
		m.begin()
		of := func(node string) Reason {
			t.Helper()
			snap, err := m.s.Snapshot()
			require.NoError(t, err)
			back, err := Restore(t.Context(), m.s.p, snap)
			require.NoError(t, err)
			require.Equal(t, m.s.Why(0), back.Why(0), "a snapshot keeps it")
			for _, r := range m.s.Why(0) {
				if r.Node == node {
					return r
				}
			}
			return Reason{}
		}
		require.Equal(t, 4, of("a").Of)
		require.Nil(t, of("a").Error)
		m.fail("a", Errorf(Retryable, "SHAKY", "503"))
		require.Equal(t, []any{CauseBackoff, 2, 4, "SHAKY: 503"}, []any{of("a").Cause, of("a").Attempt, of("a").Of, of("a").Error.Error()})
		m.do(TimerDue{Now: m.now.Add(time.Hour)})
		require.Equal(t, []any{CauseRunning, 2, "SHAKY: 503"}, []any{of("a").Cause, of("a").Attempt, of("a").Error.Error()})
		m.fail("a", Lostf(Retryable, "the worker went"))
		require.Equal(t, []any{3, 5, "LOST: the worker went"}, []any{of("a").Attempt, of("a").Of, of("a").Error.Error()}, "a lost attempt does not count")
		m.fail("pay", Errorf(Unknown, "TIMEOUT", "no answer"))
		require.Equal(t, []any{CauseReconciliation, 1, 1, "TIMEOUT: no answer"}, []any{of("pay").Cause, of("pay").Attempt, of("pay").Of, of("pay").Error.Error()})
	})
	t.Run("Draining/NamesWhatIsInFlight", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()))
		m.begin()
		m.do(Cancel{Now: m.now})
		require.Equal(t, []string{"A CANCELING"}, whys(m.s))
	})
	t.Run("ManyNames/AreCounted", func(t *testing.T) {
		m := newMachine(t, compile(t, star(50, Join{})))
		m.begin()
		all := m.s.Why(1000)
		last := all[len(all)-1]
		require.Equal(t, CauseDependency, last.Cause)
		require.Len(t, last.On, maxReasonNames)
		require.Equal(t, 30, last.More)
	})
}
