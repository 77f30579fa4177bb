package journaltest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// BenchCommands measures PendingCommands of an owner of 200 runs, each with a command, beside 100,000
// unapplied commands to runs of another owner. exec runs SQL that writes.
func BenchCommands(b *testing.B, d Driver, exec func(b *testing.B, place, sql string)) {
	const own, foreign, each = 200, 1000, 100
	ctx := b.Context()
	place := d.Fresh(b)
	j, err := d.Open(ctx, place)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, j.Close()) })
	fill := func(owner string, runs int, key string) journal.Owner {
		o, err := j.Register(ctx, owner, "")
		require.NoError(b, err)
		var writes []journal.Write
		for range runs {
			writes = append(writes, journal.Write{Start: start(1, func(s *journal.Start) { s.Run.ID = ids.New("run") })})
		}
		_, err = j.Commit(ctx, o, writes)
		require.NoError(b, err)
		for _, w := range writes {
			_, err := j.Enqueue(ctx, journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: w.Start.Run.ID, Kind: journal.CommandSignal, Key: key, Body: []byte(`{"name":"x"}`), Time: dbkit.Now()}})
			require.NoError(b, err)
		}
		return o
	}
	fill("other", foreign, "seed")
	exec(b, place, fmt.Sprintf(`WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < %d)
		INSERT INTO commands (run_id, namespace, kind, key, body, time) SELECT m.run_id, m.namespace, m.kind, 'k' || g.n, m.body, m.time FROM commands m CROSS JOIN g WHERE m.key = 'seed'`, each-1))
	me := fill("me", own, "mine")
	exec(b, place, `ANALYZE`)
	b.Run("Flooded", func(b *testing.B) {
		for b.Loop() {
			ms, err := j.PendingCommands(ctx, me, journal.CommandQuery{Limit: 1000})
			require.NoError(b, err)
			require.Len(b, ms, own)
		}
	})
	exec(b, place, `DELETE FROM commands WHERE key <> 'mine'`)
	b.Run("Alone", func(b *testing.B) {
		for b.Loop() {
			ms, err := j.PendingCommands(ctx, me, journal.CommandQuery{Limit: 1000})
			require.NoError(b, err)
			require.Len(b, ms, own)
		}
	})
}
