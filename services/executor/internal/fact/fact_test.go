package fact_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
)

func TestNew(t *testing.T) {
	t.Parallel()
	ann := fact.Owner{Agent: "agent/x", User: "ann"}
	one := fact.New("ns", ann, "drink", "likes tea")
	t.Run("ID/FollowsFromOwnerAndName", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, one.ID, fact.New("ns", ann, "drink", "likes coffee").ID)
		for name, other := range map[string]fact.Fact{
			"Name":  fact.New("ns", ann, "food", "likes tea"),
			"User":  fact.New("ns", fact.Owner{Agent: "agent/x", User: "bob"}, "drink", "likes tea"),
			"Agent": fact.New("ns", fact.Owner{Agent: "agent/y", User: "ann"}, "drink", "likes tea"),
			"Parts": fact.New("ns", fact.Owner{Agent: "agent/xann", User: ""}, "drink", "likes tea"),
		} {
			require.NotEqual(t, one.ID, other.ID, name)
		}
	})
	t.Run("Name/IsOfTheContentIfThereIsNone", func(t *testing.T) {
		t.Parallel()
		a, b := fact.New("ns", ann, "", "likes tea"), fact.New("ns", ann, "", "likes milk")
		require.NotEmpty(t, a.Name)
		require.NotEqual(t, a.ID, b.ID)
		require.Equal(t, a, fact.New("ns", ann, "", "likes tea"))
	})
}

func FuzzNew(f *testing.F) {
	f.Add("agent/x", "ann", "drink", "likes tea")
	f.Add("a\x00", "\xff", strings.Repeat("ä", fact.MaxName), strings.Repeat("ö", fact.MaxContent))
	f.Fuzz(func(t *testing.T, agent, user, name, content string) {
		got := fact.New("ns", fact.Owner{Agent: agent, User: user}, name, content)
		for text, limit := range map[string]int{got.Agent: fact.MaxName, got.User: fact.MaxName, got.Name: fact.MaxName, got.Content: fact.MaxContent} {
			require.LessOrEqual(t, len(text), limit)
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, "\x00")
		}
		require.Len(t, got.ID, len(fact.IDPrefix)+33)
		require.NotEmpty(t, got.Name)
	})
}
