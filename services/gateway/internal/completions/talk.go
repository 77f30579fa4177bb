package completions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// talk is one request on its way to an answer.
type talk struct {
	*Handler
	*request
	once   string
	thread *executorv1.Thread
	// model is who answers.
	model string
	run   string
	// before is what the run had used before it took the message, if it had begun.
	before usage
	// own says of runs whether their text is the agent's own, and not that of its branches or tools.
	own map[string]bool
	// speaker is the attempt that said something last.
	speaker string
	// seen is the last event of the run that is not to be looked at again.
	seen int64
}

// answer is what the agent says, or asks.
type answer struct {
	text      string
	usage     usage
	interrupt string
}

const (
	reasonNoModel = "model_not_found"
	threadPrefix  = "thr_"
)

// begin finds the thread of the request, or makes it.
func (t *talk) begin(ctx context.Context, named string) error {
	find := &executorv1.GetThreadRequest{ThreadId: named}
	if named != "" && !strings.HasPrefix(named, threadPrefix) {
		find = &executorv1.GetThreadRequest{ThreadId: "-", Key: named}
	}
	var err error
	if named != "" {
		t.thread, err = t.Threads.GetThread(ctx, find)
		if err != nil && (find.GetKey() == "" || !errs.Is(err, errs.NotFound)) {
			return err
		}
	}
	if t.thread == nil {
		if err := t.make(ctx, find.GetKey()); err != nil {
			return err
		}
	}
	if t.User != "" && t.User != t.thread.GetUserId() { // also of a thread that somebody else has just made
		return fault("user", "THREAD_OF_ANOTHER", "thread %s has the user %q", t.thread.GetId(), t.thread.GetUserId())
	}
	t.model = t.thread.GetAgent()
	if id := t.thread.GetRunId(); id != "" && t.once == "" {
		// It may go on with this message, and what it used and asked before belongs to other answers. A
		// request with a key may be a repetition, whose answer is what was asked.
		if r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id}); err == nil && r.GetEndTime() == nil {
			t.before, t.seen = usageOf(r), r.GetLastSeq()
		}
	}
	return nil
}

// make makes the thread, with what was said before. A name that is no actor's is that of an agent, or
// else of a workflow.
func (t *talk) make(ctx context.Context, key string) (err error) {
	names := []string{t.Model}
	if !strings.HasPrefix(t.Model, agentPrefix) && !strings.HasPrefix(t.Model, workflowPrefix) {
		names = []string{agentPrefix + t.Model, workflowPrefix + t.Model}
	}
	for _, name := range names {
		th := &executorv1.Thread{Agent: name, Key: key, UserId: t.User, Lifetime: executorv1.ThreadLifetime_THREAD_LIFETIME_CONVERSATION}
		if key == "" {
			th.Lifetime = executorv1.ThreadLifetime_THREAD_LIFETIME_EPHEMERAL
		}
		if len(t.history()) == 0 {
			t.thread, err = t.Threads.CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: th, RequestId: t.id("thread")})
		} else {
			var value []byte
			if value, err = t.value(); err != nil {
				return err
			}
			t.thread, err = t.Threads.ImportThread(ctx, &executorv1.ImportThreadRequest{Value: &graphv1.Payload{Json: value}, Thread: th, RequestId: t.id("thread")})
		}
		switch errs.ReasonOf(err) {
		case "":
			return err
		case "THREAD_ALREADY_EXISTS": // somebody else was faster
			t.thread, err = t.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: "-", Key: key})
			return err
		case "WORKFLOW_WITHOUT_CHAT":
			return err
		case "THREAD_AGENT_UNKNOWN":
		default:
			if !errs.Is(err, errs.NotFound) {
				return err
			}
		}
	}
	return errs.New(errs.NotFound, reasonNoModel, "there is no agent and no workflow %q", errs.Clip(t.Model, 200)).Violate("model", reasonNoModel, "names nobody who answers").
		Hint("GET /v1/models lists agents and exposed workflows").With(err)
}

// id is the id of a request that belongs to this one.
func (t *talk) id(of string) string {
	if t.once == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(t.once))
	return hex.EncodeToString(sum[:]) + "/" + of
}

// send sends the message.
func (t *talk) send(ctx context.Context) (*executorv1.Turn, error) {
	content, err := json.Marshal(t.last())
	if err != nil {
		return nil, err
	}
	return t.Threads.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: t.thread.GetId(), Content: &graphv1.Payload{Json: content}, RequestId: t.id("message")})
}

