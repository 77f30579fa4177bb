package a2a

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// resultID names the one artifact of a task: the result of its run.
	resultID = "result"
	// maxHistory bounds the messages of a task's history, and maxQuestions what is read of its questions.
	maxHistory, maxQuestions = 100, 100
	// maxTurns bounds the messages among which that of a workflow's run is looked for.
	maxTurns = 1000
	maxID    = 64
)

// task is a run that a message to a thread has started.
type task struct {
	*Server
	run *executorv1.Run
	// contextID is the key of the thread, or its id if it has none.
	contextID string
	// open are the questions of the run and its descendants that wait, newest first.
	open []*executorv1.Interrupt
	// answered is the question that this request has answered. Until the run has taken the answer, it is
	// told no more.
	answered string
}

// contextOf is the context of a thread.
func contextOf(th *executorv1.Thread) string {
	if th.GetKey() != "" {
		return th.GetKey()
	}
	return th.GetId()
}

// find returns the task of an id. The tasks of another agent than that of the path are not found.
func (h handler) find(ctx context.Context, id spec.TaskID) (*task, error) {
	if err := h.known(ctx); err != nil {
		return nil, err
	}
	missing := func(err error) error {
		return h.faultAs(spec.ErrTaskNotFound, errs.New(errs.NotFound, reasonTaskNotFound, "there is no task %q here", errs.Clip(string(id), maxID)).With(err))
	}
	if id == "" || len(id) > maxID {
		return nil, missing(nil)
	}
	run, err := h.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: string(id)})
	switch {
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.InvalidArgument):
		return nil, missing(err)
	case err != nil:
		return nil, h.fail(err)
	case run.GetThreadId() == "", run.GetParentRunId() != "":
		return nil, missing(nil)
	}
	t := &task{Server: h.Server, run: run, contextID: run.GetThreadId()}
	th, err := h.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: run.GetThreadId()})
	switch {
	case errs.Is(err, errs.NotFound): // threads that are not named are kept for an hour
	case err != nil:
		return nil, h.fail(err)
	case !speaks(th, requestOf(ctx).agent):
		return nil, missing(nil)
	default:
		t.contextID = contextOf(th)
	}
	if err := t.questions(ctx); err != nil {
		return nil, h.fail(err)
	}
	return t, nil
}

// speaks reports whether a thread is one of the agent of a path.
func speaks(th *executorv1.Thread, agent string) bool {
	return th.GetAgent() != "" && (agent == "" || slices.Contains(names(agent), th.GetAgent()))
}

func ended(r *executorv1.Run) bool { return r.GetEndTime() != nil }

// look reads how the run stands now.
func (t *task) look(ctx context.Context) (err error) {
	run, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: t.run.GetId()})
	if err != nil {
		return err
	}
	t.run = run
	return t.questions(ctx)
}

// questions reads the open questions of the run.
func (t *task) questions(ctx context.Context) error {
	t.open = nil
	if ended(t.run) || t.run.GetOpenInterrupts() == 0 {
		return nil
	}
	r, err := t.Executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: t.run.GetId(), PageSize: maxQuestions})
	if err != nil {
		return err
	}
	for _, q := range r.GetInterrupts() {
		if q.GetId() != t.answered {
			t.open = append(t.open, q)
		}
	}
	return nil
}

// status is the state of the run, as the protocol has it.
func (t *task) status() spec.TaskStatus {
	at := t.run.GetUpdateTime().AsTime()
	if ended(t.run) {
		at = t.run.GetEndTime().AsTime()
	}
	s := spec.TaskStatus{State: stateOf(t.run.GetState()), Timestamp: &at}
	if len(t.open) > 0 && !ended(t.run) && !slices.Contains(t.run.GetPendingCommands(), "ANSWER") {
		q := t.open[0]
		asked := q.GetCreateTime().AsTime()
		s.State, s.Message, s.Timestamp = spec.TaskStateInputRequired, t.asks(q), &asked
		return s
	}
	switch {
	case t.run.GetState() == executorv1.RunState_RUN_STATE_FAILED:
		e := t.run.GetError()
		s.Message = t.says("failed", spec.NewTextPart(e.GetMessage()), spec.NewDataPart(map[string]any{
			"reason": e.GetReason(), "type": e.GetType().String(), "nodeId": e.GetNodeId(),
		}))
	case stands(t.run):
		s.Message = t.says("paused", spec.NewTextPart("The run stands still until somebody resumes it: "+t.run.GetStateReason()+"."))
	}
	return s
}

// stateOf maps the states of runs to those of tasks.
func stateOf(s executorv1.RunState) spec.TaskState {
	switch s {
	case executorv1.RunState_RUN_STATE_PENDING:
		return spec.TaskStateSubmitted
	case executorv1.RunState_RUN_STATE_COMPLETED:
		return spec.TaskStateCompleted
	case executorv1.RunState_RUN_STATE_FAILED:
		return spec.TaskStateFailed
	case executorv1.RunState_RUN_STATE_CANCELED:
		return spec.TaskStateCanceled
	}
	return spec.TaskStateWorking
}

// stands reports whether a run stands still until somebody does something. Two pauses end by themselves.
func stands(r *executorv1.Run) bool {
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_QUARANTINED:
		return true
	case executorv1.RunState_RUN_STATE_PAUSED:
		return r.GetStateReason() != "BUDGET_UNSETTLED" && r.GetStateReason() != "CAP_REACHED"
	}
	return false
}

// says is a message of the agent.
func (t *task) says(id string, parts ...*spec.Part) *spec.Message {
	return &spec.Message{ID: t.run.GetId() + "/" + id, Role: spec.MessageRoleAgent, TaskID: spec.TaskID(t.run.GetId()), ContextID: t.contextID, Parts: parts}
}

