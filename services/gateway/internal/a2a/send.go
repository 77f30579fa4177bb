package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

const (
	// maxParts bounds the parts of a message, maxMessageID its id, and maxContext the id of its context.
	maxParts, maxMessageID, maxContext = 100, 256, 256
	// turnPoll and maxTurnPoll are the pauses between looks at a message that waits for others.
	turnPoll, maxTurnPoll = 50 * time.Millisecond, time.Second

	threadPrefix = "thr_"
	// metaAgent names who is spoken to where the path does not.
	metaAgent = "agent"
)

// message is what a client sends.
type message struct {
	*spec.Message
	agent string
	// content is the message as an agent gets it.
	content []byte
	// data is the one part of data, if the message has no other part.
	data map[string]any
}

// sent sends a message, and returns the task that takes it. A message that was sent before has the task that
// it had then.
func (h handler) sent(ctx context.Context, req *spec.SendMessageRequest) (*task, error) {
	m, err := h.read(ctx, req)
	if err != nil {
		return nil, err
	}
	var th *executorv1.Thread
	var t *task
	if m.TaskID != "" {
		t, th, err = h.continued(ctx, m)
		if err != nil || t != nil {
			requestOf(ctx).held()
			return t, err
		}
	} else if th, err = h.thread(ctx, m); err != nil {
		return nil, err
	}
	turn, err := h.Threads.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: th.GetId(), Content: &graphv1.Payload{Json: m.content}, RequestId: m.id(ctx, "message")})
	requestOf(ctx).held()
	if err != nil {
		return nil, err
	}
	return h.taken(ctx, th, turn)
}

// read checks a message.
func (h handler) read(ctx context.Context, req *spec.SendMessageRequest) (*message, error) {
	if c := req.Config; c != nil {
		if c.PushConfig != nil {
			return nil, h.noPush()
		}
		if len(c.AcceptedOutputModes) > 0 && !slices.ContainsFunc(c.AcceptedOutputModes, func(mode string) bool {
			return mode == "*/*" || strings.HasPrefix(mode, "text") || mode == "application/json"
		}) {
			return nil, h.faultAs(spec.ErrUnsupportedContentType, errs.New(errs.InvalidArgument, "OUTPUT_MODE_UNSUPPORTED", "answers are text/plain or application/json"))
		}
	}
	m := &message{Message: req.Message, agent: requestOf(ctx).agent}
	switch {
	case m.Message == nil:
		return nil, invalid("message", "MESSAGE_MISSING", "message is missing")
	case m.ID == "" || len(m.ID) > maxMessageID:
		return nil, invalid("message.messageId", "MESSAGE_ID_INVALID", "messageId is needed, and has at most %d bytes: it makes the message repeatable", maxMessageID)
	case m.Role != spec.MessageRoleUser:
		return nil, invalid("message.role", "ROLE_INVALID", "the role is %.40q, and must be that of the user", m.Role.String())
	case len(m.ContextID) > maxContext:
		return nil, invalid("message.contextId", "CONTEXT_INVALID", "contextId has more than %d bytes", maxContext)
	case len(m.Parts) == 0 || len(m.Parts) > maxParts:
		return nil, invalid("message.parts", "PARTS_INVALID", "parts has %d entries, and must have 1 to %d", len(m.Parts), maxParts)
	case len(m.ReferenceTasks) > 0:
		return nil, invalid("message.referenceTaskIds", "REFERENCES_UNSUPPORTED", "referenceTaskIds is not read here: name the context in place of it")
	}
	if m.agent == "" {
		m.agent = named(m.Metadata, req.Metadata)
	}
	if len(m.agent) > maxName {
		return nil, invalid("metadata.agent", "AGENT_INVALID", "the name of the agent has more than %d bytes", maxName)
	}
	return m, h.contents(m)
}

// named is the agent that metadata name.
func named(all ...map[string]any) string {
	for _, meta := range all {
		if name, ok := meta[metaAgent].(string); ok {
			return name
		}
	}
	return ""
}

// contents reads the parts. One part of data is passed on as it is, and everything else as a text.
func (h handler) contents(m *message) (err error) {
	var texts []string
	for i, p := range m.Parts {
		var c spec.PartContent
		if p != nil {
			c = p.Content
		}
		switch c := c.(type) {
		case spec.Text:
			texts = append(texts, string(c))
		case spec.Data:
			if len(m.Parts) == 1 {
				m.data, _ = c.Value.(map[string]any)
				m.content, err = json.Marshal(c.Value)
				return err
			}
			raw, err := json.Marshal(c.Value)
			if err != nil {
				return err
			}
			texts = append(texts, string(raw))
		default:
			return h.faultAs(spec.ErrUnsupportedContentType, errs.New(errs.InvalidArgument, "PART_UNSUPPORTED", "part %d is no text and no data; files are not read here", i+1))
		}
	}
	m.content, err = json.Marshal(strings.Join(texts, "\n"))
	return err
}

