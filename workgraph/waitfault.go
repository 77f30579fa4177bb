package workgraph

import (
	"encoding/json"
	"fmt"
)

// waitFault says what is wrong with a wait. It is empty if nothing is.
func waitFault(w *Wait) string {
	switch w.kind() {
	case WaitTimer:
	case WaitChildren:
		return childrenFault(w.Children)
	case WaitInterrupt:
		return interruptFault(w.Interrupt)
	case WaitCompletion:
		if w.Completion.Timeout < 0 {
			return "the completion's timeout is negative"
		}
	case WaitSignal:
		switch n := len(w.Signal.Name); {
		case n == 0 || n > maxSignalName:
			return fmt.Sprintf("the signal's name has %d bytes, 1 to %d are allowed", n, maxSignalName)
		case w.Signal.Timeout < 0:
			return "the signal's timeout is negative"
		}
	default:
		return "a wait must ask for exactly one of timer, children, interrupt, completion and signal"
	}
	return ""
}

func childrenFault(c *Children) string {
	switch {
	case len(c.Runs) > MaxChildren:
		return fmt.Sprintf("%d children are more than %d: spawn them in batches", len(c.Runs), MaxChildren)
	case c.Timeout < 0:
		return "the timeout for the children is negative"
	case c.AsResult && c.Bare:
		return "as_result and bare exclude each other"
	case c.AsResult && len(c.Runs) != 1:
		return fmt.Sprintf("as_result lets one run stand for the visit, not %d", len(c.Runs))
	}
	ids := make(map[string]bool, len(c.Runs))
	for i := range c.Runs {
		r := &c.Runs[i]
		switch {
		case r.ID == "" || len(r.ID) > maxWaitID || ids[r.ID]:
			return fmt.Sprintf("the id %.40q of child %d is empty, too long or used twice", r.ID, i+1)
		case (r.Graph == nil) == (r.Ref == ""):
			return fmt.Sprintf("child %d must name exactly one of graph and ref", i+1)
		case r.Budget.Fault() != "":
			return fmt.Sprintf("the budget of child %d: %s", i+1, r.Budget.Fault())
		}
		ids[r.ID] = true
		if fault := inputFault(&r.Input); fault != "" {
			return fmt.Sprintf("child %d: %s", i+1, fault)
		}
	}
	return ""
}

func interruptFault(q *Interrupt) string {
	switch {
	case q.ID == "" || len(q.ID) > maxWaitID:
		return "the interrupt's id is empty or too long"
	case q.Timeout < 0:
		return "the interrupt's timeout is negative"
	case len(q.Default) > 0 && q.Timeout == 0:
		return "the interrupt has a default, but no timeout after which it would hold"
	}
	for _, part := range [...]struct {
		name string
		raw  json.RawMessage
	}{{"prompt", q.Prompt}, {"schema", q.Schema}, {"default", q.Default}, {"approve", q.Approve}} {
		if len(part.raw) == 0 {
			continue
		}
		if fault := ValueFault(part.raw); fault != "" {
			return "the interrupt's " + part.name + " " + fault
		}
	}
	if len(q.Approve) > 0 && len(q.Default) > 0 && defaultDecision(q) == "" {
		return `the default of an approval must be "APPROVED" or "REJECTED"`
	}
	return ""
}

// The decisions of an approval.
const (
	Approved = "APPROVED"
	Rejected = "REJECTED"
)

func defaultDecision(q *Interrupt) string {
	var text string
	if json.Unmarshal(q.Default, &text) == nil && (text == Approved || text == Rejected) {
		return text
	}
	return ""
}
