package rpc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// turnNode is the one node of a run that a turn starts.
const turnNode = "agent"

// Conversing starts and answers runs of turns at a server of runs.
type Conversing struct{ *Server }

var _ thread.Runs = Conversing{}

// Start implements thread.Runs.
func (s Conversing) Start(ctx context.Context, th thread.Thread, t thread.Turn) error {
	ctx = grpckit.WithNamespace(ctx, th.Namespace)
	req, err := s.turn(ctx, th, t)
	if err != nil {
		return err
	}
	_, _, err = s.engine.Start(ctx, req)
	if errs.ReasonOf(err) == journal.ReasonRunExists {
		return nil
	}
	return graphFaults(err)
}

// turn is the start of a turn: a call of the agent, or a run of the workflow, that takes it.
func (s Conversing) turn(ctx context.Context, th thread.Thread, t thread.Turn) (command.StartRequest, error) {
	if ref, ok := strings.CutPrefix(th.Agent, workflowAgent); ok {
		return s.workflowTurn(ctx, th, t, ref)
	}
	if id, ok := strings.CutPrefix(th.Agent, botAgent); ok && s.chats != nil {
		return s.botTurn(ctx, th, t, id)
	}
	id, err := json.Marshal(th.ID)
	if err != nil {
		return command.StartRequest{}, fmt.Errorf("encode thread id: %w", err)
	}
	return command.StartRequest{
		Namespace: th.Namespace, ThreadID: th.ID, Turn: t.Number, Principal: t.Principal, ID: t.RunID, UserID: th.UserID, ChatID: th.ChatID,
		Graph: &workgraph.Graph{Name: "turn of " + th.Agent, Nodes: []workgraph.Node{{ID: turnNode, Actor: th.Agent}}},
		Input: workgraph.Input{Named: map[string]json.RawMessage{"user_input": t.Message, "thread_id": id}},
	}, nil
}

// Question implements thread.Runs. A message answers what an agent's own loop asks. Other questions
// need the right to answer interrupts. A message is no decision, so approvals are left to
// AnswerInterrupt.
func (s Conversing) Question(ctx context.Context, t thread.Turn, runID string) (string, error) {
	return s.reader.OldestQuestion(ctx, t.Namespace, runID, !t.AnswersAny)
}

// Answer implements thread.Runs.
func (s Conversing) Answer(ctx context.Context, t thread.Turn, interruptID string) error {
	q, err := s.reader.GetInterrupt(ctx, t.Namespace, interruptID)
	if err != nil {
		return err
	}
	answer := answerOf(t, &q)
	if q.State == journal.InterruptAnswered && bytes.Equal(q.Answer, answer) {
		return nil
	}
	_, err = s.engine.Answer(ctx, command.AnswerRequest{Namespace: t.Namespace, InterruptID: interruptID, Answer: answer, By: t.Principal})
	if errs.Is(err, errs.InvalidArgument) {
		s.misfit(ctx, t, &q)
	}
	return err
}

// ThreadServer answers epigraph.executor.v1.ThreadService.
type ThreadServer struct {
	executorv1.UnimplementedThreadServiceServer
	store     thread.Store
	conductor *thread.Conductor
	bounds    thread.Bounds
	unknown   UnknownActor
	workflows Conversations
	admission *admission.Control
}

// Conversations are chats with workflows. They are safe for concurrent use.
type Conversations interface {
	// ChatOf reports why no chat starts a workflow.
	ChatOf(ctx context.Context, namespace, ref string) error
	// Hear queues a message for a thread whose turns a workflow takes, and gives it to the workflow if that
	// can take it now. A repeated request returns the turn that it made.
	Hear(ctx context.Context, th thread.Thread, t thread.Turn, once thread.Request, b thread.Bounds) (thread.Turn, error)
}

// methodAppend names the requests of AppendMessage.
const methodAppend = "AppendMessage"

// NewThreadServer returns a server of the threads in a store, within bounds. Threads as values are let
// in by c. Without workflows none takes turns.
func NewThreadServer(store thread.Store, conductor *thread.Conductor, bounds thread.Bounds, unknown UnknownActor, workflows Conversations, c *admission.Control) *ThreadServer {
	return &ThreadServer{store: store, conductor: conductor, bounds: bounds, unknown: unknown, workflows: workflows, admission: c}
}

