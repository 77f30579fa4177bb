package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// maxLine bounds a line that is read from the user, in bytes.
const maxLine = 1 << 20

// turnPoll is the pause between two looks at a turn that waits for others.
const turnPoll = 100 * time.Millisecond

// looksPerCheck is after how many looks it is checked whether the agent is paused.
const looksPerCheck = 10

type chatCmd struct {
	Agent    string `arg:"" help:"The agent: an actor such as agent/NAME." optional:""`
	Workflow string `help:"Talk with this workflow in place of an agent: NAME, NAME@ALIAS or NAME@VERSION. It needs the trigger chat." placeholder:"NAME"`
	Thread   string `help:"Go on with this thread." placeholder:"ID"`
	Key      string `help:"Go on with the conversation that has this key, or begin it." placeholder:"KEY"`
	Title    string `help:"Title of a new thread." placeholder:"TEXT"`
	User     string `help:"User of a new thread: its runs are for this user, and what the agent learns is kept for this user." placeholder:"ID"`
	Chat     string `help:"Conversation of a new thread, as your application calls it." placeholder:"ID"`
}

// Help gives examples.
func (chatCmd) Help() string {
	return `Each line of the input is a message. What the agent says is printed as it is written, if its actor streams it,
and else at the end. When the agent asks a question, the next line answers it. A question of another actor, such
as human, is answered by a line only if your key has the scope approve; to an approval it is yes or no. The
conversation is kept: the same thread goes on at any time.

In a script the exit code is that of the first message whose run did not complete: 1 if it failed, 3 if it was canceled,
4 if it is paused. At a terminal it is 0.

    epigraph chat agent/support
    epigraph chat --workflow greeter
    epigraph chat --thread thr_01h455vb4pex5vsknk084sn02q
    epigraph chat agent/support --key ann:desk:agent/support --user ann --chat desk
    echo 'What is due today?' | epigraph chat agent/support --json`
}

// Run talks until the input ends.
func (c *chatCmd) Run(e *env) error {
	if c.Workflow != "" {
		if c.Agent != "" {
			return usage(errs.New(errs.InvalidArgument, "AGENT_AMBIGUOUS", "an agent and --workflow are both given").Hint("name one of them"))
		}
		c.Agent = "workflow/" + strings.TrimPrefix(c.Workflow, "workflow/")
	}
	if (c.Agent == "" && c.Key == "") == (c.Thread == "") {
		return usage(errs.New(errs.InvalidArgument, "AGENT_MISSING", "name an agent, a --key or a --thread").Hint("`epigraph actors` lists agents, `epigraph threads ls` threads"))
	}
	return e.with(func(ctx context.Context, s *services) error {
		t := &talk{e: e, s: s, seen: map[string]bool{}, after: map[string]int64{}, own: map[string]bool{}}
		if err := t.open(ctx, c); err != nil {
			return err
		}
		lines := bufio.NewScanner(e.io.In)
		lines.Buffer(nil, maxLine)
		for {
			if e.io.Typed && !e.json {
				fmt.Fprint(e.io.Err, "> ")
			}
			if !lines.Scan() {
				if e.io.Typed && !e.json {
					fmt.Fprintln(e.io.Err)
				}
				break
			}
			line := strings.TrimSpace(lines.Text())
			if line == "" {
				continue
			}
			if err := t.say(ctx, line); err != nil {
				return err
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return errs.New(errs.InvalidArgument, "LINE_TOO_LONG", "a message may have %d bytes", maxLine)
		case err != nil || e.io.Typed:
			return err
		}
		return t.failed
	})
}

// talk is a conversation on a thread.
type talk struct {
	e      *env
	s      *services
	thread string
	// seen are the questions that were shown, and after is how far each run was watched.
	seen  map[string]bool
	after map[string]int64
	// asked is the question that waits for the next line, nil if none does, and asking the run below
	// which it was asked.
	asked  *executorv1.Interrupt
	asking string
	// own says of runs whether their text is the agent's own, and not that of its branches or tools.
	own map[string]bool
	// speaker is the attempt whose text was printed last, and said that text.
	speaker string
	said    strings.Builder
	// failed is how a script ends because of the first message whose run did not complete.
	failed error
}

// fails notes what became of a message.
func (t *talk) fails(err error) {
	if t.failed == nil {
		t.failed = err
	}
}

func (t *talk) open(ctx context.Context, c *chatCmd) error {
	th, err := t.begin(ctx, c)
	if err != nil {
		return err
	}
	t.thread = th.GetId()
	for _, x := range []struct{ flag, given, is string }{{"user", c.User, th.GetUserId()}, {"chat", c.Chat, th.GetChatId()}} {
		if x.given != "" && x.given != x.is {
			return usage(errs.New(errs.InvalidArgument, "THREAD_OF_ANOTHER", "thread %s has the %s %q", t.thread, x.flag, x.is).Hint("leave --" + x.flag + " out, or begin another thread"))
		}
	}
	if !t.e.json && c.Thread == "" {
		t.e.note("thread %s", t.thread)
	}
	return t.pending(ctx, th.GetRunId())
}

// pending shows the question that the next line answers, if the run that holds the thread waits for
// one.
func (t *talk) pending(ctx context.Context, run string) error {
	if run == "" {
		return nil
	}
	list, err := t.s.executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: run})
	if errs.Is(err, errs.NotFound) {
		return nil // the run is gone
	}
	if err != nil {
		return err
	}
	for _, q := range slices.Backward(list.GetInterrupts()) { // oldest first, as messages answer them
		t.seen[q.GetId()] = true
		t.asked, t.asking = q, run
		if t.e.json {
			return nil
		}
		if q.GetOfAgent() {
			t.e.note("the agent has asked, and the next line answers:")
		}
		return t.question()
	}
	return nil
}