// digest identifies a message. Clients choose the ids of their messages by themselves, so that an id means
// something only together with who sends it, to whom and where.
func (m *message) digest(ctx context.Context) string {
	h := sha256.New()
	for _, s := range []string{grpckit.PrincipalOf(ctx).String(), m.agent, m.ContextID, string(m.TaskID), m.ID} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// id is the id of a request that belongs to this message.
func (m *message) id(ctx context.Context, of string) string {
	return "a2a/" + m.digest(ctx) + "/" + of
}

// names are the actors that a name of an agent may stand for, in order.
func names(agent string) []string {
	if strings.HasPrefix(agent, agentPrefix) || strings.HasPrefix(agent, workflowPrefix) {
		return []string{agent}
	}
	return []string{agentPrefix + agent, workflowPrefix + agent}
}

// thread finds the thread of a context, or makes it. A context that a client names is kept until its thread
// is deleted, and another one for an hour after its last use.
func (h handler) thread(ctx context.Context, m *message) (*executorv1.Thread, error) {
	find := &executorv1.GetThreadRequest{ThreadId: m.ContextID}
	if !strings.HasPrefix(m.ContextID, threadPrefix) {
		find = &executorv1.GetThreadRequest{ThreadId: "-", Key: m.ContextID}
	}
	if m.ContextID != "" {
		th, err := h.Threads.GetThread(ctx, find)
		switch {
		case err == nil && !speaks(th, m.agent):
			return nil, invalid("message.contextId", "CONTEXT_OF_ANOTHER", "context %s is one of %s", errs.Clip(m.ContextID, maxContext), th.GetAgent())
		case err == nil:
			return th, nil
		case find.GetKey() == "" || !errs.Is(err, errs.NotFound):
			return nil, err
		}
	}
	if m.agent == "" {
		return nil, invalid("message.metadata.agent", "AGENT_MISSING", "nobody is named who answers: send to the address of an agent, or name one of the skills of the card in metadata.agent")
	}
	th := &executorv1.Thread{Key: find.GetKey(), Lifetime: executorv1.ThreadLifetime_THREAD_LIFETIME_CONVERSATION}
	if th.GetKey() == "" {
		th.Lifetime = executorv1.ThreadLifetime_THREAD_LIFETIME_EPHEMERAL
	}
	var err error
	for _, name := range names(m.agent) {
		th.Agent = name
		var made *executorv1.Thread
		made, err = h.Threads.CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: th, RequestId: m.id(ctx, "thread/"+name[:5])})
		switch reason := errs.ReasonOf(err); {
		case err == nil:
			return made, nil
		case reason == "THREAD_ALREADY_EXISTS": // another request was faster
			return h.Threads.GetThread(ctx, find)
		case reason == "THREAD_NOT_FOUND": // the message was sent before
			return nil, errs.New(errs.NotFound, reason, "the thread that this message began is not kept any more").
				Hint("send the message under another messageId to begin anew").With(err)
		case reason != "THREAD_AGENT_UNKNOWN" && !errs.Is(err, errs.NotFound):
			return nil, err
		}
	}
	return nil, errs.New(errs.NotFound, "AGENT_NOT_FOUND", "there is no agent and no workflow %q", errs.Clip(m.agent, maxName)).
		Hint("the card at " + CardPath + " lists agents and exposed workflows").With(err)
}

// continued sends a message to a task. It returns the thread if the message is to be appended to it.
func (h handler) continued(ctx context.Context, m *message) (*task, *executorv1.Thread, error) {
	t, err := h.find(ctx, m.TaskID)
	if err != nil {
		return nil, nil, err
	}
	th := &executorv1.Thread{Id: t.run.GetThreadId(), Key: t.contextID}
	if m.ContextID != "" && m.ContextID != t.contextID && m.ContextID != th.GetId() {
		return nil, nil, invalid("message.contextId", "CONTEXT_OF_ANOTHER", "task %s is one of context %s", t.run.GetId(), t.contextID)
	}
	if strings.HasPrefix(t.contextID, threadPrefix) {
		th.Key = ""
	}
	repeated, err := h.repeated(ctx, t, m)
	if err != nil || repeated {
		return t, nil, err
	}
	q, err := t.question(m)
	if err != nil {
		return nil, nil, err
	}
	if q.GetOfAgent() {
		return nil, th, nil
	}
	if err := h.answer(ctx, q, m); err != nil {
		return nil, nil, err
	}
	t.answered = q.GetId()
	return t, nil, t.look(ctx)
}

// question is what a message to a task answers: the question that it names, or the only one.
func (t *task) question(m *message) (*executorv1.Interrupt, error) {
	wanted, _ := m.data["interruptId"].(string)
	for _, q := range t.open {
		if q.GetId() == wanted || wanted == "" && len(t.open) == 1 {
			return q, nil
		}
	}
	switch {
	case ended(t.run):
		return nil, errs.New(errs.FailedPrecondition, "RUN_ENDED", "task %s has ended", t.run.GetId()).Hint("leave taskId out, and name context " + t.contextID)
	case len(t.open) == 0:
		return nil, errs.New(errs.FailedPrecondition, "TASK_WORKING", "task %s asks nothing", t.run.GetId()).
			Hint("leave taskId out, and name context " + t.contextID + ": the message is taken after the task")
	case wanted != "":
		return nil, invalid("interruptId", "INTERRUPT_NOT_FOUND", "task %s does not ask %.64q", t.run.GetId(), wanted)
	}
	var ids []string
	for _, q := range t.open[:min(len(t.open), 10)] {
		ids = append(ids, q.GetId())
	}
	return nil, invalid("interruptId", "SEVERAL_QUESTIONS", "task %s asks %d questions: name one as interruptId in a data part", t.run.GetId(), len(t.open)).
		Hint("they are " + strings.Join(ids, ", "))
}

