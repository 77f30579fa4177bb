package plan_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

func TestAttacks(t *testing.T) {
	t.Parallel()
	t.Run("Validate/ManyUnknownNamesNearMany", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for i := range 1_000 {
			g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("%s-%d", strings.Repeat("A_b", 100), i)})
		}
		for i := range 100_000 {
			g.Edges = append(g.Edges, plan.Edge{From: fmt.Sprintf("unknown %d", i), To: g.Problems[i%1_000].ID, Source: plan.Stated})
		}
		g.Edges[0].From = strings.Repeat("a-B", 100) + "7"
		ds, err := plan.Validate(t.Context(), g)
		require.NoError(t, err)
		require.Len(t, ds, 1_001, "what is said about a graph is bounded")
		require.Contains(t, ds[0].Message, "did you mean")
		require.Equal(t, plan.LimitReached, ds[1_000].Code)
	})
	for name, graph := range hostile() {
		t.Run("Validate/StopsWithItsContext/"+name, func(t *testing.T) {
			t.Parallel()
			g := graph(1 << 18)
			ctx := &countdown{Context: t.Context()}
			ctx.left.Store(math.MaxInt64)
			_, err := plan.Validate(ctx, g)
			require.NoError(t, err)
			asked := math.MaxInt64 - ctx.left.Load()
			for _, after := range []int64{0, 1, asked / 4, asked / 2, asked - 1} {
				ctx := &countdown{Context: t.Context()}
				ctx.left.Store(after)
				_, err := plan.Validate(ctx, g)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, ctx.late.Load(), int64(5), "nothing goes on after the end")
			}
		})
	}
	t.Run("Parse/StopsWithItsContext", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		text := "A, B -> C\nC -> D"
		require.NotEmpty(t, plan.Parse(text, plan.WithContext(ctx)).Graph.Problems)
		cancel()
		require.Empty(t, plan.Parse(text, plan.WithContext(ctx)).Graph.Problems)
	})
	t.Run("Parse/GroupsOfManyTimesMany", func(t *testing.T) {
		t.Parallel()
		var from, to []string
		for i := range 1_000 {
			from, to = append(from, fmt.Sprintf("a%d", i)), append(to, fmt.Sprintf("b%d", i))
		}
		r := plan.Parse(strings.Join(from, ", ") + " -> " + strings.Join(to, ", "))
		require.LessOrEqual(t, len(r.Graph.Edges), 100_000)
		require.True(t, r.HasErrors() || r.NoPlan != nil)
	})
	lines := func(n int, line string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(line, "#", strconv.Itoa(i+1)))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"Join":    lines(200, "#. join()\n"),
		"Above":   lines(200, "#. do a# (after all of the above)\n"),
		"Range":   "| # | task | after |\n|---|---|---|\n" + lines(200, "| # | do a# | 1-# |\n"),
		"Arrows":  lines(30, "a#,b#,c#,d#,e#,f#,g# -> h#,i#,j#,k#,l#,m#,n#\n"),
		"Mermaid": "graph TD\n" + lines(30, "a# & b# & c# & d# & e# & f# --> h# & i# & j# & k# & l# & m#\n"),
		"Groups":  `{"sequence":[{"parallel":[` + lines(60, `"a#",`) + `"z"]},{"parallel":[` + lines(60, `"b#",`) + `"y"]}]}`,
		"Closing": lines(5_000, "#. do a#\n") + "\nSteps 1-2000 need steps 2001-4000. Steps 1-1900 wait for steps 2001-3900.\n",
		"Matrix":  "|  |" + lines(60, "T#|") + "\n|" + lines(61, "---|") + "\n" + lines(60, "|T#|"+lines(60, " x |")+"\n"),
	} {
		t.Run("Parse/StopsBehindTheEdges/"+name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(text, plan.WithLimits(plan.Limits{MaxEdges: 1_000}))
			require.LessOrEqual(t, len(r.Graph.Edges), 1_000)
			require.True(t, slices.ContainsFunc(r.Diagnostics, func(d plan.Diagnostic) bool { return d.Code == plan.LimitReached }), "%s: %d edges, %v", r.Dialect, len(r.Graph.Edges), r.NoPlan)
		})
	}
	t.Run("Parse/ManyStepsInAList", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{1_001, 1_010, 5_000} {
			r := plan.Parse(lines(n, "#. do a#\n"), plan.WithLimits(plan.Limits{MaxProblems: 1_000}))
			require.Nil(t, r.NoPlan)
			require.Len(t, r.Graph.Problems, 1_000)
			require.Equal(t, "1000", r.Graph.Problems[999].ID)
			require.True(t, r.HasErrors())
		}
	})
	t.Run("Parse/ParallelGroups", func(t *testing.T) {
		t.Parallel()
		r := plan.Parse(`{"sequence":[{"parallel":[` + lines(299, `"a#",`) + `"z"]},{"parallel":[` + lines(299, `"b#",`) + `"y"]}]}`)
		require.False(t, r.HasErrors())
		require.Len(t, r.Graph.Problems, 600)
		require.Len(t, r.Graph.Edges, 90_000)
	})
	t.Run("Parse/NestedSubgraphs", func(t *testing.T) {
		t.Parallel()
		r := plan.Parse("graph TD\n" + lines(60, "subgraph s#\na# --> b#\n") + strings.Repeat("end\n", 60) + "b1 --> b60\n")
		require.True(t, slices.ContainsFunc(r.Diagnostics, func(d plan.Diagnostic) bool { return d.Code == plan.LimitReached }))
		require.Len(t, r.Graph.Edges, 61)
	})
	t.Run("Parse/MatrixIsNoDrawing", func(t *testing.T) {
		t.Parallel()
		for _, rule := range []string{"-|", "---|"} {
			r := plan.Parse("|  |A|B|C|\n|" + strings.Repeat(rule, 4) + "\n|A|  |  |  |\n|B| x |  |  |\n|C| x | x |  |\n")
			require.Equal(t, "table", r.Dialect)
			require.False(t, r.HasErrors())
			require.Len(t, r.Graph.Edges, 3)
		}
	})
}

