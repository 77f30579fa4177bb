package compile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
)

func TestSplitReused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		problems       []string
		edges          []string
		renames        []string
		wants, lostAre []string
	}{
		{"a tool used again later", []string{"get", "cut", "get"}, []string{"get>cut", "cut>get"}, []string{"get#1", "cut", "get#2"}, []string{"get#1>cut", "cut>get#2"}, nil},
		{"a tool right after itself", []string{"get", "get"}, []string{"get>get"}, []string{"get#1", "get#2"}, []string{"get#1>get#2"}, nil},
		{"the same edge twice means two pairs", []string{"a", "b", "a", "b"}, []string{"a>b", "a>b"}, []string{"a#1", "b#1", "a#2", "b#2"}, []string{"a#1>b#1", "a#2>b#2"}, nil},
		{"an edge against the listed order is lost, and said to be", []string{"a", "b", "b"}, []string{"b>a"}, []string{"a", "b#1", "b#2"}, nil, []string{"b>a"}},
		{"an edge to nowhere stays", []string{"a", "a"}, []string{"a>x"}, []string{"a#1", "a#2"}, []string{"a>x"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, lost := compile.SplitReused(plan.Graph{Problems: problems(tt.problems...), Edges: edges(tt.edges...)}, tt.renames)
			var got, gone []string
			for _, e := range out.Edges {
				got = append(got, e.From+">"+e.To)
			}
			for _, e := range lost {
				gone = append(gone, e.From+">"+e.To)
			}
			require.Equal(t, tt.wants, got)
			require.Equal(t, tt.lostAre, gone)
		})
	}
}
