// Package delegationpb makes epics and tasks of the tools of delegation out of messages of the registry, and
// the other way round. It owns which word stands for which number. It must not know who asks.
package delegationpb

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/delegation"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// NumberOf is the number of a word in the API: the words are in the order of the numbers, from 1. It is 0 for
// a word that is none of them.
func NumberOf[E ~int32](words []string, word string) E { return E(slices.Index(words, word) + 1) }

// WordOf is the word for a number of the API, or "".
func WordOf[E ~int32](words []string, n E) string {
	if n < 1 || int(n) > len(words) {
		return ""
	}
	return words[n-1]
}

// EpicTo is an epic that is to be made or changed.
func EpicTo(e *delegation.Epic) *registryv1.Epic {
	return &registryv1.Epic{
		Id: e.ID, Title: e.Title, Description: e.Description, Tags: e.Tags, Priority: registryv1.Priority(e.Priority), BudgetTokens: e.BudgetTokens, BudgetNanoUsd: e.BudgetNanoUSD,
		ResultSummary: e.Result, UserId: e.User, CreatedByNodeId: e.Node,
	}
}

// EpicFrom is an epic of the registry.
func EpicFrom(e *registryv1.Epic) delegation.Epic {
	if e == nil {
		return delegation.Epic{}
	}
	out := delegation.Epic{
		ID: e.GetId(), Title: e.GetTitle(), Description: e.GetDescription(), Status: WordOf(delegation.EpicStates(), e.GetState()), Result: e.GetResultSummary(), Workflow: e.GetWorkflowSlug(),
		User: e.GetUserId(), Tags: e.GetTags(), Priority: int(e.GetPriority()), BudgetTokens: e.BudgetTokens, BudgetNanoUSD: e.BudgetNanoUsd, SpentTokens: e.GetSpentTokens(),
		SpentNanoUSD: e.GetSpentNanoUsd(), OverheadTokens: e.GetAgentOverheadTokens(), OverheadNanoUSD: e.GetAgentOverheadNanoUsd(), UnpricedCalls: e.GetUnpricedCalls(),
		Total: e.GetTotalTasks(), Completed: e.GetCompletedTasks(), Failed: e.GetFailedTasks(), Root: e.GetMakerRootRunId(),
	}
	if out.Workflow != "" {
		out.Workflows = []string{out.Workflow}
	}
	return out
}

// EpicChange asks for a change of the fields of an epic.
func EpicChange(e *delegation.Epic, fields []string, request string) *registryv1.UpdateEpicRequest {
	return &registryv1.UpdateEpicRequest{Epic: EpicTo(e), UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request}
}

// EpicMove asks for the status of an epic.
func EpicMove(e *delegation.Epic, request string) *registryv1.TransitionEpicRequest {
	return &registryv1.TransitionEpicRequest{EpicId: e.ID, State: NumberOf[registryv1.EpicState](delegation.EpicStates(), e.Status), ResultSummary: e.Result, RequestId: request}
}

// FoundEpics are epics by words, the best first, or without words the newest. It reads some pages at most: a
// page without a query may have few epics, though there are more.
func FoundEpics(ctx context.Context, s delegation.Search, search func(context.Context, *registryv1.SearchEpicsRequest) (*registryv1.SearchEpicsResponse, error)) (out []*registryv1.EpicMatch, err error) {
	req := &registryv1.SearchEpicsRequest{Query: s.Text, Tags: s.Tags, OpenToUserId: s.User}
	if s.Status != "" {
		req.States = append(req.States, NumberOf[registryv1.EpicState](delegation.EpicStates(), s.Status))
	}
	for range delegation.MaxPages {
		req.PageSize = int32(s.Limit - len(out))
		found, err := search(ctx, req)
		if err != nil {
			return nil, err
		}
		out = append(out, found.GetMatches()...)
		if req.PageToken = found.GetNextPageToken(); req.PageToken == "" || len(out) >= s.Limit {
			break
		}
	}
	return out[:min(len(out), s.Limit)], nil
}

