package feed

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file keeps what is said in a chat in order: a message waits until those before it were sent, or
// given up. Which were sent is remembered as requests are, until their jobs are known to have ended.

// methodSaid is the method of the requests by which it is remembered that a message was sent.
const methodSaid = "Chat/said"

// maxBehind is how many messages of a thread are looked through for the last one before an event.
const maxBehind = 100

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

// before notes which messages of the thread must have been sent before a delivery.
func (d *Deliveries) before(ctx context.Context, out *webhook.Delivery, a webhook.Args) error {
	out.Thread, out.Before = a.Thread, a.Seq
	if out.Said != "" || a.Thread == "" {
		return nil
	}
	// A question, or the end: what was said until then stands before it.
	segments, err := d.journal.Lineage(ctx, a.Namespace, a.Thread)
	if errs.ReasonOf(err) == thread.ReasonNotFound || err == nil && len(segments) == 0 {
		out.Thread = ""
		return nil
	}
	if err != nil {
		return err
	}
	items, err := d.journal.SegmentItems(ctx, a.Namespace, segments[0], thread.Selection{Kinds: []thread.Kind{workgraph.ThreadMessage}, Limit: maxBehind, Origin: true})
	out.Before = 0
	for i := range items {
		if out.Before = items[i].Seq; !items[i].Time.After(out.Message.Time) {
			out.Before++
			break
		}
	}
	return err
}

// Waits reports whether a message before a delivery is still to be sent, however long that takes.
func (d *Deliveries) Waits(ctx context.Context, x *webhook.Delivery) (bool, error) {
	if x.Thread == "" || x.Before <= 1 {
		return false, nil
	}
	seq, err := d.journal.LastUnsent(ctx, x.Message.Namespace, x.Thread, x.Before)
	if err != nil || seq == 0 {
		return false, err
	}
	// Those before that one were sent before it. Its job may end a moment later.
	run, _, err := d.journal.Requested(ctx, x.Message.Namespace, methodSaid, webhook.Args{Thread: x.Thread, Seq: seq}.Said())
	return run == "", err
}

// Sent remembers that a delivery needs no further try, and wakes those that wait for it, at whichever
// executor.
func (d *Deliveries) Sent(ctx context.Context, x *webhook.Delivery) error {
	if x.Said == "" {
		return nil
	}
	_, err := d.journal.Enqueue(ctx, journal.EnqueueRequest{Idle: true, Request: journal.Request{Method: methodSaid, ID: x.Said},
		Command: journal.Command{Namespace: x.Message.Namespace, RunID: x.Message.RootRunID, Kind: journal.CommandSignal, Time: dbkit.Now()}})
	if err != nil {
		return err
	}
	return d.journal.WakeUnsent(ctx, x.Message.Namespace, x.Thread, x.Before)
}
