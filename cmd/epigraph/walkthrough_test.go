package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// fair is a service that can be joined: it tells how, and takes registrations.
type fair struct {
	*httptest.Server
	mu         sync.Mutex
	registered []string
}

func openFair(t *testing.T) *fair {
	t.Helper()
	f := &fair{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /skill.md", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# Join\nRegister by POST /api/register with your name. Then answer challenges at a webhook.")
	})
	mux.HandleFunc("POST /api/register", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.registered = append(f.registered, body.Name)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"agent": "a7"}`)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fair) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.registered...)
}

const verifier = `name: Fair verify
description: Answers the challenge of a webhook.
tags: [fair, webhook]
trigger: {type: webhook, path: fair, signature: token, inputs: {challenge: "{{ event.body.challenge }}"}}
inputs: {challenge: {type: string}}
steps:
  - {id: check, type: code, code: "return 'verified ' + inputs['challenge']"}
outputs: {answer: "{{ check }}"}
`

// callTokens is what each call of the model uses in the walkthrough. Of those of the first request one comes
// before there is an epic, and one after its end; each inline task has callsInline/2: what is next once it
// has begun, and its end.
const callTokens, callsInline, callsAround = 7, 4, 8

// said is what a scripted model has heard so far of one request.
type said struct{ heard []string }

// id is the value of a key in the newest answer that has one.
func (s said) id(key string) string {
	for i := len(s.heard) - 1; i >= 0; i-- {
		if m := regexp.MustCompile(`"` + key + `":"([^"]+)"`).FindStringSubmatch(s.heard[i]); m != nil {
			return m[1]
		}
	}
	return "none"
}

// walker is a model that does what seems right after each answer, from a list of steps for each request.
type walker struct {
	mu    sync.Mutex
	says  map[string][]func(said) fakellm.Reply
	heard map[string][]string
}

