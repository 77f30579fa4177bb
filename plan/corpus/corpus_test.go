package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/corpus/generate"
)

const data = "../../../shared/data/plans.jsonl.gz"

// open names the rows of the tables that miss their aims today. Documents of metagpt, such as lesson plans,
// are read as plans. A row that meets its aims again must be removed here, so that a later regression fails
// the test.
var open = []string{"metagpt"}

// TestAims reads the recorded plans and fails if an aim is missed that was met before.
func TestAims(t *testing.T) {
	if _, err := os.Stat(data); err != nil {
		t.Skipf("the recorded plans are not there: %v", err)
	}
	var out bytes.Buffer
	_, err := run(&out, data, "", "all", 20, 200)
	require.NoError(t, err)
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, "MISSED") {
			require.Contains(t, open, f[0], out.String())
		}
	}
}

func TestScore(t *testing.T) {
	none := [][]string{}
	edge := [][]string{{"1", "2"}}
	want := func(e *[][]string) *expected { return &expected{Nodes: [][]any{{"1"}, {"2"}}, Edges: e} }
	const text = "Node:\n1: a\n2: b\nEdge: (START,1) (1,2) (2,END)"
	for name, c := range map[string]struct {
		r record
		v verdict
	}{
		"Exact":          {record{Raw: text, Expected: want(&edge)}, exact},
		"EdgesNotStated": {record{Raw: text, Expected: want(nil)}, exact},
		"SilentlyWrong":  {record{Raw: text, Expected: want(&none)}, silentlyWrong},
		"Refused":        {record{Raw: "no", Expected: want(nil)}, refused},
		"NoPlan":         {record{Raw: "no", Flags: []string{"no_plan"}}, noPlanSeen},
		"ReadAnyway":     {record{Raw: text, Flags: []string{"no_plan"}}, silentlyWrong},
		"Undecided":      {record{Raw: text}, undecided},
		"FaultNotSaid":   {record{Raw: text, Expected: want(&edge), Flags: []string{"cycle"}}, silentlyWrong},
	} {
		t.Run("Score/"+name, func(t *testing.T) {
			o := score(&c.r)
			require.Equal(t, c.v, o.verdict, o.detail)
		})
	}
	t.Run("Compare/CountsDuplicates", func(t *testing.T) {
		g := plan.Graph{Problems: []plan.Problem{{ID: "1"}, {ID: "2"}}, Edges: []plan.Edge{{From: "1", To: "2"}, {From: "1", To: "2"}}}
		require.Len(t, compare(want(&edge), g), 1)
	})
}

// TestGenerated checks the truth of the generated texts with the check for hand-written ones.
func TestGenerated(t *testing.T) {
	all, err := generate.Texts(1, 4000)
	require.NoError(t, err)
	for i := range all {
		require.Empty(t, checkText(&all[i]))
		require.Equal(t, generate.FormOf(all[i].Style), all[i].Form, all[i].ID)
	}
}
