package feed

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestASlowWatcherHoldsNoMoreThanABound(t *testing.T) {
	const mib = 1 << 20
	t.Parallel()
	s := &subscription{wake: make(chan struct{}, 1)}
	big := Event{Durable: &record.Durable{Event: workgraph.Event{Seq: 1, Outcome: &workgraph.Outcome{Values: []json.RawMessage{make([]byte, mib)}}}}}
	for range 100 {
		s.put(big, false)
	}
	require.Len(t, s.events, 1)
	require.True(t, s.missed, "the rest is read from the journal")
	require.Len(t, s.take(), 1)
	s.put(big, false)
	require.Len(t, s.events, 1)
}
