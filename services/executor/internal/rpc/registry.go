package rpc

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
)

// Registry reaches the registry service for the engine and the outbox.
type Registry struct {
	client registryv1.RegistryServiceClient
	// memory keeps what agents learn; nil if there is none.
	memory registryv1.MemoryServiceClient
	// database names the one that runs are recorded in.
	database string
	spent    Spent
}

// Spent tells what a run and all below it have used.
type Spent interface {
	Head(ctx context.Context, namespace, runID string) (journal.Run, error)
	Accounting(ctx context.Context, namespace, runID, kind string) (journal.Accounting, error)
}

var (
	_ engine.Claims   = (*Registry)(nil)
	_ engine.Payers   = (*Registry)(nil)
	_ price.Prices    = (*Registry)(nil)
	_ engine.Orders   = (*Registry)(nil)
	_ outbox.Registry = (*Registry)(nil)
)

// NewRegistry returns a Registry that calls the clients for the executors of a database. memory
// may be nil.
func NewRegistry(client registryv1.RegistryServiceClient, memory registryv1.MemoryServiceClient, database string, spent Spent) *Registry {
	return &Registry{client, memory, database, spent}
}

// shortestLease is the shortest that the registry takes. A claim that is renewed for so long is given back.
const shortestLease = time.Millisecond

// within is ctx for calls that say of which run they come.
func within(ctx context.Context, namespace, runID string) context.Context {
	return access.WithRun(grpckit.WithNamespace(ctx, namespace), runID)
}

// Claim implements engine.Claims.
func (r *Registry) Claim(ctx context.Context, namespace, taskID, runID string, lease time.Duration) (epicID string, err error) {
	resp, err := r.client.ClaimTask(within(ctx, namespace, runID), &registryv1.ClaimTaskRequest{TaskId: taskID, RunId: runID, Lease: durationpb.New(lease), Database: r.database})
	return resp.GetTask().GetEpicId(), err
}

// Release implements engine.Claims: it lets the lease end at once.
func (r *Registry) Release(ctx context.Context, namespace, taskID, runID string) error {
	_, err := r.Claim(ctx, namespace, taskID, runID, shortestLease)
	return err
}

// Pays implements engine.Payers.
func (r *Registry) Pays(ctx context.Context, namespace, epicID, taskID string) (task, epic bool, err error) {
	ctx = grpckit.WithNamespace(ctx, namespace)
	e, err := r.client.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: epicID})
	if err != nil {
		return false, false, gone(err)
	}
	switch e.GetState() {
	case registryv1.EpicState_EPIC_STATE_COMPLETED, registryv1.EpicState_EPIC_STATE_FAILED, registryv1.EpicState_EPIC_STATE_CANCELED:
		return false, false, nil
	}
	if taskID == "" {
		return false, true, nil
	}
	t, err := r.client.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: taskID})
	return t.GetState() == registryv1.TaskState_TASK_STATE_RUNNING, true, gone(err)
}

