package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestSignalsWithoutEnd sends a run more signals than it keeps. The senders get an error, and the run can
// still be answered and canceled.
func TestSignalsWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newGate()
	l := run(t, sqliteStore(t), actors{"gate": g})
	id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "gate"}}})
	g.next(t)
	payload := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	var refusal error
	for range 4 * (workgraph.MaxSignalBytes + journal.MaxWaitingBytes) >> 20 {
		if _, refusal = l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go", Payload: payload}}); refusal != nil {
			break
		}
	}
	require.Equal(t, journal.ReasonInboxFull, errs.ReasonOf(refusal), "got %v", refusal)
	require.True(t, errs.Is(refusal, errs.ResourceExhausted))
	_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: "other", RunID: id, Signal: command.Signal{Name: "go", Payload: payload}})
	require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err), "another namespace learns nothing of it")
	_, err = l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
	require.NoError(t, err)
	l.wait(t, id, journal.StateCanceled)
}
