package query

import (
	"context"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Audit replays the journal of a run from its beginning and returns the faults that it finds, one line
// each: events that do not follow from those before, an attempt that ended twice, a visit that began again
// after its end, a row with another end. A run that does not exist, or no longer does, has no faults. Audit
// only reads.
func Audit(ctx context.Context, j journal.Reader, namespace, runID string) ([]string, error) {
	row, err := j.Get(ctx, namespace, runID)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hash, err := firstGraph(ctx, j, row)
	if errors.Is(err, workgraph.ErrCorrupt) {
		return gone(ctx, j, row, err.Error())
	}
	if err != nil {
		return nil, err
	}
	body, err := j.GraphBody(ctx, namespace, hash)
	if errs.ReasonOf(err) == journal.ReasonGraphNotFound {
		if hash == row.GraphHash {
			return nil, nil // doctor reports a missing graph by itself
		}
		return gone(ctx, j, row, fmt.Sprintf("its first graph %s is missing", hash))
	}
	if err != nil {
		return nil, err
	}
	p, err := program.StoredProgram(ctx, hash, body)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return []string{fmt.Sprintf("%s: its graph cannot be used: %v", runID, err)}, nil
	}
	a := auditor{id: runID, state: workgraph.New(p, runID), ended: map[ending]int64{}, done: map[workgraph.Ref]int64{}}
	for after := int64(0); ; {
		events, err := j.Events(ctx, namespace, runID, after, 1000)
		if err != nil {
			return nil, err
		}
		for i := range events {
			if !a.take(ctx, events[i]) {
				return a.faults, context.Cause(ctx)
			}
		}
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
	}
	// The row was read first, so events after it are no fault.
	if st, ok := rowState(a.state); row.State.Ended() && (!ok || st != row.State) {
		a.fault("the row says %s, its journal ends in state %s", row.State, st)
	}
	return a.faults, nil
}

// gone is the fault of a run of which something is missing, unless the run was deleted meanwhile.
func gone(ctx context.Context, j journal.Reader, row journal.Run, what string) ([]string, error) {
	_, err := j.Get(ctx, row.Namespace, row.ID)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []string{row.ID + ": " + what}, nil
}

// firstGraph is the content hash of the graph with which a run began, since a replay applies the graph
// changes again. The error is workgraph.ErrCorrupt if the journal does not have it.
func firstGraph(ctx context.Context, j journal.Reader, row journal.Run) (string, error) {
	if row.GraphRevision == 0 {
		return row.GraphHash, nil
	}
	for after := int64(0); ; {
		events, err := j.Events(ctx, row.Namespace, row.ID, after, 1000)
		if err != nil {
			return "", err
		}
		switch hash, err := record.GraphBefore(events); {
		case err != nil:
			return "", fmt.Errorf("%w: %w", workgraph.ErrCorrupt, err)
		case hash != "":
			return hash, nil
		}
		if len(events) == 0 {
			return "", fmt.Errorf("%w: the journal does not say with which graph the run began", workgraph.ErrCorrupt)
		}
		after = events[len(events)-1].Seq
	}
}

type ending struct {
	workgraph.Ref
	attempt int
}

type auditor struct {
	id     string
	state  *workgraph.State
	ended  map[ending]int64
	done   map[workgraph.Ref]int64
	faults []string
}

func (a *auditor) fault(format string, args ...any) {
	a.faults = append(a.faults, a.id+": "+fmt.Sprintf(format, args...))
}

// take replays one event. It returns false if the events after it cannot be judged.
func (a *auditor) take(ctx context.Context, row journal.Event) bool {
	d, err := record.DecodeEvent(row)
	if err != nil {
		a.fault("event %d cannot be read: %v", row.Seq, err)
		return false
	}
	switch d.Kind {
	case workgraph.AttemptEnded:
		if d.PutBack() {
			break // the same attempt starts when the pause ends
		}
		e := ending{workgraph.Ref{Node: d.Node, Visit: d.Visit, Item: d.Item}, d.Attempt}
		if at, twice := a.ended[e]; twice {
			a.fault("attempt %d of visit %d of %q, item %d, ends at %d and again at %d", d.Attempt, d.Visit, d.Node, d.Item, at, row.Seq)
		}
		a.ended[e] = row.Seq
	case workgraph.AttemptStarted:
		if at := a.done[workgraph.Ref{Node: d.Node, Visit: d.Visit}]; at > 0 {
			a.fault("visit %d of %q was over at %d and is begun again at %d", d.Visit, d.Node, at, row.Seq)
		}
	case workgraph.GraphAmended:
		// Visits that were reset may run again.
		clear(a.done)
		clear(a.ended)
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		ref := workgraph.Ref{Node: s.Node, Visit: s.Visit}
		switch {
		case s.Op == workgraph.OpReopen, s.Op == workgraph.OpReset: // the visit may run again
			delete(a.done, ref)
		case s.Op == workgraph.OpComplete && s.Item == 0:
			if at := a.done[ref]; at > 0 {
				a.fault("visit %d of %q is completed at %d and again at %d", s.Visit, s.Node, at, row.Seq)
			}
			a.done[ref] = row.Seq
		}
	}
	if _, err := a.state.Apply(ctx, d.Event); ctx.Err() != nil {
		return false
	} else if err != nil {
		a.fault("event %d does not follow from those before it: %v", row.Seq, err)
		return false
	}
	return true
}

// rowState is the state that the row of a run in this state of the machine has. ok is false if the run has
// not ended.
func rowState(s *workgraph.State) (journal.State, bool) {
	switch st, _ := s.Status(); st {
	case workgraph.StatusCompleted:
		return journal.StateCompleted, true
	case workgraph.StatusFailed:
		return journal.StateFailed, true
	case workgraph.StatusCanceled:
		return journal.StateCanceled, true
	}
	return journal.StateRunning, false
}
