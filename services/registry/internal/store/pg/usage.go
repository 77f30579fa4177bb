package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	entryColumns = `run_id, source, node_id, visit, item, attempt, call, id, kind, task_id, epic_id, provider, model, input_tokens,
		cached_input_tokens, output_tokens, reasoning_tokens, cost_nano_usd, price_id, time, failed, recorded_by, principal`
	// The end of a price is the beginning of the one that follows it.
	datedPrices = `(SELECT *, lead(valid_from) OVER (PARTITION BY namespace, provider, model ORDER BY valid_from) AS valid_until
		FROM prices WHERE namespace IN ('', $1)) AS dated`
	priceColumns = `namespace, id, provider, model, valid_from, valid_until, input, cached_input, output, reasoning, principal`
)

func scanEntry(row pgx.CollectableRow) (usage.Entry, error) {
	var e usage.Entry
	err := row.Scan(&e.RunID, &e.Source, &e.NodeID, &e.Visit, &e.Item, &e.Attempt, &e.Call, &e.ID, &e.Kind, &e.TaskID, &e.EpicID, &e.Provider,
		&e.Model, &e.InputTokens, &e.CachedInputTokens, &e.OutputTokens, &e.ReasoningTokens, &e.CostNanoUSD, &e.PriceID, &e.Time, &e.Failed,
		&e.By, &e.Principal)
	e.Time = e.Time.UTC()
	return e, err
}

// Entries implements store.Reader.
func (t tx) Entries(ctx context.Context, q store.EntryQuery) ([]usage.Entry, error) {
	var w where
	w.add("namespace = $%d", q.Namespace)
	// The tests for emptiness let the partial indexes be used.
	if q.EpicID != "" {
		w.add("epic_id = $%d AND epic_id <> ''", q.EpicID)
	}
	if q.TaskID != "" {
		w.add("task_id = $%d AND task_id <> ''", q.TaskID)
	}
	if q.RunID != "" {
		w.add("run_id = $%d", q.RunID)
	}
	w.after("time", "<", q.After)
	return collectPage(ctx, t, scanEntry, `SELECT `+entryColumns+` FROM usage_entries`+w.end("time DESC, id DESC", q.Limit), w.args...)
}

// columns turns entries into one array per column, so that a statement takes all of them at once.
func columns(entries []usage.Entry) []any {
	n := len(entries)
	var (
		run, node, id, task, epicID, provider, model, price = make([]string, n), make([]string, n), make([]string, n), make([]string, n),
			make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		by, principal              = make([]string, n), make([]string, n)
		visit, item, attempt, call = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
		kind, source               = make([]int16, n), make([]int16, n)
		in, cached, out, reasoning = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		cost                       = make([]*int64, n)
		at                         = make([]time.Time, n)
		failed                     = make([]bool, n)
	)
	for i, e := range entries {
		run[i], node[i], visit[i], item[i], attempt[i], call[i] = e.RunID, e.NodeID, e.Visit, e.Item, e.Attempt, e.Call
		id[i], kind[i], task[i], epicID[i], provider[i], model[i] = e.ID, int16(e.Kind), e.TaskID, e.EpicID, e.Provider, e.Model
		in[i], cached[i], out[i], reasoning[i] = e.InputTokens, e.CachedInputTokens, e.OutputTokens, e.ReasoningTokens
		cost[i], price[i], at[i], failed[i] = e.CostNanoUSD, e.PriceID, e.Time, e.Failed
		source[i], by[i], principal[i] = int16(e.Source), e.By, e.Principal
	}
	return []any{
		run, source, node, visit, item, attempt, call, id, kind, task, epicID, provider, model, in, cached, out, reasoning, cost, price, at, failed,
		by, principal,
	}
}

