package sqlstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// totals finds the rows whose totals are not the sum of their entries, which are those for which of holds.
func totals(name, from, of string) string {
	entries := ` FROM usage_entries e WHERE e.namespace = x.namespace` + of + `)`
	tokens := `e.input_tokens + e.output_tokens`
	each := `CASE e.source WHEN 4 THEN -1 ELSE 1 END` // a reversal takes a call back
	sum := func(what, as string) string { return `(SELECT coalesce(sum(` + what + `), 0)` + entries + ` AS ` + as }
	when := func(cond, then string) string { return `CASE WHEN ` + cond + ` THEN ` + then + ` ELSE 0 END` }
	return `SELECT ` + name + ` || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
		SELECT x.*, ` + strings.Join([]string{
		sum(tokens, `tokens_due`), sum(`e.cost_nano_usd`, `usd_due`),
		sum(when(`e.kind = 2`, each), `tools_due`), sum(when(`e.kind <> 2`, each), `models_due`),
		sum(when(`e.kind = 3`, tokens), `overhead_due`), sum(when(`e.kind = 3`, `e.cost_nano_usd`), `overhead_usd_due`),
		sum(when(`e.cost_nano_usd IS NULL AND (e.kind <> 2 OR `+tokens+` <> 0)`, each), `unpriced_due`),
	}, `, `) + `
		FROM (SELECT * FROM ` + from + `) x) y
		WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls <> models_due OR tool_calls <> tools_due
			OR overhead_tokens <> overhead_due OR overhead_nano_usd <> overhead_usd_due OR unpriced_calls <> unpriced_due LIMIT $1`
}

// sums finds the groups of keys for which the rows of a table, those for which is holds, are not the
// sums of the entries: of the epics that are examined, or of all if every is set.
func sums(d dbkit.Dialect, table, is string, every bool, name string, keys ...string) string {
	from := func(table, cond string) string {
		if every {
			return `(SELECT * FROM ` + table + ` e WHERE ` + cond + `) e`
		}
		return `(SELECT e.* FROM (SELECT namespace, id FROM epics ORDER BY namespace, id DESC LIMIT $2) x` +
			d.LookUp(table, `e`, `e.namespace = x.namespace AND e.epic_id = x.id AND e.epic_id <> '' AND `+cond) + `) e`
	}
	by := strings.Join(keys, ", ")
	var plus, minus, all, differ []string
	for _, c := range sumColumns {
		plus, minus = append(plus, c), append(minus, `-`+c+` AS `+c)
		all, differ = append(all, `sum(`+c+`) AS `+c), append(differ, c+` <> 0`)
	}
	return `SELECT ` + name + ` || ': ' || calls || ' calls and ' || nano_usd || ' nano-USD more than entries say' FROM (
		SELECT ` + by + `, ` + strings.Join(all, ", ") + ` FROM (
			SELECT ` + by + `, ` + strings.Join(plus, ", ") + ` FROM ` + from(table, is) + ` UNION ALL
			SELECT ` + by + `, ` + strings.Join(minus, ", ") + ` FROM (
				SELECT ` + entrySums(d) + ` FROM (SELECT e.*, ` + entrySign + ` FROM ` + from(`usage_entries`, `true`) + `) s) r) both_sides
		GROUP BY ` + by + `) y WHERE ` + strings.Join(differ, " OR ") + ` LIMIT $1`
}

// held is the sum of a column of the reservations of an account x.
func held(d dbkit.Dialect, column string) string {
	return `(SELECT coalesce(sum(r.` + column + `), 0) FROM reservations r WHERE r.namespace = x.namespace AND NOT r.estimated
		AND ` + d.HasText(`r.accounts`, `'"' || x.level || ':' || x.id || '"'`) + `)`
}

// ofRun is the sum of a figure of the entries of a run x, but for those that clients have recorded.
func ofRun(figure string) string {
	return `(SELECT coalesce(sum(e.` + figure + `), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.run_id = x.id AND e.source <> 2)`
}

