package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
)

// keepAlive is the longest silence of a watch.
const keepAlive = 15 * time.Second

// errStopping ends a watch that another replica, or this one when it is back, can go on with.
var errStopping = errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping").Hint("watch again from the last cursor seen")

// ListEvents implements registryv1.RegistryServiceServer.
func (s *Server) ListEvents(ctx context.Context, req *registryv1.ListEventsRequest) (*registryv1.ListEventsResponse, error) {
	kinds, err := kindsFrom(req.GetKinds())
	if err != nil {
		return nil, err
	}
	size, err := page.Parse(req.GetPageSize(), "", page.Query{Method: "ListEvents"})
	if err != nil {
		return nil, err
	}
	p, err := s.accounts.Events(ctx, feed.Query{
		Namespace: grpckit.Namespace(ctx), EpicID: req.GetEpicId(), Slug: req.GetWorkflowSlug(), RunID: req.GetRunId(), ThreadID: req.GetThreadId(),
		Kinds: kinds, After: req.GetAfter(), Limit: size.Limit,
	})
	if err != nil {
		return nil, err
	}
	return &registryv1.ListEventsResponse{Events: each(p.Events, eventTo), Cursor: p.Cursor, End: p.End}, nil
}

// WatchEvents implements registryv1.RegistryServiceServer.
func (s *Server) WatchEvents(req *registryv1.WatchEventsRequest, stream grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
	ctx := stream.Context()
	kinds, err := kindsFrom(req.GetKinds())
	if err != nil {
		return err
	}
	namespace, after := grpckit.Namespace(ctx), req.GetAfter()
	if req.After == nil {
		if after, err = s.accounts.FeedEnd(ctx, namespace); err != nil {
			return err
		}
		// Who begins now learns at once from where: what is changed after this is told.
		if err := stream.Send(aliveAt(namespace, after)); err != nil {
			return err
		}
	}
	err = s.accounts.WatchEvents(ctx, accounting.Watch{
		Query:     feed.Query{Namespace: namespace, EpicID: req.GetEpicId(), Slug: req.GetWorkflowSlug(), RunID: req.GetRunId(), ThreadID: req.GetThreadId(), Kinds: kinds, After: after},
		KeepAlive: keepAlive,
		// A watch has no end of its own, and must not hold up the stop of this replica.
		Stop: grpckit.Draining(ctx),
	}, func(events []feed.Event, cursor int64) error {
		for _, e := range events {
			if err := stream.Send(eventTo(e)); err != nil {
				return err
			}
		}
		if len(events) == 0 {
			return stream.Send(aliveAt(namespace, cursor))
		}
		return nil
	})
	if err == nil {
		return errStopping
	}
	return err
}

func aliveAt(namespace string, cursor int64) *registryv1.FeedEvent {
	return &registryv1.FeedEvent{Time: timestamppb.New(dbkit.Now()), Namespace: namespace, Event: &registryv1.FeedEvent_KeepAlive{
		KeepAlive: &registryv1.FeedKeepAlive{Cursor: cursor},
	}}
}

func kindsFrom(names []string) ([]feed.Kind, error) {
	var out []feed.Kind
	for i, name := range names {
		k := feed.Kind(name)
		if !k.Known() {
			return nil, errs.New(errs.InvalidArgument, "EVENT_KIND_UNKNOWN", "there are no events %.64q", name).
				Violate(fmt.Sprintf("kinds[%d]", i), "EVENT_KIND_UNKNOWN", "is the name of no event").
				Hint(fmt.Sprintf("there are %v", feed.Kinds()))
		}
		out = append(out, k)
	}
	return out, nil
}

