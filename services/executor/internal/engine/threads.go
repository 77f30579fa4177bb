package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// prepareThreads checks what an attempt adds to threads. A conflict that comes up only in the commit makes
// the run be read again, and this finds it then.
func (t *session) prepareThreads(ctx context.Context, a *attempt, of []workgraph.ThreadAppend) *workgraph.Error {
	if err := thread.Check(of); err != nil {
		return workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "%s", errs.From(err).Message)
	}
	if n := thread.Bytes(of); n > t.e.cfg.MaxPayload {
		return workgraph.Errorf(workgraph.Permanent, journal.ReasonPayloadTooLarge, "what is added to threads has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
	}
	err := t.untilAnswered(ctx, func() error {
		return thread.Examine(ctx, t.e.journal, t.e.threadEnds, a.run.namespace, a.run.id, of, t.e.cfg.ThreadRoom)
	})
	switch {
	case err == nil:
		return nil
	case thread.KeyTaken(err), errs.ReasonOf(err) == thread.ReasonConflict && slices.ContainsFunc(of, says):
		return workgraph.Errorf(workgraph.Retryable, thread.ReasonConflict, "%s", errs.From(err).Message)
	case errs.ReasonOf(err) == thread.ReasonConflict, thread.Full(err):
		return workgraph.Errorf(workgraph.Permanent, errs.ReasonOf(err), "%s", errs.From(err).Message)
	}
	return workgraph.Errorf(workgraph.Retryable, errs.ReasonOf(err), "the thread cannot be read: %v", errs.From(err).Message)
}

// says reports whether an append is a message that may as well come after another one.
func says(a workgraph.ThreadAppend) bool { return a.Says }

// lineUp lets what is said come after what the run said before it, which may not be durable yet: of two
// attempts side by side, neither knew of the other. Nobody else adds to the thread meanwhile. The caller
// holds r.mu.
func (r *run) lineUp(of []workgraph.ThreadsOf) {
	for i := range of {
		if !slices.ContainsFunc(of[i].Appends, says) {
			continue
		}
		of[i].Appends = slices.Clone(of[i].Appends)
		for k := range of[i].Appends {
			a := &of[i].Appends[k]
			if !a.Says {
				continue
			}
			if r.said.thread == a.Thread {
				a.After = max(a.After, r.said.end)
			}
			r.said = said{a.Thread, a.After + int64(len(a.Items))}
		}
	}
}

// said is where a thread ends with what a run has said, durable or not.
type said struct {
	thread string
	end    int64
}

// addToThreads puts what a decision adds to threads into its write.
func (r *run) addToThreads(w *journal.Append, of []workgraph.ThreadsOf, now time.Time) {
	w.Room = r.t.e.cfg.ThreadRoom
	for i := range of {
		as := thread.Appends(of[i].Appends, r.id, of[i].Node, of[i].Visit, now)
		for k := range as {
			if as[k].Create != nil {
				c := *as[k].Create
				c.UserID, c.ChatID, c.Root = r.lineage.User, r.lineage.Chat, r.root
				as[k].Create = &c
			}
		}
		w.Threads = append(w.Threads, as...)
	}
}

// tellLearned puts what agents have learned in a decision into the outbox, for the memory of the registry.
// Without a registry there is no memory: what was learned is in the thread alone.
func (r *run) tellLearned(w *journal.Append) error {
	if r.t.e.claims == nil {
		return nil
	}
	l := outbox.Learned{RunID: r.id}
	for i := range w.Threads {
		a := &w.Threads[i]
		for _, one := range a.Learnings {
			l.Learnings = append(l.Learnings, outbox.NewLearning(one, a.Time))
		}
	}
	if len(l.Learnings) == 0 {
		return nil
	}
	l.Learnings = lastOfEach(l.Learnings)
	l.Workflow, _, _ = strings.Cut(r.lineage.Cataloged(), "@") // the scope that the actors of the memory have
	l.Trace = tracing.OfSpan(r.trace)
	o, err := l.Out()
	if err == nil {
		w.Outbox = append(w.Outbox, o)
	}
	return err
}

// lastOfEach leaves out learnings of which a later one follows in the same decision. They have one
// time, so the memory would take the first.
func lastOfEach(all []outbox.Learning) []outbox.Learning {
	last := make(map[string]int, len(all))
	for i := range all {
		last[all[i].ID] = i
	}
	out := all[:0]
	for i := range all {
		if last[all[i].ID] == i {
			out = append(out, all[i])
		}
	}
	return out
}

// letTurnsGoOn puts what messages wait for into w: the end of the run, or a question. The caller holds r.mu.
func (r *run) letTurnsGoOn(w *journal.Append, eff workgraph.Effects) {
	r.holds = r.holds || len(eff.Spawns)+len(eff.Threads) > 0
	if eff.Ended != nil {
		w.Holds = r.holds
		if r.lineage.Thread != "" && r.lineage.Parent == "" {
			w.Jobs = append(w.Jobs, journal.ThreadJob(r.namespace, r.lineage.Thread, ""))
		}
		return
	}
	asks := slices.ContainsFunc(eff.Opened, func(o workgraph.OpenedInterrupt) bool { return len(o.Interrupt.Approve) == 0 })
	if asks && (r.holds || r.lineage.Parent != "" || r.lineage.Thread != "") {
		w.Jobs = append(w.Jobs, journal.ThreadJob(r.namespace, r.lineage.Thread, r.id))
	}
}

// threadsAnswered notes what became of what a write adds to threads.
func (e *Engine) threadsAnswered(namespace string, as []thread.Append, err error) {
	switch {
	case len(as) == 0:
	case err == nil:
		e.threadEnds.Committed(namespace, as)
	default:
		e.threadEnds.Refused(namespace, as)
	}
}
