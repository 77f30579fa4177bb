package near_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/near"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"ab", "ba", 1}, {"rnus", "runs", 1}, {"ca", "abc", 3}, {"abcd", "badc", 2}} {
		require.Equal(t, tt.want, near.Distance(tt.a, tt.b), "%q %q", tt.a, tt.b)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,8}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		require.Equal(t, near.Distance(a, b), near.Distance(b, a))
		require.LessOrEqual(t, near.Distance(a, b), max(len(a), len(b)))
		require.GreaterOrEqual(t, near.Distance(a, b), max(len(a)-len(b), len(b)-len(a)))
		if len(a) > 1 {
			i := rapid.IntRange(0, len(a)-2).Draw(t, "i")
			require.LessOrEqual(t, near.Distance(a, a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:]), 1, "a swap")
		}
		require.Equal(t, a == b, near.Distance(a, b) == 0)
		d, ok := near.Within(a, b, 2)
		require.Equal(t, near.Distance(a, b) <= 2, ok)
		require.True(t, !ok || d == near.Distance(a, b))
	})
}
