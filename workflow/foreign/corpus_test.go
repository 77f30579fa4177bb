package foreign_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/foreign"
)

// record is a definition of another system, with its nodes and edges as others have read them.
type record struct {
	ID, Platform string
	Nodes        []struct{ ID, Type string }
	Edges        [][]string
	Raw          string
	Acyclic      bool
}

// tally counts what became of the definitions of a platform.
type tally struct {
	read, imported, complete, items         int
	nodes, carried, edges, kept             int
	before, preserved, invented, acyclicAll int
	refused                                 map[string]int
}

// corpus are the recorded definitions. The test is skipped without them.
func corpus(t *testing.T) []record {
	path := os.Getenv("EPIGRAPH_WORKFLOWS")
	if path == "" {
		path = "../../../shared/data/workflows.jsonl.gz"
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no recorded definitions; name the file in EPIGRAPH_WORKFLOWS")
	}
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var out []record
	for dec := json.NewDecoder(z); ; {
		var r record
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, r)
	}
}

// order says which of some names come before which, by edges.
func order(edges [][]string) map[string]map[string]bool {
	next := map[string][]string{}
	for _, e := range edges {
		next[e[0]] = append(next[e[0]], e[1])
	}
	out := map[string]map[string]bool{}
	for from := range next {
		reached := map[string]bool{}
		todo := slices.Clone(next[from])
		for len(todo) > 0 {
			n := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !reached[n] {
				reached[n] = true
				todo = append(todo, next[n]...)
			}
		}
		out[from] = reached
	}
	return out
}

// TestCorpus imports recorded definitions and compares the order of their steps with that of the graph:
// of no two steps it may be another one, unless the report says so.
func TestCorpus(t *testing.T) {
	t.Parallel()
	tallies := map[string]*tally{}
	for _, r := range corpus(t) {
		if r.Raw == "" || r.Platform == "flowise" || r.Platform == "dify" {
			continue
		}
		y := tallies[r.Platform]
		if y == nil {
			y = &tally{refused: map[string]int{}}
			tallies[r.Platform] = y
		}
		y.read++
		got, err := foreign.Import([]byte(r.Raw))
		if err != nil {
			y.refused[err.Error()]++
			continue
		}
		y.imported++
		require.Equal(t, r.Platform, string(got.Platform), r.ID)
		d, faults := workflow.Read(got.YAML)
		require.Empty(t, faults, r.ID)
		g, faults := workflow.Compile(d)
		require.Empty(t, faults, r.ID)
		if y.items += len(got.Report); len(got.Report) == 0 {
			y.complete++
		}
		var ours [][]string
		for _, e := range g.Edges {
			ours = append(ours, []string{e.From, e.To})
		}
		y.compare(t, &r, got, order(ours))
	}
	for platform, y := range tallies {
		t.Logf("%-15s read %d, imported and compiled %d, without a report %d, items %d; steps %d, carried over %d; edges %d, kept %d; pairs in order %d, kept %d, invented %d (of %d definitions without loops); refused %v",
			platform, y.read, y.imported, y.complete, y.items, y.nodes, y.carried, y.edges, y.kept, y.before, y.preserved, y.invented, y.acyclicAll, y.refused)
		// Recorded edges lead from the head of a loop of Conductor to what follows it, and do not end
		// where a workflow ends.
		require.LessOrEqual(t, y.invented, 2, platform)
		require.GreaterOrEqual(t, float64(y.preserved), 0.99*float64(y.before), platform)
		require.GreaterOrEqual(t, float64(y.imported), 0.95*float64(y.read), platform)
	}
}

// compare counts which edges and which pairs in order are those of the original.
func (y *tally) compare(t *testing.T, r *record, got foreign.Result, ours map[string]map[string]bool) {
	t.Helper()
	var edges [][]string
	for _, e := range r.Edges {
		rule := r.Platform == "pipelit" && len(e) > 2 && slices.Contains([]string{"rule", "default"}, e[2])
		if len(e) == 2 || len(e[2]) > 4 && e[2][:5] == "main:" || rule { // the others lead to parts of a step
			edges = append(edges, e)
		}
	}
	first := func(a, b string, all bool) bool {
		n, most := 0, 0
		for _, x := range got.Steps[a] {
			for _, z := range got.Steps[b] {
				if most++; ours[x][z] {
					n++
				}
			}
		}
		return n > 0 && (!all || n == most)
	}
	for _, n := range r.Nodes {
		if y.nodes++; len(got.Steps[n.ID]) > 0 {
			y.carried++
		}
	}
	for _, e := range edges {
		if len(got.Steps[e[0]]) > 0 && len(got.Steps[e[1]]) > 0 {
			if y.edges++; first(e[0], e[1], true) {
				y.kept++
			}
		}
	}
	theirs := order(edges)
	if r.Acyclic {
		y.acyclicAll++
	}
	for _, a := range r.Nodes {
		for _, b := range r.Nodes {
			if a.ID == b.ID || len(got.Steps[a.ID]) == 0 || len(got.Steps[b.ID]) == 0 {
				continue
			}
			if !theirs[a.ID][b.ID] && first(a.ID, b.ID, false) {
				y.invented++
				t.Logf("%s: invented %s -> %s", r.ID, a.ID, b.ID)
			}
			if r.Acyclic && theirs[a.ID][b.ID] {
				if y.before++; first(a.ID, b.ID, true) {
					y.preserved++
				} else {
					t.Logf("%s: dropped %s -> %s", r.ID, a.ID, b.ID)
				}
			}
		}
	}
}
