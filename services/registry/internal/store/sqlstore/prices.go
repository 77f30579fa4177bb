package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// The end of a price is the beginning of the one that follows it.
	datedPrices = `(SELECT *, lead(valid_from) OVER (PARTITION BY namespace, provider, model ORDER BY valid_from) AS valid_until
		FROM prices WHERE namespace IN ('', $1)) AS dated`
	priceColumns = `namespace, id, provider, model, valid_from, valid_until, input, cached_input, output, reasoning, principal`
	insertPrice  = `INSERT INTO prices (namespace, id, provider, model, valid_from, input, cached_input, output, reasoning, principal)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
)

func scanPrice(row dbkit.Scanner) (usage.Price, error) {
	var p usage.Price
	err := row.Scan(&p.Namespace, &p.ID, &p.Provider, &p.Model, (*dbkit.Exact)(&p.ValidFrom), dbkit.At(&p.ValidUntil), &p.Input, &p.CachedInput,
		&p.Output, &p.Reasoning, &p.Principal)
	return p, err
}

// Prices implements store.Reader.
func (t tx) Prices(ctx context.Context, q store.PriceQuery) ([]usage.Price, error) {
	w := where{parts: []string{"true"}, args: []any{q.Namespace}}
	if q.Provider != "" {
		w.add("provider = %s", q.Provider)
	}
	if q.Model != "" {
		w.add("model = %s", q.Model)
	}
	if q.After.ID != "" {
		w.add("(provider, model, valid_from, id) > (SELECT provider, model, valid_from, id FROM prices WHERE id = %s)", q.After.ID)
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
	patterns, err := collect(ctx, t, func(row dbkit.Scanner) (p string, err error) {
		err = row.Scan(&p)
		return p, err
	}, `SELECT DISTINCT model FROM prices WHERE namespace IN ('', $1) AND model LIKE '%*'`, namespace)
	if err != nil {
		return nil, err
	}
	return collect(ctx, t, scanPrice, `SELECT `+priceColumns+` FROM `+datedPrices+` WHERE `+t.d.In(`model`, `$2`),
		namespace, usage.Covering(patterns, models))
}

// CountPrices implements store.Tx.
func (t tx) CountPrices(ctx context.Context, namespace string, most int) (int, error) {
	return t.count(ctx, `SELECT 1 FROM prices WHERE namespace = $1 LIMIT $2`, namespace, most)
}

// InsertPrice implements store.Tx.
func (t tx) InsertPrice(ctx context.Context, p usage.Price) error {
	t.changes.prices = append(t.changes.prices, p)
	_, err := t.Exec(ctx, insertPrice, priceArgs(p)...)
	if _, taken := dbkit.UniqueViolation(err); taken {
		return store.PriceExists(p)
	}
	return err
}

// AddPrice implements store.Tx.
func (t tx) AddPrice(ctx context.Context, p usage.Price) (there usage.Price, added bool, err error) {
	n, err := t.Exec(ctx, insertPrice+` ON CONFLICT DO NOTHING`, priceArgs(p)...)
	if err != nil || n == 1 {
		t.changes.prices = append(t.changes.prices, p)
		return p, true, err
	}
	there, err = one(ctx, t, store.PriceNotFound(p.ID), func(row dbkit.Scanner) (e usage.Price, err error) {
		err = row.Scan(&e.Namespace, &e.ID, &e.Provider, &e.Model, (*dbkit.Exact)(&e.ValidFrom), &e.Input, &e.CachedInput, &e.Output, &e.Reasoning, &e.Principal)
		return e, err
	}, `SELECT namespace, id, provider, model, valid_from, input, cached_input, output, reasoning, principal FROM prices
		WHERE namespace = $1 AND provider = $2 AND model = $3 AND valid_from = $4`, p.Namespace, p.Provider, p.Model, dbkit.Exact(p.ValidFrom))
	return there, false, err
}

func priceArgs(p usage.Price) []any {
	return []any{p.Namespace, p.ID, p.Provider, p.Model, dbkit.Exact(p.ValidFrom), p.Input, p.CachedInput, p.Output, p.Reasoning, p.Principal}
}
