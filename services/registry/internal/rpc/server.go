// Package rpc turns requests of the registry's API into calls of package accounting and back. It owns field
// masks, page tokens and the shape of messages; it must not know any rule of epics, tasks or prices.
package rpc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/fieldmask"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Server serves epigraph.registry.v1.RegistryService. It is safe for concurrent use.
type Server struct {
	registryv1.UnimplementedRegistryServiceServer
	accounts *accounting.Accounts
	catalog  *cataloging.Catalog
}

var _ registryv1.RegistryServiceServer = (*Server)(nil)

// New returns a server of these use cases. The catalog compiles the definitions of tasks.
func New(b *accounting.Accounts, c *cataloging.Catalog) *Server {
	return &Server{accounts: b, catalog: c}
}

// CreateEpic implements registryv1.RegistryServiceServer.
func (s *Server) CreateEpic(ctx context.Context, req *registryv1.CreateEpicRequest) (*registryv1.Epic, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (epic.Epic, error) { return epicFrom(req.GetEpic()) })
	if err != nil {
		return nil, err
	}
	return epicReply(s.accounts.CreateEpic(ctx, grpckit.Namespace(ctx), o, in))
}

// GetEpic implements registryv1.RegistryServiceServer.
func (s *Server) GetEpic(ctx context.Context, req *registryv1.GetEpicRequest) (*registryv1.Epic, error) {
	return epicReply(s.accounts.Epic(ctx, grpckit.Namespace(ctx), req.GetEpicId()))
}

// ListEpics implements registryv1.RegistryServiceServer.
func (s *Server) ListEpics(ctx context.Context, req *registryv1.ListEpicsRequest) (*registryv1.ListEpicsResponse, error) {
	p, err := paged(ctx, "ListEpics", req)
	if err != nil {
		return nil, err
	}
	q := store.EpicQuery{
		Namespace: grpckit.Namespace(ctx), AnyTag: req.GetTags(), Text: req.GetQuery(), Labels: req.GetLabels(),
		After: p.After, Limit: p.Limit + 1,
	}
	if q.States, err = enums[epic.State]("states", req.GetStates(), epic.Canceled); err != nil {
		return nil, err
	}
	found, err := s.accounts.Epics(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, next := page.CutAt(p, found.Rows, found.Stopped, func(e epic.Epic) page.Cursor { return page.Cursor{CreateTime: e.CreateTime, ID: e.ID} })
	return &registryv1.ListEpicsResponse{Epics: each(rows, epicTo), NextPageToken: next}, nil
}

// UpdateEpic implements registryv1.RegistryServiceServer.
func (s *Server) UpdateEpic(ctx context.Context, req *registryv1.UpdateEpicRequest) (*registryv1.Epic, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (epic.Epic, error) { return epicFrom(req.GetEpic()) })
	if err != nil {
		return nil, err
	}
	fields, err := fieldmask.Fields("epic", req.GetEpic(), req.GetUpdateMask(), epic.Fields())
	if err != nil {
		return nil, err
	}
	c := accounting.Change{Once: o, Etag: req.GetEpic().GetEtag()}
	return epicReply(s.accounts.UpdateEpic(ctx, grpckit.Namespace(ctx), req.GetEpic().GetId(), c, in, fields))
}

// TransitionEpic implements registryv1.RegistryServiceServer.
func (s *Server) TransitionEpic(ctx context.Context, req *registryv1.TransitionEpicRequest) (*registryv1.Epic, error) {
	to, o, err := prepared(req, req.GetRequestId(), func() (epic.State, error) { return enum("state", req.GetState(), epic.Canceled) })
	if err != nil {
		return nil, err
	}
	c := accounting.Change{Once: o, Etag: req.GetEtag()}
	return epicReply(s.accounts.MoveEpic(ctx, grpckit.Namespace(ctx), req.GetEpicId(), c, to, req.GetResultSummary()))
}