// by is how the history of a run names a message as the one who answered. Its end tells messages of the same
// id apart.
func (m *message) by(ctx context.Context) string {
	return "a2a:" + errs.Clip(m.ID, 200) + "/" + m.digest(ctx)[:16]
}

// repeated reports whether a message has answered a question of a task before. Messages to agents have ids of
// their own at the thread, as long as a question is open.
func (h handler) repeated(ctx context.Context, t *task, m *message) (bool, error) {
	r, err := h.Executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: t.run.GetId(), PageSize: maxQuestions, States: []executorv1.InterruptState{executorv1.InterruptState_INTERRUPT_STATE_ANSWERED}})
	if err != nil {
		return false, err
	}
	for _, q := range r.GetInterrupts() {
		if q.GetBy() == m.by(ctx) || len(t.open) == 0 && q.GetOfAgent() && bytes.Equal(q.GetAnswer().GetJson(), m.content) {
			return true, nil
		}
	}
	return false, nil
}

// answer answers what no message answers: approvals, and questions of other actors than agents.
func (h handler) answer(ctx context.Context, q *executorv1.Interrupt, m *message) error {
	req := &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), By: m.by(ctx)}
	answer, given := m.data["answer"]
	if len(q.GetApprove().GetJson()) > 0 {
		yes, ok := m.data["approve"].(bool)
		if !ok {
			return invalid("message.parts", "DECISION_MISSING", "interrupt %s is an approval: answer with one data part that has approve, true or false", q.GetId())
		}
		req.Decision = executorv1.Decision_DECISION_REJECTED
		if yes {
			req.Decision = executorv1.Decision_DECISION_APPROVED
		}
		req.ApproveHash, _ = m.data["approveHash"].(string)
	} else if _, named := m.data["interruptId"]; !named || !given {
		req.Answer = &graphv1.Payload{Json: m.content}
	}
	if given && req.Answer == nil {
		raw, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		req.Answer = &graphv1.Payload{Json: raw}
	}
	_, err := h.Executor.AnswerInterrupt(ctx, req)
	return err
}

// taken waits until a run has taken a message.
func (h handler) taken(ctx context.Context, th *executorv1.Thread, turn *executorv1.Turn) (_ *task, err error) {
	for pause := turnPoll; err == nil && turn.GetState() == executorv1.TurnState_TURN_STATE_QUEUED; pause = min(2*pause, maxTurnPoll) {
		if !sleep.For(ctx, pause) {
			return nil, errs.New(errs.DeadlineExceeded, "TURN_QUEUED", "the message waits for a run that is at work on thread %s", th.GetId()).
				Hint("send it again with the same messageId to go on waiting")
		}
		select {
		case <-h.Stopping(ctx):
			return nil, errStopping
		default:
		}
		if pause == maxTurnPoll {
			if err := h.blocked(ctx, th.GetId()); err != nil {
				return nil, err
			}
		}
		turn, err = h.Threads.GetTurn(ctx, &executorv1.GetTurnRequest{ThreadId: th.GetId(), Number: turn.GetNumber()})
	}
	if err != nil {
		return nil, err
	}
	if turn.GetState() == executorv1.TurnState_TURN_STATE_FAILED {
		return nil, errs.New(errs.FailedPrecondition, "TURN_FAILED", "no run could take the message: %s", turn.GetError())
	}
	// The run is read once it is watched, so that nothing is missed of what its agent says.
	return &task{Server: h.Server, run: &executorv1.Run{Id: turn.GetRunId()}, contextID: contextOf(th), answered: turn.GetInterruptId()}, nil
}

// blocked is the error of a message that waits for a run which stands until somebody does something.
func (h handler) blocked(ctx context.Context, thread string) error {
	th, err := h.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: thread})
	if err != nil || th.GetRunId() == "" {
		return err
	}
	r, err := h.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: th.GetRunId()})
	switch {
	case err != nil:
		return err
	case stands(r):
		return errs.New(errs.FailedPrecondition, "RUN_PAUSED", "the message is queued: run %s is paused: %s", r.GetId(), r.GetStateReason()).
			Hint("`epigraph runs resume " + r.GetId() + "` lets it go on")
	case r.GetOpenInterrupts() > 0:
		return errs.New(errs.FailedPrecondition, "RUN_ASKS", "the message is queued: run %s asks what no message answers", r.GetId()).
			Hint("tasks/get of " + r.GetId() + " has the question; name the task to answer it")
	}
	return nil
}
