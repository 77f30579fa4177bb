package rpc

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// WorkflowServer serves epigraph.registry.v1.WorkflowService. It is safe for concurrent use.
type WorkflowServer struct {
	registryv1.UnimplementedWorkflowServiceServer
	catalog *cataloging.Catalog
}

var _ registryv1.WorkflowServiceServer = (*WorkflowServer)(nil)

// NewWorkflows returns a server of these use cases.
func NewWorkflows(c *cataloging.Catalog) *WorkflowServer { return &WorkflowServer{catalog: c} }

// CreateWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) CreateWorkflow(ctx context.Context, req *registryv1.CreateWorkflowRequest) (*registryv1.Workflow, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (cataloging.Draft, error) { return draftFrom(req) })
	if err != nil {
		return nil, err
	}
	in.Number = req.GetVersion()
	w, err := s.catalog.Create(ctx, grpckit.Namespace(ctx), o, in, req.GetSlug())
	return s.workflowReply(ctx, w, err)
}

// CreateWorkflowVersion implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) CreateWorkflowVersion(ctx context.Context, req *registryv1.CreateWorkflowVersionRequest) (*registryv1.WorkflowVersion, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (cataloging.Draft, error) { return draftFrom(req) })
	if err != nil {
		return nil, err
	}
	in.Number = req.GetVersion()
	w, v, err := s.catalog.AddVersion(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), request.Change{Once: o, Etag: req.GetEtag()}, in)
	if err != nil {
		return nil, err
	}
	return versionTo(w.Slug, v), nil
}

// GetWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) GetWorkflow(ctx context.Context, req *registryv1.GetWorkflowRequest) (*registryv1.Workflow, error) {
	w, err := s.catalog.Get(ctx, grpckit.Namespace(ctx), req.GetWorkflow())
	return s.workflowReply(ctx, w, err)
}

// ListWorkflows implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ListWorkflows(ctx context.Context, req *registryv1.ListWorkflowsRequest) (*registryv1.ListWorkflowsResponse, error) {
	p, err := paged(ctx, "ListWorkflows", req)
	if err != nil {
		return nil, err
	}
	q := store.WorkflowQuery{Namespace: grpckit.Namespace(ctx), AnyTag: req.GetTags(), Exposed: req.GetExposed(), After: p.After, Limit: p.Limit + 1}
	if q.States, err = enums[catalog.State]("states", req.GetStates(), catalog.Deprecated); err != nil {
		return nil, err
	}
	found, err := s.catalog.List(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, next := page.CutAt(p, found.Rows, found.Stopped, func(w catalog.Workflow) page.Cursor { return page.Cursor{CreateTime: w.CreateTime, ID: w.ID} })
	of, err := s.catalog.Origins(ctx, q.Namespace, rows...)
	if err != nil {
		return nil, err
	}
	out := each(rows, workflowTo)
	for _, w := range out {
		w.ForkedFrom = of[w.GetId()]
	}
	return &registryv1.ListWorkflowsResponse{Workflows: out, NextPageToken: next}, nil
}

// GetWorkflowVersion implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) GetWorkflowVersion(ctx context.Context, req *registryv1.GetWorkflowVersionRequest) (*registryv1.WorkflowVersion, error) {
	w, v, err := s.catalog.Resolve(ctx, grpckit.Namespace(ctx), catalog.Ref{Name: req.GetWorkflow(), Version: req.GetVersion()}, "")
	if err != nil {
		return nil, err
	}
	return versionTo(w.Slug, v), nil
}

