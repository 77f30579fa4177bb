package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused commands.
const (
	// ReasonNotStarted is the reason when a run has not started yet.
	ReasonNotStarted = "RUN_NOT_STARTED"
	// ReasonNoInbox is the reason when no node of a run accepts messages of a sender.
	ReasonNoInbox = "INBOX_NOT_FOUND"
	// ReasonAnswerInvalid is the reason when an answer does not fit its interrupt.
	ReasonAnswerInvalid = "ANSWER_INVALID"
	// ReasonApproveHash is the reason when the client approved something else than the interrupt asks for.
	ReasonApproveHash = "APPROVE_HASH_MISMATCH"
	// ReasonApproverStarted refuses the decision of whoever started the run.
	ReasonApproverStarted = "APPROVER_STARTED_RUN"
	// ReasonAttemptNotWaiting is the reason when an attempt does not wait for its completion, or no longer
	// does.
	ReasonAttemptNotWaiting = "ATTEMPT_NOT_WAITING"
)

// refusedCommand adds a hint to the refusal of a command by a run that has not started.
func refusedCommand(err error) error {
	if errs.ReasonOf(err) == journal.ReasonStateRefuses && errs.From(err).Meta["state"] == journal.StatePending.String() {
		return errs.New(errs.FailedPrecondition, ReasonNotStarted, "the run waits for its start").Hint("it can be canceled; anything else once it has started").With(err)
	}
	return err
}

// effectWait bounds how long a request waits for the effect of its command. The command is durable by then,
// so its effect comes in any case.
const effectWait = 5 * time.Second

// applied waits up to effectWait until a command has been applied, and reports whether it has.
func (h *Handler) applied(ctx context.Context, namespace, runID string, kind journal.CommandKind, key string) (bool, error) {
	until := time.Now().Add(effectWait)
	for pause := time.Millisecond; time.Now().Before(until); pause = min(2*pause, 50*time.Millisecond) {
		if _, unread, err := h.journal.FindCommand(ctx, namespace, runID, kind, key, false); err != nil || !unread {
			return err == nil, err
		}
		if !sleep.For(ctx, pause) {
			return false, ctx.Err()
		}
	}
	return false, nil
}

// commandKey is the key of a command that may be sent any number of times: the request id, or a new id.
func commandKey(r journal.Request) string {
	if r.ID != "" {
		return r.ID
	}
	return ids.New("req")
}

// PauseRequest asks a run to start no further calls.
type PauseRequest struct {
	Namespace, RunID string
	// Reason is shown in the history.
	Reason string
	// Revision, if not 0, must equal the run's revision.
	Revision int64
	Request  journal.Request
	// Recorded returns once the command is recorded, and does not wait until the owner has applied it.
	Recorded bool
}

// Pause stops new calls of a run. A paused run stays as it is.
func (h *Handler) Pause(ctx context.Context, req PauseRequest) error {
	req.Request.Method = MethodPause
	if done, err := h.isRepeat(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandPause, "pause")
		}
		return err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	if row.State == journal.StatePaused && !workgraph.EndsByItself(row.Reason) || row.State == journal.StateQuarantined {
		if req.Revision != 0 && req.Revision != row.Revision {
			return journal.EtagMismatch(row.ID)
		}
		return h.remember(ctx, req.Namespace, req.RunID, journal.CommandPause, req.Request)
	}
	reason := req.Reason
	if reason == "" {
		reason = "REQUESTED"
	}
	_, err = h.enqueue(ctx, journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Open: openStates(),
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandPause, Key: "pause"}}, &record.Payload{Reason: reason, RequestID: req.Request.ID})
	if err != nil {
		return refusedCommand(err)
	}
	if req.Recorded {
		return nil
	}
	_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandPause, "pause")
	return err
}

// StopRequest asks the loops of a run, and of the runs below it, to end.
type StopRequest struct {
	Namespace, RunID string
	// Reason is shown in the history.
	Reason string
	// Revision, if not 0, must equal the run's revision.
	Revision int64
	Request  journal.Request
}

