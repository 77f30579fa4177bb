package epigraph

import (
	"context"
	"iter"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Usage returns the booked calls of models and tools, each with its tokens and its cost. The filter names an
// epic, a task or a run; nil matches all of the namespace. Calls are booked a moment after they were made. An
// error is the last pair.
func (c *Client) Usage(ctx context.Context, filter *registryv1.ListUsageRequest) iter.Seq2[*registryv1.UsageEntry, error] {
	return all(func(token string) ([]*registryv1.UsageEntry, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.Registry.ListUsage(ctx, req)
		return m.GetEntries(), m.GetNextPageToken(), err
	})
}

// UsageReport returns the rows of a report, the dearest first. The request says what is grouped; an error is
// the last pair.
func (c *Client) UsageReport(ctx context.Context, report *registryv1.ReportUsageRequest) iter.Seq2[*registryv1.ReportRow, error] {
	return all(func(token string) ([]*registryv1.ReportRow, string, error) {
		req := copyOf(report)
		req.PageToken = token
		m, err := c.Registry.ReportUsage(ctx, req)
		return m.GetRows(), m.GetNextPageToken(), err
	})
}

// NamespaceUsage is what the namespace has used in all.
func (c *Client) NamespaceUsage(ctx context.Context) (*registryv1.NamespaceUsage, error) {
	return c.Registry.GetNamespaceUsage(ctx, &registryv1.GetNamespaceUsageRequest{})
}

// SetPrice adds a price of a model to the price book, from its valid_from on. Money is in nano-USD.
func (c *Client) SetPrice(ctx context.Context, p *registryv1.Price) (*registryv1.Price, error) {
	return c.Registry.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: p})
}

// Prices returns the price book. A provider or a model that is not empty selects its entries. An error is the
// last pair.
func (c *Client) Prices(ctx context.Context, provider, model string) iter.Seq2[*registryv1.Price, error] {
	return all(func(token string) ([]*registryv1.Price, string, error) {
		m, err := c.Registry.ListPrices(ctx, &registryv1.ListPricesRequest{Provider: provider, Model: model, PageToken: token, PageSize: largePage})
		return m.GetPrices(), m.GetNextPageToken(), err
	})
}

// Budget is what "namespace", "epic/ID" or "task/ID" may spend, and what it has spent.
func (c *Client) Budget(ctx context.Context, name string) (*registryv1.Budget, error) {
	return c.Registry.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: name})
}

// SetBudget replaces the caps of the namespace, an epic or a task. If the budget has an etag, the caps
// must still be those that were read with it.
func (c *Client) SetBudget(ctx context.Context, b *registryv1.Budget) (*registryv1.Budget, error) {
	return c.Registry.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: b})
}