// ListWorkflowVersions implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ListWorkflowVersions(ctx context.Context, req *registryv1.ListWorkflowVersionsRequest) (*registryv1.ListWorkflowVersionsResponse, error) {
	p, err := paged(ctx, "ListWorkflowVersions", req)
	if err != nil {
		return nil, err
	}
	var before int64
	if p.After.ID != "" {
		if before, err = strconv.ParseInt(p.After.ID, 10, 64); err != nil {
			return nil, invalid("page_token", "PAGE_TOKEN_INVALID", "is none of this list")
		}
	}
	w, rows, err := s.catalog.Versions(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), before, p.Limit+1)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(v catalog.Version) page.Cursor {
		return page.Cursor{CreateTime: v.CreateTime, ID: strconv.FormatInt(v.Number, 10)}
	})
	out := each(rows, func(v catalog.Version) *registryv1.WorkflowVersion { return versionTo(w.Slug, v) })
	return &registryv1.ListWorkflowVersionsResponse{Versions: out, NextPageToken: next}, nil
}

// SetWorkflowAlias implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) SetWorkflowAlias(ctx context.Context, req *registryv1.SetWorkflowAliasRequest) (*registryv1.Workflow, error) {
	to, o, err := prepared(req, req.GetRequestId(), func() ([]catalog.Weight, error) {
		return each(req.GetVersions(), func(w *registryv1.WorkflowWeight) catalog.Weight {
			return catalog.Weight{Version: w.GetVersion(), Weight: int64(w.GetWeight())}
		}), nil
	})
	if err != nil {
		return nil, err
	}
	w, err := s.catalog.SetAlias(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), request.Change{Once: o, Etag: req.GetEtag()}, req.GetAlias(), to)
	return s.workflowReply(ctx, w, err)
}

// DeleteWorkflowAlias implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) DeleteWorkflowAlias(ctx context.Context, req *registryv1.DeleteWorkflowAliasRequest) (*registryv1.Workflow, error) {
	w, err := s.catalog.DeleteAlias(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), req.GetEtag(), req.GetAlias())
	return s.workflowReply(ctx, w, err)
}

// DeprecateWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) DeprecateWorkflow(ctx context.Context, req *registryv1.DeprecateWorkflowRequest) (*registryv1.Workflow, error) {
	if req.GetUndo() && req.GetMessage() != "" {
		return nil, invalid("message", "FIELD_NOT_USED", "says nothing when a deprecation is taken back")
	}
	_, o, err := prepared(req, req.GetRequestId(), func() (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		return nil, err
	}
	w, err := s.catalog.Deprecate(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), request.Change{Once: o, Etag: req.GetEtag()}, req.GetMessage(), req.GetUndo())
	return s.workflowReply(ctx, w, err)
}

// ExposeWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ExposeWorkflow(ctx context.Context, req *registryv1.ExposeWorkflowRequest) (*registryv1.Workflow, error) {
	if req.GetUndo() && req.GetVersion() != "" {
		return nil, invalid("version", "FIELD_NOT_USED", "says nothing when an exposure is taken back")
	}
	_, o, err := prepared(req, req.GetRequestId(), func() (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		return nil, err
	}
	w, err := s.catalog.Expose(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), request.Change{Once: o, Etag: req.GetEtag()}, req.GetVersion(), req.GetUndo())
	return s.workflowReply(ctx, w, err)
}

// DeleteWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) DeleteWorkflow(ctx context.Context, req *registryv1.DeleteWorkflowRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.catalog.Delete(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), req.GetEtag())
}

// ValidateWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ValidateWorkflow(ctx context.Context, req *registryv1.ValidateWorkflowRequest) (*registryv1.ValidateWorkflowResponse, error) {
	in, err := draftFrom(req)
	if err != nil {
		return nil, err
	}
	c, faults, err := s.catalog.Validate(ctx, grpckit.Namespace(ctx), in)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ValidateWorkflowResponse{Valid: len(faults) == 0}
	for _, f := range faults {
		out.Faults = append(out.Faults, &registryv1.WorkflowFault{
			Code: f.Code, Line: int32(f.Line), Column: int32(f.Column), Path: f.Path, Message: f.Message, Hint: f.Hint,
		})
	}
	if out.Valid {
		out.Name, out.Size = c.Name, extentTo(c.Extent)
	}
	return out, nil
}

// ResolveWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ResolveWorkflow(ctx context.Context, req *registryv1.ResolveWorkflowRequest) (*registryv1.ResolveWorkflowResponse, error) {
	ref, err := catalog.ParseRef(req.GetRef())
	if err != nil {
		return nil, err
	}
	w, v, err := s.catalog.Resolve(ctx, grpckit.Namespace(ctx), ref, req.GetKey())
	if err != nil {
		return nil, err
	}
	out := &registryv1.ResolveWorkflowResponse{
		WorkflowId: w.ID, Ref: catalog.At(w.Slug, v.Number), Version: v.Number, Hash: v.Hash, GraphHash: v.GraphHash,
		BudgetNanoUsd: v.BudgetNanoUSD, BudgetTokens: v.BudgetTokens, Deprecation: w.Deprecation,
	}
	if req.GetTriggers() {
		out.Triggers, err = v.Triggers()
		return out, err
	}
	g, err := s.catalog.Unpack(ctx, grpckit.Namespace(ctx), &v)
	if err != nil {
		return nil, err
	}
	if out.Graph, err = graphpb.ToProto(g); err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	return out, nil
}

// draftRequest is a request with a text.
type draftRequest interface {
	GetSource() string
	GetForm() registryv1.WorkflowForm
}

func draftFrom(req draftRequest) (cataloging.Draft, error) {
	form, err := optionalEnum("form", req.GetForm(), catalog.Graph)
	if form == 0 {
		form = catalog.Definition
	}
	return cataloging.Draft{Form: form, Source: req.GetSource()}, err
}

func (s *WorkflowServer) workflowReply(ctx context.Context, w catalog.Workflow, err error) (*registryv1.Workflow, error) {
	if err != nil {
		return nil, err
	}
	of, err := s.catalog.Origins(ctx, grpckit.Namespace(ctx), w)
	if err != nil {
		return nil, err
	}
	out := workflowTo(w)
	out.ForkedFrom = of[w.ID]
	return out, nil
}

func workflowTo(w catalog.Workflow) *registryv1.Workflow {
	out := &registryv1.Workflow{
		Id: w.ID, Namespace: w.Namespace, Slug: w.Slug, Name: w.Name, Description: w.Description, Tags: w.Tags, State: registryv1.WorkflowState(w.State),
		Deprecation: w.Deprecation, LatestVersion: w.Latest, VersionCount: w.Versions, History: historyTo(w.History),
		CreateTime: stamp(w.CreateTime), UpdateTime: stamp(w.UpdateTime), Etag: w.Etag(), Principal: w.Principal, Size: extentTo(w.Extent), Exposed: w.Exposed,
	}
	for _, a := range w.Aliases {
		out.Aliases = append(out.Aliases, &registryv1.WorkflowAlias{Name: a.Name, Versions: each(a.Versions, func(v catalog.Weight) *registryv1.WorkflowWeight {
			return &registryv1.WorkflowWeight{Version: v.Version, Weight: int32(v.Weight)}
		})})
	}
	return out
}

func versionTo(slug string, v catalog.Version) *registryv1.WorkflowVersion {
	return &registryv1.WorkflowVersion{
		Workflow: slug, Version: v.Number, Hash: v.Hash, GraphHash: v.GraphHash, Form: registryv1.WorkflowForm(v.Form), Source: v.Source,
		Name: v.Name, Label: v.Label, Description: v.Description, Size: extentTo(v.Extent), History: historyTo(v.History), CreateTime: stamp(v.CreateTime), Principal: v.Principal,
	}
}

func extentTo(e catalog.Extent) *registryv1.WorkflowSize {
	return &registryv1.WorkflowSize{Nodes: e.Nodes, Edges: e.Edges}
}

func historyTo(h catalog.History) *registryv1.WorkflowHistory {
	out := &registryv1.WorkflowHistory{Completed: h.Completed, Failed: h.Failed, Canceled: h.Canceled, NanoUsd: h.NanoUSD, Tokens: h.Tokens}
	if rate, ok := h.SuccessRate(); ok {
		rate = math.Round(rate*1e4) / 1e4
		out.SuccessRate = &rate
	}
	return out
}
