package compile_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

func problems(ids ...string) []plan.Problem {
	var out []plan.Problem
	for _, id := range ids {
		id, parent, _ := strings.Cut(id, "<")
		out = append(out, plan.Problem{ID: id, Request: "do " + id, ParentID: parent})
	}
	return out
}

func edges(pairs ...string) []plan.Edge {
	var out []plan.Edge
	for _, p := range pairs {
		from, to, _ := strings.Cut(p, ">")
		out = append(out, plan.Edge{From: from, To: to, Source: plan.Stated})
	}
	return out
}

func show(g *workgraph.Graph) (nodes, es []string) {
	for _, n := range g.Nodes {
		nodes = append(nodes, n.ID)
	}
	for _, e := range g.Edges {
		es = append(es, e.From+">"+e.To)
	}
	return nodes, es
}

func TestGraphShape(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		problems     []string
		edges        []string
		nodes, wants []string
	}{
		{"a chain stays a chain", []string{"A", "B", "C"}, []string{"A>B", "B>C"}, []string{"A", "B", "C"}, []string{"A>B", "B>C"}},
		{"a repeated edge runs once", []string{"A", "B"}, []string{"A>B", "A>B"}, []string{"A", "B"}, []string{"A>B"}},
		{"parents group and do not run", []string{"P", "A<P", "B<P"}, []string{"A>B"}, []string{"A", "B"}, []string{"A>B"}},
		{"an edge at a group starts with its first leaves", []string{"S", "P", "A<P", "B<P", "C<P"}, []string{"S>P", "A>B"}, []string{"S", "A", "B", "C"}, []string{"S>A", "S>C", "A>B"}},
		{"an edge from a group leaves its last leaves", []string{"P", "A<P", "B<P", "T"}, []string{"A>B", "P>T"}, []string{"A", "B", "T"}, []string{"A>B", "B>T"}},
		{"a bounded member of a sub-group does not bound its siblings", []string{"G", "A<G", "A1<A", "A2<A", "B<G", "T"}, []string{"A1>B", "G>T"}, []string{"A1", "A2", "B", "T"}, []string{"A1>B", "A2>T", "B>T"}},
		{"group to group", []string{"P", "A<P", "B<P", "Q", "C<Q", "D<Q"}, []string{"P>Q"}, []string{"A", "B", "C", "D"}, []string{"A>C", "A>D", "B>C", "B>D"}},
		{"an edge between a group and its member is no order", []string{"P", "A<P"}, []string{"P>A"}, []string{"A"}, nil},
		{"reserved characters are replaced and ids stay distinct", []string{"#E1", "E1", "a/b"}, []string{"#E1>a/b"}, []string{"E1-2", "E1", "a-b"}, []string{"E1-2>a-b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, err := compile.Graph(t.Context(), plan.Graph{Problems: problems(tt.problems...), Edges: edges(tt.edges...)}, compile.Options{})
			require.NoError(t, err)
			nodes, es := show(g)
			require.Equal(t, tt.nodes, nodes)
			require.Equal(t, tt.wants, es)
			faults, err := workgraph.Validate(t.Context(), g, nil)
			require.NoError(t, err)
			require.Empty(t, faults)
		})
	}
}

func TestGraphNode(t *testing.T) {
	t.Parallel()
	g := plan.Graph{
		Problems: []plan.Problem{
			{ID: "#E1", Request: "search", Details: "- twice\n- and again"},
			{
				ID: "#E2", Request: "sum up #E1",
				Args: []plan.Arg{{Name: "n", Kind: plan.Literal, Value: "9007199254740993"}, {Kind: plan.Referring, Value: `"#E1"`}, {Name: "odd", Kind: plan.Literal, Value: "not json"}},
				Refs: []plan.Reference{{Text: "#E1", To: "#E1", Path: "items"}, {Text: "#E9", To: "#E9"}},
			},
		},
		Edges: []plan.Edge{{From: "#E1", To: "#E2", Source: plan.Variable}},
	}
	out, err := compile.Graph(t.Context(), g, compile.Options{
		Actors: map[string]string{"#E2": "agent"}, Named: map[string]json.RawMessage{"model": json.RawMessage(`"m"`)},
	})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out.Name, "plan-"))

	first, second := out.Nodes[0], out.Nodes[1]
	require.Equal(t, "llm", first.Actor)
	require.Equal(t, workgraph.ProblemKind, first.Kind)
	require.Equal(t, workgraph.Key("previous_agent_results"), first.PassDown)
	require.JSONEq(t, `"search\n- twice\n- and again"`, string(first.Named["request"]))
	require.JSONEq(t, `"m"`, string(first.Named["model"]))

	require.Equal(t, "agent", second.Actor)
	require.Equal(t, "#E2", second.Name)
	require.Equal(t, "E2", second.ID)
	require.NotContains(t, second.Named, "request")
	require.JSONEq(t, `"sum up #E1"`, string(second.Named["user_input"]))
	require.Equal(t, `[{"name":"n","value":9007199254740993},{"value":"#E1","refers":true},{"name":"odd","value":"not json"}]`, string(second.Named["arguments"]))
	require.JSONEq(t, `[{"text":"#E1","node":"E1","field":"items"}]`, string(second.Named["references"]))
}

func TestGraphRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		g    plan.Graph
		o    compile.Options
		code plan.Code
		elem string
	}{
		{"a cycle", plan.Graph{Problems: problems("A", "B"), Edges: edges("A>B", "B>A")}, compile.Options{}, plan.Cycle, "A"},
		{"a cycle that only groups make", plan.Graph{Problems: problems("P", "A<P", "B<P", "T"), Edges: edges("P>T", "T>A")}, compile.Options{}, plan.Cycle, "A"},
		{"an unknown reference", plan.Graph{Problems: problems("A"), Edges: edges("A>X")}, compile.Options{}, plan.UnknownReference, "X"},
		{"an actor for nobody", plan.Graph{Problems: problems("A")}, compile.Options{Actors: map[string]string{"B": "http"}}, plan.UnknownReference, "B"},
		{"an empty plan", plan.Graph{}, compile.Options{}, plan.EmptyPlan, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := compile.Graph(t.Context(), tt.g, tt.o)
			ce, ok := errors.AsType[*compile.Error](err)
			require.True(t, ok, "got %v", err)
			var got []string
			for _, d := range ce.Diagnostics {
				got = append(got, string(d.Code)+" "+d.Element)
			}
			require.Contains(t, got, string(tt.code)+" "+tt.elem)
		})
	}
}

// TestGraphKeepsOrder shows that the compiled graph keeps, between its leaves, every order that a random
// hierarchy with acyclic edges states.
func TestGraphKeepsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 14).Draw(t, "problems")
		var g plan.Graph
		parent := make([]int, n)
		for i := range n {
			parent[i] = rapid.IntRange(-1, i-1).Draw(t, "parent")
			p := plan.Problem{ID: string(rune('a' + i))}
			if parent[i] >= 0 {
				p.ParentID = string(rune('a' + parent[i]))
			}
			g.Problems = append(g.Problems, p)
		}
		for range rapid.IntRange(0, 2*n).Draw(t, "edges") {
			a, b := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			if a < b {
				g.Edges = append(g.Edges, plan.Edge{From: string(rune('a' + a)), To: string(rune('a' + b))})
			}
		}
		out, err := compile.Graph(t.Context(), g, compile.Options{})
		if err != nil {
			var ce *compile.Error
			require.ErrorAs(t, err, &ce)
			return
		}
		faults, err := workgraph.Validate(t.Context(), out, nil)
		require.NoError(t, err)
		require.Empty(t, faults)
		next := map[string][]string{}
		for _, e := range out.Edges {
			next[e.From] = append(next[e.From], e.To)
		}
		reach := func(from, to string) bool {
			seen := map[string]bool{}
			var walk func(string) bool
			walk = func(s string) bool {
				if s == to {
					return true
				}
				if seen[s] {
					return false
				}
				seen[s] = true
				for _, k := range next[s] {
					if walk(k) {
						return true
					}
				}
				return false
			}
			return walk(from)
		}
		under := func(i, group int) bool {
			for ; i >= 0; i = parent[i] {
				if i == group {
					return true
				}
			}
			return false
		}
		leaf := make([]bool, n)
		for i := range n {
			leaf[i] = true
			for k := range n {
				if parent[k] == i {
					leaf[i] = false
				}
			}
		}
		for _, e := range g.Edges {
			a, b := int(e.From[0]-'a'), int(e.To[0]-'a')
			if under(a, b) || under(b, a) {
				continue
			}
			for i := range n {
				for k := range n {
					if leaf[i] && leaf[k] && under(i, a) && under(k, b) {
						require.True(t, reach(g.Problems[i].ID, g.Problems[k].ID), "%s before %s is lost", g.Problems[i].ID, g.Problems[k].ID)
					}
				}
			}
		}
	})
}
