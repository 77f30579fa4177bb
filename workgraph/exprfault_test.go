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
		{"1 + 'a'", "+ cannot be applied to (int, string)", "+"},
		{"result.x == 1 # why", `the character "#" means nothing`, "#"},
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
