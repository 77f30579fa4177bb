package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// keeper is an agent that learns one thing in every turn, and has a model shorten what it heard.
const keeper = `
executor:
  actors:
    agents:
      keeper:
        definition: |
          {"reasoner": "cel", "template": "{conversation}", "thread": {"lifetime": "CONVERSATION"},
           "reasoner_args": {"expr": "{'result': dyn('hi'), 'instant_learnings': dyn([{'id': 'drink', 'content': 'likes tea'}])}"},
           "history": {"summarize": {"above": 128, "keep": 1}},
           "actions": {"none": {"actor": "cel", "named": {"expr": "0"}}}}
`

// TestThreads holds a conversation with an agent that keeps all kinds of items, and reads it in every way.
func TestThreads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keeper.yaml")
	require.NoError(t, os.WriteFile(file, []byte(keeper), 0o600))
	d := serveWith(t, fakellm.Script{Default: fakellm.Reply{Text: "They said hello."}}, func(cfg *stack.Config) {
		require.NoError(t, stack.Load(cfg, conf.Sources{File: file, Env: []string{}}))
	})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()

	// rest calls the gateway and returns the answer.
	rest := func(t *testing.T, want int, method, path, body string) (out map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.HTTPAddr()+path, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, want, res.StatusCode, "%s %s: %s", method, path, text)
		require.NoError(t, json.Unmarshal(text, &out))
		return out
	}
	// all reads a list in pages of one, and returns its elements.
	all := func(t *testing.T, path, list string) (out []map[string]any) {
		t.Helper()
		for token := ""; ; {
			page := rest(t, 200, "GET", path+"?pageSize=1&pageToken="+url.QueryEscape(token), "")
			elements, _ := page[list].([]any)
			require.LessOrEqual(t, len(elements), 1)
			for _, e := range elements {
				out = append(out, e.(map[string]any))
			}
			if token, _ = page["nextPageToken"].(string); token == "" {
				return out
			}
		}
	}
	command := func(t *testing.T, in string, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
		require.Equal(t, 0, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}

	made := rest(t, 200, "POST", "/v1/threads", `{"thread": {"agent": "agent/keeper", "key": "ann:desk", "title": "Desk"}}`)
	id := made["id"].(string)
	path := "/v1/threads/" + id
	for range 2 {
		turn := rest(t, 200, "POST", path+"/messages", `{"content": "`+strings.Repeat("hello ", 200)+`"}`)
		answer, err := epigraph.Result[string](t.Context(), c.Run(turn["runId"].(string)))
		require.NoError(t, err)
		require.Equal(t, "hi", answer)
	}

	t.Run("REST/Threads", func(t *testing.T) {
		require.Equal(t, "Desk", rest(t, 200, "GET", path, "")["title"])
		require.Equal(t, id, rest(t, 200, "GET", "/v1/threads/-?key=ann:desk", "")["id"])
		for query, want := range map[string]int{"agent=agent/keeper": 1, "keyPrefix=ann:": 1, "keyPrefix=bob": 0, "lifetime=THREAD_LIFETIME_CONVERSATION": 1, "lifetime=THREAD_LIFETIME_RUN": 0, "parentId=" + id: 0} {
			list, _ := rest(t, 200, "GET", "/v1/threads?"+query, "")["threads"].([]any)
			require.Len(t, list, want, query)
		}
		fork := rest(t, 200, "POST", path+":fork", `{"sequence": "2", "thread": {"title": "What if"}}`)
		require.Equal(t, []any{id, "2", "agent/keeper"}, []any{fork["parentId"], fork["parentSequence"], fork["agent"]})
		require.Len(t, all(t, "/v1/threads/"+fork["id"].(string)+"/messages", "messages"), 2)
		rest(t, 200, "DELETE", "/v1/threads/"+fork["id"].(string), "")
		gone := rest(t, 404, "GET", "/v1/threads/"+fork["id"].(string), "")
		require.Contains(t, encode(t, gone), "THREAD_NOT_FOUND")
	})
	t.Run("REST/AThreadIsAValue", func(t *testing.T) {
		value := encode(t, rest(t, 200, "GET", path+":export", "")["value"])
		again := rest(t, 200, "POST", "/v1/threads:import", `{"value": `+value+`, "thread": {"title": "Again"}}`)
		require.NotEqual(t, id, again["id"])
		require.Equal(t, "Again", again["title"])
		require.Equal(t, all(t, path+"/messages", "messages")[0]["body"], all(t, "/v1/threads/"+again["id"].(string)+"/messages", "messages")[0]["body"])
		bad := rest(t, 400, "POST", "/v1/threads:import", `{"value": {"format": "epigraph.thread/1", "threads": [], "owner": 1}}`)
		require.Contains(t, encode(t, bad), "THREAD_VALUE_INVALID")
		run := rest(t, 200, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "agent/keeper", "named": {"user_input": "and more"}}]}, "threadValue": `+value+`}`)
		_, err := epigraph.Result[string](t.Context(), c.Run(run["id"].(string)))
		require.NoError(t, err)
		own := run["threadId"].(string)
		require.NotEqual(t, id, own)
		require.Greater(t, len(all(t, "/v1/threads/"+own+"/messages", "messages")), len(all(t, path+"/messages", "messages")), "it goes on after what was said")
		require.Equal(t, "THREAD_LIFETIME_EPHEMERAL", rest(t, 200, "GET", "/v1/threads/"+own, "")["lifetime"])
		rest(t, 400, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "agent/keeper"}]}, "threadId": "`+id+`", "threadValue": `+value+`}`)
	})
	t.Run("REST/StopEndsTheLoopOfAnAgent", func(t *testing.T) {
		run := rest(t, 200, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "agent", "named": {"user_input": "x", "max_no_progress": 0,
			"reasoner": "cel", "reasoner_args": {"expr": "dyn({'actions': ['nap']})"}, "actions": {"nap": {"actor": "sleep", "named": {"duration": "20ms"}}}}}]}}`)["id"].(string)
		for len(all(t, "/v1/runs/"+run+"/visits", "visits")) == 0 {
			require.NoError(t, t.Context().Err())
		}
		stopped := rest(t, 200, "POST", "/v1/runs/"+run+":stop", `{"reason": "enough"}`)
		require.Equal(t, run, stopped["id"])
		_, err := epigraph.Result[json.RawMessage](t.Context(), c.Run(run))
		require.NoError(t, err, "the run completes with the results of the last actions")
		require.Contains(t, encode(t, rest(t, 200, "GET", "/v1/runs/"+run, "")), "COMPLETED")
		require.Contains(t, encode(t, rest(t, 404, "POST", "/v1/runs/run_none:stop", `{}`)), "RUN_NOT_FOUND")
	})
	t.Run("REST/Items", func(t *testing.T) {
		messages := all(t, path+"/messages", "messages")
		require.Len(t, messages, 4)
		require.Equal(t, map[string]any{"role": "assistant", "content": "hi"}, messages[0]["body"], "the newest first")
		states := all(t, path+"/states", "states")
		require.Len(t, states, 2)
		require.NotContains(t, states[0], "body")
		full := rest(t, 200, "GET", path+"/states?full=true", "")["states"].([]any)
		require.Contains(t, full[0].(map[string]any)["body"], "reasoner_input")
		learnings := all(t, path+"/learnings", "learnings")
		require.Len(t, learnings, 2)
		require.Equal(t, map[string]any{"id": "drink", "content": "likes tea"}, learnings[0]["body"])
		summaries := all(t, path+"/summaries", "summaries")
		require.NotEmpty(t, summaries)
		require.Contains(t, encode(t, summaries[0]["body"]), "They said hello.")
		require.Len(t, all(t, path+"/turns", "turns"), 2)
		require.Equal(t, "TURN_STATE_STARTED", rest(t, 200, "GET", path+"/turns/1", "")["state"])
	})
	t.Run("REST/RunOnAThreadOfItsOwn", func(t *testing.T) {
		start := func(user string) string {
			run := rest(t, 200, "POST", "/v1/runs", `{"graph": {"name": "help", "nodes": [{"id": "a", "actor": "agent/keeper", "named": {"user_input": "hello"}}]}, "userId": "`+user+`", "chatId": "desk", "thread": {}}`)
			_, err := epigraph.Result[string](t.Context(), c.Run(run["id"].(string)))
			require.NoError(t, err)
			return run["threadId"].(string)
		}
		first := start("cat")
		require.Equal(t, first, start("cat"))
		require.NotEqual(t, first, start("dan"))
		th := rest(t, 200, "GET", "/v1/threads/"+first, "")
		require.Equal(t, []any{"cat:desk:help", "cat", "desk"}, []any{th["key"], th["userId"], th["chatId"]})
		rest(t, 400, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "sleep"}]}, "thread": {"userId": "dan"}, "userId": "cat"}`)
		rest(t, 400, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "sleep"}]}, "thread": {"key": "k"}, "threadId": "`+first+`"}`)
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "agent/keeper", Named: map[string]json.RawMessage{"user_input": json.RawMessage(`"hello"`)}}}}
		run, err := c.StartRun(t.Context(), g, epigraph.OnNewThread(epigraph.RunThread()))
		require.NoError(t, err)
		m, err := run.Wait(t.Context())
		require.NoError(t, err)
		own, err := c.Thread(m.GetThreadId()).Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, executorv1.ThreadLifetime_THREAD_LIFETIME_RUN, own.GetLifetime())
	})
	t.Run("User/OfTheThreadIsThatOfItsRuns", func(t *testing.T) {
		th, err := c.CreateThread(t.Context(), "agent/keeper", epigraph.ThreadUser("fay", "desk"))
		require.NoError(t, err)
		fork := rest(t, 200, "POST", "/v1/threads/"+th.ID+":fork", `{}`)
		for _, id := range []string{th.ID, fork["id"].(string)} {
			turn, err := c.Thread(id).Send(t.Context(), "hello", "")
			require.NoError(t, err)
			run, err := c.Run(turn.GetRunId()).Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"fay", "desk"}, []string{run.GetUserId(), run.GetChatId()})
		}
		_, notes := command(t, "hello\n", "chat", "agent/keeper", "--user", "gus", "--chat", "desk")
		gus := rest(t, 200, "GET", "/v1/threads/"+regexp.MustCompile(`thr_\w+`).FindString(notes), "")
		require.Equal(t, []any{"gus", "desk"}, []any{gus["userId"], gus["chatId"]})
		for _, user := range []string{"fay", "gus"} {
			var learned []any
			testkit.Eventually(t, func() bool {
				learned, _ = rest(t, 200, "GET", "/v1/memory?agent=agent/keeper&userId="+user, "")["memories"].([]any)
				return len(learned) == 1
			}, user)
			rest(t, 200, "DELETE", "/v1/memory/"+learned[0].(map[string]any)["id"].(string), "")
		}
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "chat", "--thread", th.ID, "--user", "eve"}, cli.IO{In: strings.NewReader("hello\n"), Out: &o, Err: &e})
		require.Equal(t, 2, code)
		require.Contains(t, e.String(), `has the user "fay"`)
	})
	t.Run("CLI/TellsTheThreadOfAnAgentsRun", func(t *testing.T) {
		run := rest(t, 200, "POST", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": "agent/keeper", "named": {"user_input": "hello"}}]}}`)["id"].(string)
		_, err := epigraph.Result[string](t.Context(), c.Run(run))
		require.NoError(t, err)
		below := rest(t, 200, "GET", "/v1/runs?parentRunId="+run, "")["runs"].([]any)
		require.Len(t, below, 1)
		out, _ := command(t, "", "runs", "show", below[0].(map[string]any)["id"].(string))
		thread := regexp.MustCompile(`thread (thr_\w+)`).FindStringSubmatch(out)
		require.Len(t, thread, 2, out)
		rest(t, 200, "GET", "/v1/threads/"+thread[1], "")
		out, _ = command(t, "", "threads", "ls", "--limit", "1")
		require.Regexp(t, thread[1]+`.* run_\w+`, out)
	})
	t.Run("CLI/ShowsItems", func(t *testing.T) {
		for flag, list := range map[string]string{"": "messages", "--states": "states", "--learnings": "learnings", "--summaries": "summaries"} {
			args := []string{"threads", "show", id, "--json", "--limit", "1"}
			if flag != "" {
				args = append(args, flag)
			}
			out, _ := command(t, "", args...)
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(out), &got))
			require.Equal(t, id, got["thread"].(map[string]any)["id"])
			require.Len(t, got[list], 1, list)
			if list != "messages" {
				continue
			}
			out, _ = command(t, "", append(args, "--page-token", got["nextPageToken"].(string))...)
			var older map[string]any
			require.NoError(t, json.Unmarshal([]byte(out), &older))
			require.NotEqual(t, got[list], older[list])
		}
		out, _ := command(t, "", "threads", "show", id)
		require.Regexp(t, `(?m)^ +1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  user: hello hello `, out)
		require.Regexp(t, `(?m)  agent: hi$`, out)
		out, notes := command(t, "", "threads", "show", id, "--learnings", "--limit", "1")
		require.Contains(t, out, "likes tea")
		require.Contains(t, notes, "--page-token=")
		out, _ = command(t, "", "threads", "ls", "--lifetime", "run")
		require.NotContains(t, out, id)
		out, _ = command(t, "", "threads", "ls", "--lifetime", "conversation")
		require.Contains(t, out, id)
	})
	t.Run("CLI/ChatsByKey", func(t *testing.T) {
		out, _ := command(t, "hello\n", "chat", "--key", "ann:desk")
		require.Equal(t, "hi\n", out)
		_, first := command(t, "hello\n", "chat", "agent/keeper", "--key", "eve:desk")
		_, again := command(t, "hello\n", "chat", "agent/keeper", "--key", "eve:desk")
		thread := regexp.MustCompile(`thr_\w+`)
		require.Equal(t, thread.FindString(first), thread.FindString(again))
		out, _ = command(t, "", "threads", "turns", thread.FindString(again))
		require.Regexp(t, `2 +STARTED`, out)
	})
	t.Run("SDK/ReadsItems", func(t *testing.T) {
		th := c.Thread(id)
		learned := listed(t, th.Learnings(t.Context()))
		require.Len(t, listed(t, th.States(t.Context())), len(learned))
		require.Len(t, listed(t, th.Messages(t.Context())), 2*len(learned))
		require.NotEmpty(t, listed(t, th.Summaries(t.Context())))
	})
	t.Run("Learnings/OutliveTheThread", func(t *testing.T) {
		list := func(query string) []any {
			memories, _ := rest(t, 200, "GET", "/v1/memory?agent=agent/keeper&"+query, "")["memories"].([]any)
			return memories
		}
		var cat []any
		testkit.Eventually(t, func() bool {
			cat = list("scope.level=MEMORY_LEVEL_USER&scope.subject=cat")
			return len(cat) == 1 && len(list("scope.level=MEMORY_LEVEL_NAMESPACE")) == 1
		}, "what is learned about nobody is kept for the namespace")
		m := cat[0].(map[string]any)
		require.Equal(t, []any{"learned:agent/keeper:drink", "likes tea", "cat", "MEMORY_ORIGIN_AGENT"}, []any{m["key"], m["text"], m["userId"], m["origin"]})
		rest(t, 200, "DELETE", path, "")
		require.Len(t, list("userId=cat"), 1)
		rest(t, 200, "DELETE", "/v1/memory/"+m["id"].(string), "")
		require.Empty(t, list("userId=cat"))
		testkit.Eventually(t, func() bool { return len(list("userId=dan")) == 1 })
		out, _ := command(t, "", "memory", "ls", "--agent", "agent/keeper", "--user", "dan")
		require.Contains(t, out, "likes tea")
		command(t, "", "memory", "forget", "--user", "dan")
		require.Empty(t, list("userId=dan"), "nothing that was learned of a user stays who is forgotten")
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// TestStepsOnAThread runs a workflow with two agents on a thread, takes that out as a value, and goes on
// with it in another server.
func TestStepsOnAThread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "desk.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`name: Desk
inputs: {task: {type: string}}
agents: {ann: {instructions: You are Ann.}, bob: {instructions: You are Bob.}}
steps:
  - parallel:
      - {id: ann, type: agent, agent: ann, prompt: "{{ inputs.task }}"}
      - {id: bob, type: agent, agent: bob, prompt: "{{ inputs.task }}"}
`), 0o600))
	// serve starts a server whose model tells whether it heard of a greeting, and returns a command.
	serve := func(t *testing.T) func(args ...string) string {
		d := serveWith(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
			text := ""
			for _, m := range r.Messages {
				text += m.Content + "\n"
			}
			name := "Bob"
			if strings.Contains(text, "You are Ann") {
				name = "Ann"
			}
			return fakellm.Reply{Text: fmt.Sprintf("%s knows of hello: %t.", name, strings.Contains(text, "Hello"))}, true
		}}, func(*stack.Config) {})
		return func(args ...string) string {
			t.Helper()
			var o, e bytes.Buffer
			code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
			require.Zero(t, code, "%v: %s%s", args, o.String(), e.String())
			return o.String()
		}
	}
	here, there := serve(t), serve(t)
	id := regexp.MustCompile(`thr_[0-9a-z]+`)

	out := here("workflows", "run", file, "--input", "task=Hello", "--thread", "new")
	require.Contains(t, out, "Ann knows of hello: true.")
	require.Contains(t, out, "Bob knows of hello: true.")
	talk := id.FindString(out[strings.LastIndex(out, "conversation:"):])
	value := filepath.Join(t.TempDir(), "talk.json")
	here("threads", "export", talk, "-o", value)

	out = there("threads", "import", value)
	copied := id.FindString(out)
	require.NotEqual(t, talk, copied)
	out = there("workflows", "run", file, "--input", "task=And then?", "--thread", copied)
	require.Contains(t, out, "Ann knows of hello: true.", "each agent goes on with its own talk")
	require.Contains(t, out, "Bob knows of hello: true.")
	out = here("workflows", "run", file, "--input", "task=And here?", "--thread", talk)
	require.Contains(t, out, "Ann knows of hello: true.", "the first one is as it was")
	out = here("workflows", "run", file, "--input", "task=Who?")
	require.Contains(t, out, "Ann knows of hello: false.", "without a thread nothing is remembered")
}
