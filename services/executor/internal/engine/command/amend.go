package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused amendments.
const (
	// ReasonRevisionMismatch is the reason when a change was made for another revision than the run's graph
	// has. Meta "graph_revision" has the run's revision.
	ReasonRevisionMismatch = "GRAPH_REVISION_MISMATCH"
	// ReasonAmendRefused is the reason when a change would alter the past of the run.
	ReasonAmendRefused = "AMEND_REFUSED"
	// ReasonAmendUnsettled is the reason when a change is durable but its run's owner has not applied it in
	// time.
	ReasonAmendUnsettled = "AMEND_UNSETTLED"
	// ReasonAmendEmpty is the reason for a change that changes nothing.
	ReasonAmendEmpty = "AMEND_EMPTY"
)

// AmendRequest asks for a change to the graph of an open run.
type AmendRequest struct {
	Namespace, RunID string
	// Revision is the revision of the graph for which the change was made.
	Revision int64
	Patch    workgraph.Patch
	// Graph, if it is not nil, is the graph that the run is to have; the patch does not count then.
	Graph *workgraph.Graph
	// DryRun plans the change and does not apply it.
	DryRun  bool
	By      string
	Request journal.Request
}

// Amendment is the effect of a change.
type Amendment struct {
	workgraph.AmendPlan
	// GraphHash and GraphRevision describe the graph after the change.
	GraphHash     string
	GraphRevision int64
}

// Amend changes the graph of a run and returns the effect. It waits until the run's owner has applied the
// command. A faulty graph is reported as workgraph.Faults.
func (h *Handler) Amend(ctx context.Context, req AmendRequest) (*Amendment, error) {
	req.Request.Method = MethodAmend
	if !req.DryRun {
		if done, err := h.isRepeat(ctx, req.Namespace, req.RunID, req.Request); err != nil {
			return nil, err
		} else if done {
			return h.repeatedAmend(ctx, req)
		}
	}
	out, p, err := h.planAmend(ctx, req)
	if err != nil || req.DryRun {
		return out, err
	}
	key := commandKey(req.Request)
	_, err = h.enqueue(ctx, journal.EnqueueRequest{Request: req.Request, Open: openStates(),
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandAmend, Key: key}},
		&record.Payload{RequestID: req.Request.ID, By: req.By, Graph: p.Body, Revision: req.Revision})
	if err != nil {
		return nil, refusedCommand(err)
	}
	if err := h.awaitAmend(ctx, req, key); err != nil {
		return nil, err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, err
	}
	if row.GraphRevision > req.Revision && row.GraphHash == p.Hash {
		return out, nil
	}
	if was, err := h.wasAmendedTo(ctx, row, req.Revision, p.Hash); err != nil || was {
		return out, err
	}
	// The run has moved on since the plan was made: plan again to find the present obstacle.
	if _, _, err := h.planAmend(ctx, req); err != nil {
		return nil, err
	}
	// There is no obstacle now, but the owner refused the command.
	if f, err := h.LastRefusal(ctx, req.Namespace, req.RunID); err == nil && f != nil && f.RequestID == req.Request.ID {
		return nil, errs.New(errs.FailedPrecondition, ReasonAmendRefused, "the change was refused: %s", f.Message)
	}
	return nil, errs.New(errs.Conflict, ReasonAmendRefused, "the run moved on before the change was applied").Hint("look at the difference again and repeat the change")
}

// awaitAmend waits until the owner has applied or refused a change.
func (h *Handler) awaitAmend(ctx context.Context, req AmendRequest, key string) error {
	taken, err := h.applied(ctx, req.Namespace, req.RunID, journal.CommandAmend, key)
	if err == nil && !taken {
		return errs.New(errs.Unavailable, ReasonAmendUnsettled, "the change of run %q is recorded and not applied yet", req.RunID).
			Hint("send it again with the same request_id to get the result; explain shows it, too")
	}
	return err
}

// repeatedAmend returns the effect of a change that an earlier request with the same id asked for. It is
// what that request was answered, whatever has happened to the run since.
func (h *Handler) repeatedAmend(ctx context.Context, req AmendRequest) (*Amendment, error) {
	if err := h.awaitAmend(ctx, req, commandKey(req.Request)); err != nil {
		return nil, err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, err
	}
	var made *record.Durable
	if _, err := h.findEvent(ctx, row, func(d *record.Durable) bool {
		if d.Kind == workgraph.GraphAmended && d.RequestID == req.Request.ID && d.Revision == req.Revision {
			made = d
		}
		return false
	}); err != nil {
		return nil, err
	}
	if made == nil {
		return nil, errs.New(errs.Conflict, ReasonAmendRefused, "the change was refused: the run had moved on before it was applied").
			Hint("look at the difference again and repeat the change with a new request_id")
	}
	out := &Amendment{AmendPlan: workgraph.AmendPlan{Revision: req.Revision, Cancels: made.Resets()}, GraphHash: made.GraphHash(), GraphRevision: req.Revision + 1}
	if made.GraphChange == nil || made.GraphChange.Was == "" || made.GraphChange.Hash == "" {
		return out, nil // the graph between several changes was not stored
	}
	before, err := h.graphNamed(ctx, req.Namespace, made.GraphChange.Was)
	if err != nil {
		return nil, err
	}
	after, err := h.graphNamed(ctx, req.Namespace, made.GraphChange.Hash)
	if err != nil {
		return nil, err
	}
	out.Diff, err = workgraph.Diff(ctx, before, after)
	return out, err
}

