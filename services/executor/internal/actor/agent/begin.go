package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
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
	a, at, err := l.take(ctx, c, in)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if in.State != nil {
		item, err := stateItem(&state.Item{Brief: *in.State, Response: state.Response{InstantResponse: in.State.InstantResponse}}, maxState)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		a.Items = append(a.Items, item)
	}
	for _, said := range in.said() {
		item, err := messageItem(message{Role: "user", Content: said}, maxMessage)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		a.Items = append(a.Items, item)
	}
	r := &round{d: d, in: in, c: c, number: 1, userInput: in.UserInput, results: in.ActionResults}
	r.at = position{Place: at, Round: 1}
	r.at.Seq += int64(len(a.Items))
	if r.at.Input = in.Input; len(in.said()) > 0 {
		r.at.Input = &state.Span{First: r.at.Seq - int64(len(in.said())) + 1, Last: r.at.Seq}
	}
	r.from = standing.Before(a)
	out, err := r.told(ctx, l, a.Items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if d.History.Summarize != nil {
		r.next(&out, nodeFirstSummary)
	}
	if a.Create != nil || len(a.Items) > 0 {
		out.Threads = []workgraph.ThreadAppend{a}
	}
	r.at.Sent, r.at.Asked = r.sent, r.asked
	out.State, err = r.at.state()
	return out, err
}

// message is a message of a thread, in the form of model servers.
type message struct {
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	IsError    bool   `json:"is_error,omitempty"`
}

// maxMessage bounds a message that is kept, in bytes of JSON.
const maxMessage = 1 << 20

// messageItem is a message whose content is cut to so many bytes of JSON.
func messageItem(m message, most int) (workgraph.ThreadItem, error) {
	m.Content = state.Clip(m.Content, most)
	raw, err := actor.Encode(m)
	if err != nil {
		return workgraph.ThreadItem{}, actor.BadArguments("%v", err)
	}
	return workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: raw}, nil
}

// maxBriefs bounds what is read of the states of a thread, in bytes.
const maxBriefs = 16 << 20

// round is what a round begins with.
type round struct {
	d      *definition
	in     *instance
	c      *workgraph.Call
	number int
	// userInput is what the user says in this round, and results are those of the round before.
	userInput string
	results   state.Results
	// at is where the agent stands, and last its own last state, which is nil in the first round.
	at   position
	last *state.Item
	// from is up to where the thread can be read.
	from standing.Place
	// answeredCall says that a person's answer is the answer of the call that asked for it, and signaled that
	// the round ends the turn by the signals of the response.
	answeredCall, signaled bool
	// summary stands for the older part of the thread. settled says that none is asked for in this round any
	// more.
	summary *summary
	settled bool
	// sent is what is told of the thread, or asked what is to be summarized before.
	sent  *state.Sent
	asked *state.Span
}

// next selects where the loop goes: to the reasoner, or first to a summary.
func (r *round) next(out *workgraph.Outcome, toSummary string) {
	node := nodeReason
	if r.asked != nil {
		node = toSummary
	}
	out.Select = &workgraph.Select{Others: workgraph.SelectNames, Names: []string{node}}
}

// told is the outcome that carries what the reasoner is told, or the request for a summary. items are those
// that the outcome will append.
func (r *round) told(ctx context.Context, l *loop, items []workgraph.ThreadItem) (workgraph.Outcome, error) {
	h := &r.d.History
	r.sent = &state.Sent{Messages: h.Messages, Tokens: h.Tokens}
	if s := h.Summarize; s != nil {
		r.sent.Above, r.sent.Keep = s.Above, s.Keep
		if r.summary == nil {
			var err error
			if r.summary, err = l.summary(ctx, r.from); err != nil {
				return workgraph.Outcome{}, err
			}
		}
	}
	if r.d.Form == formTools {
		return r.messages(ctx, l, items)
	}
	return r.prompt(ctx, l, items)
}

// asks reports whether a summary may be asked for.
func (r *round) asks() bool { return !r.settled && r.number >= r.at.Again }

