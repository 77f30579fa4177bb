package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused forks.
const (
	// ReasonForkRepeatsUnsafe is the reason when UNSAFE visits that were performed would run again. Meta
	// "visits" names them.
	ReasonForkRepeatsUnsafe = "FORK_REPEATS_UNSAFE"
	// ReasonForkChangesReused is the reason when the graph changes nodes whose visits are reused.
	ReasonForkChangesReused = "FORK_CHANGES_REUSED"
	// ReasonForkChangesApproved is the reason when the graph differs from what was approved in an ancestor.
	ReasonForkChangesApproved = "FORK_CHANGES_APPROVED"
	// ReasonVisitNotFound is the reason when a run has not reached a visit.
	ReasonVisitNotFound = "VISIT_NOT_FOUND"
	// ReasonNothingToRetry is the reason when no visit of a run has failed.
	ReasonNothingToRetry = "NOTHING_TO_RETRY"
)

// ForkRequest asks for a new run that reuses the history of another one up to a visit.
type ForkRequest struct {
	Namespace, RunID string
	// From is the first visit that runs again. Nil reuses every completed visit.
	From *workgraph.Ref
	// Named overlays the named arguments of From's node. Args replaces its positional arguments if
	// ReplaceArgs is set.
	Named       map[string]json.RawMessage
	Args        []json.RawMessage
	ReplaceArgs bool
	// Graph is the graph of the new run; nil means the same graph.
	Graph       *workgraph.Graph
	AllowUnsafe bool
	// WithoutTask starts the new run without a task. Otherwise it works on the task of the old run, and the
	// fork is refused if that task cannot be claimed.
	WithoutTask bool
	BusinessKey string
	// Budget has caps that replace those of the old run.
	Budget *workgraph.Budget
	// Labels are added to those of the old run.
	Labels  map[string]string
	Request journal.Request
}

// RetryRequest names a run that ended without completing.
type RetryRequest struct {
	Namespace, RunID string
	AllowUnsafe      bool
	// WithoutTask has the meaning that it has in ForkRequest.
	WithoutTask bool
	Request     journal.Request
}

// Retry starts a new run that reuses the completed visits. Failed visits and their successors run again.
func (h *Handler) Retry(ctx context.Context, req RetryRequest) (string, error) {
	if req.Request.Method == "" {
		req.Request.Method = MethodRetry
	}
	if id, err := h.Answered(ctx, req.Namespace, req.Request); err != nil || id != "" {
		return id, err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return "", err
	}
	switch {
	case !row.State.Ended():
		return "", journal.RunNotEnded(row.ID, row.State)
	case row.State == journal.StateCompleted:
		return "", errs.New(errs.FailedPrecondition, ReasonNothingToRetry, "run %q has completed", row.ID).Hint("ForkRun starts a run that goes on from one of its visits")
	}
	return h.fork(ctx, ForkRequest{Namespace: req.Namespace, RunID: req.RunID, AllowUnsafe: req.AllowUnsafe, WithoutTask: req.WithoutTask, BusinessKey: row.BusinessKey, Request: req.Request})
}

// Fork starts a new run that shares the history of an old one up to a visit. A faulty graph is reported as
// workgraph.Faults.
func (h *Handler) Fork(ctx context.Context, req ForkRequest) (string, error) {
	req.Request.Method = MethodFork
	if id, err := h.Answered(ctx, req.Namespace, req.Request); err != nil || id != "" {
		return id, err
	}
	return h.fork(ctx, req)
}

// maxForkTries is how often the start of a fork is tried whose threads change meanwhile.
const maxForkTries = 5

