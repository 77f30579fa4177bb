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

// AddDays implements store.Tx.
func (t tx) AddDays(ctx context.Context, namespace string, sums []usage.DaySum) error {
	columns := [][2]string{
		{"whole", "boolean"},
		{"epic_id", "text"},
		{"day", "int"},
		{"model", "text"},
		{"actor", "text"},
		{"kind", "smallint"},
	}
	var names, set []string
	for _, c := range sumColumns {
		columns = append(columns, [2]string{c, "bigint"})
		set = append(set, fmt.Sprintf("%[1]s = usage_days.%[1]s + excluded.%[1]s", c))
	}
	for _, c := range columns {
		names = append(names, c[0])
	}
	rows := make([][]any, len(sums))
	for i, s := range sums {
		rows[i] = []any{
			s.Whole, s.EpicID, int32(s.Day), s.Model, s.Actor, int16(s.Kind), s.Sum.Calls, s.Sum.FailedCalls, s.Sum.UnpricedCalls, s.Sum.InputTokens,
			s.Sum.CachedInputTokens, s.Sum.OutputTokens, s.Sum.ReasoningTokens, s.Sum.NanoUSD,
		}
	}
	_, err := t.Exec(ctx, `INSERT INTO usage_days (namespace, `+strings.Join(names, ", ")+`) SELECT $1, n.* FROM `+t.d.Rows(`n`, 2, columns...)+`
		WHERE true ON CONFLICT (namespace, whole, epic_id, day, model, actor, kind) DO UPDATE SET `+strings.Join(set, ", "),
		append([]any{namespace}, t.d.RowArgs(len(columns), rows)...)...)
	return err
}

// Report implements store.Reader.
func (t tx) Report(ctx context.Context, q store.ReportQuery) (rows []usage.Report, all usage.Sum, groups int64, err error) {
	var w where
	source := t.days(&w, q)
	if q.Narrow() {
		w = where{}
		if source, err = t.few(ctx, &w, q); err != nil {
			return nil, all, 0, err
		}
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

// reportColumn is the column of usage_days, and of entries as few names them, that a key groups by.
func reportColumn(k usage.ReportKey) string {
	return [...]string{
		usage.ByEpic: "epic_id", usage.ByTask: "task_id", usage.ByRun: "run_id", usage.ByNode: "node_id", usage.ByActor: "actor",
		usage.ByModel: "model", usage.ByDay: "day",
	}[k]
}

// days are the sums of days that a report is of.
func (t tx) days(w *where, q store.ReportQuery) string {
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
	return `usage_days WHERE ` + strings.Join(w.parts, " AND ")
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
	most := cmp.Or(q.Most, usage.MaxReported)
	from := fmt.Sprintf(` FROM usage_entries WHERE %s LIMIT %d`, strings.Join(read.parts, " AND "), most+1)
	few := `(SELECT *` + from + `) e`
	n, err := t.count(ctx, `SELECT 1`+from, read.args...)
	if err != nil {
		return "", err
	}
	if n > most {
		return "", errs.New(errs.FailedPrecondition, usage.ReasonReportTooLarge, "the report would read more than %d usage entries", most).
			Hint("ask for fewer days, one epic, one task or one run; reports by epic, actor, model and day have no such bound")
	}
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
	return `(SELECT epic_id, task_id, run_id, node_id, actor, model, ` + t.d.Day("time") + ` AS day, sign AS calls,
		CASE WHEN failed THEN sign ELSE 0 END AS failed_calls,
		CASE WHEN cost_nano_usd IS NULL AND (kind <> 2 OR input_tokens + output_tokens <> 0) THEN sign ELSE 0 END AS unpriced_calls, input_tokens,
		CASE WHEN abs(cached_input_tokens) > abs(input_tokens) THEN input_tokens ELSE cached_input_tokens END AS cached_input_tokens, output_tokens,
		CASE WHEN abs(reasoning_tokens) > abs(output_tokens) THEN output_tokens ELSE reasoning_tokens END AS reasoning_tokens,
		COALESCE(cost_nano_usd, 0) AS nano_usd
		FROM (SELECT e.*, CASE WHEN source = 4 THEN -1 ELSE 1 END AS sign FROM ` + few + `) s WHERE ` + strings.Join(rest, " AND ") + `) r`, nil
}
