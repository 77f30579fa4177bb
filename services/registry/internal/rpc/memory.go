package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/remembering"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// Matches that a search tells, and how many at most.
const defaultMatches, maxMatches = 10, 100

// exported is how many entries an export reads at once.
const exported = 200

// MemoryServer serves epigraph.registry.v1.MemoryService. It is safe for concurrent use.
type MemoryServer struct {
	registryv1.UnimplementedMemoryServiceServer
	memories *remembering.Memories
}

var _ registryv1.MemoryServiceServer = (*MemoryServer)(nil)

// NewMemory returns a server of these use cases.
func NewMemory(m *remembering.Memories) *MemoryServer { return &MemoryServer{memories: m} }

// WriteMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) WriteMemory(ctx context.Context, req *registryv1.WriteMemoryRequest) (*registryv1.WriteMemoryResponse, error) {
	// Two vectors of one text may differ in their last digits: a repetition is known without them.
	same := &registryv1.WriteMemoryRequest{Memory: req.GetMemory(), RequestId: req.GetRequestId(), Ttl: req.GetTtl()}
	in, o, err := prepared(same, req.GetRequestId(), func() (memory.Entry, error) { return memoryFrom(ctx, req.GetMemory()) })
	if err != nil {
		return nil, err
	}
	if in.Vector, err = embeddingFrom(req.GetEmbedding()); err != nil {
		return nil, err
	}
	if req.GetTtl() != nil {
		ttl, err := duration("ttl", req.GetTtl())
		if err != nil {
			return nil, err
		}
		in.ExpireTime = dbkit.Now().Add(ttl)
	}
	out, removed, err := s.memories.Write(ctx, grpckit.Namespace(ctx), request.Change{Once: o, Etag: req.GetMemory().GetEtag()}, in)
	if err != nil {
		return nil, err
	}
	return &registryv1.WriteMemoryResponse{Memory: memoryTo(out), GaveWay: each(removed, func(e memory.Entry) string { return e.Key })}, nil
}

// SearchMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) SearchMemory(ctx context.Context, req *registryv1.SearchMemoryRequest) (*registryv1.SearchMemoryResponse, error) {
	q := memory.Query{
		Namespace: grpckit.Namespace(ctx), Text: req.GetQuery(), Key: req.GetKey(), AnyTag: req.GetTags(), Agent: req.GetAgent(), MinConfidence: req.GetMinConfidence(),
		Limit: min(int(req.GetLimit()), maxMatches), Scopes: each(req.GetScopes(), scopeFrom),
	}
	if q.Limit == 0 {
		q.Limit = defaultMatches
	}
	if len(q.Scopes) == 0 {
		q.Scopes = []memory.Scope{{Level: memory.OfNamespace}}
	}
	var err error
	if q.Kinds, err = enums[memory.Kind]("kinds", req.GetKinds(), memory.Preference); err != nil {
		return nil, err
	}
	if q.Vector, err = embeddingFrom(req.GetEmbedding()); err != nil {
		return nil, err
	}
	found, err := s.memories.Search(ctx, q, memory.Read{RunID: req.GetRunId(), NodeID: req.GetNodeId(), UserID: req.GetUserId()})
	if err != nil {
		return nil, err
	}
	return &registryv1.SearchMemoryResponse{NotCompared: int64(found.NotCompared), Matches: each(found.Hits, func(h memory.Hit) *registryv1.MemoryMatch {
		return &registryv1.MemoryMatch{Memory: memoryTo(h.Entry), Score: h.Score, Words: slices.Sorted(maps.Keys(h.Weights)), Similarity: h.Similarity}
	})}, nil
}

// LeaseUnembedded implements registryv1.MemoryServiceServer.
func (s *MemoryServer) LeaseUnembedded(ctx context.Context, req *registryv1.LeaseUnembeddedRequest) (*registryv1.LeaseUnembeddedResponse, error) {
	rows, err := s.memories.Unembedded(ctx, req.GetModel(), cmp.Or(int(req.GetLimit()), memory.MaxToEmbed))
	if err != nil {
		return nil, err
	}
	return &registryv1.LeaseUnembeddedResponse{Memories: each(rows, func(e memory.Entry) *registryv1.UnembeddedMemory {
		return &registryv1.UnembeddedMemory{Namespace: e.Namespace, MemoryId: e.ID, Etag: epic.Etag(e.Revision), Key: e.Key, Text: e.Text, Value: e.Value, Tags: e.Tags}
	})}, nil
}

// EmbedMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) EmbedMemory(ctx context.Context, req *registryv1.EmbedMemoryRequest) (*emptypb.Empty, error) {
	if (req.GetEmbedding() == nil) == (req.GetFault() == nil) {
		return nil, invalid("embedding", memory.ReasonInvalid, "exactly one of embedding and fault must be set")
	}
	if p := req.GetFault(); p != nil {
		f, err := memory.NewFault(p.GetModel(), p.GetMessage())
		if err != nil {
			return nil, err
		}
		return &emptypb.Empty{}, s.memories.Refuse(ctx, grpckit.Namespace(ctx), req.GetMemoryId(), req.GetEtag(), *f)
	}
	v, err := embeddingFrom(req.GetEmbedding())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.memories.Embed(ctx, grpckit.Namespace(ctx), req.GetMemoryId(), req.GetEtag(), v)
}

// embeddingFrom reads a vector; nil if there is none.
func embeddingFrom(p *registryv1.MemoryEmbedding) (*memory.Embedding, error) {
	if p == nil {
		return nil, nil
	}
	return memory.NewEmbedding(p.GetModel(), p.GetValues())
}

// GetMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) GetMemory(ctx context.Context, req *registryv1.GetMemoryRequest) (*registryv1.Memory, error) {
	e, err := s.memories.Get(ctx, grpckit.Namespace(ctx), req.GetMemoryId())
	if err != nil {
		return nil, err
	}
	return memoryTo(e), nil
}

// ListMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) ListMemory(ctx context.Context, req *registryv1.ListMemoryRequest) (*registryv1.ListMemoryResponse, error) {
	q := store.MemoryQuery{UserID: req.GetUserId(), Agent: req.GetAgent()}
	if req.GetScope() != nil {
		scope := scopeFrom(req.GetScope())
		if err := scope.Check(); err != nil {
			return nil, err
		}
		q.Place = scope.Place()
	}
	var err error
	if q.Kinds, err = enums[memory.Kind]("kinds", req.GetKinds(), memory.Preference); err != nil {
		return nil, err
	}
	rows, next, err := s.list(ctx, "ListMemory", req, q)
	if err != nil {
		return nil, err
	}
	return &registryv1.ListMemoryResponse{Memories: rows, NextPageToken: next}, nil
}

// ExportMemory implements registryv1.MemoryServiceServer. It reads page by page, so that it holds no
// transaction open while the client takes what it is sent.
func (s *MemoryServer) ExportMemory(_ *registryv1.ExportMemoryRequest, stream grpc.ServerStreamingServer[registryv1.Memory]) error {
	ctx := stream.Context()
	q := store.MemoryQuery{Namespace: grpckit.Namespace(ctx), Oldest: true, Limit: exported}
	for first := true; ; first = false {
		select {
		case <-grpckit.Draining(ctx):
			return errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping").Hint("export again, from the beginning")
		default:
		}
		found, err := s.memories.List(ctx, q)
		if err != nil {
			return err
		}
		if first || len(found.Rows) > 0 {
			if err := s.memories.Told(ctx, "ExportMemory", q, each(found.Rows, func(e memory.Entry) string { return e.ID })); err != nil {
				return err
			}
		}
		for _, e := range found.Rows {
			if err := stream.Send(memoryTo(e)); err != nil {
				return err
			}
			q.After = memoryCursor(e)
		}
		if len(found.Rows) == 0 {
			if found.Stopped.IsZero() {
				return nil
			}
			q.After = found.Stopped
		}
	}
}

func memoryCursor(e memory.Entry) page.Cursor {
	return page.Cursor{CreateTime: e.CreateTime, ID: e.ID}
}

func (s *MemoryServer) list(ctx context.Context, method string, req listRequest, q store.MemoryQuery) ([]*registryv1.Memory, string, error) {
	p, err := paged(ctx, method, req)
	if err != nil {
		return nil, "", err
	}
	q.Namespace, q.After, q.Limit = grpckit.Namespace(ctx), p.After, p.Limit+1
	found, err := s.memories.List(ctx, q)
	if err != nil {
		return nil, "", err
	}
	rows, next := page.CutAt(p, found.Rows, found.Stopped, memoryCursor)
	return each(rows, memoryTo), next, s.memories.Told(ctx, method, q, each(rows, func(e memory.Entry) string { return e.ID }))
}

// DeleteMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) DeleteMemory(ctx context.Context, req *registryv1.DeleteMemoryRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.memories.Delete(ctx, grpckit.Namespace(ctx), req.GetMemoryId(), req.GetEtag())
}

