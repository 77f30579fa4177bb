package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// script is a case whose plan has steps, and in which who plans again says these replies.
func script(steps []string, replan ...fakellm.Reply) map[string][]fakellm.Reply {
	return map[string][]fakellm.Reply{"front": {routing()}, "planner": {plan(steps...)}, "worker": {{Text: "done"}}, "replan": replan}
}

func reply(v map[string]any) fakellm.Reply {
	raw, _ := json.Marshal(v) // it has a JSON form
	return fakellm.Reply{Text: string(raw)}
}

// steps are what the worker was told to do, in order.
func (s stage) steps() (out []string) {
	for _, r := range s.model.calls("worker") {
		_, step, _ := strings.Cut(r.Messages[len(r.Messages)-1].Content, "Your step: ")
		out = append(out, strings.TrimSpace(step))
	}
	return out
}

// prompts are what an agent was told last, by call.
func (s stage) prompts(who string) (out []string) {
	for _, r := range s.model.calls(who) {
		out = append(out, r.Messages[len(r.Messages)-1].Content)
	}
	return out
}

// toolMessages are the answers to calls in what the front agent was told last, by the id of the call.
func (s stage) toolMessages() map[string]string {
	out := map[string]string{}
	calls := s.model.calls("front")
	for _, m := range calls[len(calls)-1].Messages {
		if m.Role == "tool" {
			out[m.ToolCallID] = m.Content
		}
	}
	return out
}

// TestD has what the design of the task agent says of the shipped graph, of its plan, of interrupts and
// of conformance, by the numbers of its parts. Other cases of them are in TestOrchestrator.
func TestD(t *testing.T) {
	s := newStage(t)
	t.Run("D1", func(t *testing.T) { routes(t, s) })
	t.Run("D2", func(t *testing.T) { plans(t, s) })
	t.Run("D3", func(t *testing.T) { escapes(t, s) })
	t.Run("D6", func(t *testing.T) { conforms(t, s) })
}

// routes has the cases of D1.
func routes(t *testing.T, s stage) {
	told := func(t *testing.T, task string) string {
		t.Helper()
		arguments, err := json.Marshal(map[string]string{"task": task})
		require.NoError(t, err)
		says := onboarding()
		says["front"] = []fakellm.Reply{{ToolCalls: []fakellm.ToolCall{call("c1", "task_agent", string(arguments))}}, {Text: "It is done."}}
		s.model.script(says)
		r := s.run(t, "Onboard them")
		s.run(t, "And now?", "--input", "thread_id="+r.ThreadID)
		return s.toolMessages()["c1"]
	}
	const said = "Routing task to plan-execute workflow: "
	t.Run("ReplyHasTheFirst100CharactersOfTheTask", func(t *testing.T) {
		require.Equal(t, said+strings.Repeat("ä", 100)+"…", told(t, strings.Repeat("ä", 150)))
	})
	t.Run("ReplyHasNoEllipsisIfThatIsAll", func(t *testing.T) {
		require.Equal(t, said+strings.Repeat("ä", 100), told(t, strings.Repeat("ä", 100)))
	})
	t.Run("OfTwoRoutingCallsTheLastWins", func(t *testing.T) {
		says := onboarding()
		says["front"] = []fakellm.Reply{{ToolCalls: []fakellm.ToolCall{call("c1", "task_agent", `{"task": "Onboard Beta", "context": "They like beer."}`),
			call("c2", "task_agent", `{"task": "Onboard Acme Corp", "context": "They like tea."}`)}}, {Text: "It is done."}}
		s.model.script(says)
		r := s.run(t, "Onboard them")
		require.Equal(t, "plan_execute", r.From)
		require.Len(t, s.model.calls("planner"), 1, "one plan")
		require.Contains(t, s.prompts("planner")[0], ": Onboard Acme Corp\n\nContext: They like tea.")
		require.NotContains(t, s.prompts("planner")[0], "beer")
		s.run(t, "And now?", "--input", "thread_id="+r.ThreadID)
		require.Equal(t, map[string]string{"c1": said + "Onboard Beta", "c2": said + "Onboard Acme Corp"}, s.toolMessages(), "each is answered")
	})
	t.Run("WithoutAResponseTheTaskIsCompleted", func(t *testing.T) {
		s.model.script(script([]string{"all"}, reply(map[string]any{"steps": []any{}})))
		require.Equal(t, "Task completed.", s.run(t, "Onboard Acme Corp").Text)
	})
}

