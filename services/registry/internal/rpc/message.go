package rpc

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func epicFrom(p *registryv1.Epic) (epic.Epic, error) {
	priority, err := optionalEnum("epic.priority", p.GetPriority(), epic.Low)
	if err != nil {
		return epic.Epic{}, err
	}
	policy, err := optionalEnum("epic.dependency_policy", p.GetDependencyPolicy(), epic.Fail)
	return epic.Epic{
		Title: p.GetTitle(), Description: p.GetDescription(), Tags: p.GetTags(), Priority: priority,
		BudgetTokens: p.BudgetTokens, BudgetNanoUSD: p.BudgetNanoUsd, ResultSummary: p.GetResultSummary(),
		WorkflowSlug: p.GetWorkflowSlug(), UserID: p.GetUserId(), CreatedByNode: p.GetCreatedByNodeId(), Labels: p.GetLabels(),
		DependencyPolicy: policy,
	}, err
}

func epicTo(e epic.Epic) *registryv1.Epic {
	return &registryv1.Epic{
		Id: e.ID, Namespace: e.Namespace, Title: e.Title, Description: e.Description, Tags: e.Tags,
		State: registryv1.EpicState(e.State), Priority: registryv1.Priority(e.Priority),
		BudgetTokens: e.BudgetTokens, BudgetNanoUsd: e.BudgetNanoUSD,
		SpentTokens: e.Spent.Tokens, SpentNanoUsd: e.Spent.NanoUSD, UnpricedCalls: e.Spent.UnpricedCalls,
		AgentOverheadTokens: e.Spent.OverheadTokens, AgentOverheadNanoUsd: e.Spent.OverheadNanoUSD,
		TotalTasks: e.TotalTasks, CompletedTasks: e.CompletedTasks, FailedTasks: e.FailedTasks,
		ResultSummary: e.ResultSummary, WorkflowSlug: e.WorkflowSlug, UserId: e.UserID, CreatedByNodeId: e.CreatedByNode,
		Labels: e.Labels, CreateTime: stamp(e.CreateTime), UpdateTime: stamp(e.UpdateTime), EndTime: stamp(e.EndTime), Etag: e.Etag(), Principal: e.Principal,
		DependencyPolicy: registryv1.DependencyPolicy(e.DependencyPolicy), Parallel: e.Parallel, PauseReason: e.PauseReason,
		MakerRootRunId: e.Maker.Root, MakerPrincipal: e.Maker.Principal,
	}
}

// maxInput bounds the inputs of a task's workflow, in bytes.
const maxInput = 256 << 10

// checkInput refuses what cannot be the inputs of a workflow.
func checkInput(raw []byte) error {
	var object map[string]json.RawMessage
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) > maxInput:
		return invalid("task.input", "INPUT_TOO_LARGE", fmt.Sprintf("has %d bytes, the limit is %d", len(raw), maxInput))
	case json.Unmarshal(raw, &object) != nil || object == nil:
		return invalid("task.input", "JSON_INVALID", "must be one JSON object")
	}
	return nil
}

func taskFrom(p *registryv1.Task) (epic.Task, error) {
	t := epic.Task{
		EpicID: p.GetEpicId(), Title: p.GetTitle(), Description: p.GetDescription(), Tags: p.GetTags(), DependsOn: p.GetDependsOn(),
		Requirements: p.GetRequirements().GetJson(), Input: p.GetInput().GetJson(), WorkflowSlug: p.GetWorkflowSlug(), Definition: p.GetDefinition(), EstimatedTokens: p.GetEstimatedTokens(),
		MaxRetries: p.GetMaxRetries(), ResultSummary: p.GetResultSummary(), ErrorMessage: p.GetErrorMessage(),
		CreatedByNode: p.GetCreatedByNodeId(), Labels: p.GetLabels(),
	}
	var err error
	if t.Priority, err = optionalEnum("task.priority", p.GetPriority(), epic.Low); err != nil {
		return t, err
	}
	if t.DependencyPolicy, err = optionalEnum("task.dependency_policy", p.GetDependencyPolicy(), epic.Fail); err != nil {
		return t, err
	}
	if t.Source, err = optionalEnum("task.workflow_source", p.GetWorkflowSource(), epic.Template); err != nil {
		return t, err
	}
	if len(t.Requirements) > 0 && !json.Valid(t.Requirements) {
		return t, invalid("task.requirements", "JSON_INVALID", "must be one JSON value")
	}
	if err := checkInput(t.Input); err != nil {
		return t, err
	}
	for i, n := range p.GetNotes() {
		at, err := instant(fmt.Sprintf("task.notes[%d].time", i), n.GetTime())
		if err != nil {
			return t, err
		}
		t.Notes = append(t.Notes, epic.Note{Time: at, Author: n.GetAuthor(), Text: n.GetText()})
	}
	return t, nil
}