func (h *Handler) fork(ctx context.Context, req ForkRequest) (string, error) {
	row, old, err := h.recordedState(ctx, req.Namespace, req.RunID)
	if err != nil {
		return "", err
	}
	if old == nil {
		return "", errs.New(errs.FailedPrecondition, ReasonNotStarted, "run %q has not begun, so there is nothing to take over", row.ID).
			Hint("start another run with the same graph")
	}
	if err := checkReached(old, req.From); err != nil {
		return "", err
	}
	before := Unexpanded(old.Graph())
	g := before
	if req.Graph != nil {
		g = req.Graph
	}
	if g, err = withArgs(g, req); err != nil {
		return "", err
	}
	if err := checkApproved(row, before, g); err != nil {
		return "", err
	}
	p, err := h.programs.Compile(ctx, req.Namespace, g, nil, nil, program.FromActor)
	if err != nil {
		return "", err
	}
	if err := h.programs.Unchanged(ctx, req.Namespace, before, p.Machine.Graph()); err != nil {
		return "", err
	}
	reused, again, err := workgraph.ReuseFrom(ctx, old, req.From, before, p.Machine.Graph())
	if err != nil {
		return "", err
	}
	if err := checkUnchanged(ctx, before, p.Machine.Graph(), reused, req.From); err != nil {
		return "", err
	}
	if !req.AllowUnsafe {
		below, err := h.performedBelow(ctx, row, reused)
		if err != nil {
			return "", err
		}
		if err := refuseRepeats(p.Machine, again, below); err != nil {
			return "", err
		}
	}
	start, err := startOf(row)
	if err != nil {
		return "", err
	}
	start.Source, start.Graph, start.Reuse, start.ForkedFrom, start.BusinessKey, start.Request = program.FromActor, g, reused, row.ID, req.BusinessKey, req.Request
	start.Lineage.Agent = agentOfFork(start.Lineage.Agent, req.Graph != nil)
	start.Budget = start.Budget.With(req.Budget)
	if len(req.Labels) > 0 {
		start.Labels = maps.Clone(start.Labels)
		if start.Labels == nil {
			start.Labels = map[string]string{}
		}
		maps.Copy(start.Labels, req.Labels)
		if err := CheckLabels(start.Labels); err != nil {
			return "", err
		}
	}
	if req.WithoutTask {
		start.TaskID = ""
	}
	if req.From != nil || start.TaskID != "" {
		start.Lineage.Payer = nil // who pays is said by visits that run anew, or is the task
	}
	// The task is claimed as for any other start. If it cannot be claimed the fork is refused, since only
	// the client may decide that the work is booked on no task.
	var id string
	for tries := 1; ; tries++ {
		if start.Lineage.Standing, start.Shared, err = h.standingOfFork(ctx, row, g, reused); err != nil {
			return "", err
		}
		// The old run may add to a thread at the same time, or a thread may be gone meanwhile.
		if id, _, err = h.live.Start(ctx, start); tries == maxForkTries || len(start.Shared) == 0 || errs.ReasonOf(err) != thread.ReasonConflict {
			break
		}
	}
	if start.TaskID != "" && errs.Is(err, errs.FailedPrecondition) && errs.ReasonOf(err) != journal.ReasonBusinessKeyInUse {
		return id, withoutTaskHint(err)
	}
	if err == nil {
		tracing.LinkRequest(ctx, row)
	}
	return id, err
}

// agentOfFork is the agent of a fork of its run. The thread is left out, since the fork may go on with a fork
// of it. With a graph of the caller's the names of the tools are the caller's, too.
func agentOfFork(of *workgraph.AgentRun, changed bool) *workgraph.AgentRun {
	if of == nil {
		return nil
	}
	out := *of
	out.Thread, out.Configured = "", of.Configured && !changed
	return &out
}

// withoutTaskHint adds to the refusal of a claim how to start the run without the task.
func withoutTaskHint(err error) error {
	e := errs.From(err)
	hint := "or start it without the task (without_task): what it costs is booked on the namespace then, not on task and epic"
	if h := e.HintText(); h != "" {
		hint = h + ", " + hint
	}
	return e.Hint(hint)
}

// recordedState is the state of a run by its journal, without what its owner has decided and not committed.
// It is nil for a run that has not begun.
func (h *Handler) recordedState(ctx context.Context, namespace, runID string) (journal.Run, *workgraph.State, error) {
	loaded, err := h.journal.LoadFor(ctx, namespace, runID)
	if err != nil {
		return journal.Run{}, nil, err
	}
	row := loaded.Run
	if row.LastSeq == 0 {
		return row, nil, nil
	}
	at, err := h.positions.Load(ctx, loaded)
	return row, at.State, err
}

