package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDelegationPage runs every command of docs/delegation.md in one shell, so that none is refused. The walk
// from an idea to the bill comes first: it makes the workflow that the rest of the page uses.
func TestDelegationPage(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	text := page(t, "docs/delegation.md")
	all := blocks(text, "sh")
	_, walk, found := strings.Cut(text, "\n## An epic from an idea to the bill\n")
	require.True(t, found)
	walk, _, found = strings.Cut(walk, "\n## ")
	require.True(t, found)
	first := blocks(walk, "sh")
	rest := slices.DeleteFunc(slices.Clone(all), func(b string) bool { return slices.Contains(first, b) })
	require.Len(t, first, 5)
	require.Len(t, rest, len(all)-len(first), "the walk has blocks of its own")

	moves := strings.NewReplacer("epigraph dev --scripted &\n", "", "URL=http://127.0.0.1:8080 KEY=ek_…", "URL="+d.url+" KEY="+d.key, "ep_…", "$epic")
	var commands strings.Builder
	for _, block := range slices.Concat(first, rest) {
		for line := range strings.Lines(moves.Replace(block)) {
			// An epic in which a task has failed ends the watch with the exit code of that.
			if command, watches := strings.CutSuffix(strings.TrimSpace(strings.Split(line, " #")[0]), "--watch"); watches && line[0] != ' ' {
				line = command + "--watch || test $? -le 5\n"
			}
			commands.WriteString(line)
		}
	}
	out := script(t, d.dir, d.env, commands.String())
	for _, want := range []string{
		"failed  Write to the town", "the inputs do not fit the workflow", "3 of 3 completed", "epic/", "hard cap: $5.00",
		"completed  Read the conditions", "2 of 4 done, 0 running, 0 ready, 0 blocked, 2 failed", `{"matches":[`, `"answer": "done"`,
	} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "own reasoning", "agents that work on tasks do the work")
}