// Stop asks the loops of a run to end. A run that was asked stays as it is.
func (h *Handler) Stop(ctx context.Context, req StopRequest) error {
	req.Request.Method = MethodStop
	if done, err := h.isRepeat(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandStop, "stop")
		}
		return err
	}
	_, err := h.enqueue(ctx, journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Open: openStates(),
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandStop, Key: "stop"}}, &record.Payload{Reason: cmp.Or(req.Reason, "REQUESTED"), RequestID: req.Request.ID})
	if err != nil {
		return refusedCommand(err)
	}
	_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandStop, "stop")
	return err
}

// openStates are the states of a run that has started and not ended.
func openStates() []journal.State {
	return []journal.State{journal.StateRunning, journal.StateWaiting, journal.StatePaused, journal.StateQuarantined}
}

// SignalRequest sends a signal to a run.
type SignalRequest struct {
	Namespace, RunID string
	Signal
	Request journal.Request
}

// Signal sends a signal to a run. It returns the run once the signal is durable.
func (h *Handler) Signal(ctx context.Context, req SignalRequest) (journal.Run, error) {
	req.Request.Method = MethodSignal
	if row, done, err := h.repeatedRun(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		return row, err
	}
	if err := h.checkSignal(&req.Signal); err != nil {
		return journal.Run{}, err
	}
	if err := h.acceptsSignal(req.Namespace, req.RunID, &req.Signal); err != nil {
		return journal.Run{}, err
	}
	p, err := h.enqueue(ctx, journal.EnqueueRequest{Request: req.Request,
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandSignal, Key: commandKey(req.Request)}},
		&record.Payload{Name: req.Name, Payload: req.Payload, RequestID: req.Request.ID})
	return p.Run, refusedCommand(err)
}

// MessageRequest sends a message to inboxes of a run.
type MessageRequest struct {
	Namespace, RunID string
	From, Node       string
	// Token is the attempt token of the call that sends in its node's name. It is empty for a sender
	// outside of the run.
	Token   string
	Message json.RawMessage
	Request journal.Request
}

// Send puts a message into inboxes of a run: into that of Node, or into all that accept the sender.
func (h *Handler) Send(ctx context.Context, req MessageRequest) (journal.Run, error) {
	req.Request.Method = MethodSend
	if row, done, err := h.repeatedRun(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		return row, err
	}
	if err := h.checkPayload("message", req.Message); err != nil {
		return journal.Run{}, err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return row, err
	}
	nodes, err := h.positions.Nodes(ctx, row)
	if err != nil {
		return row, err
	}
	call, err := h.verifySender(ctx, row, nodes, &req)
	if err != nil {
		return row, err
	}
	from, node := req.From, req.Node
	var boxes []string
	fits := false
	for id, n := range nodes {
		if n.On == nil || n.On.Inbox == nil || id == from {
			continue
		}
		senders := n.On.Inbox.From
		takes := len(senders) == 0 || slices.Contains(senders, from)
		fits = fits || takes && (node == "" || node == id)
		boxes = append(boxes, fmt.Sprintf("%s takes messages of %s", id, orAnybody(senders)))
	}
	if !fits {
		slices.Sort(boxes)
		err := errs.New(errs.FailedPrecondition, ReasonNoInbox, "no inbox of the run takes messages of %q", from)
		if node != "" {
			err = errs.New(errs.FailedPrecondition, ReasonNoInbox, "node %q has no inbox that takes messages of %q", node, from)
		}
		if len(boxes) == 0 {
			return row, err.Hint("give a node of the graph `on: {inbox: {from: …}}`")
		}
		return row, err.Hint(strings.Join(boxes[:min(len(boxes), 20)], "; "))
	}
	key := commandKey(req.Request)
	p, err := h.enqueue(ctx, journal.EnqueueRequest{Request: req.Request,
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandMessage, Key: key}},
		&record.Payload{From: from, Node: node, Ref: call.Ref(), Attempt: call.Attempt, Payload: req.Message, RequestID: req.Request.ID})
	if err == nil && req.Token != "" {
		// The end of the call must not overtake its message, since the run may end with the call.
		_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandMessage, key)
	}
	return p.Run, refusedCommand(err)
}