// gone is nil for the error that something is not there.
func gone(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// Lease implements engine.Orders.
func (r *Registry) Lease(ctx context.Context, limit int, hold time.Duration) ([]engine.Order, error) {
	resp, err := r.client.LeaseOrders(ctx, &registryv1.LeaseOrdersRequest{MaxCount: int32(limit), Lease: durationpb.New(hold), Database: r.database})
	if err != nil {
		return nil, err
	}
	out := make([]engine.Order, len(resp.GetOrders()))
	for i, o := range resp.GetOrders() {
		out[i] = engine.Order{ID: o.GetId(), Kind: engine.OrderKind(o.GetKind()), Namespace: o.GetNamespace(), TaskID: o.GetTaskId(), RunID: o.GetRunId(),
			Reason: o.GetReason(), Time: o.GetCreateTime().AsTime(), Confirmed: o.GetConfirmed()}
	}
	return out, nil
}

const (
	// maxCause and maxExplanation bound what is said of a refused start, in bytes.
	maxCause, maxExplanation = 128, 4096
)

// Acknowledge implements engine.Orders.
func (r *Registry) Acknowledge(ctx context.Context, done []engine.Order, refused []engine.RefusedStart) error {
	message := func(o engine.Order) *registryv1.Order {
		return &registryv1.Order{Namespace: o.Namespace, TaskId: o.TaskID, RunId: o.RunID, Id: o.ID}
	}
	req := &registryv1.AcknowledgeOrdersRequest{}
	for _, o := range done {
		req.Orders = append(req.Orders, message(o))
	}
	for _, x := range refused {
		e := errs.From(x.Err)
		text := explained(e)
		req.Refused = append(req.Refused, &registryv1.RefusedStart{Order: message(x.Order), Reason: errs.Clip(cmp.Or(e.Reason, errs.ReasonInternal), maxCause), Message: errs.Clip(text, maxExplanation)})
	}
	_, err := r.client.AcknowledgeOrders(ctx, req)
	return err
}

// maxTold is how many violations a text names.
const maxTold = 5

// explained is an error in one text, for people: with the fields that are wrong, unless the message names
// them.
func explained(e *errs.Error) string {
	text := e.Message
	for i, v := range e.Violations {
		if i == maxTold {
			text += fmt.Sprintf("; and %d more", len(e.Violations)-i)
			break
		}
		if !strings.Contains(e.Message, v.Message) { // inputs are named as the workflow does
			text += "; " + strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(v.Field+": ", "named"), "."), ": ") + v.Message
		}
	}
	if e.HintText() != "" {
		text += "; " + e.HintText()
	}
	return text
}

// Confirm implements outbox.Registry.
func (r *Registry) Confirm(ctx context.Context, namespace string, c outbox.Confirm) error {
	_, err := r.client.ConfirmClaim(within(ctx, namespace, c.RunID), &registryv1.ConfirmClaimRequest{
		TaskId: c.TaskID, RunId: c.RunID, StartTime: timestamppb.New(c.Start), Database: r.database, Workflow: c.Workflow})
	return err
}

// Settle implements outbox.Registry.
func (r *Registry) Settle(ctx context.Context, namespace string, s outbox.Settle) error {
	req := &registryv1.SettleClaimRequest{
		TaskId: s.TaskID, RunId: s.RunID, ResultSummary: s.Summary, ErrorMessage: s.Error,
		Duration: durationpb.New(s.Duration), EndTime: timestamppb.New(s.End), Workflow: s.Workflow,
	}
	switch s.Outcome {
	case outbox.Completed:
		req.State = registryv1.TaskState_TASK_STATE_COMPLETED
	case outbox.Canceled:
		req.State = registryv1.TaskState_TASK_STATE_CANCELED
	default:
		req.State = registryv1.TaskState_TASK_STATE_FAILED
	}
	_, err := r.client.SettleClaim(within(ctx, namespace, s.RunID), req)
	return err
}

// RecordChanges implements outbox.Registry.
func (r *Registry) RecordChanges(ctx context.Context, namespace string, list outbox.Changes) error {
	req := &registryv1.RecordChangesRequest{}
	for i := range list.Runs {
		req.Runs = append(req.Runs, runChange(&list.Runs[i]))
	}
	for i := range list.Threads {
		req.Threads = append(req.Threads, threadChange(&list.Threads[i]))
	}
	_, err := r.client.RecordChanges(grpckit.WithNamespace(ctx, namespace), req)
	return err
}

func threadChange(c *outbox.ThreadChange) *registryv1.ThreadChange {
	p := &registryv1.ThreadChange{
		ThreadId: c.ThreadID, Sequence: c.Seq, Role: c.Role, RunId: c.RunID, Agent: c.Agent, Title: c.Title, UserId: c.UserID, ParentThreadId: c.Parent,
		PartOf: c.PartOf, Lifetime: c.Lifetime,
	}
	if !c.Time.IsZero() {
		p.ChangeTime = timestamppb.New(c.Time)
	}
	switch c.State {
	case outbox.Created:
		p.Kind = registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_CREATED
	case outbox.Message:
		p.Kind = registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_MESSAGE
	case outbox.Deleted:
		p.Kind = registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_DELETED
	}
	return p
}

