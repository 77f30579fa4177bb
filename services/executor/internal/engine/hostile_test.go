package engine_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestHostile gives runs what a careless or hostile client might.
func TestHostile(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		l := run(t, s, actors{
			"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"ok":     &recorder{},
			"grows": outcome(func(*workgraph.Call) workgraph.Outcome {
				return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "x", Actor: "ok"}}}}
			}),
			"breaks": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{}, &workgraph.Error{Type: workgraph.Permanent, Reason: "A\x00" + strings.Repeat("r", 5000), Message: "m\x00",
					Usage: []workgraph.Usage{{Provider: strings.Repeat("p", 1000), Model: "m\x00", InputTokens: math.MaxInt64, OutputTokens: -5}}}
			}),
			"labels": outcome(func(*workgraph.Call) workgraph.Outcome {
				child := workgraph.Child{Graph: chain(1, "ok"), Labels: map[string]string{"A key": "v"}}
				return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{child}}}}
			}),
		})
		waiting := func(t *testing.T) string {
			id := l.start(t, chain(1, "signal"))
			l.evicted(t, id, journal.StateWaiting)
			return id
		}
		t.Run("Pause/LongReasonIsKept", func(t *testing.T) {
			id, reason := waiting(t), strings.Repeat("é", 1024)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Reason: reason}))
			require.Equal(t, reason, l.wait(t, id, journal.StatePaused).Reason)
		})
		for name, reason := range map[string]string{"Brace": "{", "LookingLikeJSON": `{"reason": 1}`, "Long": strings.Repeat("é", 1024)} {
			t.Run("Cancel/Reason"+name, func(t *testing.T) {
				id := waiting(t)
				_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: reason})
				require.NoError(t, err)
				require.Equal(t, reason, l.wait(t, id, journal.StateCanceled).CancelReason)
			})
		}
		t.Run("Signal/TooDeepIsRefused", func(t *testing.T) {
			id := waiting(t)
			deep := json.RawMessage(strings.Repeat("[", 9999) + strings.Repeat("]", 9999))
			_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go", Payload: deep}})
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
			require.ErrorContains(t, err, "payload is nested more than 1000 deep")
		})
		t.Run("Start/InfiniteBackOffIsAFault", func(t *testing.T) {
			g := chain(1, "ok")
			g.Nodes[0].Retry.Multiplier = math.Inf(1)
			_, err := l.StartRun(t.Context(), command.StartRequest{Namespace: ns, Graph: g})
			var faults workgraph.Faults
			require.ErrorAs(t, err, &faults)
			require.Equal(t, "retry.multiplier", faults[0].Field)
		})
		t.Run("Expand/MayCallActorsThatTheGraphDoesNot", func(t *testing.T) {
			row := l.wait(t, l.start(t, chain(1, "grows")), journal.StateCompleted, journal.StateFailed)
			require.Equal(t, journal.StateCompleted, row.State, string(row.Error))
		})
		t.Run("Failure/IsCutToTheLimitsOfAccounting", func(t *testing.T) {
			id := l.start(t, chain(1, "breaks"))
			row := l.wait(t, id, journal.StateFailed)
			require.EqualValues(t, 1_000_000_000_000, row.Usage.InputTokens)
			require.Zero(t, row.Usage.OutputTokens)
			e := attemptsOf(l.events(t, id))[0].Error
			require.Len(t, e.Reason, 256+2) // a NUL becomes a replacement character
			require.Equal(t, "m\uFFFD", e.Message)
			require.Len(t, e.Usage[0].Provider, 128)
		})
		t.Run("Child/LabelsAreThoseOfAStart", func(t *testing.T) {
			id := l.start(t, chain(1, "labels"))
			l.wait(t, id, journal.StateFailed)
			require.Equal(t, `child 1: "A key" is no key of a label`, attemptsOf(l.events(t, id))[0].Error.Message)
		})
	})
}
