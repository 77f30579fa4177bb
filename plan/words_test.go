package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

// TestOrderInWords reads what sentences say of the order of a list. An edge is written 1>2 when the text states it and
// 1~2 when it was assumed; each assumed edge has a finding of its own. Doubt tells that something else is said.
func TestOrderInWords(t *testing.T) {
	t.Parallel()
	const three, four = "1. Dig the bed\n2. Buy seeds\n3. Fetch water\n", "1. Dig the bed\n2. Buy seeds\n3. Fetch water\n4. Sow\n"
	for name, c := range map[string]struct {
		text, edges string
		doubt       bool
	}{
		"Assumed/BesideOneOther": {"1. Dig\n2. Sow (parallel with 1)\n3. Water", "1~3 2~3", false},
		"Assumed/Lettered":       {"1. Dig the bed\n2a. Sow peas\n2b. Sow beans\n3. Water all of it", "1~2a 1~2b 2a~3 2b~3", false},
		"Assumed/Corrected":      {four + "\nScratch that, step 3 comes before 2.", "1~3 3>2 2~4", false},
		"Stated/WholeOrder":      {three + "\nSo: first 1, then 3, then 2.", "1>3 3>2", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(c.text)
			require.Nil(t, r.NoPlan, "%+v", r.NoPlan)
			var edges, assumed, said, other []string
			for _, e := range r.Graph.Edges {
				sign := ">"
				if e.Source == plan.ListedOrder || e.Source == plan.Numbering {
					sign = "~"
					assumed = append(assumed, e.From+" -> "+e.To)
				}
				edges = append(edges, e.From+sign+e.To)
			}
			for _, d := range r.Diagnostics {
				switch {
				case d.Code == plan.AssumedOrder:
					said = append(said, d.Element)
				case d.Severity != plan.Info:
					other = append(other, string(d.Code)+" "+d.Message)
				}
			}
			slices.Sort(edges)
			want := strings.Fields(c.edges)
			slices.Sort(want)
			require.Equal(t, want, edges)
			require.ElementsMatch(t, assumed, said)
			require.Equal(t, c.doubt, len(other) > 0, "%v", other)
		})
	}
}