func runChange(c *outbox.RunChange) *registryv1.RunChange {
	p := &registryv1.RunChange{RunId: c.RunID, Seq: c.Seq, Workflow: c.Workflow, ParentRunId: c.Parent, Reason: c.Reason, TaskId: c.Task, EpicId: c.Epic, Runs: c.Runs}
	if !c.Time.IsZero() {
		p.ChangeTime = timestamppb.New(c.Time)
	}
	switch c.State {
	case outbox.Started:
		p.Kind = registryv1.RunChangeKind_RUN_CHANGE_KIND_STARTED
	case outbox.Paused:
		p.Kind = registryv1.RunChangeKind_RUN_CHANGE_KIND_PAUSED
	case outbox.Resumed:
		p.Kind = registryv1.RunChangeKind_RUN_CHANGE_KIND_RESUMED
	case outbox.Amended:
		p.Kind = registryv1.RunChangeKind_RUN_CHANGE_KIND_AMENDED
	case outbox.Removed:
		p.Kind = registryv1.RunChangeKind_RUN_CHANGE_KIND_DELETED
	default:
		p.Kind, p.Outcome = registryv1.RunChangeKind_RUN_CHANGE_KIND_ENDED, registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED
	}
	switch c.Outcome {
	case outbox.Completed:
		p.Outcome = registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED
	case outbox.Canceled:
		p.Outcome = registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_CANCELED
	}
	if u := c.Used; u != nil {
		p.Usage = &registryv1.WorkflowRunUsage{CostNanoUsd: u.NanoUSD, Tokens: u.Tokens, UnpricedCalls: u.UnpricedCalls}
		if u.Duration != nil {
			p.Duration = durationpb.New(*u.Duration)
		}
	}
	if a := c.Activity; a != nil {
		p.ActivitySummary = &registryv1.RunActivity{TotalNodes: a.Nodes.Total, CompletedNodes: a.Nodes.Completed, FailedNodes: a.Nodes.Failed, SkippedNodes: a.Nodes.Skipped, Calls: a.Calls}
		if a.Duration != nil {
			p.ActivitySummary.Duration = durationpb.New(*a.Duration)
		}
	}
	return p
}

// Spent implements outbox.Registry.
func (r *Registry) Spent(ctx context.Context, namespace, runID string) (*outbox.Used, error) {
	row, err := r.spent.Head(ctx, namespace, runID)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return nil, nil //nolint:nilnil // there is nothing to tell, and no fault
	}
	if err != nil {
		return nil, err
	}
	a, err := r.spent.Accounting(ctx, namespace, runID, outbox.KindUsage)
	switch {
	case err != nil:
		return nil, err
	case a.Waiting > 0:
		return nil, outbox.ErrLater
	}
	u := &outbox.Used{NanoUSD: max(a.CostNanoUSD, 0), Tokens: max(row.Usage.InputTokens+row.Usage.OutputTokens, 0), UnpricedCalls: max(a.UnpricedCalls, 0)}
	if !row.StartTime.IsZero() && !row.EndTime.Before(row.StartTime) {
		d := row.EndTime.Sub(row.StartTime)
		u.Duration = &d
	}
	return u, nil
}

// RecordUsage implements outbox.Registry.
func (r *Registry) RecordUsage(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	resp, err := r.client.RecordUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.RecordUsageRequest{Entries: usageEntries(entries)})
	if err != nil {
		return nil, err
	}
	return costs(resp.GetEntries(), len(entries))
}

// Prices implements engine.Prices.
func (r *Registry) Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	out := make([]*int64, 0, len(entries))
	for len(entries) > 0 {
		part := entries[:min(len(entries), maxPriced)]
		entries = entries[len(part):]
		resp, err := r.client.PriceUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.PriceUsageRequest{Entries: usageEntries(part)})
		if err != nil {
			return nil, err
		}
		some, err := costs(resp.GetEntries(), len(part))
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// Reservations reaches the registry service for the purse.
type Reservations struct {
	client registryv1.RegistryServiceClient
}

var _ purse.Registry = (*Reservations)(nil)

// NewReservations returns Reservations that calls a client.
func NewReservations(client registryv1.RegistryServiceClient) *Reservations {
	return &Reservations{client}
}

