package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// statePosition is the key of the run's state that says which task the run follows.
const statePosition = "task"

// position is the task that a run follows.
type position struct {
	Agent   string `json:"agent"`
	Task    string `json:"task"`
	Context string `json:"context,omitempty"`
	// Conversation is what calls give as the context to go on with this one.
	Conversation string `json:"conversation,omitempty"`
	// Polls is how often the task was looked at in vain, for the length of the next pause.
	Polls int `json:"polls,omitempty"`
	// Told is how many bytes of the texts of artifacts those who watch the run know.
	Told int `json:"told,omitempty"`
	// Namespace is that of the run.
	Namespace string `json:"namespace,omitempty"`
}

const (
	// firstPoll and longestPoll bound the pause between two looks at a task. A pause of more than hold
	// is a timer of the run, which then holds no memory.
	firstPoll, longestPoll, hold = 250 * time.Millisecond, time.Minute, 5 * time.Second
	// enterWithin is how long a step waits for its turn before it comes back later.
	enterWithin = 2 * time.Second
	// progressEvery is the least time between two reports of a task's status.
	progressEvery = 100 * time.Millisecond
	// maxListed is how many tasks are looked through for one that a lost answer was about.
	maxListed = 20
)

// Parts describe the steps of the runs that this package asks for.
func (s *Agents) Parts() []actor.Spec {
	part := func(name, description string, effect workgraph.Effect, f workgraph.ActorFunc) actor.Spec {
		return actor.Spec{Name: name, Version: "1", Effect: effect, SeesPlace: true, Elsewhere: true, Internal: true, Actor: f,
			Schema: `{"type": "object", "additionalProperties": false}`, Description: description + " The actors a2a/AGENT use it."}
	}
	return []actor.Spec{
		part(actorSend, "Sends a message to a remote agent.", workgraph.Unsafe, s.send),
		part(actorFollow, "Follows a task of a remote agent until it ends or asks.", workgraph.Idempotent, s.follow),
		part(actorReply, "Sends an answer to a task of a remote agent.", workgraph.Unsafe, s.reply),
		part(actorResult, "Gives the result of a remote agent.", workgraph.Pure, result),
	}
}

// asked is the input of the run, and its agent.
func (s *Agents) asked(c *workgraph.Call) (r request, ag *agent, err error) {
	raw, ok := c.Var("input")
	var in struct {
		Named struct {
			Request *request `json:"request"`
		} `json:"named"`
	}
	if !ok || json.Unmarshal(raw, &in) != nil || in.Named.Request == nil {
		return r, nil, actor.BadArguments("this actor is for the runs that a2a/AGENT makes")
	}
	r = *in.Named.Request
	if ag = s.byName[r.Agent]; ag == nil {
		return r, nil, s.unknown(r.Agent)
	}
	return r, ag, nil
}

// at is the task that the run follows.
func at(c *workgraph.Call) (position, error) {
	raw, _ := c.Var("state")
	var st map[string]json.RawMessage
	var p position
	if json.Unmarshal(raw, &st) != nil || json.Unmarshal(st[statePosition], &p) != nil || p.Task == "" {
		return p, actor.BadArguments("the state of the run does not say which task it follows")
	}
	return p, nil
}

// to is an outcome that goes on at a node, with a position if it is not nil.
func to(node string, value json.RawMessage, p *position) (workgraph.Outcome, error) {
	out := workgraph.Outcome{Select: &workgraph.Select{Others: workgraph.SelectNames, Names: []string{node}}}
	if len(value) > 0 {
		out.Values = []json.RawMessage{value}
	}
	if p != nil {
		raw, err := actor.Encode(p)
		if err != nil {
			return out, actor.BadArguments("%v", err)
		}
		out.State = map[string]json.RawMessage{statePosition: raw}
	}
	return out, nil
}

// done is the outcome with the result of the task. The room for it was asked for when it was read.
func done(name string, value json.RawMessage, err error) (workgraph.Outcome, error) {
	if err != nil {
		return workgraph.Outcome{}, unusable(name, err)
	}
	return to(nodeResult, value, nil)
}

