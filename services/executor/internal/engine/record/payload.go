package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Payload is the body of a command, as JSON. Each kind uses the fields named at it.
type Payload struct {
	// RequestID is the id of the request that wrote it; it goes into the event.
	RequestID string `json:"request_id,omitempty"`
	// Reason is that of CANCEL, PAUSE and RESUME.
	Reason string `json:"reason,omitempty"`
	// Principal is who wrote it, from the API key that was shown; it goes into the event.
	Principal string `json:"principal,omitempty"`
	// By is who says so, of RECONCILE, AMEND, ANSWER and COMPLETION.
	By string `json:"by,omitempty"`
	// Ref is the visit of RECONCILE, COMPLETION and CHILD_ENDED, and that whose call sends a MESSAGE in its
	// node's name.
	Ref workgraph.Ref `json:"ref,omitzero"`
	// Attempt is that of COMPLETION whose outcome began the wait, and that of the call that sends a MESSAGE.
	Attempt int `json:"attempt,omitempty"`
	// Outcome or Err is what RECONCILE and COMPLETION say.
	Outcome *workgraph.Outcome `json:"outcome,omitempty"`
	Err     *workgraph.Error   `json:"error,omitempty"`
	// InterruptID, Decision and Payload are an ANSWER.
	InterruptID string `json:"interrupt_id,omitempty"`
	Decision    string `json:"decision,omitempty"`
	// Name is that of a SIGNAL, From and Node are of a MESSAGE; Payload is what either carries.
	Name    string          `json:"name,omitempty"`
	From    string          `json:"from,omitempty"`
	Node    string          `json:"node,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Slot and Usage are those of CHILD_ENDED.
	Slot  *workgraph.ChildSlot `json:"slot,omitempty"`
	Usage []workgraph.Usage    `json:"usage,omitempty"`
	// Spent is what counts against the parent's budget, of CHILD_ENDED.
	Spent *workgraph.Spent `json:"spent,omitempty"`
	// Unsettled is what the child could not price, of CHILD_ENDED.
	Unsettled []workgraph.Unsettled `json:"unsettled,omitempty"`
	// Budget is what RESUME gives; Raise says that it gives more and does nothing else.
	Budget *workgraph.Budget `json:"budget,omitempty"`
	Raise  bool              `json:"raise,omitempty"`
	// Totals are what the child's row says that it used.
	Totals *journal.Usage `json:"totals,omitempty"`
	// Graph is the whole graph that AMEND goes over to, in its stored form, and Revision the one it was made
	// for.
	Graph    json.RawMessage `json:"graph,omitempty"`
	Revision int64           `json:"revision,omitempty"`
	// Trace is the trace context of the request that wrote it, or of the run that it comes from.
	Trace outbox.Trace `json:"trace,omitzero"`
}

// Encode returns the payload as commands.Body.
func (l *Payload) Encode() ([]byte, error) { return json.Marshal(l) }

// DecodePayload reads the body of a command.
func DecodePayload(body []byte) (*Payload, error) {
	l := &Payload{}
	if len(body) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(body, l); err != nil {
		return nil, fmt.Errorf("decode commands: %w", err)
	}
	return l, nil
}

// Command is the command of the machine for a payload of this kind; nil for AMEND, which needs the run's
// actors: see amendment.
func (l *Payload) Command(kind journal.CommandKind, now time.Time) workgraph.Command {
	switch kind {
	case journal.CommandCancel:
		return workgraph.Cancel{Reason: l.Reason, Now: now}
	case journal.CommandPause:
		return workgraph.Pause{Reason: l.Reason, Now: now}
	case journal.CommandResume:
		return workgraph.Resume{Reason: l.Reason, Budget: l.Budget, Raise: l.Raise, Now: now}
	case journal.CommandReconcile:
		return workgraph.Reconcile{Ref: l.Ref, Outcome: l.Outcome, Err: l.Err, By: l.By, Now: now}
	case journal.CommandAnswer:
		return workgraph.Answered{ID: l.InterruptID, Answer: l.Payload, Decision: l.Decision, By: l.By, Now: now}
	case journal.CommandCompletion:
		return workgraph.AttemptCompleted{Ref: l.Ref, Attempt: l.Attempt, Outcome: l.Outcome, Err: l.Err, By: l.By, Now: now}
	case journal.CommandSignal:
		return workgraph.Signaled{Name: l.Name, Payload: l.Payload, Now: now}
	case journal.CommandMessage:
		return workgraph.Delivered{From: l.From, Node: l.Node, Call: l.Ref, Attempt: l.Attempt, Message: l.Payload, Now: now}
	case journal.CommandChildEnded:
		slot := workgraph.ChildSlot{}
		if l.Slot != nil {
			slot = *l.Slot
		}
		slot.Usage, slot.Spent, slot.Unsettled = l.Usage, l.Spent, l.Unsettled
		return workgraph.ChildEnded{Ref: l.Ref, Slot: slot, Now: now}
	}
	return nil
}
