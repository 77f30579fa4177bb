package thread_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

func TestHold(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		held, ended, runs string
		next, by          string
	}{
		"AFreeThread":                   {held: "", runs: "r a", next: "r a"},
		"Again":                         {held: "r a", runs: "r a", next: "r a"},
		"TheRootHasEnded":               {held: "r a", ended: "r", runs: "s b", next: "s b"},
		"AnotherRoot":                   {held: "r a", ended: "a", runs: "s b", by: "r"},
		"AnotherAgentOfTheRoot":         {held: "r a", runs: "r b", by: "a"},
		"TheAgentBefore":                {held: "r a", ended: "a", runs: "r b", next: "r b"},
		"AGuest":                        {held: "r a", runs: "r a g", next: "r a g"},
		"TheNextGuest":                  {held: "r a g", ended: "g", runs: "r a h", next: "r a h"},
		"ASecondGuestAtOnce":            {held: "r a g", runs: "r a h", by: "g"},
		"AGuestOfAGuest":                {held: "r a g", runs: "r a g i", next: "r a g i"},
		"TheHostWhileAGuestWorks":       {held: "r a g", runs: "r a", next: "r a g"},
		"ANeighborWhileTheGuestIsOver":  {held: "r a g", ended: "g", runs: "r b", by: "a"},
		"TheHostIsOverButItsGuestIsNot": {held: "r a g", ended: "a", runs: "r b", next: "r b"},
		"AGuestOfAThreadThatAMade":      {held: "a", runs: "a g", next: "a g"},
		"ANeighborOfAThreadThatAMade":   {held: "a", runs: "r b", by: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, by := thread.Hold(strings.Fields(x.held), func(run string) bool { return !slices.Contains(strings.Fields(x.ended), run) }, strings.Fields(x.runs))
			require.Equal(t, x.by, by)
			require.Equal(t, x.next, strings.Join(next, " "))
		})
	}
}
