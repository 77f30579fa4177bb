package executor_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// lived runs an executor on the store of cfg and leaves one expanded run that has ended and one that waits
// for an answer.
func lived(ctx context.Context, cfg executor.Config) (err error) {
	cfg.ID, cfg.ScanInterval = "lived", 50*time.Millisecond
	svc, err := executor.Open(ctx, cfg, executor.Deps{})
	if err != nil {
		return err
	}
	server, err := grpckit.NewServer(grpckit.Options{})
	if err != nil {
		return err
	}
	svc.Register(server)
	var buf grpckit.BufNet
	l, err := buf.Listen("executor")
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() { _ = svc.Run(run) })
	defer func() {
		stop()
		wg.Wait()
		err = errors.Join(err, svc.Close())
	}()
	defer server.Stop()
	conn, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: &buf})
	if err != nil {
		return err
	}
	defer conn.Close()
	c := executorv1.NewExecutorServiceClient(conn)
	start := func(want executorv1.RunState, nodes ...*graphv1.Node) error {
		g := &graphv1.Graph{Nodes: nodes}
		for i := range nodes[1:] {
			g.Edges = append(g.Edges, &graphv1.Edge{From: nodes[i].GetId(), To: nodes[i+1].GetId()})
		}
		r, err := c.StartRun(ctx, &executorv1.StartRunRequest{Graph: g, RequestId: nodes[0].GetId()})
		for errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
			r, err = c.StartRun(ctx, &executorv1.StartRunRequest{Graph: g, RequestId: nodes[0].GetId()})
		}
		for err == nil && r.GetState() != want {
			pause := time.NewTimer(5 * time.Millisecond)
			<-pause.C
			r, err = c.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.GetId()})
		}
		return err
	}
	node := func(id, actor, name, value string) *graphv1.Node {
		return &graphv1.Node{Id: id, Actor: actor, Named: map[string]*graphv1.Payload{name: {Json: []byte(value)}}}
	}
	const grows = `{"nodes": [{"id": "x", "actor": "template", "named": {"text": "x"}}]}`
	if err := start(executorv1.RunState_RUN_STATE_COMPLETED, node("a", "expand", "graph", grows), node("b", "template", "text", `"y"`)); err != nil {
		return err
	}
	return start(executorv1.RunState_RUN_STATE_WAITING, node("q", "human", "prompt", `"go on?"`))
}

