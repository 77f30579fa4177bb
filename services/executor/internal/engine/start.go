package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Start records a run and begins it in the same commit. It returns the run's id once that is durable.
//
// created is false if id is that of an earlier run: the request is a repetition, or the business key is taken
// and the policy returns its holder. A faulty graph is a workgraph.Faults; every other error is an
// *errs.Error.
func (e *Engine) Start(ctx context.Context, req command.StartRequest) (id string, created bool, err error) {
	s, err := e.StartRun(ctx, req)
	return s.ID, s.Created, err
}

// StartRun is Start for callers that also need the row.
func (e *Engine) StartRun(ctx context.Context, req command.StartRequest) (command.Started, error) {
	for tries := 1; ; tries++ {
		t := e.current()
		if t == nil {
			return command.Started{}, e.notReady()
		}
		made, err := e.chooseThread(ctx, req)
		if err != nil {
			return command.Started{}, err
		}
		s, err := e.begin(ctx, t, made)
		if !thread.KeyTaken(err) {
			return s, err
		}
		if taken := e.keyTaken(ctx, req); taken != nil || tries == 3 {
			return s, cmp.Or(taken, err)
		}
	}
}

// chooseThread finds the thread of a new run by its key, or gives it an id.
func (e *Engine) chooseThread(ctx context.Context, req command.StartRequest) (command.StartRequest, error) {
	if len(req.Imported) > 0 {
		req.ThreadID = req.Imported[0].Thread
		return req, nil
	}
	if req.NewThread == nil {
		return req, nil
	}
	req.ThreadID = ids.New(thread.IDPrefix)
	if req.NewThread.Key == "" {
		return req, nil
	}
	switch th, err := e.journal.ThreadByKey(ctx, req.Namespace, req.NewThread.Key); {
	case err == nil:
		req.ThreadID, req.NewThread = th.ID, nil
	case errs.ReasonOf(err) != thread.ReasonNotFound:
		return req, err
	}
	return req, nil
}

// keyTaken is the error of a start whose thread has the key of another one. It is nil if that one is
// gone, so that another try may succeed. The commit finds out, since a start that an earlier run
// answers needs no thread.
func (e *Engine) keyTaken(ctx context.Context, req command.StartRequest) error {
	if len(req.Imported) == 0 {
		return nil
	}
	key := req.Imported[0].Create.Key
	th, err := e.journal.ThreadByKey(ctx, req.Namespace, key)
	switch {
	case err == nil:
		return thread.Exists(key, th.ID)
	case errs.ReasonOf(err) == thread.ReasonNotFound:
		return nil
	}
	return err
}

