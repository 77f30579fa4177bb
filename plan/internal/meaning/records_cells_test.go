package meaning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// recordLinks returns the links of the likeliest reading of a text, as "a>b c>d".
func recordLinks(text string) string {
	all := Read(form.NewSource(text))
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, l := range all[0].Links {
		out = append(out, l.From+">"+l.To)
	}
	return strings.Join(out, " ")
}

func TestCellsWithSeveralReferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cell, want string }{
		{"1 + 2", "1>2 1>3 2>3"}, {"1+2", "1>2 1>3 2>3"}, {"1 2", "1>2 1>3 2>3"}, {"1/2", "1>2 1>3 2>3"}, {"1FS+1 day 2", "1>2 1>3 2>3"}, {"1 2SS + 3 d", "1>2 1>3 2>3"},
		{"1-2", "1>2 1>3 2>3"}, {"steps 1 to 2", "1>2 1>3 2>3"}, {"Step 1 & Step 2", "1>2 1>3 2>3"}, {"once 1 and 2 are done", "1>2 1>3 2>3"}, {"2FS+2d", "1>2 2>3"},
		{"无", "1>2"}, {"entfällt", "1>2"}, {"n/a", "1>2"}, {"9", "1>2 9>3"},
	} {
		t.Run(c.cell, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, recordLinks("| # | Task | Depends on |\n|---|---|---|\n| 1 | Dig | – |\n| 2 | Plant | 1 |\n| 3 | Water | "+c.cell+" |\n"))
		})
	}
}

func TestTableForms(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"pipes without borders": "ID|Task|After\nT1|Dig|\nT2|Plant|T1\nT3|Water|T1,T2\n",
		"a drawn box":           "┌────┬───────┬───────┐\n│ ID │ Task  │ After │\n├────┼───────┼───────┤\n│ T1 │ dig   │       │\n│ T2 │ plant │ T1    │\n│ T3 │ water │ T1,T2 │\n└────┴───────┴───────┘\n",
		"no heads":              "T1,Dig the hole,\nT2,Plant the tree,T1\nT3,Water the tree,\"T1,T2\"\n",
		"fields in the cells":   "T1 | Dig | Status: open\nT2 | Plant | Status: open | After: T1\nT3 | Water | Status: open | After: T1, T2\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "T1>T2 T1>T3 T2>T3", recordLinks(text))
		})
	}
}

func TestRecordsByPlaceAndSide(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a>b b>d c>d a>c", recordLinks(`[{"id":"a","needs":[]},{"id":"b","needs":["a"]},{"id":"c","parallel_with":["b"]},{"id":"d","needs":["b","c"]}]`))
	require.Equal(t, "1>2 2>3", recordLinks(`{"steps":[{"do":"dig","needs":[]},{"do":"plant","needs":[0]},{"do":"water","needs":[1]}]}`))
	require.Equal(t, "a>c b>c", recordLinks("tasks:\n  - name: a\n  - name: b\n  - name: c\n    depends: a.Succeeded && b.Succeeded\n"))
}
