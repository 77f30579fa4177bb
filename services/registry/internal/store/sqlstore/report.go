package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// sumColumns are the sums of usage_days. The same names are given to what one entry adds.
var sumColumns = [...]string{
	"calls", "failed_calls", "unpriced_calls", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "nano_usd",
}

func sumInto(s *usage.Sum) []any {
	return []any{
		&s.Calls, &s.FailedCalls, &s.UnpricedCalls, &s.InputTokens, &s.CachedInputTokens, &s.OutputTokens, &s.ReasoningTokens, &s.NanoUSD,
	}
}

// AddSums implements store.Tx.
func (t tx) AddSums(ctx context.Context, namespace string, s usage.Sums) error {
	days, nodes := make([][]any, len(s.Days)), make([][]any, len(s.Nodes))
	runs, epics := make([][]any, len(s.Runs)), make([][]any, len(s.Epics))
	for i, d := range s.Days {
		days[i] = append([]any{d.Whole, d.EpicID, int32(d.Day), d.Model, d.Actor, int16(d.Kind)}, sumArgs(d.Sum)...)
	}
	for i, n := range s.Nodes {
		nodes[i] = append([]any{n.Whole, n.EpicID, int32(n.Day), n.NodeID, int16(n.Kind)}, sumArgs(n.Sum)...)
	}
	for i, r := range s.Runs {
		runs[i] = append([]any{r.EpicID, r.TaskID, r.RunID, r.Model, r.Actor, int16(r.Kind)}, sumArgs(r.Sum)...)
	}
	for i, e := range s.Epics {
		epics[i] = append([]any{e.EpicID}, sumArgs(e.Sum)...)
	}
	stmts := t.countEpics(namespace, s.Epics)
	for _, into := range []struct {
		table string
		key   [][2]string
		rows  [][]any
	}{
		{"usage_days", [][2]string{{"whole", "boolean"}, {"epic_id", "text"}, {"day", "int"}, {"model", "text"}, {"actor", "text"}, {"kind", "smallint"}}, days},
		{"usage_nodes", [][2]string{{"whole", "boolean"}, {"epic_id", "text"}, {"day", "int"}, {"node_id", "text"}, {"kind", "smallint"}}, nodes},
		{"usage_runs", [][2]string{{"epic_id", "text"}, {"task_id", "text"}, {"run_id", "text"}, {"model", "text"}, {"actor", "text"}, {"kind", "smallint"}}, runs},
		{"usage_epics", [][2]string{{"epic_id", "text"}}, epics},
	} {
		if len(into.rows) > 0 {
			stmts = append(stmts, t.addTo(into.table, namespace, into.key, into.rows))
		}
	}
	if len(s.Outputs) > 0 {
		rows := make([][]any, len(s.Outputs))
		for i, o := range s.Outputs {
			rows[i] = []any{o.Model, o.Place, o.OutputTokens}
		}
		columns := [][2]string{{"model", "text"}, {"place", "int"}, {"output_tokens", "bigint"}}
		stmts = append(stmts, dbkit.Stmt{
			Query: `INSERT INTO output_samples (namespace, model, place, output_tokens) SELECT $1, n.* FROM ` + t.d.Rows(`n`, 2, columns...) + `
				WHERE true ON CONFLICT (namespace, model, place) DO UPDATE SET output_tokens = excluded.output_tokens`,
			Args: append([]any{namespace}, t.d.RowArgs(len(columns), rows)...),
		})
	}
	return t.Batch(ctx, stmts...)
}

// countEpics counts those of the epics that have no sum yet. The row is written only if there are some.
func (t tx) countEpics(namespace string, epics []usage.EpicSum) []dbkit.Stmt {
	if len(epics) == 0 {
		return nil
	}
	ids := make([]string, len(epics))
	for i, e := range epics {
		ids[i] = e.EpicID
	}
	return []dbkit.Stmt{{
		Query: `UPDATE namespace_totals SET used_epics = used_epics + n.fresh FROM (
			SELECT count(*) AS fresh FROM ` + t.d.Lists(`w`, [2]string{"id", "text"}) + `
			WHERE NOT ` + t.d.Holds(`usage_epics`, `e`, `e.namespace = $2 AND e.epic_id = w.id`) + `) n
			WHERE namespace_totals.namespace = $2 AND n.fresh > 0`,
		Args: []any{ids, namespace},
	}}
}