func (e *Engine) begin(ctx context.Context, t *session, req command.StartRequest) (_ command.Started, err error) {
	if req.Request.ID != "" && req.Request.Method == "" {
		req.Request.Method = command.MethodStart
	}
	in := req.Propagates()
	// A start that no client can repeat waits as a row for room. Any other is refused before its graph is
	// compiled, which would take more than the answer.
	asksAgain := req.Lineage.Parent == "" && req.ScheduleID == "" && !req.Pending && !req.StartTime.After(time.Now())
	full := func() (command.Started, error) { return e.earlier(ctx, req, t.errFull(errs.ResourceExhausted)) }
	if asksAgain && !t.memory.Room(req.Namespace, replay.Weight(len(req.Graph.Nodes))) {
		return full()
	}
	p, err := e.programs.Compile(ctx, req.Namespace, req.Graph, req.Memo, &in, req.Source)
	if err != nil {
		return command.Started{}, err
	}
	if req.CheckInputs {
		if err := e.programs.CheckInputs(ctx, req.Namespace, p, req.Graph, &in); err != nil {
			return command.Started{}, err
		}
	}
	if err := e.fits(req); err != nil {
		return command.Started{}, err
	}
	if req.Priority == 0 {
		req.Priority = sched.DefaultPriority
	}
	if asksAgain && !t.memory.Room(req.Namespace, t.startNeeds(p, &req)) {
		return full()
	}
	if req.Lineage.Parent == "" {
		if err := e.quotas.Accept(ctx, req.Namespace, p.Nodes); err != nil {
			return e.earlier(ctx, req, err)
		}
	}
	if req.ScheduleID == "" && req.Turn == 0 && (req.Lineage.Origin == nil || req.Lineage.Origin.Trigger == "") {
		req.Principal = access.Of(ctx).String()
	}
	id := req.ID
	if id == "" {
		id = ids.New(command.IDPrefix)
	}
	ctx, span := e.tracer.Start(ctx, "run.start", trace.WithLinks(tracing.LinksTo(req.Origin)...),
		trace.WithAttributes(tracing.RunAttribute(id), attribute.Int("epigraph.run.nodes", p.Nodes)))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, errs.ReasonOf(err))
		}
		span.End()
	}()
	reused, claims := false, req.TaskID != "" && !req.Lineage.Borrowed
	if claims {
		earlier, own, err := e.claim(ctx, &req, id)
		if err != nil || earlier != "" {
			return command.Started{ID: earlier}, err
		}
		id, reused = own, own != id
	}
	res, row, err := t.start(ctx, id, p, req)
	failpoint.Hit(failpoint.StartAfterRecord)
	if reused && errs.ReasonOf(err) == journal.ReasonRunExists {
		// The start that seemed to be cut off was only slow: it waited to be written, like this one.
		earlier, rerr := e.Answered(ctx, req.Namespace, req.Request)
		if rerr != nil || earlier != "" {
			return command.Started{ID: earlier}, rerr
		}
		// It was not written after all, or another request was quicker. A later try finds out which.
		return command.Started{}, errs.New(errs.Unavailable, errs.ReasonNotReady, "an earlier start with this task failed").
			Hint("try again in a moment").With(err)
	}
	if claims && ctx.Err() == nil && (err != nil || !res.Created) && !reused {
		e.releaseClaim(ctx, req, id)
	}
	if err != nil {
		return e.earlier(ctx, req, err)
	}
	if res.CancelRequestedOf != "" {
		t.pollCommandsSoon()
	}
	out := command.Started{ID: res.RunID, Created: res.Created}
	if res.Created {
		e.meters.run("STARTED")
		row.Run.LastSeq, row.Run.Revision, row.Run.Owner = res.LastSeq, res.Revision, t.owner
		if row.Run.State == journal.StatePending {
			row.Run.Owner = journal.Owner{}
		}
		out.Run, out.Interrupts = &row.Run, len(row.Opened)
	}
	return out, nil
}

// earlier answers a refused start. A request that was answered before gets the same answer, whatever refuses
// it now.
func (e *Engine) earlier(ctx context.Context, req command.StartRequest, refusal error) (command.Started, error) {
	if !errs.Is(refusal, errs.ResourceExhausted) {
		return command.Started{}, refusal
	}
	switch id, err := e.Answered(ctx, req.Namespace, req.Request); {
	case errs.ReasonOf(err) == journal.ReasonRequestIDReused:
		return command.Started{}, err
	case err != nil || id == "":
		return command.Started{}, refusal
	default:
		return command.Started{ID: id}, nil
	}
}