func (h *Handler) graphNamed(ctx context.Context, namespace, hash string) (*workgraph.Graph, error) {
	body, err := h.journal.GraphBody(ctx, namespace, hash)
	if err != nil {
		return nil, err
	}
	return workgraph.Decode(body)
}

// wasAmendedTo reports whether a change at this revision led to this graph, whatever came later.
func (h *Handler) wasAmendedTo(ctx context.Context, row journal.Run, revision int64, hash string) (bool, error) {
	return h.findEvent(ctx, row, func(d *record.Durable) bool {
		return d.Kind == workgraph.GraphAmended && d.Revision == revision && d.GraphHash() == hash
	})
}

// planAmend computes the effect of a change on the present state of the run, without applying it.
func (h *Handler) planAmend(ctx context.Context, req AmendRequest) (*Amendment, *program.Program, error) {
	look, row, err := h.Inspect(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, nil, err
	}
	if row.State.Ended() {
		return nil, nil, journal.RunEnded(row.ID)
	}
	if row.State == journal.StatePending {
		return nil, nil, errs.New(errs.FailedPrecondition, ReasonNotStarted, "run %q waits for its start", row.ID).Hint("cancel it and start another one")
	}
	if err := refuseApproved(row, ReasonAmendRefused); err != nil {
		return nil, nil, err
	}
	var now *workgraph.Program
	var revision int64
	var position []byte
	look(func(s *workgraph.State) {
		now, revision = s.Program(), s.GraphRevision()
		position, err = s.Snapshot()
	})
	if err != nil {
		return nil, nil, err
	}
	if revision != req.Revision {
		return nil, nil, revisionMismatch(row.ID, req.Revision, revision)
	}
	// The run continues meanwhile, so the plan uses a copy of its state. The namespace's compute turns
	// bound the work.
	leave, err := h.computing.Enter(ctx, req.Namespace)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	var faults workgraph.Faults
	patched := req.Graph
	if patched == nil {
		patched, faults = workgraph.ApplyPatch(now.Graph(), req.Patch)
	} else {
		faults = workgraph.Replaceable(now.Graph(), patched)
	}
	if len(faults) > 0 {
		return nil, nil, faults
	}
	p, err := h.programs.Recompile(ctx, req.Namespace, patched, now.Graph())
	if err != nil {
		return nil, nil, err
	}
	out := &Amendment{GraphHash: p.Hash, GraphRevision: revision + 1}
	trial, err := workgraph.Restore(ctx, now, position)
	if err != nil {
		return nil, nil, err
	}
	out.AmendPlan, err = trial.PlanAmend(ctx, p.Machine, time.Now().UTC())
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, amendRefusal(row.ID, err)
	}
	if out.Diff.Empty() {
		return nil, nil, errs.New(errs.InvalidArgument, ReasonAmendEmpty, "the change changes nothing")
	}
	return out, p, nil
}

func revisionMismatch(runID string, asked, is int64) error {
	return errs.New(errs.Conflict, ReasonRevisionMismatch, "the change was made for revision %d of the graph, the graph of run %q has revision %d", asked, runID, is).
		Set("graph_revision", fmt.Sprint(is)).Hint("read the run and its graph again, and make the change for that")
}

// amendRefusal lists every obstacle.
func amendRefusal(runID string, err error) error {
	if errors.Is(err, workgraph.ErrEnded) {
		return journal.RunEnded(runID)
	}
	refused, ok := errors.AsType[*workgraph.AmendRefused](err)
	if !ok {
		return errs.New(errs.FailedPrecondition, ReasonAmendRefused, "the graph cannot be changed now: %v", err)
	}
	out := errs.New(errs.FailedPrecondition, ReasonAmendRefused, "the change would touch what has happened, in %s", phrase.Counted(len(refused.Refusals), "place"))
	if len(refused.Refusals) > 0 && refused.Refusals[0].Hint != "" {
		out = out.Hint(refused.Refusals[0].Hint)
	}
	for _, f := range refused.Refusals {
		place := "graph.nodes[" + f.Node + "]"
		if f.From != "" || f.To != "" {
			place = "graph.edges[" + f.From + " -> " + f.To + "]"
		}
		if f.Field != "" {
			place += "." + f.Field
		}
		out = out.Violate(place, f.Code, f.Message)
	}
	return out
}
