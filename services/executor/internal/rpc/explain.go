package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/workgraph"
)

// peerTimeout bounds the call to a run's owner: its knowledge improves an explanation, but is not all of it.
const peerTimeout = time.Second

// ExplainRun implements the service.
func (s *Server) ExplainRun(ctx context.Context, req *executorv1.ExplainRunRequest) (*executorv1.ExplainRunResponse, error) {
	x, err := s.query.Explain(ctx, grpckit.Namespace(ctx), req.GetRunId())
	if err != nil {
		return nil, err
	}
	if x.Addr != "" && s.dial != nil {
		if far := s.askOwner(ctx, x.Addr, req.GetRunId()); len(far) > 0 {
			x.Arrange(far)
		}
	}
	out := &executorv1.ExplainRunResponse{
		RunId: x.Row.ID, State: executorv1.RunState(x.Row.State), Summary: x.Summary, Owner: x.Owner, More: callpb.Count(x.More),
	}
	for i := range x.Blockers {
		out.Blockers = append(out.Blockers, blockerMessage(&x.Blockers[i]))
	}
	return out, nil
}

// askOwner asks the executor that owns a run for what only it knows; it returns nothing if there is no answer
// in time.
func (s *Server) askOwner(ctx context.Context, addr, runID string) []query.Blocker {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	conn, err := s.dial(addr)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }() // nothing is left to lose on it
	r, err := executorv1.NewPeerServiceClient(conn).ExplainLocal(ctx, &executorv1.ExplainLocalRequest{Namespace: grpckit.Namespace(ctx), RunId: runID})
	if err != nil {
		return nil
	}
	out := make([]query.Blocker, 0, len(r.GetBlockers()))
	for _, b := range r.GetBlockers() {
		out = append(out, blocker(b))
	}
	return out
}

// Explainer answers the part of epigraph.executor.v1.PeerService that is about explanations.
type Explainer struct{ query *query.Query }

// Explainer shares what the server has read.
func (s *Server) Explainer() Explainer { return Explainer{s.query} }

// ExplainLocal implements the service.
func (x Explainer) ExplainLocal(_ context.Context, req *executorv1.ExplainLocalRequest) (*executorv1.ExplainLocalResponse, error) {
	out := &executorv1.ExplainLocalResponse{}
	for _, h := range x.query.BlockersHere(req.GetNamespace(), req.GetRunId()) {
		out.Blockers = append(out.Blockers, blockerMessage(&h))
	}
	return out, nil
}

// DialPeers lets explanations ask the executors that own runs.
func (s *Server) DialPeers(dial func(addr string) (*grpc.ClientConn, error)) { s.dial = dial }

func blockerMessage(h *query.Blocker) *executorv1.Blocker {
	m := &executorv1.Blocker{
		Kind: executorv1.BlockerKind(h.Kind), Message: h.Message, Hint: h.Hint, Until: stamp(h.Until), Since: stamp(h.Since),
		RunIds: h.RunIDs, NodeIds: h.Nodes, InterruptIds: h.Interrupts, Actor: h.Actor, Name: h.Name,
		Attempt: callpb.Count(h.Attempt), MaxAttempts: callpb.Count(h.Of), EffectKey: h.EffectKey,
	}
	if e := h.Error; e != nil {
		m.Error = &executorv1.RunError{Type: callpb.ErrorType(e.Type), Reason: e.Reason, Message: e.Message, NodeId: e.Node, Visit: callpb.Count(e.Visit)}
	}
	if h.Ref.Node != "" {
		m.Visit = refMessage(h.Ref)
	}
	return m
}

func blocker(b *executorv1.Blocker) query.Blocker {
	return query.Blocker{
		Kind: query.BlockerKind(b.GetKind()), Message: b.GetMessage(), Hint: b.GetHint(), Until: instant(b.GetUntil()), Since: instant(b.GetSince()),
		RunIDs: b.GetRunIds(), Nodes: b.GetNodeIds(), Interrupts: b.GetInterruptIds(), Actor: b.GetActor(), Name: b.GetName(),
		Attempt: int(b.GetAttempt()), EffectKey: b.GetEffectKey(),
		Ref: workgraph.Ref{Node: b.GetVisit().GetNodeId(), Visit: int(b.GetVisit().GetVisit()), Item: int(b.GetVisit().GetItem())},
	}
}
