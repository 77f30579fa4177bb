package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused amendments.
const (
	// ReasonRevisionMismatch is the reason when a change was made for another graph than the run's; Meta "graph_revision" tells its own.
	ReasonRevisionMismatch = "GRAPH_REVISION_MISMATCH"
	// ReasonAmendRefused is the reason when a change would touch what has happened.
	ReasonAmendRefused = "AMEND_REFUSED"
	// ReasonAmendUnsettled is the reason when a change is durable and its run's owner has not looked at it in time.
	ReasonAmendUnsettled = "AMEND_UNSETTLED"
	// ReasonAmendEmpty is the reason of a change that changes nothing.
	ReasonAmendEmpty = "AMEND_EMPTY"
)

// AmendRequest changes the graph of a live run.
type AmendRequest struct {
	Namespace, RunID string
	// Revision is that of the graph which the change was made for.
	Revision int64
	Patch    workgraph.Patch
	// DryRun only tells what would change.
	DryRun  bool
	By      string
	Request journal.Request
}

// Amendment tells what a change does.
type Amendment struct {
	workgraph.AmendPlan
	// GraphHash and GraphRevision are those after the change.
	GraphHash     string
	GraphRevision int64
}

// Amend changes the graph of a run, once its owner agrees, and returns what changes. A faulty change is a workgraph.Faults.
func (e *Engine) Amend(ctx context.Context, req AmendRequest) (*Amendment, error) {
	out, p, err := e.planAmend(ctx, req)
	if err != nil || req.DryRun || p == nil { // without a program the change was made already
		return out, err
	}
	key := once(req.Request)
	_, err = e.post(ctx, journal.Post{Method: "AmendRun", Request: req.Request, Open: started(),
		Mail: journal.Mail{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.MailAmend, Key: key}},
		&Letter{RequestID: req.Request.ID, By: req.By, Graph: p.body, Revision: req.Revision})
	if err != nil {
		return nil, refusedMail(err)
	}
	// One that came before may have been refused since: what became of it is looked up in any case.
	taken, err := e.takenUp(ctx, req.Namespace, req.RunID, journal.MailAmend, key)
	if err != nil {
		return nil, err
	}
	if !taken {
		return nil, errs.New(errs.Unavailable, ReasonAmendUnsettled, "the change of run %q is recorded and was not taken up yet", req.RunID).
			Hint("send it again with the same request_id to hear what became of it; explain tells it too")
	}
	row, err := e.journal.Get(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, err
	}
	if row.GraphRevision > req.Revision && row.GraphHash == p.hash {
		return out, nil
	}
	if was, err := e.amendedBy(ctx, row, req.Revision, p.hash); err != nil || was {
		return out, err
	}
	// The run has moved on in between: look again what is in the way now.
	if _, _, err := e.planAmend(ctx, req); err != nil {
		return nil, err
	}
	return nil, errs.New(errs.Conflict, ReasonAmendRefused, "the run has moved on while it was to be changed").Hint("look at the difference again and repeat the change")
}

// amendedBy reports whether the graph was changed to this one, whatever came after.
func (e *Engine) amendedBy(ctx context.Context, row journal.Run, revision int64, hash string) (bool, error) {
	return e.happened(ctx, row, func(d *Durable) bool {
		return d.Kind == workgraph.GraphAmended && d.Revision == revision && d.GraphHash() == hash
	})
}

// GraphHash is the content hash of the graph that the event brings; empty if it brings none.
func (d *Durable) GraphHash() string {
	if d.Regraph != nil && d.Regraph.Hash != "" {
		return d.Regraph.Hash
	}
	if d.Graph == nil {
		return ""
	}
	body, err := d.Graph.Canonical()
	if err != nil {
		return ""
	}
	return sum(body)
}

// planAmend works out what a change would do to the run as it stands, and changes nothing.
func (e *Engine) planAmend(ctx context.Context, req AmendRequest) (*Amendment, *program, error) {
	look, row, err := e.standing(ctx, req.Namespace, req.RunID)
	if err != nil {
		return nil, nil, err
	}
	if row.State.Ended() {
		return nil, nil, journal.RunEnded(row.ID)
	}
	if row.State == journal.StatePending {
		return nil, nil, errs.New(errs.FailedPrecondition, ReasonNotStarted, "run %q waits for its start", row.ID).Hint("cancel it and start another one")
	}
	if req.Request.ID != "" {
		done, err := e.seen(ctx, row, workgraph.GraphAmended, req.Request.ID)
		if err != nil {
			return nil, nil, err
		}
		if done {
			return &Amendment{AmendPlan: workgraph.AmendPlan{Revision: req.Revision}, GraphHash: row.GraphHash, GraphRevision: row.GraphRevision}, nil, nil
		}
	}
	var old *workgraph.Graph
	var revision int64
	look(func(s *workgraph.State) { old, revision = s.Graph(), s.GraphRevision() })
	if revision != req.Revision {
		return nil, nil, revisionMismatch(row.ID, req.Revision, revision)
	}
	patched, faults := workgraph.ApplyPatch(old, req.Patch)
	if len(faults) > 0 {
		return nil, nil, faults
	}
	p, err := e.repinned(ctx, req.Namespace, patched)
	if err != nil {
		return nil, nil, err
	}
	out := &Amendment{GraphHash: p.hash, GraphRevision: revision + 1}
	look(func(s *workgraph.State) { out.AmendPlan, err = s.PlanAmend(p.p) })
	if err != nil {
		return nil, nil, amendRefusal(row.ID, err)
	}
	if out.Diff.Empty() {
		return nil, nil, errs.New(errs.InvalidArgument, ReasonAmendEmpty, "the change changes nothing")
	}
	return out, p, nil
}

func revisionMismatch(runID string, asked, is int64) error {
	return errs.New(errs.Conflict, ReasonRevisionMismatch, "the change was made for revision %d of the graph, run %q has come to %d", asked, runID, is).
		Set("graph_revision", fmt.Sprint(is)).Hint("read the run and its graph again, and make the change for that")
}

// amendRefusal names everything that stands in the way.
func amendRefusal(runID string, err error) error {
	if errors.Is(err, workgraph.ErrEnded) {
		return journal.RunEnded(runID)
	}
	refused, ok := errors.AsType[*workgraph.AmendRefused](err)
	if !ok {
		return errs.New(errs.FailedPrecondition, ReasonAmendRefused, "the graph cannot be changed now: %v", err)
	}
	out := errs.New(errs.FailedPrecondition, ReasonAmendRefused, "the change would touch what has happened, in %d places", len(refused.Refusals))
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

// repinned compiles a graph that a run may have grown, within the limits and with the actors of the namespace.
func (e *Engine) repinned(ctx context.Context, namespace string, g *workgraph.Graph) (*program, error) {
	if err := e.withinLimits(g); err != nil {
		return nil, err
	}
	known, err := e.programs.known(ctx, namespace, actorsOf(g))
	if err != nil {
		return nil, err
	}
	compiled, err := workgraph.Recompile(ctx, g, known)
	if err != nil {
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			return nil, e.hints(ctx, namespace, g, list)
		}
		return nil, err
	}
	pinned := compiled.Graph()
	body, err := pinned.Canonical()
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	if err := e.graphFits(body); err != nil {
		return nil, err
	}
	p := &program{p: compiled.WithLimits(e.programs.limits).WithActors(nil), name: g.Name, nodes: len(pinned.Nodes), hash: sum(body), body: body, unsafe: callsUnsafe(pinned)}
	e.programs.keep("pinned/"+p.hash, p)
	return p, nil
}