// taken waits until a run has taken the message.
func (t *talk) taken(ctx context.Context, turn *executorv1.Turn) (err error) {
	for pause := turnPoll; err == nil && turn.GetState() == executorv1.TurnState_TURN_STATE_QUEUED; pause = min(2*pause, maxTurnPoll) {
		if !sleep.For(ctx, pause) {
			return errs.New(errs.DeadlineExceeded, "TURN_QUEUED", "the message waits for a run that is at work on thread %s", t.thread.GetId()).
				Hint("`epigraph threads show " + t.thread.GetId() + "` shows what was said")
		}
		if pause == maxTurnPoll {
			if err := t.held(ctx); err != nil {
				return err
			}
		}
		turn, err = t.Threads.GetTurn(ctx, &executorv1.GetTurnRequest{ThreadId: t.thread.GetId(), Number: turn.GetNumber()})
	}
	if err != nil {
		return err
	}
	if turn.GetState() == executorv1.TurnState_TURN_STATE_FAILED {
		return errs.New(errs.FailedPrecondition, "TURN_FAILED", "no run could take the message: %s", turn.GetError())
	}
	if t.run = turn.GetRunId(); t.run != t.thread.GetRunId() {
		t.before, t.seen = usage{}, 0
	}
	return nil
}

// held is the error of a message that waits for a run which stands until somebody does something.
func (t *talk) held(ctx context.Context) error {
	th, err := t.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: t.thread.GetId()})
	if err != nil || th.GetRunId() == "" {
		return err
	}
	r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: th.GetRunId()})
	switch {
	case err != nil:
		return err
	case r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && !passes(r.GetStateReason()):
		return isPaused(r)
	case r.GetOpenInterrupts() > 0:
		return errs.New(errs.FailedPrecondition, "RUN_ASKS", "the message is queued: run %s asks what no message answers", r.GetId()).
			Hint("GET /v1/interrupts?runId=" + r.GetId() + " lists the questions")
	}
	return nil
}

// answer waits until the run has ended or asks something. It gives pieces of what the agent says to
// write, and calls idle when nothing was said for a while.
func (t *talk) answer(ctx context.Context, write func(string) error, idle func() error) (*answer, error) {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan *executorv1.RunEvent)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		failed <- t.follow(watch, events)
	}()
	quiet := time.NewTicker(t.KeepAlive)
	defer quiet.Stop()
	for {
		select {
		case ev, more := <-events:
			if !more {
				if err := <-failed; err != nil {
					return nil, t.late(ctx, err)
				}
				return t.ended(ctx)
			}
			if t.isAnswer(ctx, ev) {
				if err := write(t.separator(ev) + ev.GetTokenDelta().GetText()); err != nil {
					return nil, err
				}
				quiet.Reset(t.KeepAlive)
			}
			if err := t.paused(ctx, ev); err != nil {
				return nil, err
			}
			if q, err := t.asked(ctx, ev); q != nil || err != nil {
				return q, err
			}
		case <-quiet.C:
			if err := idle(); err != nil {
				return nil, err
			}
		case <-t.Stopping(ctx):
			return nil, errs.New(errs.Unavailable, errs.ReasonStopping, "this server is stopping, and run %s goes on", t.run).
				Hint("GET /v1/runs/" + t.run + "?wait=60s waits for its result")
		}
	}
}

// follow passes the events of the run on until it ends.
func (t *talk) follow(ctx context.Context, to chan<- *executorv1.RunEvent) error {
	stream, err := t.Executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: t.run, AfterSeq: t.seen, IncludeDescendants: true})
	if err != nil {
		return err
	}
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case to <- ev:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// late says how things stand if the time of the request is over.
func (t *talk) late(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return errs.New(errs.DeadlineExceeded, "ANSWER_LATE", "run %s has not answered in %s, and goes on", t.run, maxAnswer).
		Hint("GET /v1/runs/" + t.run + ":explain says what it waits for").With(err)
}

// nodeReason is the node of an agent's run in which it decides. Its other nodes are actions.
const nodeReason = "reason"

