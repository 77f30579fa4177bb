package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// TestExplainSignalsBeforeTheStart is about signals that are kept until a run begins: an executor that leaves
// them alone is not at fault.
func TestExplainSignalsBeforeTheStart(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), payments(&recorder{}))
	id := l.start(t, flow(does("hear", "hears"), does("end", "does")), func(r *engine.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
	require.Equal(t, journal.StatePending, l.row(t, id).State)
	l.signal(t, id)
	testkit.Eventually(t, func() bool { // mail of this age is told of
		mail, err := l.j.UnreadMail(t.Context(), ns, id, 1)
		require.NoError(t, err)
		return len(mail) == 1 && time.Since(mail[0].Time) > 2*time.Second
	}, time.Minute, 50*time.Millisecond)
	x, err := l.Explain(t.Context(), ns, id)
	require.NoError(t, err)
	require.Len(t, x.Holdups, 1)
	require.Equal(t, engine.HoldupStartTime, x.Holdups[0].Kind)
}

// TestCancelBehindMuchMail cancels a run before it begins that has more mail than comes along when it is
// read.
func TestCancelBehindMuchMail(t *testing.T) {
	t.Parallel()
	called := &recorder{}
	l := run(t, sqliteStore(t), actors{"ok": called})
	id := l.start(t, chain(1, "ok"), func(r *engine.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
	letter := engine.Letter{Name: "go"}
	body, err := letter.Encode()
	require.NoError(t, err)
	for range journal.MaxLoadedMail + 1 {
		_, err := l.j.Post(t.Context(), journal.Post{Mail: journal.Mail{Namespace: ns, RunID: id, Kind: journal.MailSignal, Key: ids.New("req"), Body: body, Time: dbkit.Now()}})
		require.NoError(t, err)
	}
	_, err = l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
	require.NoError(t, err)
	l.wait(t, id, journal.StateCanceled)
	require.Zero(t, called.of("n0#1"))
}
