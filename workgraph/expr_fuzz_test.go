package workgraph

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzExpr evaluates random expressions and values. The cost stays within the limit, the allocations within a
// multiple of it, and every result is JSON.
func FuzzExpr(f *testing.F) {
	value := `{"s": "aaaaaaaaaa", "l": [1, 2.5, "x", null, true, [[], {}]], "n": 3, "m": {"k": [1, 2, 3]}}`
	for _, src := range []string{
		`named.s.replace("a", named.s)`, `named.l.map(a, [a, a]).map(a, [a, a]) == named.l`, `sets.equivalent(named.l, named.l)`, `named.l.distinct()`,
		`named.s.matches("(a|b)*" + named.s)`, `named.l.exists(x, {}[x] == 1)`, `"%s %d".format([named.l, named.n])`, `named.m.map(k, named.m[k])`,
		`lists.range(named.n).map(x, named.s.split("").join("-"))`, `named.l.filter(x, named.l.filter(y, false) == [])`, `timestamp("2026-01-02T03:04:05Z").getHours("Asia/Tokyo")`,
		`named.l.sortBy(x, string(x))`, `[named, named].map(x, x)`, `math.greatest(named.m.k)`, `named.l.flatten(5).size() in [1, 2]`, `string(bytes(named.s)).reverse().indexOf("a", 3)`,
		`has(named.s) ? named.m.k[named.n - 1] : duration("3s")`, `type(named) == map && named.l[0] <= 1`,
	} {
		f.Add(src, value)
	}
	f.Fuzz(func(t *testing.T, src, raw string) {
		if len(raw) > 64<<10 || ValueFault(json.RawMessage(raw)) != "" {
			return
		}
		ctx := context.Background()
		before := allocated()
		e, err := CompileExpr(ctx, src)
		require.Less(t, allocated()-before, uint64(200<<20), "to compile %q", src)
		if err != nil {
			return
		}
		vars := map[string]json.RawMessage{"named": json.RawMessage(raw), "args": json.RawMessage("[" + raw + "," + raw + "]")}
		const limit = exprCostLimit / 10
		l := loadExpr(ctx, e, vars, limit)
		require.Less(t, l.bytes, uint64(mostBytes/10), "%q over %s: %v", src, raw, l.err)
		if l.err != nil {
			return
		}
		require.LessOrEqual(t, l.units, uint64(limit), src)
		require.True(t, json.Valid(l.out), "%q gives %.200s", src, l.out)
	})
}