// start records the run and waits until that is durable. A run that may begin now begins in the same commit.
// Any other is begun by the executor that works its job.
func (t *session) start(ctx context.Context, id string, p *program.Program, req command.StartRequest) (journal.Result, *journal.Start, error) {
	now := dbkit.Now()
	sc := trace.SpanContextFromContext(ctx)
	r := t.newRun(id, replay.NewPosition(id, p))
	r.payer.Store(req.Lineage.Payer)
	r.namespace, r.task, r.priority, r.lineage, r.deadline = req.Namespace, req.TaskID, req.Priority, req.Lineage, req.EndsAt(now)
	r.schedule, r.epic = req.ScheduleID, req.EpicID
	if p := req.Lineage.Payer; r.epic == "" && p != nil {
		r.epic = p.Epic
	}
	r.created, r.trace, r.origin = now, sc, sc
	if r.lineage.Parent == "" {
		r.lineage = record.Lineage{Approved: req.Lineage.Approved, Agent: req.Lineage.Agent, Workflow: req.Lineage.Workflow, TurnOf: req.Lineage.TurnOf, Origin: req.Lineage.Origin, Standing: req.Lineage.Standing, Maker: req.Lineage.Maker, Payer: req.Lineage.Payer, User: req.UserID, Chat: req.ChatID, Thread: req.ThreadID, Forked: req.ForkedFrom != "", Hooks: req.Webhooks,
			Asks: webhook.Wanting(req.Webhooks, webhook.InterruptOpened)}
		if r.lineage.Maker == (access.Maker{}) {
			r.lineage.Maker = access.Maker{Root: r.root, Principal: req.Principal}
		}
		if r.lineage.TurnOf != "" {
			r.lineage.Standing.Through = true // the workflow works there as if it were started there
		}
	} else {
		r.root = req.RootID
	}
	wait := req.Pending || req.StartTime.After(now)
	reserved := func() {}
	if !wait {
		need := t.startNeeds(p, &req)
		if t.memory.Try(req.Namespace, need) {
			reserved = sync.OnceFunc(func() { t.memory.Add(req.Namespace, -need) })
		} else {
			wait = true
		}
	}
	defer reserved()
	// Children never wait for room: their parents are open and wait for them.
	bounded := r.lineage.Parent == ""
	room := func() {}
	if bounded && !wait {
		release, ok, err := t.e.quotas.Admit(ctx, req.Namespace)
		if err != nil {
			return journal.Result{}, nil, err
		}
		if release != nil {
			room = release
		}
		wait, req.Full = !ok, !ok
	}
	if bounded && wait {
		if err := t.e.quotas.AcceptPending(ctx, req.Namespace); err != nil {
			return journal.Result{}, nil, err
		}
	}
	turn := func() {}
	if !wait && r.evaluates() {
		var err error
		if turn, err = t.e.computing.Enter(ctx, r.namespace); err != nil {
			room()
			return journal.Result{}, nil, err
		}
	}
	if req.Lock != nil {
		req.Lock.Lock()
		if err := req.Before(); err != nil {
			req.Lock.Unlock()
			turn()
			room()
			return journal.Result{}, nil, err
		}
	}
	answer := make(chan journal.Result, 1)
	var row *journal.Start
	var err error
	if wait {
		row, err = r.recordPending(req, now, answer)
	} else {
		awake := context.AfterFunc(ctx, r.abortStart)
		row, err = r.begin(req, now, answer)
		if !awake() && errors.Is(err, workgraph.ErrAborted) {
			err = context.Cause(ctx)
		}
	}
	turn()
	reserved() // it is counted as a live run and as a waiting write from now on
	if req.Lock != nil {
		req.Lock.Unlock()
	}
	if err != nil {
		room()
		if errs.ReasonOf(err) == journal.ReasonRunExists && !t.awaitRecord(ctx, id) {
			err = ctx.Err()
		}
		return journal.Result{}, nil, err
	}
	select {
	case res := <-answer:
		room()
		return res, row, res.Err
	case <-ctx.Done():
		go func() { // the write is answered in any case
			<-answer
			room()
		}()
		return journal.Result{}, nil, ctx.Err()
	}
}

// awaitRecord waits until the start of a run that is in memory here is written or has failed. It reports
// false if ctx ended before.
func (t *session) awaitRecord(ctx context.Context, id string) bool {
	r := t.get(id)
	if r == nil {
		return true
	}
	r.mu.Lock()
	if r.durable > 0 {
		r.mu.Unlock()
		return true
	}
	quiet := r.awaitQuiet()
	r.mu.Unlock()
	select {
	case <-quiet:
		return true
	case <-ctx.Done():
		return false
	}
}

// fillStart puts the row of a new run into s, with what the request says about conflicts.
func (r *run) fillStart(s *journal.Start, req command.StartRequest, now time.Time) (err error) {
	s.Request, s.Conflict = req.Request, req.Conflict
	if req.Conflict == journal.ConflictCancelExisting {
		l := record.Payload{Reason: journal.ReasonBusinessKeyTaken, Principal: req.Principal, Trace: tracing.OfSpan(r.trace)}
		if s.Cancel, err = l.Encode(); err != nil {
			return fmt.Errorf("encode cancel: %w", err)
		}
	}
	if req.NewThread != nil {
		s.Room = r.t.e.cfg.ThreadRoom
		s.Threads = append(s.Threads, thread.Append{Thread: req.ThreadID, Create: req.NewThread, Time: now})
	}
	if len(req.Imported) > 0 {
		s.Room = r.t.e.cfg.ThreadRoom
		s.Threads = append(s.Threads, req.Imported...)
	}
	if len(req.Shared) > 0 {
		s.Room, r.holds = r.t.e.cfg.ThreadRoom, true
		s.Threads = append(s.Threads, req.SharedThreads(r.id, now)...)
	}
	s.Run, err = r.newRow(req, now)
	return err
}