// DeleteEpic implements registryv1.RegistryServiceServer.
func (s *Server) DeleteEpic(ctx context.Context, req *registryv1.DeleteEpicRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.accounts.DeleteEpic(ctx, grpckit.Namespace(ctx), req.GetEpicId(), req.GetEtag())
}

// CreateTask implements registryv1.RegistryServiceServer.
func (s *Server) CreateTask(ctx context.Context, req *registryv1.CreateTaskRequest) (*registryv1.Task, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (epic.Task, error) { return taskFrom(req.GetTask()) })
	if err != nil {
		return nil, err
	}
	if in.EpicID == "" {
		return nil, invalid("task.epic_id", "EPIC_ID_REQUIRED", "a task needs an epic")
	}
	if in.Definition != "" {
		if t, served, err := s.accounts.ServedTask(ctx, grpckit.Namespace(ctx), "CreateTask", o); served || err != nil {
			return taskReply(t, err)
		}
		if _, err := s.attach(ctx, o, &in, nil); err != nil {
			return nil, err
		}
	}
	return taskReply(s.accounts.CreateTask(ctx, grpckit.Namespace(ctx), o, in))
}

// GetTask implements registryv1.RegistryServiceServer.
func (s *Server) GetTask(ctx context.Context, req *registryv1.GetTaskRequest) (*registryv1.Task, error) {
	return taskReply(s.accounts.Task(ctx, grpckit.Namespace(ctx), req.GetTaskId()))
}

// ListTasks implements registryv1.RegistryServiceServer.
func (s *Server) ListTasks(ctx context.Context, req *registryv1.ListTasksRequest) (*registryv1.ListTasksResponse, error) {
	p, err := paged(ctx, "ListTasks", req)
	if err != nil {
		return nil, err
	}
	q := store.TaskQuery{
		Namespace: grpckit.Namespace(ctx), EpicID: req.GetEpicId(), AnyTag: req.GetTags(), Labels: req.GetLabels(),
		After: p.After, Limit: p.Limit + 1,
	}
	if q.States, err = enums[epic.TaskState]("states", req.GetStates(), epic.TaskCanceled); err != nil {
		return nil, err
	}
	found, err := s.accounts.Tasks(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, next := page.CutAt(p, found.Rows, found.Stopped, func(t epic.Task) page.Cursor { return page.Cursor{CreateTime: t.CreateTime, ID: t.ID} })
	for i := range rows {
		rows[i].Definition = "" // a page of them would be large
	}
	return &registryv1.ListTasksResponse{Tasks: each(rows, taskTo), NextPageToken: next}, nil
}

// UpdateTask implements registryv1.RegistryServiceServer.
func (s *Server) UpdateTask(ctx context.Context, req *registryv1.UpdateTaskRequest) (*registryv1.Task, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (epic.Task, error) { return taskFrom(req.GetTask()) })
	if err != nil {
		return nil, err
	}
	fields, err := fieldmask.Fields("task", req.GetTask(), req.GetUpdateMask(), epic.TaskFields())
	if err != nil {
		return nil, err
	}
	if in.Definition != "" && slices.Contains(fields, "definition") {
		if t, served, err := s.accounts.ServedTask(ctx, grpckit.Namespace(ctx), "UpdateTask", o); served || err != nil {
			return taskReply(t, err)
		}
		if fields, err = s.attach(ctx, o, &in, fields); err != nil {
			return nil, err
		}
	}
	c := accounting.Change{Once: o, Etag: req.GetTask().GetEtag()}
	return taskReply(s.accounts.UpdateTask(ctx, grpckit.Namespace(ctx), req.GetTask().GetId(), c, in, fields))
}

// TransitionTask implements registryv1.RegistryServiceServer.
func (s *Server) TransitionTask(ctx context.Context, req *registryv1.TransitionTaskRequest) (*registryv1.Task, error) {
	to, o, err := prepared(req, req.GetRequestId(), func() (epic.TaskState, error) {
		return enum("state", req.GetState(), epic.TaskCanceled)
	})
	if err != nil {
		return nil, err
	}
	c := accounting.Change{Once: o, Etag: req.GetEtag()}
	return taskReply(s.accounts.MoveTask(ctx, grpckit.Namespace(ctx), req.GetTaskId(), c, to,
		accounting.Outcome{Summary: req.GetResultSummary(), Error: req.GetErrorMessage(), Note: req.GetNote()}))
}

