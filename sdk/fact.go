package epigraph

import (
	"context"
	"iter"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func (c *Client) facts() executorv1.FactServiceClient {
	return executorv1.NewFactServiceClient(c.conn)
}

// Facts are what agents keep, those that were learned last first; nil finds all. An error is the last pair.
func (c *Client) Facts(ctx context.Context, filter *executorv1.ListFactsRequest) iter.Seq2[*executorv1.Fact, error] {
	return all(func(token string) ([]*executorv1.Fact, string, error) {
		req := copyOf(filter)
		req.PageSize, req.PageToken = largePage, token
		m, err := c.facts().ListFacts(ctx, req)
		return m.GetFacts(), m.GetNextPageToken(), err
	})
}

// DeleteFact removes a fact, until an agent learns it again. If there is none, the reason is FACT_NOT_FOUND.
func (c *Client) DeleteFact(ctx context.Context, id string) error {
	_, err := c.facts().DeleteFact(ctx, &executorv1.DeleteFactRequest{FactId: id})
	return err
}
