package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// staff is the model behind the orchestrator's agents. It keeps what each of them was asked.
type staff struct {
	mu    sync.Mutex
	asked map[string][]fakellm.Request
	// says is what each says to its n-th call, and to all after the last.
	says map[string][]fakellm.Reply
}

func (s *staff) answer(r fakellm.Request) (fakellm.Reply, bool) {
	var all strings.Builder
	for _, m := range r.Messages {
		all.WriteString(m.Content + "\n")
	}
	who := ""
	for name, part := range map[string]string{"front": "You help with customers", "worker": "Do the one step", "planner": "Plan this task in few steps", "accountant": "You look after invoices", "courier": "You look after parcels", "replan": "Give the steps that remain"} {
		if strings.Contains(all.String(), part) {
			who = name
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.says[who]
	if len(list) == 0 {
		return fakellm.Reply{Text: "nothing is scripted for " + who}, true
	}
	n := len(s.asked[who])
	s.asked[who] = append(s.asked[who], r)
	return list[min(n, len(list)-1)], true
}

// script begins a case.
func (s *staff) script(says map[string][]fakellm.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says, s.asked = says, map[string][]fakellm.Request{}
}

func (s *staff) calls(who string) []fakellm.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]fakellm.Request{}, s.asked[who]...)
}

func call(id, name, arguments string) fakellm.ToolCall {
	return fakellm.ToolCall{ID: id, Name: name, Arguments: arguments}
}

// plan and left are answers of the planner, and of who plans again.
func plan(steps ...string) fakellm.Reply {
	raw, _ := json.Marshal(map[string]any{"steps": inRow(steps)}) // it has a JSON form
	return fakellm.Reply{Text: string(raw)}
}

func left(response string, steps ...string) fakellm.Reply {
	raw, _ := json.Marshal(map[string]any{"steps": inRow(steps), "response": response})
	return fakellm.Reply{Text: string(raw)}
}

// planned is a step of a plan.
type planned struct {
	ID    string   `json:"id"`
	Do    string   `json:"do"`
	Needs []string `json:"needs"`
}

// inRow are steps each of which needs the one before it.
func inRow(steps []string) []planned {
	out := []planned{}
	for i, do := range steps {
		out = append(out, planned{do, do, append([]string{}, steps[max(0, i-1):i]...)})
	}
	return out
}

// orchestrated is what a run of the orchestrator gave.
type orchestrated struct {
	Text, From string
	State      map[string]any
	ThreadID   string `json:"thread_id"`
	Stop       struct{ Reason string }
}

// restRun and restInterrupt are what REST shows of them.
type restRun struct {
	State       string
	ParentRunID string `json:"parentRunId"`
	Result      json.RawMessage
}

type restInterrupt struct {
	ID        string
	RunID     string `json:"runId"`
	RootRunID string `json:"rootRunId"`
	Prompt    json.RawMessage
	Answer    json.RawMessage
}

// restCall makes a request to a server.
func restCall(t *testing.T, addr, method, path, body string) (status int, answer []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, answer
}

// orchestratorFile is the workflow.
const orchestratorFile = "../../examples/workflow/orchestrator.yaml"

// stage is a server on which the orchestrator runs, with the model that its cases script.
type stage struct {
	d     *stack.Dev
	model *staff
}

func newStage(t *testing.T) stage {
	t.Helper()
	model := &staff{}
	return stage{serve(t, fakellm.Script{Answer: model.answer}), model}
}

// command runs a command, which is to end with a code.
func (s stage) command(t *testing.T, want int, args ...string) (out, notes string) {
	t.Helper()
	return s.talk(t, want, "", args...)
}

