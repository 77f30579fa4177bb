package record

import (
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// VisitWait is what a visit waits for.
type VisitWait struct {
	workgraph.Ref
	Kind workgraph.WaitKind
	// Attempt is the attempt whose outcome began the wait.
	Attempt int
	// Due is when the wait ends by itself; zero if it does not.
	Due time.Time
	// Children are the spawned runs, in the order of the request.
	Children []string
	// Interrupt is the id of the interrupt.
	Interrupt string
	Signal    string
}

// WaitOf is the wait that the end of an attempt began; nil if it began none.
func (d *Durable) WaitOf() *VisitWait {
	if d.Kind != workgraph.AttemptEnded || d.Outcome == nil || d.Outcome.Wait == nil {
		return nil
	}
	w := &VisitWait{Ref: d.Ref, Attempt: d.Attempt}
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpWait && s.Node == d.Node && s.Visit == d.Visit && s.Item == d.Item && s.Detail != nil {
			w.Due = s.Due
		}
	}
	switch o := d.Outcome.Wait; {
	case o.Timer != nil:
		w.Kind = workgraph.WaitTimer
	case o.Children != nil:
		w.Kind = workgraph.WaitChildren
		for i := range o.Children.Runs {
			w.Children = append(w.Children, o.Children.Runs[i].ID)
		}
	case o.Interrupt != nil:
		w.Kind, w.Interrupt = workgraph.WaitInterrupt, o.Interrupt.ID
	case o.Completion != nil:
		w.Kind = workgraph.WaitCompletion
	case o.Signal != nil:
		w.Kind, w.Signal = workgraph.WaitSignal, o.Signal.Name
	}
	return w
}

// NeverBegan reports whether the event ends an attempt that was canceled before it began.
func (d *Durable) NeverBegan() bool {
	return d.Kind == workgraph.AttemptEnded && d.StartTime.IsZero() && d.Error != nil && d.Error.Type == workgraph.NotPerformed
}
