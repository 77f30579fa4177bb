package feed

import (
	"context"
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file keeps what is said in a chat in order: a message waits until the one before it was sent, or given
// up. Which were sent is remembered as requests are.

// methodSaid is the method of the requests by which it is remembered that a message was sent.
const methodSaid = "Chat/said"

// patience is how long a message waits for the one before it, which a server may refuse for hours.
const patience = time.Minute

// saidAt is the last message of an assistant in a thread before an item, unless something else stands
// between. The item is none if there is no such message, or no thread any more.
func (d *Deliveries) saidAt(ctx context.Context, namespace, id string, before int64) (it thread.Item, text string, err error) {
	if id == "" {
		return it, "", nil
	}
	items, err := d.itemBefore(ctx, namespace, id, before)
	if err != nil || len(items) == 0 {
		return it, "", err
	}
	var m struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	if items[0].Kind != workgraph.ThreadMessage || json.Unmarshal(items[0].Body, &m) != nil || m.Role != "assistant" {
		return it, "", nil
	}
	return items[0], m.Content, nil
}

// itemBefore is the item of a thread before another one, or the last one if that is 0.
func (d *Deliveries) itemBefore(ctx context.Context, namespace, id string, before int64) ([]thread.Item, error) {
	segments, err := d.journal.Lineage(ctx, namespace, id)
	if errs.ReasonOf(err) == thread.ReasonNotFound || err == nil && len(segments) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := segments[0]
	if before > 0 {
		at.Last = min(at.Last, before-1)
	}
	return d.journal.SegmentItems(ctx, namespace, at, thread.Selection{Limit: 1, Body: true, Origin: true})
}

// before notes the message that must have been sent before a delivery.
func (d *Deliveries) before(ctx context.Context, out *webhook.Delivery, a webhook.Args) error {
	at := a.Seq
	if out.Said == "" {
		at = 0 // a question, or the end: all that was said stands before it
	}
	it, _, err := d.saidAt(ctx, a.Namespace, a.Thread, at)
	if err == nil && it.Seq > 0 {
		out.Before, out.BeforeTime = webhook.Args{Thread: a.Thread, Seq: it.Seq}.Said(), it.Time
	}
	return err
}

// Waits reports whether the message before a delivery is still to be sent.
func (d *Deliveries) Waits(ctx context.Context, x *webhook.Delivery) (bool, error) {
	if x.Before == "" || dbkit.Now().Sub(x.BeforeTime) > patience {
		return false, nil
	}
	run, _, err := d.journal.Requested(ctx, x.Message.Namespace, methodSaid, x.Before)
	return run == "", err
}

// Sent remembers that a delivery needs no further try, for those that wait for it.
func (d *Deliveries) Sent(ctx context.Context, x *webhook.Delivery) error {
	if x.Said == "" {
		return nil
	}
	_, err := d.journal.Enqueue(ctx, journal.EnqueueRequest{Idle: true, Request: journal.Request{Method: methodSaid, ID: x.Said},
		Command: journal.Command{Namespace: x.Message.Namespace, RunID: x.Message.RootRunID, Kind: journal.CommandSignal, Time: dbkit.Now()}})
	return err
}