// refuses returns the error of an agent that is no actor. One that cannot be looked up is not refused.
func (unknown UnknownActor) refuses(ctx context.Context, agent string) error {
	if agent == "" {
		return nil
	}
	if no, near, err := unknown(ctx, grpckit.Namespace(ctx), agent); err == nil && no {
		return thread.AgentUnknown(agent, near)
	}
	return nil
}

// CreateThread implements the service.
func (s *ThreadServer) CreateThread(ctx context.Context, req *executorv1.CreateThreadRequest) (*executorv1.Thread, error) {
	return s.create(ctx, "CreateThread", req, req.GetThread(), "", 0)
}

// ForkThread implements the service.
func (s *ThreadServer) ForkThread(ctx context.Context, req *executorv1.ForkThreadRequest) (*executorv1.Thread, error) {
	parent, err := s.store.Thread(ctx, grpckit.Namespace(ctx), req.GetThreadId())
	if err != nil {
		return nil, away(err)
	}
	m := proto.CloneOf(req.GetThread())
	if m == nil {
		m = &executorv1.Thread{}
	}
	m.Agent = cmp.Or(m.GetAgent(), parent.Agent)
	m.UserId, m.ChatId = cmp.Or(m.GetUserId(), parent.UserID), cmp.Or(m.GetChatId(), parent.ChatID)
	return s.create(ctx, "ForkThread", req, m, parent.ID, req.GetSequence())
}

type identified interface {
	proto.Message
	GetRequestId() string
}

func (s *ThreadServer) create(ctx context.Context, method string, req identified, m *executorv1.Thread, parent string, seq int64) (*executorv1.Thread, error) {
	once, err := request(req.GetRequestId(), req)
	if err != nil {
		return nil, err
	}
	c := workgraph.ThreadCreate{Parent: parent, ParentSeq: seq, Lifetime: thread.Lifetime(m.GetLifetime()), Agent: m.GetAgent(), Key: m.GetKey(), Title: m.GetTitle(), UserID: m.GetUserId(), ChatID: m.GetChatId()}
	if c.Lifetime == workgraph.ThreadOfRun {
		return nil, errs.New(errs.InvalidArgument, thread.ReasonInvalid, "only a run makes a thread that ends with it").
			Violate("thread.lifetime", thread.ReasonInvalid, "not a lifetime for callers").Hint("choose EPHEMERAL, or CONVERSATION and delete it")
	}
	if err := cmp.Or(thread.CheckKey(c.Key), thread.CheckCreate(&c)); err != nil {
		return nil, err
	}
	made, err := s.store.CreateThread(ctx, thread.Create{
		Thread: thread.Thread{ID: ids.New(thread.IDPrefix), Namespace: grpckit.Namespace(ctx), Key: c.Key, Agent: c.Agent, Title: c.Title, UserID: c.UserID, ChatID: c.ChatID,
			Lifetime: cmp.Or(c.Lifetime, workgraph.ThreadConversation), ParentID: parent, ParentSeq: seq, CreateTime: dbkit.Now()},
		Request: thread.Request{Method: method, ID: once.ID, BodyHash: once.BodyHash}, Room: s.bounds.Room, Refused: s.refusesAgent(ctx, c.Agent),
	})
	return threadAnswer(made, err)
}

