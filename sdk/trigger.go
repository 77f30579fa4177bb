package epigraph

import (
	"context"
	"iter"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// Triggers are what starts one workflow of the catalog beside calls, such as webhooks and the clock. It holds
// no connection of its own.
type Triggers struct {
	// Workflow is NAME, NAME@VERSION or NAME@ALIAS. Without a version they follow the newest one.
	Workflow string
	c        *Client
}

// Triggers are those of a workflow; nothing is asked.
func (c *Client) Triggers(workflow string) *Triggers { return &Triggers{Workflow: workflow, c: c} }

func (c *Client) triggers() executorv1.TriggerServiceClient {
	return executorv1.NewTriggerServiceClient(c.conn)
}

// Activate turns the triggers on that the definition of the workflow names. The secret of a webhook is
// shown in the answer that makes it, and never again.
func (t *Triggers) Activate(ctx context.Context) (*executorv1.TriggerActivation, error) {
	return t.c.triggers().ActivateTriggers(ctx, &executorv1.ActivateTriggersRequest{Workflow: t.Workflow})
}

// Deactivate turns the triggers off. Runs that were started go on.
func (t *Triggers) Deactivate(ctx context.Context) (*executorv1.TriggerActivation, error) {
	return t.c.triggers().DeactivateTriggers(ctx, &executorv1.DeactivateTriggersRequest{Workflow: t.Workflow})
}

// List returns the triggers of the workflow. An error is the last pair.
func (t *Triggers) List(ctx context.Context) iter.Seq2[*executorv1.Trigger, error] {
	return t.c.ListTriggers(ctx, &executorv1.ListTriggersRequest{Workflow: t.Workflow})
}

// ListTriggers returns the triggers that match the filter; nil matches all of the namespace. An error is the
// last pair.
func (c *Client) ListTriggers(ctx context.Context, filter *executorv1.ListTriggersRequest) iter.Seq2[*executorv1.Trigger, error] {
	return all(func(token string) ([]*executorv1.Trigger, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.triggers().ListTriggers(ctx, req)
		return m.GetTriggers(), m.GetNextPageToken(), err
	})
}

// Trigger reads a trigger by its id, without its secret.
func (c *Client) Trigger(ctx context.Context, id string) (*executorv1.Trigger, error) {
	return c.triggers().GetTrigger(ctx, &executorv1.GetTriggerRequest{TriggerId: id})
}

// RotateTriggerSecret gives a webhook another secret and returns it; it is not shown again.
func (c *Client) RotateTriggerSecret(ctx context.Context, id string) (*executorv1.Trigger, error) {
	return c.triggers().RotateTriggerSecret(ctx, &executorv1.RotateTriggerSecretRequest{TriggerId: id})
}

// ListTriggerDeliveries returns what became of events, the newest first; nil matches all of the namespace. An
// error is the last pair.
func (c *Client) ListTriggerDeliveries(ctx context.Context, filter *executorv1.ListTriggerDeliveriesRequest) iter.Seq2[*executorv1.TriggerDelivery, error] {
	return all(func(token string) ([]*executorv1.TriggerDelivery, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.triggers().ListTriggerDeliveries(ctx, req)
		return m.GetDeliveries(), m.GetNextPageToken(), err
	})
}

// TriggerDelivery reads a delivery by its id, with its event.
func (c *Client) TriggerDelivery(ctx context.Context, id string) (*executorv1.TriggerDelivery, error) {
	return c.triggers().GetTriggerDelivery(ctx, &executorv1.GetTriggerDeliveryRequest{DeliveryId: id})
}

// RepeatTriggerDelivery delivers an event again, as a delivery of its own, which starts another run.
func (c *Client) RepeatTriggerDelivery(ctx context.Context, id string) (*executorv1.TriggerDelivery, error) {
	return c.triggers().RepeatTriggerDelivery(ctx, &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: id})
}
