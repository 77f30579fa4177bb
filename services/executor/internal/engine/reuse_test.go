package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestReuse(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var calls atomic.Int64
		costs := func(value string) workgraph.Actor {
			return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				calls.Add(1)
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(value)},
					Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 10, OutputTokens: 3}}}, nil
			})
		}
		a := actors{"says": costs(`{"big":12345678901234567890,"tag":"<b>"}`), "writes": costs(`"` + strings.Repeat("x", journal.MaxOutcomeBytes) + `"`)}
		one := func(actor string, ttl time.Duration, args ...string) *workgraph.Graph {
			n := workgraph.Node{ID: "n", Actor: actor, Effect: workgraph.Idempotent, Cache: &workgraph.Cache{TTL: workgraph.Duration(ttl)}}
			for _, arg := range args {
				n.Args = append(n.Args, json.RawMessage(arg))
			}
			return &workgraph.Graph{Nodes: []workgraph.Node{n}}
		}
		// again runs a graph and says whether its call was made.
		again := func(t *testing.T, l *live, g *workgraph.Graph) (made bool, row journal.Run) {
			t.Helper()
			before := calls.Load()
			started, err := l.StartRun(t.Context(), command.StartRequest{Namespace: ns, Graph: g})
			require.NoError(t, err)
			row = l.wait(t, started.ID, journal.StateCompleted)
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: started.ID})
			require.NoError(t, err)
			require.Len(t, visits, 1)
			made = calls.Load() > before
			require.Equal(t, !made, visits[0].Cached)
			return made, row
		}
		l := run(t, s, a)
		other := run(t, s, a, named("other"))
		g := one("says", time.Hour)
		made, first := again(t, l, g)
		require.True(t, made)
		require.EqualValues(t, 1, first.Usage.Calls)
		t.Run("Hit/OnAnotherExecutorAndForNothing", func(t *testing.T) {
			made, row := again(t, other, g)
			require.False(t, made)
			require.Zero(t, row.Usage)
			require.Equal(t, string(first.Result), string(row.Result))
		})
		t.Run("Miss/OtherArgumentsOrTooOld", func(t *testing.T) {
			made, _ := again(t, other, one("says", time.Hour, `1`))
			require.True(t, made)
			short := one("says", time.Microsecond, `2`)
			_, _ = again(t, l, short)
			made, _ = again(t, other, short)
			require.True(t, made)
		})
		t.Run("Large/StaysWhereItWasMade", func(t *testing.T) {
			large := one("writes", time.Hour)
			made, _ := again(t, l, large)
			require.True(t, made)
			made, _ = again(t, l, large)
			require.False(t, made)
			made, _ = again(t, other, large)
			require.True(t, made)
		})
		t.Run("Hit/AfterARestart", func(t *testing.T) {
			l.stop()
			other.stop()
			made, row := again(t, run(t, s, a), g)
			require.False(t, made)
			require.Equal(t, string(first.Result), string(row.Result))
		})
	})
}
