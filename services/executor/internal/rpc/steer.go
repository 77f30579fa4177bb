package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// repeatable is the request id of a request with the hash of the rest of it.
func repeatable(req interface {
	proto.Message
	GetRequestId() string
}) (journal.Request, error) {
	if req.GetRequestId() == "" {
		return journal.Request{}, nil
	}
	body := proto.Clone(req)
	m := body.ProtoReflect()
	m.Clear(m.Descriptor().Fields().ByName(protoreflect.Name("request_id")))
	if wait := m.Descriptor().Fields().ByName(protoreflect.Name("wait")); wait != nil {
		m.Clear(wait) // a repetition may wait longer
	}
	return request(req.GetRequestId(), body)
}

// answered looks a request up before anything else. It returns the request with the hash of the rest of it,
// and the run that it came to before, if it did.
func (s *Server) answered(ctx context.Context, method string, req interface {
	proto.Message
	GetRequestId() string
}) (journal.Request, *executorv1.Run, error) {
	once, err := repeatable(req)
	if err != nil {
		return once, nil, err
	}
	once.Method = method
	id, err := s.engine.Answered(ctx, grpckit.Namespace(ctx), once)
	if err != nil || id == "" {
		return once, nil, err
	}
	run, err := s.run(ctx, id)
	return once, run, err
}

// raw is the JSON of one payload of a request.
func raw(field string, p *graphv1.Payload) ([]byte, error) {
	b, err := graphpb.Raw(field, p)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		return nil, inputFaults(faults)
	}
	return b, err
}

// PauseRun implements the service.
func (s *Server) PauseRun(ctx context.Context, req *executorv1.PauseRunRequest) (*executorv1.Run, error) {
	revision, err := parseEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	err = s.engine.Pause(ctx, command.PauseRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Reason: req.GetReason(), Revision: revision, Request: once})
	if err != nil {
		return nil, err
	}
	return s.run(ctx, req.GetRunId())
}

// StopRun implements the service.
func (s *Server) StopRun(ctx context.Context, req *executorv1.StopRunRequest) (*executorv1.Run, error) {
	revision, err := parseEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	err = s.engine.Stop(ctx, command.StopRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Reason: req.GetReason(), Revision: revision, Request: once})
	if err != nil {
		return nil, err
	}
	return s.run(ctx, req.GetRunId())
}

// SignalRun implements the service.
func (s *Server) SignalRun(ctx context.Context, req *executorv1.SignalRunRequest) (*executorv1.Run, error) {
	payload, err := raw("payload", req.GetPayload())
	if err != nil {
		return nil, err
	}
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	row, err := s.engine.Signal(ctx, command.SignalRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Signal: command.Signal{Name: req.GetName(), Payload: payload}, Request: once})
	if err != nil {
		return nil, err
	}
	return s.runMessage(ctx, row, true)
}

// SignalWithStart implements the service.
func (s *Server) SignalWithStart(ctx context.Context, req *executorv1.SignalWithStartRequest) (*executorv1.Run, error) {
	if req.GetStart().GetWait() != nil {
		return nil, errs.New(errs.InvalidArgument, "WAIT_INVALID", "start.wait is not for SignalWithStart").
			Violate("start.wait", "WAIT_INVALID", "must be empty").Hint("wait for the run with GetRun")
	}
	var once journal.Request
	if id := req.GetStart().GetRequestId(); id != "" {
		body := proto.CloneOf(req)
		body.Start.RequestId = ""
		var err error
		if once, err = request(id, body); err != nil {
			return nil, err
		}
	}
	switch id, whole, err := s.engine.AnsweredSignal(ctx, grpckit.Namespace(ctx), once); {
	case err != nil:
		return nil, err
	case whole:
		return s.run(ctx, id)
	}
	payload, err := raw("payload", req.GetPayload())
	if err != nil {
		return nil, err
	}
	version, err := s.named(ctx, req.GetStart(), "")
	if err != nil {
		return s.signalExisting(ctx, req, once, payload, err)
	}
	leave, err := s.enterStart(ctx, req, req.GetStart())
	if err != nil {
		return nil, err
	}
	defer leave()
	start, err := s.startRequest(ctx, req.GetStart())
	if err != nil {
		return nil, err
	}
	req.Start = nil // as in start
	start.Request, start.Lineage.Workflow = once, version
	id, _, err := s.engine.SignalWithStart(ctx, start, command.Signal{Name: req.GetName(), Payload: payload})
	if err != nil {
		return nil, graphFaults(err)
	}
	return s.run(ctx, id)
}