// newThread reads the thread that a run is started with. A conversation without a key is that of the
// user, the chat and the graph.
func newThread(ctx context.Context, out *command.StartRequest, req *executorv1.StartRunRequest, unknown UnknownActor) error {
	m := req.GetThread()
	switch {
	case m == nil || req.GetThreadValue() != nil:
		return nil
	case req.GetThreadId() != "":
		return errs.New(errs.InvalidArgument, thread.ReasonInvalid, "thread_id and thread are both given: thread_id names a thread that is there").
			Violate("thread", thread.ReasonInvalid, "goes without thread_id").Hint("give one of them")
	}
	if err := ownUser(req); err != nil {
		return err
	}
	c := &workgraph.ThreadCreate{Lifetime: thread.Lifetime(m.GetLifetime()), Agent: m.GetAgent(), Key: m.GetKey(), Title: m.GetTitle(), UserID: req.GetUserId(), ChatID: req.GetChatId()}
	if c.Key == "" && (c.Lifetime == 0 || c.Lifetime == workgraph.ThreadConversation) {
		c.Key = thread.KeyOf(req.GetUserId(), req.GetChatId(), req.GetGraph().GetName())
	}
	if err := cmp.Or(thread.CheckKey(m.GetKey()), thread.CheckCreate(c), unknown.refuses(ctx, c.Agent)); err != nil {
		return err
	}
	out.NewThread = c
	return nil
}

// ownUser reports that the thread of a run is stated to be of another user or chat than the run.
func ownUser(req *executorv1.StartRunRequest) error {
	m := req.GetThread()
	for _, c := range []struct{ field, thread, run string }{{"user_id", m.GetUserId(), req.GetUserId()}, {"chat_id", m.GetChatId(), req.GetChatId()}} {
		if c.thread != "" && c.thread != c.run {
			return errs.New(errs.InvalidArgument, thread.ReasonInvalid, "the thread of a run has the %s of the run, which is %q", c.field, c.run).
				Violate("thread."+c.field, thread.ReasonInvalid, "is not that of the run").Hint("leave thread." + c.field + " out")
		}
	}
	return nil
}

func threadAnswer(t thread.Thread, err error) (*executorv1.Thread, error) {
	if err != nil {
		return nil, away(err)
	}
	return threadMessage(&t), nil
}

func threadMessage(t *thread.Thread) *executorv1.Thread {
	return &executorv1.Thread{
		Id: t.ID, Key: t.Key, Agent: t.Agent, Title: t.Title, UserId: t.UserID, ChatId: t.ChatID, Lifetime: executorv1.ThreadLifetime(t.Lifetime), ParentId: t.ParentID, ParentSequence: t.ParentSeq,
		RunId: t.Holder, LastSequence: t.Last, CreateTime: stamp(t.CreateTime), UseTime: stamp(t.UseTime),
	}
}

// GetThread implements the service.
func (s *ThreadServer) GetThread(ctx context.Context, req *executorv1.GetThreadRequest) (*executorv1.Thread, error) {
	ns := grpckit.Namespace(ctx)
	switch id, key := req.GetThreadId(), req.GetKey(); {
	case id == "-" && key != "":
		return threadAnswer(s.store.ThreadByKey(ctx, ns, key))
	case key != "":
		return nil, errs.New(errs.InvalidArgument, thread.ReasonInvalid, "give the id of the thread or its key").
			Violate("key", thread.ReasonInvalid, `thread_id must be "-" when a key is given`)
	default:
		return threadAnswer(s.store.Thread(ctx, ns, id))
	}
}

// ListThreads implements the service.
func (s *ThreadServer) ListThreads(ctx context.Context, req *executorv1.ListThreadsRequest) (*executorv1.ListThreadsResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := listedPage(ctx, "ListThreads", req)
	if err != nil {
		return nil, err
	}
	f := thread.Filter{Agent: req.GetAgent(), ParentID: req.GetParentId(), KeyPrefix: req.GetKeyPrefix(), Lifetime: thread.Lifetime(req.GetLifetime())}
	rows, err := s.store.ListThreads(ctx, ns, f, pg.After, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(t thread.Thread) page.Cursor { return page.Cursor{CreateTime: t.CreateTime, ID: t.ID} })
	out := &executorv1.ListThreadsResponse{NextPageToken: next}
	for i := range rows {
		out.Threads = append(out.Threads, threadMessage(&rows[i]))
	}
	return out, nil
}

// DeleteThread implements the service.
func (s *ThreadServer) DeleteThread(ctx context.Context, req *executorv1.DeleteThreadRequest) (*emptypb.Empty, error) {
	if err := s.store.DeleteThread(ctx, grpckit.Namespace(ctx), req.GetThreadId()); err != nil {
		return nil, away(err)
	}
	return &emptypb.Empty{}, nil
}

