package rpc

import (
	"cmp"
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/threadvalue"
	"github.com/epigraph-run/epigraph/workgraph"
)

// valueBytesPerCost is for how many bytes a thread as a value costs one more: each item of it, which
// may have as few, becomes a row.
const valueBytesPerCost = 20

// valueCost is what making a thread from a value costs besides the bytes of its request.
func valueCost(p *graphv1.Payload) int { return len(p.GetJson()) / valueBytesPerCost }

// ExportThread implements the service.
func (s *ThreadServer) ExportThread(ctx context.Context, req *executorv1.ExportThreadRequest) (*executorv1.ExportThreadResponse, error) {
	leave, err := s.admission.Enter(ctx, grpckit.Namespace(ctx), standing)
	if err != nil {
		return nil, err
	}
	defer leave()
	value, err := threadvalue.Export(ctx, s.store, grpckit.Namespace(ctx), req.GetThreadId())
	if err != nil {
		return nil, away(err)
	}
	return &executorv1.ExportThreadResponse{Value: graphpb.Payload(value)}, nil
}

// ImportThread implements the service.
func (s *ThreadServer) ImportThread(ctx context.Context, req *executorv1.ImportThreadRequest) (*executorv1.Thread, error) {
	leave, err := s.admission.Enter(ctx, grpckit.Namespace(ctx), valueCost(req.GetValue()))
	if err != nil {
		return nil, err
	}
	defer leave()
	once, err := request(req.GetRequestId(), req)
	if err != nil {
		return nil, err
	}
	m := req.GetThread()
	c := workgraph.ThreadCreate{Lifetime: thread.Lifetime(m.GetLifetime()), Agent: m.GetAgent(), Key: m.GetKey(), Title: m.GetTitle(), UserID: m.GetUserId(), ChatID: m.GetChatId()}
	if c.Lifetime == workgraph.ThreadOfRun {
		return nil, errs.New(errs.InvalidArgument, thread.ReasonInvalid, "only a run makes a thread that ends with it").
			Violate("thread.lifetime", thread.ReasonInvalid, "not a lifetime for callers").Hint("choose EPHEMERAL, or CONVERSATION and delete it")
	}
	appends, agents, err := fromValue(req.GetValue(), "value", c)
	if err != nil {
		return nil, err
	}
	made, err := s.store.ImportThreads(ctx, thread.Import{
		Namespace: grpckit.Namespace(ctx), Threads: appends, Room: s.bounds.Room, Refused: refuseAny(ctx, agents, s.refusesAgent),
		Request: thread.Request{Method: "ImportThread", ID: once.ID, BodyHash: once.BodyHash},
	})
	return threadAnswer(made, err)
}

// fromValue reads a thread that is passed as a value. The appends make it as create says. agents are
// all that take turns on it.
func fromValue(p *graphv1.Payload, field string, create workgraph.ThreadCreate) (appends []thread.Append, agents []string, err error) {
	if err := cmp.Or(thread.CheckKey(create.Key), thread.CheckCreate(&create)); err != nil {
		return nil, nil, err
	}
	value, err := raw(field, p)
	if err != nil {
		return nil, nil, err
	}
	v, err := threadvalue.Read(field, value)
	if err != nil {
		return nil, nil, err
	}
	appends, err = v.Make(create, dbkit.Now())
	for i := range appends {
		if a := appends[i].Create.Agent; a != "" && !slices.Contains(agents, a) {
			agents = append(agents, a)
		}
	}
	return appends, agents, err
}

// refuseAny is the error of the first agent that takes no turns.
func refuseAny(ctx context.Context, agents []string, refuses func(context.Context, string) error) error {
	for _, a := range agents {
		if err := refuses(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// valueThread reads the thread that a run is started with as a value. c is what the request says of it,
// or nil.
func (s *Server) valueThread(ctx context.Context, out *command.StartRequest, req *executorv1.StartRunRequest) error {
	if req.GetThreadId() != "" {
		return errs.New(errs.InvalidArgument, thread.ReasonInvalid, "thread_id and thread_value are both given: thread_id names a thread that is there").
			Violate("thread_value", thread.ReasonInvalid, "goes without thread_id").Hint("give one of them")
	}
	c := workgraph.ThreadCreate{UserID: req.GetUserId(), ChatID: req.GetChatId()}
	if m := req.GetThread(); m != nil {
		c.Lifetime, c.Agent, c.Key, c.Title = thread.Lifetime(m.GetLifetime()), m.GetAgent(), m.GetKey(), m.GetTitle()
	}
	if c.Lifetime == 0 && c.Key == "" {
		c.Lifetime = workgraph.ThreadEphemeral
	}
	appends, agents, err := fromValue(req.GetThreadValue(), "thread_value", c)
	if err != nil {
		return err
	}
	takesTurns := &ThreadServer{unknown: s.engine.Programs().UnknownActor, workflows: s}
	out.Imported = appends
	return cmp.Or(refuseAny(ctx, agents, takesTurns.refusesAgent), ownUser(req))
}
