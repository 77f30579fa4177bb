package team

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
)

// large is a team with so many bytes of instructions, and with transitions that are compiled.
func large(tb testing.TB, bytes int) json.RawMessage {
	tb.Helper()
	t := &team.Team{Stop: &team.Stop{MaxTurns: 9}, Start: []string{"a"}}
	for _, name := range []string{"a", "b"} {
		raw, err := json.Marshal(strings.Repeat("x", bytes/2))
		require.NoError(tb, err)
		t.Members = append(t.Members, team.Member{Name: name, Actor: "says", Named: map[string]json.RawMessage{"text": raw}})
	}
	t.Transitions = []team.Transition{{From: "a", To: "b", When: &team.When{Expr: "result.text != ''"}}, {From: "b", To: "a", When: &team.When{Expr: "state.size() == 0"}}}
	raw, err := json.Marshal(t)
	require.NoError(tb, err)
	return raw
}

func TestRules(t *testing.T) {
	t.Parallel()
	t.Run("Large/AreCompiledOnce", func(t *testing.T) {
		t.Parallel()
		k, raw := newRules(maxRules), large(t, 2<<20)
		first, err := k.of(t.Context(), raw)
		require.NoError(t, err)
		again, err := k.of(t.Context(), append(json.RawMessage{}, raw...))
		require.NoError(t, err)
		require.Same(t, first, again)
		require.Greater(t, k.kept.Weight(), int64(4<<20), "its texts count")
	})
	t.Run("Many/AreForgotten", func(t *testing.T) {
		t.Parallel()
		k := newRules(1 << 20)
		for i := range 20 {
			_, err := k.of(t.Context(), large(t, 128<<10+2*i))
			require.NoError(t, err)
			require.LessOrEqual(t, k.kept.Weight(), int64(1<<20))
		}
		require.Equal(t, 3, k.kept.Len())
	})
}

// BenchmarkRules looks up a team of 2 MiB, as each visit of its loop does, when it is kept and when it is
// not.
func BenchmarkRules(b *testing.B) {
	raw := large(b, 2<<20)
	kept := newRules(maxRules)
	for name, of := range map[string]func() *rules{"Kept": func() *rules { return kept }, "Compiled": func() *rules { return newRules(maxRules) }} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := of().of(b.Context(), raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
