package thread_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// oneLine is the store of one thread with turns in memory. crash, if set, is asked before each settlement.
type oneLine struct {
	thread.Store

	turns []thread.Turn
	runs  []string
	began map[string]bool
	crash func(thread.Turn) error
}

func (l *oneLine) NextTurn(context.Context, string, string) (thread.Line, error) {
	line := thread.Line{Thread: thread.Thread{ID: "thr_1"}, Runs: l.runs}
	for i := range l.turns {
		if l.turns[i].State == thread.TurnQueued {
			t := l.turns[i]
			line.Next, line.Began = &t, l.began[t.RunID]
			break
		}
	}
	return line, nil
}

func (l *oneLine) SettleTurn(_ context.Context, t thread.Turn) error {
	if l.crash != nil {
		if err := l.crash(t); err != nil {
			return err
		}
	}
	l.turns[t.Number-1] = t
	return nil
}

// office is thread.Runs with scripted questions; answers are the numbers of the turns that answered each.
type office struct {
	line    *oneLine
	open    []string
	answers map[string][]int64
	starts  []int64
	failed  []int64
	err     error
}

func (o *office) Failed(_ context.Context, t thread.Turn) { o.failed = append(o.failed, t.Number) }

func (o *office) Start(_ context.Context, _ thread.Thread, t thread.Turn) error {
	if o.err != nil {
		return o.err
	}
	o.starts = append(o.starts, t.Number)
	o.line.runs, o.line.began[t.RunID] = []string{t.RunID}, true
	return nil
}

func (o *office) Question(context.Context, thread.Turn, string) (string, error) {
	if len(o.open) == 0 {
		return "", nil
	}
	return o.open[0], nil
}

func (o *office) Answer(_ context.Context, t thread.Turn, id string) error {
	if n := o.answers[id]; len(n) > 0 && n[0] == t.Number {
		return nil
	}
	if len(o.open) == 0 || o.open[0] != id {
		return errs.New(errs.FailedPrecondition, "INTERRUPT_CLOSED", "closed")
	}
	o.open = o.open[1:]
	o.answers[id] = append(o.answers[id], t.Number)
	return nil
}

func TestConductor(t *testing.T) {
	t.Parallel()
	fresh := func(n int) (*oneLine, *office, func() error) {
		l := &oneLine{began: map[string]bool{}}
		for i := range n {
			l.turns = append(l.turns, thread.Turn{Number: int64(i + 1), State: thread.TurnQueued, RunID: "run_" + string(rune('a'+i))})
		}
		o := &office{line: l, answers: map[string][]int64{}}
		c := thread.NewConductor(l, o, nil, time.Now)
		return l, o, func() error { return c.Advance(t.Context(), "ns", "thr_1") }
	}
	states := func(l *oneLine) (out []thread.TurnState) {
		for _, t := range l.turns {
			out = append(out, t.State)
		}
		return out
	}
	t.Run("Turns/OneAtATime", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(3)
		require.NoError(t, advance())
		require.NoError(t, advance())
		require.Equal(t, []int64{1}, o.starts)
		l.runs = nil
		require.NoError(t, advance())
		require.Equal(t, []int64{1, 2}, o.starts)
		require.Equal(t, []thread.TurnState{thread.TurnStarted, thread.TurnStarted, thread.TurnQueued}, states(l))
	})
	t.Run("Questions/TakeTheQueueInOrder", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(3)
		o.open = []string{"int_1", "int_2"}
		require.NoError(t, advance())
		require.Equal(t, map[string][]int64{"int_1": {2}, "int_2": {3}}, o.answers)
		require.Equal(t, []thread.TurnState{thread.TurnStarted, thread.TurnAnswered, thread.TurnAnswered}, states(l))
		require.Equal(t, "run_a", l.turns[1].AskedBy)
	})
	t.Run("Crash/BetweenAnswerAndSettlementGivesNothingTwice", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(3)
		o.open = []string{"int_1", "int_2"}
		crashed := false
		l.crash = func(t thread.Turn) error {
			if t.State == thread.TurnAnswered && !crashed {
				crashed = true
				return errs.New(errs.Unavailable, "AWAY", "away")
			}
			return nil
		}
		require.Error(t, advance())
		require.NoError(t, advance())
		require.Equal(t, map[string][]int64{"int_1": {2}, "int_2": {3}}, o.answers)
	})
	t.Run("Crash/BetweenStartAndSettlementAnswersNothing", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(2)
		crashed := false
		l.crash = func(t thread.Turn) error {
			if t.State == thread.TurnStarted && !crashed {
				crashed = true
				return errs.New(errs.Unavailable, "AWAY", "away")
			}
			return nil
		}
		require.Error(t, advance())
		o.open = []string{"int_1"} // by the run that the first turn started
		require.NoError(t, advance())
		require.Equal(t, []int64{1}, o.starts)
		require.Equal(t, map[string][]int64{"int_1": {2}}, o.answers)
		require.Equal(t, []thread.TurnState{thread.TurnStarted, thread.TurnAnswered}, states(l))
	})
	t.Run("Crash/AfterTheChoiceOfAQuestionThatClosed", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(1)
		l.turns[0].InterruptID = "int_gone"
		require.NoError(t, advance())
		require.Equal(t, []int64{1}, o.starts, "nobody asks any more")
	})
	t.Run("Failure/LetsTheNextOneGo", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(2)
		o.err = errs.New(errs.InvalidArgument, "GRAPH_INVALID", "there is no such actor")
		require.NoError(t, advance())
		require.Equal(t, []thread.TurnState{thread.TurnFailed, thread.TurnFailed}, states(l))
		require.Equal(t, "there is no such actor", l.turns[0].Error)
		require.Equal(t, []int64{1, 2}, o.failed, "who wrote them is told")
	})
	t.Run("Failure/ThatPassesLeavesTheTurn", func(t *testing.T) {
		t.Parallel()
		l, o, advance := fresh(1)
		o.err = errs.New(errs.ResourceExhausted, "FULL", "no room")
		require.Error(t, advance())
		require.Equal(t, []thread.TurnState{thread.TurnQueued}, states(l))
		require.Empty(t, o.failed)
	})
}
