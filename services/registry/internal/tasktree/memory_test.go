package tasktree_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/tasktree"
)

// TestReadHoldsLittleOfAHostileDocument is not parallel: it counts what the process allocates.
func TestReadHoldsLittleOfAHostileDocument(t *testing.T) {
	long := strings.Repeat("k", 32)
	deep := strings.Repeat(`{"`+long+`": `, 14)
	for name, src := range map[string]string{
		"DeepList":     `{"title": "t", "tasks": [], "x": ` + deep + `[` + strings.Repeat("0,", 99_000) + `0]` + strings.Repeat("}", 14) + `}`,
		"Requirements": `{"title": "t", "tasks": [{"id": 1, "title": "t", "requirements": ` + deep[:12*len(deep)/14] + `[` + strings.Repeat("0,", 90_000) + `0]` + strings.Repeat("}", 12) + `}]}`,
		"Edges":        `{"title": "t", "tasks": [], "edges": [` + strings.Repeat("[],", 90_000) + `[]]}`,
		"DependsOn":    `{"title": "t", "tasks": [{"id": 1, "title": "t", "depends_on": [` + strings.Repeat("1,", 90_000) + `1]}]}`,
		"Tags":         `{"title": "t", "tasks": [], "tags": [` + strings.Repeat(`"",`, 90_000) + `""]}`,
		"Objects":      `{"title": "t", "tasks": [` + strings.Repeat(`{},`, 90_000) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			tree, faults := tasktree.Read([]byte(src))
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(tree)
			runtime.KeepAlive(faults)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "of a document of %d bytes", len(src))
		})
	}
}
