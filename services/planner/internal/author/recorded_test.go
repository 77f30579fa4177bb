package author

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

var (
	every    = flag.Int("every", 20, "take every n-th recorded plan")
	recorded = flag.String("data", "../../../../../shared/data/plans.jsonl.gz", "recorded plans, gzipped JSON Lines")
)

// silent listens and says nothing.
type silent struct{}

func (silent) Begin(context.Context, time.Duration) error { return nil }
func (silent) Text(int, string)                           {}
func (silent) Round(*Round)                               {}
func (silent) Part(Part)                                  {}
func (silent) Usable(_ context.Context, nodes []workgraph.Node) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(nodes)), nil
}
func (silent) Check(context.Context, *workgraph.Graph) ([]workgraph.Fault, error) { return nil, nil }

// TestRecordedPlans has recorded plans written piece by piece. What is told of them must be in the whole
// plan, unchanged. All of them are gone through by
//
//	go test ./services/planner/internal/author -run TestRecordedPlans -every 1 -v
func TestRecordedPlans(t *testing.T) {
	t.Parallel()
	f, err := os.Open(*recorded)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the recorded plans are not there")
	}
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	type count struct{ plans, streamed, tasks, early, taken int }
	by := map[string]*count{}
	a := &Author{enter: func(context.Context, int, int) (func(), error) { return func() {}, nil }}
	dec := json.NewDecoder(z)
	for n := 0; ; n++ {
		var r struct{ ID, Raw string }
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if n%*every != 0 {
			continue
		}
		read := plan.Parse(r.Raw, plan.WithComplete())
		if read.NoPlan != nil {
			continue
		}
		if by[read.Dialect] == nil {
			by[read.Dialect] = &count{}
		}
		c := by[read.Dialect]
		c.plans++
		early, whole, changed := piecewise(t, a, r.Raw, read)
		c.early += early
		c.tasks += whole
		if early > 0 {
			c.streamed++
		}
		if len(changed) > 0 {
			c.taken++
			t.Errorf("%s (%s): %s", r.ID, read.Dialect, changed[0])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		c := by[name]
		t.Logf("%-16s %5d plans, of %5d tasks are certain early: %6d of %6d; %d take something back", name, c.plans, c.streamed, c.early, c.tasks, c.taken)
	}
}

// piecewise writes a plan in pieces, and returns the number of tasks that were told before its end, that of
// all tasks, and what the whole plan changed.
func piecewise(t *testing.T, a *Author, text string, read plan.Result) (early, whole int, changed []plan.Diagnostic) {
	t.Helper()
	var tools []Tool
	for _, p := range read.Graph.Problems {
		if p.Tool != "" && !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == p.Tool }) {
			tools = append(tools, Tool{Name: p.Tool})
		}
	}
	k, err := newKit(t.Context(), tools)
	require.NoError(t, err)
	d := &draft{a: a, kit: k, how: compile.Options{Known: k.has}, to: silent{}, told: map[string]*told{}}
	d.begin(t.Context())
	for r := []rune(text); len(r) > 0; {
		n := min(12, len(r))
		require.NoError(t, d.write(t.Context(), string(r[:n])))
		r = r[n:]
	}
	g, err := compile.Graph(t.Context(), read.Graph, d.how)
	if read.HasErrors() || err != nil {
		return 0, 0, nil // the faults are told before what was begun is compared
	}
	faults, err := workgraph.Validate(t.Context(), g, nil)
	require.NoError(t, err)
	for _, f := range faults {
		require.NotEqual(t, workgraph.CodeBadBinding, f.Code, "%v\n%s", f, text)
	}
	return len(d.order), len(g.Nodes), d.changed(g, read.Graph)
}
