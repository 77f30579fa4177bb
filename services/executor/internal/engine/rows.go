package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// reasonParent is the reason of the cancel of children.
const reasonParent = "PARENT_GAVE_UP"

// relatedCommands adds the commands to other runs that a decision causes: to children that should end, and to
// the parent that waits for this run.
func (r *run) relatedCommands(w *journal.Append, eff workgraph.Effects, now time.Time) error {
	for _, s := range eff.Spawns {
		if _, known := r.children[s.Child.ID]; !known {
			r.children[s.Child.ID] = false
		}
	}
	for _, id := range eff.CancelChildren {
		delete(r.children, id)
		body, err := (&record.Payload{Reason: reasonParent, Trace: tracing.OfSpan(r.trace)}).Encode()
		if err != nil {
			return fmt.Errorf("encode cancel of child: %w", err)
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: id, Kind: journal.CommandCancel, Key: "parent", Body: body, Time: now})
	}
	if eff.Ended == nil || r.lineage.Parent == "" {
		return nil
	}
	body, err := r.childEnded(eff.Ended).Encode()
	if err != nil {
		return fmt.Errorf("encode end of child: %w", err)
	}
	w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: r.lineage.Parent, Kind: journal.CommandChildEnded, Key: r.id, Body: body, Time: now})
	// This executor continues the parent, if no other owns it.
	w.Claims = r.t.canClaim()
	return nil
}

// steerChildren hands a pause of somebody, the end of one, and a stop on to the children under way. A child
// that was paused for a reason of its own stays paused.
func (r *run) steerChildren(w *journal.Append, evs []workgraph.Event, x extra, now time.Time) error {
	if len(evs) == 0 || x.from.id == 0 {
		return nil
	}
	kind, reason, step := journal.CommandPause, workgraph.ReasonParentPaused, false
	switch evs[0].Kind {
	case workgraph.RunPaused:
	case workgraph.RunResumed:
		kind, reason, step = journal.CommandResume, workgraph.ReasonParentResumed, evs[0].Step
	case workgraph.StopRequested:
		kind, reason = journal.CommandStop, workgraph.ReasonParentStopped
	default:
		return nil
	}
	for _, s := range r.State.Spawns() {
		body, err := (&record.Payload{Reason: reason, Step: step, Trace: tracing.OfSpan(r.trace)}).Encode()
		if err != nil {
			return fmt.Errorf("encode %s of child: %w", kind, err)
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: s.Child.ID, Kind: kind, Key: fmt.Sprintf("parent/%d", r.Seq), Body: body, Time: now})
	}
	return nil
}

// childEnded is the message to the parent about the end of the run. Results that are too large for the parent
// are replaced by an error that says so.
func (r *run) childEnded(end *workgraph.RunEnd) *record.Payload {
	slot := &workgraph.ChildSlot{RunID: r.id, Status: end.Status, Reason: end.Reason}
	if e := record.NewRunError(end); e != nil {
		slot.Error = &workgraph.Error{Type: e.Type, Reason: e.Reason, Message: phrase.Clean(e.Message, record.MaxMessage)}
		if slot.Error.Type == "" {
			slot.Error.Type = workgraph.Permanent
		}
	}
	if text, left := actor.LeftFor(end.Message); left && end.Status == workgraph.StatusCanceled {
		slot.Error = actor.AnotherRequest(text) // whoever is above hears it
	}
	size := len(end.Result)
	for k, v := range end.Outputs {
		size += len(k) + len(v)
	}
	switch limit := r.t.e.cfg.MaxPayload / 2; {
	case size <= limit:
		slot.Result, slot.Outputs = end.Result, end.Outputs
	default:
		slot.Error = workgraph.Errorf(workgraph.Permanent, journal.ReasonPayloadTooLarge,
			"the child's results have %d bytes, a parent takes %d: they can be read from run %s", size, limit, r.id)
	}
	totals := r.usage
	l := &record.Payload{Ref: r.lineage.Ref, Slot: slot, Usage: r.State.Usage(), Totals: &totals, Unsettled: slices.Clone(r.State.Unsettled()),
		Trace: tracing.OfSpan(r.trace)}
	if r.State.Budget() != nil {
		used := r.State.Spent()
		l.Spent = &used
	}
	return l
}

// interruptRows puts the rows of opened and closed interrupts into w.
func (r *run) interruptRows(w *journal.Append, eff workgraph.Effects, now time.Time) {
	for _, o := range eff.Opened {
		q := &o.Interrupt
		w.Opened = append(w.Opened, journal.Interrupt{ID: q.ID, Namespace: r.namespace, RunID: r.id, RootID: r.root, NodeID: o.Node,
			Visit: int32(min(o.Visit, 1<<31-1)), Item: int32(min(o.Item, 1<<31-1)), State: journal.InterruptOpen, Prompt: q.Prompt, Schema: q.Schema,
			Approve: q.Approve, Binds: o.Binds, Default: q.Default, OfAgent: q.OfAgent, CreateTime: now, ExpireTime: o.Due})
	}
	for _, c := range eff.Closed {
		state := journal.InterruptAnswered
		switch c.How {
		case workgraph.InterruptExpired:
			state = journal.InterruptExpired
		case workgraph.InterruptCanceled:
			state = journal.InterruptCanceled
		}
		w.Closed = append(w.Closed, journal.Closing{ID: c.ID, State: state, Answer: c.Answer, Decision: c.Decision, By: c.By, Time: now})
	}
}
