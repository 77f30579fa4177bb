package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
)

// TestArrivalsAtOneMomentAreOrderedByTheirExecutors asks for one free place in both orders: a clock may give
// two arrivals the same time.
func TestArrivalsAtOneMomentAreOrderedByTheirExecutors(t *testing.T) {
	t.Parallel()
	now := time.Now()
	key := limit.Key{Namespace: "n", Name: "l"}
	ask := func(owner, other string) int {
		s := limit.State{
			Limit:  &limit.Limit{Key: key, MaxConcurrent: 1},
			Others: []limit.Holding{{Owner: journal.Owner{ID: other, Incarnation: 1}, Waiting: 1, Since: now, Asked: now}},
		}
		return limit.Decide(s, limit.Ask{Key: key, Want: 1}, journal.Owner{ID: owner, Incarnation: 1}, now).Grant.N
	}
	require.Equal(t, 1, ask("a", "b"))
	require.Equal(t, 0, ask("b", "a"))
}
