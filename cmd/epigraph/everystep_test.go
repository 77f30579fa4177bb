package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/workflow"
)

// TestEveryStep runs one workflow with every type of step: a person answers, and a loop at its limit is
// resumed.
func TestEveryStep(t *testing.T) {
	d := serveWith(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		text := ""
		for _, m := range r.Messages {
			text += m.Content + "\n"
		}
		last := r.Messages[len(r.Messages)-1]
		switch {
		case strings.Contains(text, "What are these words about?"):
			return fakellm.Reply{Text: `{"category": "drinks"}`}, true
		case strings.Contains(text, "Take the first word"):
			return fakellm.Reply{Text: `{"first": "tea"}`}, true
		case strings.Contains(text, "Plan a letter") && last.Role == "user":
			calls := []fakellm.ToolCall{{ID: "c1", Name: "learn", Arguments: `{"id": "todos", "content": "[ ] letter"}`}, {ID: "c2", Name: "writer", Arguments: `{"user_input": "Write it."}`}}
			return fakellm.Reply{ToolCalls: calls}, true
		case strings.Contains(text, "Plan a letter"):
			return fakellm.Reply{Text: "Planned: " + last.Content}, true
		default:
			return fakellm.Reply{Text: "Dear friend."}, true
		}
	}}, func(c *stack.Config) { c.Registry.Workflows = "../../examples/workflow/stored" })
	command := func(t *testing.T, args ...string) string {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Zero(t, code, "%v: %s%s", args, o.String(), e.String())
		return o.String()
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	t.Cleanup(page.Close)
	const file = "../../examples/workflow/every.yaml"
	src, err := os.ReadFile(filepath.FromSlash(file))
	require.NoError(t, err)
	def, faults := workflow.Read(src)
	require.Empty(t, faults)
	require.Equal(t, workflow.StepTypes(), def.Uses().Types, "a type of step is missing")

	command(t, "workflows", "validate", file)
	id := strings.TrimSpace(command(t, "workflows", "run", file, "--input", "url="+page.URL, "--input", `words=["tea", "milk", "a"]`, "--detach"))
	asked := map[string]bool{}
	answer := func(what, with string) {
		t.Helper()
		testkit.Eventually(t, func() bool {
			for _, q := range regexp.MustCompile(`int_\w+`).FindAllString(command(t, "interrupts", "list", "--run", id, "--json"), -1) {
				if !asked[q] && strings.Contains(command(t, "interrupts", "show", q, "--json"), what) {
					asked[q] = true
					command(t, "interrupts", "answer", q, with)
					return true
				}
			}
			return false
		}, "nobody asks "+what)
	}
	answer("Shall we go on with tea?", "yes")
	answer("Is milk right?", "right")
	testkit.Eventually(t, func() bool { return strings.Contains(command(t, "runs", "show", id, "--json"), "MAX_ITERATIONS") }, "the loop does not pause")
	command(t, "runs", "resume", id)
	command(t, "runs", "watch", id)
	var shown struct {
		State  string
		Result json.RawMessage
	}
	raw := command(t, "runs", "show", id, "--json")
	require.NoError(t, json.Unmarshal([]byte(raw), &shown), "%s", raw)
	require.Equal(t, "RUN_STATE_COMPLETED", shown.State)
	require.JSONEq(t, `{
		"said": "Dear friend.", "planned": "Planned: Dear friend.", "user": null, "way": "poured", "rounds": 3, "length": 3, "sub": 6, "chat": "Dear friend.",
		"notes": ["drink", "0: tea", "1: milk", "2: a"],
		"checked": [{"check": null}, {"check": "right"}, {"check": null}],
		"beside": ["TEA (drinks)", "MILK (drinks)", "A (drinks)"], "doubled": [2, 4], "long": [{"word": "milk", "long": true}]
	}`, string(shown.Result), "%s", raw)
}
