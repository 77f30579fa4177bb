package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuick runs everything that needs no server: the floors and Epigraph on SQLite, and the runner in memory.
func TestQuick(t *testing.T) {
	dags := filepath.Join(t.TempDir(), "dags.jsonl")
	require.NoError(t, os.WriteFile(dags, []byte(`{"id":"a","family":"x","n":3,"runtime_s":[1,2,3],"edges":[[0,1],[0,2]]}`+"\n"+
		`{"id":"b","family":"y","n":2,"runtime_s":[0,1],"edges":[[1,0]]}`+"\n"), 0o600))
	o := options{dir: "../..", store: onSQLite, only: "^Epigraph", rounds: 1, quick: true, dags: dags, dagCount: 2, waiting: 10, jsonPath: filepath.Join(t.TempDir(), "out.json")}
	var out bytes.Buffer
	require.NoError(t, bench(t.Context(), o, slog.New(slog.DiscardHandler), &out), "%s", &out)

	raw, err := os.ReadFile(o.jsonPath)
	require.NoError(t, err)
	var r Report
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Empty(t, r.Failed)
	got := map[string]map[string]float64{}
	for _, c := range r.Contestants {
		got[c.Name] = c.Median
	}
	for _, name := range []string{sqliteOne, sqliteGroup, epigraphLite, epigraphMem} {
		for _, figure := range []string{w1 + wall, w2small + wall, w2large + wall, rate, w4 + overPath, doneP50, startP50, w7many + overPath} {
			require.Positive(t, got[name][figure], "%s: %s", name, figure)
		}
	}
	require.Positive(t, got[epigraphLite][w7alone+overPath])
	require.Contains(t, out.String(), "Aims")
}

func TestChoose(t *testing.T) {
	names := func(o options) []string {
		specs, err := choose(o)
		require.NoError(t, err)
		var out []string
		for _, s := range specs {
			out = append(out, s.name)
		}
		return out
	}
	t.Run("Floors/ComeWithTheirStore", func(t *testing.T) {
		require.Equal(t, []string{floorOne, floorGroup, epigraphLocal}, names(options{store: "all", only: "^Epigraph$"}))
		require.Equal(t, []string{sqliteOne, sqliteGroup, epigraphLite}, names(options{store: "all", only: "^Epigraph, SQLite$"}))
	})
	t.Run("Store/LeavesOthersOut", func(t *testing.T) {
		require.NotContains(t, names(options{store: onSQLite}), floorOne)
	})
	t.Run("Store/Unknown", func(t *testing.T) {
		_, err := choose(options{store: "tape"})
		require.Error(t, err)
	})
}

func TestFigures(t *testing.T) {
	a, b := figures{}, figures{}
	for r, v := range []float64{10, 20, 60} {
		a.put("x", r, v)
		b.put("x", r, 10)
	}
	b.put("x", 3, 1)
	v, ok := a.value("x")
	require.True(t, ok)
	require.InDelta(t, 20.0, v, 0)
	ratio, ok := a.ratio(b, "x")
	require.True(t, ok)
	require.InDelta(t, 2.0, ratio, 0)
	_, ok = a.ratio(b, "y")
	require.False(t, ok)
}
