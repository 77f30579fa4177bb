package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/registry"
)

// rows runs a query on the executor's tables and returns one text per row. It retries for a while: the
// machine, or the database, may be in trouble.
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

// invariant is a query on the executor's tables, each row of whose result is a fault. It runs when every run
// has ended.
type invariant struct{ what, want, sql string }

func invariants() []invariant {
	return []invariant{
		{"runs not ended", "every run has ended",
			`SELECT run_id FROM runs WHERE state < 6`},
		{"runs not completed", "every run has completed",
			`SELECT run_id || ' ' || ` + stateName + ` || ' ' || state_reason FROM runs WHERE state <> 6`},
		{"journals with gaps", "the events of a run are numbered from 1 without a gap",
			`SELECT run_id FROM events GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*)`},
		{"events lost", "the last event is the one that the run's row names",
			`SELECT r.run_id FROM runs r WHERE r.last_seq > (SELECT coalesce(max(e.seq), 0) FROM events e WHERE e.run_id = r.run_id)`},
		{"not exactly one end", "a run ends exactly once",
			`SELECT r.run_id FROM runs r WHERE (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 17) <> 1`},
		{"events after the end", "nothing follows the end of a run",
			`SELECT e.run_id FROM events e WHERE e.kind = 17 AND EXISTS (SELECT 1 FROM events l WHERE l.run_id = e.run_id AND l.seq > e.seq)`},
		{"commands left", "all commands have been applied",
			`SELECT run_id || ' ' || kind FROM commands`},
		{"outbox left", "the outbox is empty",
			`SELECT run_id || ' ' || kind FROM outbox`},
		{"interrupts not answered once", "every interrupt has been answered",
			`SELECT id || ' ' || state FROM interrupts WHERE state <> 2`},
		{"orphan children", "the parent of every child exists",
			`SELECT r.run_id FROM runs r WHERE r.parent_run_id <> '' AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.run_id = r.parent_run_id)`},
		{"children without end", "every child of a run that has ended has ended",
			`SELECT r.run_id FROM runs r JOIN runs p ON p.run_id = r.parent_run_id WHERE p.state >= 6 AND r.state < 6`},
		{"interrupts not opened and closed once", "the interrupt is opened once and closed once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'interrupt' AND ((SELECT count(*) FROM interrupts i WHERE i.run_id = r.run_id) <> 1
			OR (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 24) <> 1)`},
		{"ends of children not recorded once", "the parent records the end of each of its 2 children once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'children' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 22) <> 2`},
		{"signals not applied once", "the signal is applied once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name IN ('signal', 'amend') AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 25) <> 1`},
		{"tasks not closed once", "the task is closed once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'task' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 29) <> 1`},
		{"timers not fired once", "the timer fires once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'timer' AND (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 13) <> 1`},
		{"amendments not made once", "the graph is amended once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'amend' AND (r.graph_revision <> 1 OR (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 28) <> 1)`},
		{"forks not made once", "the run is forked once",
			`SELECT r.run_id FROM runs r WHERE r.graph_name = 'fork' AND r.forked_from = '' AND (SELECT count(*) FROM runs f WHERE f.forked_from = r.run_id) <> 1`},
		{"reused visits run again", "no visit runs that was reused from the run before",
			`SELECT e.run_id FROM events e JOIN runs r ON r.run_id = e.run_id WHERE r.forked_from <> '' AND e.kind IN (11, 12) AND e.node_id = 'p'`},
		{"too many children", "a parent has 2 children",
			`SELECT parent_run_id FROM runs WHERE parent_run_id <> '' GROUP BY parent_run_id HAVING count(*) <> 2`},
		// An equal job that waits besides makes one superfluous; that is no loss.
		{"jobs given up", "no job is given up",
			`SELECT kind FROM river_job WHERE state = 'discarded' AND CAST(metadata AS text) NOT LIKE '%unique_key_conflict%'`},
	}
}

// stateName is SQL for the name of a run's state.
var stateName = func() string {
	var b strings.Builder
	b.WriteString("CASE state")
	for _, n := range slices.Sorted(maps.Keys(executorv1.RunState_name)) {
		fmt.Fprintf(&b, " WHEN %d THEN '%s'", n, strings.TrimPrefix(executorv1.RunState_name[n], "RUN_STATE_"))
	}
	return b.String() + " END"
}()

// audit is the findings in the databases and in the outside world after a trial.
type audit struct {
	// want are the expectations, and found the violations, both by the name of the fault.
	want  map[string]string
	found map[string][]string
	// runs were asked for, visits are attempts that ended; calls are those that came in outside, unsafe how
	// many of them were UNSAFE.
	runs, visits, calls, unsafe int
}

// expect adds a fault to look for, and its findings.
func (a *audit) expect(what, want string, found ...string) {
	a.want[what], a.found[what] = want, append(a.found[what], found...)
}

func (a *audit) add(what, found string) { a.found[what] = append(a.found[what], found) }

// numbers counts the findings of each fault.
func (a *audit) numbers() map[string]int {
	out := map[string]int{}
	for what, found := range a.found {
		out[what] = len(found)
	}
	return out
}

// faults has a line for each fault: its name, its place, and the expectation.
func (a *audit) faults() (lines []string) {
	for _, what := range slices.Sorted(maps.Keys(a.found)) {
		for _, x := range a.found[what] {
			lines = append(lines, fmt.Sprintf("%s: %s; expected: %s", what, x, a.want[what]))
		}
	}
	return lines
}

// String is a table of everything that was looked for.
func (a *audit) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(a.found)) {
		found := a.found[what]
		fmt.Fprintf(&b, "  %-36s %d\n", what, len(found))
		for _, x := range found[:min(len(found), 5)] {
			fmt.Fprintf(&b, "      %s\n", x)
		}
	}
	return b.String()
}

// audit looks for what must not be, in the databases and in the world outside. extra says that runs were
// started besides the jobs. It reports nothing, and fails the test only if it cannot look.
func (c *cluster) audit(ctx context.Context, o *outside, jobs []*job, extra bool) *audit {
	t := c.t
	t.Helper()
	// The rest is counted below.
	for end := time.Now().Add(timeout); len(c.rows(ctx, `SELECT run_id FROM outbox`)) > 0 && time.Now().Before(end); {
		still(100 * time.Millisecond)
	}
	a := &audit{want: map[string]string{}, found: map[string][]string{}, runs: len(jobs), calls: o.calls()}
	for _, i := range invariants() {
		a.expect(i.what, i.want, c.rows(ctx, i.sql)...)
	}
	// One outcome for each visit, and none begun again after it: the journals are replayed.
	a.expect("doctor: journal-replay", "doctor replays every journal without a fault")
	for _, f := range c.examined(ctx) {
		found := f.Examples
		if len(found) == 0 {
			found = []string{fmt.Sprintf("%d times", f.Count)}
		}
		a.expect("doctor: "+f.Check, "doctor does not find: "+f.What, found...)
	}
	twice, unsafe := o.twice()
	a.unsafe = unsafe
	a.expect("UNSAFE effects twice", "an UNSAFE call comes in once at most", twice...)
	a.expect("effects lost", "the UNSAFE call of every visit that completed came in")
	a.expect("runs lost", "every run that was accepted has a row")
	a.expect("two answers for one run", "each start is answered by a run of its own")
	a.expect("runs beyond those asked for", "nobody but the test starts runs")
	a.expect("tasks not completed by their run", "the registry has the task as completed by its run")
	recorded := c.rows(ctx, `SELECT run_id FROM runs WHERE parent_run_id = '' AND schedule_id = ''`)
	slices.Sort(recorded)
	seen := map[string]bool{}
	for _, j := range jobs {
		if seen[j.run] {
			a.add("two answers for one run", j.run)
		}
		seen[j.run] = true
		if _, there := slices.BinarySearch(recorded, j.run); !there {
			a.add("runs lost", j.run)
		}
		for _, node := range j.posts {
			if !o.performed(j.run, node, 1) {
				a.add("effects lost", j.run+"/"+node)
			}
		}
		for _, node := range j.reused {
			if o.performed(j.run, node, 1) {
				a.add("reused visits run again", j.run+"/"+node)
			}
		}
		if j.task != "" {
			task, err := c.reg.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: j.task})
			require.NoError(t, err)
			if task.GetState() != registryv1.TaskState_TASK_STATE_COMPLETED || task.GetRunId() != j.run {
				a.add("tasks not completed by their run", fmt.Sprintf("%s of %s is %s by %q", j.task, j.run, task.GetState(), task.GetRunId()))
			}
		}
	}
	for _, run := range recorded {
		if !seen[run] && !extra {
			a.add("runs beyond those asked for", run)
		}
	}
	var err error
	a.visits, err = strconv.Atoi(c.rows(ctx, `SELECT CAST(count(*) AS text) FROM events WHERE kind = 12`)[0])
	require.NoError(t, err)
	return a
}

