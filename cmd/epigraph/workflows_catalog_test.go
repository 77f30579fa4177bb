package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestCatalog keeps workflows in the catalog, runs them by name, and sees what came of their runs.
func TestCatalog(t *testing.T) {
	d := serve(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		last := r.Messages[len(r.Messages)-1]
		if last.Role != "user" {
			return fakellm.Reply{Text: "It says: " + last.Content}, true
		}
		return fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "1", Name: "hello_world_1", Arguments: `{"input": {"named": {"name": "Bob"}}}`}}}, true
	}})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	const hello = "name: Hello World\ntags: [greeting]\ninputs: {name: {type: string}}\nsteps:\n  - {id: say, type: reply_chat, message: \"Hello {{ inputs.name }}\"}\n"

	out, notes := command(t, 0, "workflows", "create", file("one.yaml", hello))
	require.Equal(t, "hello-world@1\n", out)
	require.Contains(t, notes, "epigraph workflows run hello-world@1")
	out, _ = command(t, 0, "workflows", "create", file("two.yaml", strings.Replace(hello, "Hello {{", "Good day {{", 1)), "--as", "hello-world")
	require.Equal(t, "hello-world@2\n", out)
	out, _ = command(t, 0, "workflows", "create", file("one.yaml", hello), "--as", "hello-world")
	require.Equal(t, "hello-world@1\n", out, "the same text is the same version")
	out, _ = command(t, 0, "workflows", "alias", "hello-world", "prod", "1")
	require.Equal(t, "prod:1\n", out)

	out, _ = command(t, 0, "workflows", "run", "hello-world@prod", "--input", "name=Ada")
	require.Contains(t, out, "Hello Ada")
	out, _ = command(t, 0, "workflows", "run", "hello-world", "--input", "name=Ada")
	require.Contains(t, out, "Good day Ada", "the newest version")
	_, notes = command(t, 2, "workflows", "run", "hello-world@prod")
	require.Contains(t, notes, "INPUT_INVALID", "no run is started without its input")
	command(t, 0, "schedules", "create", "nameless", "--workflow", "hello-world@prod", "--cron", "@yearly")
	command(t, 0, "schedules", "trigger", "nameless") // its run fails
	out, _ = command(t, 0, "schedules", "create", "greet", "--workflow", "hello-world@prod", "--cron", "@yearly", "--input", "name=Ada")
	require.Contains(t, out, "workflow: hello-world@prod")
	out, _ = command(t, 0, "schedules", "update", "greet", "--workflow", "hello-world@2")
	require.Contains(t, out, "workflow: hello-world@2")
	command(t, 2, "schedules", "create", "both", "plan.txt", "--workflow", "hello-world", "--cron", "@yearly")
	_, notes = command(t, 1, "schedules", "create", "none", "--workflow", "nobody", "--cron", "@yearly")
	require.Contains(t, notes, "there is no workflow")
	_, notes = command(t, 1, "workflows", "run", "hello-word")
	require.Contains(t, notes, "there is no workflow")

	found := func() (m struct {
		Matches []struct {
			Slug           string  `json:"slug"`
			MatchScore     float64 `json:"matchScore"`
			SuccessRate    float64 `json:"successRate"`
			Recommendation string  `json:"recommendation"`
		} `json:"matches"`
	},
	) {
		out, _ := command(t, 0, "workflows", "discover", "--requirements", `{"node_type": "reply_chat", "tags": ["greeting"]}`, "--json")
		require.NoError(t, json.Unmarshal([]byte(out), &m))
		return m
	}
	testkit.Eventually(t, func() bool { return found().Matches[0].SuccessRate == 0.6667 }, "two of three runs completed")
	require.Equal(t, "reuse", found().Matches[0].Recommendation)
	out, _ = command(t, 0, "workflows", "show", "hello-world")
	require.Contains(t, out, "2 completed, 1 failed, 0 canceled")
	out, _ = command(t, 0, "workflows", "show", "hello-world@prod")
	require.Equal(t, hello, out)
	out, _ = command(t, 0, "workflows", "versions", "hello-world")
	require.Contains(t, out, "50% of 2")
	out, _ = command(t, 0, "workflows", "discover", "-q", "world")
	require.Contains(t, out, "hello-world@2")
	out, _ = command(t, 0, "workflows", "discover", "--requirements", `{"triggers": ["manual"], "tools": ["http"]}`)
	require.Regexp(t, `(?m)^WORKFLOW +SCORE +ADVICE +HAS +MISSING +EXTRA +SUCCESS +COST +NAME$`, out)
	require.Regexp(t, `(?m)^hello-world@2 +0\.5667 +fork and patch +manual +http +reply_chat +67% of 3 +\$0\.00 +Hello World$`, out)

	out, _ = command(t, 0, "workflows", "fork", file("fork.yaml", "based_on: hello-world@1\nname: Hallo\npatches:\n  - {action: update_config, step_id: say, config: {message: \"Hallo {{ inputs.name }}\"}}\n"))
	require.Equal(t, "hallo@1\n", out)
	out, _ = command(t, 0, "workflows", "diff", "hello-world@1", filepath.Join(dir, "two.yaml"))
	require.Contains(t, out, "Good day", "a file beside a version")
	out, _ = command(t, 0, "workflows", "diff", filepath.Join(dir, "one.yaml"), "hello-world@1")
	require.Contains(t, out, "say the same")
	out, _ = command(t, 0, "workflows", "graph", "hello-world@prod")
	require.Contains(t, out, "say")
	out, _ = command(t, 0, "workflows", "validate", "hello-world@2")
	require.Contains(t, out, "Hello World can run")
	out, _ = command(t, 0, "workflows", "diff", "hello-world@1", "hallo")
	require.Contains(t, out, "Hallo")
	command(t, 0, "workflows", "deprecate", "hallo", "-m", "use hello-world")
	_, notes = command(t, 0, "workflows", "run", "hallo", "--input", "name=Ada")
	require.Contains(t, notes, "warning: hallo@1 is deprecated: use hello-world")
	out, _ = command(t, 0, "workflows", "ls")
	require.Contains(t, out, "deprecated")
	command(t, 0, "workflows", "rm", "hallo")
	_, notes = command(t, 1, "workflows", "show", "hallo")
	require.Contains(t, notes, "epigraph workflows ls")

	out, _ = command(t, 0, "workflows", "run", file("calls.yaml", `name: Calls
steps:
  - {id: step, type: actor, actor: workflow/hello-world@2, with: {name: Eve}}
  - {id: tool, type: agent, prompt: Greet Bob., tools: [workflow/hello-world@1]}
outputs: {step: "{{ step }}", tool: "{{ tool }}"}
`))
	require.Contains(t, out, "Good day Eve", "a workflow as the actor of a step")
	require.Contains(t, out, "It says: Hello Bob", "and as a tool of an agent")

	graphs := filepath.Join(dir, "graphs")
	require.NoError(t, os.Mkdir(graphs, 0o700))
	file("graphs/greet@2.json", `{"nodes": [{"id": "say", "actor": "template", "named": {"text": "hi"}}]}`)
	file("graphs/greet@10.json", `{"nodes": [{"id": "say", "actor": "template", "named": {"text": "ho"}}]}`)
	file("graphs/greet@old.json", `{}`)
	out, notes = command(t, 1, "workflows", "import-dir", graphs)
	require.Equal(t, "greet@2\ngreet@10\n", out)
	require.Contains(t, notes, "greet@old.json: its version is no number")
	require.NoError(t, os.Remove(filepath.Join(graphs, "greet@old.json")))
	out, _ = command(t, 0, "workflows", "import-dir", graphs)
	require.Equal(t, "greet@2\ngreet@10\n", out, "importing again changes nothing")
	out, _ = command(t, 0, "workflows", "run", "greet@2")
	require.Contains(t, out, "hi")
}