// TestExamine damages a database in one way after the other, and checks the findings.
func TestExamine(t *testing.T) {
	t.Parallel()
	const (
		ended = `(SELECT run_id FROM runs WHERE state = 6)`
		open  = `(SELECT run_id FROM runs WHERE state = 3)`
	)
	harms := []struct {
		name, sql string
		wants     []string // the checks that must speak, nothing else
		severity  doctor.Severity
		only      string
	}{
		{name: "Nothing", sql: `SELECT 1`},
		{name: "EventGone", sql: `DELETE FROM events WHERE seq = 2 AND run_id = ` + ended, wants: []string{"journal-gap", "journal-replay"}, severity: doctor.Fault},
		{name: "LastEventGone", sql: `DELETE FROM events WHERE kind = 17`, wants: []string{"journal-gap", "run-end", "journal-replay"}, severity: doctor.Fault},
		{name: "EndTwice", sql: `INSERT INTO events (run_id, namespace, seq, time, kind, node_id, visit, data)
			SELECT run_id, namespace, seq + 1, time, kind, node_id, visit, data FROM events WHERE kind = 17`, wants: []string{"run-end", "journal-replay"}, severity: doctor.Fault},
		{name: "RowSaysFailed", sql: `UPDATE runs SET state = 7 WHERE state = 6`, wants: []string{"journal-replay"}, severity: doctor.Fault},
		{name: "RowNeverEnded", sql: `UPDATE runs SET state = 4, owner_id = '', owner_incarnation = 0 WHERE state = 6`, wants: []string{"run-end"}, severity: doctor.Fault},
		{name: "GraphGone", sql: `DELETE FROM graphs WHERE hash = (SELECT graph_hash FROM runs WHERE state = 3)`, wants: []string{"graph-missing"}, severity: doctor.Fault},
		{name: "DetailsGone", sql: `DELETE FROM run_details WHERE run_id = ` + open, wants: []string{"details-missing"}, severity: doctor.Fault},
		{name: "SnapshotAhead", sql: `UPDATE snapshots SET seq = 1000 WHERE run_id = ` + open, wants: []string{"snapshot-ahead"}, severity: doctor.Fault},
		{name: "KeyHeld", only: "postgres", sql: `UPDATE runs SET holds_key = (1 = 1), business_key = 'k' WHERE state = 6`, wants: []string{"key-held"}, severity: doctor.Fault},
		{name: "KeyHeldSQLite", only: "sqlite", sql: `UPDATE runs SET holds_key = 1, business_key = 'k' WHERE state = 6`, wants: []string{"key-held"}, severity: doctor.Fault},
		{name: "QuestionOfTheDead", sql: `UPDATE interrupts SET run_id = ` + ended, wants: []string{"interrupt-open"}, severity: doctor.Fault},
		{name: "MailToTheDead", sql: `INSERT INTO commands (time, run_id, namespace, kind, key) SELECT NOW, run_id, namespace, 'SIGNAL', '1' FROM runs WHERE state = 6`,
			wants: []string{"command-lost"}, severity: doctor.Fault},
		{name: "MailUnread", sql: `INSERT INTO commands (time, run_id, namespace, kind, key) SELECT AGO, run_id, namespace, 'SIGNAL', '1' FROM runs WHERE state = 3`,
			wants: []string{"executors-none", "command-old"}, severity: doctor.Fault},
		{name: "Overdue", sql: `UPDATE runs SET wake_time = AGO WHERE state = 3`, wants: []string{"executors-none", "evicted-overdue"}, severity: doctor.Fault},
		{name: "OwnerGone", sql: `UPDATE runs SET owner_id = 'gone', owner_incarnation = 7 WHERE state = 3`, wants: []string{"executors-none", "owner-gone"}, severity: doctor.Fault},
		{name: "OwnerSilent", sql: `INSERT INTO executors (id, incarnation, heartbeat, addr) VALUES ('silent', 1000, AGO, 'x')`, wants: []string{"executor-silent"}, severity: doctor.Warning},
		{name: "Released", sql: `UPDATE runs SET state = 2 WHERE state = 3`, wants: []string{"executors-none", "run-released"}, severity: doctor.Fault},
		{name: "PendingForLong", sql: `UPDATE runs SET state = 1, create_time = AGO WHERE state = 3`, wants: []string{"pending-old"}, severity: doctor.Warning},
		{name: "ParentGone", sql: `UPDATE runs SET parent_run_id = 'run_none' WHERE state = 3`, wants: []string{"orphan-child"}, severity: doctor.Fault},
		{name: "Quarantined", sql: `UPDATE runs SET state = 5 WHERE state = 3`, wants: []string{"run-quarantined"}, severity: doctor.Warning},
		{name: "Unsettled", sql: `UPDATE runs SET state = 4, state_reason = 'NEEDS_RECONCILIATION' WHERE state = 3`, wants: []string{"needs-reconciliation"}, severity: doctor.Note},
		{name: "OutboxStuck", sql: `INSERT INTO outbox (run_id, namespace, seq, ordinal, kind, attempts, next_at, last_error) SELECT run_id, namespace, 1, 0, 'usage', 9, NOW, 'refused' FROM runs WHERE state = 6`,
			wants: []string{"outbox-stuck"}, severity: doctor.Warning},
		{name: "JobGivenUp", sql: `INSERT INTO river_job (kind, queue, args, max_attempts, state, finalized_at) VALUES ('wake', 'wake', ARGS, 3, 'discarded', CURRENT_TIMESTAMP)`,
			wants: []string{"job-lost"}, severity: doctor.Warning},
		{name: "PlacesOfTheDead", sql: `INSERT INTO limit_holdings (namespace, name, owner_id, owner_incarnation, since, asked, held, waiting, runs) VALUES ('n', 'llm', 'gone', 1, NOW, NOW, 2, 0, '')`,
			wants: []string{"limit-held"}, severity: doctor.Note},
		{name: "ScheduleOverdue", sql: `INSERT INTO schedules (namespace, id, uid, revision, turns, skipped, done, ahead, due, create_time, update_time, spec)
			VALUES ('n', 's', 'u', 1, 0, 0, AGO, AGO, AGO, AGO, AGO, BYTES)`, wants: []string{"schedule-overdue"}, severity: doctor.Warning},
		{name: "ThreadGap", sql: `INSERT INTO threads (thread_id, namespace, parent_seq, create_time, use_time, lifetime, depth, key, agent, title, user_id, chat_id, parent_id, holder, below)
			VALUES ('thr_1', 'n', 2, AGO, AGO, 1, 0, '', 'a', '', '', '', '', '', '');
			INSERT INTO thread_items (thread_id, seq, namespace, time, kind, visit, weight, run_id, node_id, body) VALUES ('thr_1', 4, 'n', AGO, 1, 0, 1, '', '', BYTES)`,
			wants: []string{"thread-gap"}, severity: doctor.Fault},
		{name: "TurnOverdue", sql: `INSERT INTO threads (thread_id, namespace, parent_seq, create_time, use_time, lifetime, depth, key, agent, title, user_id, chat_id, parent_id, holder, below)
			VALUES ('thr_1', 'n', 0, AGO, AGO, 1, 0, '', 'a', '', '', '', '', '', '');
			INSERT INTO thread_turns (thread_id, number, namespace, state, create_time, run_id, principal, message) VALUES ('thr_1', 1, 'n', 1, AGO, 'run_1', '', BYTES)`,
			wants: []string{"turn-overdue"}, severity: doctor.Warning},
		{name: "BlobGone", sql: `INSERT INTO blobs (namespace, hash, size, touch_time) VALUES ('default', HASH, 7, NOW);
			INSERT INTO blob_refs (run_id, namespace, hash, snapshot) SELECT run_id, 'default', HASH, FALSE FROM runs WHERE state = 6`, wants: []string{"blob-missing"}, severity: doctor.Fault},
		{name: "RequestsKept", sql: `UPDATE request_ids SET create_time = LONGAGO`, wants: []string{"request-old"}, severity: doctor.Warning},
	}
	times := map[string]*strings.Replacer{
		"postgres": strings.NewReplacer("LONGAGO", "now() - interval '30 days'", "AGO", "now() - interval '2 hours'", "NOW", "now()", "ARGS", "'{}'", "BYTES", "'\\x7b7d'",
			"HASH", `'\x61626364616263646162636461626364616263646162636461626364616263ff'`),
		"sqlite": strings.NewReplacer("LONGAGO", "(unixepoch() - 30 * 86400) * 1000000", "AGO", "(unixepoch() - 7200) * 1000000", "NOW", "unixepoch() * 1000000",
			"ARGS", "jsonb('{}')", "BYTES", "X'7B7D'", "HASH", "X'61626364616263646162636461626364616263646162636461626364616263FF'"),
	}
	original := filepath.Join(t.TempDir(), "executor.db")
	cfg := executor.DefaultConfig()
	cfg.SQLitePath = original
	require.NoError(t, lived(t.Context(), cfg))
	template := pgtest.NewTemplate(func(ctx context.Context, url string) error {
		cfg := executor.DefaultConfig()
		cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(url)
		return lived(ctx, cfg)
	})
	for _, h := range harms {
		for _, store := range []string{"sqlite", "postgres"} {
			if h.only != "" && h.only != store {
				continue
			}
			t.Run(h.name+"/"+store, func(t *testing.T) {
				cfg := executor.DefaultConfig()
				cfg.Store = store
				harm := times[store].Replace(h.sql)
				if store == "sqlite" {
					b, err := os.ReadFile(original)
					require.NoError(t, err)
					cfg.SQLitePath = filepath.Join(t.TempDir(), "executor.db")
					require.NoError(t, os.WriteFile(cfg.SQLitePath, b, 0o600))
					db, err := sql.Open("sqlite", cfg.SQLitePath)
					require.NoError(t, err)
					_, err = db.ExecContext(t.Context(), harm)
					require.NoError(t, err)
					require.NoError(t, db.Close())
				} else {
					url := template.New(t)
					cfg.PostgresURL = conf.NewSecret(url)
					conn, err := pgx.Connect(t.Context(), url)
					require.NoError(t, err)
					_, err = conn.Exec(t.Context(), `SET search_path = executor`)
					require.NoError(t, err)
					_, err = conn.Exec(t.Context(), harm)
					require.NoError(t, err)
					require.NoError(t, conn.Close(t.Context()))
				}
				for _, all := range []bool{false, true} {
					r, err := executor.Examine(t.Context(), cfg, doctor.Options{All: all})
					require.NoError(t, err)
					require.NotNil(t, r.Findings, "in JSON it is a list")
					var names []string
					for _, f := range r.Findings {
						require.NotEmpty(t, f.Examples)
						require.NotEmpty(t, f.RecoveryStep)
						names = append(names, f.Check)
					}
					slices.Sort(names)
					wants := slices.Sorted(slices.Values(h.wants))
					require.Equal(t, wants, names, "%+v", r.Findings)
					require.Equal(t, h.severity, r.Worst())
				}
			})
		}
	}
	t.Run("Schema/Missing", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(pgtest.New(t))
		r, err := executor.Examine(t.Context(), cfg, doctor.Options{})
		require.NoError(t, err)
		require.Equal(t, doctor.Fault, r.Worst())
		require.Equal(t, "schema", r.Findings[0].Check)
	})
	t.Run("File/Missing", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		cfg.SQLitePath = filepath.Join(t.TempDir(), "none.db")
		_, err := executor.Examine(t.Context(), cfg, doctor.Options{})
		require.Equal(t, "SQLITE_FILE_MISSING", errs.ReasonOf(err))
		require.NoFileExists(t, cfg.SQLitePath)
	})
	t.Run("Database/Away", func(t *testing.T) {
		cfg := executor.DefaultConfig()
		cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret("postgres://127.0.0.1:1/none")
		_, err := executor.Examine(t.Context(), cfg, doctor.Options{})
		require.Equal(t, dbkit.ReasonUnreachable, errs.ReasonOf(err))
	})
}
