package rpc

import (
	"context"
	"fmt"
	"maps"
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
	// maxShownArgument and maxShownArguments bound one argument of a visit and all of them, in bytes.
	maxShownArgument, maxShownArguments = 256 << 10, 4 << 20
)

// GetVisit implements the service.
func (s *Server) GetVisit(ctx context.Context, req *executorv1.GetVisitRequest) (*executorv1.GetVisitResponse, error) {
	leave, err := s.enter(ctx, standing, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	ref := workgraph.Ref{Node: req.GetNodeId(), Visit: max(int(req.GetVisit()), 1), Item: int(req.GetItem())}
	v, err := s.query.Visit(ctx, query.VisitRequest{Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Ref: ref, Size: req.GetPageSize(), Token: req.GetPageToken()})
	if err != nil {
		return nil, err
	}
	out := &executorv1.GetVisitResponse{
		Visit: visitMessage(grpckit.Namespace(ctx), req.GetRunId(), &v.Visit, s.engine.Tokens()), ArgumentsKnown: v.Known, ChildRunIds: v.Children, NextPageToken: v.Next,
	}
	showArguments(out, &v)
	for i := range v.Attempts {
		out.Attempts = append(out.Attempts, attemptMessage(&v.Attempts[i], v.Visit.Actor))
	}
	return out, nil
}

// showArguments adds the arguments that there is room for. One that is left out keeps its place.
func showArguments(out *executorv1.GetVisitResponse, v *query.VisitDetails) {
	room := maxShownArguments
	show := func(name string, b []byte) *graphv1.Payload {
		if len(b) > maxShownArgument || len(b) > room {
			out.LeftOut = append(out.LeftOut, &executorv1.LeftOutArgument{Argument: name, Bytes: int64(len(b))})
			return nil
		}
		room -= len(b)
		return graphpb.Payload(b)
	}
	for i, b := range v.Args {
		p := show(fmt.Sprintf("args[%d]", i), b)
		if p == nil {
			p = &graphv1.Payload{}
		}
		out.Args = append(out.Args, p)
	}
	for _, k := range slices.Sorted(maps.Keys(v.Named)) {
		if p := show("named."+k, v.Named[k]); p != nil {
			if out.Named == nil {
				out.Named = map[string]*graphv1.Payload{}
			}
			out.Named[k] = p
		}
	}
}

func attemptMessage(a *query.Attempt, actor string) *executorv1.VisitAttempt {
	if f := a.Flight; f != nil {
		return &executorv1.VisitAttempt{Attempt: callpb.Count(f.Attempt), Item: callpb.Count(f.Ref.Item), Actor: actor, StartTime: stamp(f.Start)}
	}
	m := &executorv1.VisitAttempt{Attempt: callpb.Count(a.Attempt), Item: callpb.Count(a.Item), Actor: a.Actor, StartTime: stamp(a.StartTime), EndTime: stamp(a.At),
		Error: errorMessage(a.Error, workgraph.Ref{Node: a.Node, Visit: a.Visit}), Principal: a.Principal, Cached: a.Cached, EndSeq: a.Seq}
	switch {
	case a.Outcome != nil:
		m.Usage = usageMessage(a.Outcome.Usage)
	case a.Error != nil:
		m.Usage = usageMessage(a.Error.Usage)
	}
	return m
}
