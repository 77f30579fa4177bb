package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// of applies an event of another run.
func (s *story) of(run string, ev *executorv1.RunEvent) string {
	ev.Time, ev.RunId = timestamppb.New(s.now), run
	return s.tree.Apply(s.st, ev)
}

func spawned(node string, ids ...string) *executorv1.RunEvent {
	return &executorv1.RunEvent{Event: &executorv1.RunEvent_ChildrenSpawned{ChildrenSpawned: &executorv1.ChildrenSpawned{Visit: ref(node, 1, 0), RunIds: ids}}}
}

// TestBelow shows what an agent does, which it does in runs below the one that is shown.
func TestBelow(t *testing.T) {
	did := func(node, actor string, e *executorv1.AttemptEnded) *executorv1.RunEvent {
		e.Visit, e.Attempt, e.Actor = ref(node, 1, 0), 1, actor
		if e.State == 0 {
			e.State = executorv1.VisitState_VISIT_STATE_COMPLETED
		}
		return ended(e)
	}
	s := newStory(graph("ask"))
	s.after(0, started("ask", 1, 1))
	s.after(0, spawned("ask", "run_2"))
	s.after(0, ended(&executorv1.AttemptEnded{Visit: ref("ask", 1, 0), Attempt: 1, State: executorv1.VisitState_VISIT_STATE_WAITING,
		Wait: &executorv1.WaitInfo{Kind: executorv1.WaitKind_WAIT_KIND_CHILDREN, ChildRunIds: []string{"run_2"}}}))
	picture := func() string { return s.tree.Render(Style{}, Frame{Now: s.now, Turn: -1, Width: 100, Height: 24}) }

	t.Run("a round of reasoning", func(t *testing.T) {
		require.Empty(t, s.of("run_2", did("begin", "loop/begin", &executorv1.AttemptEnded{})), "the loop's own steps are not shown")
		reasons := started("reason", 1, 1)
		reasons.GetAttemptStarted().Actor = "llm"
		require.Empty(t, s.of("run_2", reasons))
		require.Empty(t, s.of("run_2", &executorv1.RunEvent{Event: &executorv1.RunEvent_TokenDelta{TokenDelta: &executorv1.TokenDelta{Visit: ref("reason", 1, 0), Text: "Let me see"}}}))
		require.Contains(t, picture(), "ask  llm  waiting  for 1 child run  reason  0µs  Let me see")
		require.Equal(t, "  ↳ ask: ✓ reason  1,200→30 tok", s.of("run_2", did("reason", "llm", &executorv1.AttemptEnded{Usage: &executorv1.Usage{InputTokens: 1200, OutputTokens: 30}})))
	})
	t.Run("an action that fails", func(t *testing.T) {
		require.Equal(t, "  ↳ ask: ✗ search  TIMEOUT: no answer in 5s", s.of("run_2", did("do.search", "http", &executorv1.AttemptEnded{
			State: executorv1.VisitState_VISIT_STATE_FAILED, Error: &executorv1.RunError{Reason: "TIMEOUT", Message: "no answer in 5s"}})))
	})
	t.Run("a run deeper down asks", func(t *testing.T) {
		require.Empty(t, s.of("run_2", spawned("do.helper", "run_3")))
		question := &executorv1.InterruptOpened{InterruptId: "int_1", Visit: ref("observe", 1, 0), Prompt: &graphv1.Payload{Json: []byte(`"Which one?"`)}}
		opened := s.of("run_3", &executorv1.RunEvent{Event: &executorv1.RunEvent_InterruptOpened{InterruptOpened: question}})
		require.Equal(t, "  ↳ ask: asks: Which one?\n  `epigraph interrupts answer int_1 VALUE`", opened)
		require.Contains(t, picture(), "ask asks: Which one?\n  `epigraph interrupts answer int_1 VALUE`\n")
		s.of("run_3", &executorv1.RunEvent{Event: &executorv1.RunEvent_InterruptClosed{InterruptClosed: &executorv1.InterruptClosed{InterruptId: "int_1", Visit: ref("observe", 1, 0), By: "ada"}}})
		require.NotContains(t, picture(), "Which one?")
	})
	t.Run("text of a model cannot take the terminal over", func(t *testing.T) {
		got := s.of("run_2", did("do."+hostile, "http", &executorv1.AttemptEnded{}))
		require.NotContains(t, got, "\x1b")
		require.Equal(t, 0, strings.Count(got, "\n"))
	})
	t.Run("an unknown run", func(t *testing.T) {
		require.Empty(t, s.of("run_9", did("x", "http", &executorv1.AttemptEnded{})))
	})
}
