package workgraph

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpr(t *testing.T) {
	vars := map[string]json.RawMessage{
		"args":  json.RawMessage(`[1, 2.0, 18446744073709551615, -9223372036854775808, 1e3]`),
		"named": json.RawMessage(`{"a": {"b": ["x", null, true]}, "n": 9007199254740993}`),
	}
	for _, c := range []struct{ src, want string }{
		{`args[0]`, `1`},
		{`args[1]`, `2.0`},
		{`args[2]`, `18446744073709551615`},
		{`args[3]`, `-9223372036854775808`},
		{`type(args[4]) == double`, `true`},
		{`named.n + 2`, `9007199254740995`},
		{`named.a`, `{"b":["x",null,true]}`},
		{`{"z": 1, "a": [1.5, "q\"", b"hi"]}`, `{"a":[1.5,"q\"","aGk="],"z":1}`},
		{`{1: "one"}`, `{"1":"one"}`},
		{`duration("90s")`, `"90s"`},
		{`timestamp("2026-01-02T03:04:05Z")`, `"2026-01-02T03:04:05Z"`},
		{`null`, `null`},
		{`"<b>".upperAscii()`, `"\u003cB\u003e"`},
		{`has(named.missing)`, `false`},
		{`args.map(x, x == 1)`, `[true,false,false,false,false]`},
	} {
		t.Run(c.src, func(t *testing.T) {
			e, err := CompileExpr(context.Background(), c.src)
			require.NoError(t, err)
			got, err := e.Eval(context.Background(), vars)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	t.Run("Missing/IsToldApart", func(t *testing.T) {
		for _, src := range []string{`named.zzz`, `args[9]`, `result`, `named["a"].c`} {
			e, err := CompileExpr(context.Background(), src)
			require.NoError(t, err)
			_, err = e.Eval(context.Background(), vars)
			require.True(t, Missing(err), "%s: %v", src, err)
		}
		e, err := CompileExpr(context.Background(), `named.n < "text"`)
		require.NoError(t, err)
		_, err = e.Eval(context.Background(), vars)
		require.Error(t, err)
		require.False(t, Missing(err))
	})
	t.Run("Bombs/EndBeforeTheyGrow", func(t *testing.T) {
		many := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]")
		long, err := json.Marshal(strings.Repeat("y", 100_000))
		require.NoError(t, err)
		vars := map[string]json.RawMessage{"args": json.RawMessage(`["yyyyyyyyyy"]`), "input": many, "item": long}
		for _, src := range []string{
			"args.map(a, a + a)" + strings.Repeat(".map(a, a + a)", 24), // 2^24 times ten letters
			// 2^24 times as many elements, with shared contents.
			"[input]" + strings.Repeat(".map(a, a + a)", 24),
			"[[1, 2]]" + strings.Repeat(".map(a, a + a)", 24) + ".map(a, 5 in a)", // as many comparisons
			"input.map(x, item)",          // ten billion letters when written
			"input.all(x, !(5 in input))", // ten billion comparisons
			"[[1]]" + strings.Repeat(".map(a, [a, a, a, a, a, a, a, a, a, a])", 12), // 10^12 leaves
		} {
			e, err := CompileExpr(context.Background(), src)
			require.NoError(t, err)
			_, err = e.Eval(context.Background(), vars)
			require.Error(t, err, src)
			require.False(t, Missing(err), err)
		}
	})
	t.Run("LargeTexts/CanBeJoined", func(t *testing.T) {
		long, err := json.Marshal(strings.Repeat("y", 1_000_000))
		require.NoError(t, err)
		e, err := CompileExpr(context.Background(), `"before " + item + " between " + item + " after"`)
		require.NoError(t, err)
		out, err := e.Eval(context.Background(), map[string]json.RawMessage{"item": long})
		require.NoError(t, err)
		require.Len(t, out, 2_000_024)
	})
	t.Run("Lazy/AsksForWhatIsUsed", func(t *testing.T) {
		e, err := CompileExpr(context.Background(), `named.n + 1`)
		require.NoError(t, err)
		var asked []string
		_, err = e.EvalLazy(context.Background(), func(name string) (json.RawMessage, bool) {
			asked = append(asked, name)
			return json.RawMessage(`{"n": 1}`), true
		})
		require.NoError(t, err)
		require.Equal(t, []string{"named"}, asked)
	})
	t.Run("Variables/AreDecodedOnce", func(t *testing.T) {
		e, err := CompileExpr(context.Background(), `args.map(x, args.size())`)
		require.NoError(t, err)
		n := 0
		_, err = e.EvalLazy(context.Background(), func(string) (json.RawMessage, bool) {
			n++
			return json.RawMessage(`[1, 2, 3]`), true
		})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
	t.Run("NoJSONForm/IsAnError", func(t *testing.T) {
		for _, src := range []string{`type(1)`, `0.0 / 0.0`, `[1.0 / 0.0]`} {
			e, err := CompileExpr(context.Background(), src)
			require.NoError(t, err)
			_, err = e.Eval(context.Background(), vars)
			require.Error(t, err, src)
		}
	})
	t.Run("Compile/ReportsThePlaceAlone", func(t *testing.T) {
		for _, src := range []string{`1 +`, `nope`, `result.foo(`, string(make([]byte, 20<<10))} {
			_, err := CompileExpr(context.Background(), src)
			require.Error(t, err)
			require.LessOrEqual(t, strings.Count(err.Error(), "\n"), 2, "the message, what is around the place, and the caret")
		}
	})
}

func TestScope(t *testing.T) {
	for _, cond := range []string{
		`input.args[0] == 1 && input.named.k == "v"`,
		`context.user == "u1"`,
		`args == [1] && named.k == "v"`,
		`result == [10, 20] && values == [10, 20]`,
		`node == "A" && visit == 1 && attempt == 1`,
		`nodes.S.result == "s" && nodes.S.values == ["s"] && nodes.S.visit == 1`,
		`nodes["S"].result == "s" && nodes.A.result == [10, 20] && size(nodes) == 2`,
		`nodes.exists(n, n == "S")`,
		`nodes == {"S": {"result": "s", "values": ["s"], "visit": 1}, "A": {"result": [10, 20], "values": [10, 20], "visit": 1}}`,
		`state.count == 3`,
		`!("B" in nodes)`,
	} {
		t.Run(cond, func(t *testing.T) {
			g := nodes(PassDown{}, "S", "A", "B").Edge("S", "A").Edge("A", "B", When(cond)).State("count", Add).Graph()
			p := compile(t, g)
			m := newMachine(t, p)
			m.do(Begin{Input: Input{Args: one("1"), Named: map[string]json.RawMessage{"k": js("v")}}, Context: js(map[string]string{"user": "u1"}), Now: m.now})
			m.end("S", Outcome{Values: one(`"s"`), State: map[string]json.RawMessage{"count": js(1)}})
			m.end("A", Outcome{Values: []json.RawMessage{js(10), js(20)}, State: map[string]json.RawMessage{"count": js(2)}})
			require.Contains(t, m.open, Ref{Node: "B", Visit: 1}, "%+v", m.s.End())
		})
	}
}

func TestTransform(t *testing.T) {
	g := nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()
	g.Nodes[0].Transform = `{"sum": result[0] + result[1], "ratio": 1.0 / 2.0}`
	m := newMachine(t, compile(t, g))
	m.begin()
	m.end("A", Outcome{Values: []json.RawMessage{js(1), js(2)}})
	require.Equal(t, []string{`{"ratio":0.5,"sum":3}`}, m.args("B"))

	m = newMachine(t, compile(t, g))
	m.begin()
	m.end("A", Outcome{Values: one("1")})
	require.Equal(t, ReasonTransformFailed, m.s.End().Error.Reason)

	g = nodes(PassDown{}, "M").Graph()
	g.Nodes[0].Map = &Map{Over: "[3, 4]", As: "x"}
	g.Nodes[0].Check = &Check{CEL: "result == item"}
	g.Nodes[0].Transform = "result.map(r, r.ok)"
	g.Nodes[0].ConcurrencyKey = `"key-" + node`
	m = newMachine(t, compile(t, g))
	m.begin()
	require.Equal(t, "key-M", m.open[Ref{Node: "M", Visit: 1, Item: 1}].ConcurrencyKey)
	m.endRef(Ref{Node: "M", Visit: 1, Item: 2}, &Outcome{Values: one("4")}, nil)
	m.endRef(Ref{Node: "M", Visit: 1, Item: 1}, &Outcome{Values: one("3")}, nil)
	require.JSONEq(t, "[3,4]", string(m.s.End().Result))
}