func orAnybody(senders []string) string {
	if len(senders) == 0 {
		return "anybody"
	}
	return strings.Join(senders, ", ")
}

// AnswerRequest answers an interrupt.
type AnswerRequest struct {
	Namespace, InterruptID string
	Answer                 json.RawMessage
	// Decision is workgraph.Approved or workgraph.Rejected for an approval, and empty otherwise.
	Decision, By string
	// ApproveHash, if not empty, must match the hash of what the approval is about.
	ApproveHash string
	// Instead is what is wanted in place of an answer to a question of an agent. Then there is no answer.
	Instead string
}

// Answer answers an interrupt exactly once. The same answer again does nothing; a different one is refused.
// An answer that does not fit leaves the interrupt open.
func (h *Handler) Answer(ctx context.Context, a AnswerRequest) (journal.Interrupt, error) {
	q, err := h.journal.GetInterrupt(ctx, a.Namespace, a.InterruptID)
	if err != nil {
		return q, err
	}
	if a.Instead != "" {
		if err := checkInstead(&q, &a); err != nil {
			return q, err
		}
		a.Answer = actor.Instead(a.Instead)
	}
	if q.State == journal.InterruptOpen {
		if err := h.checkApprover(ctx, &q); err != nil {
			return q, err
		}
		if err := h.checkAnswer(ctx, &q, &a); err != nil {
			return q, err
		}
	} else if len(a.Answer) == 0 && len(q.Approve) == 0 {
		a.Answer = json.RawMessage("null")
	}
	// White space does not make an answer different.
	if len(a.Answer) > 0 {
		a.Answer = compact(a.Answer)
	}
	enqueued, err := h.enqueue(ctx, journal.EnqueueRequest{
		Command: journal.Command{Namespace: a.Namespace, RunID: q.RunID, Kind: journal.CommandAnswer, Key: q.ID},
		Answer:  &journal.Answer{InterruptID: q.ID, Answer: a.Answer, Decision: a.Decision, By: a.By, Principal: access.Of(ctx).String()}},
		&record.Payload{InterruptID: q.ID, Payload: a.Answer, Decision: a.Decision, By: a.By})
	if err != nil {
		return q, err
	}
	if enqueued.New {
		if _, err := h.applied(ctx, a.Namespace, q.RunID, journal.CommandAnswer, q.ID); err != nil {
			return q, err
		}
	}
	return h.journal.GetInterrupt(ctx, a.Namespace, a.InterruptID)
}

// checkApprover refuses the decision of whoever started the run that asks, its root, or a run that one of
// them was forked from, with its root: a fork by another does not make the work another's. Who started a run
// is written with its start and never changes, so what is read before the transaction of the answer holds in
// it.
func (h *Handler) checkApprover(ctx context.Context, q *journal.Interrupt) error {
	if !h.byAnother || len(q.Approve) == 0 {
		return nil
	}
	by := access.Of(ctx).String()
	ids := slices.Compact([]string{q.RunID, q.RootID})
	for i, asking := 0, len(ids); i < len(ids); i++ {
		id := ids[i]
		run, err := h.journal.Head(ctx, q.Namespace, id)
		if i >= asking && errs.Is(err, errs.NotFound) {
			continue // the origin of a fork was deleted
		}
		if err != nil {
			return err
		}
		if run.ForkedFrom != "" && len(ids) < asking+maxForksAbove {
			ids = append(ids, run.ForkedFrom)
		}
		if root := run.RootID; root != "" && !slices.Contains(ids, root) && len(ids) < asking+maxForksAbove {
			ids = append(ids, root) // a child has no principal of its own
		}
		given, err := record.CallerDataOf(run.Metadata)
		if err != nil {
			return err
		}
		if given.Principal == by {
			return errs.New(errs.PermissionDenied, ReasonApproverStarted, "%s started run %s, and may not decide the approval that it asks for", by, id).
				Set("interrupt_id", q.ID).Set("run_id", id).Hint("have somebody else decide it: executor.approvals.by_another is set")
		}
	}
	return nil
}

