package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Payload is the payload of a command, as JSON. Each kind of command uses the fields that name it.
type Payload struct {
	// RequestID is the id of the request that wrote the command. It is copied to the event.
	RequestID string `json:"request_id,omitempty"`
	// Reason belongs to CANCEL, PAUSE, STOP, RESUME and LEAVE. Step belongs to RESUME.
	Reason string `json:"reason,omitempty"`
	Step   bool   `json:"step,omitempty"`
	// Principal is the caller that wrote the command, by the API key. It is copied to the event.
	Principal string `json:"principal,omitempty"`
	// By is the person that acts, as the client names it, of RECONCILE, AMEND, ANSWER and COMPLETION.
	By string `json:"by,omitempty"`
	// Ref is the visit of RECONCILE, COMPLETION and CHILD_ENDED, and the visit whose call sends a MESSAGE
	// in its node's name.
	Ref workgraph.Ref `json:"ref,omitzero"`
	// Attempt is the attempt of COMPLETION, and the attempt that sends a MESSAGE.
	Attempt int `json:"attempt,omitempty"`
	// Outcome or Err is the result in RECONCILE and COMPLETION.
	Outcome *workgraph.Outcome `json:"outcome,omitempty"`
	Err     *workgraph.Error   `json:"error,omitempty"`
	// InterruptID, Decision and Payload belong to ANSWER.
	InterruptID string `json:"interrupt_id,omitempty"`
	Decision    string `json:"decision,omitempty"`
	// Name belongs to SIGNAL, From and Node to MESSAGE. Payload is the content of either.
	Name    string          `json:"name,omitempty"`
	From    string          `json:"from,omitempty"`
	Node    string          `json:"node,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	// Slot and Usage belong to CHILD_ENDED.
	Slot  *workgraph.ChildSlot `json:"slot,omitempty"`
	Usage []workgraph.Usage    `json:"usage,omitempty"`
	// Spent counts against the parent's budget, in CHILD_ENDED.
	Spent *workgraph.Spent `json:"spent,omitempty"`
	// Unsettled are the calls that the child could not price, in CHILD_ENDED.
	Unsettled []workgraph.Unsettled `json:"unsettled,omitempty"`
	// Budget belongs to RESUME. Raise reports that the command only raises the budget.
	Budget *workgraph.Budget `json:"budget,omitempty"`
	Raise  bool              `json:"raise,omitempty"`
	// Totals is the usage in the child's row.
	Totals *journal.Usage `json:"totals,omitempty"`
	// Graph is the new graph of AMEND in its stored form. Revision is the revision for which it was made.
	Graph    json.RawMessage `json:"graph,omitempty"`
	Revision int64           `json:"revision,omitempty"`
	// Trace is the trace context of the request that wrote the command, or of the run that sent it.
	Trace outbox.Trace `json:"trace,omitzero"`
}

// Encode returns the payload as it is stored.
func (l *Payload) Encode() ([]byte, error) { return json.Marshal(l) }

// DecodePayload reads a stored payload.
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

// Command is the machine's command for a payload of this kind. It is nil for AMEND, which the engine
// builds, since it needs the actors of the run.
func (l *Payload) Command(kind journal.CommandKind, now time.Time) workgraph.Command {
	switch kind {
	case journal.CommandCancel:
		return workgraph.Cancel{Reason: l.Reason, Now: now}
	case journal.CommandPause:
		return workgraph.Pause{Reason: l.Reason, Now: now}
	case journal.CommandStop:
		return workgraph.EndLoops{Reason: l.Reason, Now: now}
	case journal.CommandResume:
		return workgraph.Resume{Reason: l.Reason, Step: l.Step, Budget: l.Budget, Raise: l.Raise, Now: now}
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