// checkReached checks that the run has reached a visit.
func checkReached(s *workgraph.State, from *workgraph.Ref) error {
	if from == nil {
		return nil
	}
	found, last := false, 0
	s.Visits(func(v workgraph.VisitInfo) bool {
		if v.Node == from.Node && v.Item == 0 {
			last = max(last, v.Visit)
			found = found || v.Visit == from.Visit
		}
		return !found
	})
	switch {
	case found:
		return nil
	case last > 0:
		return errs.New(errs.InvalidArgument, ReasonVisitNotFound, "node %q has no visit %d: its last one is %d", from.Node, from.Visit, last).
			Violate("visit", ReasonVisitNotFound, "no such visit")
	}
	var names []string
	for _, n := range s.Graph().Nodes {
		names = append(names, n.ID)
	}
	if slices.Contains(names, from.Node) {
		return errs.New(errs.InvalidArgument, ReasonVisitNotFound, "the run has not reached node %q", from.Node).
			Violate("visit", ReasonVisitNotFound, "no such visit").Hint("ListVisits names the visits of the run; a fork without a visit takes over all that completed")
	}
	unknown := errs.New(errs.InvalidArgument, ReasonVisitNotFound, "the graph of the run has no node %q", from.Node).Violate("visit", ReasonVisitNotFound, "not a node of the graph")
	steps := program.MaxNearSteps
	if near := program.Nearest(from.Node, names, &steps); len(near) > 0 {
		return unknown.Hint("did you mean " + strings.Join(near, " or ") + "?")
	}
	return unknown.Hint("GetRunGraph shows the graph")
}

// withArgs is the graph with the requested arguments at the node that runs again.
func withArgs(g *workgraph.Graph, req ForkRequest) (*workgraph.Graph, error) {
	if len(req.Named) == 0 && !req.ReplaceArgs {
		return g, nil
	}
	if req.From == nil {
		return nil, errs.New(errs.InvalidArgument, ReasonVisitNotFound, "arguments are given, but no visit whose they are").
			Violate("visit", ReasonVisitNotFound, "missing").Hint("name the visit from which on things are to run anew")
	}
	out := g.Clone()
	at := slices.IndexFunc(out.Nodes, func(n workgraph.Node) bool { return n.ID == req.From.Node })
	if at < 0 {
		return nil, errs.New(errs.InvalidArgument, ReasonVisitNotFound, "the new graph has no node %q to give arguments to", req.From.Node).
			Violate("visit", ReasonVisitNotFound, "not a node of the graph").
			Hint("a node that an expansion made gets its arguments anew from the visit that made it: fork from there")
	}
	n := &out.Nodes[at]
	if len(req.Named) > 0 {
		named := maps.Clone(n.Named)
		if named == nil {
			named = make(map[string]json.RawMessage, len(req.Named))
		}
		maps.Copy(named, req.Named)
		n.Named = named
	}
	if req.ReplaceArgs {
		n.Args = req.Args
	}
	return out, nil
}

// checkUnchanged refuses a graph that changes the nodes of reused visits, or the path to them.
func checkUnchanged(ctx context.Context, before, after *workgraph.Graph, reused []workgraph.ReusedVisit, from *workgraph.Ref) error {
	taken := make(map[string]bool, len(reused))
	for i := range reused {
		if id := reused[i].Ref.Node; from == nil || id != from.Node {
			taken[id] = true
		}
	}
	d, err := workgraph.Diff(ctx, before, after)
	if err != nil {
		return err
	}
	out := errs.New(errs.InvalidArgument, ReasonForkChangesReused, "nodes whose visits are taken over must be as they were").
		Hint("fork from an earlier visit, or leave these nodes as they are")
	n := 0
	bad := func(place, what string) {
		if n++; n <= workgraph.MaxFaults {
			out = out.Violate(place, ReasonForkChangesReused, what)
		}
	}
	for _, c := range d.ChangedNodes {
		if taken[c.ID] {
			bad("graph.nodes["+c.ID+"]", "its visit is taken over, and "+strings.Join(c.Fields, ", ")+" would change")
		}
	}
	for _, id := range d.RemovedNodes {
		if taken[id] {
			bad("graph.nodes["+id+"]", "its visit is taken over, and the node is gone")
		}
	}
	edge := func(e workgraph.Edge, what string) {
		if taken[e.To] && e.Kind != workgraph.BackEdge {
			bad("graph.edges["+e.From+" -> "+e.To+"]", what)
		}
	}
	for _, e := range d.AddedEdges {
		edge(e, "it leads to a node whose visit is taken over, and is new")
	}
	for _, e := range d.RemovedEdges {
		edge(e, "it led to a node whose visit is taken over, and is gone")
	}
	for _, c := range d.ChangedEdges {
		edge(workgraph.Edge{From: c.From, To: c.To, Kind: c.Kind}, "it leads to a node whose visit is taken over, and "+strings.Join(c.Fields, ", ")+" would change")
	}
	if n > 0 {
		return out
	}
	return nil
}