// recordPending records the run without beginning it.
func (r *run) recordPending(req command.StartRequest, now time.Time, answer chan<- journal.Result) (*journal.Start, error) {
	s := &journal.Start{Append: journal.Append{Graph: r.Program.Body}}
	if err := r.fillStart(s, req, now); err != nil {
		return nil, err
	}
	s.Run.Status = journal.Status{State: journal.StatePending, UpdateTime: now, Nodes: r.Tally.Counts}
	if req.Full {
		s.Run.Reason = waitsForRoom
	}
	if req.StartTime.After(now) {
		s.Run.WakeTime = dbkit.Micros(req.StartTime)
	}
	job, err := r.job(journal.JobStart, s.Run.WakeTime)
	if err != nil {
		return nil, err
	}
	s.Jobs = []journal.Job{job}
	if len(req.Reuse) > 0 || req.Signal != nil {
		if s.Snapshot, err = json.Marshal(pendingExtras{req.Reuse, req.Signal}); err != nil {
			return nil, fmt.Errorf("encode pending run: %w", err)
		}
	}
	// The writer owns s from here on.
	row := *s
	return &row, r.t.writer.Submit(journal.Write{Start: s}, func(res journal.Result) { answer <- res })
}

func (r *run) begin(req command.StartRequest, now time.Time, answer chan<- journal.Result) (*journal.Start, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.turn = now, true
	defer func() { r.turn = false }()
	evs, eff, err := r.State.Advance(workgraph.Begin{Input: req.Propagates(), Context: req.Context, Budget: req.Budget, Reuse: req.Reuse, Now: now})
	if err != nil {
		return nil, fmt.Errorf("begin run: %w", err)
	}
	if sig := req.Signal; sig != nil && eff.Ended == nil {
		more, fx, err := r.State.Advance(workgraph.Signaled{Name: sig.Name, Payload: sig.Payload, Now: now})
		if errors.Is(err, workgraph.ErrAborted) {
			return nil, err
		}
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, command.ReasonSignalInvalid, "%v", err)
		}
		evs, eff = append(evs, more...), eff.And(fx)
	}
	var w journal.Append
	// A run that is idle at once leaves memory by a later write, since a start cannot release ownership.
	c, err := r.fill(&w, evs, eff, extra{from: origin{more: true}})
	if err != nil {
		return nil, err
	}
	if err := r.confirm(&w, now); err != nil {
		return nil, err
	}
	c.outbox = waking(&w)
	s := &journal.Start{Append: journal.Append{Graph: r.Program.Body, Events: w.Events, Outbox: w.Outbox, Command: w.Command, Jobs: w.Jobs, Opened: w.Opened, Snapshot: w.Snapshot}}
	if err := r.fillStart(s, req, now); err != nil {
		return nil, err
	}
	s.Run.Status = *w.Status
	if w.Outcome != nil {
		s.Run.Outcome = *w.Outcome
	}
	if !r.t.insertNew(r) {
		if r.t.get(r.id) != nil {
			return nil, errs.New(errs.AlreadyExists, journal.ReasonRunExists, "run %s was started already", r.id)
		}
		return nil, r.t.e.notReady()
	}
	r.markBegun()
	r.InputBytes += record.InputSize(req.Propagates(), req.Context)
	r.weigh()
	r.pending++
	row := *s // the writer owns s from here on
	committed := r.commitSpan(len(s.Events))
	err = r.t.writer.Submit(journal.Write{Start: s}, func(res journal.Result) {
		committed(res.Err)
		if res.Err != nil || !res.Created {
			r.gone.Store(true)
			r.retire(errDropped)
			r.t.remove(r)
		}
		// The answer is sent first, so that the caller does not wait behind the calls that follow.
		r.acked(ack{res: res, c: c, before: func() { answer <- res }})
	})
	if err != nil {
		committed(err)
		r.pending--
		r.gone.Store(true)
		r.t.remove(r)
	}
	return &row, err
}