func sumArgs(s usage.Sum) []any {
	return []any{
		s.Calls, s.FailedCalls, s.UnpricedCalls, s.InputTokens, s.CachedInputTokens, s.OutputTokens, s.ReasoningTokens, s.NanoUSD,
	}
}

// addTo adds rows of key columns and sums to those of a table that have the same key.
func (t tx) addTo(table, namespace string, key [][2]string, rows [][]any) dbkit.Stmt {
	var names, set []string
	columns := slices.Clone(key)
	for _, c := range key {
		names = append(names, c[0])
	}
	keys := strings.Join(names, ", ")
	for _, c := range sumColumns {
		names, columns = append(names, c), append(columns, [2]string{c, "bigint"})
		set = append(set, fmt.Sprintf("%[1]s = %[2]s.%[1]s + excluded.%[1]s", c, table))
	}
	return dbkit.Stmt{
		Query: `INSERT INTO ` + table + ` (namespace, ` + strings.Join(names, ", ") + `) SELECT $1, n.* FROM ` + t.d.Rows(`n`, 2, columns...) + `
			WHERE true ON CONFLICT (namespace, ` + keys + `) DO UPDATE SET ` + strings.Join(set, ", "),
		Args: append([]any{namespace}, t.d.RowArgs(len(columns), rows)...),
	}
}

// Report implements store.Reader.
func (t tx) Report(ctx context.Context, q store.ReportQuery) (rows []usage.Report, all usage.Sum, groups int64, err error) {
	if q.OfEpics() {
		return t.dearestEpics(ctx, q)
	}
	var w where
	var source string
	switch {
	case q.OfRuns():
		source, err = t.runs(ctx, &w, q)
	case q.OfNodes():
		source, err = t.nodes(ctx, &w, q)
	case q.Narrow():
		source, err = t.few(ctx, &w, q)
	default:
		source = days(&w, q, `usage_days`)
	}
	if err != nil {
		return nil, all, 0, err
	}
	var keys, order, sums, wholes []string
	for i, k := range q.By {
		order = append(order, fmt.Sprintf("k%d", i))
		keys = append(keys, t.d.Text("CAST("+reportColumn(k)+" AS text)")+" AS "+order[i])
	}
	for _, c := range sumColumns {
		sums = append(sums, fmt.Sprintf("CAST(sum(%[1]s) AS bigint) AS %[1]s", c))
		wholes = append(wholes, fmt.Sprintf("CAST(sum(g.%[1]s) OVER () AS bigint)", c))
	}
	// The windows look at all groups: the condition on the place of the page stands outside of them.
	query := `SELECT * FROM (SELECT g.*, ` + strings.Join(wholes, ", ") + `, count(*) OVER ()
		FROM (SELECT ` + strings.Join(append(keys, sums...), ", ") + ` FROM ` + source + ` GROUP BY ` + strings.Join(order, ", ") + `) g) t`
	page := where{args: w.args, parts: []string{"true"}}
	if q.After != nil {
		page.add("nano_usd <= %s", q.After.NanoUSD)
	}
	query += page.end("nano_usd DESC, "+strings.Join(order, ", "), q.Limit)
	if q.After != nil {
		query += " OFFSET " + page.arg(q.After.Skip)
	}
	rows, err = collectPage(ctx, t, func(row dbkit.Scanner) (usage.Report, error) {
		r := usage.Report{Keys: make([]string, len(q.By))}
		var into []any
		for i := range r.Keys {
			into = append(into, &r.Keys[i])
		}
		into = append(into, sumInto(&r.Sum)...)
		return r, row.Scan(append(append(into, sumInto(&all)...), &groups)...)
	}, query, page.args...)
	return rows, all, groups, err
}

