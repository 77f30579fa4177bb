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
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"ab", "ba", 2}} {
		require.Equal(t, tt.want, near.Distance(tt.a, tt.b), "%q %q", tt.a, tt.b)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,8}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		require.Equal(t, near.Distance(a, b), near.Distance(b, a))
		require.LessOrEqual(t, near.Distance(a, c), near.Distance(a, b)+near.Distance(b, c))
		require.Equal(t, a == b, near.Distance(a, b) == 0)
		d, ok := near.Within(a, b, 2)
		require.Equal(t, near.Distance(a, b) <= 2, ok)
		require.True(t, !ok || d == near.Distance(a, b))
	})
}
