package pg_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

// rowsEnv lists how many events are in the journal when it is measured, as in "0,1000000,10000000". A tenth
// as many runs have ended, a hundredth wait without an owner.
const rowsEnv = "EPIGRAPH_JOURNAL_ROWS"

// BenchmarkGrowth tells whether what a visit costs depends on how much there is.
func BenchmarkJournalSize(b *testing.B) {
	const ns = "acme"
	place := template.New(b)
	ctx := b.Context()
	s, err := pg.Open(ctx, place, pg.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	me, err := s.Register(ctx, "me", "")
	require.NoError(b, err)
	pool, err := dbkit.OpenPostgres(ctx, place, pg.Schema, dbkit.PostgresOptions{MaxConns: 1})
	require.NoError(b, err)
	defer pool.Close()
	fill := func(from, to int) {
		for _, q := range []string{
			`SET synchronous_commit = off`, `SET statement_timeout = 0`,
			fmt.Sprintf(`INSERT INTO runs (run_id, namespace, owner_id, owner_incarnation, last_seq, revision, create_time, start_time, end_time, update_time, wake_time,
				input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, calls, takeovers, machine_version, state, nodes_total, nodes_completed,
				nodes_failed, nodes_skipped, nodes_running, holds_key, sampled, state_reason, cancel_reason, graph_name, graph_hash, task_id, user_id,
				chat_id, thread_id, business_key, parent_run_id, root_run_id, trace_parent, trace_state)
				SELECT 'run_01k0000000' || lpad(i::text, 16, '0'), '%s', '', 0, 10, 1, t, t, CASE WHEN i %% 11 = 0 THEN NULL ELSE t END, t,
				CASE WHEN i %% 11 = 0 THEN now() + interval '1 day' END, 0, 0, 0, 0, 0, 0, 2, CASE WHEN i %% 11 = 0 THEN 3 ELSE 6 END, 5, 5, 0, 0, 0, false,
				false, '', '', 'g', 'h', '', '', '', '', '', '', 'run_01k0000000' || lpad(i::text, 16, '0'), '', ''
				FROM (SELECT i, now() - interval '40 days' + i * interval '1 second' AS t FROM generate_series(%d, %d) i) x ON CONFLICT DO NOTHING`, ns, from/10+1, to/10+to/100),
			fmt.Sprintf(`INSERT INTO run_details (run_id, namespace) SELECT run_id, namespace FROM runs WHERE run_id >= 'run_01k0000000' || lpad('%d', 16, '0')
				AND run_id < 'run_01k1' ON CONFLICT DO NOTHING`, from/10+1),
			fmt.Sprintf(`INSERT INTO events (seq, time, kind, visit, run_id, namespace, node_id, data)
				SELECT j, now(), 12, 1, 'run_01k0000000' || lpad(i::text, 16, '0'), '%s', 'n' || j, '\x7b7d'::bytea || decode(repeat('61', 200), 'hex')
				FROM generate_series(%d, %d) i, generate_series(1, 10) j`, ns, from/10+1, to/10),
			`ANALYZE runs`, `ANALYZE events`, `CHECKPOINT`,
		} {
			if _, err := pool.Exec(ctx, q); err != nil {
				b.Fatal(err)
			}
		}
	}
	start := func() string {
		id := ids.New("run")
		res, err := s.Commit(ctx, me, []journal.Write{{Start: &journal.Start{Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 10}}}, Run: journal.Run{ID: id, Namespace: ns, GraphHash: "h", CreateTime: dbkit.Now(), Status: journal.Status{State: journal.StateRunning}}}}})
		require.NoError(b, err)
		require.NoError(b, res[0].Err)
		return id
	}
	data := []byte(strings.Repeat("a", 200))
	have := 0
	sizes := os.Getenv(rowsEnv)
	if sizes == "" {
		sizes = "0,10000"
	}
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		require.NoError(b, err)
		if n > have {
			begin := time.Now()
			fill(have, n)
			have = n
			b.Logf("filled up to %d events in %s", n, time.Since(begin).Round(time.Second))
		}
		lone, batch := start(), make([]string, 100)
		for i := range batch {
			batch[i] = start()
		}
		seq, batchSeq := int64(1), int64(1)
		appendTo := func(id string, at int64) journal.Write {
			return journal.Write{Append: &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: at, Events: []journal.Event{{Kind: 12, NodeID: "n", Visit: 1, Data: data}}}}
		}
		for _, c := range []struct {
			name string
			fn   func() error
		}{
			{"CommitOne", func() error {
				_, err := s.Commit(ctx, me, []journal.Write{appendTo(lone, seq)})
				seq++
				return err
			}},
			{"CommitHundred", func() error {
				ws := make([]journal.Write, len(batch))
				for i, id := range batch {
					ws[i] = appendTo(id, batchSeq)
				}
				_, err := s.Commit(ctx, me, ws)
				batchSeq++
				return err
			}},
			{"Start", func() error { start(); return nil }},
			{"TakeOver", func() error {
				_, err := s.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 100})
				return err
			}},
			{"SweepEvicted", func() error { _, err := s.SweepOwnerless(ctx, time.Minute, 100); return err }},
			{"ListRuns", func() error { _, err := s.List(ctx, ns, journal.Filter{}, page.Cursor{}, 51); return err }},
			{"ListWaiting", func() error {
				_, err := s.List(ctx, ns, journal.Filter{States: []journal.State{journal.StateWaiting}}, page.Cursor{}, 51)
				return err
			}},
			{"Events", func() error { _, err := s.Events(ctx, ns, lone, 0, 100); return err }},
			{"Load", func() error { _, err := s.Load(ctx, batch[0]); return err }},
			{"Expired", func() error {
				_, err := s.Expired(ctx, func(string) time.Time { return time.Now().Add(-39 * 24 * time.Hour) }, journal.Ended{}, 100)
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					begin := time.Now()
					if err := c.fn(); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
			})
		}
	}
}
