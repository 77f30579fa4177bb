package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlans has plans in some notations carried out, with and without faults. The command does the same with
// recorded plans.
func TestPlans(t *testing.T) {
	t.Parallel()
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "executor.db"))
	require.NoError(t, err)
	t.Cleanup(s.close)
	for name, c := range map[string]struct {
		text                   string
		problems, edges, joins int
		told                   []string
	}{
		"XML": {`<Problems><Problem><Request>urls</Request><ProblemID>URLS</ProblemID></Problem><Problem><Request>prices</Request><ProblemID>PRICES</ProblemID></Problem>
			<Problem><Request>compare</Request><ProblemID>COMPARE</ProblemID></Problem></Problems><ProblemGraph>URLS, PRICES -> COMPARE</ProblemGraph>`, 3, 2, 1, nil},
		"Arrows":          {"A -> B, C\nB, C -> D\nA -> D", 4, 5, 1, nil},
		"Mermaid":         {"```mermaid\ngraph LR\n  a[Buy paint] --> c[Paint]\n  b[Wash the wall] --> c\n  c --> d[Dry]\n```", 4, 3, 1, nil},
		"List":            {"1. Measure the door\n2. Order the oven (after 1)\n3. Call the electrician (needs 1)\n4. Install it (needs 2, 3)", 4, 4, 1, nil},
		"Cycle":           {`[{"id": "ferry", "request": "Book", "needs": ["visa"]}, {"id": "visa", "request": "Get it", "needs": ["ferry"]}, {"id": "pack", "request": "Pack", "needs": ["visa"]}]`, 3, 2, 0, []string{"CYCLE"}},
		"UnknownAndSelf":  {`[{"id": "a", "request": "x", "needs": ["zed"]}, {"id": "b", "request": "y", "needs": ["a", "b"]}]`, 2, 1, 0, []string{"UNKNOWN_REFERENCE", "SELF_LOOP", "CYCLE"}},
		"References":      {"Plan: Find the lake.\n#E1 = Search[lake]\nPlan: Measure it.\n#E2 = Measure[#E1]\nPlan: Tell both.\n#E3 = LLM[Tell #E1 and #E2]", 3, 3, 1, nil},
		"Same/names":      {`[{"id": "x", "request": "same", "needs": []}, {"id": "y", "request": "same", "needs": []}, {"id": "z", "request": "same", "needs": ["x", "y"]}]`, 3, 2, 1, nil},
		"Escaped & <odd>": {`[{"id": "a & b", "request": "x < y", "needs": []}, {"id": "c's", "request": "\"quoted\"", "needs": ["a & b"]}]`, 2, 1, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for solver := range solvers() {
				o, err := s.carryOut(t.Context(), record{ID: name, Raw: c.text, Task: "do it"}, solver)
				require.NoError(t, err)
				require.Empty(t, o.faults)
				require.Equal(t, []int{c.problems, c.edges, c.joins}, []int{len(o.problems), o.edges, o.joins})
				require.Equal(t, c.edges, o.arrived)
				require.Equal(t, c.problems, o.back)
				require.ElementsMatch(t, c.told, o.told)
			}
		})
	}
}

// A plan of which a result is lost, or told to others, is found.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		back   []string
		solved map[string]solved
		early  int
		want   string
	}{
		"LostOnTheWay":  {[]string{"r1", "r2"}, map[string]solved{"r1": {}, "r2": {}}, 0, `B was told "" of A`},
		"LostAtTheEnd":  {[]string{"r1"}, map[string]solved{"r1": {}, "r2": {}}, 0, "1 results came back"},
		"ToldToOthers":  {[]string{"r1", "r2"}, map[string]solved{"r1": {map[string]string{"B": "r2"}}, "r2": {map[string]string{"A": "r1"}}}, 0, "does not depend on"},
		"Invented":      {[]string{"r1", "r3"}, map[string]solved{"r1": {}, "r2": {}}, 0, "nobody gave"},
		"FaultyAndDone": {[]string{"r1", "r2"}, map[string]solved{"r1": {}, "r2": {map[string]string{"A": "r1"}}}, 1, "with faults"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := (&script{text: "A -> B", solver: "agent", back: c.back, solved: c.solved, early: c.early}).outcome(t.Context())
			require.Len(t, o.faults, 1)
			require.Contains(t, o.faults[0], c.want)
		})
	}
}
