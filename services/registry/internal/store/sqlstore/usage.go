package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const entryColumns = `run_id, source, node_id, visit, item, attempt, call, id, kind, task_id, epic_id, provider, model, input_tokens,
	cached_input_tokens, output_tokens, reasoning_tokens, cost_nano_usd, price_id, time, failed, recorded_by, principal, actor, duration_ms`

// entryTypes are the columns of entryColumns, those of the key first, with their types on PostgreSQL.
func entryTypes() [][2]string {
	return [][2]string{
		{"run_id", "text"},
		{"source", "smallint"},
		{"node_id", "text"},
		{"visit", "int"},
		{"item", "int"},
		{"attempt", "int"},
		{"call", "int"},
		{"id", "text"},
		{"kind", "smallint"},
		{"task_id", "text"},
		{"epic_id", "text"},
		{"provider", "text"},
		{"model", "text"},
		{"input_tokens", "bigint"},
		{"cached_input_tokens", "bigint"},
		{"output_tokens", "bigint"},
		{"reasoning_tokens", "bigint"},
		{"cost_nano_usd", "bigint"},
		{"price_id", "text"},
		{"time", "timestamptz"},
		{"failed", "boolean"},
		{"recorded_by", "text"},
		{"principal", "text"},
		{"actor", "text"},
		{"duration_ms", "bigint"},
	}
}

// keyColumns is how many of the entryTypes make the key.
const keyColumns = 7

func keyArgs(k usage.Key) []any {
	return []any{k.RunID, int16(k.Source), k.NodeID, k.Visit, k.Item, k.Attempt, k.Call}
}

func entryArgs(e usage.Entry) []any {
	return append(keyArgs(e.Key), e.ID, int16(e.Kind), e.TaskID, e.EpicID, e.Provider, e.Model, e.InputTokens, e.CachedInputTokens,
		e.OutputTokens, e.ReasoningTokens, e.CostNanoUSD, e.PriceID, dbkit.Exact(e.Time), e.Failed, e.By, e.Principal, e.Actor, e.DurationMS)
}

func scanEntry(row dbkit.Scanner) (usage.Entry, error) {
	var e usage.Entry
	err := row.Scan(&e.RunID, &e.Source, &e.NodeID, &e.Visit, &e.Item, &e.Attempt, &e.Call, &e.ID, &e.Kind, &e.TaskID, &e.EpicID, &e.Provider,
		&e.Model, &e.InputTokens, &e.CachedInputTokens, &e.OutputTokens, &e.ReasoningTokens, &e.CostNanoUSD, &e.PriceID, (*dbkit.Exact)(&e.Time),
		&e.Failed, &e.By, &e.Principal, &e.Actor, &e.DurationMS)
	return e, err
}

// Entries implements store.Reader.
func (t tx) Entries(ctx context.Context, q store.EntryQuery) ([]usage.Entry, error) {
	var w where
	w.add("namespace = %s", q.Namespace)
	// The tests for emptiness let the partial indexes be used.
	if q.EpicID != "" {
		w.add("epic_id = %s AND epic_id <> ''", q.EpicID)
	}
	if q.TaskID != "" {
		w.add("task_id = %s AND task_id <> ''", q.TaskID)
	}
	if q.RunID != "" {
		w.add("run_id = %s", q.RunID)
	}
	w.after("time", "<", q.After)
	return collectPage(ctx, t, scanEntry, `SELECT `+entryColumns+` FROM usage_entries t`+w.end("time DESC, id DESC", q.Limit), w.args...)
}

// Book implements store.Tx.
func (t tx) Book(ctx context.Context, namespace string, entries []usage.Entry) (booked []usage.Entry, fresh []bool, err error) {
	rows := make([][]any, len(entries))
	for i, e := range entries {
		rows[i] = entryArgs(e)
	}
	inserted := make(map[string]bool, len(entries))
	types := entryTypes()
	if err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		err := row.Scan(&id)
		inserted[id] = true
		return err
	}, `INSERT INTO usage_entries (namespace, `+entryColumns+`) SELECT $1, n.* FROM `+t.d.Rows(`n`, 2, types...)+`
		WHERE true ON CONFLICT DO NOTHING RETURNING id`, append([]any{namespace}, t.d.RowArgs(len(types), rows)...)...); err != nil {
		return nil, nil, err
	}
	booked, fresh = make([]usage.Entry, len(entries)), make([]bool, len(entries))
	var taken [][]any
	for i, e := range entries {
		if inserted[e.ID] {
			booked[i], fresh[i] = e, true
			t.changes.entries = append(t.changes.entries, e)
			continue
		}
		taken = append(taken, keyArgs(e.Key))
	}
	if len(taken) == 0 {
		return booked, fresh, nil
	}
	byKey := make(map[usage.Key]usage.Entry, len(taken))
	if err := t.each(ctx, func(row dbkit.Scanner) error {
		e, err := scanEntry(row)
		byKey[e.Key] = e
		return err
	}, `SELECT `+entryColumns+` FROM usage_entries WHERE namespace = $1
		AND (run_id, source, node_id, visit, item, attempt, call) IN (SELECT * FROM `+t.d.Rows(`n`, 2, types[:keyColumns]...)+`)`,
		append([]any{namespace}, t.d.RowArgs(keyColumns, taken)...)...); err != nil {
		return nil, nil, err
	}
	for i, e := range entries {
		if fresh[i] {
			continue
		}
		o, ok := byKey[e.Key]
		if !ok {
			return nil, nil, fmt.Errorf("usage entry %v is neither booked nor new", e.Key)
		}
		booked[i] = o
	}
	return booked, fresh, nil
}