func (w *walker) answer(r fakellm.Request) (fakellm.Reply, bool) {
	all, mine, last := "", 0, ""
	for _, m := range r.Messages {
		last = m.Content
		switch m.Role {
		case "user":
			all += m.Content + "\n"
		case "assistant":
			mine++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for request, steps := range w.says {
		if strings.Contains(all, request) && mine < len(steps) {
			if mine > 0 {
				w.heard[request] = append(w.heard[request], last)
			}
			r := steps[mine](said{w.heard[request]})
			r.Usage = fakellm.Usage{Input: callTokens - 2, Output: 2}
			return r, true
		}
	}
	return fakellm.Reply{}, false
}

// does is a step that calls a tool with what it makes of the answers.
func does(t *testing.T, name string, arguments func(said) map[string]any) func(said) fakellm.Reply {
	t.Helper()
	return func(s said) fakellm.Reply {
		raw, err := json.Marshal(arguments(s))
		if err != nil {
			return fakellm.Reply{Text: err.Error()}
		}
		return fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c", name, string(raw))}}
	}
}

// begins is a step that begins the newest task.
func begins(t *testing.T) func(said) fakellm.Reply {
	t.Helper()
	return does(t, "task_update", func(s said) map[string]any { return map[string]any{"task_id": s.id("task_id"), "status": "running"} })
}

func ends(text string) func(said) fakellm.Reply {
	return func(said) fakellm.Reply { return fakellm.Reply{Text: text} }
}

// TestWalkthrough joins a service: an epic, two tasks that the agent does itself, a workflow made for a
// webhook, and the end. The next request of the kind finds the workflow and runs it as it is, and another one
// forks it.
func TestWalkthrough(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { walkThrough(t, func(*stack.Config) {}) })
	t.Run("postgres", func(t *testing.T) {
		url := conf.NewSecret(pgtest.New(t))
		walkThrough(t, func(cfg *stack.Config) {
			cfg.Registry.Store, cfg.Registry.PostgresURL = "postgres", url
			cfg.Executor.Store, cfg.Executor.PostgresURL = "postgres", url
		})
	})
}

// walkThrough is TestWalkthrough on the stores that stored sets.
func walkThrough(t *testing.T, stored func(*stack.Config)) {
	f := openFair(t)
	const join, again, fork = "Read skill.md and join the fair", "Verify the webhook of the fair", "Set up a webhook for ServiceX"
	type m = map[string]any
	w := &walker{heard: map[string][]string{}}
	var addr string
	completed := func(task string) {
		testkit.Eventually(t, func() bool {
			_, raw := restCall(t, addr, http.MethodGet, "/v1/tasks/"+task, "")
			return strings.Contains(string(raw), "TASK_STATE_COMPLETED")
		})
	}
	epicOf := func(s said) string { return s.id("epic_id") }
	w.says = map[string][]func(said) fakellm.Reply{
		join: {
			does(t, "epic_create", func(said) m {
				return m{"title": "Join the fair", "description": join, "tags": "fair,onboarding", "budget_usd": 5}
			}),
			does(t, "task_create", func(s said) m { return m{"epic_id": epicOf(s), "title": "Fetch and analyze skill.md"} }),
			begins(t),
			does(t, "fetch", func(said) m { return m{"url": f.URL + "/skill.md"} }),
			does(t, "task_update", func(s said) m {
				return m{"task_id": s.id("task_id"), "status": "completed", "result_summary": "Join requires: register, verify webhook"}
			}),
			does(t, "task_create", func(s said) m { return m{"epic_id": epicOf(s), "title": "Register with the API"} }),
			begins(t),
			does(t, "send", func(said) m {
				return m{"url": f.URL + "/api/register", "json": m{"name": "epigraph"}}
			}),
			does(t, "task_update", func(s said) m { return m{"task_id": s.id("task_id"), "status": "completed"} }),
			does(t, "task_create", func(s said) m {
				return m{"epic_id": epicOf(s), "title": "Set up webhook for verification", "depends_on": s.id("task_id"), "requirements": m{"trigger": "webhook", "tools": []string{"code"}}}
			}),
			does(t, "workflow_create", func(said) m { return m{"dsl": verifier} }),
			does(t, "spawn_and_await", func(s said) m {
				return m{"workflow_slug": s.id("slug"), "input_data": m{"challenge": "c0"}, "task_id": s.id("task_id")}
			}),
			does(t, "epic_update", func(s said) m {
				completed(s.id("task_id")) // the run ends its task a moment after its own end
				return m{"epic_id": epicOf(s), "status": "completed", "result_summary": "Registered. Webhook endpoint live."}
			}),
			ends("We have joined the fair."),
		},
		again: {
			does(t, "memory_read", func(said) m { return m{"query": "webhook verification", "fact_type": "procedure"} }),
			does(t, "epic_search", func(said) m { return m{"query": "webhook verification", "status": "completed"} }),
			does(t, "workflow_discover", func(said) m { return m{"requirements": m{"trigger": "webhook", "tools": []string{"code"}}} }),
			does(t, "epic_create", func(said) m { return m{"title": "Verify again"} }),
			does(t, "task_create", func(s said) m { return m{"epic_id": epicOf(s), "title": "Verify"} }),
			does(t, "spawn_and_await", func(s said) m {
				return m{"workflow_slug": s.id("slug"), "input_data": m{"challenge": "c9"}, "task_id": s.id("task_id")}
			}),
			does(t, "epic_status", func(s said) m { return m{"epic_id": epicOf(s)} }),
			ends("It is verified."),
		},
		fork: {
			does(t, "epic_search", func(said) m { return m{"query": "webhook"} }),
			does(t, "workflow_discover", func(said) m {
				return m{"requirements": m{"trigger": "webhook", "tools": []string{"code", "workflow_discover"}}}
			}),
			does(t, "workflow_create", func(s said) m {
				return m{"dsl": "based_on: " + s.id("slug") + "\nname: ServiceX verify\npatches:\n  - {action: add_step, after: check, step: {id: words, type: transform, template: \"ServiceX: {{ check }}\"}}\n"}
			}),
			does(t, "spawn_and_await", func(s said) m {
				return m{"tasks": []m{{"workflow_slug": s.id("slug"), "input_text": "x1"}, {"workflow_slug": "fair-verify", "input_text": "x2"}}}
			}),
			ends("ServiceX is set up."),
		},
	}
	d := serveWith(t, fakellm.Script{Answer: w.answer}, func(cfg *stack.Config) {
		stored(cfg)
		cfg.Executor.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
	})
	addr = d.HTTPAddr()
	command := func(t *testing.T, args ...string) string {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, 0, code, "%s%s\n%q", o.String(), e.String(), w.heard)
		return o.String()
	}
	file := filepath.Join(t.TempDir(), "delegate.yaml")
	text, err := os.ReadFile("../../examples/workflow/delegate.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	heard := func(request string) []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.heard[request]
	}
	ask := func(t *testing.T, request, answer string) {
		t.Helper()
		require.Contains(t, command(t, "workflows", "run", file, "--input", "request="+request), answer, "%q", heard(request))
		require.Len(t, heard(request), len(w.says[request])-1)
	}

	t.Run("EpicTasksAndAWorkflowForAWebhook", func(t *testing.T) {
		ask(t, join, "We have joined the fair.")
		for i, step := range heard(join) {
			if i != 3 && i != 7 && i != 11 { // answers of the service and of the workflow
				require.Contains(t, step, `"success":true`, "step %d", i+1)
			}
		}
		require.Contains(t, heard(join)[3], "Register by POST")
		require.Contains(t, heard(join)[11], "verified c0")
		require.Equal(t, []string{"epigraph"}, f.names())
		epic := said{heard(join)}.id("epic_id")
		shown := command(t, "epics", "show", epic, "--json")
		for _, part := range []string{"EPIC_STATE_COMPLETED", `"completedTasks":3`, "Webhook endpoint live."} {
			require.Contains(t, strings.ReplaceAll(shown, `": `, `":`), part)
		}
	})
	t.Run("InlineTasksPayForTheirWorkAndTheEpicForTheRest", func(t *testing.T) {
		id := said{heard(join)}.id("epic_id")
		var e struct{ SpentTokens, AgentOverheadTokens string }
		var list struct {
			Tasks []struct{ ID, Title, ActualTokens string }
		}
		testkit.Eventually(t, func() bool { // the last calls are booked a moment after the end of the run
			_, raw := restCall(t, d.HTTPAddr(), http.MethodGet, "/v1/epics/"+id, "")
			require.NoError(t, json.Unmarshal(raw, &e))
			return e.SpentTokens == strconv.Itoa((callsInline+callsAround)*callTokens)
		}, "%+v", &e)
		require.Equal(t, strconv.Itoa(callsAround*callTokens), e.AgentOverheadTokens)
		_, raw := restCall(t, d.HTTPAddr(), http.MethodGet, "/v1/tasks?epicId="+id, "")
		require.NoError(t, json.Unmarshal(raw, &list))
		of := map[string]string{}
		for _, v := range list.Tasks {
			of[v.Title] = v.ActualTokens
		}
		one := strconv.Itoa(callsInline / 2 * callTokens)
		require.Equal(t, map[string]string{"Fetch and analyze skill.md": one, "Register with the API": one, "Set up webhook for verification": "0"}, of)
		shown := command(t, "epics", "show", id)
		require.Contains(t, shown, "of that agents' own reasoning: ")
		require.Contains(t, command(t, "usage", "report", "--by", "epic", "--epic", id, "--kind", "overhead"), id)
	})
	t.Run("TheWebhookIsCalled", func(t *testing.T) {
		var on struct {
			Triggers []struct{ Secret string }
		}
		require.NoError(t, json.Unmarshal([]byte(command(t, "triggers", "on", "fair-verify", "--json")), &on))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.HTTPAddr()+"/v1/hooks/default/fair", strings.NewReader(`{"challenge": "c1"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+on.Triggers[0].Secret)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
		gate := &doors{Dev: d}
		var told []map[string]any
		testkit.Eventually(t, func() bool {
			told = gate.deliveries(t, "fair-verify")
			return len(told) == 1 && told[0]["state"] == "TRIGGER_DELIVERY_STATE_STARTED"
		})
		require.Equal(t, map[string]any{"answer": "verified c1"}, gate.ended(t, told[0]["runId"].(string)))
	})
	t.Run("TheSecondRequestFindsItAndRunsItAsItIs", func(t *testing.T) {
		ask(t, again, "It is verified.")
		heardAll := heard(again)
		require.Contains(t, heardAll[0], `"key":"procedure:`+said{heard(join)}.id("epic_id"))
		require.Contains(t, heardAll[0], `"workflow_ids":["fair-verify@1"]`)
		require.Contains(t, heardAll[0], `"success_rate":1`)
		got := heardAll[1:]
		require.Contains(t, got[0], `"workflow_slugs":["fair-verify@1"]`)
		require.Contains(t, got[0], `"success_rate":1`)
		require.Regexp(t, `"match_score":(0\.9[5-9]\d*|1)[,}]`, got[1])
		require.Contains(t, got[1], `"recommendation":"reuse"`)
		require.Contains(t, got[1], `"slug":"fair-verify"`)
		require.Contains(t, got[4], "verified c9")
		require.Contains(t, got[5], `"execution_id":"run_`)
		completed(said{got[:4]}.id("task_id"))
	})
	t.Run("ASimilarOneIsForkedAndPatched", func(t *testing.T) {
		ask(t, fork, "ServiceX is set up.")
		got := heard(fork)
		require.Contains(t, got[1], `"recommendation":"fork_and_patch"`)
		require.Contains(t, got[2], `"mode":"forked"`)
		first, second := strings.Index(got[3], "verified x1"), strings.Index(got[3], "verified x2")
		require.Positive(t, first, got[3])
		require.Greater(t, second, first, "in the order asked")
	})
}
