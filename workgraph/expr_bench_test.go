package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchExprs are typical expressions of graphs, from a comparison to a filter of a list.
var benchExprs = []struct{ name, src string }{
	{"compare", `result.score > 10 && named.mode == "fast"`},
	{"text", `"Hello " + named.user + ", you have " + string(result.score) + " points"`},
	{"member", `named.mode in ["slow", "fast", "exact"]`},
	{"filter", `result.items.filter(i, i.price > 5 && i.tag != "x").map(i, i.id)`},
	{"build", `{"args": [result.score, named.mode], "named": {"all": result.items}}`},
	{"match", `named.user.matches("^[a-z]+[0-9]*$")`},
	{"equal", `result.items == named.items`},
}

func benchVars() map[string]json.RawMessage {
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"id": %d, "price": %d, "tag": "t%d"}`, i, i%17, i%5))
	}
	list := "[" + strings.Join(items, ",") + "]"
	return map[string]json.RawMessage{
		"result": json.RawMessage(`{"score": 42, "items": ` + list + `}`),
		"named":  json.RawMessage(`{"mode": "fast", "user": "bob", "items": ` + list + `}`),
	}
}

func BenchmarkExprEval(b *testing.B) {
	for _, c := range benchExprs {
		b.Run(c.name, func(b *testing.B) {
			e, err := CompileExpr(context.Background(), c.src)
			require.NoError(b, err)
			vars := benchVars()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Eval(context.Background(), vars); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExprCompile(b *testing.B) {
	for _, c := range benchExprs {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := CompileExpr(context.Background(), c.src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkConditions is a chain of nodes with a condition on every edge.
func BenchmarkConditions(b *testing.B) {
	g := chainGraph(1000)
	for i := range g.Edges {
		g.Edges[i].When = `result == 1 && visit == 1`
	}
	p, err := Compile(b.Context(), g, Actors{"noop": noop})
	require.NoError(b, err)
	b.ReportAllocs()
	visits := 0
	for b.Loop() {
		visits += drive(b, p)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(visits), "ns/node")
}
