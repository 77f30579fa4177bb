package trigger

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workflow"
)

// Chat finds the active chat trigger of a workflow. ok is false if it has none.
func (c *Controller) Chat(ctx context.Context, namespace, name string) (t Trigger, ok bool, err error) {
	for after := ""; ; {
		list, err := c.store.List(ctx, namespace, name, after, checkBatch)
		if err != nil {
			return Trigger{}, false, err
		}
		for i := range list {
			if list[i].State == Active && list[i].Spec.Type == workflow.ChatTrigger {
				return list[i], true, nil
			}
		}
		if len(list) < checkBatch {
			return Trigger{}, false, nil
		}
		after = list[len(list)-1].ID
	}
}

// Hear is Receive for a caller that carries the delivery out itself, by start, and waits for what comes
// of it. Another message under the same request is refused, and nothing is noted of it. start may be done
// again, as Runs.Start may: also of an event that came before, and by the job of the delivery if the caller
// dies. What start refuses is refused for good, since the caller is told.
func (c *Controller) Hear(ctx context.Context, e Event, start func(ctx context.Context, d *Delivery) (runID string, err error)) (Delivery, error) {
	e.Spare = spare
	d, err := c.Receive(ctx, e)
	if err != nil {
		return d, err
	}
	if d.Repeated && d.BodyHash != e.BodyHash {
		return d, journal.RequestIDReused(e.Request) // the first message stays what it is
	}
	runID, err := start(ctx, &d)
	switch now := dbkit.Now(); {
	case d.Status == Started, ctx.Err() != nil:
		return d, err
	case err == nil:
		d.Attempts++
		d.started(now, runID)
	case final(err) || errs.Is(err, errs.ResourceExhausted):
		of := errs.From(err)
		d.refuse(now, of.Reason, of.Message)
	default:
		return d, err // nobody knows what came of it, so that the job looks
	}
	if rerr := c.store.Record(ctx, d); rerr != nil {
		c.log.InfoContext(ctx, "delivery of a trigger is recorded by its job", "err", rerr, "delivery_id", d.ID)
		return d, err
	}
	c.count(ctx, &Trigger{Spec: workflow.Trigger{Type: workflow.ChatTrigger}}, &d)
	return d, err
}
