package pg_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

// BenchmarkEvicted measures the periodic work beside a great many evicted runs, each with a timer.
func BenchmarkEvicted(b *testing.B) {
	const runs = 100_000
	url := template.New(b)
	ctx := b.Context()
	s, err := pg.Open(ctx, url, pg.Options{})
	require.NoError(b, err)
	defer s.Close()
	me, err := s.Register(ctx, "a", "")
	require.NoError(b, err)
	at := dbkit.Now()
	_, err = s.Commit(ctx, me, []journal.Write{{Start: &journal.Start{
		Run: journal.Run{ID: "run_a", Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: at}}},
	}}})
	require.NoError(b, err)
	pool, err := dbkit.OpenPostgres(ctx, url, pg.Schema, dbkit.PostgresOptions{StatementTimeout: -1})
	require.NoError(b, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, `INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', 'run_p' || lpad(g::text, 8, '0'), 'state', 3, 'owner_id', '',
			'owner_incarnation', 0, 'wake_time', now() + interval '1 day', 'create_time', now() - g * interval '1 ms'))).* FROM runs r, generate_series(1, $1::int) g`, runs)
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `INSERT INTO run_details (run_id, namespace) SELECT run_id, namespace FROM runs ON CONFLICT DO NOTHING`)
	require.NoError(b, err)
	_, err = pool.Exec(ctx, `VACUUM ANALYZE runs, run_details`)
	require.NoError(b, err)
	for name, f := range map[string]func() error{
		"TakeOver": func() error {
			_, err := s.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 128})
			return err
		},
		"TakeOverCanceled": func() error {
			_, err := s.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 32, Canceled: true})
			return err
		},
		"Heartbeat": func() error { return s.Heartbeat(ctx, me) },
		"Sweep":     func() error { _, err := s.SweepOwnerless(ctx, time.Second, 100); return err },
		"Commands":  func() error { _, err := s.PendingCommands(ctx, me, journal.CommandQuery{Limit: 100}); return err },
		"List":      func() error { _, err := s.List(ctx, "n", journal.Filter{}, page.Cursor{}, 50); return err },
		"ListState": func() error {
			_, err := s.List(ctx, "n", journal.Filter{States: []journal.State{journal.StateRunning}}, page.Cursor{}, 50)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, f())
			}
		})
	}
}
