package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/corpus/generate"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

// layered makes a graph of n problems. Each of them waits for up to three of those just before it.
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

// BenchmarkParse reads generated plans in each dialect. Equal MB/s at all sizes shows that the time is
// linear.
func BenchmarkParse(b *testing.B) {
	for _, name := range plantest.Notations() {
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

// BenchmarkForms reads generated texts of each style, about as short as models write them.
func BenchmarkForms(b *testing.B) {
	all, err := generate.Texts(1, 1000)
	require.NoError(b, err)
	styles, size := map[string][]string{}, map[string]int{}
	for i := range all {
		styles[all[i].Style] = append(styles[all[i].Style], all[i].Body)
		size[all[i].Style] += len(all[i].Body)
	}
	for _, style := range slices.Sorted(maps.Keys(styles)) {
		b.Run(style, func(b *testing.B) {
			b.SetBytes(int64(size[style]))
			b.ReportAllocs()
			for b.Loop() {
				for _, text := range styles[style] {
					plan.Parse(text)
				}
			}
		})
	}
}

// hostile returns generators of graphs whose request has about the given number of bytes. Each graph is the
// worst case of one part of Validate.
func hostile() map[string]func(size int) plan.Graph {
	id := func(i int) string { return strconv.FormatInt(int64(i), 36) }
	problems := func(n int) (g plan.Graph) {
		for i := range n {
			g.Problems = append(g.Problems, plan.Problem{ID: id(i)})
		}
		return g
	}
	const each = 12 // bytes of a problem or an edge with two short ids
	return map[string]func(int) plan.Graph{
		"Ring": func(size int) plan.Graph {
			n := size / each / 2
			g := problems(n)
			for i := range n {
				g.Edges = append(g.Edges, plan.Edge{From: id(i), To: id((i + 1) % n)})
			}
			return g
		},
		"Pairs": func(size int) plan.Graph {
			n := size / each / 2
			g := problems(n)
			for i := range n {
				g.Edges = append(g.Edges, plan.Edge{From: id(i), To: id(i ^ 1)})
			}
			return g
		},
		"Dense": func(size int) plan.Graph {
			g := problems(600)
			for i := range size / each {
				g.Edges = append(g.Edges, plan.Edge{From: id(i % 600), To: id(i / 600 % 600)})
			}
			return g
		},
		"Unknown": func(size int) plan.Graph {
			g := problems(size / each / 2)
			for i := range size / each / 2 {
				g.Edges = append(g.Edges, plan.Edge{From: "u" + id(i), To: "v" + id(i)})
			}
			return g
		},
		"Parents": func(size int) plan.Graph {
			g := problems(size / each)
			for i := range g.Problems {
				g.Problems[i].ParentID = id((i + 1) % len(g.Problems))
			}
			return g
		},
		"Duplicates": func(size int) plan.Graph {
			g := problems(size / each / 2)
			g.Problems = append(g.Problems, g.Problems...)
			return g
		},
		"LongIDs": func(size int) plan.Graph {
			g := problems(1)
			for i := range 100 {
				long := strings.Repeat("x", size/200) + id(i)
				g.Edges = append(g.Edges, plan.Edge{From: long, To: long + "y"})
			}
			return g
		},
	}
}

// BenchmarkValidate checks graphs as large as a request may be, and graphs of a quarter of that size. Equal
// MB/s at both sizes shows that the time is linear.
func BenchmarkValidate(b *testing.B) {
	for name, graph := range hostile() {
		for _, size := range []int{3 << 18, 3 << 20} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				g := graph(size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := plan.Validate(b.Context(), g); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
