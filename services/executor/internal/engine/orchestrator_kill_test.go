package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	flowactors "github.com/epigraph-run/epigraph/services/executor/internal/actor/flow"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// workflowActors are those of workflows with agents, whose model answers by what it is asked.
func workflowActors(t *testing.T, s store, model func(asked string) string) actors {
	t.Helper()
	own := actors{"llm": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		asked, err := json.Marshal(c.Named)
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(model(string(asked)))}}, err
	})}
	for _, sp := range append(flowactors.Specs(), cel.Spec(), spawn.Spec(nil)) {
		own[sp.Name] = pureActor{sp.Actor}
	}
	return teams(t, s, own)
}

// example is the graph of an example.
func example(t *testing.T, name string) *workgraph.Graph {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../../examples/workflow", name+".yaml"))
	require.NoError(t, err)
	d, faults := workflow.Read(text)
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	return g
}

// swarmModel hands over, works, and is done.
func swarmModel(asked string) string {
	switch {
	case strings.Contains(asked, "Hand over to who"):
		return `{"role": "assistant", "tool_calls": [{"id": "1", "name": "transfer_to_refunds", "arguments": {}}]}`
	case strings.Contains(asked, "I look."):
		return `{"role": "assistant", "content": "Paid. DONE"}`
	}
	return `{"role": "assistant", "content": "I look."}`
}

// orchestratorModel routes a task to a plan of two steps.
func orchestratorModel(asked string) string {
	has := func(s string) bool { return strings.Contains(asked, s) }
	switch {
	case has("You help with customers"):
		return `{"role": "assistant", "tool_calls": [{"id": "1", "name": "task_agent", "arguments": {"task": "Onboard Acme"}}]}`
	case has("Plan this task in few steps"):
		return `{"steps": [{"id": "a", "do": "account", "needs": []}, {"id": "b", "do": "welcome", "needs": ["a"]}]}`
	case has("Your step: account"):
		return `{"role": "assistant", "content": "account 7"}`
	case has("Your step: welcome"):
		return `{"role": "assistant", "content": "sent"}`
	case has("Give the steps that remain") && has("sent"):
		return `{"steps": [], "response": "Acme is on board."}`
	}
	return `{"steps": [{"id": "b", "do": "welcome", "needs": ["a"]}], "response": ""}`
}

// turningModel asks in the second step of the plan, and answers another request at once.
func turningModel(asked string) string {
	switch {
	case strings.Contains(asked, "You help with customers") && strings.Contains(asked, "What is open?"):
		return `{"role": "assistant", "content": "Two are open."}`
	case strings.Contains(asked, "Your step: welcome"):
		return `{"role": "assistant", "tool_calls": [{"id": "1", "name": "ask_user", "arguments": {"question": "Whom do we write to?"}}]}`
	}
	return orchestratorModel(asked)
}

// asksForAgent is the actor that asks in the loop of an agent.
type asksForAgent struct{ workgraph.Actor }

func (asksForAgent) Info() workgraph.ActorInfo {
	return workgraph.ActorInfo{Effect: workgraph.Pure, Internal: true}
}

// insteadOf asks for something else in place of the answers to all questions of a run, until it has ended or
// its executor is dead.
func (l *live) insteadOf(t *testing.T, id string, dead <-chan struct{}) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		select {
		case <-dead:
			return true
		default:
		}
		row, err := l.j.Head(t.Context(), ns, id)
		if err != nil || row.State.Ended() {
			return err == nil
		}
		open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 10)
		for i := 0; err == nil && i < len(open); i++ {
			_, err = l.Answer(t.Context(), command.AnswerRequest{Namespace: ns, InterruptID: open[i].ID, Instead: "What is open?"})
		}
		return false
	})
}

// An executor dies after each call of a workflow of agents, before the outcome is durable: in the team, in
// its agents, and in the sub-graph of the orchestrator. Another one goes on. It repeats the call that was
// under way, at most, and each message is said once.
func TestWorkflowKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model        func(string) string
		task, result string
		said         []string
		// begins is the node at whose first call the deaths begin; empty for all calls.
		example, begins string
	}{
		"swarm": {swarmModel, "I want my money back.", "Paid. DONE",
			[]string{"user: I want my money back.", "triage: Transferred to refunds.", "refunds: I look.", "refunds: Paid. DONE"}, "swarm", ""},
		"orchestrator": {orchestratorModel, "Onboard Acme", "Acme is on board.",
			[]string{"user: Onboard Acme", "react_agent: Routing task to plan-execute workflow: Onboard Acme", "plan_execute: Acme is on board."}, "orchestrator", ""},
		"turned": {turningModel, "Onboard Acme", "Two are open.",
			[]string{"user: Onboard Acme", "react_agent: Routing task to plan-execute workflow: Onboard Acme", "plan_execute: The user asked for something else.", "user: What is open?", "react_agent: Two are open."},
			"orchestrator", "leave"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := json.RawMessage(fmt.Sprintf("%q", c.task))
			mortal{
				open:   sqliteStore,
				actors: func(t *testing.T, s store) actors { return workflowActors(t, s, c.model) },
				uncounted: func(own actors) {
					if _, ok := own["loop/act"]; ok {
						own["loop/act"] = asksForAgent{own["loop/act"]}
					}
				},
				start: func(t *testing.T, l *live) string {
					return l.start(t, example(t, c.example), func(r *command.StartRequest) { r.Input.Named = map[string]json.RawMessage{"task": input} })
				},
				meanwhile: func(t *testing.T, l *live, id string, dead <-chan struct{}) { l.insteadOf(t, id, dead) },
				ends: func(t *testing.T, l *live, id string) {
					over := l.over(t, id)
					require.Equal(t, c.result, over.Text)
					require.Equal(t, c.said, l.said(t, over.ThreadID))
				},
				dies:   func(undead *calls) []int { return deaths(max(1, slices.Index(undead.order, c.begins)), undead.made) },
				atOnce: 1,
			}.test(t)
		})
	}
}