// isAnswer reports whether an event is text that the agent says to the user. The agent is the run of
// the turn, or the run that this one waits for.
func (t *talk) isAnswer(ctx context.Context, ev *executorv1.RunEvent) bool {
	d := ev.GetTokenDelta()
	if d.GetText() == "" || d.GetKind() == executorv1.TextKind_TEXT_KIND_RAW {
		return false
	}
	id := ev.GetRunId()
	if id == t.run {
		return true
	}
	own, known := t.own[id]
	if !known {
		r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		if own = err == nil && r.GetParentRunId() == t.run; t.own == nil {
			t.own = map[string]bool{}
		}
		t.own[id] = own
	}
	return own && d.GetVisit().GetNodeId() == nodeReason
}

// separator is what keeps the text of an event apart from that of another attempt before it, which it
// remembers.
func (t *talk) separator(ev *executorv1.RunEvent) string {
	d, before := ev.GetTokenDelta(), t.speaker
	if t.speaker = fmt.Sprint(ev.GetRunId(), d.GetVisit(), d.GetAttempt()); before == "" || before == t.speaker {
		return ""
	}
	return "\n\n"
}

// passes reports whether a pause may end by itself within moments: while prices are asked for, and
// while calls of other runs hold the room of a cap.
func passes(reason string) bool { return reason == "BUDGET_UNSETTLED" || reason == "CAP_REACHED" }

// capPause is how long a run that a cap has stopped may take to go on by itself.
const capPause = 3 * time.Second

// paused is the error of a run that stands still until somebody does something.
func (t *talk) paused(ctx context.Context, ev *executorv1.RunEvent) error {
	p := ev.GetRunPaused()
	if p == nil || p.GetReason() == "BUDGET_UNSETTLED" {
		return nil
	}
	if passes(p.GetReason()) && !sleep.For(ctx, capPause) {
		return ctx.Err()
	}
	r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: ev.GetRunId()})
	if err != nil || r.GetState() != executorv1.RunState_RUN_STATE_PAUSED { // it has gone on since
		return err
	}
	return isPaused(r)
}

func isPaused(r *executorv1.Run) error {
	return errs.New(errs.FailedPrecondition, "RUN_PAUSED", "run %s is paused: %s", r.GetId(), r.GetStateReason()).
		Hint("`epigraph runs resume " + r.GetId() + "` lets it go on, and its thread then has the answer")
}

// asked is the question that an event opens, if it waits for an answer.
func (t *talk) asked(ctx context.Context, ev *executorv1.RunEvent) (*answer, error) {
	id := ev.GetInterruptOpened().GetInterruptId()
	if id == "" {
		return nil, nil //nolint:nilnil // there is no question
	}
	q, err := t.Executor.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: id})
	if err != nil || q.GetState() != executorv1.InterruptState_INTERRUPT_STATE_OPEN {
		return nil, err // or it was answered before
	}
	a := &answer{text: plainText(q.GetPrompt().GetJson()), interrupt: id}
	if !q.GetOfAgent() {
		a.text = strings.TrimSpace(a.text + "\n\n" + string(q.GetApprove().GetJson()))
		a.text += "\n\n(This waits for an answer to the interrupt " + id + ", which is not given by a message.)"
	}
	if r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: t.run}); err == nil {
		a.usage = usageOf(r).less(t.before)
	}
	return a, nil
}

// ended is the answer of a run that has ended.
func (t *talk) ended(ctx context.Context) (*answer, error) {
	r, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: t.run})
	if err != nil {
		return nil, err
	}
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED:
		return &answer{text: plainText(r.GetResult().GetJson()), usage: usageOf(r).less(t.before)}, nil
	case executorv1.RunState_RUN_STATE_FAILED:
		return nil, errs.New(errs.FailedPrecondition, r.GetError().GetReason(), "run %s failed: %s", t.run, r.GetError().GetMessage()).
			Hint("GET /v1/runs/" + t.run + ":explain says why")
	}
	return nil, errs.New(errs.FailedPrecondition, "RUN_CANCELED", "run %s was canceled", t.run)
}

func usageOf(r *executorv1.Run) usage {
	u := usage{Prompt: r.GetUsage().GetInputTokens(), Completion: r.GetUsage().GetOutputTokens()}
	u.Total = u.Prompt + u.Completion
	return u
}

func (u usage) less(b usage) usage {
	return usage{Prompt: max(0, u.Prompt-b.Prompt), Completion: max(0, u.Completion-b.Completion), Total: max(0, u.Total-b.Total)}
}

// plainText is a JSON text without its quotes, null as nothing, and other JSON as it is.
func plainText(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