func (r *run) newRow(req command.StartRequest, now time.Time) (journal.Run, error) {
	sc := tracing.OfSpan(r.trace)
	row := journal.Run{
		ID: r.id, Namespace: r.namespace, RootID: r.root, GraphName: r.Program.Name, GraphHash: r.Program.Hash, MachineVersion: workgraph.MachineVersion,
		TaskID: req.TaskID, UserID: req.UserID, ChatID: req.ChatID, ThreadID: req.ThreadID, BusinessKey: req.BusinessKey,
		TraceParent: sc.Parent, TraceState: sc.State, Sampled: r.trace.IsSampled(), CreateTime: now, Labels: req.Labels,
		Context: req.Context, Attachments: req.Attachments, ParentID: r.lineage.Parent, Priority: int32(req.Priority), Deadline: r.deadline,
		ForkedFrom: req.ForkedFrom, ScheduleID: req.ScheduleID, EpicID: r.epic, WorkflowVersion: r.lineage.Workflow,
	}
	var err error
	encode := func(v any) []byte {
		if err != nil {
			return nil
		}
		var b []byte
		b, err = json.Marshal(v)
		return b
	}
	if len(req.Input.Args) > 0 {
		row.Args = encode(req.Input.Args)
	}
	if len(req.Input.Named) > 0 {
		row.Named = encode(req.Input.Named)
	}
	m := record.Metadata{User: req.Metadata, Principal: req.Principal, RequestID: req.Request.ID, BodyHash: req.Request.BodyHash, Depth: r.lineage.Depth, Delegated: r.lineage.Delegated, Borrowed: r.lineage.Borrowed, Webhooks: r.lineage.Hooks,
		Approved: r.lineage.Approved, Agent: r.lineage.Agent, Workflow: r.lineage.Workflow, Within: r.lineage.Within, TurnOf: r.lineage.TurnOf, Origin: r.lineage.Origin, Payer: r.lineage.Payer}
	if !req.Budget.IsZero() {
		m.Budget = req.Budget
	}
	if r.lineage.Maker != m.MakerOf(r.root) {
		m.Maker = &r.lineage.Maker
	}
	if r.lineage.Parent != "" {
		m.Ref, m.Asks = &r.lineage.Ref, r.lineage.Asks
	}
	if at := r.lineage.Standing; at.Path != "" || at.Apart || at.Through {
		m.Standing = &at
	}
	if !m.Empty() {
		row.Metadata = encode(m)
	}
	r.metadata = row.Metadata
	return row, err
}

// CheckStart returns the fault that Start would find in the request, regardless of quotas, memory and
// conflicts.
func (e *Engine) CheckStart(ctx context.Context, req command.StartRequest) error {
	in := req.Propagates()
	if _, err := e.programs.Compile(ctx, req.Namespace, req.Graph, req.Memo, &in, req.Source); err != nil {
		return err
	}
	return e.fits(req)
}

// fits checks the request's own values against the limit, and names each one that exceeds it.
func (e *Engine) fits(req command.StartRequest) error {
	var fault *errs.Error
	n := 0
	check := func(size int, field func() string) {
		if size <= e.cfg.MaxPayload {
			return
		}
		if n++; fault == nil {
			fault = errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "a value of the request is over the limit of %d bytes", e.cfg.MaxPayload).
				Hint("keep large values outside and pass a reference")
		}
		fault = fault.Violate(field(), journal.ReasonPayloadTooLarge, fmt.Sprintf("%d bytes, the limit is %d", size, e.cfg.MaxPayload))
	}
	for i, v := range req.Input.Args {
		check(len(v), func() string { return fmt.Sprintf("args[%d]", i) })
	}
	for k, v := range req.Input.Named {
		check(len(v), func() string { return "named." + k })
	}
	check(len(req.Context), func() string { return "context" })
	check(len(req.Attachments), func() string { return "attachments" })
	if !req.Memo.Fits() {
		before := n
		for i := range req.Graph.Nodes {
			node := &req.Graph.Nodes[i]
			for j, v := range node.Args {
				check(len(v), func() string { return fmt.Sprintf("graph.nodes[%s].args[%d]", node.ID, j) })
			}
			for k, v := range node.Named {
				check(len(v), func() string { return fmt.Sprintf("graph.nodes[%s].named.%s", node.ID, k) })
			}
		}
		if n == before {
			req.Memo.SetFits()
		}
	}
	if fault != nil {
		return fault
	}
	// Webhooks of a fork were accepted with the run that it was forked from.
	if req.ForkedFrom == "" {
		if err := webhook.Check(req.Webhooks, e.egress); err != nil {
			return err
		}
	}
	return command.CheckBudget(req.Budget)
}

// newRun is a run of which only the position is known.
func (t *session) newRun(id string, at replay.Position) *run {
	r := &run{t: t, Position: at, programEvaluates: at.Program.Machine.Evaluates(), identity: identity{id: id, root: id}, children: map[string]bool{}, inbox: inbox{applying: map[int64]bool{}},
		motion: motion{attempts: map[workgraph.Ref]*attempt{}}, turnHeld: turnHeld{ends: make(chan struct{})}}
	r.State.OnEvaluation(r.evaluation)
	r.size.Store(uncounted)
	return r
}
