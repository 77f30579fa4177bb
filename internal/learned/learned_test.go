package learned_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/learned"
)

func TestBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		one, other string
		want       bool
	}{
		"Earlier":          {`{"time": "2026-01-02T03:04:05.000001Z"}`, `{"time": "2026-01-02T03:04:05.000002Z"}`, true},
		"OtherZone":        {`{"time": "2026-01-02T05:04:05+02:00"}`, `{"time": "2026-01-02T03:04:06Z"}`, true},
		"Later":            {`{"time": "2026-01-02T03:04:05.000002Z"}`, `{"time": "2026-01-02T03:04:05.000001Z"}`, false},
		"AtOnce":           {`{"time": "2026-01-02T03:04:05Z"}`, `{"time": "2026-01-02T03:04:05Z"}`, false},
		"OfAVersionBefore": {`{"time": "2026-01-02T03:04:05Z"}`, `{"agent": "a"}`, false},
		"Unknown":          {`{"agent": "a"}`, `{"time": "2026-01-02T03:04:05Z"}`, false},
		"NoValue":          {``, `{"time": "2026-01-02T03:04:05Z"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, learned.Before([]byte(c.one), []byte(c.other)))
		})
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ agent, name, want string }{
		"Plain":   {"agent/support", "drink", "learned:agent/support:drink"},
		"Colons":  {"a:b", "100%", "learned:a%3Ab:100%25"},
		"Control": {"a", "x\ny\u0085", "learned:a:x%0Ay%85"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, learned.Key(c.agent, c.name))
		})
	}
	t.Run("OfOneAgent/IsNotOfAnother", func(t *testing.T) {
		t.Parallel()
		require.False(t, strings.HasPrefix(learned.Key("a:b", "c"), learned.Of("a")))
		require.False(t, strings.HasPrefix(learned.Key("ab", "c"), learned.Of("a")))
	})
	t.Run("Long/FitsAndIsNotThatOfAnother", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("\nü:", 100)
		one, two := learned.Key(long, long+"1"), learned.Key(long, long+"2")
		require.NotEqual(t, one, two)
		require.LessOrEqual(t, len(one), 256)
		require.True(t, strings.HasPrefix(one, learned.Of(long)))
		require.Less(t, strings.IndexFunc(one, unicode.IsControl), 0)
	})
}