// paged is a request for a page of what belongs to a thread.
type paged interface {
	GetThreadId() string
	GetPageSize() int32
	GetPageToken() string
}

// errPosition is the error of a page token that is none of ours after all.
var errPosition = errs.New(errs.InvalidArgument, page.ReasonInvalid, "page_token is not one that was given out")

// pageOf checks a request for a page. at is the sequence or number after which the page begins; 0 is
// the start.
func pageOf(ctx context.Context, method string, req paged) (pg page.Page, at int64, err error) {
	pg, err = page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: method, Parent: grpckit.Namespace(ctx) + "/" + req.GetThreadId()})
	if err == nil && pg.After.ID != "" {
		if at, err = strconv.ParseInt(pg.After.ID, 10, 64); err != nil || at < 0 {
			err = errPosition
		}
	}
	return pg, at, err
}

// items reads a page of items of one kind, newest first. Items go from the store to the answer and are
// not kept in memory.
func (s *ThreadServer) items(ctx context.Context, method string, kind thread.Kind, req paged, full bool) (out []*executorv1.ThreadItem, next string, err error) {
	pg, before, err := pageOf(ctx, method, req)
	if err != nil {
		return nil, "", err
	}
	ns := grpckit.Namespace(ctx)
	segments, err := s.store.Lineage(ctx, ns, req.GetThreadId())
	if err != nil {
		return nil, "", away(err)
	}
	var rows []thread.Item
	for _, g := range segments {
		if before > 0 {
			g.Last = min(g.Last, before-1)
		}
		if g.Last < g.First || len(rows) > pg.Limit {
			continue
		}
		more, err := s.store.SegmentItems(ctx, ns, g, thread.Selection{Kinds: []thread.Kind{kind}, Limit: pg.Limit + 1 - len(rows), Body: full, Origin: true})
		if err != nil {
			return nil, "", away(err)
		}
		rows = append(rows, more...)
	}
	rows, next = page.Cut(pg, rows, func(it thread.Item) page.Cursor { return page.Cursor{ID: strconv.FormatInt(it.Seq, 10)} })
	for i := range rows {
		it := &rows[i]
		m := &executorv1.ThreadItem{Sequence: it.Seq, Kind: executorv1.ThreadItemKind(it.Kind), Time: stamp(it.Time), RunId: it.RunID, NodeId: it.NodeID,
			Visit: it.Visit, Brief: graphpb.Payload(it.Brief), Body: graphpb.Payload(it.Body)}
		out = append(out, m)
	}
	return out, next, nil
}

// ListMessages implements the service.
func (s *ThreadServer) ListMessages(ctx context.Context, req *executorv1.ListMessagesRequest) (*executorv1.ListMessagesResponse, error) {
	out, next, err := s.items(ctx, "ListMessages", workgraph.ThreadMessage, req, true)
	return &executorv1.ListMessagesResponse{Messages: out, NextPageToken: next}, err
}

// ListStates implements the service.
func (s *ThreadServer) ListStates(ctx context.Context, req *executorv1.ListStatesRequest) (*executorv1.ListStatesResponse, error) {
	out, next, err := s.items(ctx, "ListStates", workgraph.ThreadState, req, req.GetFull())
	return &executorv1.ListStatesResponse{States: out, NextPageToken: next}, err
}

// ListLearnings implements the service.
func (s *ThreadServer) ListLearnings(ctx context.Context, req *executorv1.ListLearningsRequest) (*executorv1.ListLearningsResponse, error) {
	out, next, err := s.items(ctx, "ListLearnings", workgraph.ThreadLearning, req, true)
	return &executorv1.ListLearningsResponse{Learnings: out, NextPageToken: next}, err
}

// ListSummaries implements the service.
func (s *ThreadServer) ListSummaries(ctx context.Context, req *executorv1.ListSummariesRequest) (*executorv1.ListSummariesResponse, error) {
	out, next, err := s.items(ctx, "ListSummaries", workgraph.ThreadSummary, req, true)
	return &executorv1.ListSummariesResponse{Summaries: out, NextPageToken: next}, err
}

