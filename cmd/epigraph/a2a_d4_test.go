package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// replyOf is the text of what the front agent, or who planned for it, says at the end of a task.
func replyOf(t *testing.T, task *a2a.Task) string {
	t.Helper()
	require.Equal(t, a2a.TaskStateCompleted, task.Status.State, "%+v", task.Status.Message)
	require.Len(t, task.Artifacts, 1)
	result, ok := task.Artifacts[0].Parts[0].Data().(map[string]any)
	require.True(t, ok, "%+v", task.Artifacts[0].Parts[0])
	text, _ := result["text"].(string)
	return text
}

// TestD4OverA2A has what the design of the task agent says of its handler, and of conformance, over A2A.
// What the design calls process_task is message/send: its instruction is the text, its thread_id the
// context, its id the id of the message, and the id of a task that of the run. Its statuses success,
// interrupted and failed are the states completed, input-required and failed. get_task_status is tasks/get.
// Its forward_events, and the ids that its answers repeat, have no counterpart in the protocol.
func TestD4OverA2A(t *testing.T) {
	s := newStage(t)
	source, err := os.ReadFile(orchestratorFile)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "consultant.yaml")
	source = bytes.Replace(source, []byte("name: Orchestrator\n"), []byte("name: Consultant\ntriggers: [chat]\n"), 1)
	require.NoError(t, os.WriteFile(file, source, 0o600))
	s.command(t, 0, "workflows", "create", file)
	s.command(t, 0, "workflows", "expose", "consultant")
	agent := talksTo(t, "http://"+s.d.HTTPAddr()+"/a2a/workflow/consultant")
	front := func(replies ...fakellm.Reply) { s.model.script(map[string][]fakellm.Reply{"front": replies}) }

	t.Run("D6.1/PlainAnswer", func(t *testing.T) {
		front(fakellm.Reply{Text: "There are two."})
		got := agent.ask(t, says("What are the open opportunities?"))
		require.Equal(t, "There are two.", replyOf(t, got))
		require.Len(t, s.model.calls("front"), 1, "one call of the model")
		require.Empty(t, s.toolMessages())
	})
	t.Run("D6.2/LookUp", func(t *testing.T) {
		front(fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c1", "look_up", `{"customer": "Acme"}`)}}, fakellm.Reply{Text: "Two are open."})
		require.Equal(t, "Two are open.", replyOf(t, agent.ask(t, says("What is open at Acme?"))))
		require.Len(t, s.model.calls("front"), 2)
	})
	t.Run("D6.3/APlan", func(t *testing.T) {
		s.model.script(onboarding())
		require.Equal(t, "Acme Corp is on board.", replyOf(t, agent.ask(t, says("Onboard Acme Corp"))))
		require.Len(t, s.model.calls("front"), 1, "no call of the model in the front agent after the plan")
		require.Len(t, s.model.calls("worker"), 2)
	})
	t.Run("D6.4/AnInterruptIsNoFailure", func(t *testing.T) {
		s.model.script(asking())
		asked := agent.ask(t, says("Onboard Acme Corp"))
		require.Equal(t, a2a.TaskStateInputRequired, asked.Status.State)
		require.Equal(t, "Whom do we write to?", asked.Status.Message.Parts[0].Text())
		require.Empty(t, asked.Artifacts)
		got := agent.ask(t, says("Ann", to(asked)))
		require.Equal(t, asked.ID, got.ID)
		require.Equal(t, "Acme Corp is on board.", replyOf(t, got))
		require.Equal(t, "Ann", s.prompts("worker")[2], "the very step that asked goes on with the answer")
		require.Len(t, s.model.calls("worker"), 3, "the step before is not repeated")
		require.Len(t, s.model.calls("planner"), 1)
	})
	t.Run("D4/TheNextMessageOfTheThreadAnswers", func(t *testing.T) {
		const thread = "api-0a1b2c3d-4e5f6a7"
		s.model.script(asking())
		asked := agent.ask(t, says("Onboard Acme Corp", within(thread)))
		require.Equal(t, thread, asked.ContextID, "the thread of the client's choice")
		got := agent.ask(t, says("Ann", within(thread)))
		require.Equal(t, asked.ID, got.ID)
		require.Equal(t, "Acme Corp is on board.", replyOf(t, got))
		front(fakellm.Reply{Text: "Yes, it is."})
		later := agent.ask(t, says("Is it done?", within(thread)))
		require.NotEqual(t, got.ID, later.ID, "without a question it is a message on the thread")
		require.Equal(t, "Yes, it is.", replyOf(t, later))
		told, err := json.Marshal(s.model.calls("front")[0].Messages)
		require.NoError(t, err)
		require.Contains(t, string(told), "Onboard Acme Corp")
	})
	t.Run("D6.5/AToolThatIsUnknownAndOneThatFails", func(t *testing.T) {
		front(fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c1", "look_down", `{}`)}}, fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c2", "look_up", `{}`)}}, fakellm.Reply{Text: "I cannot find it."})
		require.Equal(t, "I cannot find it.", replyOf(t, agent.ask(t, says("Do the impossible"))))
		require.Contains(t, s.toolMessages()["c1"], `there is no action "look_down"`)
		require.NotEmpty(t, s.toolMessages()["c2"])
	})
	t.Run("D6.6/TwoThreadsDoNotMix", func(t *testing.T) {
		s.model.script(asking())
		asked := agent.ask(t, says("Onboard Acme Corp"))
		front(fakellm.Reply{Text: "Hello Bob."})
		other := agent.ask(t, says("I am Bob"))
		require.Equal(t, "Hello Bob.", replyOf(t, other))
		require.NotEqual(t, asked.ContextID, other.ContextID)
		told, err := json.Marshal(s.model.calls("front")[0].Messages)
		require.NoError(t, err)
		require.NotContains(t, string(told), "Acme")
		s.model.script(map[string][]fakellm.Reply{"worker": {{Text: "sent to Ann"}}, "replan": {left("Acme Corp is on board.")}})
		require.Equal(t, "Acme Corp is on board.", replyOf(t, agent.ask(t, says("Ann", to(asked)))))
	})
	t.Run("D6.7/TheContextOfATask", func(t *testing.T) {
		s.model.script(onboarding())
		agent.ask(t, says("Onboard Acme Corp"))
		require.Contains(t, s.prompts("planner")[0], ": Onboard Acme Corp\n\nContext: They like tea.")
	})
	t.Run("D6.9/AFailureAndALaterRequest", func(t *testing.T) {
		const thread = "api-9f8e7d6c-5b4a392"
		s.model.script(map[string][]fakellm.Reply{"front": {routing()}, "planner": {{Text: "no plan"}}})
		failed := agent.ask(t, says("Onboard", within(thread)))
		require.Equal(t, a2a.TaskStateFailed, failed.Status.State)
		require.NotEmpty(t, failed.Status.Message.Parts[0].Text())
		require.NotEmpty(t, failed.Status.Message.Parts[1].Data().(map[string]any)["reason"])
		front(fakellm.Reply{Text: "Here I am."})
		require.Equal(t, "Here I am.", replyOf(t, agent.ask(t, says("Hello?", within(thread)))))
		again, err := agent.GetTask(t.Context(), &a2a.GetTaskRequest{ID: failed.ID})
		require.NoError(t, err)
		require.Equal(t, a2a.TaskStateFailed, again.Status.State, "the table of tasks keeps it")
	})
	t.Run("D6.10/ARoutingCallBesideAnother", func(t *testing.T) {
		says10 := onboarding()
		says10["front"] = []fakellm.Reply{{ToolCalls: []fakellm.ToolCall{call("c1", "look_up", `{"customer": "Acme"}`), call("c2", "task_agent", `{"task": "Onboard Acme Corp"}`)}}}
		s.model.script(says10)
		require.Equal(t, "Acme Corp is on board.", replyOf(t, agent.ask(t, says("Onboard Acme Corp"))))
		require.Len(t, s.model.calls("planner"), 1)
	})
	t.Run("D4/NoSuchTask", func(t *testing.T) {
		_, err := agent.GetTask(t.Context(), &a2a.GetTaskRequest{ID: "run_none"})
		refusedAs(t, a2a.ErrTaskNotFound, "TASK_NOT_FOUND", err)
	})
	t.Run("D4/ATaskIsNotTakenTwice", func(t *testing.T) {
		s.model.script(onboarding())
		req := says("Onboard Acme Corp")
		one, two := agent.ask(t, req), agent.ask(t, req)
		require.Equal(t, one.ID, two.ID)
		require.Len(t, s.model.calls("planner"), 1)
	})
}
