package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// barrier lets its callers go on when so many are there. Fewer wait until their call is canceled.
type barrier struct {
	mu      sync.Mutex
	waiting int
	open    chan struct{}
}

func (b *barrier) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	b.mu.Lock()
	if b.waiting--; b.waiting == 0 {
		close(b.open)
	}
	b.mu.Unlock()
	select {
	case <-b.open:
	case <-ctx.Done():
		return workgraph.Outcome{}, ctx.Err()
	}
	raw, err := json.Marshal("from " + strings.TrimPrefix(c.Node, "speak."))
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
}

// TestC4Engine has the cases of the Go port of the agent framework that need an engine.
func TestC4Engine(t *testing.T) {
	t.Parallel()
	t.Run("Concurrent/AgentsOverlap", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		m := &member{}
		l := run(t, s, teams(t, s, actors{"says": m, "meets": &barrier{waiting: 3, open: make(chan struct{})}}))
		over := l.over(t, l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "split", "actor": "says"}, {"name": "a", "actor": "meets"}, {"name": "b", "actor": "meets"}, {"name": "c", "actor": "meets"},
			{"name": "all", "actor": "says", "hears": [{"from": "a"}, {"from": "b"}, {"from": "c"}]}],
			"transitions": [{"from": "split", "to": "a"}, {"from": "split", "to": "b"}, {"from": "split", "to": "c"}, {"from": "a", "to": "all"}, {"from": "b", "to": "all"}, {"from": "c", "to": "all"}]}}`)))
		require.Equal(t, 3, over.Turns, "the three spoke in one turn: none of them could go on without the others")
		require.Equal(t, []string{"user: hello", "split: from split", "a: from a", "b: from b", "c: from c", "all: from all"}, l.said(t, over.ThreadID))
		heard := m.all()
		for _, text := range []string{"from a", "from b", "from c"} {
			require.Contains(t, heard[1], text)
		}
		require.NotContains(t, heard[1], "hello", "it hears these alone")
	})
	t.Run("Checkpoint/ResumedTwiceIsRefusedTheSecondTime", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		m := &member{}
		l := run(t, s, teams(t, s, actors{"says": m}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
		l.jobs(t)
		id := l.start(t, teamOf(t, `{"task": "hello", `+strings.Replace(ring, `{"max_messages": 5}`, `{"any": [{"max_messages": 3, "pause": true}, {"expr": "named.messages == 6"}]}`, 1)+`}`))
		l.evicted(t, id, journal.StateWaiting)
		child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
		require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
		require.Equal(t, "EXPRESSION", l.over(t, id).Stop.Reason)
		spoke := m.all()
		err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID})
		require.True(t, errs.Is(err, errs.FailedPrecondition), "got %v", err)
		require.Equal(t, spoke, m.all(), "nobody spoke again")
	})
	t.Run("ForgedAnswer/TheQuestionStaysOpen", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`), Schema: json.RawMessage(`{"enum": ["yes", "no"]}`)}})
		l := run(t, s, teams(t, s, actors{"says": &member{}, "ask": asks}))
		id := l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "ask"}, {"name": "b", "actor": "says"}], "transitions": [{"from": "a", "to": "b"}]}}`))
		open := l.questions(t, id, 1)
		for name, forged := range map[string]command.AnswerRequest{
			"of no question":           {Namespace: ns, InterruptID: "int_01h455vb4pex5vsknk084sn02q", Answer: json.RawMessage(`"yes"`)},
			"of another namespace":     {Namespace: "mallory", InterruptID: open[0].ID, Answer: json.RawMessage(`"yes"`)},
			"that the schema does not": {Namespace: ns, InterruptID: open[0].ID, Answer: json.RawMessage(`"perhaps"`)},
		} {
			_, err := l.Answer(t.Context(), forged)
			require.Error(t, err, name)
			require.Len(t, l.questions(t, id, 1), 1, name)
		}
		l.answer(t, open)
		require.Equal(t, "b", l.over(t, id).From)
		_, err := l.Answer(t.Context(), command.AnswerRequest{Namespace: ns, InterruptID: open[0].ID, Answer: json.RawMessage(`"no"`)})
		require.Error(t, err, "it was answered")
	})
}