// plans has the cases of D2.
func plans(t *testing.T, s stage) {
	t.Run("OfMoreThan50StepsTheLast30AreTold", func(t *testing.T) {
		wave := func(from int) (out []planned) {
			for n := from; n < from+20; n++ {
				out = append(out, planned{fmt.Sprintf("s%d", n), fmt.Sprintf("do %d.", n), []string{}})
			}
			return out
		}
		says := script(nil, reply(map[string]any{"steps": wave(21), "response": ""}), reply(map[string]any{"steps": wave(41), "response": ""}),
			reply(map[string]any{"steps": wave(61)[:1], "response": ""}), left("All is done."))
		says["planner"] = []fakellm.Reply{reply(map[string]any{"steps": wave(1)})}
		s.model.script(says)
		require.Equal(t, "All is done.", s.run(t, "Onboard Acme Corp").Text)
		require.Len(t, s.steps(), 61, "each step once")
		asked := s.prompts("replan")
		require.Len(t, asked, 4)
		require.Contains(t, asked[1], "Steps done: 40.")
		require.Contains(t, asked[1], `"do 1."`, "up to 50 all are told")
		require.Contains(t, asked[2], "Steps done: 60.", "the number is that of all")
		for n, want := range map[int]bool{1: false, 30: false, 31: true, 60: true} {
			require.Equal(t, want, strings.Contains(asked[2], fmt.Sprintf("do %d.", n)), "step %d", n)
		}
		require.Contains(t, asked[3], "Steps done: 61.")
		last := s.prompts("worker")[60]
		require.Contains(t, last, "Steps done so far: 60.")
		require.Contains(t, last, "do 31.")
		require.NotContains(t, last, "do 30.")
		require.Contains(t, asked[3], "do 31.", "of 31 all are told")
	})
	t.Run("AResponseWhileStepsRemainDoesNotEndThePlan", func(t *testing.T) {
		s.model.script(script([]string{"create the account", "send the welcome"}, left("All is done!"), left("Acme Corp is on board.")))
		require.Equal(t, "Acme Corp is on board.", s.run(t, "Onboard Acme Corp").Text)
		require.Equal(t, []string{"create the account", "send the welcome"}, s.steps())
	})
	t.Run("AResponseBesideAPlanDoesNotEndIt", func(t *testing.T) {
		s.model.script(script([]string{"create the account"}, left("Nearly.", "send the welcome"), left("Acme Corp is on board.")))
		require.Equal(t, "Acme Corp is on board.", s.run(t, "Onboard Acme Corp").Text)
		require.Equal(t, []string{"create the account", "send the welcome"}, s.steps())
	})
	t.Run("StepsThatAreGivenUpAreNotDone", func(t *testing.T) {
		s.model.script(script([]string{"create the account", "send the welcome"}, reply(map[string]any{"steps": []any{}, "response": "They are gone.", "abandon": true})))
		require.Equal(t, "They are gone.", s.run(t, "Onboard Acme Corp").Text)
		require.Equal(t, []string{"create the account"}, s.steps())
	})
}

// escapes has the cases of D3.
func escapes(t *testing.T, s stage) {
	// busy starts a run, and returns when the second step of its plan is under way.
	busy := func(t *testing.T) (id string) {
		t.Helper()
		says := onboarding()
		says["front"] = []fakellm.Reply{routing(), {Text: "Two are open."}}
		says["worker"] = []fakellm.Reply{{Text: "account 7"}, {Text: "sent", Delay: time.Hour}}
		s.model.script(says)
		id = s.begin(t, "Onboard Acme Corp")
		testkit.Eventually(t, func() bool { return len(s.model.calls("worker")) == 2 }, "the second step does not begin")
		return id
	}
	left := func(t *testing.T, id string) {
		t.Helper()
		r := s.result(t, id)
		require.Equal(t, "Two are open.", r.Text)
		require.Equal(t, "react_agent", r.From)
		require.Equal(t, map[string]any{"needs_plan_execute": false, "plan_execute_task": "", "plan_execute_context": ""}, r.State, "the flags are reset")
		require.Len(t, s.model.calls("replan"), 1, "the plan is over")
		require.Len(t, s.model.calls("front"), 2)
		heard := ""
		for _, m := range s.model.calls("front")[1].Messages {
			heard += m.Content + "\n"
		}
		require.Contains(t, heard, "plan_execute: The user asked for something else.")
		require.Contains(t, heard, "Never mind. What is open?")
		require.Equal(t, 1, strings.Count(heard, "Never mind."))
	}
	t.Run("TheUserLeavesAPlanThatIsUnderWay", func(t *testing.T) {
		id := busy(t)
		s.command(t, 0, "runs", "cancel", id, "--instead", "Never mind. What is open?")
		left(t, id)
	})
	t.Run("ARepeatedRequestLeavesOnce", func(t *testing.T) {
		id := busy(t)
		const body = `{"instead": "Never mind. What is open?", "requestId": "once"}`
		s.rest(t, http.MethodPost, "/v1/runs/"+id+":cancel", body, nil)
		s.rest(t, http.MethodPost, "/v1/runs/"+id+":cancel", body, nil)
		left(t, id)
		s.rest(t, http.MethodPost, "/v1/runs/"+id+":cancel", body, nil)
		status, raw := restCall(t, s.d.HTTPAddr(), http.MethodPost, "/v1/runs/"+id+":cancel", `{"instead": "And now?"}`)
		require.Equal(t, http.StatusBadRequest, status, "%s", raw)
		require.Contains(t, string(raw), "RUN_ENDED")
	})
	t.Run("AReasonIsNoRequest", func(t *testing.T) {
		id := busy(t)
		status, raw := restCall(t, s.d.HTTPAddr(), http.MethodPost, "/v1/runs/"+id+":cancel", `{"reason": "ANOTHER_REQUEST: What is open?"}`)
		require.Equal(t, http.StatusBadRequest, status, "%s", raw)
		require.Contains(t, string(raw), "REASON_INVALID")
		status, raw = restCall(t, s.d.HTTPAddr(), http.MethodPost, "/v1/runs/"+id+":cancel", `{"reason": "it is enough", "instead": "What is open?"}`)
		require.Equal(t, http.StatusBadRequest, status, "%s", raw)
		s.command(t, 0, "runs", "cancel", id)
	})
}

