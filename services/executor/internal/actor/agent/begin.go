package agent

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// begin makes or takes the thread, appends what the user said, and makes the first prompt.
func (l *loop) begin(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	d, err := l.definitions.of(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	in, err := instanceOf(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var last int64
	switch {
	case in.Create != nil:
		last = in.Create.ParentSeq
	default:
		if !in.Shared {
			if err := l.threads.HoldThread(ctx, actor.NamespaceOf(ctx), in.Thread, holder(c)); err != nil {
				return workgraph.Outcome{}, threadError(err)
			}
		}
		t, err := l.threads.Thread(ctx, actor.NamespaceOf(ctx), in.Thread)
		if err != nil {
			return workgraph.Outcome{}, threadError(err)
		}
		last = t.Last
	}
	a := workgraph.ThreadAppend{Thread: in.Thread, After: last}
	if cr := in.Create; cr != nil {
		a.Create = &workgraph.ThreadCreate{Parent: cr.Parent, ParentSeq: cr.ParentSeq, Agent: cr.Agent, Lifetime: workgraph.ThreadEphemeral}
	}
	if in.State != nil {
		item, err := stateItem(&state.Item{Brief: *in.State, Response: state.Response{InstantResponse: in.State.InstantResponse}})
		if err != nil {
			return workgraph.Outcome{}, err
		}
		a.Items = append(a.Items, item)
	}
	for _, said := range in.said() {
		item, err := messageItem(message{Role: "user", Content: said})
		if err != nil {
			return workgraph.Outcome{}, err
		}
		a.Items = append(a.Items, item)
	}
	r := &round{d: d, in: in, c: c, number: 1, userInput: in.UserInput, results: in.ActionResults}
	r.from = position{Thread: in.Thread, Seq: last}
	if in.Create != nil {
		r.from.Thread = in.Create.Parent // the thread itself is not there yet
	}
	if d.showsStates() {
		if r.states, err = l.briefs(ctx, actor.NamespaceOf(ctx), r.from, d.MaxStates); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	if in.State != nil {
		r.states = append(r.states, *in.State)
	}
	out, err := r.told(ctx, l, a.Items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Create != nil || len(a.Items) > 0 {
		out.Threads = []workgraph.ThreadAppend{a}
	}
	out.State, err = position{Thread: in.Thread, Seq: last + int64(len(a.Items))}.state()
	return out, err
}

// holder is the run that holds an agent's thread: the root, so that a call of another agent of the same work
// does not find the thread busy.
func holder(c *workgraph.Call) string {
	if c.RootRunID != "" {
		return c.RootRunID
	}
	return c.RunID
}

// threadError is the error of a call that cannot use its thread.
func threadError(err error) error {
	e := errs.From(err)
	t := workgraph.Permanent
	switch e.Reason {
	case thread.ReasonBusy, thread.ReasonNotFound, thread.ReasonConflict, thread.ReasonInvalid, thread.ReasonTooDeep:
	default:
		t = workgraph.Retryable
	}
	return workgraph.Errorf(t, e.Reason, "%s", e.Message)
}

// message is a message of a thread, in the form of model servers.
type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	IsError    bool   `json:"is_error,omitempty"`
}

// maxMessage bounds a message that is kept, in bytes.
const maxMessage = 1 << 20

func messageItem(m message) (workgraph.ThreadItem, error) {
	m.Content = errs.Clip(m.Content, maxMessage)
	raw, err := actor.Encode(m)
	if err != nil {
		return workgraph.ThreadItem{}, actor.BadArguments("%v", err)
	}
	return workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: raw}, nil
}

// maxBriefs bounds what is read of the states of a thread, in bytes.
const maxBriefs = 16 << 20

// briefs are the newest states of a thread up to a position, the oldest first.
func (l *loop) briefs(ctx context.Context, namespace string, at position, most int) ([]state.Brief, error) {
	if at.Thread == "" || most == 0 {
		return nil, nil
	}
	items, err := l.threads.Items(ctx, namespace, at.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadState}, Before: at.Seq + 1, Limit: most, MaxBytes: maxBriefs, Briefs: true})
	if err != nil {
		return nil, threadError(err)
	}
	out := make([]state.Brief, 0, len(items))
	for i := range items {
		var b state.Brief
		if err := json.Unmarshal(items[i].Brief, &b); err != nil {
			return nil, workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "state %d of thread %s cannot be read: %v", items[i].Seq, at.Thread, err)
		}
		out = append(out, b)
	}
	slices.Reverse(out)
	return out, nil
}

// round is what a round begins with.
type round struct {
	d      *definition
	in     *instance
	c      *workgraph.Call
	number int
	// userInput is what the user says in this round, and results are those of the round before.
	userInput string
	results   state.Results
	states    []state.Brief
	// at is where the agent stands, and last its own last state. Both are empty in the first round of begin.
	at   position
	last *state.Item
	// from is up to where the thread can be read.
	from position
}

// told is the outcome that carries what the reasoner is told. items are those that the outcome will append.
func (r *round) told(ctx context.Context, l *loop, items []workgraph.ThreadItem) (workgraph.Outcome, error) {
	if r.d.Form == formTools {
		return r.messages(ctx, l, items)
	}
	half := r.d.MaxHistoryBytes / 2
	var said []json.RawMessage
	if r.d.template.Holds(prompt.Conversation) {
		var err error
		if said, err = r.recent(ctx, l, items, half); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	current, previous := prompt.States(r.states, half/2)
	values := map[string]string{
		prompt.UserInput:      r.userInput,
		prompt.Conversation:   prompt.ConversationText(said, half),
		prompt.ActionResult:   prompt.ActionResults(r.results, r.d.share(r.results)),
		prompt.ActionMemory:   errs.Clip(prompt.Memory(r.results), r.d.MaxResultBytes),
		prompt.Attachments:    prompt.AttachmentsText(r.in.Attachments, max(256, r.d.MaxHistoryBytes/max(1, len(r.in.Attachments)))),
		prompt.CurrentState:   current,
		prompt.PreviousStates: previous,
		prompt.UserProfile:    errs.Clip(r.in.UserProfile, half),
		prompt.Context:        errs.Clip(r.in.Context, half),
		prompt.Tools:          r.d.ToolsText,
	}
	text := r.d.template.Render(values)
	if text == "" {
		text = "Go on." // a template may show nothing of what there is; no model takes an empty message
	}
	told := map[string]any{"request": text}
	if r.d.Reasoner != actorLLM {
		// Lists are never null, so that expressions need not tell the two apart.
		told["round"], told["user_input"], told["action_results"] = r.number, r.userInput, append(state.Results{}, r.results...)
		told["attachments"], told["context"], told["user_profile"] = append([]prompt.Attachment{}, r.in.Attachments...), r.in.Context, r.in.UserProfile
		told["current_state"], told["previous_states"] = current, previous
	}
	return r.value(told)
}

// value is what is told without what the arguments of the reasoner fix: propagated inputs would win over
// them.
func (r *round) value(told map[string]any) (workgraph.Outcome, error) {
	for k := range r.d.ReasonerArgs {
		delete(told, k)
	}
	return value(told)
}

// share is how many bytes of each result are told.
func (d *definition) share(rs state.Results) int {
	return min(d.MaxResultBytes, max(256, d.MaxHistoryBytes/(2*max(1, rs.Count()))))
}
