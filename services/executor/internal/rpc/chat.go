package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/lru"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/chat"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// workflowAgent begins the agent of a thread whose turns a workflow takes, botAgent that of the
	// chat of a bot; the id of the trigger follows.
	workflowAgent, botAgent = "workflow/", "telegram/"
	// fromTelegram begins the principal of a turn that a user of Telegram wrote. Its message is the
	// event.
	fromTelegram = "telegram:"
	// inputTask is the input by which a team is told what to do.
	inputTask = "task"
	// reasonNoChat is the reason of a thread whose workflow no chat starts.
	reasonNoChat = "WORKFLOW_WITHOUT_CHAT"
)

// Chats is what turns of workflows need beside runs. All are required.
type Chats struct {
	Threads   thread.Store
	Conductor *thread.Conductor
	Bounds    thread.Bounds
	Triggers  *trigger.Controller
	// Say sends a sentence to a chat of a bot, without a promise.
	Say func(ctx context.Context, bot, chat, text string)

	mu sync.Mutex
	// refused are turns whose senders were told that they are no answers, or that they failed. Several
	// may look at one at once.
	refused *lru.Cache[string, bool]
}

// maxRefused is how many turns are remembered as refused.
const maxRefused = 1000

// first reports whether a turn is refused here for the first time.
func (c *Chats) first(t thread.Turn) bool {
	key := t.Thread + "/" + strconv.FormatInt(t.Number, 10)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, told := c.refused.Get(key)
	c.refused.Put(key, true, 1)
	return !told
}

// Converse lets workflows take turns of threads.
func (s *Server) Converse(c *Chats) {
	c.refused = lru.New[string, bool](maxRefused)
	s.chats = c
}

// chatTrigger is the trigger by which a chat starts the workflow that a reference stands for.
func (s *Server) chatTrigger(ctx context.Context, namespace, ref string) (workflow.Trigger, error) {
	if s.catalog == nil {
		return workflow.Trigger{}, errs.New(errs.FailedPrecondition, reasonNoCatalog, "this executor reaches no registry, so it knows no workflows by name").Hint("set upstream.registry")
	}
	v, err := TriggerCatalog{s.catalog}.Version(ctx, namespace, ref)
	if err != nil {
		return workflow.Trigger{}, err
	}
	for _, x := range v.Triggers {
		if x.Type == workflow.ChatTrigger {
			return x, nil
		}
	}
	return workflow.Trigger{}, errs.New(errs.FailedPrecondition, reasonNoChat, "no chat starts version %d of workflow %q", v.Number, v.Workflow).Hint("write `triggers: [chat]` into the workflow")
}

// refusesAgent returns the error of an agent that takes no turns. One that cannot be looked up is not
// refused.
func (s *ThreadServer) refusesAgent(ctx context.Context, agent string) error {
	ref, ok := strings.CutPrefix(agent, workflowAgent)
	if !ok || s.workflows == nil {
		return s.unknown.refuses(ctx, agent)
	}
	err := s.workflows.ChatOf(ctx, grpckit.Namespace(ctx), ref)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.FailedPrecondition) || errs.Is(err, errs.InvalidArgument) {
		return err
	}
	return nil
}

// ChatOf reports why no chat starts a workflow.
func (s *Server) ChatOf(ctx context.Context, namespace, ref string) error {
	_, err := s.chatTrigger(ctx, namespace, ref)
	return err
}

// workflowTurn is the start of a turn that a workflow takes.
func (s Conversing) workflowTurn(ctx context.Context, th thread.Thread, t thread.Turn, ref string) (command.StartRequest, error) {
	var none command.StartRequest
	if s.catalog == nil {
		return none, s.ChatOf(ctx, th.Namespace, ref)
	}
	r, err := s.catalog.Resolve(ctx, th.Namespace, ref, cmp.Or(th.UserID, th.ID))
	if err != nil {
		return none, err
	}
	x, err := s.chatTrigger(ctx, th.Namespace, r.GetRef())
	if err != nil {
		return none, err
	}
	event, err := chatEvent(&th, t.Message)
	if err != nil {
		return none, err
	}
	req, err := s.turnOf(th, t, r, &x, event, textOf(t.Message))
	if err != nil || s.chats == nil {
		return req, err
	}
	name, _, _ := strings.Cut(r.GetRef(), "@")
	on, ok, err := s.chats.Triggers.Chat(ctx, th.Namespace, name)
	if ok {
		req.Lineage.Origin = &record.Origin{Trigger: on.ID}
	}
	return req, err
}