// performedBelow names the UNSAFE calls that were performed in descendants which the fork would start
// again, since the visits that spawned them are not reused.
func (h *Handler) performedBelow(ctx context.Context, row journal.Run, reused []workgraph.ReusedVisit) ([]string, error) {
	below, err := h.journal.Descendants(ctx, row.Namespace, row.ID)
	if err != nil {
		return nil, err
	}
	taken := make(map[workgraph.Ref]bool, len(reused))
	for i := range reused {
		taken[reused[i].Ref] = true
	}
	kept := map[string]bool{} // the runs that are not started again
	var names []string
	for _, d := range below {
		if kept[d.ParentRunID] {
			kept[d.RunID] = true
			continue
		}
		child, state, err := h.recordedState(ctx, row.Namespace, d.RunID)
		switch {
		case errs.Is(err, errs.NotFound): // deleted meanwhile
			continue
		case err != nil:
			return nil, err
		}
		if d.ParentRunID == row.ID {
			f, err := record.LineageOf(child)
			if err != nil {
				return nil, err
			}
			f.Ref.Item = 0 // visits are reused as a whole
			if taken[f.Ref] {
				kept[d.RunID] = true
				continue
			}
		}
		if state == nil {
			continue
		}
		for _, ref := range workgraph.PerformedUnsafe(state) {
			names = append(names, ref.String()+" of "+d.RunID)
		}
		if len(names) > 20 {
			break
		}
	}
	return names, nil
}

// refuseRepeats refuses to repeat UNSAFE visits that were performed, in the run or in its descendants.
func refuseRepeats(p *workgraph.Program, again []workgraph.Ref, below []string) error {
	var names []string
	for _, ref := range again {
		if _, there := p.Node(ref.Node); there || strings.Contains(ref.Node, "#") {
			names = append(names, ref.String())
		}
	}
	if names = append(names, below...); len(names) == 0 {
		return nil
	}
	shown := strings.Join(names[:min(20, len(names))], ", ")
	if more := len(names) - 20; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return errs.New(errs.FailedPrecondition, ReasonForkRepeatsUnsafe, "UNSAFE calls that were performed would be made again: %s", shown).
		Set("visits", shown).Hint("fork from a later visit, or allow it with allow_unsafe")
}

// startOf is a start request with the parameters of a run, except its graph and keys.
func startOf(row journal.Run) (StartRequest, error) {
	out := StartRequest{
		Namespace: row.Namespace, Context: row.Context, TaskID: row.TaskID, UserID: row.UserID, ChatID: row.ChatID, ThreadID: row.ThreadID,
		Labels: row.Labels, Priority: int(row.Priority), Attachments: row.Attachments, Origin: tracing.OfRun(row),
	}
	m, err := record.DecodeMetadata(row.Metadata)
	if err != nil {
		return out, err
	}
	out.Metadata, out.Budget, out.Webhooks, out.Lineage.Approved, out.Lineage.Agent = m.User, m.Budget, m.Webhooks, m.Approved, m.Agent
	out.Lineage.Maker, out.Lineage.Payer = m.MakerOf(row.RootID), m.Payer
	if len(row.Args) > 0 {
		if err := json.Unmarshal(row.Args, &out.Input.Args); err != nil {
			return out, fmt.Errorf("decode args of run %s: %w", row.ID, err)
		}
	}
	if len(row.Named) > 0 {
		if err := json.Unmarshal(row.Named, &out.Input.Named); err != nil {
			return out, fmt.Errorf("decode named arguments of run %s: %w", row.ID, err)
		}
	}
	return out, nil
}

// Unexpanded removes from a graph what expansions inserted. A fork expands again when it reuses the visits.
func Unexpanded(g *workgraph.Graph) *workgraph.Graph {
	expanded := func(id string) bool { return strings.Contains(id, "#") }
	if !slices.ContainsFunc(g.Nodes, func(n workgraph.Node) bool { return expanded(n.ID) }) {
		return g
	}
	out := g.Clone()
	out.Nodes = slices.DeleteFunc(out.Nodes, func(n workgraph.Node) bool { return expanded(n.ID) })
	for i := range out.Nodes {
		if on := out.Nodes[i].On; on != nil && on.Inbox != nil {
			on.Inbox.From = slices.DeleteFunc(slices.Clone(on.Inbox.From), expanded)
		}
	}
	type name struct {
		from, to string
		kind     workgraph.EdgeKind
	}
	seen := map[name]bool{}
	edges := out.Edges
	out.Edges = nil
	for _, e := range edges {
		if expanded(e.To) {
			continue
		}
		// An edge from the sinks of an expansion was originally an edge from the expanded node.
		e.From, _, _ = strings.Cut(e.From, "#")
		if k := (name{e.From, e.To, e.Kind}); !seen[k] {
			seen[k] = true
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}
