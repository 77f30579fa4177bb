package accounting

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// ImportPrices adds prices, all of them or none, and returns how many are new. Those that are there
// with the same rates stay. Each that is there with other rates is a violation of the error, which
// names it by its place in the request.
func (b *Accounts) ImportPrices(ctx context.Context, namespace string, in []usage.Price) (added int, err error) {
	prices, order := make([]usage.Price, len(in)), make([]int, len(in))
	for i, p := range in {
		if prices[i], err = usage.NewPrice(namespace, p); err != nil {
			return 0, atPrice(i, err)
		}
		prices[i].Principal, order[i] = request.Caller(ctx), i
	}
	// Everybody adds in one order, so that no two imports wait for each other.
	slices.SortStableFunc(order, func(i, j int) int {
		p, o := prices[i], prices[j]
		return cmp.Or(cmp.Compare(p.Provider, o.Provider), cmp.Compare(p.Model, o.Model), p.ValidFrom.Compare(o.ValidFrom))
	})
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		added = 0
		var others []int
		for _, i := range order {
			there, fresh, err := tx.AddPrice(ctx, prices[i])
			switch {
			case err != nil:
				return err
			case fresh:
				added++
			case !there.SameRates(prices[i]):
				others = append(others, i)
			}
		}
		if len(others) > 0 {
			return otherPrices(prices, others)
		}
		have, err := tx.CountPrices(ctx, namespace, b.bounds.Prices+1)
		if err == nil && added > 0 && have > b.bounds.Prices {
			err = errs.New(errs.ResourceExhausted, ReasonTooManyPrices, "a namespace may have %d prices", b.bounds.Prices).
				Hint("let one price cover several models: a model that ends in * covers all that begin so")
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// atPrice names the price of a request that an error is about.
func atPrice(i int, err error) error {
	e := errs.From(err)
	field := fmt.Sprintf("prices[%d]", i)
	return errs.New(e.Kind, e.Reason, "%s: %s", field, e.Message).Violate(field, e.Reason, e.Message)
}

// otherPrices refuses prices that are there with other rates.
func otherPrices(prices []usage.Price, at []int) error {
	slices.Sort(at)
	err := errs.New(errs.AlreadyExists, store.ReasonPriceExists, "%d of %d prices are there with other rates; nothing was added", len(at), len(prices)).
		Hint("let the new prices begin later; prices are never changed")
	for _, i := range at {
		p := prices[i]
		err = err.Violate(fmt.Sprintf("prices[%d]", i), store.ReasonPriceExists,
			fmt.Sprintf("model %q of provider %q has another price from %s on", p.Model, p.Provider, p.ValidFrom.Format(time.RFC3339)))
	}
	return err
}