// chatEvent is what a chat trigger is told of a message.
func chatEvent(th *thread.Thread, message json.RawMessage) (json.RawMessage, error) {
	b, err := json.Marshal(map[string]any{"message": message, "thread_id": th.ID, "user_id": th.UserID, "chat_id": th.ChatID})
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return b, nil
}

// Hear takes a message for a thread whose turns a workflow takes. If the chat trigger of the workflow is
// active, the message is a delivery of it.
func (s *Server) Hear(ctx context.Context, th thread.Thread, t thread.Turn, once thread.Request, b thread.Bounds) (thread.Turn, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(th.Agent, workflowAgent), "@")
	x, ok, err := s.chats.Triggers.Chat(ctx, th.Namespace, name)
	switch {
	case err != nil:
		return t, err
	case !ok, b.Refused != nil: // a repeated request is not refused
		return s.take(ctx, t, once, b)
	}
	event, err := chatEvent(&th, t.Message)
	switch {
	case err != nil:
		return t, err
	case len(event) > trigger.MaxEvent: // it may still be the answer to a question
		return s.take(ctx, t, once, b)
	}
	var took thread.Turn
	_, err = s.chats.Triggers.Hear(ctx, trigger.Event{
		Trigger: x.Key, ID: trigger.ThreadEvent(th.ID, cmp.Or(once.ID, ids.New("msg"))), Body: event, At: t.CreateTime,
		Details: trigger.Details{User: th.UserID, Chat: th.ChatID, Thread: th.ID, Principal: t.Principal, Approves: t.AnswersAny, Request: once.ID, BodyHash: once.BodyHash},
	}, func(ctx context.Context, d *trigger.Delivery) (string, error) {
		first := once // which may be another one than that of the delivery, and is refused then
		if first.ID == "" {
			first = turnRequest(d)
		}
		queued, err := s.take(ctx, t, first, b)
		if err != nil {
			return "", err
		}
		took = queued
		return runOf(&took)
	})
	if took.Number > 0 {
		return took, nil // also if it has failed, which the turn tells
	}
	if r := errs.ReasonOf(err); r == trigger.ReasonNotActive || r == trigger.ReasonNotFound {
		return s.take(ctx, t, once, b) // it was turned off meanwhile
	}
	return t, err
}

// turnRequest is the request by which the message of a delivery becomes one turn. That of a caller stays the
// caller's, also if the trigger is turned on or off between two tries.
func turnRequest(d *trigger.Delivery) thread.Request {
	if d.Request != "" {
		return thread.Request{Method: methodAppend, ID: d.Request, BodyHash: d.BodyHash}
	}
	return thread.Request{Method: "Chat", ID: d.ID, BodyHash: d.Trigger}
}

// take queues a turn and gives it to its agent, if that can take it now. What cannot be done now is done
// later.
func (s *Server) take(ctx context.Context, t thread.Turn, once thread.Request, b thread.Bounds) (thread.Turn, error) {
	t, err := s.chats.Threads.QueueTurn(ctx, t, once, b)
	if err != nil {
		return t, err
	}
	s.chats.Conductor.Try(ctx, t.Namespace, t.Thread)
	if now, err := s.chats.Threads.Turn(ctx, t.Namespace, t.Thread, t.Number); err == nil {
		t = now
	}
	return t, nil
}

// runOf is the run that a turn starts, or whose question it answers.
func runOf(t *thread.Turn) (string, error) {
	switch {
	case t.State == thread.TurnFailed:
		return "", errs.New(errs.FailedPrecondition, trigger.ReasonInvalid, "%s", t.Error)
	case t.InterruptID != "": // it answers, or has answered
		return cmp.Or(t.AskedBy, t.RunID), nil
	}
	return t.RunID, nil
}

// startChat carries a delivery of a chat out whose caller has died, or that is a repetition. It returns the
// run.
func (s Triggered) startChat(ctx context.Context, t *trigger.Trigger, d *trigger.Delivery) (string, error) {
	var e struct {
		Message json.RawMessage `json:"message"`
		Thread  string          `json:"thread_id"`
	}
	if err := json.Unmarshal(d.Event, &e); err != nil {
		return "", errs.New(errs.InvalidArgument, trigger.ReasonInvalid, "the event is no message of a chat")
	}
	th, err := s.chats.Threads.Thread(ctx, t.Namespace, e.Thread)
	if err != nil {
		return "", err
	}
	if name, _, _ := strings.Cut(th.Agent, "@"); name != workflowAgent+t.Workflow {
		return "", errs.New(errs.FailedPrecondition, trigger.ReasonInvalid, "the turns of thread %s are taken by %q now", th.ID, th.Agent)
	}
	turn, err := s.take(ctx, thread.Turn{
		Namespace: t.Namespace, Thread: th.ID, RunID: ids.New(command.IDPrefix), Message: e.Message, Principal: d.Principal, AnswersAny: d.Approves, CreateTime: dbkit.Now(),
	}, turnRequest(d), s.chats.Bounds)
	if err != nil {
		return "", err
	}
	return runOf(&turn)
}