// question shows what waits for the next line, and how it is answered unless the agent itself asks.
func (t *talk) question() error {
	q := t.asked
	text := plain(q.GetPrompt().GetJson())
	switch {
	case approves(q):
		t.e.note("the agent waits for an approval, and the next line decides, yes or no:")
		if len(q.GetPrompt().GetJson()) > 0 {
			text += "\n"
		}
		text += indent(pretty(q.GetApprove().GetJson()))
	case !q.GetOfAgent():
		t.e.note("the next line answers, if your key may answer interrupts; so does %s", answering(q))
	}
	return t.tell(text)
}

// begin finds the conversation by its id or key, or makes a thread.
func (t *talk) begin(ctx context.Context, c *chatCmd) (*executorv1.Thread, error) {
	if c.Thread != "" {
		return t.s.threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: c.Thread})
	}
	find := &executorv1.GetThreadRequest{ThreadId: "-", Key: c.Key}
	if c.Agent == "" {
		return t.s.threads.GetThread(ctx, find)
	}
	// A key that must not list actors leaves the check to the server.
	// Workflows are no actors.
	if r, err := t.s.executor.ListActors(ctx, &executorv1.ListActorsRequest{}); err == nil && !strings.HasPrefix(c.Agent, "workflow/") {
		if _, err := actorNamed(r.GetActors(), "AGENT", c.Agent); err != nil {
			return nil, err
		}
	}
	th, err := t.s.threads.CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: c.Agent, Title: c.Title, Key: c.Key, UserId: c.User, ChatId: c.Chat}})
	if errs.ReasonOf(err) != "THREAD_ALREADY_EXISTS" {
		return th, err
	}
	if th, err = t.s.threads.GetThread(ctx, find); err == nil && th.GetAgent() != c.Agent {
		t.e.note("the conversation is with %s now", th.GetAgent())
	}
	return th, err
}

