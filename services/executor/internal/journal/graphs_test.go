package journal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestUnusedGraphs(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return noon.Add(time.Duration(n) * 24 * time.Hour) }
	graph := func(namespace, name string, used time.Time) journal.UsedGraph {
		return journal.UsedGraph{Key: journal.Key{Namespace: namespace, Name: name}, Used: used}
	}
	groups, begun := journal.OldGraphs([]journal.UsedGraph{
		graph("a", "1", day(1)), graph("a", "2", day(3)), graph("a", "3", day(9)), graph("b", "4", day(9)), graph("c", "5", day(2)),
	}, day(5))
	require.Len(t, groups, 2)
	require.Len(t, groups[0], 2)
	require.Equal(t, []time.Time{day(4), day(3)}, begun)

	for name, c := range map[string]struct {
		users []journal.GraphUser
		want  []string
	}{
		"Nobody":  {nil, []string{"1", "2"}},
		"Pinned":  {[]journal.GraphUser{{Runs: 7, Hash: "1"}}, []string{"2"}},
		"Begun":   {[]journal.GraphUser{{Runs: 7, Hash: "9", First: "2"}}, []string{"1"}},
		"TooMany": {[]journal.GraphUser{{Runs: journal.MaxGraphUsers, Hash: "8"}, {Runs: 1, Hash: "9"}}, nil},
	} {
		t.Run("UnusedGraphs/"+name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, journal.UnusedGraphs(groups[0], c.users))
		})
	}
}
