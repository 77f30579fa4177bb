package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Share/ANamespaceGetsHalfAndSmallRunsItsLastQuarter", func(t *testing.T) {
		t.Parallel()
		m := newMemory(80 * mib)
		require.True(t, m.take("a", 15*mib))
		require.True(t, m.take("a", 15*mib))
		require.False(t, m.take("a", mib), "large runs have three quarters of the half")
		require.True(t, m.take("a", 10_000))
		require.True(t, m.take("b", 29*mib))
		require.False(t, m.take("c", 2*mib), "and three quarters of the whole")
		require.True(t, m.take("c", 10_000))
		m.add("b", -29*mib)
		require.True(t, m.take("c", 15*mib))
	})
	t.Run("Progress/OneRunAlwaysFits", func(t *testing.T) {
		t.Parallel()
		m := newMemory(8 * mib)
		require.True(t, m.take("a", 100*mib), "nothing else is there")
		require.True(t, m.full())
		require.False(t, m.take("b", 1))
		m.add("a", -100*mib)
		require.Zero(t, m.bytes())
		require.Empty(t, m.by)
		require.True(t, m.take("b", 5*mib), "the first of a namespace, over its share")
		require.False(t, m.take("b", 1))
	})
	t.Run("Line/ARunThatIsLargerThanMostIsLetInAfterAWhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(80 * mib)
			require.True(t, m.take("a", 10*mib))
			require.True(t, m.take("b", 5*mib))
			large, later := m.enter("run_large", "a", 70*mib), m.enter("run_later", "b", 60*mib)
			require.False(t, m.admit(large))
			require.True(t, m.take("b", mib), "others go first for a while")
			time.Sleep(lineAge) //nolint:forbidigo // the time of the bubble
			require.False(t, m.take("b", mib), "now they wait, but for")
			require.True(t, m.take("b", 10_000), "what is small, and")
			require.True(t, m.take("c", 10*mib), "the first of a namespace")
			require.False(t, m.admit(large), "more than a quarter is taken")
			require.False(t, m.admit(later), "one at a time")
			m.add("c", -10*mib)
			require.True(t, m.admit(large))
			m.leave(large)
			require.EqualValues(t, 70*mib, m.claim("run_large"))
			require.Zero(t, m.claim("run_large"))
			m.add("a", -80*mib)
			require.True(t, m.admit(later))
		})
	})
	t.Run("Line/NobodyKeepsOthersOutForEver", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(80 * mib)
			require.True(t, m.take("a", 30*mib)) // and it stays
			require.True(t, m.take("b", mib))
			large, later := m.enter("run_large", "a", 79*mib), m.enter("run_later", "b", 28*mib)
			time.Sleep(lineAge) //nolint:forbidigo // the time of the bubble
			require.False(t, m.admit(large))
			require.False(t, m.admit(later))
			time.Sleep(lineTurn) //nolint:forbidigo // the time of the bubble
			require.False(t, m.admit(large))
			require.True(t, m.admit(later), "its turn is over")
			m.leave(later)
			m.add("b", -29*mib)
			other := m.enter("run_other", "b", 45*mib) // as large as it gets beside what stays
			third := m.enter("run_third", "c", 49*mib)
			time.Sleep(lineAge) //nolint:forbidigo // the time of the bubble
			require.False(t, m.admit(large))
			time.Sleep(lineTurn) //nolint:forbidigo // the time of the bubble
			require.True(t, m.admit(other), "each that has waited gets a turn, though all have waited for as long")
			m.leave(other)
			require.False(t, m.admit(third))
			m.add("b", -45*mib)
			require.True(t, m.admit(third))
		})
	})
	t.Run("Read/AsManyAtOnceAsWouldFit", func(t *testing.T) {
		t.Parallel()
		m := newMemory(80 * mib)
		require.True(t, m.take("a", 30*mib))
		require.True(t, m.read(20*mib))
		require.True(t, m.read(20*mib))
		require.False(t, m.read(20*mib))
		m.wasRead()
		m.wasRead()
		require.True(t, m.take("b", 30*mib))
		require.True(t, m.read(200*mib), "one always")
		require.False(t, m.read(20*mib))
	})
	t.Run("Programs/AreForgottenByBytes", func(t *testing.T) {
		t.Parallel()
		s := newPrograms(fixed{}, workgraph.Limits{}, 10*mib)
		var last *program
		for i := range 20 {
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n", Actor: "a", Args: []json.RawMessage{json.RawMessage(fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", mib)))}}}}
			var err error
			last, err = s.compile(t.Context(), "ns", g, nil)
			require.NoError(t, err)
			require.LessOrEqual(t, s.bytes, int64(10*mib))
		}
		require.Same(t, last, s.find("pinned/"+last.hash), "the newest is remembered")
		require.Less(t, len(s.byKey), 12)
	})
	t.Run("Watch/ASlowWatcherHoldsNoMoreThanABound", func(t *testing.T) {
		t.Parallel()
		s := &subscription{wake: make(chan struct{}, 1)}
		big := Event{Durable: &Durable{Event: workgraph.Event{Seq: 1, Outcome: &workgraph.Outcome{Values: []json.RawMessage{make([]byte, mib)}}}}}
		for range 100 {
			s.put(big)
		}
		require.Len(t, s.events, 1)
		require.True(t, s.missed, "the rest is read from the journal")
		require.Len(t, s.take(), 1)
		s.put(big)
		require.Len(t, s.events, 1)
	})
}

type fixed struct{ Actors }

func (fixed) Find(_ context.Context, _ string, names []string) (map[string]ActorInfo, error) {
	out := map[string]ActorInfo{}
	for _, n := range names {
		out[n] = ActorInfo{ActorInfo: workgraph.ActorInfo{Effect: workgraph.Pure}}
	}
	return out, nil
}
