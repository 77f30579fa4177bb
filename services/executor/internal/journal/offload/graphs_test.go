package offload

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGraphForms(t *testing.T) {
	c, err := newCodec(64)
	require.NoError(t, err)
	body := func(text string, size int) []byte { return bytes.Repeat([]byte(text), size/len(text)) }
	back := func(t *testing.T, form, want []byte) {
		t.Helper()
		got, err := c.expand(form)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	t.Run("Compress/OnceForEachGraph", func(t *testing.T) {
		var g graphForms
		first := g.compress(c, "h", body("ab", 1000))
		back(t, first, body("ab", 1000))
		require.Same(t, &first[0], &g.compress(c, "h", body("ab", 1000))[0])
	})
	t.Run("Compress/AnotherGraphOfTheSameHash", func(t *testing.T) {
		var g graphForms
		g.compress(c, "h", body("ab", 1000))
		back(t, g.compress(c, "h", body("cd", 1000)), body("cd", 1000))
		back(t, g.compress(c, "h", body("ab", 1000)), body("ab", 1000))
	})
	t.Run("Compress/CacheIsBounded", func(t *testing.T) {
		var g graphForms
		for i := range 100 {
			text := body(fmt.Sprintf("%04d", i), maxGraphs/8)
			back(t, g.compress(c, fmt.Sprint(i), text), text)
			held := 0
			for _, f := range g.forms {
				held += len(f.body) + len(f.form)
			}
			require.Equal(t, held, g.size)
			require.LessOrEqual(t, held, maxGraphs)
		}
		large := body("x", maxGraphs)
		back(t, g.compress(c, "large", large), large)
		require.NotContains(t, g.forms, "large")
	})
}
