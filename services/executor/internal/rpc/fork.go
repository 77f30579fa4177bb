package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/workgraph"
)

// RetryRun implements the service.
func (s *Server) RetryRun(ctx context.Context, req *executorv1.RetryRunRequest) (*executorv1.Run, error) {
	once, before, err := s.answered(ctx, command.MethodRetry, req)
	if err != nil || before != nil {
		return before, err
	}
	leave, err := s.enter(ctx, standing, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	id, err := s.engine.Retry(ctx, command.RetryRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), AllowUnsafe: req.GetAllowUnsafe(), WithoutTask: req.GetWithoutTask(), Request: once})
	if err != nil {
		return nil, graphFaults(err)
	}
	return s.run(ctx, id)
}

// ForkRun implements the service.
func (s *Server) ForkRun(ctx context.Context, req *executorv1.ForkRunRequest) (*executorv1.Run, error) {
	once, before, err := s.answered(ctx, command.MethodFork, req)
	if err != nil || before != nil {
		return before, err
	}
	leave, err := s.enter(ctx, standing, req, req.GetGraph())
	if err != nil {
		return nil, err
	}
	defer leave()
	fork := command.ForkRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), ReplaceArgs: req.GetReplaceArgs(), AllowUnsafe: req.GetAllowUnsafe(), WithoutTask: req.GetWithoutTask(),
		BusinessKey: req.GetBusinessKey(), Labels: req.GetLabels(), Request: once, Budget: callpb.FromBudget(req.GetBudget()),
	}
	if v := req.GetVisit(); v != nil {
		if v.GetItem() != 0 {
			return nil, errs.New(errs.InvalidArgument, command.ReasonVisitNotFound, "a whole visit runs anew, not one item of it").
				Violate("visit.item", command.ReasonVisitNotFound, "must be 0")
		}
		fork.From = &workgraph.Ref{Node: v.GetNodeId(), Visit: max(int(v.GetVisit()), 1)}
	}
	var faults workgraph.Faults
	collect := func(err error) {
		if more, ok := errors.AsType[workgraph.Faults](err); ok {
			faults = append(faults, more...)
		}
	}
	fork.Args, err = graphpb.RawList("args", req.GetArgs())
	collect(err)
	fork.Named, err = graphpb.RawMap("named", req.GetNamed())
	collect(err)
	if len(faults) > 0 {
		return nil, inputFaults(faults)
	}
	if req.GetGraph() != nil {
		if fork.Graph, err = graphpb.FromProto(req.GetGraph()); err != nil {
			return nil, graphFaults(err)
		}
	}
	id, err := s.engine.Fork(ctx, fork)
	if err != nil {
		return nil, graphFaults(err)
	}
	return s.run(ctx, id)
}

// AmendRun implements the service.
func (s *Server) AmendRun(ctx context.Context, req *executorv1.AmendRunRequest) (*executorv1.AmendRunResponse, error) {
	if (req.GetPatch() == nil) == (req.GetGraph() == nil) {
		return nil, errs.New(errs.InvalidArgument, "CHANGE_MISSING", "exactly one of patch and graph must be given").
			Violate("patch", "CHANGE_MISSING", "give a patch, or the whole graph that the run is to have")
	}
	leave, err := s.enter(ctx, standing, req, &graphv1.Graph{Nodes: req.GetPatch().GetPutNodes(), Edges: req.GetPatch().GetAddEdges()}, req.GetGraph())
	if err != nil {
		return nil, err
	}
	defer leave()
	how := command.AmendRequest{Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Revision: req.GetExpectedRevision(), DryRun: req.GetDryRun(), By: req.GetBy()}
	if req.GetGraph() == nil {
		how.Patch, err = patchOf(req.GetPatch())
	} else if how.Graph, err = graphpb.FromProto(req.GetGraph()); err != nil {
		err = graphFaults(err)
	}
	if err != nil {
		return nil, err
	}
	if how.Request, err = repeatable(req); err != nil {
		return nil, err
	}
	a, err := s.engine.Amend(ctx, how)
	if err != nil {
		return nil, graphFaults(err)
	}
	run, err := s.run(ctx, req.GetRunId())
	if err != nil {
		return nil, err
	}
	return &executorv1.AmendRunResponse{Run: run, Diff: diffMessage(a)}, nil
}

func patchOf(p *executorv1.GraphPatch) (workgraph.Patch, error) {
	put, err := graphpb.FromProto(&graphv1.Graph{Nodes: p.GetPutNodes(), Edges: p.GetAddEdges()})
	if err != nil {
		return workgraph.Patch{}, graphFaults(err)
	}
	gone, err := graphpb.FromProto(&graphv1.Graph{Edges: p.GetRemoveEdges()})
	if err != nil {
		return workgraph.Patch{}, graphFaults(err)
	}
	return workgraph.Patch{RemoveNodes: p.GetRemoveNodes(), RemoveEdges: gone.Edges, PutNodes: put.Nodes, AddEdges: put.Edges}, nil
}

func edgeText(e workgraph.Edge) string {
	out := e.From + " -> " + e.To
	if e.Kind != "" && e.Kind != workgraph.DataEdge {
		out += " (" + string(e.Kind) + ")"
	}
	return out
}

func diffMessage(a *command.Amendment) *executorv1.GraphDiff {
	d := &a.Diff
	m := &executorv1.GraphDiff{AddedNodes: d.AddedNodes, RemovedNodes: d.RemovedNodes, GraphHash: a.GraphHash, GraphRevision: a.GraphRevision}
	for _, c := range d.ChangedNodes {
		m.ChangedNodes = append(m.ChangedNodes, &executorv1.NodeChange{NodeId: c.ID, Fields: c.Fields})
	}
	for _, e := range d.AddedEdges {
		m.AddedEdges = append(m.AddedEdges, edgeText(e))
	}
	for _, e := range d.RemovedEdges {
		m.RemovedEdges = append(m.RemovedEdges, edgeText(e))
	}
	// An edge that changes goes and comes.
	for _, c := range d.ChangedEdges {
		text := edgeText(workgraph.Edge{From: c.From, To: c.To, Kind: c.Kind})
		m.AddedEdges, m.RemovedEdges = append(m.AddedEdges, text), append(m.RemovedEdges, text)
	}
	for _, ref := range a.Cancels {
		m.Canceled = append(m.Canceled, refMessage(ref))
	}
	return m
}

// DeleteRun implements the service.
func (s *Server) DeleteRun(ctx context.Context, req *executorv1.DeleteRunRequest) (*emptypb.Empty, error) {
	revision, err := parseEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	if _, err := s.engine.Delete(ctx, grpckit.Namespace(ctx), req.GetRunId(), revision); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
