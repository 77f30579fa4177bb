package e2e_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamples runs the examples of clients in other languages as they are.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := start(t, options{store: "sqlite"})
	for name, command := range map[string][]string{
		"Python": {"python3", "../../examples/python/plan.py"},
		"Node":   {"node", "../../examples/node/plan.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
			cmd.Env = append(os.Environ(), "EPIGRAPH_URL=http://"+s.procs["gateway"].addr, "EPIGRAPH_API_KEY="+keyA)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			for _, line := range []string{"refused PLAN_INVALID\n", "did Research", "asked: Publish it?\n", `RUN_STATE_COMPLETED "did Publish"` + "\n"} {
				require.Contains(t, string(out), line)
			}
		})
	}
}
