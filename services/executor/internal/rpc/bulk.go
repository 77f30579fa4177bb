package rpc

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// bulkRequest reads what bulk requests share.
func bulkRequest(ctx context.Context, f *executorv1.RunFilter, limit int32, dry bool) (command.BulkRequest, error) {
	out := command.BulkRequest{Namespace: grpckit.Namespace(ctx), Limit: int(limit), DryRun: dry, Filter: journal.Filter{
		TaskID: f.GetTaskId(), UserID: f.GetUserId(), Labels: f.GetLabels(), ScheduleID: f.GetScheduleId(), Reason: f.GetStateReason(),
		CreatedAfter: instant(f.GetCreatedAfter()), CreatedBefore: instant(f.GetCreatedBefore()),
	}}
	out.Filter.EpicID = f.GetEpicId()
	out.Filter.Workflow, out.Filter.WorkflowVersion = workflowFilter(f.GetWorkflow())
	for _, st := range f.GetStates() {
		if st < executorv1.RunState_RUN_STATE_PENDING || st > executorv1.RunState_RUN_STATE_CANCELED {
			return out, errs.New(errs.InvalidArgument, "STATE_UNKNOWN", "filter.states: %d is not a state to filter by", st).
				Violate("filter.states", "STATE_UNKNOWN", "not a state of a run")
		}
		out.Filter.States = append(out.Filter.States, journal.State(st))
	}
	return out, nil
}

// workflowFilter reads NAME or NAME@VERSION.
func workflowFilter(name string) (slug, version string) {
	if strings.Contains(name, "@") {
		return "", name
	}
	return name, ""
}

// sample are the runs that a dry run shows.
func (s *Server) sample(ctx context.Context, rows []journal.Run) (out []*executorv1.Run, err error) {
	for _, r := range rows {
		m, err := s.runMessage(ctx, r, false)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func bulkFailures(list []command.BulkFailure) []*executorv1.BulkFailure {
	var out []*executorv1.BulkFailure
	for _, f := range list {
		e := errs.From(f.Err)
		out = append(out, &executorv1.BulkFailure{RunId: f.RunID, Reason: e.Reason, Message: e.Message})
	}
	return out
}

// BulkCancelRuns implements the service.
func (s *Server) BulkCancelRuns(ctx context.Context, req *executorv1.BulkCancelRunsRequest) (*executorv1.BulkCancelRunsResponse, error) {
	b, err := bulkRequest(ctx, req.GetFilter(), req.GetLimit(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	r, err := s.engine.BulkCancel(ctx, b, req.GetReason())
	if err != nil {
		return nil, err
	}
	sample, err := s.sample(ctx, r.Sample)
	if err != nil {
		return nil, err
	}
	return &executorv1.BulkCancelRunsResponse{Sample: sample, Matched: callpb.Count(r.Matched), Done: callpb.Count(r.Done), Failures: bulkFailures(r.Failures), More: r.More}, nil
}

// BulkRetryRuns implements the service.
func (s *Server) BulkRetryRuns(ctx context.Context, req *executorv1.BulkRetryRunsRequest) (*executorv1.BulkRetryRunsResponse, error) {
	b, err := bulkRequest(ctx, req.GetFilter(), req.GetLimit(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx, standing, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := s.engine.BulkRetry(ctx, b, req.GetAllowUnsafe(), req.GetWithoutTask())
	if err != nil {
		return nil, err
	}
	sample, err := s.sample(ctx, r.Sample)
	if err != nil {
		return nil, err
	}
	return &executorv1.BulkRetryRunsResponse{Sample: sample, Matched: callpb.Count(r.Matched), RunIds: r.RunIDs, Failures: bulkFailures(r.Failures), More: r.More}, nil
}

// BulkDeleteRuns implements the service.
func (s *Server) BulkDeleteRuns(ctx context.Context, req *executorv1.BulkDeleteRunsRequest) (*executorv1.BulkDeleteRunsResponse, error) {
	b, err := bulkRequest(ctx, req.GetFilter(), req.GetLimit(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	r, err := s.engine.BulkDelete(ctx, b)
	grpckit.Deleted(ctx, r.RunIDs...)
	if err != nil {
		return nil, err
	}
	sample, err := s.sample(ctx, r.Sample)
	if err != nil {
		return nil, err
	}
	return &executorv1.BulkDeleteRunsResponse{Sample: sample, Matched: callpb.Count(r.Matched), Done: callpb.Count(r.Done), Failures: bulkFailures(r.Failures), More: r.More}, nil
}

// BulkPauseRuns implements the service.
func (s *Server) BulkPauseRuns(ctx context.Context, req *executorv1.BulkPauseRunsRequest) (*executorv1.BulkPauseRunsResponse, error) {
	b, err := bulkRequest(ctx, req.GetFilter(), req.GetLimit(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	r, err := s.engine.BulkPause(ctx, b, req.GetReason())
	if err != nil {
		return nil, err
	}
	sample, err := s.sample(ctx, r.Sample)
	if err != nil {
		return nil, err
	}
	return &executorv1.BulkPauseRunsResponse{Sample: sample, Matched: callpb.Count(r.Matched), Done: callpb.Count(r.Done), Failures: bulkFailures(r.Failures), More: r.More}, nil
}

// BulkResumeRuns implements the service.
func (s *Server) BulkResumeRuns(ctx context.Context, req *executorv1.BulkResumeRunsRequest) (*executorv1.BulkResumeRunsResponse, error) {
	b, err := bulkRequest(ctx, req.GetFilter(), req.GetLimit(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	r, err := s.engine.BulkResume(ctx, b, req.GetReason())
	if err != nil {
		return nil, err
	}
	sample, err := s.sample(ctx, r.Sample)
	if err != nil {
		return nil, err
	}
	return &executorv1.BulkResumeRunsResponse{Sample: sample, Matched: callpb.Count(r.Matched), Done: callpb.Count(r.Done), Failures: bulkFailures(r.Failures), More: r.More}, nil
}
