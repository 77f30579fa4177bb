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

// A run is a suspect if its owners died again and again without progress. One more death quarantines it, if
// it was at work on its owner's processor then. So the work of a suspect there is recorded before it is done,
// and only one suspect works at a time: a suspect that is found at work was alone. Being read counts as work,
// whatever woke the run. Calls that are made elsewhere, timers and interrupts do not count. Other runs pay
// nothing for this.

const (
	// markTime bounds the write of one record. If it fails the work is done all the same, and a death is no
	// run's fault.
	markTime = 5 * time.Second
	// maxDoing bounds a record in bytes.
	maxDoing = 500
)

// errSuspectAtWork says that a suspect must wait for its turn before it is read.
var errSuspectAtWork = errors.New("engine: another suspect is at work")

// mark records that the suspect r begins to do something. The returned function, which must be called once,
// records that it has done so.
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

// recordMarks records what the run is doing now. The caller holds r.marks.mu, so that the last record stays.
func (t *session) recordMarks(r *run, harmless string) {
	t.writeMark(r.id, phrase.Clean(strings.Join(r.marks.now, ", "), maxDoing), harmless)
}

// writeMark writes a record, also of a run that is not in memory yet.
func (t *session) writeMark(id, doing, harmless string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.background), markTime)
	defer cancel()
	err := t.e.journal.Mark(ctx, t.owner, id, doing, harmless)
	if err != nil && errs.ReasonOf(err) != journal.ReasonNotOwner && !journal.IsFenced(err) {
		t.e.log.WarnContext(ctx, "the work of a suspect is not recorded", "err", err, "run_id", id)
	}
}

// takeSuspectTurn waits for the turn of a suspect that is about to call an actor here, and records the call.
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

// markStep records that a suspect evaluates expressions of its graph, unless other work of it is recorded
// already. The caller holds r.mu, so markStep does not wait for the turn.
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
