package program

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// TestProgramBytes measures the memory of compiled graphs. It is not parallel, so that nothing runs beside
// it.
func TestProgramBytes(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	graph := func(nodes int, change func(i int, n *workgraph.Node)) *workgraph.Graph {
		g := &workgraph.Graph{Nodes: make([]workgraph.Node, nodes)}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			n.ID, n.Actor = fmt.Sprintf("n%d", i), "a"
			change(i, n)
		}
		return g
	}
	check := func(schema string) func(i int, n *workgraph.Node) {
		return func(i int, n *workgraph.Node) {
			n.Check = &workgraph.Check{Schema: json.RawMessage(fmt.Sprintf(schema, i))}
		}
	}
	dense := graph(250, func(int, *workgraph.Node) {})
	for i := range dense.Nodes {
		for j := range i {
			if len(dense.Edges) < workgraph.MaxEdges {
				dense.Edges = append(dense.Edges, workgraph.Edge{From: dense.Nodes[j].ID, To: dense.Nodes[i].ID})
			}
		}
	}
	for name, g := range map[string]*workgraph.Graph{
		"Nodes": graph(5000, func(int, *workgraph.Node) {}),
		"Edges": dense,
		"Expressions": graph(1000, func(i int, n *workgraph.Node) {
			n.When = fmt.Sprintf("[1, 2, 3].all(x, x > 0 && visit + %d > 3 || attempt > x)", i)
		}),
		"Short":       graph(1000, func(i int, n *workgraph.Node) { n.When = fmt.Sprintf("visit > %d", i) }),
		"Schemas":     graph(500, check(`{"type": "object", "properties": {"a%d": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}}}`)),
		"Patterns":    graph(20, check(`{"type": "string", "pattern": "^[a-x]{1,900}%d$"}`)),
		"Alternation": graph(200, check(`{"type": "string", "pattern": "^(a|b){1,50}[c-z]{3,40}%d$"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			s := New(fixed{}, Bounds{}, nil, nil, 1)
			before := heap()
			p, err := s.cached(t.Context(), "ns", g, nil, FromCaller, func() error { return nil })
			require.NoError(t, err)
			took := heap() - before
			t.Logf("%d bytes, counted as %d", took, p.Bytes())
			require.LessOrEqual(t, took, p.Bytes()*3/2)
			require.GreaterOrEqual(t, took, p.Bytes()/5)
		})
	}
}

func TestProgramsAreForgottenByBytes(t *testing.T) {
	const mib = 1 << 20
	t.Parallel()
	s := New(fixed{}, Bounds{}, nil, nil, 10*mib)
	var last *Program
	for i := range 20 {
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n", Actor: "a", Args: []json.RawMessage{json.RawMessage(fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", mib)))}}}}
		var err error
		last, err = s.cached(t.Context(), "ns", g, nil, FromCaller, func() error { return nil })
		require.NoError(t, err)
		require.LessOrEqual(t, s.byKey.Weight(), int64(10*mib))
	}
	require.Same(t, last, s.find("pinned/"+last.Hash), "the newest is remembered")
	require.Less(t, s.byKey.Len(), 12)
}

type fixed struct{ Actors }

func (fixed) Find(_ context.Context, _ string, names []string) (map[string]ActorInfo, error) {
	out := map[string]ActorInfo{}
	for _, n := range names {
		out[n] = ActorInfo{ActorInfo: workgraph.ActorInfo{Effect: workgraph.Pure}}
	}
	return out, nil
}