func eventTo(e feed.Event) *registryv1.FeedEvent {
	b := e.Body
	out := &registryv1.FeedEvent{Seq: e.Seq, Time: stamp(e.Time), Namespace: e.Namespace, EpicId: e.EpicID, Brief: b.Brief, CausedByRunId: b.Run}
	switch e.Kind {
	case feed.EpicCreated:
		out.Event = &registryv1.FeedEvent_EpicCreated{EpicCreated: epicTo(*b.Epic)}
	case feed.EpicUpdated:
		out.Event = &registryv1.FeedEvent_EpicUpdated{EpicUpdated: epicTo(*b.Epic)}
	case feed.EpicDeleted:
		out.Event = &registryv1.FeedEvent_EpicDeleted{EpicDeleted: epicDeletedTo(b)}
	case feed.TaskCreated:
		out.Event = &registryv1.FeedEvent_TaskCreated{TaskCreated: taskTo(*b.Task)}
	case feed.TaskUpdated:
		out.Event = &registryv1.FeedEvent_TaskUpdated{TaskUpdated: taskTo(*b.Task)}
	case feed.TaskDeleted:
		out.Event = &registryv1.FeedEvent_TaskDeleted{TaskDeleted: taskDeletedTo(e)}
	case feed.UsageBooked:
		out.Event = &registryv1.FeedEvent_UsageBooked{UsageBooked: &registryv1.UsageBooked{Entries: each(b.Usage, entryTo)}}
	case feed.BudgetReached:
		out.Event = &registryv1.FeedEvent_BudgetReached{BudgetReached: &registryv1.BudgetReached{
			ResourceId: b.Budget.Name, Hard: b.Budget.Hard, BudgetTokens: b.Budget.Tokens, BudgetNanoUsd: b.Budget.NanoUSD, Level: b.Budget.Level,
		}}
	case feed.PriceCreated:
		out.Event = &registryv1.FeedEvent_PriceCreated{PriceCreated: priceTo(*b.Price)}
	case feed.WorkflowPublished:
		out.Event = &registryv1.FeedEvent_WorkflowPublished{WorkflowPublished: &registryv1.WorkflowPublished{
			Slug: e.Slug, Version: b.Version, Change: registryv1.Publication(b.Change), Workflow: workflowTo(*b.Workflow),
		}}
	case feed.MemoryWritten:
		out.Event = &registryv1.FeedEvent_MemoryWritten{MemoryWritten: &registryv1.MemoryWritten{
			Key: b.Memory.Key, FactType: b.Memory.Kind.String(), MemoryId: b.Memory.ID, Scope: b.Memory.Scope.Place(), Etag: epic.Etag(b.Memory.Revision),
		}}
	case feed.MemoryDeleted:
		out.Event = &registryv1.FeedEvent_MemoryDeleted{MemoryDeleted: &registryv1.MemoryDeleted{MemoryIds: b.IDs}}
	case feed.RunStarted:
		out.Event = &registryv1.FeedEvent_RunStarted{RunStarted: runChangedTo(e)}
	case feed.RunEnded:
		out.Event = &registryv1.FeedEvent_RunEnded{RunEnded: runChangedTo(e)}
	case feed.RunPaused:
		out.Event = &registryv1.FeedEvent_RunPaused{RunPaused: runChangedTo(e)}
	case feed.RunResumed:
		out.Event = &registryv1.FeedEvent_RunResumed{RunResumed: runChangedTo(e)}
	case feed.RunAmended:
		out.Event = &registryv1.FeedEvent_RunAmended{RunAmended: runChangedTo(e)}
	case feed.RunDeleted:
		out.Event = &registryv1.FeedEvent_RunDeleted{RunDeleted: runChangedTo(e)}
	case feed.ThreadCreated:
		out.Event = &registryv1.FeedEvent_ThreadCreated{ThreadCreated: threadChangedTo(e)}
	case feed.ThreadMessage:
		out.Event = &registryv1.FeedEvent_ThreadMessage{ThreadMessage: threadChangedTo(e)}
	case feed.ThreadDeleted:
		out.Event = &registryv1.FeedEvent_ThreadDeleted{ThreadDeleted: threadChangedTo(e)}
	}
	return out
}

func epicDeletedTo(b feed.Body) *registryv1.EpicDeleted {
	out := &registryv1.EpicDeleted{EpicId: b.ID}
	if g := b.Gone; g != nil {
		out.Title, out.State, out.Tasks = g.Title, registryv1.EpicState(g.State), g.Tasks
	}
	return out
}

func taskDeletedTo(e feed.Event) *registryv1.TaskDeleted {
	out := &registryv1.TaskDeleted{TaskId: e.Body.ID, EpicId: e.EpicID}
	if g := e.Body.Gone; g != nil {
		out.Title, out.State, out.RunId = g.Title, registryv1.TaskState(g.State), g.RunID
	}
	return out
}

func threadChangedTo(e feed.Event) *registryv1.ThreadChanged {
	s := e.Body.Thread
	return &registryv1.ThreadChanged{
		ThreadId: e.ThreadID, Sequence: s.Seq, Role: s.Role, RunId: s.RunID, Agent: s.Agent, Title: s.Title, UserId: s.UserID,
		ParentThreadId: s.Parent, PartOf: s.PartOf, Lifetime: s.Lifetime, ChangeTime: stamp(s.Time),
	}
}

func runChangedTo(e feed.Event) *registryv1.RunChanged {
	s := e.Body.State
	out := &registryv1.RunChanged{RunId: s.RunID, ParentRunId: s.Parent, Reason: s.Reason, ChangeTime: stamp(s.Time), TaskId: s.TaskID, Runs: s.Runs}
	if a := s.Activity; a != nil {
		out.ActivitySummary = &registryv1.RunActivity{TotalNodes: a.Total, CompletedNodes: a.Completed, FailedNodes: a.Failed, SkippedNodes: a.Skipped, Calls: a.Calls}
		if a.Duration != nil {
			out.ActivitySummary.Duration = durationpb.New(*a.Duration)
		}
	}
	if e.Slug != "" {
		out.Workflow = fmt.Sprintf("%s@%d", e.Slug, s.Version)
	}
	switch h := s.History; {
	case h.Completed > 0:
		out.Outcome = registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED
	case h.Failed > 0:
		out.Outcome = registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED
	case h.Canceled > 0:
		out.Outcome = registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_CANCELED
	}
	if e.Kind == feed.RunEnded {
		out.Usage = &registryv1.WorkflowRunUsage{CostNanoUsd: s.History.NanoUSD, Tokens: s.History.Tokens}
	}
	return out
}