func taskTo(t epic.Task) *registryv1.Task {
	p := &registryv1.Task{
		Id: t.ID, Namespace: t.Namespace, EpicId: t.EpicID, Title: t.Title, Description: t.Description, Tags: t.Tags,
		State: registryv1.TaskState(t.State), Priority: registryv1.Priority(t.Priority), DependsOn: t.DependsOn,
		WorkflowSlug: t.WorkflowSlug, WorkflowSource: registryv1.WorkflowSource(t.Source), RunId: t.RunID, RunWorkflow: t.RunWorkflow,
		EstimatedTokens: t.EstimatedTokens, ActualTokens: t.Actual.Tokens, ActualNanoUsd: t.Actual.NanoUSD,
		UnpricedCalls: t.Actual.UnpricedCalls, LlmCalls: t.Actual.ModelCalls, ToolInvocations: t.Actual.ToolCalls,
		RetryCount: t.RetryCount, MaxRetries: t.MaxRetries, ResultSummary: t.ResultSummary, ErrorMessage: t.ErrorMessage,
		CreatedByNodeId: t.CreatedByNode, Labels: t.Labels, CreateTime: stamp(t.CreateTime), UpdateTime: stamp(t.UpdateTime), Principal: t.Principal,
		StartTime: stamp(t.StartTime), EndTime: stamp(t.EndTime), Etag: t.Etag(),
		DependencyPolicy: registryv1.DependencyPolicy(t.DependencyPolicy), BlockedBy: t.BlockedBy, Definition: t.Definition,
	}
	if t.EndedBy != "" {
		p.BlockedBy = []string{t.EndedBy}
	}
	if t.Duration > 0 {
		p.Duration = durationpb.New(t.Duration)
	}
	if len(t.Requirements) > 0 {
		p.Requirements = &graphv1.Payload{Json: t.Requirements}
	}
	if len(t.Input) > 0 {
		p.Input = &graphv1.Payload{Json: t.Input}
	}
	for _, n := range t.Notes {
		p.Notes = append(p.Notes, &registryv1.Note{Time: stamp(n.Time), Author: n.Author, Principal: n.Principal, Text: n.Text})
	}
	return p
}

func entryFrom(field string, p *registryv1.UsageEntry) (usage.Entry, error) {
	e := usage.Entry{
		Key: usage.Key{
			RunID: p.GetRunId(), NodeID: p.GetNodeId(), Visit: p.GetVisit(), Item: p.GetItem(), Attempt: p.GetAttempt(), Call: p.GetCall(),
		},
		TaskID: p.GetTaskId(), EpicID: p.GetEpicId(), Provider: p.GetProvider(), Model: p.GetModel(),
		InputTokens: p.GetInputTokens(), CachedInputTokens: p.GetCachedInputTokens(),
		OutputTokens: p.GetOutputTokens(), ReasoningTokens: p.GetReasoningTokens(), Failed: p.GetFailed(), By: p.GetBy(), Actor: p.GetActor(),
		CostNanoUSD: p.CostNanoUsd, DurationMS: p.GetDurationMs(),
	}
	var err error
	if e.Kind, err = optionalEnum(field+".kind", p.GetKind(), usage.Embedding); err != nil {
		return e, err
	}
	e.Time, err = instant(field+".time", p.GetTime())
	return e, err
}