// signalExisting signals the open run that a request means whose workflow cannot be had.
func (s *Server) signalExisting(ctx context.Context, req *executorv1.SignalWithStartRequest, once journal.Request, payload json.RawMessage, cause error) (*executorv1.Run, error) {
	if !nameless(req.GetStart(), cause) {
		return nil, cause
	}
	id, err := s.engine.SignalOpen(ctx, grpckit.Namespace(ctx), req.GetStart().GetBusinessKey(), once, command.Signal{Name: req.GetName(), Payload: payload})
	switch {
	case err != nil:
		return nil, err
	case id == "":
		return nil, cause
	}
	return s.run(ctx, id)
}

// SendMessage implements the service.
func (s *Server) SendMessage(ctx context.Context, req *executorv1.SendMessageRequest) (*executorv1.Run, error) {
	mayRun, token := access.Of(ctx).Has(access.Run), req.GetAttemptToken()
	if !mayRun && token == "" {
		return nil, errs.New(errs.PermissionDenied, access.ReasonScope, "without the scope run, a message needs the attempt_token of the call that sends it").
			Set("scope", string(access.Run)).Hint("send in the name of the call's node, with the token that the call was given")
	}
	message, err := raw("message", req.GetMessage())
	if err != nil {
		return nil, err
	}
	if message == nil {
		message = []byte("null")
	}
	req.AttemptToken = "" // another attempt of a call repeats its request with a token of its own
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	row, err := s.engine.Send(ctx, command.MessageRequest{Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), From: req.GetFrom(),
		Node: req.GetNodeId(), Token: token, Message: message, Request: once})
	if err != nil {
		return nil, err
	}
	if !mayRun {
		return &executorv1.Run{Id: row.ID}, nil
	}
	return s.runMessage(ctx, row, true)
}

// ended is the reconciled outcome of a call.
func ended(field string, done *executorv1.AttemptPerformed, failed *executorv1.AttemptFailed) (*workgraph.Outcome, *workgraph.Error, error) {
	if failed != nil {
		return nil, &workgraph.Error{Type: workgraph.Permanent, Reason: failed.GetReason(), Message: cmp.Or(failed.GetMessage(), "whoever did the work says that it failed")}, nil
	}
	values, err := graphpb.RawList(field+".values", done.GetValues())
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		return nil, nil, inputFaults(faults)
	}
	return &workgraph.Outcome{Values: values}, nil, err
}

// CompleteAttempt implements the service.
func (s *Server) CompleteAttempt(ctx context.Context, req *executorv1.CompleteAttemptRequest) (*executorv1.CompleteAttemptResponse, error) {
	end := command.CompleteRequest{Namespace: grpckit.Namespace(ctx), Token: req.GetAttemptToken(), By: req.GetBy()}
	var err error
	if end.Outcome, end.Err, err = ended("completed", req.GetCompleted(), req.GetFailed()); err != nil {
		return nil, err
	}
	id, err := s.engine.CompleteAttempt(ctx, end)
	if err != nil {
		return nil, err
	}
	return &executorv1.CompleteAttemptResponse{RunId: id}, nil
}

