package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestPatterns runs the script that prints what the agents of all shipped patterns say, with the command as
// a process.
func TestPatterns(t *testing.T) {
	t.Parallel()
	bin, err := plain()
	require.NoError(t, err)
	if !raced { // else it is for other tests, too
		t.Cleanup(func() { _ = os.RemoveAll(bin) })
	}
	cmd := exec.CommandContext(t.Context(), "../../scripts/patterns", filepath.Join(bin, "epigraph"))
	cmd.Env = append(os.Environ(), "PATTERNS_HTTP="+testkit.FreeAddress(t), "PATTERNS_GRPC="+testkit.FreeAddress(t))
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	said := map[string]string{}
	for part := range strings.SplitSeq(string(text), "=== ") {
		name, what, _ := strings.Cut(part, "\n")
		said[name] = what
	}
	for name, want := range map[string]string{
		"sequential":   "editor: Blue light scatters most in air.",
		"round_robin":  "critic: APPROVE",
		"selector":     "accountant: 300 euros in all. DONE",
		"swarm":        "refunds: Paid. DONE",
		"map_reduce":   "Tea is mild and coffee strong.",
		"best_of_n":    `"text": "Tea is calm."`,
		"orchestrator": "plan_execute: Acme is on board.",
		"handoff":      "repairs: We come. DONE",
	} {
		t.Run("Patterns/"+name, func(t *testing.T) {
			require.Contains(t, said[name], want)
		})
	}
}