// DeleteTask implements registryv1.RegistryServiceServer.
func (s *Server) DeleteTask(ctx context.Context, req *registryv1.DeleteTaskRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.accounts.DeleteTask(ctx, grpckit.Namespace(ctx), req.GetTaskId(), req.GetEtag())
}

// ClaimTask implements registryv1.RegistryServiceServer.
func (s *Server) ClaimTask(ctx context.Context, req *registryv1.ClaimTaskRequest) (*registryv1.ClaimTaskResponse, error) {
	lease, err := duration("lease", req.GetLease())
	if err != nil {
		return nil, err
	}
	t, until, err := s.accounts.ClaimTask(ctx, grpckit.Namespace(ctx), req.GetTaskId(), req.GetRunId(), req.GetDatabase(), lease)
	if err != nil {
		return nil, err
	}
	return &registryv1.ClaimTaskResponse{Task: taskTo(t), LeaseExpireTime: timestamppb.New(until)}, nil
}

// ConfirmClaim implements registryv1.RegistryServiceServer.
func (s *Server) ConfirmClaim(ctx context.Context, req *registryv1.ConfirmClaimRequest) (*registryv1.Task, error) {
	start, err := instant("start_time", req.GetStartTime())
	if err != nil {
		return nil, err
	}
	if _, err := versionFrom("workflow", req.GetWorkflow()); err != nil {
		return nil, err
	}
	return taskReply(s.accounts.ConfirmClaim(ctx, grpckit.Namespace(ctx), req.GetTaskId(), req.GetRunId(), req.GetDatabase(), req.GetWorkflow(), start))
}

// SettleClaim implements registryv1.RegistryServiceServer.
func (s *Server) SettleClaim(ctx context.Context, req *registryv1.SettleClaimRequest) (*registryv1.Task, error) {
	o := accounting.Settlement{Summary: req.GetResultSummary(), Error: req.GetErrorMessage(), Workflow: req.GetWorkflow()}
	_, err := versionFrom("workflow", o.Workflow)
	if err != nil {
		return nil, err
	}
	if o.State, err = enum("state", req.GetState(), epic.TaskCanceled); err != nil {
		return nil, err
	}
	if o.Duration, err = duration("duration", req.GetDuration()); err != nil {
		return nil, err
	}
	if o.End, err = instant("end_time", req.GetEndTime()); err != nil {
		return nil, err
	}
	return taskReply(s.accounts.SettleClaim(ctx, grpckit.Namespace(ctx), req.GetTaskId(), req.GetRunId(), o))
}

// RecordUsage implements registryv1.RegistryServiceServer.
func (s *Server) RecordUsage(ctx context.Context, req *registryv1.RecordUsageRequest) (*registryv1.RecordUsageResponse, error) {
	in, err := entriesFrom(req.GetEntries())
	if err != nil {
		return nil, err
	}
	out, err := s.accounts.RecordUsage(ctx, grpckit.Namespace(ctx), in)
	if err != nil {
		return nil, err
	}
	return &registryv1.RecordUsageResponse{Entries: each(out, entryTo)}, nil
}

