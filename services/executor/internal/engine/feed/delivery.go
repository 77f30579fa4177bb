package feed

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// QuarantineJobs are the jobs that look for webhooks of a quarantined run. An executor that takes a run
// over does not know the run's webhooks, so the jobs find out.
func QuarantineJobs(ref journal.RunRef) []journal.Job {
	return []journal.Job{webhook.Args{Namespace: ref.Namespace, RunID: ref.RunID, Event: webhook.RunPaused, Seq: ref.LastSeq, Hook: webhook.AllHooks}.Job()}
}

// Deliveries makes the messages for webhooks. It is safe for concurrent use.
type Deliveries struct {
	journal journal.Journal
	booked  *Booked
}

// NewDeliveries returns Deliveries that read runs from a journal.
func NewDeliveries(j journal.Journal, booked *Booked) *Deliveries { return &Deliveries{j, booked} }

// Of is the message that a job of kind JobWebhook delivers. It is nil if there is nothing to deliver, or no
// longer.
func (d *Deliveries) Of(ctx context.Context, args []byte) (*webhook.Delivery, error) {
	a, err := webhook.DecodeArgs(args)
	if err != nil {
		return nil, err
	}
	row, err := d.journal.Get(ctx, a.Namespace, a.RunID)
	if err != nil {
		return nil, err
	}
	holder := row
	if a.Holder() != row.ID {
		if holder, err = d.journal.Head(ctx, a.Namespace, a.Holder()); err != nil {
			return nil, err
		}
	}
	m, err := record.DecodeMetadata(holder.Metadata)
	if err != nil {
		return nil, err
	}
	if a.Hook == webhook.AllHooks {
		var jobs []journal.Job
		for _, a.Hook = range webhook.Wanting(m.Webhooks, a.Event) {
			jobs = append(jobs, a.Job())
		}
		if len(jobs) == 0 {
			return nil, nil
		}
		return nil, d.journal.InsertJobs(ctx, a.Namespace, jobs)
	}
	if a.Hook < 0 || a.Hook >= len(m.Webhooks) {
		return nil, nil
	}
	if a.Event == webhook.ChatSaid && !m.Webhooks[a.Hook].Wants(a.Event) {
		return nil, nil
	}
	out := &webhook.Delivery{Hook: m.Webhooks[a.Hook], Trace: tracing.FirstValid(tracing.Span(outbox.Trace{Parent: a.TraceParent, State: a.TraceState}), tracing.OfRun(row))}
	out.Message = webhook.Message{
		ID: a.ID(), Type: a.Event, Namespace: row.Namespace, RunID: row.ID, RootRunID: row.RootID, Sequence: a.Seq, GraphName: row.GraphName, TaskID: row.TaskID,
		BusinessKey: row.BusinessKey, Labels: row.Labels, Link: "/v1/runs/" + row.ID,
	}
	own, err := record.DecodeMetadata(row.Metadata)
	if err != nil {
		return nil, err
	}
	out.Message.Metadata = own.User
	if err := d.fill(ctx, &out.Message, row, a); err != nil || out.Message.Time.IsZero() {
		return nil, err
	}
	if out.Hook.Chat != nil && out.Hook.Wants(webhook.ChatSaid) {
		if a.Thread == "" {
			a.Thread = row.ThreadID
		} else {
			out.Said = a.Said()
		}
		err = d.before(ctx, out, a)
	}
	return out, err
}

// fill adds to a message what the event has and the row has not. An event without a time does not exist.
func (d *Deliveries) fill(ctx context.Context, m *webhook.Message, row journal.Run, a webhook.Args) error {
	state := func(s journal.State) string { return "RUN_STATE_" + s.String() }
	switch a.Event {
	case webhook.ChatSaid:
		it, text, err := d.saidAt(ctx, a.Namespace, a.Thread, a.Seq+1)
		if err != nil || it.Seq != a.Seq {
			return err
		}
		m.Text, m.Time = text, it.Time
	case webhook.RunEnded:
		m.State, m.Reason, m.Time = state(row.State), row.Reason, row.EndTime
		if row.Usage.Calls > 0 {
			b, err := d.booked.Await(ctx, row.Namespace, row.ID, bookTime)
			if err != nil {
				return err
			}
			m.UnbookedAttempts = b.Waiting
		}
		switch {
		case row.State != journal.StateCompleted && string(row.Result) == "null": // it has no result
		case len(row.Result) > webhook.MaxValue:
			m.ResultOmitted = true
		default:
			m.Result = row.Result
		}
		if len(row.Error) > 0 {
			var x record.RunError
			if err := json.Unmarshal(row.Error, &x); err != nil {
				return err
			}
			m.Error = &webhook.Error{Reason: x.Reason, Message: phrase.Clean(x.Message, record.MaxMessage), NodeID: x.Node, Visit: x.Visit}
			if x.Type != "" {
				m.Error.Type = "ERROR_TYPE_" + string(x.Type)
			}
		}
	case webhook.RunPaused:
		rows, err := d.journal.Events(ctx, a.Namespace, a.RunID, a.Seq-1, 1)
		if err != nil {
			return err
		}
		for _, ev := range rows {
			happened, err := record.DecodeEvent(ev)
			if err != nil {
				return err
			}
			m.State, m.Reason, m.Time = state(journal.StatePaused), happened.Reason, happened.At
			if happened.Reason == journal.ReasonQuarantined {
				m.State = state(journal.StateQuarantined)
			}
		}
	case webhook.InterruptOpened:
		q, err := d.journal.GetInterrupt(ctx, a.Namespace, a.InterruptID)
		if err != nil {
			return err
		}
		m.Time = q.CreateTime
		m.Interrupt = &webhook.Interrupt{ID: q.ID, NodeID: q.NodeID, Visit: q.Visit, Item: q.Item, Prompt: q.Prompt, Schema: q.Schema, Approve: q.Approve,
			ExpireTime: q.ExpireTime, Link: "/v1/interrupts/" + q.ID}
		if len(q.Approve) > 0 {
			m.Interrupt.ApproveHash = workgraph.ApproveHash(q.Approve, q.Binds)
		}
		if len(q.Prompt)+len(q.Schema)+len(q.Approve) > webhook.MaxValue {
			m.Interrupt.Prompt, m.Interrupt.Schema, m.Interrupt.Approve, m.Interrupt.Omitted = nil, nil, nil, true
		}
	}
	return nil
}