// reply is what a line brought, as --json prints it.
type reply struct {
	Thread   string          `json:"threadId"`
	Turn     int64           `json:"turn,omitempty"`
	Run      string          `json:"runId,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Question json.RawMessage `json:"question,omitempty"`
	Asked    string          `json:"interruptId,omitempty"`
	Error    string          `json:"error,omitempty"`
	help     string          // what can be done about the error
}

// decide takes a line for the decision about an approval.
func (t *talk) decide(ctx context.Context, line string) error {
	decision := decisionOf(line)
	if decision == executorv1.Decision_DECISION_UNSPECIFIED {
		t.e.note("the agent waits for an approval: say yes or no")
		return nil
	}
	_, err := t.s.executor.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: t.asked.GetId(), Decision: decision, ApproveHash: t.asked.GetApproveHash()})
	if err != nil && errs.ReasonOf(err) != "INTERRUPT_CLOSED" { // else somebody else was faster
		return err
	}
	r := reply{Thread: t.thread, Run: t.asking}
	t.asked = nil
	if err := t.watch(ctx, &r); err != nil {
		return err
	}
	return t.show(&r)
}

// say sends a line and shows what comes of it.
func (t *talk) say(ctx context.Context, line string) error {
	asked := t.asked
	if approves(asked) {
		return t.decide(ctx, line)
	}
	t.asked = nil
	content, err := json.Marshal(line)
	if err != nil {
		return err
	}
	turn, err := t.s.threads.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: t.thread, Content: &graphv1.Payload{Json: content}})
	if asked != nil && !asked.GetOfAgent() && turn.GetState() == executorv1.TurnState_TURN_STATE_QUEUED {
		t.e.note("the message waits until the question is answered: %s", answering(asked))
	}
	for looks := 1; err == nil && turn.GetState() == executorv1.TurnState_TURN_STATE_QUEUED; looks++ {
		if !sleep.For(ctx, turnPoll) {
			return ctx.Err()
		}
		if looks%looksPerCheck == 0 {
			if below := t.standing(ctx); below != nil {
				t.fails(exit(exitPaused))
				return t.show(&reply{Thread: t.thread, Turn: turn.GetNumber(), Error: "the message waits: " + below.note()})
			}
		}
		turn, err = t.s.threads.GetTurn(ctx, &executorv1.GetTurnRequest{ThreadId: t.thread, Number: turn.GetNumber()})
	}
	if err != nil {
		return err
	}
	r := reply{Thread: t.thread, Turn: turn.GetNumber(), Run: turn.GetRunId(), Error: turn.GetError()}
	if r.Error != "" {
		t.fails(exit(exitFailed))
	}
	if r.Run != "" {
		if err := t.watch(ctx, &r); err != nil {
			return err
		}
	}
	return t.show(&r)
}

// watch shows what the agent writes, until its run has ended, stands still, or asks.
func (t *talk) watch(ctx context.Context, r *reply) error {
	t.speaker = ""
	t.said.Reset()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan *executorv1.RunEvent)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		failed <- follow(ctx, t.s, r.Run, t.after[r.Run], true, events)
	}()
	below := make(chan *standing, 1)
	go func() {
		if p := awaitStanding(ctx, t.s, r.Run); p != nil {
			below <- p
			stop()
		}
	}()
	for ev := range events {
		if ev.GetRunId() == r.Run && ev.GetSeq() > 0 {
			t.after[r.Run] = ev.GetSeq()
		}
		if !t.e.json && t.isAnswer(ctx, r.Run, ev) {
			if err := t.write(ev); err != nil {
				return err
			}
		}
		q := ev.GetInterruptOpened()
		if id := q.GetInterruptId(); id != "" && !t.seen[id] {
			t.seen[id] = true
			now, err := t.s.executor.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: id})
			if err != nil && ctx.Err() == nil {
				return err
			}
			if now.GetState() != executorv1.InterruptState_INTERRUPT_STATE_OPEN {
				continue // it was answered before, or by somebody else
			}
			t.asked, t.asking = now, r.Run
			r.Question, r.Asked = now.GetPrompt().GetJson(), id
			return nil
		}
	}
	err := <-failed
	select {
	case p := <-below:
		r.Error = p.note()
		t.fails(exit(exitPaused))
		return nil
	default:
	}
	if err != nil {
		return err
	}
	run, err := t.s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.Run})
	if err != nil {
		return err
	}
	t.fails(exitOf(run))
	switch run.GetState() {
	case executorv1.RunState_RUN_STATE_COMPLETED:
		r.Answer = run.GetResult().GetJson()
	case executorv1.RunState_RUN_STATE_FAILED:
		r.Error, r.help = run.GetError().GetMessage(), advice(run)
	default:
		r.Error = fmt.Sprintf("the run is %s %s: `epigraph runs explain %s` tells why", strings.TrimPrefix(run.GetState().String(), "RUN_STATE_"), run.GetStateReason(), r.Run)
	}
	return nil
}

// standing is what keeps the run that holds the thread from going on, if that is only paused runs.
func (t *talk) standing(ctx context.Context) *standing {
	th, err := t.s.threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: t.thread})
	if err != nil || th.GetRunId() == "" {
		return nil
	}
	run, err := t.s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: th.GetRunId()})
	if err != nil {
		return nil
	}
	return standingBelow(ctx, t.s, run.GetRootRunId())
}

// isAnswer reports whether an event is text that the agent says to the user. The agent is the run of
// the turn, or the run that this one waits for.
func (t *talk) isAnswer(ctx context.Context, turn string, ev *executorv1.RunEvent) bool {
	d := ev.GetTokenDelta()
	if d.GetText() == "" || d.GetKind() == executorv1.TextKind_TEXT_KIND_RAW {
		return false
	}
	id := ev.GetRunId()
	own, known := t.own[id]
	if !known {
		own = id == turn
		if !own {
			run, err := t.s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
			if err != nil {
				return false // the answer is printed at the end
			}
			own = run.GetParentRunId() == turn
		}
		t.own[id] = own
	}
	return own && (id == turn || d.GetVisit().GetNodeId() == nodeReason)
}

// nodeReason is the node of an agent's run in which it decides. Its other nodes are actions.
const nodeReason = "reason"

// write prints text as it comes, that of each attempt on lines of its own. Text that was printed before
// is left out.
func (t *talk) write(ev *executorv1.RunEvent) error {
	d := ev.GetTokenDelta()
	text, before := d.GetText(), ""
	if by := fmt.Sprintf("%s/%s/%d/%d/%d", ev.GetRunId(), d.GetVisit().GetNodeId(), d.GetVisit().GetVisit(), d.GetVisit().GetItem(), d.GetAttempt()); by != t.speaker {
		if t.speaker != "" {
			before = "\n"
		}
		t.speaker = by
		t.said.Reset()
	}
	if twice := int64(t.said.Len()) - d.GetOffset(); twice > 0 {
		text = text[min(twice, int64(len(text))):]
	}
	t.said.WriteString(text)
	_, err := io.WriteString(t.e.io.Out, before+text)
	return err
}

// tell prints a text unless it is what was printed last.
func (t *talk) tell(text string) error {
	if t.speaker != "" && strings.TrimSpace(t.said.String()) == strings.TrimSpace(text) {
		return nil
	}
	return t.e.say(text + "\n")
}

// show prints what a line brought.
func (t *talk) show(r *reply) error {
	if t.e.json {
		return json.NewEncoder(t.e.io.Out).Encode(r)
	}
	if t.speaker != "" {
		fmt.Fprintln(t.e.io.Out)
	}
	if r.Error != "" {
		t.e.note("%s", r.Error)
	}
	if r.help != "" {
		t.e.help("%s", r.help)
	}
	switch {
	case r.Asked != "":
		return t.question()
	case len(r.Answer) > 0:
		return t.tell(plain(r.Answer))
	}
	return nil
}

// plain is a JSON text without its quotes, and any other value as it is.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
