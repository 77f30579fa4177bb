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

// TestTeams runs the example teams on a server with agents whose model is scripted.
func TestTeams(t *testing.T) {
	// says is what agents say, by a part of their instructions: to the first call, the second one, …
	says := map[string][]fakellm.Reply{
		"Collect the facts":   {{Text: "Light scatters."}},
		"Write a short":       {{Text: "Blue light scatters most."}},
		"Make the answer":     {{Text: "Blue light scatters most in air."}},
		"Write the poem":      {{Text: "Steam rises."}, {Text: "Steam rises slowly."}},
		"Say what can be":     {{Text: "Make it longer."}, {Text: "APPROVE"}},
		"Break the task down": {{Text: "The guide first."}},
		"Say what there is":   {{Text: "The forum."}},
		"Say what it costs":   {{Text: "20 euros. DONE"}},
		"Hand over to who":    {{ToolCalls: []fakellm.ToolCall{{ID: "1", Name: "transfer_to_refunds", Arguments: "{}"}}}},
		"Pay the money":       {{Text: "I look."}, {Text: "Paid. DONE"}},
		"Ask what you must":   {{Text: "What does not work?"}, {ToolCalls: []fakellm.ToolCall{{ID: "1", Name: "transfer_to_repairs", Arguments: "{}"}}}},
		"Arrange the repair":  {{Text: "When are you at home?"}, {Text: "We come. DONE"}},
	}
	choices := []string{"planner", "guide", "somebody", "accountant"}
	d := serve(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		all := ""
		mine := 0
		for _, m := range r.Messages {
			all += m.Content + "\n"
			if m.Role == "assistant" {
				mine++
			}
		}
		if strings.Contains(all, "Answer with the name alone") {
			choice := choices[0]
			choices = choices[1:]
			return fakellm.Reply{Text: choice}, true
		}
		for part, replies := range says {
			if strings.Contains(r.Messages[0].Content, part) {
				return replies[min(mine, len(replies)-1)], true
			}
		}
		return fakellm.Reply{}, false
	}})
	command := func(t *testing.T, want int, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
		require.Equal(t, want, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}
	type result struct {
		Text, From string
		Stop       struct{ Reason, Text string }
		ThreadID   string `json:"thread_id"`
	}
	over := func(t *testing.T, out string) (r result) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var run struct{ Result json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &run))
		require.NoError(t, json.Unmarshal(run.Result, &r))
		return r
	}
	run := func(t *testing.T, name, task string) result {
		t.Helper()
		out, _ := command(t, 0, "workflows", "run", "../../examples/workflow/"+name+".yaml", "--input", "task="+task, "--json")
		return over(t, out)
	}
	// said is the conversation of a team.
	said := func(t *testing.T, thread string) string {
		t.Helper()
		out, _ := command(t, 0, "threads", "show", thread)
		return out
	}
	t.Run("Sequential/TheLastOneAnswers", func(t *testing.T) {
		r := run(t, "sequential", "Why is the sky blue?")
		require.Equal(t, result{"Blue light scatters most in air.", "editor", r.Stop, r.ThreadID}, r)
		require.Equal(t, "COMPLETE", r.Stop.Reason)
		for _, line := range []string{"Why is the sky blue?", "Light scatters.", "Blue light scatters most.", "Blue light scatters most in air."} {
			require.Contains(t, said(t, r.ThreadID), line)
		}
	})
	t.Run("RoundRobin/UntilOneApproves", func(t *testing.T) {
		r := run(t, "round_robin", "A haiku about tea")
		require.Equal(t, "TEXT", r.Stop.Reason)
		require.Equal(t, "Text 'APPROVE' mentioned", r.Stop.Text)
		require.Contains(t, said(t, r.ThreadID), "Steam rises slowly.")
	})
	t.Run("Selector/AModelChooses", func(t *testing.T) {
		r := run(t, "selector", "Plan a trip to Rome")
		require.Equal(t, "accountant", r.From)
		require.Empty(t, choices, "asked again after a name that there is not")
	})
	t.Run("Swarm/HandsOver", func(t *testing.T) {
		r := run(t, "swarm", "I want my money back.")
		require.Equal(t, "refunds", r.From)
		require.Equal(t, "Paid. DONE", r.Text)
		require.Contains(t, said(t, r.ThreadID), "Transferred to refunds.")
	})
	t.Run("Handoff/AsksThePersonAndGoesOn", func(t *testing.T) {
		out, _ := command(t, 0, "workflows", "run", "../../examples/workflow/handoff.yaml", "--input", "task=It does not work.", "--detach")
		id := strings.TrimSpace(out)
		answered := map[string]bool{}
		for _, answer := range []string{"The kettle.", "At noon."} {
			question := ""
			testkit.Eventually(t, func() bool {
				list, _ := command(t, 0, "interrupts", "list", "--run", id, "--json")
				question = regexp.MustCompile(`int_\w+`).FindString(list)
				return question != "" && !answered[question]
			}, "nobody is asked")
			answered[question] = true
			command(t, 0, "interrupts", "answer", question, answer)
		}
		shown, _ := command(t, 0, "runs", "watch", id)
		require.Contains(t, shown, "We come. DONE")
	})
	t.Run("Validate/TellsWarnings", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "w.yaml")
		require.NoError(t, os.WriteFile(file, []byte("name: x\nagents: {a: {instructions: i}, b: {instructions: j}}\nrouter: [{from: [input, b], to: a}, {from: a, to: b}]\n"), 0o600))
		out, notes := command(t, 0, "workflows", "validate", file)
		require.Contains(t, out, "x can run")
		require.Contains(t, notes, "w.yaml:2:")
		require.Contains(t, notes, "warning[CASCADE]: what \"a\" says leads to further messages to \"a\"")
	})
}
