package pg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

// runAt is an id of a run that was begun then.
func runAt(t *testing.T, at time.Time, n int) string {
	t.Helper()
	var u ulid.ULID
	require.NoError(t, u.SetTime(ulid.Timestamp(at)))
	u[15] = byte(n)
	return "run_" + strings.ToLower(u.String())
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	const ns = "acme"
	place := template.New(t)
	ctx := t.Context()
	s, err := pg.Open(ctx, place, pg.Options{MaxReaders: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	me, err := s.Register(ctx, "me", "")
	require.NoError(t, err)
	query := func(q string) []string { return driver().Query(t, place, q) }
	now := time.Now()
	day := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	begin := func(id string, state journal.State) {
		res, err := s.Commit(ctx, me, []journal.Write{{Start: &journal.Start{Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 10}, {Kind: 12}}}, Run: journal.Run{ID: id, Namespace: ns, GraphHash: "g", CreateTime: now, Status: journal.Status{State: state, EndTime: now}}}}})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
	}
	in := func(table string) []string { return query("SELECT DISTINCT run_id FROM " + table + " ORDER BY 1") }
	parts := func() []string {
		return query("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1")
	}
	require.Len(t, parts(), 4, "the first, two ahead, and the last")

	// Runs of now, of three weeks ahead, and of the far future, which no partition holds yet.
	old, kept, next, far := runAt(t, now, 1), runAt(t, now, 2), runAt(t, day(10), 3), runAt(t, day(20), 4)
	for id, state := range map[string]journal.State{old: journal.StateCompleted, kept: journal.StateRunning, next: journal.StateCompleted, far: journal.StateRunning} {
		begin(id, state)
	}
	require.Equal(t, []string{far}, in("events_default"))
	suspects, err := s.Suspects(ctx, journal.SuspectPartition, journal.Sample{}, 10)
	require.NoError(t, err)
	require.Len(t, suspects, 1, "it is told")
	p, err := s.Extend(ctx, 7*24*time.Hour, 0)
	require.NoError(t, err)
	require.Equal(t, 2, p.Stray)
	p, err = s.Extend(ctx, 7*24*time.Hour, 21*24*time.Hour)
	require.NoError(t, err)
	require.Zero(t, p.Stray, "it moved into its own")
	require.Equal(t, 5, p.Count)
	suspects, err = s.Suspects(ctx, journal.SuspectPartition, journal.Sample{}, 10)
	require.NoError(t, err)
	require.Empty(t, suspects)

	for _, id := range []string{old, next} {
		_, err := s.DeleteRun(ctx, ns, id, 0, nil)
		require.NoError(t, err)
	}
	_, err = s.Shrink(ctx, day(17), 1)
	require.NoError(t, err)
	require.Len(t, parts(), 5, "more is left in them than may be moved")
	_, err = s.Shrink(ctx, day(17), 100)
	require.NoError(t, err)
	names := parts()
	require.Len(t, names, 3, "three became one: %v", names)
	merged := ""
	for _, n := range names {
		if strings.HasPrefix(n, "events_old_") {
			merged = n
		}
	}
	require.Equal(t, []string{kept}, in(merged), "the live run is there, and nothing of the others")
	_, err = s.Shrink(ctx, day(17), 100)
	require.NoError(t, err)
	require.Equal(t, names, parts(), "again changes nothing")
	res, err := s.Commit(ctx, me, []journal.Write{{Append: &journal.Append{Namespace: ns, RunID: kept, ExpectedLastSeq: 2, Events: []journal.Event{{Kind: 12}}}}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
	es, err := s.Events(ctx, ns, kept, 0, 10)
	require.NoError(t, err)
	require.Len(t, es, 3)
	// A statement of the hot path touches one partition.
	plan := strings.Join(query(fmt.Sprintf("SELECT * FROM (SELECT count(*)::text FROM events WHERE run_id = '%s') x", kept)), "")
	require.Equal(t, "3", plan)
}