// conforms has the cases of D6.
func conforms(t *testing.T, s stage) {
	t.Run("4/TheNextMessageOfTheThreadAnswers", func(t *testing.T) {
		text, err := os.ReadFile(orchestratorFile)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "chatting.yaml")
		text = bytes.Replace(text, []byte("name: Orchestrator\n"), []byte("name: Chatting\ntriggers: [chat]\n"), 1)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		s.command(t, 0, "workflows", "create", file)
		s.command(t, 0, "triggers", "on", "chatting")
		s.model.script(asking())
		out, _ := s.talk(t, 0, "Onboard Acme Corp\nAnn\n", "chat", "--workflow", "chatting")
		require.Contains(t, out, "Whom do we write to?")
		require.Contains(t, out, "Acme Corp is on board.")
		require.Equal(t, "Ann", s.prompts("worker")[2], "the step that asked goes on with the message")
		require.Len(t, s.model.calls("planner"), 1, "it is the same plan")
		require.Len(t, s.model.calls("worker"), 3, "no step is done again")
	})
	t.Run("5/AToolThatFailsIsAnsweredWithTheError", func(t *testing.T) {
		s.model.script(map[string][]fakellm.Reply{"front": {{ToolCalls: []fakellm.ToolCall{call("c1", "look_up", `{}`)}}, {Text: "I cannot find it."}}})
		require.Equal(t, "I cannot find it.", s.run(t, "Do the impossible").Text)
		require.Contains(t, s.toolMessages()["c1"], "no such key: customer")
	})
	t.Run("6/AThreadWithAPlanUnderWayAndAnotherOneDoNotMix", func(t *testing.T) {
		s.model.script(asking())
		id, q := s.asked(t)
		s.model.script(map[string][]fakellm.Reply{"front": {{Text: "Hello Bob."}}})
		other := s.run(t, "I am Bob")
		require.Equal(t, "Hello Bob.", other.Text)
		all, err := json.Marshal(s.model.calls("front")[0].Messages)
		require.NoError(t, err)
		require.NotContains(t, string(all), "Acme")
		s.model.script(map[string][]fakellm.Reply{"worker": {{Text: "sent to Ann"}}, "replan": {left("Acme Corp is on board.")}})
		s.rest(t, http.MethodPost, "/v1/interrupts/"+q.ID+":answer", `{"answer": "Ann"}`, nil)
		r := s.result(t, id)
		require.Equal(t, "Acme Corp is on board.", r.Text)
		require.NotEqual(t, other.ThreadID, r.ThreadID)
		all, err = json.Marshal([]any{s.model.calls("worker"), s.model.calls("replan")})
		require.NoError(t, err)
		require.NotContains(t, string(all), "Bob")
		require.Contains(t, string(all), "account 7", "it goes on where it was")
	})
	t.Run("8/ReplanGivesAPlanOrAResponse", func(t *testing.T) {
		s.model.script(onboarding())
		require.Equal(t, "Acme Corp is on board.", s.run(t, "Onboard Acme Corp").Text)
		require.Len(t, s.model.calls("replan"), 2, "a plan goes round, a response ends")
		require.Len(t, s.model.calls("worker"), 2)
	})
	t.Run("8/AnEmptyResponseDoesNotEnd", func(t *testing.T) {
		s.model.script(script([]string{"create the account", "send the welcome"}, left(""), left(""), left("Acme Corp is on board.")))
		require.Equal(t, "Acme Corp is on board.", s.run(t, "Onboard Acme Corp").Text)
		require.Len(t, s.model.calls("replan"), 3, "it is asked until it answers")
		require.Equal(t, []string{"create the account", "send the welcome"}, s.steps(), "the plan stays, and what is done is not done again")
	})
	t.Run("9/AfterAnErrorInThePlannerALaterRequestOfTheThreadIsAnswered", func(t *testing.T) {
		s.model.script(map[string][]fakellm.Reply{"front": {{Text: "Hello."}}})
		first := s.run(t, "Hello")
		s.model.script(map[string][]fakellm.Reply{"front": {routing()}, "planner": {{Text: "no plan"}}})
		out, notes := s.command(t, 1, "workflows", "run", orchestratorFile, "--input", "task=Onboard", "--input", "thread_id="+first.ThreadID)
		require.Contains(t, out+notes, "CHILD_FAILED")
		s.answersAnew(t, func() orchestrated { return s.run(t, "Hello?", "--input", "thread_id="+first.ThreadID) })
	})
	t.Run("9/AfterACanceledPlanALaterRequestOfTheThreadIsAnswered", func(t *testing.T) {
		s.model.script(map[string][]fakellm.Reply{"front": {{Text: "Hello."}}})
		first := s.run(t, "Hello")
		says := onboarding()
		says["worker"] = []fakellm.Reply{{Text: "sent", Delay: time.Hour}}
		s.model.script(says)
		out, _ := s.command(t, 0, "workflows", "run", orchestratorFile, "--input", "task=Onboard Acme Corp", "--input", "thread_id="+first.ThreadID, "--detach")
		id := strings.TrimSpace(out)
		testkit.Eventually(t, func() bool { return len(s.model.calls("worker")) == 1 }, "the plan does not begin")
		s.command(t, 0, "runs", "cancel", id)
		s.command(t, 3, "runs", "watch", id)
		s.answersAnew(t, func() orchestrated { return s.run(t, "Hello?", "--input", "thread_id="+first.ThreadID) })
	})
	t.Run("9/AfterACanceledPlanTheNextLineOfTheChatIsAnswered", func(t *testing.T) {
		says := onboarding()
		says["front"] = []fakellm.Reply{routing(), {Text: "Here I am."}}
		says["worker"] = []fakellm.Reply{{Text: "sent", Delay: time.Hour}}
		s.model.script(says)
		var o, e bytes.Buffer
		over := make(chan int)
		go func() {
			over <- cli.Main(t.Context(), build, []string{"--addr", s.d.GRPCAddr(), "chat", "--workflow", "chatting"}, cli.IO{In: strings.NewReader("Onboard Acme Corp\nHello?\n"), Out: &o, Err: &e})
		}()
		testkit.Eventually(t, func() bool { return len(s.model.calls("worker")) == 1 }, "the plan does not begin")
		var open struct {
			Runs []struct{ ID, ParentRunID string }
		}
		s.rest(t, http.MethodGet, "/v1/runs?states=RUN_STATE_RUNNING&states=RUN_STATE_WAITING", "", &open)
		for _, r := range open.Runs {
			if r.ParentRunID == "" {
				s.command(t, 0, "runs", "cancel", r.ID)
			}
		}
		require.Equal(t, 3, <-over, "%s", e.String())
		require.Contains(t, o.String(), "Here I am.", "the new line is answered: %s", e.String())
		require.Len(t, s.model.calls("worker"), 1, "the plan is not done again")
		require.Len(t, s.model.calls("planner"), 1)
	})
}

// answersAnew scripts what is to be said after a plan that broke off, and checks that it is not begun
// again.
func (s stage) answersAnew(t *testing.T, again func() orchestrated) {
	t.Helper()
	s.model.script(map[string][]fakellm.Reply{"front": {{Text: "Here I am."}}, "planner": {plan("all")}, "worker": {{Text: "done"}}, "replan": {left("It is planned now.")}})
	r := again()
	require.Equal(t, "Here I am.", r.Text, "the new request is answered")
	require.Equal(t, "react_agent", r.From)
	require.Empty(t, s.model.calls("planner"), "the old task is not planned again")
	require.Empty(t, s.model.calls("worker"))
	require.Equal(t, map[string]any{"needs_plan_execute": false, "plan_execute_task": "", "plan_execute_context": ""}, r.State, "the flags are reset")
	require.Contains(t, s.prompts("front")[0], "Hello?")
}
