package workflow_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

// TestPagesCompile compiles the definitions that the pages show as a whole: those that begin with a name
// and have steps or a team.
func TestPagesCompile(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?ms)^```yaml\n(name: .*?)^```")
	found := 0
	for _, page := range []string{"workflows", "workflow-teams", "workflow-reference", "triggers"} {
		text, err := os.ReadFile("../docs/" + page + ".md")
		require.NoError(t, err)
		for i, m := range block.FindAllSubmatch(text, -1) {
			found++
			t.Run(fmt.Sprintf("%s/%d", page, i+1), func(t *testing.T) {
				t.Parallel()
				d, faults := workflow.Read(m[1])
				require.Empty(t, faults)
				_, faults = workflow.Compile(d)
				require.Empty(t, faults)
			})
		}
	}
	require.Greater(t, found, 4)
	text, err := os.ReadFile("../docs/workflows.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(text), "\n"), 170, "the language is two pages")
}
