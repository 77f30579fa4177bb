package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// node is one of a plan that was carried out.
type node struct {
	Type    string  `json:"Node Type"`
	Table   string  `json:"Relation Name"`
	Index   string  `json:"Index Name"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Recheck float64 `json:"Rows Removed by Index Recheck"`
	Hit     int     `json:"Shared Hit Blocks"`
	Read    int     `json:"Shared Read Blocks"`
	Plans   []node  `json:"Plans"`
}

// rows counts the rows of tables that n and all below it looked at.
func (n node) rows() (sum float64) {
	if n.Table != "" && strings.HasSuffix(n.Type, "Scan") {
		sum = (n.Rows + n.Removed + n.Recheck) * n.Loops
	}
	for _, p := range n.Plans {
		sum += p.rows()
	}
	return sum
}

// witness hears of every plan that is carried out on the pools of a store.
type witness struct {
	t     *testing.T
	mu    sync.Mutex
	plans []string
}

func (w *witness) watch(pool *pgxpool.Pool) *pgxpool.Pool {
	cfg := pool.Config()
	pool.Close()
	cfg.MaxConns = 1
	cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, ok := strings.Cut(n.Message, "plan:\n"); ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.plans = append(w.plans, plan)
		}
	}
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	require.NoError(w.t, err)
	return pool
}

// touched tells how many rows and pages fn looked at, and how.
func (w *witness) touched(fn func() error) (rows float64, pages int, plans string) {
	w.mu.Lock()
	w.plans = nil
	w.mu.Unlock()
	if err := fn(); err != nil {
		require.True(w.t, errs.Is(err, errs.NotFound), "got %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.plans {
		var top struct {
			Plan node `json:"Plan"`
		}
		require.NoError(w.t, json.Unmarshal([]byte(p), &top), p)
		rows += top.Plan.rows()
		pages += top.Plan.Hit + top.Plan.Read
	}
	return rows, pages, strings.Join(w.plans, "\n")
}

const (
	// Whole tables are cheap to read while there are as few as the first: a plan from then must not stay.
	fewRuns, manyRuns = 100, 20_000
	listed            = 20
	// unread is about how many commands nobody has read; some questions are about all of them.
	unread = manyRuns/100*5 + crowd
	// crowd is the commands of the first run that waits.
	crowd = 1000
	// countedBelow is how many runs the large tree has, a quarter of all.
	countedBelow = manyRuns / 4
	// Each run of a page is looked up in a handful of tables; a list of all states looks ahead in each.
	rowsOfPage, pagesOfPage = 10 * listed, 60 * listed
)

// fillMany writes runs nearly all of which have ended: every 100th waits, every 2,000th has failed; the first
// 30 are somebody's; every fourth of the others belongs to one tree.
var fillMany = []string{
	`INSERT INTO runs (run_id, namespace, owner_id, owner_incarnation, last_seq, revision, create_time, start_time, end_time, update_time, wake_time,
		input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, calls, takeovers, machine_version, state, nodes_total, nodes_completed,
		nodes_failed, nodes_skipped, nodes_running, holds_key, sampled, state_reason, cancel_reason, graph_name, graph_hash, task_id, user_id,
		chat_id, thread_id, business_key, parent_run_id, root_run_id, trace_parent, trace_state, schedule_id, epic_id, workflow, workflow_version)
		SELECT run_id_at(t) || lpad(i::text, 10, '0'), 'acme', '', 0, 3, 1, t, t, CASE WHEN s >= 6 THEN t END, t, CASE WHEN s = 3 THEN now() + interval '1 day' END,
		0, 0, 0, 0, 0, 0, 2, s, 5, 5, 0, 0, 0, false, false, '', '', 'g', 'h', who, coalesce(nullif(who, ''), 'everybody'), who, who, who, CASE WHEN i > 30 AND i % 4 = 1 THEN 'tree' ELSE who END, run_id_at(t), '', '', who, who, CASE WHEN s <> 3 THEN 'digest' ELSE '' END, CASE WHEN i <= 30 THEN 'digest@1' WHEN s <> 3 THEN 'digest@2' ELSE '' END
		FROM (SELECT i, now() - interval '40 days' + i * interval '2 minutes' AS t, CASE WHEN i <= 30 THEN 'somebody' ELSE '' END AS who,
			CASE WHEN i % 2000 = 0 THEN 7 WHEN i % 100 = 0 THEN 3 ELSE 6 END AS s FROM generate_series($1::int, $2::int) i) x`,
	`UPDATE runs SET cancel_time = create_time WHERE state = 7`,
	`INSERT INTO run_details (run_id, namespace) SELECT run_id, namespace FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO run_labels (run_id, key, namespace, value, create_time) SELECT run_id, 'who', namespace, user_id, create_time FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO run_labels (run_id, key, namespace, value, create_time) SELECT run_id, 'even', namespace, 'yes', create_time FROM runs WHERE nodes_total = 5 ON CONFLICT DO NOTHING`,
	`INSERT INTO events (seq, time, kind, visit, run_id, namespace, node_id) SELECT j, create_time, CASE WHEN state >= 6 AND j = 3 THEN 17 ELSE 12 END, 1, run_id, namespace, 'n'
		FROM runs, generate_series(1, 3) j ON CONFLICT DO NOTHING`,
	`INSERT INTO interrupts (id, namespace, run_id, root_run_id, node_id, visit, item, state, create_time)
		SELECT 'int_' || run_id, namespace, run_id, run_id, 'n', 1, 0, CASE WHEN nodes_total = 5 AND state = 7 THEN 3 ELSE 2 END, create_time FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO outbox (seq, ordinal, run_id, namespace, kind, next_at) SELECT 1, 1, run_id, namespace, 'k', now() + interval '1 hour' FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO request_ids (namespace, method, request_id, body_hash, run_id, create_time) SELECT namespace, 'StartRun', run_id, '', run_id, now() FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO commands (run_id, namespace, kind, key, time) SELECT run_id, namespace, 'SIGNAL', 'k' || j, now() FROM runs, generate_series(1, 5) j WHERE state = 3 ON CONFLICT DO NOTHING`,
	`INSERT INTO commands (run_id, namespace, kind, key, time) SELECT run_id, namespace, 'MESSAGE', 'm' || j, now()
		FROM (SELECT run_id, namespace FROM runs WHERE state = 3 ORDER BY run_id LIMIT 1) r, generate_series(1, 1000) j ON CONFLICT DO NOTHING`,
	`INSERT INTO threads (thread_id, namespace, parent_seq, create_time, use_time, lifetime, depth, key, agent, title, user_id, chat_id, parent_id, holder, below)
		SELECT 'thr_' || run_id, namespace, 0, create_time, create_time, 1, 0, '', 'a', '', '', '', '', run_id, '' FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO thread_turns (number, state, create_time, thread_id, namespace, run_id, principal)
		SELECT 1, CASE WHEN state = 3 THEN 1 ELSE 2 END, CASE WHEN state = 3 THEN now() ELSE create_time END, 'thr_' || run_id, namespace, 'run_x', '' FROM runs ON CONFLICT DO NOTHING`,
	`INSERT INTO graphs (namespace, hash, body) SELECT 'acme', 'h' || i, '' FROM generate_series($1::int, $2::int) i`,
	`INSERT INTO graphs (namespace, hash, body) VALUES ('acme', 'h', '') ON CONFLICT DO NOTHING`,
	`INSERT INTO schedules (namespace, id, uid, revision, turns, skipped, done, create_time, update_time, spec) SELECT 'acme', 's' || i, 's' || i, 1, 0, 0, now(), now(), now(), ''
		FROM generate_series($1::int, $2::int) i`,
}

// The queries of the API, the doctor and the maintenance were planned on tables that were empty. They still
// cost what a page costs, however many rows there are, with statistics and without.
func TestReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	place, err := url.Parse(pgtest.New(t))
	require.NoError(t, err)
	s, err := Open(ctx, place.String(), Options{})
	require.NoError(t, err)
	_, err = s.Migrations().Up(ctx)
	require.NoError(t, err)
	for _, table := range []string{"runs", "run_details", "run_labels", "run_costs", "interrupts", "events_first", "outbox", "request_ids", "graphs", "schedules", "commands", "threads", "thread_turns"} {
		_, err := s.read.Exec(ctx, `ALTER TABLE `+table+` SET (autovacuum_enabled = off)`)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())

	query := place.Query()
	for name, value := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_level": "notice", "auto_explain.log_analyze": "on",
		"auto_explain.log_timing": "off", "auto_explain.log_buffers": "on", "auto_explain.log_format": "json",
	} {
		query.Set(name, value)
	}
	place.RawQuery = query.Encode()
	s, err = Open(ctx, place.String(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	w := &witness{t: t}
	s.read, s.hot = w.watch(s.read), w.watch(s.hot)
	s.Store = sqlstore.New(s.shared())
	me, err := s.Register(ctx, "me", "")
	require.NoError(t, err)

	var old, busy, recent journal.Run // busy has many commands
	const ns, who = "acme", "somebody"
	type question struct {
		name        string
		rows, pages int
		ask         func() error
	}
	list := func(name string, f journal.Filter, after ...page.Cursor) question {
		return question{"ListRuns/" + name, rowsOfPage, pagesOfPage, func() error {
			var from page.Cursor
			if len(after) > 0 {
				from = page.Cursor{CreateTime: recent.CreateTime.Add(-5 * 24 * time.Hour), ID: recent.ID}
			}
			_, err := s.List(ctx, ns, f, from, listed)
			return err
		}}
	}
	other := func(name string, rows int, ask func() error) question {
		return question{name, rows, max(6*rows, 100), ask}
	}
	questions := func() []question {
		qs := []question{
			list("All", journal.Filter{}), list("Page", journal.Filter{}, page.Cursor{}),
			list("Since", journal.Filter{CreatedAfter: time.Now().Add(-time.Hour)}), list("Before", journal.Filter{CreatedBefore: time.Now().Add(-39 * 24 * time.Hour)}),
			list("Completed", journal.Filter{States: []journal.State{journal.StateCompleted}}), list("Failed", journal.Filter{States: []journal.State{journal.StateFailed}}),
			list("Quarantined", journal.Filter{States: []journal.State{journal.StateQuarantined}}),
			list("FailedPage", journal.Filter{States: []journal.State{journal.StateFailed}}, page.Cursor{}),
			list("FailedOrWaiting", journal.Filter{States: []journal.State{journal.StateFailed, journal.StateWaiting}}),
			list("OpenSince", journal.Filter{States: []journal.State{1, 2, 3, 4, 5}, CreatedAfter: time.Now().Add(-20 * 24 * time.Hour)}),
			list("Task", journal.Filter{TaskID: who}), list("User", journal.Filter{UserID: who}), list("Users", journal.Filter{UserID: "everybody"}),
			list("UsersPage", journal.Filter{UserID: "everybody"}, page.Cursor{}),
			list("Chat", journal.Filter{ChatID: who}), list("Thread", journal.Filter{ThreadID: who}), list("BusinessKey", journal.Filter{BusinessKey: who}),
			list("Parent", journal.Filter{ParentID: who}), list("NoSuchParent", journal.Filter{ParentID: "nobody"}), list("Schedule", journal.Filter{ScheduleID: who}),
			list("Epic", journal.Filter{EpicID: who}), list("Workflow", journal.Filter{Workflow: "digest"}), list("WorkflowPage", journal.Filter{Workflow: "digest"}, page.Cursor{}),
			list("WorkflowVersion", journal.Filter{WorkflowVersion: "digest@1"}),
			list("WorkflowAndRareState", journal.Filter{Workflow: "digest", States: []journal.State{journal.StateFailed}}),
			list("WorkflowAndNoSuchState", journal.Filter{Workflow: "digest", States: []journal.State{journal.StatePaused}}),
			list("WorkflowVersionAndRareState", journal.Filter{WorkflowVersion: "digest@2", States: []journal.State{journal.StateFailed}}),
			list("EpicAndState", journal.Filter{EpicID: who, States: []journal.State{journal.StateFailed}}),
			list("Label", journal.Filter{Labels: map[string]string{"who": who}}), list("Labels", journal.Filter{Labels: map[string]string{"even": "yes"}}),
			list("LabelsPage", journal.Filter{Labels: map[string]string{"even": "yes"}}, page.Cursor{}),
			list("TwoLabels", journal.Filter{Labels: map[string]string{"even": "yes", "who": "everybody"}}),
			list("ParentAndState", journal.Filter{ParentID: who, States: []journal.State{journal.StateCompleted}}),
			list("ParentAndTwoStates", journal.Filter{ParentID: who, States: []journal.State{journal.StateCompleted, journal.StateFailed}}),
			list("UserAndState", journal.Filter{UserID: who, States: []journal.State{journal.StateCompleted}}),
			list("UserAndLabel", journal.Filter{UserID: who, Labels: map[string]string{"even": "yes"}}),
			list("UserAndTime", journal.Filter{UserID: who, CreatedAfter: time.Now().Add(-time.Hour)}),
			list("LabelAndState", journal.Filter{Labels: map[string]string{"who": who}, States: []journal.State{journal.StateFailed}}),
			list("LabelAndTime", journal.Filter{Labels: map[string]string{"even": "yes"}, CreatedAfter: time.Now().Add(-time.Hour)}),
			other("GetRun", 10, func() error { _, err := s.Get(ctx, ns, old.ID); return err }),
			other("Graph", 10, func() error { _, _, err := s.Graph(ctx, ns, old.ID); return err }),
			other("Events", 10, func() error { _, err := s.Events(ctx, ns, old.ID, 0, 100); return err }),
			other("Descendants", 10, func() error { _, err := s.Descendants(ctx, ns, old.ID); return err }),
			other("CountBelow", 10, func() error { _, _, err := s.CountBelow(ctx, ns, old.ID, 10); return err }),
			// It reads each once, and finds nothing below it.
			other("CountBelow/LargeTree", countedBelow+10, func() error { _, _, err := s.CountBelow(ctx, ns, "tree", countedBelow+1); return err }),
			other("PendingCommands", 2*journal.CommandScanLeast, func() error { _, err := s.PendingCommands(ctx, me, journal.CommandQuery{Limit: 10}); return err }),
			other("SweepGraphs", 100, func() error {
				_, _, err := s.SweepGraphs(ctx, time.Now().Add(-journal.GraphRest), journal.Key{}, 10)
				return err
			}),
			other("Requested", 10, func() error { _, _, err := s.Requested(ctx, ns, "StartRun", old.ID); return err }),
			other("Load", 20, func() error { _, err := s.Load(ctx, old.ID); return err }),
			other("UnappliedCommands", 10, func() error { _, err := s.UnappliedCommands(ctx, ns, old.ID, 10); return err }),
			other("Outstanding", 20, func() error { _, err := s.Outstanding(ctx, ns, old.ID); return err }),
			other("Commit/SideEffects", 80, func() error {
				ids := []string{"nobody", old.ID, busy.ID, recent.ID}
				a := journal.SideEffects{Targets: ids, Ended: ids[:2], Claims: ids, Locked: ids}
				for _, id := range ids {
					a.Wakes = append(a.Wakes, journal.MakeJob(ns, id, journal.Job{Kind: journal.JobWake}))
					a.Freed = append(a.Freed, journal.MakeJob(ns, id, journal.ThreadJob(ns, "", id)))
				}
				var b pgx.Batch
				b.Queue("BEGIN")
				s.queueSideEffects(&b, journal.Owner{ID: "another"}, a, &journal.Outcomes{})
				b.Queue("ROLLBACK")
				return s.hot.SendBatch(ctx, &b).Close()
			}),
			other("FindCommand", 10, func() error {
				_, _, err := s.FindCommand(ctx, ns, old.ID, journal.CommandSignal, "s", true)
				return err
			}),
			other("ClaimOutbox", 10, func() error { _, err := s.ClaimOutbox(ctx, 10, time.Minute); return err }),
			other("TakeOver", 10, func() error {
				_, err := s.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 10})
				return err
			}),
			other("TakeOverCanceled", 20, func() error {
				_, err := s.TakeOver(ctx, me, journal.TakeOverOptions{Lease: time.Hour, Limit: 10, Canceled: true})
				return err
			}),
			other("SweepOwnerless", unread, func() error { _, err := s.SweepOwnerless(ctx, time.Minute, 10); return err }),
			other("ReadyJobs", 40, func() error { _, err := s.ReadyJobs(ctx, time.Minute, 10); return err }),
			other("SweepRequestIDs", 10, func() error { _, err := s.SweepRequestIDs(ctx, time.Now().Add(-time.Hour)); return err }),
			other("PurgeRuns", 10, func() error { _, err := s.PurgeRuns(ctx, 10); return err }),
			other("Expired", 10*listed, func() error {
				_, err := s.Expired(ctx, endedBefore(time.Now().Add(-24*time.Hour)), journal.Ended{}, listed)
				return err
			}),
			other("NothingExpired", 20, func() error {
				_, err := s.Expired(ctx, endedBefore(time.Now().Add(-100*24*time.Hour)), journal.Ended{}, listed)
				return err
			}),
			other("Doctor/Runs", 60, func() error { _, err := s.Runs(ctx, journal.Sample{Size: 20}); return err }),
			other("Doctor/LastRunID", 10, func() error { _, _, err := s.LastRunID(ctx); return err }),
		}
		for name, f := range map[string]journal.InterruptFilter{
			"All": {}, "Open": {States: []journal.InterruptState{journal.InterruptOpen}}, "Expired": {States: []journal.InterruptState{3}},
			"ClosedSomehow": {States: []journal.InterruptState{3, 4}}, "OfRun": {RunID: old.ID}, "OpenOfRun": {RunID: old.ID, States: []journal.InterruptState{journal.InterruptOpen}},
		} {
			qs = append(qs, other("ListInterrupts/"+name, 3*listed, func() error {
				_, err := s.ListInterrupts(ctx, ns, f, page.Cursor{}, listed)
				return err
			}))
		}
		qs = append(qs, other("HeldTurns", 10, func() error { _, err := s.HeldTurns(ctx, ns, busy.ID, "", 10); return err }),
			other("OldestQuestion", 3*listed, func() error { _, err := s.OldestQuestion(ctx, ns, old.ID, true); return err }))
		for what := range s.Suspicions() {
			if what == journal.SuspectReleased || what == journal.SuspectSetting {
				continue // the settings of the server are no table
			}
			rows := 20 * listed
			switch what {
			case journal.SuspectOutbox:
				rows = 1000 // those that wait longest
			case journal.SuspectCommandLost, journal.SuspectCommandOld:
				rows = 2 * unread // with the run of each
			}
			qs = append(qs, other("Doctor/"+string(what), rows, func() error {
				_, err := s.Suspects(ctx, what, journal.Sample{Size: listed}, listed)
				return err
			}))
		}
		return qs
	}
	all := func(times int) (out map[string]string) {
		out = map[string]string{}
		for _, q := range questions() {
			for range times {
				rows, pages, plans := w.touched(q.ask)
				if rows > float64(q.rows) || pages > q.pages {
					out[q.name] = fmt.Sprintf("%s: %.0f rows (at most %d), %d pages (at most %d)\n%s", q.name, rows, q.rows, pages, q.pages, plans)
				}
			}
		}
		return out
	}
	good := func(t *testing.T, times int) {
		for name, fault := range all(times) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	filler, err := pgxpool.NewWithConfig(ctx, func() *pgxpool.Config {
		cfg := s.jobs.Config()
		cfg.ConnConfig.RuntimeParams["auto_explain.log_min_duration"] = "-1"
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = "0"
		return cfg
	}())
	require.NoError(t, err)
	defer filler.Close()
	fill := func(from, to int) {
		for _, q := range fillMany {
			var args []any
			if strings.Contains(q, "$1") {
				args = []any{from, to}
			}
			_, err := filler.Exec(ctx, q, args...)
			require.NoError(t, err, q)
		}
		require.NoError(t, filler.QueryRow(ctx, `SELECT run_id, create_time FROM runs ORDER BY run_id LIMIT 1`).Scan(&old.ID, &old.CreateTime))
		require.NoError(t, filler.QueryRow(ctx, `SELECT run_id FROM runs WHERE state = 3 ORDER BY run_id LIMIT 1`).Scan(&busy.ID))
		require.NoError(t, filler.QueryRow(ctx, `SELECT run_id, create_time FROM runs ORDER BY run_id DESC LIMIT 1`).Scan(&recent.ID, &recent.CreateTime))
	}
	// A statement gets a plan for good when it is asked for the sixth time.
	all(7)
	t.Run("PlannedOnEmptyTables", func(t *testing.T) {
		fill(1, fewRuns)
		good(t, 1)
	})
	_, err = filler.Exec(ctx, `ANALYZE`)
	require.NoError(t, err)
	all(7)
	fill(fewRuns+1, manyRuns)
	t.Run("PlannedOnSmallTables", func(t *testing.T) { good(t, 1) })
	t.Run("WithoutStatistics", func(t *testing.T) {
		fresh(t, ctx, s)
		good(t, 7)
	})
	t.Run("WithStatistics", func(t *testing.T) {
		_, err := filler.Exec(ctx, `VACUUM ANALYZE`)
		require.NoError(t, err)
		fresh(t, ctx, s)
		good(t, 7)
	})
}

// fresh makes the store forget its plans.
func fresh(t *testing.T, ctx context.Context, s *Store) {
	for _, pool := range []*pgxpool.Pool{s.read, s.hot} {
		_, err := pool.Exec(ctx, `DISCARD PLANS`)
		require.NoError(t, err)
	}
}

// endedBefore is the same time for all namespaces.
func endedBefore(at time.Time) func(string) time.Time {
	return func(string) time.Time { return at }
}
