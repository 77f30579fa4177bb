package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestWorkflows validates, draws and runs workflows from files with the actors of a server.
func TestWorkflows(t *testing.T) {
	d := serve(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		last := r.Messages[len(r.Messages)-1].Content
		switch {
		case strings.Contains(last, "What is this letter about?") && strings.Contains(last, "cold"):
			return fakellm.Reply{Text: `{"category": "complaint"}`}, true
		case strings.Contains(last, "What is this letter about?"):
			return fakellm.Reply{Text: `{"category": "praise"}`}, true
		case strings.Contains(last, "Answer it:"):
			return fakellm.Reply{Text: "Dear friend, thank you."}, true
		default:
			return fakellm.Reply{Text: `{"product": "tea"}`}, true
		}
	}})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}
	const letters = "../../examples/workflow/letters.yaml"
	write := func(t *testing.T, text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "w.yaml")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}

	t.Run("Validate/SaysThatItCanRun", func(t *testing.T) {
		out, notes := command(t, 0, "workflows", "validate", letters)
		require.Equal(t, "Letters 1.0 can run: 12 steps\n", out)
		require.Empty(t, notes)
	})
	t.Run("Validate/ShowsFaultsWithTheirPlaces", func(t *testing.T) {
		_, notes := command(t, 1, "workflows", "validate", "--offline", write(t, "name: x\nsteps:\n  - {id: a, type: wait, delay: 1s}\n  - {id: b, type: transform, template: \"{{ c }}\"}\n"))
		require.Contains(t, notes, "w.yaml:4:41: error[UNKNOWN_STEP]: there is no step \"c\"")
		require.Contains(t, notes, "4 |   - {id: b, type: transform, template: \"{{ c }}\"}")
	})
	t.Run("Validate/AsksTheServerAboutActors", func(t *testing.T) {
		file := write(t, "name: x\nsteps:\n  - {type: transform, template: 1}\n  - {id: b, type: actor, actor: htpp, with: {url: x}}\n")
		command(t, 0, "workflows", "validate", "--offline", file)
		_, notes := command(t, 1, "workflows", "validate", file)
		require.Contains(t, notes, "w.yaml:4:5: error[UNKNOWN_ACTOR]: b: ")
		require.Contains(t, notes, "http")
	})
	t.Run("Graph/IsDrawnAndCanBeRun", func(t *testing.T) {
		out, _ := command(t, 0, "workflows", "graph", letters)
		require.Contains(t, out, "flowchart LR")
		require.Contains(t, out, "kind: llm")
		out, _ = command(t, 0, "workflows", "graph", letters, "--json")
		file := filepath.Join(t.TempDir(), "graph.json")
		require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
		command(t, 0, "run", file, "--input", "letter=The tea was good.", "--input", `names=["Ann", "Bob"]`)
	})
	t.Run("Graph/HasTheTeamsAndTheGraphsWithin", func(t *testing.T) {
		for file, want := range map[string][]string{
			"swarm":        {`subgraph n2["team: team"]`, `n3["triage: agent"]`, `n6 --> n3`, `n3 -->|"handoff to refunds"| n4`},
			"selector":     {`n6["choose"]`, `n6 -.-> n3`},
			"map_reduce":   {`subgraph n4["results: spawn"]`, `n5 --> n6`, `n3 --> n4`},
			"orchestrator": {`subgraph n6["plan_execute: a workflow"]`, `["did: spawn"]`, `["step: agent"]`},
		} {
			out, _ := command(t, 0, "workflows", "graph", "../../examples/workflow/"+file+".yaml")
			for _, part := range want {
				require.Contains(t, out, part, file)
			}
			require.NotContains(t, out, "unknown")
		}
		router := write(t, "name: R\nagents: {a: {instructions: i, tools: [{handoff: b, name: over}]}, b: {human: true}}\nrouter: [{from: input, to: a}, {from: a, to: b, batch_size: 2}]\n")
		out, _ := command(t, 0, "workflows", "graph", router, "--dot")
		for _, part := range []string{"subgraph cluster_n2", `label="b: a person"`, `label="hears" style=dashed`, `label="over" style=dashed`} {
			require.Contains(t, out, part)
		}
	})
	t.Run("Run/TakesTheWayOfItsInput", func(t *testing.T) {
		out, _ := command(t, 0, "workflows", "run", letters, "--input", "letter=The tea was good.", "--input", `names=["Ann", "Bob"]`, "--json")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var run struct {
			ID     string
			Result json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &run))
		require.JSONEq(t, `{"letter": "Dear friend, thank you.", "about": "tea", "asked": null, "known": ["Ann"], "length": 17}`, string(run.Result))
		shown, _ := command(t, 0, "runs", "show", run.ID, "--json")
		require.Contains(t, shown, `"tokens":"100000"`, "the budget of the workflow")
	})
	t.Run("Run/AsksAPersonAndGoesOn", func(t *testing.T) {
		out, _ := command(t, 0, "workflows", "run", letters, "--input", "letter=The tea was cold.", "--input", "names=[]", "--detach")
		id := strings.TrimSpace(out)
		question := ""
		testkit.Eventually(t, func() bool {
			list, _ := command(t, 0, "interrupts", "list", "--run", id, "--json")
			question = regexp.MustCompile(`int_\w+`).FindString(list)
			return question != ""
		}, "nobody is asked")
		command(t, 0, "interrupts", "answer", question, "yes")
		shown, _ := command(t, 0, "runs", "watch", id)
		require.Contains(t, shown, `Shall we answer this? The tea was cold.`)
		require.Contains(t, shown, `"asked": "yes"`)
	})
	t.Run("Input/ThatDoesNotFitStartsNothing", func(t *testing.T) {
		out, notes := command(t, 2, "workflows", "run", letters, "--input", "letter=7")
		require.Contains(t, notes, "INPUT_INVALID")
		require.Empty(t, out)
	})
}
