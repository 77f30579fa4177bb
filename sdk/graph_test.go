package epigraph_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestGraph(t *testing.T) {
	t.Run("Wire/IsThatOfTheServices", func(t *testing.T) {
		one := json.RawMessage(`1`)
		g := workgraph.NewBuilder("all").Add(
			workgraph.Node{ID: "a", Name: "A", Kind: workgraph.AgentKind, Actor: "x", Args: []json.RawMessage{one}, Named: map[string]json.RawMessage{"n": one},
				Transform: "result", PassDown: workgraph.Merge("{}"), Join: workgraph.Join{Mode: workgraph.Quorum, N: 2, Losers: workgraph.CancelLosers}, When: "true",
				On:    &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"b"}, BatchSize: 3, TTL: workgraph.Duration(time.Minute)}},
				Retry: workgraph.Retry{MaxAttempts: 4, InitialBackoff: 1, MaxBackoff: 2, Multiplier: 3, Jitter: 0.5}, Check: &workgraph.Check{Schema: one, CEL: "true"},
				Timeout: 5, IdleTimeout: 6, OnError: workgraph.OnError{Action: workgraph.Fallback, Value: one},
				Map:       &workgraph.Map{Over: "input", As: "i", MaxParallel: 7, OnItemError: workgraph.QuorumItems, Quorum: 8, Until: "true"},
				MaxVisits: 9, Cache: &workgraph.Cache{TTL: 10}, ConcurrencyKey: "'k'", Thread: "t", Effect: workgraph.Unsafe},
			workgraph.Node{ID: "b", Actor: "y", PassDown: workgraph.FirstArg()}, workgraph.Node{ID: "c", Actor: "z", PassDown: workgraph.LeadingArgs()}).
			Edge("a", "b", workgraph.When("true"), workgraph.OnFailure()).Back("b", "a", "false").State("s", workgraph.AppendByID).Graph()
		want, err := graphpb.ToProto(g)
		require.NoError(t, err)
		got, err := epigraph.Graph(g)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	})
	t.Run("Words/ThatAreNotKnownAreTold", func(t *testing.T) {
		g := workgraph.NewBuilder("odd").Add(workgraph.Node{ID: "a", Actor: "x", Effect: "HARMLESS", PassDown: workgraph.PassDown{Mode: "SIDEWAYS"}}).Graph()
		_, err := epigraph.Graph(g)
		require.ErrorContains(t, err, `"SIDEWAYS", "HARMLESS"`)
	})
}
