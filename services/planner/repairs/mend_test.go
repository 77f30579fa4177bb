package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

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
	data := filepath.Join(t.TempDir(), "plans.jsonl.gz")
	f, err := os.Create(data)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	for id, raw := range map[string]string{
		"cycle":   `[{"id": "a", "request": "x", "needs": ["b"]}, {"id": "b", "request": "y", "needs": ["a"]}]`,
		"unknown": `[{"id": "a", "request": "x", "needs": ["zed"]}]`,
		"good":    `[{"id": "a", "request": "x", "needs": []}]`,
	} {
		require.NoError(t, json.NewEncoder(z).Encode(map[string]string{"id": id, "task": id, "raw": raw}))
	}
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	var out bytes.Buffer
	require.NoError(t, measure(t.Context(), &out, data, 4, true), "%s", &out)
	require.Contains(t, out.String(), "2 of 3 recorded plans have faults")
	require.Contains(t, out.String(), "mended 2 of 2 (100.0 %)")
}