func entriesFrom(list []*registryv1.UsageEntry) ([]usage.Entry, error) {
	in := make([]usage.Entry, len(list))
	for i, e := range list {
		var err error
		if in[i], err = entryFrom(fmt.Sprintf("entries[%d]", i), e); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// PriceUsage implements registryv1.RegistryServiceServer.
func (s *Server) PriceUsage(ctx context.Context, req *registryv1.PriceUsageRequest) (*registryv1.PriceUsageResponse, error) {
	in, err := entriesFrom(req.GetEntries())
	if err != nil {
		return nil, err
	}
	out, err := s.accounts.PriceUsage(ctx, grpckit.Namespace(ctx), in)
	if err != nil {
		return nil, err
	}
	return &registryv1.PriceUsageResponse{Entries: each(out, entryTo)}, nil
}

// ListUsage implements registryv1.RegistryServiceServer.
func (s *Server) ListUsage(ctx context.Context, req *registryv1.ListUsageRequest) (*registryv1.ListUsageResponse, error) {
	p, err := paged(ctx, "ListUsage", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.accounts.Entries(ctx, store.EntryQuery{
		Namespace: grpckit.Namespace(ctx), EpicID: req.GetEpicId(), TaskID: req.GetTaskId(), RunID: req.GetRunId(),
		After: p.After, Limit: p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(e usage.Entry) page.Cursor { return page.Cursor{CreateTime: e.Time, ID: e.ID} })
	return &registryv1.ListUsageResponse{Entries: each(rows, entryTo), NextPageToken: next}, nil
}

// GetNamespaceUsage implements registryv1.RegistryServiceServer.
func (s *Server) GetNamespaceUsage(ctx context.Context, _ *registryv1.GetNamespaceUsageRequest) (*registryv1.NamespaceUsage, error) {
	namespace := grpckit.Namespace(ctx)
	t, err := s.accounts.NamespaceTotals(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return &registryv1.NamespaceUsage{
		Namespace: namespace, SpentTokens: t.Tokens, SpentNanoUsd: t.NanoUSD, UnpricedCalls: t.UnpricedCalls,
		Calls: t.ModelCalls + t.ToolCalls,
	}, nil
}

// CreatePrice implements registryv1.RegistryServiceServer.
func (s *Server) CreatePrice(ctx context.Context, req *registryv1.CreatePriceRequest) (*registryv1.Price, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (usage.Price, error) { return priceFrom(req.GetPrice()) })
	if err != nil {
		return nil, err
	}
	p, err := s.accounts.CreatePrice(ctx, grpckit.Namespace(ctx), o, in)
	if err != nil {
		return nil, err
	}
	return priceTo(p), nil
}

// ListPrices implements registryv1.RegistryServiceServer.
func (s *Server) ListPrices(ctx context.Context, req *registryv1.ListPricesRequest) (*registryv1.ListPricesResponse, error) {
	p, err := paged(ctx, "ListPrices", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.accounts.Prices(ctx, store.PriceQuery{
		Namespace: grpckit.Namespace(ctx), Provider: req.GetProvider(), Model: req.GetModel(), After: p.After, Limit: p.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(p usage.Price) page.Cursor { return page.Cursor{CreateTime: p.ValidFrom, ID: p.ID} })
	return &registryv1.ListPricesResponse{Prices: each(rows, priceTo), NextPageToken: next}, nil
}

// prepared reads a request and hashes what it asks for.
func prepared[T any](req proto.Message, requestID string, read func() (T, error)) (in T, o accounting.Once, err error) {
	if in, err = read(); err != nil || requestID == "" {
		return in, o, err
	}
	body, err := bytesWithout(req, "request_id")
	return in, accounting.Once{ID: requestID, BodyHash: sha256.Sum256(body)}, err
}

type listRequest interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// paged reads the paging fields of a list request; everything else in it belongs to the query.
func paged(ctx context.Context, method string, req listRequest) (page.Page, error) {
	filter, err := bytesWithout(req, "page_size", "page_token")
	if err != nil {
		return page.Page{}, err
	}
	return page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{
		Method: method, Parent: grpckit.Namespace(ctx), Filter: string(filter),
	})
}

func epicReply(e epic.Epic, err error) (*registryv1.Epic, error) {
	if err != nil {
		return nil, err
	}
	return epicTo(e), nil
}

func taskReply(t epic.Task, err error) (*registryv1.Task, error) {
	if err != nil {
		return nil, err
	}
	return taskTo(t), nil
}

func each[T, P any](rows []T, to func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = to(r)
	}
	return out
}

func invalid(field, reason, message string) error {
	return errs.New(errs.InvalidArgument, reason, "%s: %s", field, message).Violate(field, reason, message)
}
