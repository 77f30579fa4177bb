package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/learned"
	"github.com/epigraph-run/epigraph/internal/llm"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/remember"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// Memory reads and writes the memory of the registry for actors. It is safe for concurrent use.
type Memory struct {
	client registryv1.MemoryServiceClient
	tasks  registryv1.RegistryServiceClient
}

var _ remember.Memory = Memory{}

// NewMemory returns the memory that client keeps, for runs whose tasks are kept by the other one.
func NewMemory(client registryv1.MemoryServiceClient, tasks registryv1.RegistryServiceClient) Memory {
	return Memory{client, tasks}
}

// Write implements remember.Memory.
func (m Memory) Write(ctx context.Context, namespace string, e remember.Entry, request string) (remember.Entry, []string, error) {
	in := &registryv1.Memory{
		Scope: scopeTo(e.Scope), Key: e.Key, Kind: delegationpb.NumberOf[registryv1.MemoryKind](delegation.Kinds(), e.Kind), Text: e.Text, Tags: e.Tags,
		Origin: registryv1.MemoryOrigin_MEMORY_ORIGIN_RUN, Source: e.Source, UserId: e.User, Confidence: &e.Confidence,
	}
	if len(e.Value) > 0 {
		in.Value = &graphv1.Payload{Json: e.Value}
	}
	req := &registryv1.WriteMemoryRequest{Memory: in, RequestId: request, Embedding: embeddingTo(e.Vector)}
	if e.Life > 0 {
		req.Ttl = durationpb.New(e.Life)
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.WriteMemoryResponse, error) {
		return m.client.WriteMemory(ctx, req)
	})
	return remembered(got.GetMemory()), got.GetGaveWay(), err
}

// Search implements remember.Memory.
func (m Memory) Search(ctx context.Context, namespace string, s remember.Search) (out []remember.Entry, notCompared int64, err error) {
	req := &registryv1.SearchMemoryRequest{
		Query: s.Text, Key: s.Key, Agent: s.Agent, MinConfidence: s.MinConfidence, Limit: int32(s.Limit), RunId: s.Run, NodeId: s.Node, UserId: s.User, Embedding: embeddingTo(s.Vector),
	}
	for _, scope := range s.Scopes {
		req.Scopes = append(req.Scopes, scopeTo(scope))
	}
	for _, kind := range s.Kinds {
		req.Kinds = append(req.Kinds, delegationpb.NumberOf[registryv1.MemoryKind](delegation.Kinds(), kind))
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.SearchMemoryResponse, error) {
		return m.client.SearchMemory(ctx, req)
	})
	for _, match := range got.GetMatches() {
		out = append(out, remembered(match.GetMemory()))
	}
	return out, got.GetNotCompared(), err
}

func embeddingTo(v *remember.Vector) *registryv1.MemoryEmbedding {
	if v == nil {
		return nil
	}
	return &registryv1.MemoryEmbedding{Model: v.Model, Values: v.Values}
}

var _ remember.Unembedded = Memory{}

// Lease implements remember.Unembedded.
func (m Memory) Lease(ctx context.Context, model string, limit int) (out []remember.Bare, err error) {
	got, err := m.client.LeaseUnembedded(ctx, &registryv1.LeaseUnembeddedRequest{Model: model, Limit: int32(limit)})
	for _, b := range got.GetMemories() {
		out = append(out, remember.Bare{
			Namespace: b.GetNamespace(), ID: b.GetMemoryId(), Etag: b.GetEtag(),
			Entry: remember.Entry{Key: b.GetKey(), Text: b.GetText(), Value: b.GetValue(), Tags: b.GetTags()},
		})
	}
	return out, err
}

// Embed implements remember.Unembedded.
func (m Memory) Embed(ctx context.Context, b remember.Bare, v remember.Vector) error {
	_, err := m.client.EmbedMemory(grpckit.WithNamespace(ctx, b.Namespace), &registryv1.EmbedMemoryRequest{MemoryId: b.ID, Etag: b.Etag, Embedding: embeddingTo(&v)})
	return err
}

// Refused implements remember.Unembedded.
func (m Memory) Refused(ctx context.Context, b remember.Bare, model, why string) error {
	_, err := m.client.EmbedMemory(grpckit.WithNamespace(ctx, b.Namespace), &registryv1.EmbedMemoryRequest{
		MemoryId: b.ID, Etag: b.Etag, Fault: &registryv1.EmbeddingFault{Model: model, Message: errs.Clip(cmp.Or(why, "the model gave no reason"), maxWhy)},
	})
	return err
}

// maxWhy bounds the reason of a model, in bytes.
const maxWhy = 500

// MemoryPayer books the vectors that an executor makes for entries of the memory, on their namespaces. It is
// safe for concurrent use.
type MemoryPayer struct {
	client registryv1.RegistryServiceClient
}

var _ remember.Payer = MemoryPayer{}

// NewMemoryPayer returns one that books at a registry.
func NewMemoryPayer(client registryv1.RegistryServiceClient) MemoryPayer { return MemoryPayer{client} }