// botTurn is the start of a turn that a user of Telegram wrote.
func (s Conversing) botTurn(ctx context.Context, th thread.Thread, t thread.Turn, id string) (command.StartRequest, error) {
	var none command.StartRequest
	tr, err := s.chats.Triggers.Get(ctx, trigger.Key{Namespace: th.Namespace, ID: id})
	switch {
	case err != nil:
		return none, err
	case tr.State != trigger.Active:
		return none, errs.New(errs.FailedPrecondition, trigger.ReasonNotActive, "the trigger is not active: %s", tr.Reason)
	case s.catalog == nil:
		return none, errs.New(errs.FailedPrecondition, reasonNoCatalog, "this executor reaches no registry")
	}
	r, err := s.catalog.Resolve(ctx, th.Namespace, tr.Ref(), t.Principal)
	if err != nil {
		return none, err
	}
	req, err := s.turnOf(th, t, r, &tr.Spec, t.Message, saidOf(t))
	req.UserID = t.Principal // many may write in one chat, and each has facts of their own
	req.Lineage.Origin = &record.Origin{Trigger: tr.ID}
	req.Webhooks = []webhook.Hook{{Chat: &webhook.Chat{Bot: tr.Spec.Bot, ID: th.ChatID}, Events: []webhook.Event{webhook.RunEnded, webhook.InterruptOpened, webhook.ChatSaid}}}
	return req, err
}

// turnOf is the start of a turn of a version with the inputs that its trigger makes of an event.
func (s Conversing) turnOf(th thread.Thread, t thread.Turn, r *registryv1.ResolveWorkflowResponse, x *workflow.Trigger, event json.RawMessage, text string) (command.StartRequest, error) {
	var req command.StartRequest
	inputs, err := x.Fill(event)
	if err != nil {
		return req, errs.New(errs.InvalidArgument, trigger.ReasonInvalid, "%v", err)
	}
	if toldTask(r.GetGraph(), x) {
		task, err := json.Marshal(text)
		if err != nil {
			return req, fmt.Errorf("encode message: %w", err)
		}
		inputs = map[string]json.RawMessage{inputTask: task}
	}
	g, err := chat.Graph(th.ID, text, r.GetRef(), inputs)
	if err != nil {
		return req, err
	}
	req = command.StartRequest{
		Namespace: th.Namespace, ThreadID: th.ID, Turn: t.Number, Principal: t.Principal, ID: t.RunID, UserID: th.UserID, ChatID: th.ChatID, Graph: g, Source: program.FromActor,
		Lineage: record.Lineage{TurnOf: r.GetRef()},
	}
	if r.BudgetNanoUsd != nil || r.BudgetTokens != nil {
		req.Budget = &workgraph.Budget{NanoUSD: r.BudgetNanoUsd, Tokens: r.BudgetTokens}
	}
	return req, nil
}

// toldTask reports whether a workflow is told what was written as its task, and nothing else: a team, as a
// whole, that names no other inputs, and of which its trigger says nothing either.
func toldTask(g *graphv1.Graph, x *workflow.Trigger) bool {
	if x.Inputs != nil || slices.ContainsFunc(x.Accepts, func(name string) bool { return name != inputTask }) {
		return false
	}
	return slices.ContainsFunc(g.GetNodes(), func(n *graphv1.Node) bool {
		// A team that is a step is told what the step says, and has no use for the inputs.
		return n.GetActor() == "team" && n.GetBind()["input"] != nil
	})
}

// textOf is a message as a text.
func textOf(message json.RawMessage) string {
	var s string
	if json.Unmarshal(message, &s) == nil {
		return s
	}
	return string(message)
}

// saidOf is what the sender of a turn wrote.
func saidOf(t thread.Turn) string {
	if !strings.HasPrefix(t.Principal, fromTelegram) {
		return textOf(t.Message)
	}
	var e struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(t.Message, &e) // it was written by botDelivery
	return e.Text
}

// answerOf is a message as the answer to a question. A text may be the number of a choice, for example.
func answerOf(t thread.Turn, q *journal.Interrupt) json.RawMessage {
	var s string
	told := strings.HasPrefix(t.Principal, fromTelegram)
	switch {
	case !told && json.Unmarshal(t.Message, &s) != nil:
		return t.Message
	case !q.OfAgent:
		return chat.Answer(q.Schema, saidOf(t))
	case told:
		b, _ := json.Marshal(saidOf(t)) // a text always has a form
		return b
	}
	return t.Message
}

