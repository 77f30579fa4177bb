package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestSortOut(t *testing.T) {
	dead, self := journal.Owner{ID: "a", Incarnation: 1}, journal.Owner{ID: "b", Incarnation: 2}
	outlived := func(o journal.Owner) bool { return o == self }
	found := func(from journal.Owner) []journal.RunRef {
		return []journal.RunRef{{RunID: "run_1", State: journal.StateRunning, Takeovers: 2, From: from}}
	}
	t.Run("RunsOfTheDead/Count", func(t *testing.T) {
		res, _ := journal.SortOut(found(dead), journal.TakeOverOptions{Limit: 10, Outlived: outlived})
		require.Len(t, res.Quarantined, 1)
	})
	t.Run("RunsOfAProcessThatOnlyLostItsLease/CountNothing", func(t *testing.T) {
		res, _ := journal.SortOut(found(self), journal.TakeOverOptions{Limit: 10, Outlived: outlived})
		require.Empty(t, res.Quarantined)
		require.Len(t, res.Claimed, 1)
		require.Equal(t, 2, res.Claimed[0].Takeovers)
	})
}