// ListInterrupts implements the service.
func (s *Server) ListInterrupts(ctx context.Context, req *executorv1.ListInterruptsRequest) (*executorv1.ListInterruptsResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := listedPage(ctx, "ListInterrupts", req)
	if err != nil {
		return nil, err
	}
	f := journal.InterruptFilter{RunID: req.GetRunId()}
	for _, st := range req.GetStates() {
		if st < executorv1.InterruptState_INTERRUPT_STATE_OPEN || st > executorv1.InterruptState_INTERRUPT_STATE_CANCELED {
			return nil, errs.New(errs.InvalidArgument, "STATE_UNKNOWN", "states: %d is not a state to filter by", st).
				Violate("states", "STATE_UNKNOWN", "not a state of an interrupt")
		}
		f.States = append(f.States, journal.InterruptState(st))
	}
	if len(f.States) == 0 {
		f.States = []journal.InterruptState{journal.InterruptOpen}
	}
	if f.RunID != "" {
		if _, err := s.reader.Head(ctx, ns, f.RunID); err != nil {
			return nil, err
		}
	}
	rows, err := s.reader.ListInterrupts(ctx, ns, f, pg.After, pg.Limit+1)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(pg, rows, func(i journal.Interrupt) page.Cursor { return page.Cursor{CreateTime: i.CreateTime, ID: i.ID} })
	out := &executorv1.ListInterruptsResponse{NextPageToken: next}
	for i := range rows {
		out.Interrupts = append(out.Interrupts, interruptMessage(&rows[i]))
	}
	return out, nil
}

// GetInterrupt implements the service.
func (s *Server) GetInterrupt(ctx context.Context, req *executorv1.GetInterruptRequest) (*executorv1.Interrupt, error) {
	row, err := s.reader.GetInterrupt(ctx, grpckit.Namespace(ctx), req.GetInterruptId())
	if err != nil {
		return nil, err
	}
	return interruptMessage(&row), nil
}

// AnswerInterrupt implements the service.
func (s *Server) AnswerInterrupt(ctx context.Context, req *executorv1.AnswerInterruptRequest) (*executorv1.Interrupt, error) {
	answer, err := raw("answer", req.GetAnswer())
	if err != nil {
		return nil, err
	}
	a := command.AnswerRequest{
		Namespace: grpckit.Namespace(ctx), InterruptID: req.GetInterruptId(), Answer: answer, By: req.GetBy(), ApproveHash: req.GetApproveHash(), Instead: req.GetInstead()}
	switch req.GetDecision() {
	case executorv1.Decision_DECISION_APPROVED:
		a.Decision = workgraph.Approved
	case executorv1.Decision_DECISION_REJECTED:
		a.Decision = workgraph.Rejected
	case executorv1.Decision_DECISION_UNSPECIFIED:
	default:
		return nil, errs.New(errs.InvalidArgument, command.ReasonAnswerInvalid, "decision %d is not known", req.GetDecision()).
			Violate("decision", command.ReasonAnswerInvalid, "not a decision")
	}
	row, err := s.engine.Answer(ctx, a)
	if err != nil {
		return nil, err
	}
	return interruptMessage(&row), nil
}

func interruptMessage(q *journal.Interrupt) *executorv1.Interrupt {
	m := &executorv1.Interrupt{
		Id: q.ID, RunId: q.RunID, RootRunId: q.RootID, Visit: &executorv1.VisitRef{NodeId: q.NodeID, Visit: q.Visit, Item: q.Item},
		State: executorv1.InterruptState(q.State), Prompt: graphpb.Payload(q.Prompt), Schema: graphpb.Payload(q.Schema), Answer: graphpb.Payload(q.Answer),
		By: q.By, Principal: q.Principal, Decision: decision(q.Decision), Approve: graphpb.Payload(q.Approve), OfAgent: q.OfAgent,
		CreateTime: stamp(q.CreateTime), ExpireTime: stamp(q.ExpireTime), CloseTime: stamp(q.CloseTime),
	}
	if len(q.Approve) > 0 {
		m.ApproveHash = workgraph.ApproveHash(q.Approve, q.Binds)
	}
	return m
}

func decision(word string) executorv1.Decision {
	switch word {
	case workgraph.Approved:
		return executorv1.Decision_DECISION_APPROVED
	case workgraph.Rejected:
		return executorv1.Decision_DECISION_REJECTED
	}
	return executorv1.Decision_DECISION_UNSPECIFIED
}
