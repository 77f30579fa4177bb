package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/bench/load"
)

// TestQuick runs everything that needs no server: the floors and Epigraph on SQLite, and the runner in
// memory.
func TestQuick(t *testing.T) {
	dags := filepath.Join(t.TempDir(), "dags.jsonl")
	require.NoError(t, os.WriteFile(dags, []byte(`{"id":"a","family":"x","n":3,"runtime_s":[1,2,3],"edges":[[0,1],[0,2]]}`+"\n"+
		`{"id":"b","family":"y","n":2,"runtime_s":[0,1],"edges":[[1,0]]}`+"\n"), 0o600))
	o := options{dir: "../..", store: onSQLite, only: "^Epigraph", rounds: 1, quick: true, dags: dags, dagCount: 2, waiting: 10, most: time.Minute, jsonPath: filepath.Join(t.TempDir(), "out.json")}
	var out bytes.Buffer
	require.NoError(t, bench(t.Context(), o, slog.New(slog.DiscardHandler), &out), "%s", &out)

	raw, err := os.ReadFile(o.jsonPath)
	require.NoError(t, err)
	var r Report
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Empty(t, r.Faults)
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

func TestTakes(t *testing.T) {
	c := func(name string, peer bool) *contestant { return &contestant{spec: &spec{name: name, peer: peer}} }
	own, quick, slow := c("own", false), c("quick", true), c("slow", true)
	all := []*contestant{slow, own, quick}
	costs := map[*contestant]time.Duration{own: time.Second, quick: time.Second, slow: 20 * time.Second}
	o := options{rounds: 5, peerRounds: 3}
	t.Run("First/Everybody", func(t *testing.T) {
		require.Equal(t, all, o.takes(all, 0, nil, 0))
	})
	t.Run("Further/WhoFits", func(t *testing.T) {
		require.Equal(t, []*contestant{own, quick}, o.takes(all, 1, costs, 10*time.Second))
		require.Equal(t, all, o.takes(all, 1, costs, 60*time.Second))
	})
	t.Run("Least/OursInAnyCase", func(t *testing.T) {
		require.Equal(t, []*contestant{own}, o.takes(all, 2, costs, 0))
		require.Empty(t, o.takes(all, 3, costs, 0))
	})
	t.Run("PeerRounds/Bound", func(t *testing.T) {
		require.Equal(t, []*contestant{own}, o.takes(all, 3, costs, time.Hour))
	})
}

func TestForesee(t *testing.T) {
	l := simple(w1, 1, "", load.Chain(100), 10, time.Second)
	l.warm.Graphs = []load.Graph{load.Chain(10)}
	require.Equal(t, 20*time.Second, l.foresee([]time.Duration{time.Second, 2 * time.Second, 9 * time.Second}))
	require.Zero(t, l.foresee(nil))
}

func TestReport(t *testing.T) {
	f := figures{}
	f.put(w1+wall, 0, 12)
	r := &Report{Contestants: []Line{{Name: "A", Class: localClass, figures: f}, {Name: "B", Class: localClass, figures: figures{}, Repeats: 2}},
		Faults: []Fault{{Contestant: "B", Load: w1, Text: "no more connections"}}}
	var out bytes.Buffer
	r.text(&out)
	require.Contains(t, out.String(), "failed [1]")
	require.Contains(t, out.String(), "[1] B W1: no more connections")
	require.Contains(t, out.String(), "B: 2 nodes ran again")
}