// Book implements store.Tx.
func (t tx) Book(ctx context.Context, namespace string, entries []usage.Entry) (booked []usage.Entry, fresh []bool, err error) {
	rows, err := t.Query(ctx, `INSERT INTO usage_entries (namespace, `+entryColumns+`)
		SELECT $1, * FROM unnest($2::text[], $3::smallint[], $4::text[], $5::int[], $6::int[], $7::int[], $8::int[], $9::text[],
			$10::smallint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::bigint[],
			$18::bigint[], $19::bigint[], $20::text[], $21::timestamptz[], $22::boolean[], $23::text[], $24::text[])
		ON CONFLICT DO NOTHING RETURNING id`, append([]any{namespace}, columns(entries)...)...)
	if err != nil {
		return nil, nil, err
	}
	inserted := make(map[string]bool, len(entries))
	var id string
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		inserted[id] = true
		return nil
	}); err != nil {
		return nil, nil, err
	}
	booked, fresh = make([]usage.Entry, len(entries)), make([]bool, len(entries))
	var taken []usage.Entry
	for i, e := range entries {
		if inserted[e.ID] {
			booked[i], fresh[i] = e, true
			continue
		}
		taken = append(taken, e)
	}
	if len(taken) == 0 {
		return booked, fresh, nil
	}
	old, err := collect(ctx, t, scanEntry, `SELECT `+entryColumns+` FROM usage_entries WHERE namespace = $1
		AND (run_id, source, node_id, visit, item, attempt, call) IN
			(SELECT * FROM unnest($2::text[], $3::smallint[], $4::text[], $5::int[], $6::int[], $7::int[], $8::int[]))`,
		append([]any{namespace}, columns(taken)[:7]...)...)
	if err != nil {
		return nil, nil, err
	}
	byKey := make(map[usage.Key]usage.Entry, len(old))
	for _, e := range old {
		byKey[e.Key] = e
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

// TaskTotals implements store.Tx.
func (t tx) TaskTotals(ctx context.Context, namespace string, ids []string) (map[string]store.TaskTotals, error) {
	rows, err := t.Query(ctx, `SELECT id, epic_id, `+totalColumns+` FROM tasks WHERE namespace = $1 AND id = ANY($2)`, namespace, list(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[string]store.TaskTotals, len(ids))
	var id string
	var v store.TaskTotals
	_, err = pgx.ForEachRow(rows, append([]any{&id, &v.EpicID}, totalsInto(&v.Totals)...), func() error {
		out[id] = v
		return nil
	})
	return out, err
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
	ids := make([]string, 0, len(totals))
	var c [7][]int64
	for id, v := range totals {
		ids = append(ids, id)
		for i, n := range []int64{v.Tokens, v.NanoUSD, v.UnpricedCalls, v.OverheadTokens, v.OverheadNanoUSD, v.ModelCalls, v.ToolCalls} {
			c[i] = append(c[i], n)
		}
	}
	_, err := t.Exec(ctx, `UPDATE `+table+` SET tokens = n.tokens, nano_usd = n.nano_usd, unpriced_calls = n.unpriced_calls,
			overhead_tokens = n.overhead_tokens, overhead_nano_usd = n.overhead_nano_usd, model_calls = n.model_calls,
			tool_calls = n.tool_calls, update_time = greatest(`+table+`.update_time, $2)
		FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
			AS n (id, `+totalColumns+`)
		WHERE `+table+`.namespace = $1 AND `+table+`.id = n.id`,
		namespace, now, ids, c[0], c[1], c[2], c[3], c[4], c[5], c[6])
	return err
}

// NamespaceTotals implements store.Reader.
func (t tx) NamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	v, err := one(ctx, t, nil, scanTotals, `SELECT `+totalColumns+` FROM namespace_totals WHERE namespace = $1`, namespace)
	if v == nil {
		v = &usage.Totals{}
	}
	return *v, err
}

func scanTotals(row pgx.CollectableRow) (*usage.Totals, error) {
	var v usage.Totals
	err := row.Scan(totalsInto(&v)...)
	return &v, err
}

// LockNamespaceTotals implements store.Tx.
func (t tx) LockNamespaceTotals(ctx context.Context, namespace string) (usage.Totals, error) {
	const lock = `SELECT ` + totalColumns + ` FROM namespace_totals WHERE namespace = $1 FOR UPDATE`
	v, err := one(ctx, t, nil, scanTotals, lock, namespace)
	if err == nil && v == nil {
		if _, err := t.Exec(ctx, `INSERT INTO namespace_totals (namespace) VALUES ($1) ON CONFLICT DO NOTHING`, namespace); err != nil {
			return usage.Totals{}, err
		}
		v, err = one(ctx, t, nil, scanTotals, lock, namespace)
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
		WHERE namespace = $1`,
		namespace, v.Tokens, v.NanoUSD, v.UnpricedCalls, v.OverheadTokens, v.OverheadNanoUSD, v.ModelCalls, v.ToolCalls)
}

func scanPrice(row pgx.CollectableRow) (usage.Price, error) {
	var p usage.Price
	var until *time.Time
	err := row.Scan(&p.Namespace, &p.ID, &p.Provider, &p.Model, &p.ValidFrom, &until, &p.Input, &p.CachedInput, &p.Output, &p.Reasoning, &p.Principal)
	p.ValidFrom, p.ValidUntil = p.ValidFrom.UTC(), utc(until)
	return p, err
}

// Prices implements store.Reader.
func (t tx) Prices(ctx context.Context, q store.PriceQuery) ([]usage.Price, error) {
	w := where{parts: []string{"true"}, args: []any{q.Namespace}}
	if q.Provider != "" {
		w.add("provider = $%d", q.Provider)
	}
	if q.Model != "" {
		w.add("model = $%d", q.Model)
	}
	if q.After.ID != "" {
		w.add("(provider, model, valid_from, id) > (SELECT provider, model, valid_from, id FROM prices WHERE id = $%d)", q.After.ID)
	}
	return collectPage(ctx, t, scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+w.end("provider, model, valid_from, id", q.Limit), w.args...)
}

// Price implements store.Reader.
func (t tx) Price(ctx context.Context, namespace, id string) (usage.Price, error) {
	return one(ctx, t, store.PriceNotFound(id), scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+` WHERE id = $2`, namespace, id)
}

// PriceBook implements store.Reader.
func (t tx) PriceBook(ctx context.Context, namespace string, models []string) (usage.Book, error) {
	// Each pattern against each model, as SQL would compare them, is ten million times in the worst case.
	patterns, err := collect(ctx, t, pgx.RowTo[string], `SELECT DISTINCT model FROM prices WHERE namespace IN ('', $1) AND right(model, 1) = '*'`, namespace)
	if err != nil {
		return nil, err
	}
	return collect(ctx, t, scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+` WHERE model = ANY($2)`,
		namespace, list(usage.Covering(patterns, models)))
}

// CountPrices implements store.Tx.
func (t tx) CountPrices(ctx context.Context, namespace string, most int) (n int, err error) {
	err = t.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM prices WHERE namespace = $1 LIMIT $2) AS c`, namespace, most).Scan(&n)
	return n, err
}

// InsertPrice implements store.Tx.
func (t tx) InsertPrice(ctx context.Context, p usage.Price) error {
	_, err := t.Exec(ctx, insertPrice, priceArgs(p)...)
	if _, taken := dbkit.UniqueViolation(err); taken {
		return store.PriceExists(p)
	}
	return err
}

const insertPrice = `INSERT INTO prices (namespace, id, provider, model, valid_from, input, cached_input, output, reasoning, principal)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func priceArgs(p usage.Price) []any {
	return []any{p.Namespace, p.ID, p.Provider, p.Model, p.ValidFrom, p.Input, p.CachedInput, p.Output, p.Reasoning, p.Principal}
}

// SeedPrices implements store.Store.
func (s *Store) SeedPrices(ctx context.Context, prices []usage.Price) error {
	var b pgx.Batch
	for _, p := range prices {
		b.Queue(insertPrice+` ON CONFLICT DO NOTHING`, priceArgs(p)...)
	}
	return s.pool.SendBatch(ctx, &b).Close()
}
