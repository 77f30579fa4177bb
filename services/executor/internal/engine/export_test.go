package engine

import "github.com/epigraph-run/epigraph/workgraph"

// ReportBarred reports a queued attempt of a live run as one that found its run barred when it was to begin.
func (e *Engine) ReportBarred(runID, node string) bool {
	t := e.current()
	r := t.get(runID)
	for _, a := range r.inFlight() {
		if a.start.Node == node && t.sched.remove(a) {
			a.barred = true
			t.finish(a, nil, workgraph.Errorf(workgraph.NotPerformed, ReasonBudget, "barred"), carryContext(r.trace))
			t.writer.Lead(nil)
			return true
		}
	}
	return false
}
