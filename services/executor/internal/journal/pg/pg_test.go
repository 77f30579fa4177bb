package pg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/journaltest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

func driver() journaltest.Driver {
	return journaltest.Driver{
		Fresh: func(t testing.TB) string { return template.New(t) },
		Open: func(ctx context.Context, place string) (journal.Journal, error) {
			return pg.Open(ctx, place, pg.Options{MaxReaders: 2, TellThread: journaltest.TellThread})
		},
		JobQuery: `SELECT kind || ' ' || state || ' ' || coalesce(args ->> 'run_id', '') FROM river_job WHERE state IN ('available', 'scheduled') ORDER BY id`,
		Query: func(t testing.TB, place, query string) []string {
			pool, err := dbkit.OpenPostgres(t.Context(), place, pg.Schema, dbkit.PostgresOptions{MaxConns: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			rows, err := pool.Query(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			out, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			return out
		},
		TakeJobs: func(t testing.TB, place, worker string) {
			conn, err := pgx.Connect(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			if _, err := conn.Exec(t.Context(), `UPDATE `+pg.Schema+`.river_job SET state = 'running', attempt = 3, attempted_by = ARRAY['executor/earlier', $1],
				attempted_at = now() - interval '1 minute' WHERE state = 'available'`, worker); err != nil {
				t.Fatal(err)
			}
		},
		AgeGraphs: func(t testing.TB, place string) {
			conn, err := pgx.Connect(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			if _, err := conn.Exec(t.Context(), `UPDATE `+pg.Schema+`.graphs SET use_time = now() - interval '7 days'`); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestMain(m *testing.M) {
	journaltest.Child(driver())
	testkit.Main(m)
}

func TestConformance(t *testing.T) { journaltest.Run(t, driver()) }

func TestLostConnections(t *testing.T) {
	t.Parallel()
	t.Run("Writer/BackendsKilledUnderIt", func(t *testing.T) {
		t.Parallel()
		url := template.New(t)
		s, err := pg.Open(t.Context(), url, pg.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		me, err := s.Register(t.Context(), "a", "")
		require.NoError(t, err)
		wr := journal.NewWriter(s, me, journal.WriterOptions{Logger: testkit.Logger(t)})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- wr.Run(ctx) }()
		killer, err := dbkit.OpenPostgres(t.Context(), url, pg.Schema, dbkit.PostgresOptions{ApplicationName: "killer"})
		require.NoError(t, err)
		defer killer.Close()
		id := ids.New("run")
		at := time.Now()
		_, err = wr.Do(ctx, journal.Write{Start: &journal.Start{
			Run: journal.Run{ID: id, Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: at}}},
		}})
		require.NoError(t, err)
		for last := int64(1); last < 60; last++ {
			if last%10 == 0 {
				_, err := killer.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'epigraph-executor' AND datname = current_database()`)
				require.NoError(t, err)
			}
			res, err := wr.Do(ctx, journal.Write{Append: &journal.Append{Namespace: "n", RunID: id, ExpectedLastSeq: last, Events: []journal.Event{{Kind: 2, Time: at}}}})
			require.NoError(t, err)
			require.Equal(t, last+1, res.LastSeq)
		}
		stop()
		require.NoError(t, <-done)
		es, err := s.Events(t.Context(), "n", id, 0, 1000)
		require.NoError(t, err)
		require.Len(t, es, 60)
	})
	t.Run("Reader/ADatabaseThatIsAwayIsUnavailable", func(t *testing.T) {
		t.Parallel()
		url, cut := wire(t, template.New(t))
		s, err := pg.Open(t.Context(), url, pg.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Migrations().Check(t.Context()))
		cut()
		_, _, graph := s.Graph(t.Context(), "n", "run_x")
		_, get := s.Get(t.Context(), "n", "run_x")
		_, list := s.List(t.Context(), "n", journal.Filter{}, page.Cursor{}, 1)
		_, events := s.Events(t.Context(), "n", "run_x", 0, 1)
		_, below := s.Descendants(t.Context(), "n", "run_x")
		_, post := s.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: "n", RunID: "run_x", Kind: journal.CommandCancel, Time: time.Now()}})
		_, up := s.Migrations().Up(t.Context())
		for name, err := range map[string]error{"get": get, "graph": graph, "list": list, "events": events, "descendants": below, "post": post,
			"check": s.Migrations().Check(t.Context()), "up": up} {
			require.True(t, errs.Is(err, errs.Unavailable), "%s: %v", name, err)
			require.Equal(t, dbkit.ReasonUnreachable, errs.ReasonOf(err), name)
		}
	})
}

// wire is a way to the database that can be cut.
func wire(t *testing.T, url string) (through string, cut func()) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	cut = func() {
		end()
		_ = l.Close()
		wg.Wait()
	}
	t.Cleanup(cut)
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial(network, address)
			if err != nil {
				_ = near.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
			wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			wg.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
		}
	})
	host, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return fmt.Sprintf("host=%s port=%s user=%s password='%s' dbname=%s sslmode=disable", host, port, cfg.User, cfg.Password, cfg.Database), cut
}

func TestOneFlush(t *testing.T) {
	t.Parallel()
	t.Run("Commit/HotUpdatesStayInTheirPage", func(t *testing.T) {
		t.Parallel()
		url := template.New(t)
		s, err := pg.Open(t.Context(), url, pg.Options{})
		require.NoError(t, err)
		me, err := s.Register(t.Context(), "a", "")
		require.NoError(t, err)
		id := ids.New("run")
		at := time.Now()
		_, err = s.Commit(t.Context(), me, []journal.Write{{Start: &journal.Start{
			Run: journal.Run{ID: id, Namespace: "n", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}}, Append: journal.Append{Events: []journal.Event{{Kind: 1, Time: at}}},
		}}})
		require.NoError(t, err)
		for last := int64(1); last <= 100; last++ {
			_, err := s.Commit(t.Context(), me, []journal.Write{{Append: &journal.Append{
				Namespace: "n", RunID: id, ExpectedLastSeq: last, Events: []journal.Event{{Kind: 2, Time: at}},
				Status: &journal.Status{State: journal.StateRunning, UpdateTime: at.Add(time.Duration(last)), Usage: journal.Usage{Calls: last}},
			}}})
			require.NoError(t, err)
		}
		// A server process tells its figures at the latest when it ends.
		require.NoError(t, s.Close())
		pool, err := dbkit.OpenPostgres(t.Context(), url, pg.Schema, dbkit.PostgresOptions{})
		require.NoError(t, err)
		defer pool.Close()
		testkit.Eventually(t, func() bool {
			var updates, hot int64
			err := pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'executor' AND relname = 'runs'`).Scan(&updates, &hot)
			return err == nil && updates == 100 && hot >= 90
		})
	})
}

func BenchmarkCommit(b *testing.B) {
	journaltest.Bench(b, driver(), func(b *testing.B, place string) journaltest.Raw {
		pool, err := dbkit.OpenPostgres(b.Context(), place, pg.Schema, dbkit.PostgresOptions{MaxConns: 2})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(pool.Close)
		if _, err := pool.Exec(b.Context(), `CREATE TABLE raw (LIKE events INCLUDING ALL)`); err != nil {
			b.Fatal(err)
		}
		return func(ctx context.Context, runID string, first int64, rows int, data []byte) error {
			seqs, datas := make([]int64, rows), make([][]byte, rows)
			for i := range rows {
				seqs[i], datas[i] = first+int64(i), data
			}
			_, err := pool.Exec(ctx, `INSERT INTO raw (run_id, seq, namespace, time, kind, node_id, visit, data)
				SELECT $1, s, 'acme', now(), 12, 'node-7', 1, d FROM unnest($2::bigint[], $3::bytea[]) AS u (s, d)`, runID, seqs, datas)
			return err
		}
	})
}

func BenchmarkThreads(b *testing.B) { journaltest.BenchThreads(b, driver()) }
