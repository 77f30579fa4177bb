package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// attachment is the stored form of one document.
type attachment struct {
	ID          string          `json:"id,omitempty"`
	Description string          `json:"description,omitempty"`
	MediaType   string          `json:"media_type,omitempty"`
	Content     json.RawMessage `json:"content,omitempty"`
	URI         string          `json:"uri,omitempty"`
}

func encodeAttachments(in []*executorv1.Attachment) ([]byte, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make([]attachment, len(in))
	for i, a := range in {
		content, err := graphpb.Raw(fmt.Sprintf("attachments[%d].content", i), a.GetContent())
		if err != nil {
			return nil, err
		}
		out[i] = attachment{a.GetId(), a.GetDescription(), a.GetMediaType(), content, a.GetUri()}
	}
	return json.Marshal(out)
}

func encodeMetadata(m map[string]string) ([]byte, error) {
	if len(m) == 0 {
		return nil, nil
	}
	return json.Marshal(m)
}

// decode reads a stored JSON column; an empty one leaves dst alone.
func decode(what string, b []byte, dst any) error {
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, dst); err != nil {
		return fmt.Errorf("decode %s of run: %w", what, err)
	}
	return nil
}

// runMessage is the wire form of a row. Lists leave the large fields out, and what must be counted.
func (s *Server) runMessage(ctx context.Context, r journal.Run, whole bool) (*executorv1.Run, error) {
	var before journal.Outstanding
	if whole && !r.State.Ended() {
		var err error
		if before, err = s.reader.Outstanding(ctx, r.Namespace, r.ID); err != nil {
			return nil, err
		}
	}
	m, err := s.rowMessage(r, before.Interrupts, whole)
	if err != nil {
		return nil, err
	}
	m.PendingCommands = command.Unapplied(before.Unread)
	if !whole || !s.priced || r.Usage.Calls == 0 && r.CostNanoUSD == 0 && r.UnpricedCalls == 0 {
		return m, err
	}
	// The row is older: it would lack what was booked since, without saying so.
	b, err := s.engine.Booked().Of(ctx, r)
	m.Usage.CostNanoUsd, m.Usage.UnpricedCalls, m.Usage.UnbookedAttempts = b.CostNanoUSD, b.UnpricedCalls, b.Waiting
	m.Usage.BookedCalls, m.Usage.BookedInputTokens, m.Usage.BookedOutputTokens = b.Calls, b.InputTokens, b.OutputTokens
	return m, err
}

func usageOfRow(r *journal.Run) *executorv1.Usage {
	return &executorv1.Usage{
		InputTokens: r.Usage.InputTokens, CachedInputTokens: r.Usage.CachedInputTokens, OutputTokens: r.Usage.OutputTokens,
		ReasoningTokens: r.Usage.ReasoningTokens, Calls: r.Usage.Calls, CostNanoUsd: r.CostNanoUSD, UnpricedCalls: r.UnpricedCalls,
	}
}

func nodesMessage(n journal.NodeCounts) *executorv1.NodeCounts {
	return &executorv1.NodeCounts{Total: n.Total, Completed: n.Completed, Failed: n.Failed, Skipped: n.Skipped, Running: n.Running}
}

// rowMessage is runMessage for a run whose number of open interrupts is known.
func (s *Server) rowMessage(r journal.Run, open int, whole bool) (*executorv1.Run, error) {
	m := &executorv1.Run{
		Id: r.ID, Namespace: r.Namespace, State: executorv1.RunState(r.State), StateReason: r.Reason, GraphName: r.GraphName, GraphHash: r.GraphHash,
		TaskId: r.TaskID, UserId: r.UserID, ChatId: r.ChatID, ThreadId: r.ThreadID, Labels: r.Labels, BusinessKey: r.BusinessKey,
		ParentRunId: r.ParentID, RootRunId: r.RootID, CreateTime: stamp(r.CreateTime), StartTime: stamp(r.StartTime), EndTime: stamp(r.EndTime),
		UpdateTime: stamp(r.UpdateTime), LastSeq: r.LastSeq, Etag: etag(r.Revision), TraceId: traceID(r.TraceParent),
		Usage:    usageOfRow(&r),
		Priority: r.Priority, WakeTime: stamp(r.WakeTime), Deadline: stamp(r.Deadline), ForkedFromRunId: r.ForkedFrom, ScheduleId: r.ScheduleID, EpicId: r.EpicID,
		GraphRevision: r.GraphRevision,
		Nodes:         nodesMessage(r.Nodes),
	}
	if !s.priced {
		m.Usage.UnpricedCalls = r.Usage.Calls
	}
	given, err := record.CallerDataOf(r.Metadata)
	if err != nil {
		return nil, err
	}
	m.Budget, m.Webhooks, m.Principal, m.Workflow = callpb.Budget(given.Budget), webhooksShown(given.Webhooks), given.Principal, given.Workflow
	if given.Parent != nil {
		m.ParentVisit = refMessage(*given.Parent)
	}
	if err := decode("metadata", given.Metadata, &m.Metadata); err != nil {
		return nil, err
	}
	if len(r.Error) > 0 {
		var e record.RunError
		if err := decode("error", r.Error, &e); err != nil {
			return nil, err
		}
		m.Error = &executorv1.RunError{Type: callpb.ErrorType(e.Type), Reason: e.Reason, Message: e.Message, NodeId: e.Node, Visit: callpb.Count(e.Visit)}
	}
	if !whole {
		return m, nil
	}
	m.OpenInterrupts = callpb.Count(open)
	return m, large(m, r)
}

