package workgraph

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExprFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, says, under string }{
		{"1 +", "ends too early", ""},
		{"size(result", "ends too early", ""},
		{"foo > 1", `nothing is called "foo" here`, "foo"},
		{"size(args) == 0 ? {'a': [1]} : 'b'", "both sides of : must have one type", "? {"},
		{"1 + 'a'", "+ cannot be applied to int and string; string(…), int(…) and double(…) convert", "+"},
		{"result.x = 1", `"=" means nothing in an expression; CEL writes ==`, "="},
		{"result.x and result.y", `"and" cannot stand here; CEL writes &&`, "and"},
		{"result.x or result.y", `"or" cannot stand here; CEL writes ||`, "or"},
		{"result.x & result.y", `"&" means nothing in an expression; CEL writes &&`, "&"},
		{"result.x == True", `nothing is called "True" here; CEL writes true`, "True"},
		{"len(result.x) > 1", `nothing is called "len" here; CEL writes size(…)`, "("},
		{"'a' in 'abc'", "text.contains(part)", "in"},
		{"result.s.matches('[')", "never closed with ]", "["},
		{"size(args).matches('a')", "a value of type int has no function matches(string)", "('a')"},
		{"result.x == 1 # why", `means nothing in an expression`, "#"},
		{"size(args) > 0 &&\n  bar", `line 2, column 3: nothing is called "bar"`, "bar"},
	} {
		_, err := CompileExpr(t.Context(), c.src)
		require.ErrorContains(t, err, c.says, c.src)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, 3, "%s", err)
		require.NotContains(t, err.Error(), "Syntax error")
		require.NotContains(t, err.Error(), "<input>")
		require.NotContains(t, err.Error(), "overload")
		at := strings.Index(lines[2], "^")
		require.GreaterOrEqual(t, at, 0)
		if c.under != "" {
			require.True(t, strings.HasPrefix(lines[1][at:], c.under), "%s", err)
		}
	}
	_, err := CompileExpr(t.Context(), strings.Repeat("result.x + ", 200)+"foo")
	require.ErrorContains(t, err, "…")
	require.Less(t, len(err.Error()), 600, "only what is around the place is shown")
}

func TestExprFaultsOfAnEvaluation(t *testing.T) {
	t.Parallel()
	vars := map[string]json.RawMessage{"result": json.RawMessage(`{"s": "a", "i": 1, "d": 1.5, "n": null, "l": [1]}`)}
	for src, says := range map[string]string{
		"result.s + result.i":                "+ cannot be applied to string and int; string(…), int(…) and double(…) convert",
		"result.i + result.d":                "+ cannot be applied to int and double; int(…) and double(…) convert",
		"result.n > 1":                       "> cannot be applied to null and int",
		"!result.s":                          "take true or false",
		"-result.s":                          "- takes numbers",
		"result.i.matches('a')":              "matches cannot be applied to int and string",
		"'a' in result.s":                    "text.contains(part)",
		"result.i ? 1 : 2":                   "take true or false",
		"result.s && true":                   "take true or false",
		"false || result.i":                  "take true or false",
		"size(result.i) > 1":                 "size cannot be applied to int",
		"result.l.exists(x, x + 'a' == 'b')": "+ cannot be applied to int and string",
	} {
		e, err := CompileExpr(t.Context(), src)
		require.NoError(t, err, src)
		_, err = e.Eval(t.Context(), vars)
		require.ErrorContains(t, err, says, src)
		require.NotContains(t, err.Error(), "overload", src)
	}
}

func TestPatternFaults(t *testing.T) {
	t.Parallel()
	for pattern, says := range map[string]string{
		"[a-": "never closed with ]", "(a": "never closed with )", "a)": "never opened with (", "*a": "nothing stands before", "a**": "follow each other",
		"(?=a)": "without look-ahead", "[z-a]": "runs backward", `a\`: "a backslash stands at the end", "a{2000}": "1000 at most", `\y`: "this escape means nothing",
	} {
		raw, err := json.Marshal(map[string]string{"pattern": pattern})
		require.NoError(t, err)
		_, err = CompileSchema(t.Context(), raw)
		require.ErrorContains(t, err, says, pattern)
		require.ErrorContains(t, err, "^", pattern)
		require.NotContains(t, err.Error(), "error parsing regexp", pattern)
	}
}
