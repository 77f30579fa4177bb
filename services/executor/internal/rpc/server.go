// Package rpc owns the executor's wire form: it turns requests into calls of the engine and the
// journal, and what they return into messages. It also speaks to the registry for the engine. It must
// not decide anything about runs.
package rpc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonEtagInvalid is the reason of an etag that no run ever had.
const ReasonEtagInvalid = "ETAG_INVALID"

// Server answers epigraph.executor.v1.ExecutorService.
type Server struct {
	executorv1.UnimplementedExecutorServiceServer
	engine *engine.Engine
	query  *query.Query
	reader journal.Journal
	actors func() []actor.Spec
	more   More
	// priced says that a registry prices usage.
	priced    bool
	admission *admission.Control
	// examined are the actors of every namespace that look at their arguments before a run.
	examined map[string]bool
	// catalog finds workflows; nil if there is none.
	catalog *Catalog
	// chats is what turns of workflows need; nil if there are none.
	chats *Chats
	// dial reaches other executors; nil if there is no way.
	dial func(addr string) (*grpc.ClientConn, error)
}

// More lists the actors that a namespace has besides those of all.
type More func(ctx context.Context, namespace string) ([]actor.Spec, error)

// NewServer returns a server; actors returns those of every namespace, and costly requests are let in
// by c. Workflows are found in catalog, which may be nil.
func NewServer(e *engine.Engine, j journal.Journal, actors func() []actor.Spec, more More, priced bool, c *admission.Control, catalog *Catalog) *Server {
	examined := map[string]bool{}
	for _, a := range actors() { // those that come later do not look at their arguments
		examined[a.Name] = a.Examine != nil
	}
	return &Server{engine: e, query: query.New(e), reader: j, actors: actors, more: more, priced: priced, admission: c, examined: examined, catalog: catalog}
}

// StartRun implements the service.
func (s *Server) StartRun(ctx context.Context, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return s.startAndWait(ctx, req, req.GetWait().AsDuration())
}

func (s *Server) startRun(ctx context.Context, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
	once, before, err := s.answered(ctx, command.MethodStart, req)
	if err != nil {
		return nil, err
	}
	if before != nil {
		grpckit.MarkRepeated(ctx)
		return before, nil
	}
	started, err := s.start(ctx, req, once)
	switch {
	case err != nil:
		return nil, err
	case started.Run != nil:
		return s.rowMessage(*started.Run, started.Interrupts, true)
	}
	if !started.Created {
		grpckit.MarkRepeated(ctx)
	}
	return s.run(ctx, started.ID)
}

func (s *Server) start(ctx context.Context, req *executorv1.StartRunRequest, once journal.Request) (command.Started, error) {
	return s.startFrom(ctx, req, once, nil)
}

// startFrom starts a run that follows from one that a trigger started, unless origin is nil.
func (s *Server) startFrom(ctx context.Context, req *executorv1.StartRunRequest, once journal.Request, origin *record.Origin) (command.Started, error) {
	version, err := s.named(ctx, req, "")
	if err != nil {
		return s.existing(ctx, req, once, err)
	}
	leave, err := s.enterStart(ctx, req, req)
	if err != nil {
		return command.Started{}, err
	}
	defer leave()
	start, err := s.startRequest(ctx, req)
	if err != nil {
		return command.Started{}, err
	}
	req.Graph = nil // while it waits for its turn it is in memory once, not twice
	start.Request, start.Lineage.Workflow, start.Lineage.Origin, start.CheckInputs = once, version, origin, true
	started, err := s.engine.StartRun(ctx, start)
	if err != nil {
		return command.Started{}, graphFaults(err)
	}
	return started, nil
}

