package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestFamily(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		const most = 8
		a := actors{"self": spawns(workgraph.Child{Ref: "self"}, workgraph.Child{Ref: "self"}, workgraph.Child{Ref: "self"})}
		l := run(t, s, a, func(c *engine.Config, _ *engine.Deps) { c.MaxFamily, c.MaxDepth = most, 5 })
		l.jobs(t)
		id := l.start(t, chain(1, "self"))
		l.wait(t, id, journal.StateCompleted)
		below, err := l.j.Descendants(t.Context(), ns, id)
		require.NoError(t, err)
		require.Len(t, below, 6, "children come together or not at all")
		for _, d := range below {
			row := l.row(t, d.RunID)
			if row.State == journal.StateFailed {
				require.Contains(t, string(row.Error), engine.ReasonFamilyExceeded)
				require.Contains(t, string(row.Error), "raise max_family")
			}
		}
		// Another root has a family of its own.
		l.wait(t, l.start(t, chain(1, "self")), journal.StateCompleted)
	})
}