// result is the last step: what it is given is the result of the run.
func result(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	if len(c.Args) == 0 {
		return workgraph.Outcome{}, actor.BadArguments("there is no result")
	}
	return workgraph.Outcome{Values: c.Args[:1]}, nil
}

// modes are the media types that a result may have.
func modes() []string { return []string{"text/plain", "application/json", "*/*"} }

// send sends the message and ends as soon as the agent says which task it is, so that the id of the
// task is durable before anything waits for the task.
func (s *Agents) send(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r, ag, err := s.asked(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	leave, err := ag.enter(ctx, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	defer leave()
	ctx = reserving(ctx)
	repeats := c.Effect != workgraph.Unsafe
	if repeats { // an earlier attempt, of a dead executor maybe, may have sent it
		if t := ag.lost(ctx, r); t != nil {
			return to(nodeFollow, nil, ag.position(ctx, string(t.ID), t.ContextID))
		}
	}
	m := &sdk.Message{ID: r.MessageID, ContextID: r.Context, Role: sdk.MessageRoleUser, Parts: toSDK(r.Parts), Metadata: map[string]any{metaEffectKey: r.EffectKey}}
	first, err := ag.deliver(ctx, m)
	if err != nil {
		return workgraph.Outcome{}, ag.fault(ctx, err, repeats)
	}
	return begun(ctx, ag, first)
}

// begun is where the run goes on after the first answer to a message.
func begun(ctx context.Context, ag *agent, first sdk.Event) (workgraph.Outcome, error) {
	if m, ok := first.(*sdk.Message); ok {
		value, err := messageValue(m)
		return done(ag.name, value, err)
	}
	info := first.TaskInfo()
	if id := string(info.TaskID); id == "" || len(id) > maxContext || len(info.ContextID) > maxContext {
		return workgraph.Outcome{}, unusable(ag.name, errors.New("it names no task by an id of 1 to 256 bytes"))
	}
	if t, ok := first.(*sdk.Task); ok && t.Status.State == sdk.TaskStateCompleted {
		value, err := resultOf(t)
		return done(ag.name, value, err)
	}
	return to(nodeFollow, nil, ag.position(ctx, string(info.TaskID), info.ContextID))
}

// position is the place of a run that begins to follow a task.
func (ag *agent) position(ctx context.Context, task, id string) *position {
	p := &position{Agent: ag.name, Task: task, Context: id, Namespace: actor.NamespaceOf(ctx)}
	if id != "" {
		p.Conversation = ag.told(p.Namespace, id)
	}
	return p
}

// metaEffectKey is the entry of a message's metadata with the effect key: the same for every attempt of
// one intent.
const metaEffectKey = "epigraph.run/effect-key"

// deliver sends a message and returns the first answer to it. The agent is asked to answer at once: a
// stream of the message's own would end with this request, and with some agents what they keep of the
// task as well.
func (ag *agent) deliver(ctx context.Context, m *sdk.Message) (sdk.Event, error) {
	card, err := ag.current(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ag.cfg.Timeout)
	defer cancel()
	none := 0
	return card.client.SendMessage(ctx, &sdk.SendMessageRequest{Message: m, Config: &sdk.SendMessageConfig{AcceptedOutputModes: modes(), HistoryLength: &none, ReturnImmediately: true}})
}

// lost is the task of a message that was sent in an earlier attempt, if the agent lists it.
func (ag *agent) lost(ctx context.Context, r request) *sdk.Task {
	card, err := ag.current(ctx)
	if err != nil || r.Context == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ag.cfg.Timeout)
	defer cancel()
	page, err := card.client.ListTasks(ctx, &sdk.ListTasksRequest{ContextID: r.Context, PageSize: maxListed})
	if err != nil {
		return nil // not every agent lists tasks; the id of the message tells it of the repetition
	}
	for _, t := range page.Tasks {
		if t == nil || t.ContextID != r.Context {
			continue
		}
		if r.Alone || slices.ContainsFunc(t.History, func(m *sdk.Message) bool { return m != nil && m.ID == r.MessageID }) {
			return t
		}
	}
	return nil
}

// enter takes a turn for a request that is sent.
func (ag *agent) enter(ctx context.Context, c *workgraph.Call) (leave func(), err error) {
	within, cancel := context.WithTimeout(ctx, ag.cfg.Timeout)
	defer cancel()
	if leave, err = ag.turns.Enter(within, actor.NamespaceOf(ctx)); err == nil {
		return leave, nil
	}
	if ctx.Err() != nil {
		return nil, actor.Interrupted(workgraph.NotPerformed)
	}
	return nil, workgraph.Errorf(workgraph.NotPerformed, ReasonDown, "%d requests are under way at the remote agent %q, and none ended within %s", ag.cfg.Parallel, ag.name, ag.cfg.Timeout)
}

// reply sends the answer to the question of a task, unless the task has gone on already: then the
// answer of an earlier attempt has arrived.
func (s *Agents) reply(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r, ag, err := s.asked(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p, err := at(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if len(c.Args) == 0 {
		return workgraph.Outcome{}, actor.BadArguments("there is no answer")
	}
	leave, err := ag.enter(ctx, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	defer leave()
	ctx = reserving(ctx)
	t, err := ag.task(ctx, p.Task)
	if err != nil { // nothing was sent
		fault := ag.fault(ctx, err, true)
		if e, ok := errors.AsType[*workgraph.Error](fault); ok && e.Type == workgraph.Retryable {
			e.Type = workgraph.NotPerformed
		}
		return workgraph.Outcome{}, fault
	}
	p.Polls = 0
	if t.Status.State != sdk.TaskStateInputRequired {
		return to(nodeFollow, nil, &p)
	}
	m := &sdk.Message{ID: stableID("reply", r.EffectKey, strconv.Itoa(c.Visit)), TaskID: sdk.TaskID(p.Task), ContextID: p.Context, Role: sdk.MessageRoleUser,
		Parts: toSDK(answerParts(c.Args[0])), Metadata: map[string]any{metaEffectKey: c.EffectKey()}}
	first, err := ag.deliver(ctx, m)
	if err != nil {
		return workgraph.Outcome{}, ag.fault(ctx, err, c.Effect != workgraph.Unsafe)
	}
	if info := first.TaskInfo(); info.TaskID != "" && string(info.TaskID) != p.Task {
		return workgraph.Outcome{}, unusable(ag.name, errors.New("it answers for another task"))
	}
	if _, ok := first.(*sdk.Message); ok {
		return begun(ctx, ag, first)
	}
	return to(nodeFollow, nil, &p)
}

// follow looks at the task until it ends or asks. It reads the stream of the task while there is one;
// else it looks at the task ever more seldom, and for a long pause leaves a timer. A stream gives its
// turn back now and then, so that the streams of some do not keep out the requests of others.
func (s *Agents) follow(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	_, ag, err := s.asked(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	p, err := at(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	leave, err := ag.enterSoon(ctx)
	switch {
	case ctx.Err() != nil:
		leave()
		return workgraph.Outcome{}, actor.Interrupted(workgraph.NotPerformed)
	case err != nil:
		return later(p, longestPoll)
	}
	defer func() { leave() }()
	ctx = reserving(ctx)
	w := &watch{ag: ag, c: c, to: actor.ReporterOf(ctx), known: map[sdk.ArtifactID]int{}, skip: p.Told, resumes: p.Told > 0}
	for {
		t, err := ag.task(ctx, p.Task)
		if err != nil {
			return workgraph.Outcome{}, ag.fault(ctx, err, true)
		}
		w.status(t.Status)
		if w.resumes { // what the agent told between two streams
			w.snapshot(t)
		}
		p.Told = max(p.Told, w.total())
		if out, over, err := conclude(ag, p, t); over {
			return out, err
		}
		told, end := w.stream(ctx, p.Task)
		p.Told = max(p.Told, w.total())
		if told {
			p.Polls = 0
		}
		if end == endOver {
			w.deaf = true // how it ended is looked up, and what the agent keeps may lag behind what it tells
		}
		if ctx.Err() != nil {
			return workgraph.Outcome{}, actor.Interrupted(workgraph.Retryable)
		}
		if end == endTurn {
			p.Polls, w.resumes = 0, true
			leave()
			leave, err = ag.enterSoon(ctx)
			switch {
			case ctx.Err() != nil:
				return workgraph.Outcome{}, actor.Interrupted(workgraph.Retryable)
			case err != nil:
				return later(p, longestPoll)
			}
			c.Heartbeat()
			continue
		}
		pause := min(firstPoll<<min(p.Polls, 20), longestPoll)
		p.Polls++
		if pause > hold {
			return later(p, pause)
		}
		if !sleep.For(ctx, pause) {
			return workgraph.Outcome{}, actor.Interrupted(workgraph.Retryable)
		}
		c.Heartbeat()
	}
}

// enterSoon takes a turn for a step that can come back later. leave is never nil.
func (ag *agent) enterSoon(ctx context.Context) (leave func(), err error) {
	within, cancel := context.WithTimeout(ctx, enterWithin)
	defer cancel()
	if leave, err = ag.turns.Enter(within, actor.NamespaceOf(ctx)); err != nil {
		return func() {}, err
	}
	return leave, nil
}

// later comes back after a pause, in which the run holds nothing.
func later(p position, pause time.Duration) (workgraph.Outcome, error) {
	out, err := to(nodeFollow, json.RawMessage("null"), &p)
	out.Select.Self = true
	out.Wait = &workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(pause)}}
	return out, err
}

// conclude is where the run goes on after what the task has become. over is false while the agent
// works.
func conclude(ag *agent, p position, t *sdk.Task) (out workgraph.Outcome, over bool, err error) {
	fail := func(reason, what string) (workgraph.Outcome, bool, error) {
		return workgraph.Outcome{}, true, workgraph.Errorf(workgraph.Permanent, reason, "the remote agent %q %s: %s", ag.name, what, said(t.Status.Message))
	}
	switch t.Status.State {
	case sdk.TaskStateCompleted:
		value, err := resultOf(t)
		out, err = done(ag.name, value, err)
		return out, true, err
	case sdk.TaskStateFailed:
		return fail(ReasonFailed, "failed at the task")
	case sdk.TaskStateRejected:
		return fail(ReasonRejected, "rejected the task")
	case sdk.TaskStateCanceled:
		return fail(ReasonCanceled, "canceled the task")
	case sdk.TaskStateAuthRequired:
		return workgraph.Outcome{}, true, ag.unauthorized(said(t.Status.Message))
	case sdk.TaskStateInputRequired:
		prompt, err := messageValue(t.Status.Message)
		if err != nil {
			return workgraph.Outcome{}, true, unusable(ag.name, err)
		}
		if string(prompt) == "null" {
			if prompt, err = actor.Encode("The remote agent " + ag.name + " asks for input."); err != nil {
				return workgraph.Outcome{}, true, unusable(ag.name, err)
			}
		}
		p.Polls = 0
		out, err = to(nodeReply, nil, &p)
		out.Wait = &workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: prompt}}
		return out, true, err
	}
	return workgraph.Outcome{}, false, nil
}

// watch passes on what the stream of a task tells.
type watch struct {
	ag *agent
	c  *workgraph.Call
	to actor.Reporter
	// known is how many bytes of the text of each artifact were told, skip how many more an earlier step
	// has told.
	known map[sdk.ArtifactID]int
	skip  int
	told  time.Time
	// resumes says that a stream has been read before, which may have ended amid the texts.
	resumes bool
	// deaf says that the agent gave no stream.
	deaf bool
}

// ending is why a stream ended.
type ending int

const (
	// endLost is that of a stream that there is not, or that broke off.
	endLost ending = iota
	// endOver is that of a task that has ended or asks.
	endOver
	// endTurn is that of a turn that is over.
	endTurn
)

// stream reads the stream of a task until it ends, or the task does, or the turn is over. It reports
// whether the stream told anything.
func (w *watch) stream(ctx context.Context, id string) (told bool, end ending) {
	card, err := w.ag.current(ctx)
	if err != nil || !card.streams || w.deaf {
		return false, endLost
	}
	turn, cancel := context.WithTimeout(ctx, w.ag.streamFor)
	defer cancel()
	first := true
	for e, err := range card.client.SubscribeToTask(turn, &sdk.SubscribeToTaskRequest{ID: sdk.TaskID(id)}) {
		if err != nil {
			if turn.Err() != nil {
				break
			}
			w.deaf = first
			return told, endLost
		}
		if t, ok := e.(*sdk.Task); ok && first { // how things stand, which was just looked at
			first = false
			w.snapshot(t)
			continue
		}
		first, told = false, true
		w.c.Heartbeat()
		var now sdk.TaskState
		switch e := e.(type) {
		case *sdk.TaskArtifactUpdateEvent:
			w.update(e.Artifact, e.Append)
		case *sdk.TaskStatusUpdateEvent:
			w.status(e.Status)
			now = e.Status.State
		case *sdk.Task:
			w.snapshot(e)
			now = e.Status.State
		}
		if over(now) {
			return true, endOver
		}
	}
	if turn.Err() != nil {
		return told, endTurn
	}
	return told, endLost
}

// over reports whether a task in this state tells no more by itself.
func over(s sdk.TaskState) bool {
	return s.Terminal() || s == sdk.TaskStateInputRequired || s == sdk.TaskStateAuthRequired
}

// maxKnown bounds the artifacts that are told apart.
const maxKnown = 1000

// keep remembers how much of an artifact is known, unless its id is beyond the bounds.
func (w *watch) keep(id sdk.ArtifactID, n int) bool {
	if _, ok := w.known[id]; !ok && len(w.known) >= maxKnown || len(id) > maxContext {
		return false
	}
	w.known[id] = n
	return true
}

// total is how much of all artifacts is known.
func (w *watch) total() (n int) {
	for _, k := range w.known {
		n += k
	}
	return n
}

// snapshot tells what is new in the artifacts of a task.
func (w *watch) snapshot(t *sdk.Task) {
	for _, a := range t.Artifacts {
		if a == nil {
			continue
		}
		text := textOf(a.Parts)
		was := w.known[a.ID]
		if !w.keep(a.ID, max(was, len(text))) {
			continue
		}
		text = text[min(was, len(text)):]
		told := min(w.skip, len(text))
		w.skip -= told
		w.tell(text[told:])
	}
}

// update tells a piece of an artifact. One that takes the place of what was told is not told again.
func (w *watch) update(a *sdk.Artifact, appends bool) {
	if a == nil {
		return
	}
	w.skip = 0 // what follows is new
	text := textOf(a.Parts)
	was, known := w.known[a.ID]
	if known && !appends {
		w.keep(a.ID, len(text))
		return
	}
	w.keep(a.ID, was+len(text))
	w.tell(text)
}

func (w *watch) tell(text string) {
	if text != "" {
		w.to.Text(clean(text))
	}
}

// status reports what the agent says about its work.
func (w *watch) status(s sdk.TaskStatus) {
	now := time.Now()
	if now.Sub(w.told) < progressEvery {
		return
	}
	w.told = now
	at := struct {
		State   string `json:"state"`
		Message string `json:"message,omitempty"`
	}{State: errs.Clip(clean(string(s.State)), 64)}
	if s.Message != nil {
		at.Message = errs.Clip(textOf(s.Message.Parts), 500)
	}
	if raw, err := json.Marshal(at); err == nil {
		w.to.Progress(raw)
	}
}