// maxInstead bounds what is wanted in place of an answer, in bytes.
const maxInstead = 4096

// checkInstead refuses what is wanted in place of an answer where nobody takes it.
func checkInstead(q *journal.Interrupt, a *AnswerRequest) error {
	invalid := func(format string, args ...any) *errs.Error {
		text := fmt.Sprintf(format, args...)
		return errs.New(errs.InvalidArgument, ReasonAnswerInvalid, "%s", text).Violate("instead", ReasonAnswerInvalid, text).Set("interrupt_id", q.ID)
	}
	switch {
	case !q.OfAgent:
		return invalid("the interrupt is no question of an agent").Hint("answer it, or stop its run")
	case len(a.Answer) > 0 || a.Decision != "" || a.ApproveHash != "":
		return invalid("there is an answer as well").Hint("give one of them")
	case len(a.Instead) > maxInstead || !utf8.ValidString(a.Instead):
		return invalid("what is wanted in place of an answer is a text of at most %d bytes", maxInstead)
	}
	return nil
}

// checkAnswer checks an answer against its interrupt and fills in what the client may omit.
func (h *Handler) checkAnswer(ctx context.Context, q *journal.Interrupt, a *AnswerRequest) error {
	if err := h.checkPayload("answer", a.Answer); err != nil {
		return err
	}
	invalid := func(field, format string, args ...any) *errs.Error {
		text := fmt.Sprintf(format, args...)
		return errs.New(errs.InvalidArgument, ReasonAnswerInvalid, "%s", text).Violate(field, ReasonAnswerInvalid, text).Set("interrupt_id", q.ID)
	}
	approval := len(q.Approve) > 0
	switch {
	case approval && a.Decision == "":
		return invalid("decision", "the interrupt is an approval").Hint("say DECISION_APPROVED or DECISION_REJECTED")
	case !approval && a.Decision != "":
		return invalid("decision", "the interrupt is not an approval").Hint("give an answer instead of a decision")
	case !approval && a.ApproveHash != "":
		return invalid("approve_hash", "the interrupt is not an approval")
	}
	if hash := workgraph.ApproveHash(q.Approve, q.Binds); approval && a.ApproveHash != "" && a.ApproveHash != hash {
		return errs.New(errs.FailedPrecondition, ReasonApproveHash, "what is to be approved is not what was seen").Set("approve_hash", hash).
			Hint("read the interrupt again")
	}
	if len(a.Answer) == 0 {
		if approval {
			return nil
		}
		if len(q.Schema) > 0 {
			return invalid("answer", "there is no answer").Hint("give one that satisfies the interrupt's schema")
		}
		a.Answer = json.RawMessage("null")
		return nil
	}
	if len(q.Schema) == 0 {
		return nil
	}
	leave, err := h.computing.Enter(ctx, q.Namespace)
	if err != nil {
		return err
	}
	defer leave()
	schema, err := workgraph.CompileSchema(ctx, q.Schema)
	if err != nil {
		// No answer can be better than this one: the actor's schema accepts none.
		return ctx.Err()
	}
	err = schema.Check(ctx, a.Answer)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	refusal := errs.New(errs.InvalidArgument, ReasonAnswerInvalid, "the answer does not satisfy the interrupt's schema").Set("interrupt_id", q.ID).
		Hint("the interrupt is still open; answer again")
	faults, ok := errors.AsType[workgraph.SchemaFaults](err)
	if !ok {
		return refusal.Violate("answer", ReasonAnswerInvalid, err.Error())
	}
	for _, f := range faults {
		refusal = refusal.Violate("answer"+f.Place, ReasonAnswerInvalid, f.Message)
	}
	return refusal
}

