package engine

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// webhookJobs asks, in the transaction of what was decided, for those to be told who want to know of it. A
// run without webhooks writes nothing here. The caller holds r.mu.
func (r *run) webhookJobs(w *journal.Append, evs []workgraph.Event, eff workgraph.Effects) {
	f := &r.lineage
	if len(f.hooks) == 0 && len(f.asks) == 0 {
		return
	}
	now := tracing.OfSpan(r.trace)
	say := func(hook int, a webhook.Args) {
		a.Namespace, a.RunID, a.Hook = r.namespace, r.id, hook
		a.TraceParent, a.TraceState = now.Parent, now.State
		w.Jobs = append(w.Jobs, a.Job())
	}
	for i := range evs {
		var what webhook.Event
		switch evs[i].Kind {
		case workgraph.RunEnded:
			what = webhook.RunEnded
		case workgraph.RunPaused:
			what = webhook.RunPaused
		default:
			continue
		}
		for _, hook := range webhook.Wanting(f.hooks, what) {
			say(hook, webhook.Args{Event: what, Seq: evs[i].Seq})
		}
	}
	for i := range eff.Opened {
		a := webhook.Args{Event: webhook.InterruptOpened, Seq: openedAt(evs, eff.Opened[i].Ref), InterruptID: eff.Opened[i].Interrupt.ID}
		if r.root != r.id {
			a.Of = r.root
		}
		for _, hook := range f.asks {
			say(hook, a)
		}
	}
}

// openedAt is the sequence of the event that opened the question of a visit.
func openedAt(evs []workgraph.Event, ref workgraph.Ref) int64 {
	seq := int64(0)
	for i := range evs {
		if evs[i].Kind == workgraph.AttemptEnded && evs[i].Ref == ref {
			return evs[i].Seq
		}
		seq = evs[i].Seq
	}
	return seq
}

// quarantineJobs asks for those to be told that want to know of the pause. Who takes a run's owner away knows
// nothing of its webhooks, so it is found out afterwards.
func quarantineJobs(ref journal.RunRef) []journal.Job {
	return []journal.Job{webhook.Args{Namespace: ref.Namespace, RunID: ref.RunID, Event: webhook.RunPaused, Seq: ref.LastSeq, Hook: webhook.AllHooks}.Job()}
}

// Delivery is what a job of kind JobWebhook is to deliver; nil if that is nothing (any more).
func (e *Engine) Delivery(ctx context.Context, args []byte) (*webhook.Delivery, error) {
	a, err := webhook.DecodeArgs(args)
	if err != nil {
		return nil, err
	}
	row, err := e.journal.Get(ctx, a.Namespace, a.RunID)
	if err != nil {
		return nil, err
	}
	holder := row
	if a.Holder() != row.ID {
		if holder, err = e.journal.Head(ctx, a.Namespace, a.Holder()); err != nil {
			return nil, err
		}
	}
	m, err := decodeMeta(holder.Metadata)
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
		return nil, e.journal.InsertJobs(ctx, a.Namespace, jobs)
	}
	if a.Hook < 0 || a.Hook >= len(m.Webhooks) {
		return nil, nil
	}
	d := &webhook.Delivery{Hook: m.Webhooks[a.Hook], Trace: tracing.FirstValid(tracing.Span(outbox.Trace{Parent: a.TraceParent, State: a.TraceState}), tracing.OfRun(row))}
	d.Message = webhook.Message{
		ID: a.ID(), Type: a.Event, Namespace: row.Namespace, RunID: row.ID, RootRunID: row.RootID, Sequence: a.Seq, GraphName: row.GraphName, TaskID: row.TaskID,
		BusinessKey: row.BusinessKey, Labels: row.Labels, Link: "/v1/runs/" + row.ID,
	}
	own, err := decodeMeta(row.Metadata)
	if err != nil {
		return nil, err
	}
	d.Message.Metadata = own.User
	if err := e.fillMessage(ctx, &d.Message, row, a); err != nil || d.Message.Time.IsZero() {
		return nil, err
	}
	return d, nil
}

// fillMessage adds what the event alone has. Without a time there is none.
func (e *Engine) fillMessage(ctx context.Context, m *webhook.Message, row journal.Run, a webhook.Args) error {
	state := func(s journal.State) string { return "RUN_STATE_" + s.String() }
	switch a.Event {
	case webhook.RunEnded:
		m.State, m.Reason, m.Time = state(row.State), row.Reason, row.EndTime
		if row.Usage.Calls > 0 {
			b, err := e.awaitAccounting(ctx, row.Namespace, row.ID, bookTime)
			if err != nil {
				return err
			}
			m.UnbookedAttempts = b.Waiting
		}
		switch {
		case row.State != journal.StateCompleted && string(row.Result) == "null": // it has none
		case len(row.Result) > webhook.MaxValue:
			m.ResultOmitted = true
		default:
			m.Result = row.Result
		}
		if len(row.Error) > 0 {
			var x RunError
			if err := json.Unmarshal(row.Error, &x); err != nil {
				return err
			}
			m.Error = &webhook.Error{Reason: x.Reason, Message: clean(x.Message, maxMessage), NodeID: x.Node, Visit: x.Visit}
			if x.Type != "" {
				m.Error.Type = "ERROR_TYPE_" + string(x.Type)
			}
		}
	case webhook.RunPaused:
		rows, err := e.journal.Events(ctx, a.Namespace, a.RunID, a.Seq-1, 1)
		if err != nil {
			return err
		}
		for _, ev := range rows {
			d, err := record.DecodeEvent(ev)
			if err != nil {
				return err
			}
			m.State, m.Reason, m.Time = state(journal.StatePaused), d.Reason, d.At
			if d.Reason == journal.ReasonQuarantined {
				m.State = state(journal.StateQuarantined)
			}
		}
	case webhook.InterruptOpened:
		q, err := e.journal.GetInterrupt(ctx, a.Namespace, a.InterruptID)
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