// Reserve implements remember.Payer. While the registry is away nothing can be done for its memory either.
func (p MemoryPayer) Reserve(ctx context.Context, namespace, id string, most llm.Spent) (string, error) {
	got, err := p.client.ReserveUsage(grpckit.WithNamespace(ctx, namespace), &registryv1.ReserveUsageRequest{Calls: []*registryv1.UsageEntry{embeddingEntry(id, 0, &most)}})
	if err != nil {
		return "", err
	}
	if len(got.GetReservations()) != 1 {
		return "", errs.New(errs.Internal, errs.ReasonInternal, "the registry answered %d reservations for one", len(got.GetReservations()))
	}
	return got.GetReservations()[0].GetRefusal().GetMessage(), nil
}

// Settle implements remember.Payer.
func (p MemoryPayer) Settle(ctx context.Context, namespace, id string, spent []llm.Spent) error {
	ctx = grpckit.WithNamespace(ctx, namespace)
	if len(spent) == 0 {
		_, err := p.client.ReleaseUsage(ctx, &registryv1.ReleaseUsageRequest{Calls: []*registryv1.UsageEntry{embeddingEntry(id, 0, &llm.Spent{})}})
		return err
	}
	entries := make([]*registryv1.UsageEntry, len(spent))
	for i := range spent {
		entries[i] = embeddingEntry(id, i, &spent[i])
	}
	_, err := p.client.RecordUsage(ctx, &registryv1.RecordUsageRequest{Entries: entries})
	return err
}

// embeddingEntry is a call that no run makes: its id stands in the place of one.
func embeddingEntry(id string, n int, s *llm.Spent) *registryv1.UsageEntry {
	return &registryv1.UsageEntry{
		RunId: id, NodeId: "memory", Visit: 1, Attempt: 1, Call: int32(n), Kind: registryv1.UsageKind_USAGE_KIND_EMBEDDING, //nolint:gosec // a few retries
		Provider: s.Provider, Model: s.Model, InputTokens: s.Usage.Input, CachedInputTokens: s.Usage.CachedInput, OutputTokens: s.Usage.Output, Time: timestamppb.Now(),
	}
}

// EpicOf implements remember.Memory.
func (m Memory) EpicOf(ctx context.Context, namespace, task string) (string, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return m.tasks.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: task})
	})
	if errs.Is(err, errs.NotFound) {
		return "", nil
	}
	return got.GetEpicId(), err
}

func scopeTo(s remember.Scope) *registryv1.MemoryScope {
	return &registryv1.MemoryScope{Level: delegationpb.NumberOf[registryv1.MemoryLevel](delegation.Scopes(), s.Level), Subject: s.Subject}
}

func remembered(m *registryv1.Memory) remember.Entry {
	return remember.Entry{
		Scope: remember.Scope{Level: delegationpb.WordOf(delegation.Scopes(), m.GetScope().GetLevel()), Subject: m.GetScope().GetSubject()},
		Key:   m.GetKey(), Kind: delegationpb.WordOf(delegation.Kinds(), m.GetKind()), Text: m.GetText(), Value: m.GetValue().GetJson(), Tags: m.GetTags(),
		Confidence: m.GetConfidence(), Written: m.GetUpdateTime().AsTime(),
	}
}

// learnFor is how long after it was learned something is tried again for which the memory has no room. The
// usage of the run waits behind it meanwhile. The item of its thread stays.
const learnFor = 10 * time.Minute

// reasonNoRoom refuses for good what was learned and found no room for learnFor.
const reasonNoRoom = "NO_ROOM_TO_LEARN"

// Learn implements outbox.Registry. What is about a user is kept for that user, else for the workflow,
// and of a run with neither for the namespace, as the actors do. Runs are delivered for side by side,
// so the registry keeps what was learned in the later step, whichever it hears of first.
func (r *Registry) Learn(ctx context.Context, namespace string, l outbox.Learned) error {
	if r.memory == nil {
		return nil
	}
	var refused error
	for _, f := range l.Learnings {
		scope := remember.Scope{Level: "namespace"}
		switch {
		case f.User != "":
			scope = remember.Scope{Level: "user", Subject: f.User}
		case l.Workflow != "":
			scope = remember.Scope{Level: "workflow", Subject: l.Workflow}
		}
		value, err := json.Marshal(learned.Value{Agent: f.Agent, Name: f.Name, Time: f.Time.UTC()})
		if err != nil {
			return err
		}
		_, err = r.memory.WriteMemory(grpckit.WithNamespace(ctx, namespace), &registryv1.WriteMemoryRequest{
			RequestId: "learned/" + l.RunID + "/" + f.ID + "/" + strconv.FormatInt(f.Time.UnixMicro(), 36),
			Memory: &registryv1.Memory{
				Scope: scopeTo(scope), Key: learned.Key(f.Agent, f.Name), Kind: registryv1.MemoryKind_MEMORY_KIND_FACT, Text: f.Content,
				Value: &graphv1.Payload{Json: value}, Origin: registryv1.MemoryOrigin_MEMORY_ORIGIN_AGENT, Source: l.RunID, UserId: f.User,
			},
		})
		switch errs.KindOf(err) {
		case errs.InvalidArgument, errs.NotFound, errs.FailedPrecondition:
			refused = err // the others are kept
			continue
		}
		if errs.Is(err, errs.ResourceExhausted) && time.Since(f.Time) > learnFor {
			refused = errs.New(errs.FailedPrecondition, reasonNoRoom, "%s of agent %s is not in the memory: for %s there was no room for it; it stays in its thread", f.Name, f.Agent, learnFor).With(err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return refused
}