// Reserve implements purse.Registry.
func (r *Reservations) Reserve(ctx context.Context, namespace string, calls []purse.Call, askOnly bool) ([]purse.Answer, error) {
	entries := make([]outbox.Entry, len(calls))
	for i := range calls {
		entries[i] = calls[i].Entry
	}
	req := &registryv1.ReserveUsageRequest{Calls: usageEntries(entries), Runs: runBudgets(calls), AskOnly: askOnly, Incarnations: incarnations(entries)}
	for i := range calls {
		if calls[i].Unlimited {
			req.Unlimited = append(req.Unlimited, int32(i))
		}
	}
	resp, err := r.client.ReserveUsage(grpckit.WithNamespace(ctx, namespace), req)
	if err != nil {
		return nil, err
	}
	if len(resp.GetReservations()) != len(calls) {
		return nil, errs.New(errs.Internal, errs.ReasonInternal, "the registry answered %d of %d calls", len(resp.GetReservations()), len(calls))
	}
	out := make([]purse.Answer, len(calls))
	for i, p := range resp.GetReservations() {
		out[i] = purse.Answer{Capped: p.GetCapped(), OverSoft: p.GetOverSoft()}
		if no := p.GetRefusal(); no != nil {
			out[i].Refusal = &purse.Refusal{Budget: no.GetBudget(), Reason: no.GetReason(), Message: no.GetMessage()}
		}
	}
	return out, nil
}

// Release implements purse.Registry.
func (r *Reservations) Release(ctx context.Context, namespace string, calls []outbox.Entry) error {
	_, err := r.client.ReleaseUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.ReleaseUsageRequest{Calls: usageEntries(calls), Incarnations: incarnations(calls)})
	return err
}

func incarnations(calls []outbox.Entry) []int64 {
	out := make([]int64, len(calls))
	for i := range calls {
		out[i] = max(calls[i].Incarnation, 0)
	}
	return out
}

// runBudgets are the runs that calls count on, each once. Of two budgets of a run that of the later call
// holds.
func runBudgets(calls []purse.Call) (out []*registryv1.RunBudget) {
	found := map[string]*registryv1.RunBudget{}
	for i := range calls {
		for _, b := range calls[i].Runs {
			p := found[b.RunID]
			if p == nil {
				p = &registryv1.RunBudget{RunId: b.RunID}
				found[b.RunID], out = p, append(out, p)
			}
			p.Hard = &registryv1.Caps{Tokens: b.Tokens, NanoUsd: b.NanoUSD}
			p.SpentTokens, p.SpentNanoUsd, p.Calls = max(b.SpentTokens, 0), max(b.SpentNanoUSD, 0), append(p.Calls, int32(i))
		}
	}
	return out
}

// maxPriced is how many entries the registry prices at once.
const maxPriced = 1000

func usageEntries(entries []outbox.Entry) []*registryv1.UsageEntry {
	out := make([]*registryv1.UsageEntry, len(entries))
	for i, e := range entries {
		kind := registryv1.UsageKind_USAGE_KIND_MODEL
		switch {
		case e.Overhead:
			kind = registryv1.UsageKind_USAGE_KIND_OVERHEAD
		case e.Embedding:
			kind = registryv1.UsageKind_USAGE_KIND_EMBEDDING
		case e.Tool:
			kind = registryv1.UsageKind_USAGE_KIND_TOOL
		}
		out[i] = &registryv1.UsageEntry{
			RunId: e.RunID, NodeId: e.Node, Visit: int32(e.Visit), Item: int32(e.Item), Attempt: int32(e.Attempt), Call: int32(e.Call),
			Kind: kind, TaskId: e.TaskID, EpicId: e.EpicID, Actor: e.Actor, Provider: e.Provider, Model: e.Model,
			InputTokens: e.InputTokens, CachedInputTokens: e.CachedTokens, OutputTokens: e.OutputTokens, ReasoningTokens: e.ReasoningTokens,
			Time: timestamppb.New(e.Time), Failed: e.Failed, CostNanoUsd: e.CostNanoUSD,
		}
		if e.DurationMS > 0 {
			out[i].DurationMs = &e.DurationMS
		}
	}
	return out
}

func costs(entries []*registryv1.UsageEntry, asked int) ([]*int64, error) {
	if len(entries) != asked {
		return nil, errs.New(errs.Internal, errs.ReasonInternal, "the registry answered %d of %d entries", len(entries), asked)
	}
	out := make([]*int64, len(entries))
	for i, e := range entries {
		out[i] = e.CostNanoUsd
	}
	return out, nil
}
