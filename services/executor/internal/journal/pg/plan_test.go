package pg

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	t.Run("Append/MadeOnEmptyTablesLooksUpByKey", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		s, err := Open(ctx, pgtest.New(t), Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.Migrations().Up(ctx)
		require.NoError(t, err)
		// The worst that statistics can say: there are none, and will be none.
		_, err = s.read.Exec(ctx, "VACUUM ANALYZE runs, run_details, outbox, snapshots")
		require.NoError(t, err)
		u := &journal.RunBatch{
			Namespace: "n", RunID: "r", Status: &journal.Status{}, Outcome: &journal.Outcome{}, Snapshot: []byte("s"),
			Events: []journal.Event{{Time: time.Now()}}, Outbox: []journal.OutRow{{Seq: 1}},
		}
		var b pgx.Batch
		s.sql.generalAppends(&b, journal.Owner{}, []*journal.RunBatch{u}, nil)
		conn, err := s.commit.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		query := b.QueuedQueries[0]
		_, err = conn.Exec(ctx, "PREPARE looked_at AS "+query.SQL)
		require.NoError(t, err)
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(query.Arguments)), ", ")
		rows, err := conn.Query(ctx, "EXPLAIN EXECUTE looked_at ("+nulls+")")
		plan, err := collect(rows, err, pgx.RowTo[string])
		require.NoError(t, err)
		text := strings.Join(plan, "\n")
		require.Contains(t, text, "Bitmap Index Scan on runs_pkey", text)
		require.Contains(t, text, "Bitmap Index Scan on run_details_pkey", text)
		require.NotContains(t, text, "Index Scan using", text)
		require.NotContains(t, text, "Seq Scan", text)
		// One for each of: outcomes, events, outbox, snapshots.
		require.Equal(t, 4, strings.Count(text, "hashed SubPlan"), text)
	})
}
