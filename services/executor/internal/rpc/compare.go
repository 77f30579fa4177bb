package rpc

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// maxComparedParts bounds each list of differences of a graph.
	maxComparedParts = 1000
	// maxComparedResult is up to which size results are shown beside each other.
	maxComparedResult = 64 << 10
)

// CompareRuns implements the service.
func (s *Server) CompareRuns(ctx context.Context, req *executorv1.CompareRunsRequest) (*executorv1.CompareRunsResponse, error) {
	leave, err := s.enter(ctx, standing, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	namespace := grpckit.Namespace(ctx)
	c, err := s.query.Compare(ctx, query.CompareRequest{
		Namespace: namespace, RunID: req.GetRunId(), Base: req.GetBaseRunId(), All: req.GetAllVisits(), Size: req.GetPageSize(), Token: req.GetPageToken()})
	if err != nil {
		return nil, err
	}
	pair := func(p *query.VisitPair) *executorv1.VisitComparison {
		m := &executorv1.VisitComparison{NodeId: p.Ref.Node, Visit: callpb.Count(p.Ref.Visit), Differences: p.Differences, BaseBytes: p.BaseBytes, RunBytes: p.RunBytes}
		if p.Base != nil {
			m.Base = visitMessage(namespace, c.Base.ID, p.Base, s.engine.Tokens())
		}
		if p.Run != nil {
			m.Run = visitMessage(namespace, c.Run.ID, p.Run, s.engine.Tokens())
		}
		return m
	}
	out := &executorv1.CompareRunsResponse{NextPageToken: c.Next}
	for i := range c.Pairs {
		out.Visits = append(out.Visits, pair(&c.Pairs[i]))
	}
	if req.GetPageToken() != "" {
		return out, nil
	}
	if out.Base, err = s.runMessage(ctx, c.Base, false); err != nil {
		return nil, err
	}
	if out.Run, err = s.runMessage(ctx, c.Run, false); err != nil {
		return nil, err
	}
	out.Graph, out.InputFields, out.ResultDiffers, out.Truncated = graphComparison(&c), c.Input, c.ResultDiffers, c.Truncated
	out.SameVisits, out.DifferentVisits = callpb.Count(c.Same), callpb.Count(c.Different)
	out.BaseResult, out.RunResult = shownResult(c.Base.Result), shownResult(c.Run.Result)
	if c.First != nil {
		out.FirstDifference = pair(c.First)
	}
	return out, nil
}

func shownResult(b []byte) *graphv1.Payload {
	if len(b) > maxComparedResult {
		return nil
	}
	return graphpb.Payload(b)
}

func graphComparison(c *query.Comparison) *executorv1.GraphComparison {
	d := &c.Graph
	m := &executorv1.GraphComparison{
		Same: d.Empty(), AddedNodes: upTo(d.AddedNodes), RemovedNodes: upTo(d.RemovedNodes),
		Differences:  callpb.Count(len(d.AddedNodes) + len(d.RemovedNodes) + len(d.ChangedNodes) + len(d.AddedEdges) + len(d.RemovedEdges) + len(d.ChangedEdges) + len(d.ChangedState)),
		ChangedState: upTo(d.ChangedState),
	}
	for _, n := range upTo(d.ChangedNodes) {
		arguments := c.Arguments[n.ID]
		fields := slices.DeleteFunc(slices.Clone(n.Fields), func(f string) bool { return len(arguments) > 0 && (f == "args" || f == "named") })
		m.ChangedNodes = append(m.ChangedNodes, &executorv1.NodeChange{NodeId: n.ID, Fields: upTo(append(fields, arguments...))})
	}
	// An edge that changes goes and comes.
	var changed []workgraph.Edge
	for _, e := range d.ChangedEdges {
		changed = append(changed, workgraph.Edge{From: e.From, To: e.To, Kind: e.Kind})
	}
	for _, e := range upTo(slices.Concat(d.AddedEdges, changed)) {
		m.AddedEdges = append(m.AddedEdges, edgeText(e))
	}
	for _, e := range upTo(slices.Concat(d.RemovedEdges, changed)) {
		m.RemovedEdges = append(m.RemovedEdges, edgeText(e))
	}
	return m
}

// upTo are the elements of a list that an answer names.
func upTo[T any](list []T) []T { return list[:min(len(list), maxComparedParts)] }
