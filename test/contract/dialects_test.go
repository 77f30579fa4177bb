package contract_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestDialectsInDocs reads the tiny plans of the table in docs/dialects.md, which names each dialect once.
func TestDialectsInDocs(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "dialects.md"))
	require.NoError(t, err)
	row, code := regexp.MustCompile("^\\| `([a-z_]+)` \\| (.*) \\| [^|]*\\|$"), regexp.MustCompile("`[^`]+`")
	var named []string
	for line := range strings.Lines(string(doc)) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		named = append(named, m[1])
		cell := strings.ReplaceAll(m[2], `\|`, "|")
		var text strings.Builder
		for at := 0; ; {
			span := code.FindStringIndex(cell[at:])
			if span == nil || text.Len() > 0 && strings.Trim(cell[at:at+span[0]], " ") != "/" {
				break // what follows is another plan
			}
			text.WriteString(cell[at+span[0]+1:at+span[1]-1] + "\n")
			at += span[1]
		}
		got := plan.Parse(text.String())
		require.Equal(t, m[1], got.Dialect, "%s", text.String())
	}
	slices.Sort(named)
	all := plan.Dialects()
	slices.Sort(all)
	require.Equal(t, all, named)
}
