package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/cassette"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

var update = flag.Bool("update", false, "record the cassettes of the examples anew, and rewrite the golden files")

// shops is the model of examples/agent/nested.json: three branches, one of which branches again, and an
// action after them.
func shops(r fakellm.Request) (fakellm.Reply, bool) {
	prompt := r.Messages[len(r.Messages)-1].Content
	say := func(status, text string, groups ...string) (fakellm.Reply, bool) {
		var b strings.Builder
		b.WriteString("<StructuredResponse><TaskStatus>" + status + "</TaskStatus><InstantResponse>" + text + "</InstantResponse><ImmediateNextActions>")
		for _, g := range groups {
			b.WriteString("<AlternativeActions>")
			for a := range strings.SplitSeq(g, "+") {
				b.WriteString("<Action><Type>" + a + "</Type></Action>")
			}
			b.WriteString("</AlternativeActions>")
		}
		return fakellm.Reply{Text: b.String() + "</ImmediateNextActions></StructuredResponse>"}, true
	}
	for _, c := range []struct {
		has    string
		status string
		text   string
		groups []string
	}{
		{"<ActionType>report<", "Completed", "At the market: most people for the rent.", nil},
		{"<ActionType>north<", "Completed", "north: 4000 people for 900", nil},
		{"<ActionType>east<", "Completed", "east: 2500 people for 700", nil},
		{"<ActionGroup>", "Completed", "", nil}, // the branch in the south has heard of its districts
		{"<ActionType>south<", "Ongoing", "I look at both districts.", []string{"harbor+market"}},
		{"<ActionType>harbor<", "Completed", "harbor: 9000 people for 1200", nil},
		{"<ActionType>market<", "Completed", "market: 7000 people for 1100", nil},
	} {
		if strings.Contains(prompt, c.has) {
			return say(c.status, c.text, c.groups...)
		}
	}
	return say("Ongoing", "I look at three places.", "north+south+east", "report")
}

// TestTree runs an example of branches in branches from its cassette, and shows it as a tree with what each
// call cost.
func TestTree(t *testing.T) {
	const tape, golden = "../../examples/agent/nested.jsonl", "testdata/tree.txt"
	if *update {
		require.NoError(t, os.RemoveAll(tape))
	}
	d := serveWith(t, fakellm.Script{Answer: shops}, func(cfg *stack.Config) {
		cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) { p.Model = "gpt-4o-mini" })
		cfg.Executor.Parallel = 1 // the branches take turns
		cfg.Models.Cassette.Mode, cfg.Models.Cassette.Path = cassette.Replay, tape
		if *update {
			cfg.Models.Cassette.Mode = cassette.Record
		}
	})
	command := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, 0, code, "%s%s", out.String(), errs.String())
		return out.String()
	}
	id := strings.TrimSpace(command("run", "--detach", filepath.Join("../../examples/agent/nested.json")))
	require.Contains(t, command("runs", "watch", id), "At the market: most people for the rent.")
	got := untimed(command("runs", "tree", id))
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	lines := command("runs", "tree", id, "--json")
	require.Equal(t, 8, strings.Count(lines, `"parentVisit"`), "two rounds with branches, and six agents")
}

// untimed is a tree without what differs from run to run.
func untimed(text string) string {
	var b strings.Builder
	ids := map[string]string{}
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, " ")
		b.WriteString(line[:len(line)-len(rest)])
		rest = regexp.MustCompile(`run_[0-9a-z]{26}`).ReplaceAllStringFunc(rest, func(id string) string {
			if ids[id] == "" {
				ids[id] = "run_" + string(rune('A'+len(ids)))
			}
			return ids[id]
		})
		rest = regexp.MustCompile(`  \d[\d.]*(µs|ms|s)\b`).ReplaceAllString(rest, "  TIME")
		b.WriteString(regexp.MustCompile(` {2,}`).ReplaceAllString(rest, "  "))
	}
	return b.String()
}
