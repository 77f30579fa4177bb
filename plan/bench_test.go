package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

// layered makes a graph of n problems in which each waits for up to three of those just before it.
func layered(n int) plan.Graph {
	var g plan.Graph
	for i := range n {
		g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("task_%d", i+1)})
		for k := 1; k <= 3 && i-k >= 0; k++ {
			if (i*7+k)%2 == 0 {
				g.Edges = append(g.Edges, plan.Edge{From: fmt.Sprintf("task_%d", i-k+1), To: fmt.Sprintf("task_%d", i+1)})
			}
		}
	}
	return g
}

// BenchmarkParse reads generated plans of each dialect; equal MB/s at all sizes shows that time is linear.
func BenchmarkParse(b *testing.B) {
	for _, name := range plan.Dialects() {
		for _, n := range []int{10, 100, 1000} {
			r, err := plantest.Render(layered(n), name)
			if errors.Is(err, plantest.ErrCannotExpress) {
				continue
			}
			require.NoError(b, err)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(r.Text)))
				b.ReportAllocs()
				for b.Loop() {
					if res := plan.Parse(r.Text); res.NoPlan != nil {
						b.Fatal("no plan")
					}
				}
			})
		}
	}
}