// CompleteRequest completes an attempt whose work went on outside. Exactly one of Outcome and Err is set.
type CompleteRequest struct {
	Namespace, Token string
	Outcome          *workgraph.Outcome
	Err              *workgraph.Error
	By               string
}

// CompleteAttempt ends the wait of a visit for its completion and returns the run's id. The same completion
// again does nothing.
func (h *Handler) CompleteAttempt(ctx context.Context, req CompleteRequest) (string, error) {
	token, err := h.tokens.Parse(req.Namespace, req.Token)
	if err != nil {
		return "", err
	}
	if req.Outcome != nil {
		for i, v := range req.Outcome.Values {
			if err := h.checkPayload(fmt.Sprintf("completed.values[%d]", i), v); err != nil {
				return "", err
			}
			req.Outcome.Values[i] = compact(v)
		}
	}
	row, err := h.journal.Head(ctx, token.Namespace, token.RunID)
	if err != nil {
		return "", err
	}
	if same, err := h.repeatsCompletion(ctx, row, token, req); err != nil || same {
		return row.ID, err
	}
	enqueued, err := h.enqueue(ctx, journal.EnqueueRequest{Open: openStates(),
		Command: journal.Command{Namespace: token.Namespace, RunID: token.RunID, Kind: journal.CommandCompletion, Key: token.Name()}},
		&record.Payload{Ref: token.Ref(), Attempt: token.Attempt, Outcome: req.Outcome, Err: req.Err, By: req.By})
	if err != nil {
		return "", refusedCommand(err)
	}
	if !enqueued.New { // another request was faster
		if _, err := h.repeatsCompletion(ctx, enqueued.Run, token, req); err != nil {
			return "", err
		}
		return row.ID, nil
	}
	_, err = h.applied(ctx, token.Namespace, token.RunID, journal.CommandCompletion, token.Name())
	return row.ID, err
}

// repeatsCompletion reports whether the attempt was completed before with the same result. The error is the
// refusal of any other completion.
func (h *Handler) repeatsCompletion(ctx context.Context, row journal.Run, token attempttoken.Token, end CompleteRequest) (bool, error) {
	gone := errs.New(errs.FailedPrecondition, ReasonAttemptNotWaiting, "%s of run %q no longer waits for the completion of this attempt", token.Ref(), row.ID)
	m, unread, err := h.journal.FindCommand(ctx, row.Namespace, row.ID, journal.CommandCompletion, token.Name(), true)
	if err != nil {
		return false, err
	}
	if unread {
		l, err := record.DecodePayload(m.Body)
		if err != nil {
			return false, err
		}
		if sameOutcome(l.Outcome, end.Outcome) && sameError(l.Err, end.Err) {
			return true, nil
		}
		return false, gone.Hint("another completion came first")
	}
	if !row.State.Ended() {
		look, _, err := h.Inspect(ctx, row.Namespace, row.ID)
		if err != nil {
			return false, err
		}
		open := false
		look(func(s *workgraph.State) {
			s.Waits(func(w workgraph.WaitInfo) bool {
				open = w.Ref == token.Ref() && w.Attempt == token.Attempt && w.Kind == workgraph.WaitCompletion
				return !open
			})
			for _, start := range s.Outstanding() { // the outside work may end before the call that began it
				open = open || start.Ref == token.Ref() && start.Attempt == token.Attempt
			}
		})
		if open {
			return false, nil
		}
	}
	same := false
	found, err := h.findEvent(ctx, row, func(d *record.Durable) bool {
		if d.Kind != workgraph.CompletionReceived || d.Ref != token.Ref() || d.Attempt != token.Attempt && d.Attempt != 0 {
			return false
		}
		same = sameOutcome(d.Outcome, end.Outcome) && sameError(d.Error, end.Err)
		return true
	})
	switch {
	case err != nil:
		return false, err
	case same:
		return true, nil
	case found:
		return false, gone.Hint("another completion came first, or its timeout has passed")
	case row.State.Ended():
		return false, gone.Hint("the run has ended")
	}
	return false, gone.Hint("its visit has ended")
}