func large(m *executorv1.Run, r journal.Run) error {
	var (
		args    []json.RawMessage
		named   map[string]json.RawMessage
		outputs map[string]json.RawMessage
		docs    []attachment
	)
	for _, col := range []struct {
		what string
		b    []byte
		dst  any
	}{{"args", r.Args, &args}, {"named arguments", r.Named, &named}, {"outputs", r.Outputs, &outputs}, {"attachments", r.Attachments, &docs}} {
		if err := decode(col.what, col.b, col.dst); err != nil {
			return err
		}
	}
	m.Args, m.Named, m.Outputs = graphpb.Payloads(args), graphpb.PayloadMap(named), graphpb.PayloadMap(outputs)
	m.Context, m.Result = graphpb.Payload(r.Context), graphpb.Payload(r.Result)
	for _, a := range docs {
		m.Attachments = append(m.Attachments, &executorv1.Attachment{
			Id: a.ID, Description: a.Description, MediaType: a.MediaType, Content: graphpb.Payload(a.Content), Uri: a.URI})
	}
	return nil
}

// traceID is the trace's part of a traceparent.
func traceID(parent string) string {
	part := strings.Split(parent, "-")
	if len(part) != 4 {
		return ""
	}
	return part[1]
}

func visitState(s workgraph.VisitStatus) executorv1.VisitState {
	switch s {
	case workgraph.VisitHeld:
		return executorv1.VisitState_VISIT_STATE_HELD
	case workgraph.VisitRunning, workgraph.VisitPending:
		return executorv1.VisitState_VISIT_STATE_RUNNING
	case workgraph.VisitCanceling:
		return executorv1.VisitState_VISIT_STATE_CANCELING
	case workgraph.VisitBackoff:
		return executorv1.VisitState_VISIT_STATE_BACKING_OFF
	case workgraph.VisitWaiting:
		return executorv1.VisitState_VISIT_STATE_WAITING
	case workgraph.VisitReconciliation:
		return executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION
	case workgraph.VisitCompleted:
		return executorv1.VisitState_VISIT_STATE_COMPLETED
	case workgraph.VisitAbstained:
		return executorv1.VisitState_VISIT_STATE_ABSTAINED
	case workgraph.VisitFailed:
		return executorv1.VisitState_VISIT_STATE_FAILED
	case workgraph.VisitSkipped:
		return executorv1.VisitState_VISIT_STATE_SKIPPED
	case workgraph.VisitCanceled:
		return executorv1.VisitState_VISIT_STATE_CANCELED
	}
	return executorv1.VisitState_VISIT_STATE_UNSPECIFIED
}

func usageMessage(us []workgraph.Usage) *executorv1.Usage {
	if len(us) == 0 {
		return nil
	}
	m := &executorv1.Usage{Calls: int64(len(us))}
	for _, u := range us {
		m.InputTokens += u.InputTokens
		m.CachedInputTokens += u.CachedTokens
		m.OutputTokens += u.OutputTokens
		m.ReasoningTokens += u.ReasoningTokens
		if u.CostNanoUSD != nil {
			m.CostNanoUsd += *u.CostNanoUSD
		} else {
			m.UnpricedCalls++
		}
	}
	return m
}

func errorMessage(e *workgraph.Error, ref workgraph.Ref) *executorv1.RunError {
	if e == nil {
		return nil
	}
	return &executorv1.RunError{Type: callpb.ErrorType(e.Type), Reason: e.Reason, Message: e.Message, NodeId: ref.Node, Visit: callpb.Count(ref.Visit)}
}

func visitMessage(namespace, runID string, v *query.Visit, tokens attempttoken.Keys) *executorv1.Visit {
	m := &executorv1.Visit{
		RunId: runID, NodeId: v.Node, Visit: callpb.Count(v.Visit), State: visitState(v.Status), Actor: v.Actor, Attempts: callpb.Count(v.Attempts),
		Values: graphpb.Payloads(v.Values), Error: errorMessage(v.Error, workgraph.Ref{Node: v.Node, Visit: v.Visit}), Usage: usageMessage(v.Usage),
		StartTime: stamp(v.Start), EndTime: stamp(v.End), EndSeq: v.EndSeq, ItemsTotal: callpb.Count(v.ItemsTotal), ItemsDone: callpb.Count(v.ItemsDone), ItemsWaiting: callpb.Count(v.ItemsWaiting),
		Effect: graphpb.Effect(v.Effect), Cached: v.Cached, Reused: v.Reused, Progress: graphpb.Payload(v.Progress),
		SkipReason: v.SkipReason, SkipMessage: v.SkipMessage,
		EffectKey: workgraph.EffectKey(runID, workgraph.Ref{Node: v.Node, Visit: v.Visit}, v.Generation),
	}
	if v.Status == workgraph.VisitWaiting {
		m.Wait = waitMessage(namespace, runID, v.Wait, tokens)
	}
	if v.Duration > 0 {
		m.Duration = durationpb.New(v.Duration)
	}
	return m
}