// AppendMessage implements the service.
func (s *ThreadServer) AppendMessage(ctx context.Context, req *executorv1.AppendMessageRequest) (*executorv1.Turn, error) {
	content, err := raw("content", req.GetContent())
	if err != nil {
		return nil, err
	}
	if n := len(content); n > thread.MaxBody {
		return nil, errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "content has %d bytes, the limit is %d", n, thread.MaxBody).
			Violate("content", journal.ReasonPayloadTooLarge, "too large").Hint("keep large values outside and send a reference")
	}
	if fault := workgraph.ValueFault(content); fault != "" {
		return nil, errs.New(errs.InvalidArgument, thread.ReasonInvalid, "content %s", fault).Violate("content", thread.ReasonInvalid, fault)
	}
	once, err := request(req.GetRequestId(), req)
	if err != nil {
		return nil, err
	}
	ns := grpckit.Namespace(ctx)
	var message bytes.Buffer
	if err := json.Compact(&message, content); err != nil {
		return nil, fmt.Errorf("compact message: %w", err)
	}
	t := thread.Turn{Namespace: ns, Thread: req.GetThreadId(), RunID: ids.New(command.IDPrefix), Message: message.Bytes(),
		Principal: access.Of(ctx).String(), AnswersAny: access.Of(ctx).Has(access.Approve), CreateTime: dbkit.Now()}
	th, err := s.store.Thread(ctx, ns, t.Thread)
	if err != nil {
		return nil, away(err)
	}
	bounds := s.bounds
	bounds.Refused = s.refusesAgent(ctx, th.Agent)
	first := thread.Request{Method: methodAppend, ID: once.ID, BodyHash: once.BodyHash}
	if strings.HasPrefix(th.Agent, workflowAgent) && s.workflows != nil {
		if t, err = s.workflows.Hear(ctx, th, t, first, bounds); err != nil {
			return nil, away(err)
		}
		return turnMessage(&t), nil
	}
	t, err = s.store.QueueTurn(ctx, t, first, bounds)
	if err != nil {
		return nil, away(err)
	}
	// The turn is durable: what cannot be done now is done later, and an error would have the message
	// sent twice.
	s.conductor.Try(ctx, ns, t.Thread)
	if now, err := s.store.Turn(ctx, ns, t.Thread, t.Number); err == nil {
		t = now
	}
	return turnMessage(&t), nil
}

// GetTurn implements the service.
func (s *ThreadServer) GetTurn(ctx context.Context, req *executorv1.GetTurnRequest) (*executorv1.Turn, error) {
	return turnAnswer(s.store.Turn(ctx, grpckit.Namespace(ctx), req.GetThreadId(), req.GetNumber()))
}

// ListTurns implements the service.
func (s *ThreadServer) ListTurns(ctx context.Context, req *executorv1.ListTurnsRequest) (*executorv1.ListTurnsResponse, error) {
	pg, after, err := pageOf(ctx, "ListTurns", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListTurns(ctx, grpckit.Namespace(ctx), req.GetThreadId(), after, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(t thread.Turn) page.Cursor { return page.Cursor{ID: strconv.FormatInt(t.Number, 10)} })
	out := &executorv1.ListTurnsResponse{NextPageToken: next}
	for i := range rows {
		out.Turns = append(out.Turns, turnMessage(&rows[i]))
	}
	return out, nil
}

func turnAnswer(t thread.Turn, err error) (*executorv1.Turn, error) {
	if err != nil {
		return nil, away(err)
	}
	return turnMessage(&t), nil
}

func turnMessage(t *thread.Turn) *executorv1.Turn {
	m := &executorv1.Turn{
		ThreadId: t.Thread, Number: t.Number, State: executorv1.TurnState(t.State), Error: t.Error, Content: graphpb.Payload(t.Message),
		CreateTime: stamp(t.CreateTime), StartTime: stamp(t.StartTime), Principal: t.Principal,
	}
	switch t.State {
	case thread.TurnStarted:
		m.RunId = t.RunID
	case thread.TurnAnswered:
		m.InterruptId, m.RunId = t.InterruptID, t.AskedBy
	case thread.TurnQueued, thread.TurnFailed:
	}
	return m
}
