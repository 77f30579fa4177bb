package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/plainjson"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
)

// Feed is the feed of the registry, for triggers. It is safe for concurrent use.
type Feed struct {
	client registryv1.RegistryServiceClient
}

var _ trigger.Feed = Feed{}

// NewFeed returns the feed that client tells.
func NewFeed(client registryv1.RegistryServiceClient) Feed { return Feed{client} }

// End implements trigger.Feed. A watch without a cursor begins by telling it.
func (f Feed) End(ctx context.Context, namespace string) (int64, error) {
	return asked(ctx, namespace, func(ctx context.Context) (int64, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		e, err := first(f.client.WatchEvents(ctx, &registryv1.WatchEventsRequest{}))
		if err != nil {
			return 0, err
		}
		return e.GetKeepAlive().GetCursor(), nil
	})
}

func first(stream grpc.ServerStreamingClient[registryv1.FeedEvent], err error) (*registryv1.FeedEvent, error) {
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// Watch implements trigger.Feed.
func (f Feed) Watch(ctx context.Context, namespace string, after int64, kinds []string, tell func(trigger.Heard) error) error {
	ctx, stop := context.WithCancel(grpckit.WithNamespace(ctx, namespace))
	defer stop()
	stream, err := f.client.WatchEvents(ctx, &registryv1.WatchEventsRequest{After: &after, Kinds: kinds})
	if err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		h := trigger.Heard{Seq: e.GetKeepAlive().GetCursor()}
		if e.GetKeepAlive() == nil {
			if h, err = heard(e); err != nil {
				return err
			}
		}
		if err := tell(h); err != nil {
			return err
		}
	}
}

// feedEvent is what a trigger is told of an event. Its words are those of the API in lower case: see spelled.
type feedEvent struct {
	Seq      int64     `json:"seq"`
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	EpicID   string    `json:"epic_id,omitempty"`
	Workflow string    `json:"workflow,omitempty"`
	// RunID is the run within which the change was made.
	RunID   string         `json:"run_id,omitempty"`
	ID      string         `json:"id,omitempty"`
	Task    *feedTask      `json:"task,omitempty"`
	Epic    *feedEpic      `json:"epic,omitempty"`
	Budget  map[string]any `json:"budget,omitempty"`
	Run     *feedRun       `json:"run,omitempty"`
	Thread  *feedThread    `json:"thread,omitempty"`
	Version int64          `json:"version,omitempty"`
	Change  string         `json:"change,omitempty"`
	// Brief says that long texts are left out, or cut, and lists with them.
	Brief bool `json:"brief,omitempty"`
}

type feedTask struct {
	ID          string   `json:"id"`
	EpicID      string   `json:"epic_id"`
	Title       string   `json:"title"`
	Status      string   `json:"status"`
	Description string   `json:"description,omitempty"`
	Result      string   `json:"result,omitempty"`
	Error       string   `json:"error,omitempty"`
	Workflow    string   `json:"workflow,omitempty"`
	RunID       string   `json:"run_id,omitempty"`
	Tags        []string `json:"tags"`
	DependsOn   []string `json:"depends_on"`
	RetryCount  int32    `json:"retry_count"`
	MaxRetries  int32    `json:"max_retries"`
	Tokens      int64    `json:"tokens"`
	CostUSD     float64  `json:"cost_usd"`
}

