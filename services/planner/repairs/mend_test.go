package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/plan"
)

func TestMend(t *testing.T) {
	t.Parallel()
	const two = `[{"id": "a", "request": "x", "needs": ["zed", "a"]}, {"id": "b", "request": "y", "needs": ["a"]}]`
	const faults = "Faults:\n- line 1, column 3: UNKNOWN_REFERENCE \"zed\": the edge names nothing. Hint: add it\n    the line\n- SELF_LOOP \"a\": a depends on itself\n"
	t.Run("WholeMendsAll", func(t *testing.T) {
		t.Parallel()
		r := plan.Parse(mended(two, faults, true), plan.WithComplete())
		require.Empty(t, r.Diagnostics)
		require.Len(t, r.Graph.Problems, 2)
		require.Len(t, r.Graph.Edges, 1)
	})
	t.Run("HalfMendsEveryOther", func(t *testing.T) {
		t.Parallel()
		r := plan.Parse(mended(two, faults, false), plan.WithComplete())
		require.True(t, r.HasErrors())
		require.Len(t, r.Graph.Edges, 2)
	})
	t.Run("DoubtsAreLeft", func(t *testing.T) {
		t.Parallel()
		r := plan.Parse(mended(two, "\nDoubts:\n- SELF_LOOP \"a\": a doubt\n", true), plan.WithComplete())
		require.Len(t, r.Graph.Edges, 3)
	})
}

// TestMeasure mends two recorded plans, and leaves out one without a fault.
func TestMeasure(t *testing.T) {
	t.Parallel()
	data := testkit.GzipLines(t,
		record{ID: "cycle", Task: "cycle", Raw: `[{"id": "a", "request": "x", "needs": ["b"]}, {"id": "b", "request": "y", "needs": ["a"]}]`},
		record{ID: "unknown", Task: "unknown", Raw: `[{"id": "a", "request": "x", "needs": ["zed"]}]`},
		record{ID: "good", Task: "good", Raw: `[{"id": "a", "request": "x", "needs": []}]`})
	var out bytes.Buffer
	require.NoError(t, measure(t.Context(), &out, data, 4, true), "%s", &out)
	require.Contains(t, out.String(), "2 of 3 recorded plans have faults")
	require.Contains(t, out.String(), "mended 2 of 2 (100.0 %)")
}