// MatchFrom is an epic that was found.
func MatchFrom(m *registryv1.EpicMatch) delegation.Epic {
	e := EpicFrom(m.GetEpic())
	e.Workflows, e.SuccessRate = m.GetWorkflowSlugs(), m.SuccessRate
	return e
}

// TaskTo is a task that is to be made or changed. A note is added by changes alone.
func TaskTo(t *delegation.Task) *registryv1.Task {
	out := &registryv1.Task{
		Id: t.ID, EpicId: t.EpicID, Title: t.Title, Description: t.Description, Tags: t.Tags, DependsOn: t.DependsOn, Priority: registryv1.Priority(t.Priority), WorkflowSlug: t.Workflow,
		WorkflowSource: NumberOf[registryv1.WorkflowSource](delegation.Sources(), t.Source), EstimatedTokens: t.EstimatedTokens, MaxRetries: t.MaxRetries, ResultSummary: t.Result,
		ErrorMessage: t.Error, CreatedByNodeId: t.Node, DependencyPolicy: NumberOf[registryv1.DependencyPolicy](delegation.Policies(), t.Policy),
	}
	if len(t.Input) > 0 {
		out.Input = &graphv1.Payload{Json: t.Input}
	}
	if len(t.Requirements) > 0 {
		out.Requirements = &graphv1.Payload{Json: t.Requirements}
	}
	return out
}

// TaskFrom is a task of the registry.
func TaskFrom(t *registryv1.Task) delegation.Task {
	if t == nil {
		return delegation.Task{}
	}
	return delegation.Task{
		ID: t.GetId(), EpicID: t.GetEpicId(), Title: t.GetTitle(), Description: t.GetDescription(), Status: WordOf(delegation.TaskStates(), t.GetState()), Result: t.GetResultSummary(),
		Error: t.GetErrorMessage(), Workflow: t.GetWorkflowSlug(), Source: WordOf(delegation.Sources(), t.GetWorkflowSource()), RunID: t.GetRunId(), RunWorkflow: t.GetRunWorkflow(), Tags: t.GetTags(),
		DependsOn: t.GetDependsOn(), BlockedBy: t.GetBlockedBy(), Priority: int(t.GetPriority()), EstimatedTokens: t.GetEstimatedTokens(), MaxRetries: t.GetMaxRetries(),
		RetryCount: t.GetRetryCount(), ActualTokens: t.GetActualTokens(), ActualNanoUSD: t.GetActualNanoUsd(),
	}
}

// TaskChange asks for a change of the fields of a task. Its note is added if notes are among them.
func TaskChange(t *delegation.Task, fields []string, request string) *registryv1.UpdateTaskRequest {
	in := TaskTo(t)
	if slices.Contains(fields, "notes") {
		in.Notes = []*registryv1.Note{{Text: t.Note}}
	}
	return &registryv1.UpdateTaskRequest{Task: in, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request}
}

// TaskMove asks for the status of a task, with its result, error and note.
func TaskMove(t *delegation.Task, request string) *registryv1.TransitionTaskRequest {
	return &registryv1.TransitionTaskRequest{
		TaskId: t.ID, State: NumberOf[registryv1.TaskState](delegation.TaskStates(), t.Status), ResultSummary: t.Result, ErrorMessage: t.Error, Note: t.Note, RequestId: request,
	}
}

// TaskList asks for a page of tasks.
func TaskList(q *delegation.Filter) *registryv1.ListTasksRequest {
	req := &registryv1.ListTasksRequest{EpicId: q.EpicID, Tags: q.Tags, PageSize: int32(q.Limit), PageToken: q.Page}
	if q.Status != "" {
		req.States = append(req.States, NumberOf[registryv1.TaskState](delegation.TaskStates(), q.Status))
	}
	return req
}

// TasksFrom are tasks of the registry.
func TasksFrom(list []*registryv1.Task) []delegation.Task {
	out := make([]delegation.Task, len(list))
	for i, t := range list {
		out[i] = TaskFrom(t)
	}
	return out
}