func entryTo(e usage.Entry) *registryv1.UsageEntry {
	return &registryv1.UsageEntry{
		RunId: e.RunID, NodeId: e.NodeID, Visit: e.Visit, Item: e.Item, Attempt: e.Attempt, Call: e.Call,
		Kind: registryv1.UsageKind(e.Kind), TaskId: e.TaskID, EpicId: e.EpicID, Provider: e.Provider, Model: e.Model,
		InputTokens: e.InputTokens, CachedInputTokens: e.CachedInputTokens, OutputTokens: e.OutputTokens,
		ReasoningTokens: e.ReasoningTokens, CostNanoUsd: e.CostNanoUSD, PriceId: e.PriceID, Time: stamp(e.Time), Failed: e.Failed,
		Source: registryv1.UsageSource(e.Source), By: e.By, Principal: e.Principal, Actor: e.Actor, DurationMs: durationTo(e.DurationMS),
	}
}

// durationTo is absent for 0, which stands for one that is not known.
func durationTo(ms int64) *int64 {
	if ms == 0 {
		return nil
	}
	return &ms
}

func priceFrom(p *registryv1.Price) (usage.Price, error) {
	from, err := instant("price.valid_from", p.GetValidFrom())
	return usage.Price{
		Provider: p.GetProvider(), Model: p.GetModel(), ValidFrom: from, Input: p.GetInputPerMillion(),
		CachedInput: p.CachedInputPerMillion, Output: p.GetOutputPerMillion(), Reasoning: p.ReasoningPerMillion,
	}, err
}

func priceTo(p usage.Price) *registryv1.Price {
	return &registryv1.Price{
		Id: p.ID, Provider: p.Provider, Model: p.Model, ValidFrom: stamp(p.ValidFrom), ValidUntil: stamp(p.ValidUntil),
		InputPerMillion: p.Input, CachedInputPerMillion: p.CachedInput, OutputPerMillion: p.Output, ReasoningPerMillion: p.Reasoning, Principal: p.Principal,
	}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// instant reads a time to whole microseconds; an absent one is zero.
func instant(field string, p *timestamppb.Timestamp) (time.Time, error) {
	if p == nil {
		return time.Time{}, nil
	}
	if err := p.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "TIME_INVALID", "must lie between the years 1 and 9999")
	}
	return dbkit.Micros(p.AsTime()), nil
}

// duration reads a duration that must not be negative; an absent one is zero.
func duration(field string, p *durationpb.Duration) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	if p.CheckValid() != nil || p.AsDuration() < 0 {
		return 0, invalid(field, "DURATION_INVALID", "must be a duration that is not negative")
	}
	return p.AsDuration(), nil
}

// optionalEnum reads an enum whose zero means unset.
func optionalEnum[D ~int16, P ~int32](field string, v P, last D) (D, error) {
	if v == 0 {
		return 0, nil
	}
	return enum(field, v, last)
}

// enum reads an enum whose numbers are those of the domain, from 1 to last.
func enum[D ~int16, P ~int32](field string, v P, last D) (D, error) {
	if v < 1 || v > P(last) {
		return 0, invalid(field, "ENUM_INVALID", fmt.Sprintf("has no value %d", v))
	}
	return D(v), nil
}

func enums[D ~int16, P ~int32](field string, vs []P, last D) ([]D, error) {
	var out []D
	for i, v := range vs {
		d, err := enum(fmt.Sprintf("%s[%d]", field, i), v, last)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// bytesWithout is the wire form of a message without some of its fields, the same for equal messages.
func bytesWithout(m proto.Message, fields ...protoreflect.Name) ([]byte, error) {
	m = proto.Clone(m)
	r := m.ProtoReflect()
	for _, f := range fields {
		r.Clear(r.Descriptor().Fields().ByName(f))
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return b, nil
}

func orderTo(c epic.Order) *registryv1.Order {
	return &registryv1.Order{
		Namespace: c.Namespace, TaskId: c.TaskID, RunId: c.RunID, Reason: c.Reason, CreateTime: stamp(c.Time), Confirmed: c.Confirmed,
		Kind: registryv1.OrderKind(c.Kind), Id: c.ID,
	}
}