// Booked implements store.Reader.
func (t tx) Booked(ctx context.Context, namespace string, keys []usage.Key) ([]usage.Key, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	s := t.booked(namespace, keys)
	return collect(ctx, t, scanKey, s.Query, s.Args...)
}

func (t tx) booked(namespace string, keys []usage.Key) dbkit.Stmt {
	rows := make([][]any, len(keys))
	for i, k := range keys {
		rows[i] = keyArgs(k)
	}
	return dbkit.Stmt{
		Query: `SELECT u.run_id, u.source, u.node_id, u.visit, u.item, u.attempt, u.call FROM ` + t.d.Rows(`n`, 2, entryTypes()[:keyColumns]...) +
			t.d.LookUp(`usage_entries`, `u`, `u.namespace = $1 AND u.source = n.source AND u.run_id = n.run_id AND u.node_id = n.node_id
				AND u.visit = n.visit AND u.item = n.item AND u.attempt = n.attempt AND u.call = n.call`),
		Args: append([]any{namespace}, t.d.RowArgs(keyColumns, rows)...),
	}
}

func scanKey(row dbkit.Scanner) (k usage.Key, err error) {
	err = row.Scan(&k.RunID, &k.Source, &k.NodeID, &k.Visit, &k.Item, &k.Attempt, &k.Call)
	return k, err
}

// TaskTotals implements store.Reader.
func (t tx) TaskTotals(ctx context.Context, namespace string, ids []string) (map[string]store.TaskTotals, error) {
	out := make(map[string]store.TaskTotals, len(ids))
	err := t.each(ctx, func(row dbkit.Scanner) error {
		var id string
		var v store.TaskTotals
		err := row.Scan(append([]any{&id, &v.EpicID}, totalsInto(&v.Totals)...)...)
		out[id] = v
		return err
	}, `SELECT id, epic_id, `+totalColumns+` FROM tasks WHERE namespace = $1 AND `+t.d.In(`id`, `$2`), namespace, ids)
	return out, err
}

func totalArgs(v usage.Totals) []any {
	return []any{v.Tokens, v.NanoUSD, v.UnpricedCalls, v.OverheadTokens, v.OverheadNanoUSD, v.ModelCalls, v.ToolCalls}
}

// PutTotals implements store.Tx.
func (t tx) PutTotals(ctx context.Context, namespace string, epics, tasks map[string]usage.Totals, now time.Time) error {
	if err := t.putTotals(ctx, "epics", namespace, epics, now); err != nil {
		return err
	}
	return t.putTotals(ctx, "tasks", namespace, tasks, now)
}

func (t tx) putTotals(ctx context.Context, table, namespace string, totals map[string]usage.Totals, now time.Time) error {
	if len(totals) == 0 {
		return nil
	}
	rows := make([][]any, 0, len(totals))
	for id, v := range totals {
		rows = append(rows, append([]any{namespace, id}, totalArgs(v)...))
	}
	columns := [][2]string{
		{"namespace", "text"},
		{"id", "text"},
		{"tokens", "bigint"},
		{"nano_usd", "bigint"},
		{"unpriced_calls", "bigint"},
		{"overhead_tokens", "bigint"},
		{"overhead_nano_usd", "bigint"},
		{"model_calls", "bigint"},
		{"tool_calls", "bigint"},
	}
	_, err := t.Exec(ctx, `UPDATE `+table+` SET tokens = n.tokens, nano_usd = n.nano_usd, unpriced_calls = n.unpriced_calls,
			overhead_tokens = n.overhead_tokens, overhead_nano_usd = n.overhead_nano_usd, model_calls = n.model_calls,
			tool_calls = n.tool_calls, update_time = `+t.d.Greatest(table+`.update_time`, `$1`)+`
		FROM `+t.d.Rows(`n`, 2, columns...)+` WHERE `+table+`.namespace = n.namespace AND `+table+`.id = n.id`,
		append([]any{now}, t.d.RowArgs(len(columns), rows)...)...)
	return err
}

func scanTotals(row dbkit.Scanner) (*usage.Totals, error) {
	var v usage.Totals
	err := row.Scan(totalsInto(&v)...)
	return &v, err
}

const selectTotals = `SELECT ` + totalColumns + ` FROM namespace_totals WHERE namespace = $1`

// NamespaceTotals implements store.Reader.
func (t tx) NamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	v, err := one(ctx, t, nil, scanTotals, selectTotals, namespace)
	if v == nil {
		v = &usage.Totals{}
	}
	return *v, err
}

// LockNamespaceTotals implements store.Tx.
func (t tx) LockNamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	v, err := one(ctx, t, nil, scanTotals, selectTotals+t.d.Locked(), namespace)
	if err == nil && v == nil {
		if _, err := t.Exec(ctx, `INSERT INTO namespace_totals (namespace) VALUES ($1) ON CONFLICT DO NOTHING`, namespace); err != nil {
			return usage.Totals{}, err
		}
		v, err = one(ctx, t, nil, scanTotals, selectTotals+t.d.Locked(), namespace)
	}
	if v == nil {
		v = &usage.Totals{}
	}
	return *v, err
}

// PutNamespaceTotals implements store.Tx.
func (t tx) PutNamespaceTotals(ctx context.Context, namespace string, v usage.Totals) error {
	return t.change(ctx, fmt.Errorf("totals of namespace %q are gone", namespace), `UPDATE namespace_totals SET tokens = $2,
			nano_usd = $3, unpriced_calls = $4, overhead_tokens = $5, overhead_nano_usd = $6, model_calls = $7, tool_calls = $8
		WHERE namespace = $1`, append([]any{namespace}, totalArgs(v)...)...)
}
