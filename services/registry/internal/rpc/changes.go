package rpc

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
)

// RecordChanges implements registryv1.RegistryServiceServer.
func (s *Server) RecordChanges(ctx context.Context, req *registryv1.RecordChangesRequest) (*registryv1.RecordChangesResponse, error) {
	if len(req.GetRuns())+len(req.GetThreads()) == 0 {
		return &registryv1.RecordChangesResponse{}, nil
	}
	list := make([]cataloging.RunChange, len(req.GetRuns()))
	for i, r := range req.GetRuns() {
		var err error
		if list[i], err = runChangeFrom(fmt.Sprintf("runs[%d]", i), r); err != nil {
			return nil, err
		}
	}
	threads := make([]cataloging.ThreadChange, len(req.GetThreads()))
	for i, c := range req.GetThreads() {
		var err error
		if threads[i], err = threadChangeFrom(fmt.Sprintf("threads[%d]", i), c); err != nil {
			return nil, err
		}
	}
	n, err := s.catalog.RecordChanges(ctx, grpckit.Namespace(ctx), list, threads...)
	if err != nil {
		return nil, err
	}
	return &registryv1.RecordChangesResponse{Recorded: int32(n)}, nil
}

func threadChangeFrom(field string, r *registryv1.ThreadChange) (c cataloging.ThreadChange, err error) {
	c = cataloging.ThreadChange{ThreadID: r.GetThreadId(), State: feed.ThreadState{
		Seq: r.GetSequence(), Role: r.GetRole(), RunID: r.GetRunId(), Agent: r.GetAgent(), Title: r.GetTitle(), UserID: r.GetUserId(),
		Parent: r.GetParentThreadId(), PartOf: r.GetPartOf(), Lifetime: r.GetLifetime(),
	}}
	switch r.GetKind() {
	case registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_CREATED:
		c.Kind = feed.ThreadCreated
	case registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_MESSAGE:
		c.Kind = feed.ThreadMessage
	default:
		c.Kind = feed.ThreadDeleted
	}
	c.State.Time, err = instant(field+".change_time", r.GetChangeTime())
	return c, err
}

func runChangeFrom(field string, r *registryv1.RunChange) (cataloging.RunChange, error) {
	c := cataloging.RunChange{Seq: r.GetSeq(), RunID: r.GetRunId(), Parent: r.GetParentRunId(), TaskID: r.GetTaskId(), EpicID: r.GetEpicId(), Reason: r.GetReason(), Runs: r.GetRuns()}
	switch r.GetKind() {
	case registryv1.RunChangeKind_RUN_CHANGE_KIND_STARTED:
		c.Kind = feed.RunStarted
	case registryv1.RunChangeKind_RUN_CHANGE_KIND_PAUSED:
		c.Kind = feed.RunPaused
	case registryv1.RunChangeKind_RUN_CHANGE_KIND_RESUMED:
		c.Kind = feed.RunResumed
	case registryv1.RunChangeKind_RUN_CHANGE_KIND_AMENDED:
		c.Kind = feed.RunAmended
	case registryv1.RunChangeKind_RUN_CHANGE_KIND_DELETED:
		c.Kind = feed.RunDeleted
	default:
		c.Kind = feed.RunEnded
	}
	var err error
	if c.Ref, err = versionFrom(field+".workflow", r.GetWorkflow()); err != nil {
		return c, err
	}
	if c.Time, err = instant(field+".change_time", r.GetChangeTime()); err != nil || c.Kind != feed.RunEnded {
		return c, err
	}
	u := r.GetUsage()
	c.Whole, c.History.NanoUSD, c.History.Tokens, c.Sampled.UnpricedCalls = u != nil, u.GetCostNanoUsd(), u.GetTokens(), u.GetUnpricedCalls()
	if r.GetDuration() != nil {
		d := r.GetDuration().AsDuration()
		c.Sampled.Duration = &d
	}
	if a := r.GetActivitySummary(); a != nil {
		c.Activity = &feed.Activity{Total: a.GetTotalNodes(), Completed: a.GetCompletedNodes(), Failed: a.GetFailedNodes(), Skipped: a.GetSkippedNodes(), Calls: a.GetCalls()}
		if a.GetDuration() != nil {
			d := a.GetDuration().AsDuration()
			c.Activity.Duration = &d
		}
	}
	switch r.GetOutcome() {
	case registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED:
		c.History.Completed = 1
	case registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_CANCELED:
		c.History.Canceled = 1
	case registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED:
		c.History.Failed = 1
	default:
		return c, invalid(field+".outcome", "OUTCOME_MISSING", "an end must say how the run ended")
	}
	return c, nil
}

// versionFrom is the version of the catalog that a run runs, which may be none.
func versionFrom(field, text string) (ref catalog.Ref, err error) {
	if text == "" {
		return ref, nil
	}
	if ref, err = catalog.ParseRef(text); err == nil && ref.Version == 0 {
		err = invalid(field, "WORKFLOW_REF_INVALID", "must name a version by its number")
	}
	return ref, err
}