// countdown is a context that ends after a number of calls of Err. late counts the calls after that.
type countdown struct {
	context.Context
	left, late atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	c.late.Add(1)
	return context.DeadlineExceeded
}

// TestAttackWork compares the allocations for a hostile text with those for one four times as long. They may
// grow only in proportion to the text.
func TestAttackWork(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	lines := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	for name, text := range map[string]func(n int) string{
		"OneToMany": func(n int) string {
			return "A -> " + lines(n, func(i int) string { return fmt.Sprintf("n%d, ", i) }) + "z"
		},
		"Numbered": func(n int) string { return lines(n, func(i int) string { return fmt.Sprintf("%d. x\n", i) }) },
		"Diagram": func(n int) string {
			return "graph TD\n" + lines(n, func(i int) string { return fmt.Sprintf("a%d --> a%d\n", i, i+1) })
		},
		"Brackets":      func(n int) string { return strings.Repeat("[", 10*n) },
		"Tags":          func(n int) string { return strings.Repeat("<a>", n) },
		"Fences":        func(n int) string { return strings.Repeat("```", n) },
		"Bullets":       func(n int) string { return strings.Repeat("- ", n) },
		"DeeperBullets": func(n int) string { return lines(n/10, func(i int) string { return strings.Repeat(" ", i) + "- a\n" }) },
		"Table":         func(n int) string { return strings.Repeat("|a", n) + "\n" + strings.Repeat("|-", n) },
		"Anchors":       func(n int) string { return strings.Repeat("&a [*a,*a]\n", n) },
	} {
		t.Run(name, func(t *testing.T) {
			work := func(n int) float64 {
				s := text(n)
				return testing.AllocsPerRun(1, func() { plan.Parse(s) })
			}
			few, many := work(250), work(1_000)
			require.Less(t, many, 6*few+1_000, "%.0f allocations became %.0f", few, many)
		})
	}
}

// TestMaxEdges shows that the limit on edges applies to every notation, also when it is larger than the
// default.
func TestMaxEdges(t *testing.T) {
	t.Parallel()
	const n = 400
	ids := func(name string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = name + strconv.Itoa(i)
		}
		return out
	}
	a, b := ids("a"), ids("b")
	for name, text := range map[string]string{
		"Arrows":  strings.Join(a, ", ") + " -> " + strings.Join(b, ", ") + "\nb0 -> c\nc -> d\n",
		"Mermaid": "graph TD\n" + strings.Join(a, " & ") + " --> " + strings.Join(b, " & ") + "\n",
		"DOT":     "digraph G {\n{" + strings.Join(a, " ") + "} -> {" + strings.Join(b, " ") + "}\n}\n",
		"Code":    "[" + strings.Join(a, ", ") + "] >> [" + strings.Join(b, ", ") + "]\n",
		"XML":     "<Problems><Problem><ProblemID>a0</ProblemID></Problem></Problems><ProblemGraph>" + strings.Join(a, ", ") + " -> " + strings.Join(b, ", ") + "</ProblemGraph>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(text, plan.WithLimits(plan.Limits{MaxEdges: 200_000}))
			require.GreaterOrEqual(t, len(r.Graph.Edges), n*n)
			require.NotContains(t, codes(r.Diagnostics), plan.LimitReached)
			r = plan.Parse(text, plan.WithLimits(plan.Limits{MaxEdges: 1000}))
			require.LessOrEqual(t, len(r.Graph.Edges), 1000)
			require.True(t, r.NoPlan != nil || slices.Contains(codes(r.Diagnostics), plan.LimitReached))
		})
	}
}
