package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A run whose owners went down again and again without progress is a suspect: one more death quarantines it,
// if it was at work on its owner's processor then. So what a suspect does there is recorded before it is
// done, and suspects do it one at a time: whoever is found at work did it alone. To be read is work, whatever
// woke the run. Calls that are made elsewhere, timers and questions are no work here. Other runs pay nothing
// for all this.

const (
	// markTime bounds one record. Work is done all the same when it cannot be made: then a death is nobody's
	// fault.
	markTime = 5 * time.Second
	// maxDoing bounds in bytes what is recorded.
	maxDoing = 500
)

// errSuspectAtWork says that a suspect is not read before its turn.
var errSuspectAtWork = errors.New("engine: another suspect is at work")

// mark records that r, which is a suspect, begins to do something. The returned function, which must be
// called once, records that it has done it.
func (t *session) mark(r *run, doing string) (done func()) {
	doing = phrase.Clean(doing, maxDoing)
	r.marks.mu.Lock()
	r.marks.now = append(r.marks.now, doing)
	t.recordMarks(r, "")
	r.marks.mu.Unlock()
	return func() { t.unmark(r, doing) }
}

func (t *session) unmark(r *run, doing string) {
	r.marks.mu.Lock()
	defer r.marks.mu.Unlock()
	if i := slices.Index(r.marks.now, doing); i >= 0 {
		r.marks.now = slices.Delete(r.marks.now, i, i+1)
	}
	t.recordMarks(r, doing)
}

// record writes down what the run does now. The caller holds r.marks.mu, so that the last word stays.
func (t *session) recordMarks(r *run, harmless string) {
	t.writeMark(r.id, phrase.Clean(strings.Join(r.marks.now, ", "), maxDoing), harmless)
}

// says is record for a run that is not in memory yet.
func (t *session) writeMark(id, doing, harmless string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.background), markTime)
	defer cancel()
	err := t.e.journal.Mark(ctx, t.owner, id, doing, harmless)
	if err != nil && errs.ReasonOf(err) != journal.ReasonNotOwner && !journal.IsFenced(err) {
		t.e.log.WarnContext(ctx, "what a suspect does is not recorded", "err", err, "run_id", id)
	}
}

// watched waits for the turn of a suspect that is about to call an actor here, and records that.
func (t *session) takeSuspectTurn(ctx context.Context, a *attempt) (done func(), err error) {
	leave, err := t.e.suspects.Take(ctx)
	if err != nil {
		return nil, err
	}
	unmark := t.mark(a.run, a.start.Actor+" at "+a.start.Ref.String())
	return func() {
		unmark()
		leave()
	}, nil
}

// stepping records that a suspect evaluates expressions of its graph, unless something else that it does is
// recorded already. The caller holds r.mu, so it waits for no turn.
func (r *run) markStep(cmd workgraph.Command) (done func()) {
	if !r.suspect.Load() || !r.evaluates() || r.marks.any() {
		return func() {}
	}
	doing := "a step of the graph"
	if end, ok := cmd.(workgraph.Ended); ok {
		doing = "what follows " + end.Ref.String()
	}
	return r.t.mark(r, doing)
}