// dearestEpics is the report of a namespace by epic. An index has the epics by cost, so that a page
// reads its own rows only; the sum of all is that of the days of the namespace.
func (t tx) dearestEpics(ctx context.Context, q store.ReportQuery) (rows []usage.Report, all usage.Sum, groups int64, err error) {
	var wholes []string
	for _, c := range sumColumns {
		wholes = append(wholes, fmt.Sprintf("CAST(COALESCE(sum(%s), 0) AS bigint)", c))
	}
	if err := t.row(ctx, `SELECT `+strings.Join(wholes, ", ")+`, COALESCE((SELECT used_epics FROM namespace_totals WHERE namespace = $1), 0) FROM usage_days
		WHERE namespace = $1 AND whole = $2 AND epic_id = ''`, q.Namespace, true).Scan(append(sumInto(&all), &groups)...); err != nil {
		return nil, all, 0, err
	}
	var w where
	w.add("namespace = %s", q.Namespace)
	if q.After != nil {
		w.add("nano_usd <= %s", q.After.NanoUSD)
	}
	query := `SELECT epic_id, ` + strings.Join(sumColumns[:], ", ") + ` FROM usage_epics` + w.end("nano_usd DESC, epic_id", q.Limit)
	if q.After != nil {
		query += " OFFSET " + w.arg(q.After.Skip)
	}
	rows, err = collectPage(ctx, t, func(row dbkit.Scanner) (usage.Report, error) {
		r := usage.Report{Keys: make([]string, 1)}
		return r, row.Scan(append([]any{&r.Keys[0]}, sumInto(&r.Sum)...)...)
	}, query, w.args...)
	return rows, all, groups, err
}

// reportColumn is the column of sums, and of entries as few names them, that a key groups by.
func reportColumn(k usage.ReportKey) string {
	return [...]string{
		usage.ByEpic: "epic_id", usage.ByTask: "task_id", usage.ByRun: "run_id", usage.ByNode: "node_id", usage.ByActor: "actor",
		usage.ByModel: "model", usage.ByDay: "day",
	}[k]
}

// days are the sums of days that a report is of, those of a table.
func days(w *where, q store.ReportQuery, table string) string {
	w.add("namespace = %s", q.Namespace)
	switch {
	case q.EpicID != "":
		w.add("whole = %s AND epic_id = %s", false, q.EpicID)
	case slices.Contains(q.By, usage.ByEpic):
		w.add("whole = %s", false)
	default:
		w.add("whole = %s AND epic_id = ''", true)
	}
	if q.From != nil {
		w.add("day >= %s", int32(*q.From))
	}
	if q.To != nil {
		w.add("day <= %s", int32(*q.To))
	}
	if q.Kind != 0 {
		w.add("kind = %s", int16(q.Kind))
	}
	return table + ` WHERE ` + strings.Join(w.parts, " AND ")
}

// nodes are the sums of days and nodes that a report is of. It refuses to read more than
// usage.MaxReported: clients choose the names of nodes.
func (t tx) nodes(ctx context.Context, w *where, q store.ReportQuery) (string, error) {
	all := q
	all.Kind = 0 // the key has the kind last, so that it does not shorten what is read
	var read where
	from := days(&read, all, `usage_nodes`)
	if err := t.bounded(ctx, q, from, read.args); err != nil {
		return "", err
	}
	return days(w, q, `usage_nodes`), nil
}

// runs are the sums of runs that a report is of. It refuses to read more than usage.MaxReported.
func (t tx) runs(ctx context.Context, w *where, q store.ReportQuery) (string, error) {
	w.add("namespace = %s AND epic_id = %s", q.Namespace, q.EpicID)
	if q.TaskID != "" {
		w.add("task_id = %s", q.TaskID)
	}
	source := `usage_runs WHERE ` + strings.Join(w.parts, " AND ")
	if err := t.bounded(ctx, q, source, w.args); err != nil {
		return "", err
	}
	if q.Kind != 0 {
		source += " AND kind = " + w.arg(int16(q.Kind))
	}
	return source, nil
}

