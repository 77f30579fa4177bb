package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Line/WhatIsGrantedIsKeptUntilItIsClaimed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(80 * mib)
			require.True(t, m.Try("a", 30*mib))
			in := make(chan error, 1)
			go func() { in <- m.wait(t.Context(), "run_large", "a", 100*mib) }()
			synctest.Wait()
			require.Empty(t, in)
			m.Add("a", -30*mib)
			require.NoError(t, <-in)
			require.EqualValues(t, 100*mib, m.Used())
			require.EqualValues(t, 100*mib, m.claim("run_large"))
			require.Zero(t, m.claim("run_large"))
		})
	})
	t.Run("Read/AsManyAtOnceAsWouldFit", func(t *testing.T) {
		t.Parallel()
		m := newMemory(80 * mib)
		require.True(t, m.Try("a", 30*mib))
		require.True(t, m.read(20*mib))
		require.True(t, m.read(20*mib))
		require.False(t, m.read(20*mib))
		m.wasRead()
		m.wasRead()
		require.True(t, m.Try("b", 30*mib))
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
