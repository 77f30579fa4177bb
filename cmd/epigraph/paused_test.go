package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// TestPausedAgent uses agents that make no progress, from the run above that waits for them.
func TestPausedAgent(t *testing.T) {
	const again = `{"max_no_progress": 3, "actions": {"north": {"actor": "template", "named": {"text": "fog"}}}}`
	d := serveAgents(t, "\nexecutor:\n  actors:\n    agents:\n      again: {definition: '"+again+"'}\n", fakellm.Script{
		Answer: func(fakellm.Request) (fakellm.Reply, bool) { return fakellm.Reply{Text: `["north"]`}, true },
	})
	command := func(t *testing.T, code int, in string, args ...string) (out, notes string) {
		t.Helper()
		var o, n bytes.Buffer
		require.Equal(t, code, cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &n}), "%s%s", &o, &n)
		return o.String(), n.String()
	}
	t.Run("Run", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "again.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"nodes": [{"id": "nap", "actor": "sleep", "named": {"duration": "1200ms"}},
			{"id": "agent", "actor": "agent/again", "named": {"goal": "look"}}]}`), 0o600))
		out, notes := command(t, 4, "", "run", file)
		require.Contains(t, out, "✓ nap", "the watch goes on while something moves")
		id := regexp.MustCompile(`run_\w+`).FindString(out)
		found := regexp.MustCompile(id + ` waits for what is paused: (run_\w+) \(AGENT_NO_PROGRESS\)\n`).FindStringSubmatch(notes)
		require.Len(t, found, 2, notes)
		require.Contains(t, notes, "`epigraph runs resume "+id+"` goes on")
		child := found[1]

		out, _ = command(t, 0, "", "runs", "explain", id)
		require.Contains(t, out, child+" paused\n- paused: the run is paused: AGENT_NO_PROGRESS")
		require.Contains(t, out, "`epigraph runs resume "+child+"` continues it")
		require.NotContains(t, out, "waits for reason")
		require.NotContains(t, out, "runs explain", "it is explained below")

		for range 2 {
			out, _ = command(t, 0, "", "runs", "resume", "--step", id)
			require.Contains(t, out, id+" goes on")
			_, notes = command(t, 4, "", "runs", "watch", id)
			require.Contains(t, notes, child+" (STEP)")
		}
		out, _ = command(t, 4, "", "runs", "watch", id, "--json")
		require.Contains(t, out[strings.LastIndex(strings.TrimSpace(out), "\n"):], `"RUN_STATE_WAITING"`, "the last line is the run")

		command(t, 0, "", "runs", "stop", id)
		out, _ = command(t, 0, "", "runs", "watch", id)
		require.Regexp(t, `2 completed · [\d,]+→\d+ tokens · \$[\d.]+\n`, out, "tokens of the run below")
		_, notes = command(t, 1, "", "runs", "resume", id)
		require.Contains(t, notes, "RUN_NOT_PAUSED")
	})
	t.Run("Chat", func(t *testing.T) {
		t.Parallel()
		_, notes := command(t, 4, "look\nlook again\n", "chat", "agent/again")
		require.Regexp(t, `(?m)^run_\w+ waits for what is paused: run_\w+ \(AGENT_NO_PROGRESS\); .epigraph runs resume run_`, notes)
		require.Regexp(t, `(?m)^the message waits: run_\w+ waits for what is paused`, notes)
	})
}
