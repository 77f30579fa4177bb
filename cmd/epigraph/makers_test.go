package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

const makerText = `
name: Maker
inputs: {task: {type: string}}
steps:
  - id: make
    type: agent
    prompt: "{{ inputs.task }}"
    tools: [create_workflow, discover_workflows]
  - {id: again, type: actor, actor: spawn, with: {ref: "{{ make }}", as_result: true}}
outputs: {made: "{{ make }}", ran: "{{ again }}"}
`

// TestAgentsMakeWorkflows has a scripted model look for a workflow, write one with faults, and mend it.
// The next step runs it.
func TestAgentsMakeWorkflows(t *testing.T) {
	faulty := "name: Tea bill\ntags: [tea]\nsteps:\n  - {id: sum, type: transform, expr: \"2 + 3\"}\n  - {id: say, type: transform, template: \"{{ sun }}\"}\n  - {id: say, type: transform, template: hot}\n"
	good := strings.Replace(strings.Replace(faulty, "sun", "sum", 1), "  - {id: say, type: transform, template: hot}\n", "", 1)
	fork := "based_on: tea-bill\nname: Tea bill in words\npatches:\n  - {action: add_step, after: say, step: {id: words, type: transform, template: \"It is {{ say }}.\"}}\n"
	arguments := func(key, text string) string {
		raw, err := json.Marshal(map[string]string{key: text})
		require.NoError(t, err)
		return string(raw)
	}
	calls := func(name, args string) fakellm.Reply {
		return fakellm.Reply{ToolCalls: []fakellm.ToolCall{call("c", name, args)}}
	}
	// says is what the model says to its n-th call of a task, and heard the answers of the tools.
	says := map[string][]fakellm.Reply{
		"a new one": {calls("discover_workflows", arguments("requirements", `{"node_types": ["transform"], "tags": ["tea"]}`)), calls("create_workflow", arguments("dsl", "```yaml\n"+faulty+"```")),
			calls("create_workflow", arguments("dsl", good)), {Text: "workflow/tea-bill@1"}},
		"a known one": {calls("discover_workflows", arguments("requirements", `{"node_types": ["transform"], "tags": ["tea"]}`)), {Text: "workflow/tea-bill@1"}},
		"a fork":      {calls("create_workflow", arguments("dsl", strings.Replace(fork, "after: say", "after: sai", 1))), calls("create_workflow", arguments("dsl", fork)), {Text: "workflow/tea-bill-in-words@1"}},
	}
	var mu sync.Mutex
	var heard []string
	d := serve(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		all, mine, last := "", 0, ""
		for _, m := range r.Messages {
			all, last = all+m.Content+"\n", m.Content
			if m.Role == "assistant" {
				mine++
			}
		}
		mu.Lock()
		heard = append(heard, last)
		mu.Unlock()
		for task, replies := range says {
			if strings.Contains(all, "Make "+task) {
				return replies[min(mine, len(replies)-1)], true
			}
		}
		return fakellm.Reply{}, false
	}})
	run := func(t *testing.T, task string) (made, ran string) {
		t.Helper()
		heard = nil
		var o, e bytes.Buffer
		file := filepath.Join(t.TempDir(), "maker.yaml")
		require.NoError(t, os.WriteFile(file, []byte(makerText), 0o600))
		code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "workflows", "run", file, "--json", "--input", "task=Make " + task}, cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, 0, code, "%s%s\n%q", o.String(), e.String(), heard)
		lines := strings.Split(strings.TrimSpace(o.String()), "\n")
		var shown struct {
			Result struct {
				Made string
				Ran  any
			}
		}
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &shown), o.String())
		return shown.Result.Made, fmt.Sprint(shown.Result.Ran)
	}
	t.Run("FaultsAreMendedAndItIsRun", func(t *testing.T) {
		made, ran := run(t, "a new one")
		require.Equal(t, []string{"workflow/tea-bill@1", "5"}, []string{made, ran})
		require.Contains(t, heard[1], `"matches":[]`)
		for _, part := range []string{`"success":false`, `"line":5`, `"column":`, `"line":6`, "did you mean `sum`?", `  - {id: say, type: transform, template`, `^"`} {
			require.Contains(t, heard[2], part)
		}
		require.Contains(t, heard[3], `"ref":"workflow/tea-bill@1"`)
	})
	t.Run("ItIsFoundTheNextTime", func(t *testing.T) {
		_, ran := run(t, "a known one")
		require.Equal(t, "5", ran)
		for _, part := range []string{`"match_score":1`, `"recommendation":"reuse"`, `"has":["transform"]`, `"missing":[]`} {
			require.Contains(t, heard[1], part)
		}
	})
	t.Run("ItIsForked", func(t *testing.T) {
		_, ran := run(t, "a fork")
		require.Equal(t, "It is 5.", ran)
		require.Contains(t, heard[1], `"line":4`)
		require.Contains(t, heard[2], `"mode":"forked"`)
	})
	t.Run("TheWorkflowOfTheCallIsNotFound", func(t *testing.T) {
		finder := "name: Finder\ntags: [tea]\nsteps:\n  - {id: sum, type: transform, expr: \"2 + 3\"}\n  - {id: find, type: actor, actor: workflow_discover, with: {requirements: {tags: [tea]}}}\n" +
			"  - {id: ask, type: agent, prompt: Make nothing, tools: [discover_workflows]}\noutputs: {found: \"{{ find.matches }}\"}\n"
		mu.Lock()
		says["nothing"] = []fakellm.Reply{calls("discover_workflows", arguments("requirements", `{"tags": ["tea"]}`)), {Text: "There are some."}}
		heard = nil
		mu.Unlock()
		file := filepath.Join(t.TempDir(), "finder.yaml")
		require.NoError(t, os.WriteFile(file, []byte(finder), 0o600))
		command := func(args ...string) string {
			var o, e bytes.Buffer
			code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
			require.Equal(t, 0, code, "%s%s", o.String(), e.String())
			return o.String()
		}
		command("workflows", "create", file)
		lines := strings.Split(strings.TrimSpace(command("workflows", "run", "finder", "--json")), "\n")
		var shown struct {
			Result struct{ Found []struct{ Slug string } }
		}
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &shown))
		require.NotEmpty(t, shown.Result.Found)
		for _, m := range shown.Result.Found {
			require.NotEqual(t, "finder", m.Slug)
		}
		require.Contains(t, heard[1], `"slug":"tea-bill"`)
		require.NotContains(t, heard[1], `"slug":"finder"`, "the agent asks in a run below")
		require.Contains(t, command("workflows", "discover", "--query", "finder"), "finder", "others find it")
	})
}