// existing answers a start whose workflow cannot be had with the open run that it asks for, if there is one:
// that run needs the catalog no more.
func (s *Server) existing(ctx context.Context, req *executorv1.StartRunRequest, once journal.Request, cause error) (command.Started, error) {
	if !nameless(req, cause) || req.GetConflictPolicy() != executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING {
		return command.Started{}, cause
	}
	id, err := s.engine.Holder(ctx, grpckit.Namespace(ctx), req.GetBusinessKey())
	switch {
	case err != nil:
		return command.Started{}, err
	case id == "":
		return command.Started{}, cause
	case once.ID == "":
		return command.Started{ID: id}, nil
	}
	// The answer is kept with the request, so that a repetition starts nothing when the run has ended. The
	// graph never runs.
	started, err := s.engine.StartRun(ctx, command.StartRequest{
		Namespace: grpckit.Namespace(ctx), BusinessKey: req.GetBusinessKey(), Conflict: journal.ConflictOnlyExisting, Request: once,
		Graph: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "none", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"null"`)}}}},
	})
	if errs.ReasonOf(err) == journal.ReasonNoHolder { // it has ended meanwhile
		err = cause
	}
	return started, err
}

// enter waits for the turn of a request with these graphs. more is what it costs besides.
func (s *Server) enter(ctx context.Context, more int, req proto.Message, graphs ...*graphv1.Graph) (leave func(), err error) {
	return s.admission.Enter(ctx, grpckit.Namespace(ctx), more+graphpb.Cost(req, s.computes, graphs...))
}

// enterStart is enter for a request that holds a start.
func (s *Server) enterStart(ctx context.Context, req proto.Message, start *executorv1.StartRunRequest) (leave func(), err error) {
	return s.enter(ctx, valueCost(start.GetThreadValue()), req, start.GetGraph())
}

// computes reports whether the arguments of the actor hold expressions.
func (s *Server) computes(name string) bool { return s.examined[name] }

// standing is the assumed cost of looking at a run, whose size the request does not say: large enough
// to wait for a turn.
const standing = admission.PerNamespace / 4

func (s *Server) startRequest(ctx context.Context, req *executorv1.StartRunRequest) (command.StartRequest, error) {
	out := command.StartRequest{
		Namespace: grpckit.Namespace(ctx), TaskID: req.GetTaskId(), UserID: req.GetUserId(), ChatID: req.GetChatId(),
		BusinessKey: req.GetBusinessKey(), Labels: req.GetLabels(), Priority: int(req.GetPriority()), StartTime: instant(req.GetStartTime()),
		Budget: callpb.FromBudget(req.GetBudget()), Webhooks: webhooks(req.GetWebhooks()),
	}
	if err := newThread(ctx, &out, req, s.engine.Programs().UnknownActor); err != nil {
		return out, err
	}
	if req.GetThreadValue() != nil {
		if err := s.valueThread(ctx, &out, req); err != nil {
			return out, err
		}
	}
	if out.ThreadID = req.GetThreadId(); out.ThreadID != "" {
		if _, err := s.reader.Thread(ctx, out.Namespace, out.ThreadID); err != nil {
			return out, away(err)
		}
	}
	if t := req.GetTimeout(); t != nil {
		if err := t.CheckValid(); err != nil || t.AsDuration() <= 0 {
			return out, errs.New(errs.InvalidArgument, "TIMEOUT_INVALID", "timeout must be above 0").
				Violate("timeout", "TIMEOUT_INVALID", "not a time to wait").Hint("leave it out for a run without a deadline")
		}
		out.Timeout = t.AsDuration()
	}
	var faults workgraph.Faults
	collect := func(err error) error {
		more, ok := errors.AsType[workgraph.Faults](err)
		if !ok {
			return err
		}
		faults = append(faults, more...)
		return nil
	}
	var err, misread error
	out.Graph, out.Memo, misread = graph(ctx, req.GetGraph())
	if out.Input.Args, err = graphpb.RawList("args", req.GetArgs()); collect(err) != nil {
		return out, err
	}
	if out.Input.Named, err = graphpb.RawMap("named", req.GetNamed()); collect(err) != nil {
		return out, err
	}
	if misread != nil {
		return out, s.misread(ctx, out, misread)
	}
	if out.Context, err = graphpb.Raw("context", req.GetContext()); collect(err) != nil {
		return out, err
	}
	if out.Attachments, err = encodeAttachments(req.GetAttachments()); collect(err) != nil {
		return out, err
	}
	if len(faults) > 0 {
		return out, inputFaults(faults)
	}
	if err := metadataFits(req.GetMetadata()); err != nil {
		return out, err
	}
	if out.Metadata, err = encodeMetadata(req.GetMetadata()); err != nil {
		return out, err
	}
	switch req.GetConflictPolicy() {
	case executorv1.ConflictPolicy_CONFLICT_POLICY_UNSPECIFIED, executorv1.ConflictPolicy_CONFLICT_POLICY_FAIL:
		out.Conflict = journal.ConflictFail
	case executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING:
		out.Conflict = journal.ConflictReturnExisting
	case executorv1.ConflictPolicy_CONFLICT_POLICY_CANCEL_EXISTING:
		out.Conflict = journal.ConflictCancelExisting
	default:
		return out, errs.New(errs.InvalidArgument, "CONFLICT_POLICY_UNKNOWN", "conflict_policy %d is not known", req.GetConflictPolicy()).
			Violate("conflict_policy", "CONFLICT_POLICY_UNKNOWN", "not a policy")
	}
	return out, nil
}

// ValidateGraph implements the service.
func (s *Server) ValidateGraph(ctx context.Context, req *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
	leave, err := s.enter(ctx, 0, req, req.GetGraph())
	if err != nil {
		return nil, err
	}
	defer leave()
	g, err := graphpb.FromProto(req.GetGraph())
	req.Graph = nil // as in start
	faults, ok := errors.AsType[workgraph.Faults](err)
	if err != nil && !ok {
		return nil, err
	}
	var in *workgraph.Input
	if m := req.GetInput(); m != nil {
		in = &workgraph.Input{}
		var bad workgraph.Faults
		if in.Args, err = graphpb.RawList("input.args", m.GetArgs()); err != nil {
			more, _ := errors.AsType[workgraph.Faults](err)
			bad = append(bad, more...)
		}
		if in.Named, err = graphpb.RawMap("input.named", m.GetNamed()); err != nil {
			more, _ := errors.AsType[workgraph.Faults](err)
			bad = append(bad, more...)
		}
		if len(bad) > 0 {
			return nil, inputFaults(bad)
		}
	}
	found, err := s.engine.Programs().Examine(ctx, grpckit.Namespace(ctx), g, in)
	if err != nil {
		return nil, err
	}
	out := &executorv1.ValidateGraphResponse{}
	for _, f := range besides(faults, found.Faults) {
		out.Faults = append(out.Faults, graphpb.Fault(f))
	}
	for _, f := range found.Warnings {
		out.Warnings = append(out.Warnings, graphpb.Fault(f))
	}
	if len(out.Faults) == 0 {
		out.GraphHash = found.Hash
		for _, b := range found.Behaviors {
			out.Behaviors = append(out.Behaviors, &executorv1.NodeBehavior{NodeId: b.Node, Effect: graphpb.Effect(b.Effect), Approves: b.Approves})
		}
	}
	return out, nil
}

// misread is the error of a graph that is partly unreadable: it also names the faults of the rest.
func (s *Server) misread(ctx context.Context, req command.StartRequest, err error) error {
	faults, ok := errors.AsType[workgraph.Faults](err)
	if !ok {
		return err
	}
	found, err := s.engine.Programs().Examine(ctx, req.Namespace, req.Graph, &req.Input)
	if err != nil {
		return err
	}
	return graphpb.FaultError(besides(faults, found.Faults))
}

// besides adds the faults of the rest of a graph to those of its unreadable parts. Faults at the same
// places are left out: there the rest lacks only the unreadable part.
func besides(misread, rest workgraph.Faults) workgraph.Faults {
	if len(misread) == 0 {
		return rest
	}
	place := func(f workgraph.Fault) workgraph.Fault {
		return workgraph.Fault{Node: f.Node, From: f.From, To: f.To, Field: f.Field}
	}
	seen := map[workgraph.Fault]bool{}
	out := slices.Clone(misread)
	for _, f := range misread {
		seen[place(f)] = true
	}
	for _, f := range rest {
		if !seen[place(f)] {
			out = append(out, f)
		}
	}
	return out
}

// sharedGraph is a graph that several requests share, read.
type sharedGraph struct {
	message *graphv1.Graph
	graph   *workgraph.Graph
	known   program.Memo
}

// graph reads a graph, once for all requests that share it. Like graphpb.FromProto it returns a graph
// beside the faults too.
func graph(ctx context.Context, m *graphv1.Graph) (*workgraph.Graph, *program.Memo, error) {
	shared := grpckit.SharedOf(ctx)
	if shared == nil {
		g, err := graphpb.FromProto(m)
		return g, nil, err
	}
	if k, ok := shared.Note().(*sharedGraph); ok && k.message == m {
		return k.graph, &k.known, nil
	}
	g, err := graphpb.FromProto(m)
	if err != nil {
		return g, nil, err
	}
	k := &sharedGraph{message: m, graph: g}
	shared.SetNote(k)
	return g, &k.known, nil
}

// maxMetadata bounds a run's metadata in bytes: lists return it with every run.
const maxMetadata = 16 << 10

func metadataFits(m map[string]string) error {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	if n <= maxMetadata {
		return nil
	}
	return errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "metadata has %d bytes, the limit is %d", n, maxMetadata).
		Violate("metadata", journal.ReasonPayloadTooLarge, fmt.Sprintf("%d bytes, the limit is %d", n, maxMetadata)).
		Hint("metadata is for short notes; large values belong into context or attachments")
}

// request is a repeatable request with the hash of its body.
func request(id string, body proto.Message) (journal.Request, error) {
	if id == "" {
		return journal.Request{}, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(body)
	if err != nil {
		return journal.Request{}, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(b)
	return journal.Request{ID: id, BodyHash: hex.EncodeToString(sum[:])}, nil
}

// graphFaults turns the faults of a graph into the one error that names them all.
func graphFaults(err error) error {
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		return graphpb.FaultError(faults)
	}
	return err
}

// inputFaults is the error of values beside the graph that cannot be kept.
func inputFaults(faults workgraph.Faults) error {
	e := errs.New(errs.InvalidArgument, graphpb.CodePayload, "%d values of the request cannot be taken", len(faults))
	if len(faults) == 1 {
		e.Message = faults[0].Field + ": " + faults[0].Message
	}
	e = e.Hint(faults[0].Hint)
	for _, f := range faults {
		e = e.Violate(f.Field, f.Code, f.Message)
	}
	return e
}

func (s *Server) run(ctx context.Context, id string) (*executorv1.Run, error) {
	row, err := s.reader.Get(ctx, grpckit.Namespace(ctx), id)
	if err != nil {
		return nil, err
	}
	return s.runMessage(ctx, row, true)
}

// GetRun implements the service.
func (s *Server) GetRun(ctx context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
	r, err := s.run(ctx, req.GetRunId())
	if err != nil {
		return nil, err
	}
	return s.await(ctx, r, req.GetWait().AsDuration())
}

// GetRunGraph implements the service.
func (s *Server) GetRunGraph(ctx context.Context, req *executorv1.GetRunGraphRequest) (*executorv1.GetRunGraphResponse, error) {
	leave, err := s.enter(ctx, standing, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	var row journal.Run
	var hash string
	var body []byte
	for again := true; again; again = hash != row.GraphHash { // it may change between the two reads
		if row, err = s.reader.Head(ctx, grpckit.Namespace(ctx), req.GetRunId()); err != nil {
			return nil, err
		}
		if hash, body, err = s.reader.Graph(ctx, grpckit.Namespace(ctx), req.GetRunId()); err != nil {
			return nil, err
		}
	}
	if req.GetUnlessHash() == hash {
		return &executorv1.GetRunGraphResponse{GraphHash: hash, GraphRevision: row.GraphRevision}, nil
	}
	g, err := workgraph.Decode(body)
	if err != nil {
		return nil, err
	}
	show := graphpb.ToProto
	if req.GetView() == executorv1.GraphView_GRAPH_VIEW_SHAPE {
		show = shape
	}
	m, err := show(g)
	if err != nil {
		return nil, fmt.Errorf("graph of run %s: %w", req.GetRunId(), err)
	}
	return &executorv1.GetRunGraphResponse{Graph: m, GraphHash: hash, GraphRevision: row.GraphRevision}, nil
}

// ListRuns implements the service.
func (s *Server) ListRuns(ctx context.Context, req *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := listedPage(ctx, "ListRuns", req)
	if err != nil {
		return nil, err
	}
	f := journal.Filter{
		TaskID: req.GetTaskId(), UserID: req.GetUserId(), ChatID: req.GetChatId(), ThreadID: req.GetThreadId(), BusinessKey: req.GetBusinessKey(),
		ParentID: req.GetParentRunId(), ScheduleID: req.GetScheduleId(), Labels: req.GetLabels(), CreatedAfter: instant(req.GetCreatedAfter()), CreatedBefore: instant(req.GetCreatedBefore()),
	}
	f.EpicID = req.GetEpicId()
	f.Workflow, f.WorkflowVersion = workflowFilter(req.GetWorkflow())
	for _, st := range req.GetStates() {
		if st < executorv1.RunState_RUN_STATE_PENDING || st > executorv1.RunState_RUN_STATE_CANCELED {
			return nil, errs.New(errs.InvalidArgument, "STATE_UNKNOWN", "states: %d is not a state to filter by", st).
				Violate("states", "STATE_UNKNOWN", "not a state of a run")
		}
		f.States = append(f.States, journal.State(st))
	}
	rows, err := s.reader.List(ctx, ns, f, pg.After, pg.Limit+1)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(pg, rows, func(r journal.Run) page.Cursor { return page.Cursor{CreateTime: r.CreateTime, ID: r.ID} })
	out := &executorv1.ListRunsResponse{NextPageToken: next}
	for _, row := range rows {
		m, err := s.runMessage(ctx, row, false)
		if err != nil {
			return nil, err
		}
		out.Runs = append(out.Runs, m)
	}
	return out, nil
}

// ListVisits implements the service.
func (s *Server) ListVisits(ctx context.Context, req *executorv1.ListVisitsRequest) (*executorv1.ListVisitsResponse, error) {
	visits, next, err := s.query.Visits(ctx, query.VisitsRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Node: req.GetNodeId(), Size: req.GetPageSize(), Token: req.GetPageToken()})
	if err != nil {
		return nil, err
	}
	out := &executorv1.ListVisitsResponse{NextPageToken: next}
	for i := range visits {
		out.Visits = append(out.Visits, visitMessage(grpckit.Namespace(ctx), req.GetRunId(), &visits[i], s.engine.Tokens()))
	}
	return out, nil
}

// WatchRun implements the service.
func (s *Server) WatchRun(req *executorv1.WatchRunRequest, stream grpc.ServerStreamingServer[executorv1.RunEvent]) error {
	ctx := stream.Context()
	err := s.engine.Feed().Watch(ctx, feed.WatchRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), After: req.GetAfterSeq(),
		Descendants: req.GetIncludeDescendants(), DurableOnly: req.GetDurableOnly(),
		// A watch has no end of its own while its run goes on, and must not hold up the stop of this
		// replica.
		Stop:  grpckit.Draining(ctx),
		Begun: func() { grpckit.MarkWatching(stream) },
	}, &watcher{s: s, stream: stream, runID: req.GetRunId()})
	if errors.Is(err, feed.ErrWatchStopped) {
		return errStopping
	}
	return err
}

// errStopping ends a watch that another replica, or this one when it is back, can go on with.
var errStopping = errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping").Hint("watch again from the last sequence seen")

// watcher sends the messages of a watch.
type watcher struct {
	s      *Server
	stream grpc.ServerStreamingServer[executorv1.RunEvent]
	runID  string
	root   string
}

// Event implements engine.Watcher.
func (w *watcher) Event(ev feed.Event) error {
	w.root = ev.RootID
	hash := ev.GraphHash
	if hash == "" && ev.Durable != nil && ev.Durable.Kind == workgraph.RunStarted {
		row, err := w.s.reader.Head(w.stream.Context(), grpckit.Namespace(w.stream.Context()), ev.RunID)
		if err != nil {
			return err
		}
		if hash, err = w.s.engine.FirstGraph(w.stream.Context(), row); err != nil {
			return err
		}
	}
	for _, m := range eventMessages(ev, grpckit.Namespace(w.stream.Context()), hash, w.s.engine.Tokens()) {
		if err := w.stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// KeepAlive implements engine.Watcher.
func (w *watcher) KeepAlive(last int64) error {
	return w.stream.Send(&executorv1.RunEvent{
		Time: timestamppb.New(dbkit.Now()), RunId: w.runID, RootRunId: w.root,
		Event: &executorv1.RunEvent_KeepAlive{KeepAlive: &executorv1.KeepAlive{LastSeq: last}},
	})
}

// CancelRun implements the service.
func (s *Server) CancelRun(ctx context.Context, req *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	revision, err := parseEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	row, err := s.engine.Cancel(ctx, command.CancelRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Reason: req.GetReason(), Instead: req.GetInstead(), Revision: revision, Request: once})
	if err != nil {
		return nil, err
	}
	return s.runMessage(ctx, row, true)
}

// ResumeRun implements the service.
func (s *Server) ResumeRun(ctx context.Context, req *executorv1.ResumeRunRequest) (*executorv1.Run, error) {
	revision, err := parseEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	err = s.engine.Resume(ctx, command.ResumeRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), Reason: req.GetReason(), Revision: revision, Request: once,
		Step: req.GetStep(), Budget: callpb.FromBudget(req.GetBudget())})
	if err != nil {
		return nil, err
	}
	return s.run(ctx, req.GetRunId())
}

// ReconcileVisit implements the service.
func (s *Server) ReconcileVisit(ctx context.Context, req *executorv1.ReconcileVisitRequest) (*executorv1.Run, error) {
	once, err := repeatable(req)
	if err != nil {
		return nil, err
	}
	v := req.GetVisit()
	out := command.ReconcileRequest{
		Namespace: grpckit.Namespace(ctx), RunID: req.GetRunId(), By: req.GetBy(), Request: once,
		Ref: workgraph.Ref{Node: v.GetNodeId(), Visit: max(int(v.GetVisit()), 1), Item: int(v.GetItem())},
	}
	switch o := req.GetOutcome().(type) {
	case *executorv1.ReconcileVisitRequest_Performed:
		values, err := graphpb.RawList("performed.values", o.Performed.GetValues())
		if faults, ok := errors.AsType[workgraph.Faults](err); ok {
			return nil, inputFaults(faults)
		} else if err != nil {
			return nil, err
		}
		out.Outcome = &workgraph.Outcome{Values: values}
	case *executorv1.ReconcileVisitRequest_Failed:
		out.Err = &workgraph.Error{Type: workgraph.Permanent, Reason: o.Failed.GetReason(), Message: cmp.Or(o.Failed.GetMessage(), "somebody found that the call failed")}
	case *executorv1.ReconcileVisitRequest_NotPerformed:
		out.Err = &workgraph.Error{Type: workgraph.NotPerformed, Reason: "RECONCILED", Message: "somebody found that the call was not performed"}
	}
	if err := s.engine.Reconcile(ctx, out); err != nil {
		return nil, err
	}
	return s.run(ctx, req.GetRunId())
}

// ListActors implements the service.
func (s *Server) ListActors(ctx context.Context, _ *executorv1.ListActorsRequest) (*executorv1.ListActorsResponse, error) {
	out := &executorv1.ListActorsResponse{}
	more, err := s.more(ctx, grpckit.Namespace(ctx))
	if err != nil {
		return nil, err
	}
	all := slices.Concat(s.actors(), more)
	slices.SortFunc(all, func(a, b actor.Spec) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range all {
		if a.Internal {
			continue
		}
		info := &executorv1.ActorInfo{Name: a.Name, Description: a.Description, Effect: graphpb.Effect(a.Effect), Version: a.Version, Unavailable: a.Unavailable}
		if a.Schema != "" {
			info.ArgsSchema = &graphv1.Payload{Json: []byte(a.Schema)}
		}
		out.Actors = append(out.Actors, info)
	}
	return out, nil
}

func etag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

func parseEtag(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	bad := errs.New(errs.Conflict, journal.ReasonEtagMismatch, "etag %s is not one that the run can have", s).
		Hint("read the run again and use its etag").Violate("etag", ReasonEtagInvalid, "not an etag of a run")
	text, err := strconv.Unquote(s)
	if err != nil {
		return 0, bad.With(err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, bad.With(err)
	}
	return n, nil
}

func instant(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