// misfit tells the user of a bot that an answer does not fit the question.
func (s Conversing) misfit(ctx context.Context, t thread.Turn, q *journal.Interrupt) {
	if s.chats == nil || !strings.HasPrefix(t.Principal, fromTelegram) || !s.chats.first(t) {
		return
	}
	s.tell(ctx, t, "That is no answer to the question.\n"+chat.Question(q.Prompt, q.Schema))
}

// Failed implements thread.Runs. Others than users of a bot look at their turns, and of an answer Answer has
// told.
func (s Conversing) Failed(ctx context.Context, t thread.Turn) {
	if s.chats != nil && t.InterruptID == "" && strings.HasPrefix(t.Principal, fromTelegram) && s.chats.first(t) {
		s.tell(ctx, t, "Sorry, that did not work.")
	}
}

// tell says a sentence to the chat of a bot in which a turn was written.
func (s Conversing) tell(ctx context.Context, t thread.Turn, text string) {
	th, err := s.chats.Threads.Thread(ctx, t.Namespace, t.Thread)
	if err != nil {
		return
	}
	tr, err := s.chats.Triggers.Get(ctx, trigger.Key{Namespace: t.Namespace, ID: strings.TrimPrefix(th.Agent, botAgent)})
	if err != nil {
		return
	}
	s.chats.Say(ctx, tr.Spec.Bot, th.ChatID, text)
}

// botThread is the thread of a chat with the workflow of a trigger. It is made if it is not there.
func (s *Server) botThread(ctx context.Context, t *trigger.Trigger, user, chatID string) (thread.Thread, error) {
	key := "telegram:" + chatID + ":" + t.ID
	th, err := s.chats.Threads.ThreadByKey(ctx, t.Namespace, key)
	if errs.ReasonOf(err) != thread.ReasonNotFound {
		return th, err
	}
	th, err = s.chats.Threads.CreateThread(ctx, thread.Create{
		Thread: thread.Thread{ID: ids.New(thread.IDPrefix), Namespace: t.Namespace, Key: key, Agent: botAgent + t.ID, Title: "Telegram " + chatID, UserID: user, ChatID: chatID,
			Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()},
		Room: s.chats.Bounds.Room,
	})
	if errs.ReasonOf(err) == thread.ReasonExists {
		return s.chats.Threads.ThreadByKey(ctx, t.Namespace, key) // another executor was faster
	}
	return th, err
}

// startBot carries a delivery of a bot out: the message is a turn of the thread of its chat, which
// answers what its run asks or starts a run. It returns the run.
func (s Triggered) startBot(ctx context.Context, t *trigger.Trigger, d *trigger.Delivery) (string, error) {
	th, err := s.botThread(ctx, t, d.User, d.Chat)
	if err != nil {
		return "", err
	}
	// A repeated request is known by the run that the first one named, so that each try names another one.
	turn := thread.Turn{Namespace: t.Namespace, Thread: th.ID, RunID: ids.New(command.IDPrefix), Message: d.Event, Principal: d.User, AnswersAny: answersAny(d), CreateTime: dbkit.Now()}
	turn, err = s.take(ctx, turn, thread.Request{Method: "Telegram", ID: d.ID, BodyHash: t.ID}, s.chats.Bounds)
	if err != nil {
		return "", err
	}
	return runOf(&turn)
}

// answersAny reports whether a message to a bot may answer what needs the scope approve: whoever may write to
// the bot may, and who repeats the message by a key needs the scope.
func answersAny(d *trigger.Delivery) bool { return d.RepeatOf == "" || d.Approves }

// Asked reports whether a run of a trigger waits for an answer from a chat of a bot.
func (s *Server) Asked(ctx context.Context, t *trigger.Trigger, chatID string) (bool, error) {
	th, err := s.chats.Threads.ThreadByKey(ctx, t.Namespace, "telegram:"+chatID+":"+t.ID)
	if errs.ReasonOf(err) == thread.ReasonNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	line, err := s.chats.Threads.NextTurn(ctx, t.Namespace, th.ID)
	if err != nil {
		return false, err
	}
	for _, run := range slices.Compact(append(line.Runs, th.Holder)) {
		if run == "" {
			continue
		}
		id, err := s.reader.OldestQuestion(ctx, t.Namespace, run, false)
		if err != nil || id != "" {
			return id != "", err
		}
	}
	return false, nil
}
