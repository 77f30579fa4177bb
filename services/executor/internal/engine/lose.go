package engine

import (
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// lose gives up a run whose decisions cannot become durable: they must be forgotten, so the run is read again
// from what is. It may be called with r.mu held.
func (t *session) lose(r *run, cause error) {
	if r.gone.Swap(true) {
		return
	}
	r.retire(errDropped)
	t.remove(r)
	switch errs.ReasonOf(cause) {
	case journal.ReasonFenced, journal.ReasonWriterStopped:
		return
	case journal.ReasonNotOwner, journal.ReasonRunNotFound:
		t.e.log.WarnContext(t.calls, "run belongs to another executor", "run_id", r.id)
		return
	}
	t.mu.Lock()
	l := t.losses[r.id]
	l.times, l.reason = l.times+1, errs.ReasonOf(cause)
	t.losses[r.id] = l
	t.mu.Unlock()
	t.e.log.ErrorContext(t.calls, "decision cannot be written; the run is read again", "err", cause, "run_id", r.id, "times", l.times)
	t.loadSoon(r.namespace, r.id)
}
