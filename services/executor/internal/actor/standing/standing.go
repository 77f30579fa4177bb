// Package standing is about loops whose actors append to a thread: where a run stands on it, and where it may
// append. It owns who holds a thread and lends it to whom, and what a fork of a run does with the thread of
// the run that it was forked from. It must not know what the items of a thread are.
package standing

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Place is where a loop stands: its thread, and its own last item in it. Kept in the state of the loop's run,
// it says of a fork of the run where that run stood at the visit of the fork.
type Place struct {
	Thread string `json:"thread"`
	Seq    int64  `json:"seq"`
	// Runs are those that hold the thread, from the root to the loop's own. In a fork that has not appended
	// yet the last one is the run that it was forked from.
	Runs []string `json:"runs,omitempty"`
}

// Of reports whether the run stands there itself.
func (p Place) Of(runID string) bool {
	return len(p.Runs) > 0 && p.Runs[len(p.Runs)-1] == runID
}

// LentTo reports whether the run that stands there lends its thread to a call of its own, or of one of its
// rounds. A root has the thread from nobody.
func (p Place) LentTo(c *workgraph.Call) bool {
	ours := p.Of(c.RunID) || c.ParentRunID != "" && p.Of(c.ParentRunID)
	return ours && (c.RunID != c.RootRunID || len(p.Runs) == 1)
}

// Holders are the runs that hold the thread of a loop which nobody lends it: the root and the loop's own.
func Holders(c *workgraph.Call) []string {
	if c.RootRunID == "" || c.RootRunID == c.RunID {
		return []string{c.RunID}
	}
	return []string{c.RootRunID, c.RunID}
}

// Begin is where a loop begins on a thread, and the append without items that its first one is made of. The
// run holds the thread then. With create the append makes the thread; lent are the runs that hold it already
// and lend it to the loop. The error is one of Error.
func Begin(ctx context.Context, threads thread.Reader, c *workgraph.Call, id string, create *workgraph.ThreadCreate, lent []string) (workgraph.ThreadAppend, Place, error) {
	at := Place{Thread: id, Runs: append(slices.Clone(lent), c.RunID)}
	if create != nil {
		if create.OfRoot {
			at.Runs = Holders(c)
		}
		at.Seq = create.ParentSeq
		return workgraph.ThreadAppend{Thread: id, After: at.Seq, Create: create}, at, nil
	}
	if len(lent) == 0 {
		at.Runs = Holders(c)
	}
	if err := threads.HoldThread(ctx, actor.NamespaceOf(ctx), id, at.Runs); err != nil {
		return workgraph.ThreadAppend{}, at, Error(err)
	}
	t, err := threads.Thread(ctx, actor.NamespaceOf(ctx), id)
	if err != nil {
		return workgraph.ThreadAppend{}, at, Error(err)
	}
	at.Seq = t.Last
	return workgraph.ThreadAppend{Thread: id, After: at.Seq}, at, nil
}

// Append is the append of items by a run whose state says that it stands at a place, and the place after
// them. A run that was forked from another one goes on with that one's thread if nobody else does, and else
// with a fork of it. The error is one of Error.
func Append(ctx context.Context, threads thread.Reader, c *workgraph.Call, at Place, items []workgraph.ThreadItem) (workgraph.ThreadAppend, Place, error) {
	to, made, err := next(ctx, threads, c, at)
	a := workgraph.ThreadAppend{Thread: to.Thread, After: to.Seq}
	if made != nil {
		a = *made
	}
	a.Items = items
	to.Seq += int64(len(items))
	return a, to, err
}

// next is where the run may append, and what makes the thread if there is none yet.
func next(ctx context.Context, threads thread.Reader, c *workgraph.Call, at Place) (Place, *workgraph.ThreadAppend, error) {
	t, err := threads.Thread(ctx, actor.NamespaceOf(ctx), at.Thread)
	if err != nil {
		return at, nil, Error(err)
	}
	if at.Of(c.RunID) {
		at.Seq = t.Last
		return at, nil, nil
	}
	if t.Last == at.Seq {
		runs := Holders(c)
		err := threads.HoldThread(ctx, actor.NamespaceOf(ctx), at.Thread, runs)
		if err == nil {
			at.Runs = runs
			return at, nil, nil
		}
		if errs.ReasonOf(err) != thread.ReasonBusy {
			return at, nil, Error(err)
		}
	}
	a := &workgraph.ThreadAppend{Thread: ids.New(thread.IDPrefix), After: at.Seq,
		Create: &workgraph.ThreadCreate{Parent: at.Thread, ParentSeq: at.Seq, Lifetime: workgraph.ThreadEphemeral, Agent: t.Agent}}
	at.Thread, at.Runs = a.Thread, []string{c.RunID}
	return at, a, nil
}

// Before is the place up to which the thread can be read while an append is under way. Its Thread is empty if
// there is nothing to read.
func Before(a workgraph.ThreadAppend) Place {
	if a.Create != nil {
		return Place{Thread: a.Create.Parent, Seq: a.Create.ParentSeq} // the thread itself is not there yet
	}
	return Place{Thread: a.Thread, Seq: a.After}
}

// Find returns the id of the thread that has the key, or nothing if there is none. The error is one of Error.
func Find(ctx context.Context, threads thread.Reader, key string) (string, error) {
	t, err := threads.ThreadByKey(ctx, actor.NamespaceOf(ctx), key)
	switch {
	case err == nil:
		return t.ID, nil
	case errs.ReasonOf(err) == thread.ReasonNotFound:
		return "", nil
	}
	return "", Error(err)
}

// Error is the error of a call that cannot use its thread. It may be tried again unless the thread, or what
// is done with it, is at fault.
func Error(err error) error {
	e := errs.From(err)
	t := workgraph.Permanent
	switch e.Reason {
	case thread.ReasonBusy, thread.ReasonNotFound, thread.ReasonConflict, thread.ReasonInvalid, thread.ReasonTooDeep:
	default:
		t = workgraph.Retryable
	}
	return workgraph.Errorf(t, e.Reason, "%s", e.Message)
}

// IsPart reports whether a node of a loop is the other one, or was inserted by it.
func IsPart(node, of string) bool { return node == of || strings.HasPrefix(node, of+"#") }

// Source is what a node of a loop, or what it has expanded to, handed to this visit. What completed counts
// before what did not. ok is false if it handed nothing.
func Source(c *workgraph.Call, node string) (u workgraph.Upstream, ok bool) {
	for _, up := range c.Upstream {
		if IsPart(up.Node, node) {
			if u, ok = up, true; up.Outcome == workgraph.VisitCompleted {
				return up, true
			}
		}
	}
	return u, ok
}