// bounded refuses to read too much.
func (t tx) bounded(ctx context.Context, q store.ReportQuery, source string, args []any) error {
	most := cmp.Or(q.Most, usage.MaxReported)
	n, err := t.count(ctx, fmt.Sprintf(`SELECT 1 FROM %s LIMIT %d`, source, most+1), args...)
	if err != nil {
		return err
	}
	if n > most {
		return errs.New(errs.FailedPrecondition, usage.ReasonReportTooLarge, "the report would read more than %d usage entries, or sums of runs or nodes", most).
			Hint("ask for fewer days, one epic, one task or one run; reports by epic, actor, model and day have no such bound")
	}
	return nil
}

// few are the entries that a report is of, with the columns of sums. It refuses to read more than
// usage.MaxReported. The one filter that an index answers decides what is read, the others are
// applied to it.
func (t tx) few(ctx context.Context, w *where, q store.ReportQuery) (string, error) {
	read, rest := where{args: w.args}, []string{"true"}
	read.add("namespace = %s", q.Namespace)
	between := func(add func(cond string, args ...any)) {
		if q.From != nil {
			add("time >= %s", dbkit.Exact(q.From.Time()))
		}
		if q.To != nil {
			add("time < %s", dbkit.Exact((*q.To + 1).Time()))
		}
	}
	late := func(cond string, args ...any) {
		var one where
		one.args = read.args
		one.add(cond, args...)
		read.args, rest = one.args, append(rest, one.parts...)
	}
	// The tests for emptiness let the partial indexes be used.
	switch {
	case q.RunID != "":
		read.add("run_id = %s", q.RunID)
	case q.TaskID != "":
		read.add("task_id = %s AND task_id <> ''", q.TaskID)
		between(read.add)
	case q.EpicID != "":
		read.add("epic_id = %s AND epic_id <> ''", q.EpicID)
		between(read.add)
	default:
		between(read.add)
	}
	from := `usage_entries WHERE ` + strings.Join(read.parts, " AND ")
	if err := t.bounded(ctx, q, from, read.args); err != nil {
		return "", err
	}
	few := fmt.Sprintf(`(SELECT * FROM %s LIMIT %d) e`, from, cmp.Or(q.Most, usage.MaxReported)+1)
	if q.RunID != "" {
		between(late)
		if q.TaskID != "" {
			late("task_id = %s", q.TaskID)
		}
	}
	if q.EpicID != "" && (q.RunID != "" || q.TaskID != "") {
		late("epic_id = %s", q.EpicID)
	}
	if q.Kind != 0 {
		late("kind = %s", int16(q.Kind))
	}
	w.args = read.args
	return `(SELECT ` + entrySums(t.d) + ` FROM (SELECT e.*, ` + entrySign + ` FROM ` + few + `) s WHERE ` + strings.Join(rest, " AND ") + `) r`, nil
}

// entrySign is what an entry counts for: a reversal takes a call back.
const entrySign = `CASE WHEN source = 4 THEN -1 ELSE 1 END AS sign`

// entrySums are the keys and the sums of one entry, which has a sign.
func entrySums(d dbkit.Dialect) string {
	return `namespace, epic_id, task_id, run_id, node_id, actor, model, kind, ` + d.Day("time") + ` AS day, sign AS calls,
		CASE WHEN failed THEN sign ELSE 0 END AS failed_calls,
		CASE WHEN cost_nano_usd IS NULL AND (kind <> 2 OR input_tokens + output_tokens <> 0) THEN sign ELSE 0 END AS unpriced_calls, input_tokens,
		CASE WHEN abs(cached_input_tokens) > abs(input_tokens) THEN input_tokens ELSE cached_input_tokens END AS cached_input_tokens, output_tokens,
		CASE WHEN abs(reasoning_tokens) > abs(output_tokens) THEN output_tokens ELSE reasoning_tokens END AS reasoning_tokens,
		COALESCE(cost_nano_usd, 0) AS nano_usd`
}
