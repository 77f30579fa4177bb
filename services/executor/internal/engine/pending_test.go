package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// TestExplainSignalsBeforeTheStart checks signals that are kept until a run begins: an executor that does not
// apply them is not at fault.
func TestExplainSignalsBeforeTheStart(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), payments(&recorder{}))
	id := l.start(t, flow(does("hear", "hears"), does("end", "does")), func(r *command.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
	require.Equal(t, journal.StatePending, l.row(t, id).State)
	l.signal(t, id)
	testkit.Eventually(t, func() bool { // commands of this age are reported
		commands, err := l.j.UnappliedCommands(t.Context(), ns, id, 1)
		require.NoError(t, err)
		return len(commands) == 1 && time.Since(commands[0].Time) > 2*time.Second
	})
	x, err := l.Explain(t.Context(), ns, id)
	require.NoError(t, err)
	require.Len(t, x.Blockers, 1)
	require.Equal(t, query.BlockerStartTime, x.Blockers[0].Kind)
}

// TestCancelBehindManyCommands cancels a run before it begins that has more commands than are loaded with it.
func TestCancelBehindManyCommands(t *testing.T) {
	t.Parallel()
	called := &recorder{}
	l := run(t, sqliteStore(t), actors{"ok": called})
	id := l.start(t, chain(1, "ok"), func(r *command.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
	payload := record.Payload{Name: "go"}
	body, err := payload.Encode()
	require.NoError(t, err)
	for range journal.MaxLoadedCommandBytes + 1 {
		_, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: ids.New("req"), Body: body, Time: dbkit.Now()}})
		require.NoError(t, err)
	}
	_, err = l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
	require.NoError(t, err)
	l.wait(t, id, journal.StateCanceled)
	require.Zero(t, called.of("n0#1"))
}