// prompt is the outcome that carries the prompt. Each part takes at most half of the room that those before
// it have left, and the history of the thread the rest.
func (r *round) prompt(ctx context.Context, l *loop, items []workgraph.ThreadItem) (workgraph.Outcome, error) {
	states, err := r.states(ctx, l, items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	m, t := room{left: r.d.History.Tokens}, r.d.template
	m.take(r.d.Template)
	values := map[string]string{}
	show := func(name string, text func() string) {
		if t.Holds(name) {
			values[name] = text()
		}
	}
	show(prompt.UserInput, func() string { return m.take(r.userInput) })
	show(prompt.Tools, func() string { return m.take(r.d.ToolsText) })
	show(prompt.Context, func() string { return m.clip(r.in.Context) })
	show(prompt.UserProfile, func() string { return m.clip(r.in.UserProfile) })
	show(prompt.Attachments, func() string { return m.take(prompt.AttachmentsText(r.in.Attachments, m.share())) })
	show(prompt.ActionResult, func() string { return m.take(prompt.ActionResults(r.results, r.d.MaxResultBytes, m.share())) })
	show(prompt.ActionMemory, func() string {
		return m.take(prompt.Memory(r.results, min(r.d.MaxResultBytes, m.share())))
	})
	current, _ := prompt.States(briefsOf(states), m.share())
	show(prompt.CurrentState, func() string { return m.take(current) })
	recalled, err := r.recall(ctx, l, items, states, m)
	if err != nil || r.asked != nil {
		return recalled.ask, err
	}
	values[prompt.Conversation], values[prompt.PreviousStates] = recalled.conversation, recalled.previous
	text := t.Render(values)
	if text == "" {
		text = "Go on." // a template may show nothing of what there is; no model takes an empty message
	}
	out := map[string]any{"request": text}
	if r.d.Reasoner != actorLLM {
		// Lists are never null, so that expressions need not tell the two apart.
		out["round"], out["user_input"], out["action_results"] = r.number, r.userInput, append(state.Results{}, r.results...)
		out["attachments"], out["context"], out["user_profile"] = append([]prompt.Attachment{}, r.in.Attachments...), r.in.Context, r.in.UserProfile
		out["current_state"], out["previous_states"] = current, recalled.previous
	}
	return r.value(out)
}

// recalled is the history of a thread in a prompt, or the request for a summary of its older part.
type recalled struct {
	conversation, previous string
	ask                    workgraph.Outcome
}

// recall makes the history of messages and states, within the room.
func (r *round) recall(ctx context.Context, l *loop, items []workgraph.ThreadItem, states []seen, m room) (out recalled, err error) {
	messages, err := r.recent(ctx, l, items)
	if err != nil {
		return out, err
	}
	parts := r.promptParts(messages, states)
	full := m.left
	before := r.summary.told(&m)
	if n := r.d.History.older(parts, full-m.left, m.left); n > 0 && r.asks() {
		out.ask, err = r.ask(parts[:n], parts[n].first-1)
		return out, err
	}
	c, err := r.choose(ctx, l, parts, &m)
	if err != nil {
		return out, err
	}
	var said []prompt.Said // newest first
	var shown []state.Brief
	for i := range c.kept {
		if p := &c.kept[i]; p.state != nil {
			shown = append(shown, *p.state)
		}
		if p := &c.kept[len(c.kept)-1-i]; p.state == nil {
			said = p.messages[0].said(said)
		}
	}
	for i := range slices.Backward(c.input) {
		said = c.input[i].said(said)
	}
	out.conversation = strings.TrimSpace(before + "\n" + prompt.ConversationText(said, maxMessage))
	_, out.previous = prompt.States(shown, maxMessage)
	return out, nil
}

func briefsOf(all []seen) []state.Brief {
	out := make([]state.Brief, len(all))
	for i := range all {
		out[i] = all[i].Brief
	}
	return out
}

// value is what is told without what the arguments of the reasoner fix: propagated inputs would win over
// them.
func (r *round) value(told map[string]any) (workgraph.Outcome, error) {
	for k := range r.d.ReasonerArgs {
		delete(told, k)
	}
	return value(told)
}
