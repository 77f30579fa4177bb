package engine_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// decides is a reasoner that decides by its prompt.
func decides(decide func(prompt string) string) workgraph.Actor {
	return outcome(func(c *workgraph.Call) workgraph.Outcome {
		var prompt string
		_ = json.Unmarshal(c.Named["request"], &prompt) // it is always a text
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(decide(prompt))}, Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 100}}}
	})
}

// questions are the open ones of a run and all below it.
func (l *live) questions(t *testing.T, id string, n int) (out []journal.Interrupt) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		var err error
		out, err = l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 100)
		require.NoError(t, err)
		return len(out) == n
	})
	return out
}

func (l *live) answer(t *testing.T, qs []journal.Interrupt) {
	t.Helper()
	for _, q := range qs {
		l.commands(t, q.RunID, journal.CommandAnswer, record.Payload{InterruptID: q.ID, Payload: json.RawMessage(`"yes"`), By: "ada"})
	}
}

// below are the runs below a run with this state and reason.
func (l *live) below(t *testing.T, id string, state journal.State, reason string) (out []journal.Run) {
	t.Helper()
	all, err := l.j.Descendants(t.Context(), ns, id)
	require.NoError(t, err)
	for _, b := range all {
		if row := l.row(t, b.RunID); row.State == state && row.Reason == reason {
			out = append(out, row)
		}
	}
	return out
}