// talk is command with lines to read.
func (s stage) talk(t *testing.T, want int, in string, args ...string) (out, notes string) {
	t.Helper()
	var o, e bytes.Buffer
	code := cli.Main(t.Context(), build, append([]string{"--addr", s.d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
	require.Equal(t, want, code, "%s%s", o.String(), e.String())
	return o.String(), e.String()
}

// run runs the orchestrator to its end.
func (s stage) run(t *testing.T, task string, more ...string) (r orchestrated) {
	t.Helper()
	out, _ := s.command(t, 0, append([]string{"workflows", "run", orchestratorFile, "--json", "--input", "task=" + task}, more...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var shown struct{ Result json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &shown))
	require.NoError(t, json.Unmarshal(shown.Result, &r))
	return r
}

// begin starts a run, and does not wait for its end.
func (s stage) begin(t *testing.T, task string) (id string) {
	t.Helper()
	out, _ := s.command(t, 0, "workflows", "run", orchestratorFile, "--input", "task="+task, "--detach")
	return strings.TrimSpace(out)
}

// rest is a call over REST.
func (s stage) rest(t *testing.T, method, path, body string, into any) {
	t.Helper()
	status, raw := restCall(t, s.d.HTTPAddr(), method, path, body)
	require.Equal(t, http.StatusOK, status, "%s", raw)
	if into != nil {
		require.NoError(t, json.Unmarshal(raw, into), "%s", raw)
	}
}

// asked starts a run that asks, and returns it with its question.
func (s stage) asked(t *testing.T) (id string, q restInterrupt) {
	t.Helper()
	id = s.begin(t, "Onboard Acme Corp")
	testkit.Eventually(t, func() bool {
		var open struct{ Interrupts []restInterrupt }
		s.rest(t, http.MethodGet, "/v1/runs/"+id+"/interrupts", "", &open)
		if len(open.Interrupts) > 0 {
			q = open.Interrupts[0]
		}
		return q.ID != ""
	}, "nobody is asked")
	return id, q
}

// result is what a run gave that has completed.
func (s stage) result(t *testing.T, id string) (r orchestrated) {
	t.Helper()
	s.command(t, 0, "runs", "watch", id)
	var run restRun
	s.rest(t, http.MethodGet, "/v1/runs/"+id, "", &run)
	require.Equal(t, "RUN_STATE_COMPLETED", run.State)
	require.NoError(t, json.Unmarshal(run.Result, &r))
	return r
}

// routing is the call that has a task planned, onboarding a case that does it, and asking one whose
// second step asks the user.
func routing() fakellm.Reply {
	return fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c1", "task_agent", `{"task": "Onboard Acme Corp", "context": "They like tea."}`)}}
}

func onboarding() map[string][]fakellm.Reply {
	return map[string][]fakellm.Reply{"front": {routing()}, "planner": {plan("create the account", "send the welcome")}, "worker": {{Text: "account 7"}, {Text: "sent"}},
		"replan": {left("", "send the welcome"), left("Acme Corp is on board.")}}
}

func asking() map[string][]fakellm.Reply {
	says := onboarding()
	says["worker"] = []fakellm.Reply{{Text: "account 7"}, {ToolCalls: []fakellm.ToolCall{call("q", "ask_user", `{"question": "Whom do we write to?"}`)}}, {Text: "sent to Ann"}}
	return says
}

// TestOrchestrator has the test cases and the validation points of the design of a task agent as a part of a
// graph, by their names.
func TestOrchestrator(t *testing.T) {
	s := newStage(t)
	d, model := s.d, s.model
	command, run, rest, asked := s.command, s.run, s.rest, s.asked
	const file = orchestratorFile
	states := func(t *testing.T, thread string) string {
		t.Helper()
		out, _ := command(t, 0, "threads", "show", thread, "--states", "--json")
		return out
	}
	routing, onboarding, asking := routing(), onboarding(), asking()

	t.Run("TestCase1/SimpleQuery", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{Text: "There are two."}}})
		r := run(t, "What are the open opportunities?")
		require.Equal(t, "There are two.", r.Text)
		require.Equal(t, "react_agent", r.From)
		require.Equal(t, false, r.State["needs_plan_execute"])
		require.Len(t, model.calls("front"), 1, "one call of the model")
		for _, m := range model.calls("front")[0].Messages {
			require.NotEqual(t, "tool", m.Role)
		}
		require.Empty(t, model.calls("planner"))
	})
	t.Run("TestCase1/LookUpByATool", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{ToolCalls: []fakellm.ToolCall{call("c1", "look_up", `{"customer": "Acme"}`)}}, {Text: "Two are open."}}})
		r := run(t, "What is open at Acme?")
		require.Equal(t, "Two are open.", r.Text)
		require.Len(t, model.calls("front"), 2, "an ordinary result goes back to the model")
		last := model.calls("front")[1].Messages
		require.Equal(t, "tool", last[len(last)-1].Role)
		require.Contains(t, last[len(last)-1].Content, "two open opportunities")
	})
	t.Run("TestCase2/ComplexTask", func(t *testing.T) {
		model.script(onboarding)
		r := run(t, "Onboard Acme Corp")
		require.Equal(t, "Acme Corp is on board.", r.Text)
		require.Equal(t, "plan_execute", r.From)
		require.Len(t, model.calls("front"), 1, "no call of the model in the front agent after the plan")
		require.Len(t, model.calls("worker"), 2)
		require.Equal(t, map[string]any{"needs_plan_execute": false, "plan_execute_task": "", "plan_execute_context": ""}, r.State, "the flags are reset")
	})
	t.Run("TestCase3/InterruptFlow", func(t *testing.T) {
		model.script(asking)
		out, _ := command(t, 0, "workflows", "run", file, "--input", "task=Onboard Acme Corp", "--detach")
		id := strings.TrimSpace(out)
		question, list := "", ""
		testkit.Eventually(t, func() bool {
			list, _ = command(t, 0, "interrupts", "list", "--run", id, "--json")
			question = regexp.MustCompile(`int_\w+`).FindString(list)
			return question != ""
		}, "nobody is asked")
		require.Contains(t, list, "Whom do we write to?", "it comes through from below, by itself")
		command(t, 0, "interrupts", "answer", question, "Ann")
		shown, _ := command(t, 0, "runs", "watch", id)
		require.Contains(t, shown, "Acme Corp is on board.")
		worker := model.calls("worker")
		require.Len(t, worker, 3, "the step before is not repeated")
		last := worker[2].Messages
		require.Equal(t, "Ann", last[len(last)-1].Content, "the very step that asked goes on with the answer")
		require.Len(t, model.calls("planner"), 1)
	})
	t.Run("TestCase4/StatePersistence", func(t *testing.T) {
		model.script(onboarding)
		first := run(t, "Onboard Acme Corp")
		model.script(map[string][]fakellm.Reply{"front": {{Text: "Yes, it is."}}})
		second := run(t, "Is it done?", "--input", "thread_id="+first.ThreadID)
		require.Equal(t, "Yes, it is.", second.Text)
		require.Equal(t, first.ThreadID, second.ThreadID)
		var all strings.Builder
		for _, m := range model.calls("front")[0].Messages {
			all.WriteString(m.Content + "\n")
		}
		require.Contains(t, all.String(), "Onboard Acme Corp")
		require.Contains(t, all.String(), "plan_execute: Acme Corp is on board.", "it heard what the plan came to")
		require.Contains(t, all.String(), "Routing task to plan-execute workflow: Onboard Acme Corp", "the routing call was answered")
	})
	t.Run("TestCase5/ErrorHandling", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{ToolCalls: []fakellm.ToolCall{call("c1", "look_down", `{}`)}}, {ToolCalls: []fakellm.ToolCall{call("c2", "look_up", `{}`)}}, {Text: "I cannot find it."}}})
		r := run(t, "Do the impossible")
		require.Equal(t, "I cannot find it.", r.Text)
		asked := model.calls("front")
		last := asked[1].Messages
		require.Contains(t, last[len(last)-1].Content, `there is no action "look_down"`, "an unknown tool is told")
		last = asked[2].Messages
		require.Equal(t, "tool", last[len(last)-1].Role, "a tool that fails is told")
	})
	t.Run("TestCase5/APlanThatCannotBeMadeFailsAndTheThreadGoesOn", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{Text: "Hello."}}})
		first := run(t, "Hello")
		model.script(map[string][]fakellm.Reply{"front": {routing}, "planner": {{Text: "no plan"}}})
		out, notes := command(t, 1, "workflows", "run", file, "--input", "task=Onboard", "--input", "thread_id="+first.ThreadID)
		require.Contains(t, out+notes, "CHILD_FAILED", "it fails in good order, with what failed")
		model.script(map[string][]fakellm.Reply{"front": {{Text: "Here I am."}}, "planner": onboarding["planner"], "worker": onboarding["worker"], "replan": onboarding["replan"]})
		r := run(t, "Hello?", "--input", "thread_id="+first.ThreadID)
		require.Equal(t, "COMPLETE", r.Stop.Reason, "a later request works")
		require.Equal(t, "Here I am.", r.Text, "and is answered")
	})

	t.Run("ValidationPoint1/TaskAgentToolSetsRoutingFlags", func(t *testing.T) {
		model.script(onboarding)
		r := run(t, "Onboard Acme Corp")
		require.Contains(t, strings.ReplaceAll(states(t, r.ThreadID), " ", ""), `"needs_plan_execute":true`)
	})
	t.Run("ValidationPoint2/ConditionalEdgeRoutesByTheFlag", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{Text: "Nothing to plan."}}})
		require.Equal(t, "react_agent", run(t, "Hello").From)
		model.script(onboarding)
		require.Equal(t, "plan_execute", run(t, "Onboard Acme Corp").From)
	})
	t.Run("ValidationPoint3/SubgraphExecutes", func(t *testing.T) {
		model.script(onboarding)
		run(t, "Onboard Acme Corp")
		var steps []string
		for _, r := range model.calls("worker") {
			_, step, _ := strings.Cut(r.Messages[len(r.Messages)-1].Content, "Your step: ")
			steps = append(steps, strings.TrimSpace(step))
		}
		require.Equal(t, []string{"create the account", "send the welcome"}, steps, "in the order of the plan, each once")
	})
	t.Run("ValidationPoint4/StateIsTransformedBothWays", func(t *testing.T) {
		model.script(onboarding)
		r := run(t, "Onboard Acme Corp")
		planner := model.calls("planner")[0].Messages
		require.Contains(t, planner[len(planner)-1].Content, "before it: Onboard Acme Corp\n\nContext: They like tea.", "exactly the task and its context")
		require.Equal(t, "Acme Corp is on board.", r.Text)
		said := planner[len(planner)-1].Content
		require.Contains(t, said, `{"from":"input","text":"Onboard Acme Corp"}`, "it is told the talk before")
		require.Contains(t, said, `{"from":"react_agent","text":"Routing task to plan-execute workflow: Onboard Acme Corp"}`)
		worker := model.calls("worker")[0].Messages
		require.Contains(t, worker[len(worker)-1].Content, `{"from":"input","text":"Onboard Acme Corp"}`)
		without := map[string][]fakellm.Reply{"front": {{ToolCalls: []fakellm.ToolCall{call("c1", "task_agent", `{"task": "Onboard Beta"}`)}}}, "planner": {plan("all")}, "worker": {{Text: "done"}}, "replan": {left("It is done.")}}
		model.script(without)
		run(t, "Onboard Beta")
		planner = model.calls("planner")[0].Messages
		require.NotContains(t, planner[len(planner)-1].Content, "Context:")
	})
	t.Run("ValidationPoint5/InterruptsPropagateFromSubgraphToParent", func(t *testing.T) {
		model.script(asking)
		id, q := asked(t)
		require.Equal(t, id, q.RootRunID, "it is listed at the top")
		require.NotEqual(t, id, q.RunID, "and is asked below")
		var shown struct{ Run restRun }
		levels := 0
		for at := q.RunID; at != id; levels++ {
			rest(t, http.MethodGet, "/v1/runs/"+at, "", &shown.Run)
			at = shown.Run.ParentRunID
		}
		require.GreaterOrEqual(t, levels, 3, "the orchestrator, its sub-graph and the agent of the step lie between")
		rest(t, http.MethodPost, "/v1/interrupts/"+q.ID+":answer", `{"answer": "Ann"}`, nil)
		command(t, 0, "runs", "watch", id)
		rest(t, http.MethodGet, "/v1/runs/"+id, "", &shown.Run)
		require.Equal(t, "RUN_STATE_COMPLETED", shown.Run.State)
		require.Contains(t, string(shown.Run.Result), "Acme Corp is on board.")
		require.Len(t, model.calls("worker"), 3, "the step that asked goes on, and no other is done again")
	})
	t.Run("WayOut/BeatsTheQuestionOfAnAgent", func(t *testing.T) {
		says := maps.Clone(asking)
		says["front"] = []fakellm.Reply{routing, {Text: "Two are open."}}
		model.script(says)
		id, q := asked(t)
		status, raw := restCall(t, d.HTTPAddr(), http.MethodPost, "/v1/interrupts/"+q.ID+":answer", `{"instead": "Never mind. What is open?", "answer": "Ann"}`)
		require.Equal(t, http.StatusBadRequest, status, "%s", raw)
		require.Contains(t, string(raw), "there is an answer as well")
		command(t, 0, "interrupts", "answer", q.ID, "--instead", "Never mind. What is open?")
		command(t, 0, "runs", "watch", id)
		var run restRun
		rest(t, http.MethodGet, "/v1/runs/"+id, "", &run)
		require.Equal(t, "RUN_STATE_COMPLETED", run.State, "%s", raw)
		var r orchestrated
		require.NoError(t, json.Unmarshal(run.Result, &r))
		require.Equal(t, "Two are open.", r.Text)
		require.Equal(t, "react_agent", r.From)
		require.Equal(t, map[string]any{"needs_plan_execute": false, "plan_execute_task": "", "plan_execute_context": ""}, r.State, "the flags are reset")
		require.Len(t, model.calls("worker"), 2, "the step that asked is over")
		require.Len(t, model.calls("replan"), 1, "and so is the plan")
		var all strings.Builder
		for _, m := range model.calls("front")[1].Messages {
			all.WriteString(m.Content + "\n")
		}
		require.Contains(t, all.String(), "plan_execute: The user asked for something else.\nNever mind. What is open?")
		shown, _ := command(t, 0, "interrupts", "show", q.ID)
		require.Contains(t, shown, "Never mind. What is open?")
	})
	t.Run("ValidationPoint6/FinalResponseReachesTheUser", func(t *testing.T) {
		model.script(onboarding)
		r := run(t, "Onboard Acme Corp")
		out, _ := command(t, 0, "threads", "show", r.ThreadID)
		require.Contains(t, out, "Acme Corp is on board.")
	})
	t.Run("D6/RoutingAndOrdinaryCallsOfOneMessageAreBothAnswered", func(t *testing.T) {
		both := fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c1", "look_up", `{"customer": "Acme"}`), call("c2", "task_agent", `{"task": "Onboard Acme Corp"}`)}}
		model.script(map[string][]fakellm.Reply{"front": {both, {Text: "It is done."}}, "planner": onboarding["planner"], "worker": onboarding["worker"], "replan": onboarding["replan"]})
		r := run(t, "Onboard Acme Corp")
		require.Equal(t, "plan_execute", r.From)
		require.Len(t, model.calls("front"), 1)
		run(t, "And now?", "--input", "thread_id="+r.ThreadID)
		answers := map[string]string{}
		for _, m := range model.calls("front")[1].Messages {
			if m.Role == "tool" {
				answers[m.ToolCallID] = m.Content
			}
		}
		require.Contains(t, answers["c1"], "two open opportunities")
		require.Equal(t, "Routing task to plan-execute workflow: Onboard Acme Corp", answers["c2"])
	})
	t.Run("Cache/TheSameTaskOfTheSameUserIsNotPlannedAgain", func(t *testing.T) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		const off, on = "    # cache: {ttl: 1h, scope: user}", "    cache: {ttl: 1h, scope: user}"
		require.Contains(t, string(text), off)
		caching := filepath.Join(t.TempDir(), "caching.yaml")
		require.NoError(t, os.WriteFile(caching, bytes.Replace(text, []byte(off), []byte(on), 1), 0o600))
		do := func(user string) (id string) {
			model.script(onboarding)
			out, _ := command(t, 0, "workflows", "run", caching, "--input", "task=Onboard Acme Corp", "--user", user, "--detach")
			id = strings.TrimSpace(out)
			shown, _ := command(t, 0, "runs", "watch", id)
			require.Contains(t, shown, "Acme Corp is on board.")
			return id
		}
		do("ann")
		require.Len(t, model.calls("planner"), 1)
		id := do("ann")
		require.Empty(t, model.calls("planner"), "the kept result answers")
		require.Empty(t, model.calls("worker"))
		require.Len(t, model.calls("front"), 1)
		status, stream := restCall(t, d.HTTPAddr(), http.MethodGet, "/v1/runs/"+id+"/events?include_descendants=true", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(stream), `"saved"`, "what the first one used is told")
		require.Contains(t, string(stream), `"routes":[{`, "and why it was routed")
		do("bob")
		require.Len(t, model.calls("planner"), 1, "another user does not get it")
	})
	t.Run("DirectRoute/AnAgentIsAskedByNameOrByWhatItCanDo", func(t *testing.T) {
		ask := func(agent string) fakellm.Reply {
			return fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c1", "ask_agent", `{"agent": "`+agent+`", "task": "Pay 20 euros back."}`)}}
		}
		for _, agent := range []string{"accountant", "refunds"} {
			model.script(map[string][]fakellm.Reply{"front": {ask(agent)}, "accountant": {{Text: "20 euros are paid back."}}})
			r := run(t, "I want my 20 euros back.")
			require.Equal(t, "accountant", r.From)
			require.Equal(t, "20 euros are paid back.", r.Text)
			heard := model.calls("accountant")[0].Messages
			require.Contains(t, heard[len(heard)-1].Content, "react_agent: Pay 20 euros back.")
			require.Empty(t, model.calls("courier"))
		}
	})
	t.Run("DirectRoute/AnUnknownAgentIsToldWithTheList", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{ToolCalls: []fakellm.ToolCall{call("c1", "ask_agent", `{"agent": "cook", "task": "Cook."}`)}}, {Text: "Nobody can."}}})
		r := run(t, "Cook something.")
		require.Equal(t, "Nobody can.", r.Text)
		told := model.calls("front")[1].Messages
		require.Equal(t, "tool", told[len(told)-1].Role)
		for _, word := range []string{"accountant", "courier", "invoices", "refunds", "shipping"} {
			require.Contains(t, told[len(told)-1].Content, word)
		}
	})
	t.Run("PlanIsAGraph/StepsThatNeedNothingAreDoneSideBySide", func(t *testing.T) {
		raw, err := json.Marshal(map[string]any{"steps": []planned{{"a", "create the account", []string{}}, {"b", "order the cake", []string{}}, {"c", "send the welcome", []string{"a", "b"}}}})
		require.NoError(t, err)
		model.script(map[string][]fakellm.Reply{"front": {routing}, "planner": {{Text: string(raw)}}, "worker": {{Text: "done"}},
			"replan": {{Text: `{"steps": [{"id": "c", "do": "send the welcome", "needs": ["a", "b"]}], "response": ""}`}, left("Acme Corp is on board.")}})
		r := run(t, "Onboard Acme Corp")
		require.Equal(t, "Acme Corp is on board.", r.Text)
		require.Len(t, model.calls("replan"), 2, "it is planned again after a wave, not after a step")
		var steps []string
		for _, r := range model.calls("worker") {
			_, step, _ := strings.Cut(r.Messages[len(r.Messages)-1].Content, "Your step: ")
			steps = append(steps, strings.TrimSpace(step))
		}
		require.ElementsMatch(t, []string{"create the account", "order the cake"}, steps[:2])
		require.Equal(t, []string{"send the welcome"}, steps[2:])
	})
	t.Run("Events/OfTheSubgraphAreInTheStreamOfTheParent", func(t *testing.T) {
		model.script(onboarding)
		out, _ := command(t, 0, "workflows", "run", file, "--input", "task=Onboard Acme Corp", "--detach")
		id := strings.TrimSpace(out)
		status, stream := restCall(t, d.HTTPAddr(), http.MethodGet, "/v1/runs/"+id+"/events?include_descendants=true", "")
		require.Equal(t, http.StatusOK, status)
		for _, node := range []string{"team", "speak.react_agent", "speak.plan_execute", "planner", "step", "replan", "reason"} {
			require.Contains(t, string(stream), `"nodeId":"`+node+`"`)
		}
		require.Contains(t, string(stream), "Acme Corp is on board.")
	})
	t.Run("D6/TwoThreadsDoNotMix", func(t *testing.T) {
		model.script(map[string][]fakellm.Reply{"front": {{Text: "one"}, {Text: "two"}, {Text: "three"}}})
		a, b := run(t, "I am Ann"), run(t, "I am Bob")
		run(t, "Who am I?", "--input", "thread_id="+a.ThreadID)
		require.NotEqual(t, a.ThreadID, b.ThreadID)
		var all strings.Builder
		for _, m := range model.calls("front")[2].Messages {
			all.WriteString(m.Content + "\n")
		}
		require.Contains(t, all.String(), "I am Ann")
		require.NotContains(t, all.String(), "Bob")
	})
}