// asks is a question: its text, and data that say how it is answered.
func (t *task) asks(q *executorv1.Interrupt) *spec.Message {
	about := map[string]any{"interruptId": q.GetId(), "kind": "question"}
	if len(q.GetSchema().GetJson()) > 0 {
		about["schema"] = json.RawMessage(q.GetSchema().GetJson())
	}
	switch {
	case len(q.GetApprove().GetJson()) > 0:
		about["kind"], about["approve"], about["approveHash"] = "approval", json.RawMessage(q.GetApprove().GetJson()), q.GetApproveHash()
		about["answerWith"] = map[string]any{"interruptId": q.GetId(), "approve": true, "approveHash": q.GetApproveHash()}
	case !q.GetOfAgent():
		about["answerWith"] = map[string]any{"interruptId": q.GetId(), "answer": nil}
	}
	if q.GetExpireTime() != nil {
		about["expireTime"] = q.GetExpireTime().AsTime().Format(time.RFC3339)
	}
	m := t.says(q.GetId(), spec.NewTextPart(plainText(q.GetPrompt().GetJson())), spec.NewDataPart(about))
	return m
}

// task is the whole task, which is the answer to a request. Its history has the last length messages.
func (t *task) task(ctx context.Context, length *int) (*spec.Task, error) {
	out, err := t.made(ctx, length)
	if err == nil {
		err = requestOf(ctx).memory.tell(ctx, sizeOf(out))
	}
	return out, err
}

// made is a task that is told within another answer, which counts its memory.
func (t *task) made(ctx context.Context, length *int) (*spec.Task, error) {
	if err := requestOf(ctx).memory.read(ctx, proto.Size(t.run)); err != nil {
		return nil, err
	}
	out := &spec.Task{
		ID: spec.TaskID(t.run.GetId()), ContextID: t.contextID, Status: t.status(), Artifacts: t.artifacts(),
		Metadata: map[string]any{"runId": t.run.GetId(), "threadId": t.run.GetThreadId()},
	}
	most := maxHistory
	if length != nil {
		if *length < 0 {
			return nil, invalid("historyLength", "HISTORY_LENGTH_INVALID", "historyLength is %d, and must not be negative", *length)
		}
		most = min(most, *length)
	}
	if most == 0 {
		return out, nil
	}
	all, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	out.History = slices.Clone(all[max(0, len(all)-most):]) // the others are not to be kept
	return out, nil
}

// artifacts is the result of the run, if there is one.
func (t *task) artifacts() []*spec.Artifact {
	raw := t.run.GetResult().GetJson()
	if t.run.GetState() != executorv1.RunState_RUN_STATE_COMPLETED || len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return []*spec.Artifact{{ID: resultID, Name: resultID, Parts: spec.ContentParts{part(raw)}}}
}

// part is a JSON value: a text, or data.
func part(raw []byte) *spec.Part {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return spec.NewTextPart(text)
	}
	return spec.NewDataPart(json.RawMessage(raw))
}

// history is what was said in the task: the message that started it, and its questions with their answers.
func (t *task) history(ctx context.Context) ([]*spec.Message, error) {
	var out []*spec.Message
	user := func(id string, raw []byte) {
		m := t.says(id, part(raw))
		m.Role = spec.MessageRoleUser
		out = append(out, m)
	}
	raw, err := t.message(ctx)
	if err != nil {
		return nil, err
	}
	if len(raw) > 0 {
		user("message", raw)
	}
	r, err := t.Executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: t.run.GetId(), PageSize: maxQuestions, States: []executorv1.InterruptState{
		executorv1.InterruptState_INTERRUPT_STATE_OPEN, executorv1.InterruptState_INTERRUPT_STATE_ANSWERED,
		executorv1.InterruptState_INTERRUPT_STATE_EXPIRED, executorv1.InterruptState_INTERRUPT_STATE_CANCELED,
	}})
	if err != nil {
		return nil, err
	}
	if err := requestOf(ctx).memory.read(ctx, proto.Size(t.run)+proto.Size(r)); err != nil {
		return nil, err
	}
	for _, q := range slices.Backward(r.GetInterrupts()) { // they are listed newest first
		out = append(out, t.asks(q))
		switch {
		case q.GetState() != executorv1.InterruptState_INTERRUPT_STATE_ANSWERED:
		case q.GetDecision() != executorv1.Decision_DECISION_UNSPECIFIED:
			user(q.GetId()+"/answer", []byte(map[bool]string{true: `{"approve": true}`, false: `{"approve": false}`}[q.GetDecision() == executorv1.Decision_DECISION_APPROVED]))
		case len(q.GetAnswer().GetJson()) > 0:
			user(q.GetId()+"/answer", q.GetAnswer().GetJson())
		}
	}
	return out, nil
}

// message is what started the run. Runs of workflows have no input of their own: it is looked for among the
// first messages of the thread.
func (t *task) message(ctx context.Context) ([]byte, error) {
	if p := t.run.GetNamed()["user_input"]; p != nil {
		return p.GetJson(), nil
	}
	turns, err := t.Threads.ListTurns(ctx, &executorv1.ListTurnsRequest{ThreadId: t.run.GetThreadId(), PageSize: maxTurns})
	if errs.Is(err, errs.NotFound) {
		return nil, nil // the thread is not kept any more
	}
	if err != nil {
		return nil, err
	}
	if err := requestOf(ctx).memory.read(ctx, proto.Size(t.run)+proto.Size(turns)); err != nil {
		return nil, err
	}
	for _, turn := range turns.GetTurns() {
		if turn.GetRunId() == t.run.GetId() {
			return turn.GetContent().GetJson(), nil
		}
	}
	return nil, nil
}

// plainText is a JSON text without its quotes, and other JSON as it is.
func plainText(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