// suspicions are queries whose results are one line of text each. $1 bounds the results, $2, where there is
// one, the rows examined.
func suspicions(d dbkit.Dialect) map[store.Suspicion]string {
	return map[store.Suspicion]string{
		store.SuspectTaskTotals:      totals(`id`, `tasks ORDER BY namespace, id DESC LIMIT $2`, ` AND e.task_id = x.id`),
		store.SuspectEpicTotals:      totals(`id`, `epics ORDER BY namespace, id DESC LIMIT $2`, ` AND e.epic_id = x.id`),
		store.SuspectNamespaceTotals: totals(`namespace`, `namespace_totals ORDER BY namespace`, ``),
		store.SuspectDays: sums(d, `usage_days`, `NOT e.whole`, false, `epic_id || ', day ' || day || ', model ' || model`,
			`namespace`, `epic_id`, `day`, `model`, `actor`, `kind`),
		store.SuspectNamespaceDays: sums(d, `usage_days`, `e.whole`, true, `namespace || ', day ' || day || ', model ' || model`,
			`namespace`, `day`, `model`, `actor`, `kind`),
		store.SuspectNodes: sums(d, `usage_nodes`, `NOT e.whole`, false, `epic_id || ', day ' || day || ', node ' || node_id`,
			`namespace`, `epic_id`, `day`, `node_id`, `kind`),
		store.SuspectNamespaceNodes: sums(d, `usage_nodes`, `e.whole`, true, `namespace || ', day ' || day || ', node ' || node_id`,
			`namespace`, `day`, `node_id`, `kind`),
		store.SuspectRuns: sums(d, `usage_runs`, `true`, false, `epic_id || ', task ' || task_id || ', run ' || run_id`,
			`namespace`, `epic_id`, `task_id`, `run_id`, `model`, `actor`, `kind`),
		store.SuspectEpicSums: sums(d, `usage_epics`, `true`, false, `epic_id`, `namespace`, `epic_id`),
		store.SuspectUsedEpics: `SELECT namespace || ': counts ' || used_epics || ' epics that have used something of ' || n FROM (
			SELECT x.*, (SELECT count(*) FROM usage_epics e WHERE e.namespace = x.namespace) AS n FROM namespace_totals x) y WHERE used_epics <> n LIMIT $1`,
		store.SuspectAccounts: `SELECT level || ' ' || id || ': spent ' || spent_nano_usd || ' nano-USD and ' || spent_tokens || ' tokens, ' || nano_usd || ' and ' || tokens || ' booked' FROM (
			SELECT x.*, e.nano_usd, e.tokens FROM (SELECT * FROM accounts ORDER BY namespace, level, id LIMIT $2) x JOIN epics e ON x.level = 1 AND e.namespace = x.namespace AND e.id = x.id
			UNION ALL SELECT x.*, t.nano_usd, t.tokens FROM (SELECT * FROM accounts ORDER BY namespace, level, id LIMIT $2) x JOIN tasks t ON x.level = 2 AND t.namespace = x.namespace AND t.id = x.id
			UNION ALL SELECT x.*, n.nano_usd, n.tokens FROM (SELECT * FROM accounts ORDER BY namespace, level, id LIMIT $2) x JOIN namespace_totals n ON x.level = 4 AND n.namespace = x.namespace) y
			WHERE spent_nano_usd <> nano_usd OR spent_tokens <> tokens LIMIT $1`,
		store.SuspectRunAccounts: `SELECT 'run ' || id || ': spent ' || spent_nano_usd || ' nano-USD and ' || spent_tokens || ' tokens, ' || nano_usd || ' and ' || tokens || ' booked, '
				|| coalesce(beyond_nano_usd, 0) || ' and ' || coalesce(beyond_tokens, 0) || ' beyond that' FROM (
			SELECT x.*, ` + ofRun(`cost_nano_usd`) + ` AS nano_usd, ` + ofRun(`input_tokens + e.output_tokens`) + ` AS tokens
			FROM (SELECT * FROM accounts WHERE level = 3 ORDER BY update_time DESC, namespace, id LIMIT $2) x) y
			WHERE spent_nano_usd < nano_usd OR spent_tokens < tokens OR spent_nano_usd <> nano_usd + beyond_nano_usd OR spent_tokens <> tokens + beyond_tokens LIMIT $1`,
		store.SuspectReserved: `SELECT level || ' ' || id || ': reserved ' || reserved_nano_usd || ' nano-USD and ' || reserved_tokens || ' tokens, ' || usd_due || ' and ' || tokens_due || ' by reservations' FROM (
			SELECT x.*, ` + held(d, "tokens") + ` AS tokens_due, ` + held(d, "nano_usd") + ` AS usd_due FROM (SELECT * FROM accounts ORDER BY namespace, level, id LIMIT $2) x) y
			WHERE reserved_nano_usd <> usd_due OR reserved_tokens <> tokens_due LIMIT $1`,
		store.SuspectTaskCounts: `SELECT id || ': counts ' || total_tasks || ' tasks, ' || completed_tasks || ' completed and ' || failed_tasks || ' failed of ' || n || ', ' || c || ' and ' || f FROM (
			SELECT x.*, (SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id) AS n,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 4) AS c,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 5) AS f
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT $2) x) y
			WHERE total_tasks <> n OR completed_tasks <> c OR failed_tasks <> f LIMIT $1`,
		store.SuspectDependencyCount: `SELECT id || ': counts ' || dependencies || ' dependencies of ' || n FROM (
			SELECT x.*, (SELECT count(*) FROM tasks t` + d.LookUp(`dependencies`, `d`, `d.namespace = t.namespace AND d.task_id = t.id`) + `
				WHERE t.namespace = x.namespace AND t.epic_id = x.id) AS n
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT $2) x) y
			WHERE dependencies <> n LIMIT $1`,
		store.SuspectWaiting: `SELECT t.id || ': waits for ' || min(o.id) || ', which has ended' FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT $2) t` +
			d.LookUp(`epics`, `e`, `e.namespace = t.namespace AND e.id = t.epic_id`) +
			d.LookUp(`dependencies`, `d`, `d.namespace = t.namespace AND d.task_id = t.id`) +
			d.LookUp(`tasks`, `o`, `o.namespace = d.namespace AND o.id = d.depends_on`) + `
			WHERE t.state = 2 AND o.state IN (5, 6) AND CASE t.dependency_policy WHEN 0 THEN e.dependency_policy ELSE t.dependency_policy END > 1
			GROUP BY t.namespace, t.id LIMIT $1`,
		store.SuspectReady: `SELECT t.id || ': is pending, and ' || min(o.id) || ' is not completed' FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT $2) t` +
			d.LookUp(`dependencies`, `d`, `d.namespace = t.namespace AND d.task_id = t.id`) +
			d.LookUp(`tasks`, `o`, `o.namespace = d.namespace AND o.id = d.depends_on`) + `
			WHERE t.state IN (1, 3) AND o.state <> 4 GROUP BY t.namespace, t.id LIMIT $1`,
		store.SuspectClaim: `SELECT task_id || ': claimed for ' || run_id FROM claims WHERE state = 1 AND lease_until < ` + d.Ago(10*time.Minute) + `
			ORDER BY lease_until LIMIT $1`,
		store.SuspectOrder: `SELECT task_id || ': the order to ' || CASE kind WHEN 1 THEN 'cancel' WHEN 2 THEN 'pause' WHEN 3 THEN 'resume' ELSE 'start' END ||
				CASE run_id WHEN '' THEN ' it' ELSE ' run ' || run_id END || ' is not carried out' FROM orders
			WHERE create_time < ` + d.Ago(20*time.Minute) + ` ORDER BY create_time LIMIT $1`,
		store.SuspectStart: `SELECT o.task_id || ': is to be started, and ' || CASE WHEN t.id IS NULL THEN 'does not exist' WHEN t.state <> 1 THEN 'is not pending' ELSE 'its epic does not run' END
			FROM (SELECT * FROM orders WHERE kind = 4 ORDER BY namespace, epic_id LIMIT $2) o
			LEFT JOIN tasks t ON t.namespace = o.namespace AND t.id = o.task_id
			LEFT JOIN epics e ON e.namespace = t.namespace AND e.id = t.epic_id
			WHERE t.id IS NULL OR t.state <> 1 OR e.state <> 2 OR e.parallel = 0 LIMIT $1`,
		store.SuspectIdle: `SELECT e.id || ': has room for ' || e.parallel || ' tasks, and does not start those that are ready' FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT $2) e
			WHERE e.parallel > 0 AND e.state = 2 AND e.parallel > (SELECT count(*) FROM tasks t WHERE t.namespace = e.namespace AND t.epic_id = e.id AND t.state = 3)
					+ (SELECT count(*) FROM orders o WHERE o.namespace = e.namespace AND o.epic_id = e.id AND o.kind = 4)
				AND EXISTS (SELECT 1 FROM tasks t WHERE t.namespace = e.namespace AND t.epic_id = e.id AND t.state = 1
					AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.namespace = t.namespace AND o.run_id = '' AND o.task_id = t.id)) LIMIT $1`,
		store.SuspectVectors: `SELECT namespace || ', ' || id || ': ' || embed_fault FROM memories WHERE embed_attempts < 0 ORDER BY namespace, id LIMIT $1`,
		store.SuspectRunning: `SELECT t.id || ': running, claimed by nobody, last by ' || t.run_id FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT $2) t
			WHERE t.state = 3 AND t.run_id <> '' AND t.update_time < ` + d.Ago(10*time.Minute) + `
				AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.namespace = t.namespace AND c.task_id = t.id AND c.state IN (1, 2)) LIMIT $1`,
	}
}

// Suspects implements store.Inspector.
func (s *Store) Suspects(ctx context.Context, what store.Suspicion, sample, limit int) (found []string, err error) {
	query, ok := suspicions(s.d)[what]
	whole := []store.Suspicion{store.SuspectNamespaceTotals, store.SuspectNamespaceDays, store.SuspectNamespaceNodes, store.SuspectUsedEpics}
	if !ok || slices.Contains(whole, what) && sample > 0 {
		return nil, nil
	}
	args := []any{limit}
	if strings.Contains(query, "$2") {
		if sample <= 0 {
			sample = math.MaxInt
		}
		args = append(args, sample)
	}
	err = s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		if at, ok := ctx.Deadline(); ok && s.db.Timeout != "" {
			if _, err := q.Exec(ctx, s.db.Timeout, fmt.Sprint(max(time.Until(at).Milliseconds(), 1))); err != nil {
				return err
			}
		}
		found, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (line string, err error) {
			err = row.Scan(&line)
			return line, err
		}, query, args...)
		return err
	})
	return found, err
}

// Now implements store.Inspector.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = dbkit.FirstRow(s.db.Pool.Query(ctx, `SELECT `+s.d.Now())).Scan(dbkit.At(&now))
	return now, err
}
