package team

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
)

func TestLastSaid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxSaidBytes/2)
	t.Run("TheNewestThatFitTogether", func(t *testing.T) {
		t.Parallel()
		got := lastSaid([]team.Message{{From: "input", Text: long}, {From: "a", Text: long}, {From: "b", Text: long}})
		require.Equal(t, []saidBefore{{"a", long}, {"b", long}}, got)
	})
	t.Run("OneThatIsTooLongIsCut", func(t *testing.T) {
		t.Parallel()
		got := lastSaid([]team.Message{{From: "a", Text: long}, {From: "b", Text: long + long + long}})
		require.Len(t, got, 1)
		require.LessOrEqual(t, len(got[0].Text), maxSaidBytes+4)
	})
	t.Run("NothingIsAList", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []saidBefore{}, lastSaid(nil))
	})
}