// ForgetMemory implements registryv1.MemoryServiceServer.
func (s *MemoryServer) ForgetMemory(ctx context.Context, req *registryv1.ForgetMemoryRequest) (*registryv1.ForgetMemoryResponse, error) {
	set := 0
	for _, is := range []bool{req.GetScope() != nil, req.GetUserId() != "", req.GetEverything()} {
		if is {
			set++
		}
	}
	if set != 1 {
		return nil, errs.New(errs.InvalidArgument, "FORGET_WHAT", "exactly one of scope, user_id and everything must be set").
			Hint("everything forgets all that the namespace remembers")
	}
	f := store.Forget{UserID: req.GetUserId()}
	if req.GetScope() != nil {
		scope := scopeFrom(req.GetScope())
		if err := scope.Check(); err != nil {
			return nil, err
		}
		f.Place = scope.Place()
	}
	entries, reads, err := s.memories.Forget(ctx, grpckit.Namespace(ctx), f)
	if err != nil {
		return nil, err
	}
	return &registryv1.ForgetMemoryResponse{Forgotten: int64(entries), ForgottenReads: int64(reads)}, nil
}

// ListMemoryReads implements registryv1.MemoryServiceServer.
func (s *MemoryServer) ListMemoryReads(ctx context.Context, req *registryv1.ListMemoryReadsRequest) (*registryv1.ListMemoryReadsResponse, error) {
	p, err := paged(ctx, "ListMemoryReads", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.memories.Reads(ctx, store.MemoryReadQuery{Namespace: grpckit.Namespace(ctx), After: p.After, Limit: p.Limit + 1})
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(r memory.Read) page.Cursor { return page.Cursor{CreateTime: r.Time, ID: r.ID} })
	return &registryv1.ListMemoryReadsResponse{NextPageToken: next, Reads: each(rows, func(r memory.Read) *registryv1.MemoryRead {
		return &registryv1.MemoryRead{
			Id: r.ID, Time: stamp(r.Time), RunId: r.RunID, NodeId: r.NodeID, UserId: r.UserID, Principal: r.Principal,
			Query: r.Query, Scopes: r.Scopes, MemoryIds: r.Entries, Method: r.Method, Told: int32(r.Told),
		}
	})}, nil
}

func scopeFrom(p *registryv1.MemoryScope) memory.Scope {
	return memory.Scope{Level: memory.Level(p.GetLevel()), Subject: p.GetSubject()}
}

// memoryFrom reads an entry. Only services say that a run or an agent wrote it.
func memoryFrom(ctx context.Context, p *registryv1.Memory) (memory.Entry, error) {
	e := memory.Entry{
		Scope: scopeFrom(p.GetScope()), Key: p.GetKey(), Text: p.GetText(), Tags: p.GetTags(),
		Source: p.GetSource(), UserID: p.GetUserId(), Confidence: 1,
	}
	if p.Confidence != nil {
		e.Confidence = p.GetConfidence()
	}
	var err error
	if e.Kind, err = optionalEnum("memory.kind", p.GetKind(), memory.Preference); err != nil {
		return e, err
	}
	if e.Origin, err = optionalEnum("memory.origin", p.GetOrigin(), memory.ByAgent); err != nil {
		return e, err
	}
	who := access.Of(ctx)
	if who.Kind != access.Internal {
		e.Origin = memory.ByClient
	}
	// Whoever may export and forget may write everything again as it was exported.
	if who.Kind == access.Internal || !who.Has(access.Admin) {
		if err := memory.CheckKey(e.Key, cmp.Or(e.Origin, memory.ByClient)); err != nil {
			return e, err
		}
	}
	if e.ExpireTime, err = instant("memory.expire_time", p.GetExpireTime()); err != nil {
		return e, err
	}
	if raw := p.GetValue().GetJson(); len(raw) > 0 {
		if len(raw) > memory.MaxValue || !json.Valid(raw) {
			return e, invalid("memory.value", memory.ReasonInvalid, fmt.Sprintf("a value is JSON of at most %d bytes", memory.MaxValue))
		}
		e.Value = raw
	}
	return e, nil
}

func memoryTo(e memory.Entry) *registryv1.Memory {
	m := &registryv1.Memory{
		Id: e.ID, Namespace: e.Namespace, Scope: &registryv1.MemoryScope{Level: registryv1.MemoryLevel(e.Scope.Level), Subject: e.Scope.Subject},
		Key: e.Key, Kind: registryv1.MemoryKind(e.Kind), Text: e.Text, Tags: e.Tags, Origin: registryv1.MemoryOrigin(e.Origin), Source: e.Source,
		UserId: e.UserID, Confidence: &e.Confidence, CreateTime: stamp(e.CreateTime), UpdateTime: stamp(e.UpdateTime),
		Etag: epic.Etag(e.Revision), Principal: e.Principal, VectorFault: e.VectorFault,
	}
	if e.Value != nil {
		m.Value = &graphv1.Payload{Json: e.Value}
	}
	m.ExpireTime = stamp(e.ExpireTime)
	return m
}
