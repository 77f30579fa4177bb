package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestAgentSignals stops and forks agents whose turns end by signals.
func TestAgentSignals(t *testing.T) {
	t.Parallel()
	const (
		working   = `{"role": "assistant", "tool_calls": [{"id": "1", "name": "work", "arguments": {}}]}`
		signaling = `{"role": "assistant", "tool_calls": [{"id": "2", "name": "ask", "arguments": {}}, {"id": "3", "name": "route", "arguments": {"task": "more"}}]}`
		alone     = `{"role": "assistant", "tool_calls": [{"id": "3", "name": "route", "arguments": {"task": "more"}}]}`
		signals   = `[{"name": "route", "arguments": {"task": "more"}}]`
		named     = `"goal": "x", "form": "tools", "reasoner": "reasoner", "actions": {"work": {}, "ask": {}}, "signals": {"route": {}}`
	)
	eachStore(t, func(t *testing.T, s store) {
		r := &reasoner{}
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		l := run(t, s, agents(t, s, actors{"reasoner": r, "work": &recorder{}, "ok": &recorder{}, "ask": asks}), func(*engine.Config, *engine.Deps) {})
		l.jobs(t)
		stop := func(t *testing.T, id string) {
			t.Helper()
			require.NoError(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: id, Reason: "enough"}))
		}
		// paused is the agent's run once it is paused for the reason.
		paused := func(t *testing.T, id, reason string) journal.Run {
			t.Helper()
			testkit.Eventually(t, func() bool { return len(l.below(t, id, journal.StatePaused, reason)) == 1 })
			return l.child(t, id)
		}
		// message is the result of an agent's run.
		message := func(t *testing.T, row journal.Run) (text string, calls []string, signals, thread string) {
			t.Helper()
			var m struct {
				Text    string          `json:"text"`
				Calls   []string        `json:"calls"`
				Signals json.RawMessage `json:"signals"`
				Thread  string          `json:"thread_id"`
			}
			require.NoError(t, json.Unmarshal(row.Result, &m), "%s", row.Result)
			return m.Text, m.Calls, string(m.Signals), m.Thread
		}
		t.Run("Stop/ASignalBeforeItCounts", func(t *testing.T) {
			r.script = []string{signaling}
			id := l.start(t, agentOf(t, `{`+named+`}`))
			q := l.questions(t, id, 1)
			stop(t, id)
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `{"text": "", "signals": `+signals+`}`, string(l.child(t, id).Result))
		})
		t.Run("Stop/ASignalAfterItDoesNot", func(t *testing.T) {
			r.script = []string{working, alone}
			id := l.start(t, agentOf(t, `{`+named+`, "as_message": true, "step_by_step": true}`))
			paused(t, id, agent.ReasonStep)
			stop(t, id) // which the agent goes on for
			l.wait(t, id, journal.StateCompleted)
			text, calls, raised, _ := message(t, l.child(t, id))
			require.Equal(t, []any{"done do.work", []string{"work"}, "[]"}, []any{text, calls, raised})
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2"}, l.remembered(t, l.child(t, id)), "and is answered all the same")
		})
		t.Run("Fork/KnowsWhatWasCalledBefore", func(t *testing.T) {
			r.script = []string{working, alone}
			id := l.start(t, agentOf(t, `{`+named+`, "as_message": true}`))
			l.wait(t, id, journal.StateCompleted)
			was := l.child(t, id)
			_, calls, raised, first := message(t, was)
			require.Equal(t, []string{"work"}, calls)
			require.JSONEq(t, signals, raised)
			r.script[1] = `{"role": "assistant", "content": "over"}`
			again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: was.ID, From: &workgraph.Ref{Node: "reason", Visit: 2}})
			require.NoError(t, err)
			text, calls, raised, second := message(t, l.wait(t, again, journal.StateCompleted))
			require.Equal(t, []any{"over", []string{"work"}, "[]"}, []any{text, calls, raised})
			require.NotEqual(t, first, second, "it goes on with a fork of the thread")
			require.Equal(t, []string{"MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2"}, l.remembered(t, l.row(t, again)))
		})
		t.Run("Budget/PausesBeforeTheSignalAndGoesOn", func(t *testing.T) {
			r.script = []string{working, alone}
			id := l.start(t, agentOf(t, `{`+named+`, "budget": {"tokens": 150}}`))
			child := paused(t, id, workgraph.ReasonBudget)
			more := int64(1000)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID, Budget: &workgraph.Budget{Tokens: &more}}))
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, fmt.Sprintf(`{"text": "", "signals": %s}`, signals), string(l.child(t, id).Result))
		})
	})
}