func TestAgentControls(t *testing.T) {
	t.Parallel()
	stop := func(t *testing.T, l *live, id string) {
		t.Helper()
		require.NoError(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: id, Reason: "enough"}))
	}
	eachStore(t, func(t *testing.T, s store) {
		work := &recorder{}
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		endless := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "ok", MaxVisits: workgraph.Unlimited}, {ID: "b", Actor: "ok", MaxVisits: workgraph.Unlimited}},
			Edges: []workgraph.Edge{{From: "a", To: "b"}, {From: "b", To: "a", Kind: workgraph.BackEdge, When: "true"}}}
		l := run(t, s, agents(t, s, actors{"work": work, "ok": &recorder{}, "ask": asks, "endless": spawns(workgraph.Child{Graph: endless}),
			"worker": decides(func(string) string { return `["work"]` }),
			"asker":  decides(func(string) string { return `["ask"]` }),
			"never":  decides(func(string) string { return `["work", "ask"]` }),
			"brancher": decides(func(prompt string) string {
				if strings.Contains(prompt, "ActionResults") {
					return `["ask"]`
				}
				return `[["work", "work"], ["work"]]`
			}),
			"manager": decides(func(prompt string) string {
				switch {
				case strings.Contains(prompt, "ActionGroup"):
					return `{"result": "joined"}`
				case strings.Contains(prompt, "asked"):
					return `{"task_status": "Completed"}`
				case strings.Contains(prompt, "ActionResults"):
					return `[{"action": "sub", "arguments": {"user_input": "ask for me"}}]`
				}
				return `[["work", "work"]]`
			}),
			"sub": decides(func(prompt string) string {
				if strings.Contains(prompt, "yes") {
					return `{"result": "asked"}`
				}
				return `["ask"]`
			}),
		}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
		l.jobs(t)
		const named = `"goal": "x", "max_rounds": 1000, "max_no_progress": 0, "actions": {"work": {}, "ask": {}}`
		t.Run("Stop/GivesTheResultsSoFar", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"reasoner": "asker", `+named+`}`))
			q := l.questions(t, id, 1)
			l.evicted(t, id, journal.StateWaiting)
			stop(t, l, id)
			stop(t, l, id)
			l.evicted(t, l.child(t, id).ID, journal.StateWaiting) // the stop is in the journal alone
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			child := l.child(t, id)
			require.JSONEq(t, `"yes"`, string(child.Result), "the round under way is done")
			require.Len(t, kinds(l.events(t, id), workgraph.StopRequested), 1)
			require.Equal(t, workgraph.ReasonParentStopped, kinds(l.events(t, child.ID), workgraph.StopRequested)[0].Reason)
			require.Equal(t, []string{"MESSAGE", "STATE 1"}, l.remembered(t, child))
			l.sound(t, child.ID)
		})
		t.Run("Stop/BeginsNoFurtherAction", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"reasoner": "never", `+strings.Replace(named, `"goal"`, `"branch": false, "goal"`, 1)+`, "step_by_step": true}`))
			l.answer(t, l.questions(t, id, 1))
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			stop(t, l, id) // which the agent goes on for
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `["done 1-work", "yes"]`, string(l.child(t, id).Result), "what was decided after the stop is not done")
			require.Equal(t, []string{"MESSAGE", "STATE 1", "STATE 2"}, l.remembered(t, child))
		})
		t.Run("Stop/ReachesBranches", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"reasoner": "brancher", `+named+`}`))
			q := l.questions(t, id, 2)
			stop(t, l, id)
			below, err := l.j.Descendants(t.Context(), ns, id)
			require.NoError(t, err)
			require.Len(t, below, 4, "the agent's run, that of its round, and the branches")
			for _, b := range below {
				testkit.Eventually(t, func() bool { return len(kinds(l.events(t, b.RunID), workgraph.StopRequested)) == 1 })
			}
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `[["yes", "yes"], "done 2-work"]`, string(l.child(t, id).Result))
		})
		t.Run("Stop/ReachesAChildThatStartsLater", func(t *testing.T) {
			g := chain(2, "endless")
			g.Nodes[0].Actor = "ask"
			id := l.start(t, g)
			q := l.questions(t, id, 1)
			stop(t, l, id)
			l.answer(t, q)
			row := l.wait(t, id, journal.StateCompleted)
			require.Contains(t, string(row.Result), `done b`)
			require.Len(t, kinds(l.events(t, l.child(t, id).ID), workgraph.StopRequested), 1)
		})
		t.Run("Stop/OfARunThatEndedIsRefused", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"))
			l.wait(t, id, journal.StateCompleted)
			require.Error(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: id}))
		})
		t.Run("Step/OneRoundAtATime", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"reasoner": "asker", `+named+`}`))
			q := l.questions(t, id, 1)
			err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Step: true})
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(err), "a step of a run that goes on")
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id}))
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Step: true}))
			for round := 1; round <= 3; round++ {
				l.answer(t, q)
				testkit.Eventually(t, func() bool {
					child = l.row(t, child.ID)
					return child.State == journal.StatePaused && child.Reason == workgraph.ReasonStep
				})
				require.Len(t, l.remembered(t, child), 1+round)
				require.Equal(t, journal.StateWaiting, l.row(t, id).State, "the run above waits")
				// On the run above or on the agent's, it is the same.
				require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: []string{id, child.ID}[round%2], Step: round < 3}))
				q = l.questions(t, id, 1)
			}
			stop(t, l, id)
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			l.sound(t, child.ID)
		})
		t.Run("Pause/ReachesAnAgentOfABranch", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"reasoner": "manager", "goal": "x", "actions": {"work": {}, "sub": {"actor": "agent", "named": {"reasoner": "sub", "actions": {"ask": {}}}}}}`))
			q := l.questions(t, id, 2)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: "LUNCH"}))
			// The agent's run, that of its round, two branches, and an agent of each.
			testkit.Eventually(t, func() bool { return len(l.below(t, id, journal.StatePaused, workgraph.ReasonParentPaused)) == 6 })
			l.answer(t, q)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `"joined"`, string(l.child(t, id).Result))
		})
	})
}

// Every limit of an agent pauses it with its work kept, and a resume goes on beyond the limit.
func TestAgentLimits(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var enough atomic.Bool
		rounds := func(n int, then string) workgraph.Actor {
			return outcome(func(c *workgraph.Call) workgraph.Outcome {
				say := `["work"]`
				if c.Visit > n {
					say = then
				}
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}, Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 100}}}
			})
		}
		capped, err := agent.Config{"capped": {Definition: `{"reasoner": "five", "actions": {"work": {}}, "max_no_progress": 0, "budget": {"tokens": 250}}`}}.Specs(nil)
		require.NoError(t, err)
		l := run(t, s, agents(t, s, actors{"agent/capped": pureActor{capped[0].Actor}, "work": &recorder{}, "ok": &recorder{}, "five": rounds(5, `{"result": "five"}`),
			"ask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}}),
			// One branch of two branches again, as long as it may.
			"deeper": decides(func(prompt string) string {
				if enough.Load() || strings.Contains(prompt, "<ActionType>flat") || strings.Contains(prompt, "ActionGroup") {
					return `{"task_status": "Completed"}`
				}
				return `[["deep", "flat"]]`
			})}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
		l.jobs(t)
		budget := func(t *testing.T, g *workgraph.Graph) {
			id := l.start(t, g)
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.Equal(t, workgraph.ReasonBudget, child.Reason)
			require.Len(t, kinds(l.events(t, child.ID), workgraph.RunPaused), 1)
			require.EqualValues(t, 300, child.Usage.InputTokens, "the call that passes the budget is the last one")
			err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID})
			require.Equal(t, workgraph.ReasonBudget, errs.ReasonOf(err))
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID, Budget: &workgraph.Budget{Tokens: cap64(1000)}}))
			row := l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `"five"`, string(l.child(t, id).Result))
			require.EqualValues(t, 600, row.Usage.InputTokens, "no round was repeated")
		}
		t.Run("Budget", func(t *testing.T) {
			budget(t, agentOf(t, `{"goal": "x", "reasoner": "five", "actions": {"work": {}}, "max_no_progress": 0, "budget": {"tokens": 250}}`))
		})
		t.Run("Budget/OfAnAgentWithAName", func(t *testing.T) {
			g := agentOf(t, `{"goal": "x", "budget": {"tokens": 1000}}`)
			g.Nodes[0].Actor = "agent/capped"
			budget(t, g)
		})
		t.Run("NoProgress", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "five", "actions": {"work": {}}, "max_no_progress": 3}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.Equal(t, agent.ReasonNoProgress, child.Reason)
			require.Len(t, l.remembered(t, child), 1+3)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `"five"`, string(l.child(t, id).Result), "the count begins anew")
		})
		t.Run("BranchDepth", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "deeper", "actions": {"deep": {"actor": "work"}, "flat": {"actor": "work"}}}`))
			var stands []journal.Run
			for depth := 5; depth <= 6; depth++ { // 5 is the default
				testkit.Eventually(t, func() bool {
					stands = l.below(t, id, journal.StatePaused, agent.ReasonBranchDepth)
					return len(stands) == 1
				})
				// For each depth the agent's run and that of its round, and the flat branch.
				all, err := l.j.Descendants(t.Context(), ns, id)
				require.NoError(t, err)
				require.Len(t, all, 1+3*depth, "depth %d", depth)
				enough.Store(depth == 6)
				require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: stands[0].ID}))
				if depth == 5 {
					testkit.Eventually(t, func() bool { return l.row(t, stands[0].ID).State != journal.StatePaused })
				}
			}
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Timeout", func(t *testing.T) {
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "five", "actions": {"work": {"actor": "ask"}}, "timeout": "3s"}`))
			row := l.wait(t, id, journal.StateFailed)
			require.Contains(t, string(row.Error), "had not ended within 3s")
			l.wait(t, l.child(t, id).ID, journal.StateCanceled)
		})
	})
}
