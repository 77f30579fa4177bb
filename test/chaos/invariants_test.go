package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/registry"
)

// rows answers one question of the executor's tables, one text per row. It tries again for a while: the machine, or the database, may be in distress.
func (c *cluster) rows(ctx context.Context, sql string) (out []string) {
	c.t.Helper()
	var err error
	for range 240 {
		if out, err = c.query(ctx, sql); err == nil {
			return out
		}
		still(500 * time.Millisecond)
	}
	require.NoError(c.t, err, sql)
	return nil
}

func (c *cluster) query(ctx context.Context, sql string) (out []string, err error) {
	if c.store == "postgres" {
		if c.pool == nil {
			if c.pool, err = dbkit.OpenPostgres(ctx, c.url, "executor", dbkit.PostgresOptions{MaxConns: 1}); err != nil {
				return nil, err
			}
			c.t.Cleanup(c.pool.Close)
		}
		rows, err := c.pool.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	db, err := dbkit.OpenSQLite(ctx, filepath.Join(c.executors, "executor.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.Read.QueryContext(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// invariants are questions whose every answer is a fault, asked when every run has ended.
func invariants() map[string]string {
	return map[string]string{
		"runs not ended":              `SELECT run_id FROM runs WHERE state < 6`,
		"runs not completed":          `SELECT run_id || ' ' || state || ' ' || state_reason FROM runs WHERE state <> 6`,
		"journals with gaps":          `SELECT run_id FROM events GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*)`,
		"events lost":                 `SELECT r.run_id FROM runs r WHERE r.last_seq > (SELECT coalesce(max(e.seq), 0) FROM events e WHERE e.run_id = r.run_id)`,
		"not exactly one end":         `SELECT r.run_id FROM runs r WHERE (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 17) <> 1`,
		"events after the end":        `SELECT e.run_id FROM events e WHERE e.kind = 17 AND EXISTS (SELECT 1 FROM events l WHERE l.run_id = e.run_id AND l.seq > e.seq)`,
		"mail left":                   `SELECT run_id || ' ' || kind FROM mail`,
		"outbox left":                 `SELECT run_id || ' ' || kind FROM outbox`,
		"questions not answered once": `SELECT id || ' ' || state FROM interrupts WHERE state <> 2`,
		"orphan children":             `SELECT r.run_id FROM runs r WHERE r.parent_run_id <> '' AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.run_id = r.parent_run_id)`,
		"children without end":        `SELECT r.run_id FROM runs r JOIN runs p ON p.run_id = r.parent_run_id WHERE p.state >= 6 AND r.state < 6`,
		"questions not asked and closed once": `SELECT r.run_id FROM runs r WHERE r.graph_name = 'question' AND ((SELECT count(*) FROM interrupts i WHERE i.run_id = r.run_id) <> 1
			OR (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 24) <> 1)`,
		"children not told of once": `SELECT r.run_id FROM runs r WHERE r.graph_name = 'children' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 22) <> 2`,
		"signals not taken up once": `SELECT r.run_id FROM runs r WHERE r.graph_name IN ('signal', 'amend') AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 25) <> 1`,
		"tasks not closed once":     `SELECT r.run_id FROM runs r WHERE r.graph_name = 'task' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 29) <> 1`,
		"timers not fired once":     `SELECT r.run_id FROM runs r WHERE r.graph_name = 'timer' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 13) <> 1`,
		"amendments not made once":  `SELECT r.run_id FROM runs r WHERE r.graph_name = 'amend' AND (r.graph_revision <> 1 OR (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 28) <> 1)`,
		"forks not made once":       `SELECT r.run_id FROM runs r WHERE r.graph_name = 'fork' AND r.forked_from = '' AND (SELECT count(*) FROM runs f WHERE f.forked_from = r.run_id) <> 1`,
		"adopted visits run again":  `SELECT e.run_id FROM events e JOIN runs r ON r.run_id = e.run_id WHERE r.forked_from <> '' AND e.kind IN (11, 12) AND e.node_id = 'p'`,
		"too many children":         `SELECT parent_run_id FROM runs WHERE parent_run_id <> '' GROUP BY parent_run_id HAVING count(*) <> 2`,
		// An equal job that waits besides makes one superfluous; that is no loss.
		"jobs given up": `SELECT kind FROM river_job WHERE state = 'discarded' AND CAST(metadata AS text) NOT LIKE '%unique_key_conflict%'`,
	}
}

// check counts what must not be, in the databases and in the world outside.
func (c *cluster) check(ctx context.Context, o *outside, jobs []*job, besides ...bool) {
	t := c.t
	t.Helper()
	left := func(sql string) func() bool { return func() bool { return len(c.rows(ctx, sql)) == 0 } }
	testkit.Eventually(t, left(`SELECT run_id FROM outbox`), patience, 100*time.Millisecond, "the outbox does not empty")
	counts := map[string][]string{}
	for what, sql := range invariants() {
		counts[what] = c.rows(ctx, sql)
	}
	// One outcome for each visit, and none begun again after it: the journals are replayed.
	ecfg, rcfg := executor.DefaultConfig(), registry.DefaultConfig()
	ecfg.Store, ecfg.PostgresURL, ecfg.SQLitePath = c.store, conf.NewSecret(c.url), filepath.Join(c.executors, "executor.db")
	rcfg.Store, rcfg.PostgresURL, rcfg.SQLitePath = c.store, conf.NewSecret(c.url), filepath.Join(c.dir, "registry.db")
	er, err := executor.Examine(ctx, ecfg, doctor.Options{All: true})
	require.NoError(t, err)
	rr, err := registry.Examine(ctx, rcfg, doctor.Options{All: true})
	require.NoError(t, err)
	for _, f := range append(er.Findings, rr.Findings...) {
		// A server of tests may be set up to forget; that is not the executor's fault.
		if f.Severity == doctor.Fault && f.Check != "database-setting" {
			counts["doctor: "+f.Check] = f.Examples
		}
	}
	twice, unsafe := o.twice()
	counts["UNSAFE effects twice"] = twice
	for _, what := range []string{"effects lost", "runs lost", "two answers for one run", "runs beyond those asked for", "tasks not completed by their run", "doctor: journal-replay"} {
		counts[what] = counts[what][:len(counts[what]):len(counts[what])]
	}
	recorded := map[string]bool{}
	for _, id := range c.rows(ctx, `SELECT run_id FROM runs WHERE parent_run_id = '' AND schedule_id = ''`) {
		recorded[id] = true
	}
	seen := map[string]bool{}
	for _, j := range jobs {
		if seen[j.run] {
			counts["two answers for one run"] = append(counts["two answers for one run"], j.run)
		}
		seen[j.run] = true
		if !recorded[j.run] {
			counts["runs lost"] = append(counts["runs lost"], j.run)
		}
		for _, node := range j.posts {
			if !o.performed(j.run, node, 1) {
				counts["effects lost"] = append(counts["effects lost"], j.run+"/"+node)
			}
		}
		for _, node := range j.adopted {
			if o.performed(j.run, node, 1) {
				counts["adopted visits run again"] = append(counts["adopted visits run again"], j.run+"/"+node)
			}
		}
		if j.task != "" {
			task, err := c.reg.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: j.task})
			require.NoError(t, err)
			if task.GetState() != registryv1.TaskState_TASK_STATE_COMPLETED || task.GetRunId() != j.run {
				counts["tasks not completed by their run"] = append(counts["tasks not completed by their run"], fmt.Sprintf("%s %s %s", j.task, task.GetState(), task.GetRunId()))
			}
		}
	}
	if len(recorded) != len(jobs) && len(besides) == 0 {
		counts["runs beyond those asked for"] = []string{fmt.Sprintf("%d asked for, %d there", len(jobs), len(recorded))}
	}
	var b strings.Builder
	faults := 0
	names := make([]string, 0, len(counts))
	for what := range counts {
		names = append(names, what)
	}
	sort.Strings(names)
	numbers := map[string]int{}
	for _, what := range names {
		found := counts[what]
		faults += len(found)
		numbers[what] = len(found)
		fmt.Fprintf(&b, "  %-36s %d\n", what, len(found))
		for _, x := range found[:min(len(found), 5)] {
			fmt.Fprintf(&b, "      %s\n", x)
		}
	}
	visits, err := strconv.Atoi(c.rows(ctx, `SELECT CAST(count(*) AS text) FROM events WHERE kind = 12`)[0])
	require.NoError(t, err)
	totals.trial(len(jobs), visits, o.calls(), unsafe, numbers)
	t.Logf("%s: %d runs asked for, %d UNSAFE effects, %d kills\n%s", c.store, len(jobs), unsafe, c.kills.Load(), b.String())
	if faults > 0 {
		var found []string
		for _, what := range names {
			found = append(found, counts[what]...)
		}
		t.Logf("what is known of the runs at fault:%s", c.stories(ctx, o, found...))
	}
	require.Zero(t, faults, "%s", b.String())
}

// points says how often processes died at which point.
func (c *cluster) report(t *testing.T) {
	t.Helper()
	var lines []string
	c.points.Range(func(k, v any) bool {
		lines = append(lines, fmt.Sprintf("  %-20s %d", k, v.(interface{ Load() int64 }).Load()))
		return true
	})
	sort.Strings(lines)
	t.Logf("kills by point:\n%s", strings.Join(lines, "\n"))
}
