package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
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

// TestPagesNameEveryKey looks for each key of the language in the code of the pages: those of a workflow in
// the reference, those of its parts in any of the pages.
func TestPagesNameEveryKey(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile("(?ms)^```.*?^```$|`[^`]+`")
	word := regexp.MustCompile(`[a-z_]+`)
	named := func(pages ...string) map[string]bool {
		out := map[string]bool{}
		for _, page := range pages {
			text, err := os.ReadFile("../docs/" + page + ".md")
			require.NoError(t, err)
			for _, span := range code.FindAll(text, -1) {
				for _, w := range word.FindAll(span, -1) {
					out[string(w)] = true
				}
			}
		}
		return out
	}
	// They are read to be refused with what to write in their place.
	refused := []string{"skills", "enable_filesystem", "filesystem_backend", "filesystem_root_dir"}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		object
		Definitions map[string]object `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(workflow.Schema(), &schema))
	require.Contains(t, schema.Properties, "graph")
	require.Contains(t, schema.Definitions, "agent")
	reference, all := named("workflow-reference"), named("workflow-reference", "workflow-teams", "triggers")
	for key := range schema.Properties {
		require.True(t, reference[key], "docs/workflow-reference.md does not name the key `%s` of a workflow", key)
	}
	for part, of := range schema.Definitions {
		for key := range of.Properties {
			require.True(t, all[key] || slices.Contains(refused, key), "no page names the key `%s` of the part %s", key, part)
		}
	}
}
