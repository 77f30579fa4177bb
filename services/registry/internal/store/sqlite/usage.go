package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	entryColumns = `run_id, source, node_id, visit, item, attempt, call, id, kind, task_id, epic_id, provider, model, input_tokens,
		cached_input_tokens, output_tokens, reasoning_tokens, cost_nano_usd, price_id, time, failed, recorded_by, principal`
	// The end of a price is the beginning of the one that follows it.
	datedPrices = `(SELECT *, lead(valid_from) OVER (PARTITION BY namespace, provider, model ORDER BY valid_from) AS valid_until
		FROM prices WHERE namespace IN ('', ?)) AS dated`
	priceColumns = `namespace, id, provider, model, valid_from, valid_until, input, cached_input, output, reasoning, principal`
	insertPrice  = `INSERT INTO prices (namespace, id, provider, model, valid_from, input, cached_input, output, reasoning, principal)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
)

func scanEntry(row scanner) (usage.Entry, error) {
	var e usage.Entry
	var at int64
	err := row.Scan(&e.RunID, &e.Source, &e.NodeID, &e.Visit, &e.Item, &e.Attempt, &e.Call, &e.ID, &e.Kind, &e.TaskID, &e.EpicID, &e.Provider,
		&e.Model, &e.InputTokens, &e.CachedInputTokens, &e.OutputTokens, &e.ReasoningTokens, &e.CostNanoUSD, &e.PriceID, &at, &e.Failed,
		&e.By, &e.Principal)
	e.Time = time.UnixMicro(at).UTC()
	return e, err
}

// Entries implements store.Reader.
func (t tx) Entries(ctx context.Context, q store.EntryQuery) ([]usage.Entry, error) {
	var w where
	w.add("namespace = ?", q.Namespace)
	// The tests for emptiness let the partial indexes be used.
	if q.EpicID != "" {
		w.add("epic_id = ? AND epic_id <> ''", q.EpicID)
	}
	if q.TaskID != "" {
		w.add("task_id = ? AND task_id <> ''", q.TaskID)
	}
	if q.RunID != "" {
		w.add("run_id = ?", q.RunID)
	}
	if !q.After.IsZero() {
		w.add("(time, id) < (?, ?)", q.After.CreateTime.UnixMicro(), q.After.ID)
	}
	return collectPage(ctx, t, scanEntry, `SELECT `+entryColumns+` FROM usage_entries`+w.end("time DESC, id DESC", q.Limit), w.args...)
}

// Book implements store.Tx.
func (t tx) Book(ctx context.Context, namespace string, entries []usage.Entry) (booked []usage.Entry, fresh []bool, err error) {
	insert, err := t.PrepareContext(ctx, `INSERT INTO usage_entries (namespace, `+entryColumns+`) VALUES (`+marks(24)+`) ON CONFLICT DO NOTHING`)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, insert.Close()) }()
	booked, fresh = make([]usage.Entry, len(entries)), make([]bool, len(entries))
	for i, e := range entries {
		res, err := insert.ExecContext(ctx, namespace, e.RunID, e.Source, e.NodeID, e.Visit, e.Item, e.Attempt, e.Call, e.ID, e.Kind, e.TaskID,
			e.EpicID, e.Provider, e.Model, e.InputTokens, e.CachedInputTokens, e.OutputTokens, e.ReasoningTokens, e.CostNanoUSD,
			e.PriceID, e.Time.UnixMicro(), e.Failed, e.By, e.Principal)
		if err != nil {
			return nil, nil, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, nil, err
		}
		if booked[i], fresh[i] = e, n == 1; fresh[i] {
			continue
		}
		booked[i], err = one(ctx, t, fmt.Errorf("usage entry %v is neither booked nor new", e.Key), scanEntry,
			`SELECT `+entryColumns+` FROM usage_entries WHERE namespace = ? AND run_id = ? AND source = ? AND node_id = ? AND visit = ?
			AND item = ? AND attempt = ? AND call = ?`, namespace, e.RunID, e.Source, e.NodeID, e.Visit, e.Item, e.Attempt, e.Call)
		if err != nil {
			return nil, nil, err
		}
	}
	return booked, fresh, nil
}

// TaskTotals implements store.Tx.
func (t tx) TaskTotals(ctx context.Context, namespace string, ids []string) (map[string]store.TaskTotals, error) {
	set, err := text(list(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[string]store.TaskTotals, len(ids))
	_, err = collect(ctx, t, func(row scanner) (struct{}, error) {
		var id string
		var v store.TaskTotals
		err := row.Scan(append([]any{&id, &v.EpicID}, totalsInto(&v.Totals)...)...)
		out[id] = v
		return struct{}{}, err
	}, `SELECT id, epic_id, `+totalColumns+` FROM tasks WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))`, namespace, set)
	return out, err
}

const putTotals = ` SET tokens = ?, nano_usd = ?, unpriced_calls = ?, overhead_tokens = ?, overhead_nano_usd = ?, model_calls = ?, tool_calls = ?`

func totalArgs(v usage.Totals, more ...any) []any {
	return append([]any{v.Tokens, v.NanoUSD, v.UnpricedCalls, v.OverheadTokens, v.OverheadNanoUSD, v.ModelCalls, v.ToolCalls}, more...)
}

// PutTotals implements store.Tx.
func (t tx) PutTotals(ctx context.Context, namespace string, epics, tasks map[string]usage.Totals, now time.Time) error {
	for table, totals := range map[string]map[string]usage.Totals{"epics": epics, "tasks": tasks} {
		for id, v := range totals {
			if err := t.exec(ctx, `UPDATE `+table+putTotals+`, update_time = max(update_time, ?) WHERE namespace = ? AND id = ?`,
				totalArgs(v, now.UnixMicro(), namespace, id)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// NamespaceTotals implements store.Reader.
func (t tx) NamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	v, err := optional(one(ctx, t, errNone, func(row scanner) (v usage.Totals, err error) {
		err = row.Scan(totalsInto(&v)...)
		return v, err
	}, `SELECT `+totalColumns+` FROM namespace_totals WHERE namespace = ?`, namespace))
	if v == nil {
		v = &usage.Totals{}
	}
	return *v, err
}

// LockNamespaceTotals implements store.Tx.
func (t tx) LockNamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	if err := t.exec(ctx, `INSERT INTO namespace_totals (namespace) VALUES (?) ON CONFLICT DO NOTHING`, namespace); err != nil {
		return usage.Totals{}, err
	}
	return t.NamespaceTotals(ctx, namespace)
}

// PutNamespaceTotals implements store.Tx.
func (t tx) PutNamespaceTotals(ctx context.Context, namespace string, v usage.Totals) error {
	return t.change(ctx, fmt.Errorf("totals of namespace %q are gone", namespace),
		`UPDATE namespace_totals`+putTotals+` WHERE namespace = ?`, totalArgs(v, namespace)...)
}

func scanPrice(row scanner) (usage.Price, error) {
	var p usage.Price
	var from int64
	var until *int64
	err := row.Scan(&p.Namespace, &p.ID, &p.Provider, &p.Model, &from, &until, &p.Input, &p.CachedInput, &p.Output, &p.Reasoning, &p.Principal)
	p.ValidFrom, p.ValidUntil = time.UnixMicro(from).UTC(), utc(until)
	return p, err
}

// Prices implements store.Reader.
func (t tx) Prices(ctx context.Context, q store.PriceQuery) ([]usage.Price, error) {
	w := where{parts: []string{"true"}, args: []any{q.Namespace}}
	if q.Provider != "" {
		w.add("provider = ?", q.Provider)
	}
	if q.Model != "" {
		w.add("model = ?", q.Model)
	}
	if q.After.ID != "" {
		w.add("(provider, model, valid_from, id) > (SELECT provider, model, valid_from, id FROM prices WHERE id = ?)", q.After.ID)
	}
	return collectPage(ctx, t, scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+w.end("provider, model, valid_from, id", q.Limit), w.args...)
}

// Price implements store.Reader.
func (t tx) Price(ctx context.Context, namespace, id string) (usage.Price, error) {
	return one(ctx, t, store.PriceNotFound(id), scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+` WHERE id = ?`, namespace, id)
}

// PriceBook implements store.Reader.
func (t tx) PriceBook(ctx context.Context, namespace string, models []string) (usage.Book, error) {
	// Each pattern against each model, as SQL would compare them, is ten million times in the worst case.
	patterns, err := collect(ctx, t, func(row scanner) (p string, err error) {
		err = row.Scan(&p)
		return p, err
	}, `SELECT DISTINCT model FROM prices WHERE namespace IN ('', ?) AND substr(model, -1) = '*'`, namespace)
	if err != nil {
		return nil, err
	}
	set, err := text(list(usage.Covering(patterns, models)))
	if err != nil {
		return nil, err
	}
	return collect(ctx, t, scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+` WHERE model IN (SELECT value FROM json_each(?))`, namespace, set)
}

// CountPrices implements store.Tx.
func (t tx) CountPrices(ctx context.Context, namespace string, most int) (n int, err error) {
	err = t.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM prices WHERE namespace = ? LIMIT ?) AS c`, namespace, most).Scan(&n)
	return n, err
}

// InsertPrice implements store.Tx.
func (t tx) InsertPrice(ctx context.Context, p usage.Price) error {
	err := t.exec(ctx, insertPrice, priceArgs(p)...)
	if _, taken := dbkit.UniqueViolation(err); taken {
		return store.PriceExists(p)
	}
	return err
}

func priceArgs(p usage.Price) []any {
	return []any{p.Namespace, p.ID, p.Provider, p.Model, p.ValidFrom.UnixMicro(), p.Input, p.CachedInput, p.Output, p.Reasoning, p.Principal}
}

// SeedPrices implements store.Store.
func (s *Store) SeedPrices(ctx context.Context, prices []usage.Price) error {
	return s.db.Update(ctx, func(ctx context.Context, t *sql.Tx) error {
		for _, p := range prices {
			if err := (tx{t}).exec(ctx, insertPrice+` ON CONFLICT DO NOTHING`, priceArgs(p)...); err != nil {
				return err
			}
		}
		return nil
	})
}