// examined are the faults that doctor finds in the databases; it replays every journal.
func (c *cluster) examined(ctx context.Context) []doctor.Finding {
	c.t.Helper()
	ecfg, rcfg := executor.DefaultConfig(), registry.DefaultConfig()
	ecfg.Store, ecfg.PostgresURL, ecfg.SQLitePath = c.store, conf.NewSecret(c.url), filepath.Join(c.executors, "executor.db")
	rcfg.Store, rcfg.PostgresURL, rcfg.SQLitePath = c.store, conf.NewSecret(c.url), filepath.Join(c.dir, "registry.db")
	er, err := executor.Examine(ctx, ecfg, doctor.Options{All: true})
	require.NoError(c.t, err)
	rr, err := registry.Examine(ctx, rcfg, doctor.Options{All: true})
	require.NoError(c.t, err)
	// A server of tests may be set up to forget; that is not the executor's fault.
	return slices.DeleteFunc(append(er.Findings, rr.Findings...), func(f doctor.Finding) bool {
		return f.Severity != doctor.Fault || f.Check == "database-setting"
	})
}

// reporter is what of a *testing.T an audit is reported to.
type reporter interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
}

// report prints an audit and fails if it found a fault. Then it prints the stories of runs at fault, too.
func (c *cluster) report(ctx context.Context, t reporter, o *outside, a *audit) {
	t.Helper()
	t.Logf("%s: %d runs asked for, %d UNSAFE effects, %d kills\n%s", c.store, a.runs, a.unsafe, c.kills.Load(), a)
	if faults := a.faults(); len(faults) > 0 {
		t.Logf("what is known of the runs at fault:%s", c.stories(ctx, o, faults...))
		require.FailNow(t, "faults were found", "%s", strings.Join(faults, "\n"))
	}
}

// check looks for what must not be after a trial, counts it in, and reports it.
func (c *cluster) check(ctx context.Context, o *outside, jobs []*job, extra bool) {
	c.t.Helper()
	a := c.audit(ctx, o, jobs, extra)
	totals.trial(a.runs, a.visits, a.calls, a.unsafe, a.numbers())
	c.report(ctx, c.t, o, a)
}

// deaths says how often processes died at which point.
func (c *cluster) deaths(t *testing.T) {
	t.Helper()
	var lines []string
	c.points.Range(func(k, v any) bool {
		lines = append(lines, fmt.Sprintf("  %-20s %d", k, v.(interface{ Load() int64 }).Load()))
		return true
	})
	slices.Sort(lines)
	t.Logf("kills by point:\n%s", strings.Join(lines, "\n"))
}
