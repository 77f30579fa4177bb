package workgraph

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"
)

// TestCompiledHoldsNoContext asserts that what is compiled, and kept in caches, keeps nothing of the request
// that it was compiled for: a context may hold a run with all its results.
func TestCompiledHoldsNoContext(t *testing.T) {
	type key struct{}
	request := func() (context.Context, weak.Pointer[[1 << 16]byte]) {
		held := new([1 << 16]byte)
		return context.WithValue(t.Context(), key{}, held), weak.Make(held)
	}
	freed := func(t *testing.T, held weak.Pointer[[1 << 16]byte]) {
		t.Helper()
		for range 4 { // pools give back what they have after two
			runtime.GC()
		}
		if held.Value() != nil { // nobody wants to read 64 KiB of it
			require.Fail(t, "the context is still held")
		}
	}
	for _, src := range []string{
		`1`,
		`named.x + 1`,
		`[1, 2].map(x, string(x))`,
		`named.s.matches("a+b") && timestamp("2026-01-02T03:04:05Z") < timestamp("2027-01-02T03:04:05Z")`,
	} {
		t.Run(src, func(t *testing.T) {
			ctx, held := request()
			e, err := CompileExpr(ctx, src)
			require.NoError(t, err)
			_, err = e.Eval(ctx, map[string]json.RawMessage{"named": json.RawMessage(`{"x": 1, "s": "aab"}`)})
			require.NoError(t, err)
			freed(t, held)
			runtime.KeepAlive(e)
		})
	}
	t.Run("graph", func(t *testing.T) {
		ctx, held := request()
		p, err := Compile(ctx, &Graph{Nodes: []Node{
			{ID: "a", Actor: "noop", When: `args.size() > 0`, Transform: `result`},
			{ID: "b", Actor: "noop", Check: &Check{Schema: json.RawMessage(`{"type": "string", "pattern": "a+"}`), CEL: `result != ""`}},
		}, Edges: []Edge{{From: "a", To: "b", When: `result == 1`}}}, &lookedUp{})
		require.NoError(t, err)
		freed(t, held)
		runtime.KeepAlive(p)
	})
}
