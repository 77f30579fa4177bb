package rpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/early"
	"github.com/epigraph-run/epigraph/workgraph"
)

// executor runs the plan of one request, for its caller.
type executor struct {
	client executorv1.ExecutorServiceClient
	how    *plannerv1.PlanRun
}

var _ early.Executor = (*executor)(nil)

// Start implements early.Executor.
func (e *executor) Start(ctx context.Context, g *workgraph.Graph) (early.Run, error) {
	wire, err := graphpb.ToProto(g)
	if err != nil {
		return early.Run{}, fmt.Errorf("encode graph: %w", err)
	}
	h := e.how
	var header metadata.MD
	run, err := e.client.StartRun(ctx, &executorv1.StartRunRequest{
		Graph: wire, Args: h.GetArgs(), Named: h.GetNamed(), TaskId: h.GetTaskId(), UserId: h.GetUserId(), ChatId: h.GetChatId(), ThreadId: h.GetThreadId(),
		Context: h.GetContext(), Attachments: h.GetAttachments(), Metadata: h.GetMetadata(), Labels: h.GetLabels(), BusinessKey: h.GetBusinessKey(),
		RequestId: h.GetRequestId(), Priority: h.GetPriority(), Timeout: h.GetTimeout(), Budget: h.GetBudget(), Webhooks: h.GetWebhooks(),
	}, grpc.Header(&header))
	if err != nil {
		return early.Run{}, err
	}
	return early.Run{ID: run.GetId(), Existing: grpckit.Repeated(header)}, nil
}

// Examine implements early.Executor.
func (e *executor) Examine(ctx context.Context, g *workgraph.Graph, knownInput bool) ([]early.Behavior, []workgraph.Fault, error) {
	wire, err := graphpb.ToProto(g)
	if err != nil {
		return nil, nil, fmt.Errorf("encode graph: %w", err)
	}
	req := &executorv1.ValidateGraphRequest{Graph: wire}
	if knownInput {
		req.Input = &executorv1.RunInput{Args: e.how.GetArgs(), Named: e.how.GetNamed()}
	}
	r, err := e.client.ValidateGraph(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	var out []early.Behavior
	for _, b := range r.GetBehaviors() {
		out = append(out, early.Behavior{Effect: graphpb.EffectOf(b.GetEffect()), Approves: b.GetApproves()})
	}
	return out, graphpb.Faults(r.GetFaults()), nil
}

// startable returns the faults for which no run can be started with a graph, as far as an executor says
// so now. Actors that it does not know are no fault: workers may bring them.
func (s *Server) startable(ctx context.Context, g *workgraph.Graph) ([]workgraph.Fault, error) {
	if s.executor == nil {
		return nil, nil
	}
	_, faults, err := (&executor{client: s.executor}).Examine(ctx, g, false)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil: // the start of a run asks again
		return nil, nil //nolint:nilerr // a plan that was paid needs no executor
	}
	return slices.DeleteFunc(faults, func(f workgraph.Fault) bool {
		return f.Code == workgraph.CodeUnknownActor || f.Code == workgraph.CodeMoreFaults
	}), nil
}

// amendable refuses a run that an executor does not know, and one that has ended: no change of it could be
// used, so that no model is asked for one. What an executor does not tell now, AmendRun does.
func (s *Server) amendable(ctx context.Context, runID string) error {
	if s.executor == nil {
		return nil
	}
	run, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: runID})
	switch {
	case errs.Is(err, errs.NotFound):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && run.GetEndTime() != nil:
		return errs.New(errs.FailedPrecondition, "RUN_ENDED", "run %q has ended, so that its plan cannot change", runID).
			Hint("fork the run, or start another one")
	}
	return nil
}

// Amend implements early.Executor.
func (e *executor) Amend(ctx context.Context, runID, id string, revision int64, patch *workgraph.Patch, whole *workgraph.Graph) error {
	req := &executorv1.AmendRunRequest{RunId: runID, RequestId: id, ExpectedRevision: revision, By: "planner"}
	var err error
	if whole != nil {
		req.Graph, err = graphpb.ToProto(whole)
	} else {
		req.Patch, err = patchTo(patch)
	}
	if err != nil {
		return fmt.Errorf("encode change: %w", err)
	}
	_, err = e.client.AmendRun(ctx, req)
	return err
}

// Graph implements early.Executor.
func (e *executor) Graph(ctx context.Context, runID string) (*workgraph.Graph, int64, error) {
	r, err := e.client.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: runID})
	if err != nil {
		return nil, 0, err
	}
	g, err := graphpb.FromProto(r.GetGraph())
	return g, r.GetGraphRevision(), err
}

// Cancel implements early.Executor.
func (e *executor) Cancel(ctx context.Context, runID, reason string) error {
	_, err := e.client.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: runID, Reason: reason, RequestId: "plan-" + runID})
	return err
}