type feedRun struct {
	ID       string `json:"id"`
	TaskID   string `json:"task_id,omitempty"`
	Workflow string `json:"workflow"`
	// Outcome is completed, failed or canceled, and empty before the end.
	Outcome string  `json:"outcome,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Tokens  int64   `json:"tokens"`
	CostUSD float64 `json:"cost_usd"`
}

type feedThread struct {
	ID       string `json:"id"`
	Agent    string `json:"agent,omitempty"`
	Title    string `json:"title,omitempty"`
	UserID   string `json:"user_id,omitempty"`
	Parent   string `json:"parent_thread_id,omitempty"`
	PartOf   string `json:"part_of,omitempty"`
	Lifetime string `json:"lifetime,omitempty"`
}

type feedEpic struct {
	ID          string   `json:"id"`
	Title       string   `json:"title"`
	Status      string   `json:"status"`
	Description string   `json:"description,omitempty"`
	Result      string   `json:"result,omitempty"`
	PauseReason string   `json:"pause_reason,omitempty"`
	Workflow    string   `json:"workflow,omitempty"`
	Tags        []string `json:"tags"`
	Total       int32    `json:"total_tasks"`
	Completed   int32    `json:"completed_tasks"`
	Failed      int32    `json:"failed_tasks"`
	Tokens      int64    `json:"spent_tokens"`
	CostUSD     float64  `json:"spent_usd"`
}

const nanoUSD = 1e9

func taskOfFeed(p *registryv1.Task) *feedTask {
	t := delegationpb.TaskFrom(p)
	return &feedTask{
		ID: t.ID, EpicID: t.EpicID, Title: t.Title, Status: spelled(t.Status), Description: t.Description, Result: t.Result, Error: t.Error, Workflow: t.Workflow, RunID: t.RunID,
		Tags: delegation.OrNone(t.Tags), DependsOn: delegation.OrNone(t.DependsOn), RetryCount: t.RetryCount, MaxRetries: t.MaxRetries, Tokens: t.ActualTokens, CostUSD: float64(t.ActualNanoUSD) / nanoUSD,
	}
}

func epicOfFeed(p *registryv1.Epic) *feedEpic {
	e := delegationpb.EpicFrom(p)
	return &feedEpic{
		ID: e.ID, Title: e.Title, Status: spelled(e.Status), Description: e.Description, Result: e.Result, PauseReason: p.GetPauseReason(), Workflow: e.Workflow, Tags: delegation.OrNone(e.Tags),
		Total: e.Total, Completed: e.Completed, Failed: e.Failed, Tokens: e.SpentTokens, CostUSD: float64(e.SpentNanoUSD) / nanoUSD,
	}
}

func runOfFeed(r *registryv1.RunChanged) *feedRun {
	return &feedRun{
		ID: r.GetRunId(), TaskID: r.GetTaskId(), Workflow: r.GetWorkflow(), Outcome: delegationpb.WordOf(outcomes(), r.GetOutcome()), Reason: r.GetReason(), Tokens: r.GetUsage().GetTokens(),
		CostUSD: float64(r.GetUsage().GetCostNanoUsd()) / nanoUSD,
	}
}

// spelled is a status as events say it: with one l, as the API and the outcomes of runs do. Only the tools of
// agents have the other spelling, which models know from elsewhere.
func spelled(status string) string {
	if status == delegation.Canceled {
		return "canceled"
	}
	return status
}

// outcomes are the words for how a run ended, in the order of the API.
func outcomes() []string { return []string{"completed", "failed", "canceled"} }

// publications are the words for what happened to a workflow, in the order of the API.
func publications() []string { return []string{"created", "version_created", "updated", "deleted"} }

// heard is an event of the feed as triggers hear it.
func heard(e *registryv1.FeedEvent) (trigger.Heard, error) {
	b := feedEvent{Seq: e.GetSeq(), Time: e.GetTime().AsTime(), EpicID: e.GetEpicId(), RunID: e.GetCausedByRunId(), Brief: e.GetBrief()}
	if m := e.ProtoReflect(); m.Descriptor() != nil {
		if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("event")); f != nil {
			b.Kind = string(f.Name())
		}
	}
	h := trigger.Heard{Seq: b.Seq, Time: b.Time, Kind: b.Kind, Epic: b.EpicID}
	if b.RunID != "" {
		h.Runs = append(h.Runs, b.RunID)
	}
	switch {
	case e.GetEpicCreated() != nil:
		b.Epic = epicOfFeed(e.GetEpicCreated())
	case e.GetEpicUpdated() != nil:
		b.Epic = epicOfFeed(e.GetEpicUpdated())
	case e.GetEpicDeleted() != nil:
		b.ID = e.GetEpicDeleted().GetEpicId()
	case e.GetTaskCreated() != nil:
		b.Task = taskOfFeed(e.GetTaskCreated())
	case e.GetTaskUpdated() != nil:
		b.Task = taskOfFeed(e.GetTaskUpdated())
	case e.GetTaskDeleted() != nil:
		b.ID = e.GetTaskDeleted().GetTaskId()
	case e.GetBudgetReached() != nil:
		r := e.GetBudgetReached()
		b.Budget = map[string]any{"level": r.GetLevel(), "id": r.GetResourceId(), "hard": r.GetHard()}
		if r.BudgetTokens != nil {
			b.Budget["tokens"] = r.GetBudgetTokens()
		}
		if r.BudgetNanoUsd != nil {
			b.Budget["usd"] = float64(r.GetBudgetNanoUsd()) / nanoUSD
		}
	case e.GetWorkflowPublished() != nil:
		p := e.GetWorkflowPublished()
		b.Workflow, b.Version, b.Change = p.GetSlug(), p.GetVersion(), delegationpb.WordOf(publications(), p.GetChange())
	}
	for _, r := range []*registryv1.RunChanged{e.GetRunStarted(), e.GetRunEnded(), e.GetRunPaused(), e.GetRunResumed(), e.GetRunAmended(), e.GetRunDeleted()} {
		if r != nil {
			b.Run = runOfFeed(r)
			b.Workflow, _, _ = strings.Cut(r.GetWorkflow(), "@")
		}
	}
	for _, c := range []*registryv1.ThreadChanged{e.GetThreadCreated(), e.GetThreadDeleted()} {
		if c != nil {
			b.Thread = &feedThread{ID: c.GetThreadId(), Agent: c.GetAgent(), Title: c.GetTitle(), UserID: c.GetUserId(), Parent: c.GetParentThreadId(),
				PartOf: c.GetPartOf(), Lifetime: c.GetLifetime()}
		}
	}
	for _, made := range []interface{ GetLabels() map[string]string }{e.GetTaskCreated(), e.GetTaskUpdated(), e.GetEpicCreated(), e.GetEpicUpdated()} {
		if run := made.GetLabels()[createdByRun]; run != "" && run != b.RunID {
			h.Runs = append(h.Runs, run)
		}
	}
	switch {
	case b.Task != nil:
		b.Workflow, _, _ = strings.Cut(b.Task.Workflow, "@")
	case b.Epic != nil:
		b.Workflow, _, _ = strings.Cut(b.Epic.Workflow, "@")
	}
	h.Workflow = b.Workflow
	var err error
	h.Body, err = plainjson.Marshal(b)
	for most := maxShort; err == nil && len(h.Body) > trigger.MaxEvent && most >= minShort; most /= 4 {
		h.Body, err = plainjson.Marshal(b.short(most))
	}
	if err != nil {
		return h, fmt.Errorf("encode event %d: %w", b.Seq, err)
	}
	return h, nil
}

// Bounds of an event that is too large with all its texts. A text may take six times its bytes in JSON, so an
// event is cut down from maxShort to minShort bytes for each text, until it fits.
const maxShort, minShort = 16 << 10, 256

// short is the event with its texts cut to most bytes each, and its lists to one item for each 64 of these.
func (b feedEvent) short(most int) feedEvent {
	b.Brief = true
	texts, lists := []*string{&b.Workflow}, []*[]string(nil)
	if b.Task != nil {
		t := *b.Task
		b.Task = &t
		texts = append(texts, &t.Title, &t.Description, &t.Result, &t.Error, &t.Workflow)
		lists = append(lists, &t.Tags, &t.DependsOn)
	}
	if b.Epic != nil {
		e := *b.Epic
		b.Epic = &e
		texts = append(texts, &e.Title, &e.Description, &e.Result, &e.PauseReason, &e.Workflow)
		lists = append(lists, &e.Tags)
	}
	if b.Run != nil {
		r := *b.Run
		b.Run = &r
		texts = append(texts, &r.Reason, &r.Workflow)
	}
	for _, text := range texts {
		*text = errs.Clip(*text, most)
	}
	for _, list := range lists {
		*list = slices.Clone((*list)[:min(len(*list), most/64)])
		for i := range *list {
			(*list)[i] = errs.Clip((*list)[i], most)
		}
	}
	return b
}

// Depth implements trigger.Runs. The origin of a run is that of its root.
func (s Triggered) Depth(ctx context.Context, namespace, runID string) (int, error) {
	row, err := s.reader.Head(ctx, namespace, runID)
	if err == nil && row.RootID != "" && row.RootID != runID {
		row, err = s.reader.Head(ctx, namespace, row.RootID)
	}
	if errs.Is(err, errs.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	m, err := record.DecodeMetadata(row.Metadata)
	if err != nil || m.Origin == nil {
		return 0, err
	}
	return m.Origin.Depth, nil
}
