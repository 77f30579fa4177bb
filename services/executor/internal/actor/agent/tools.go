package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/workgraph"
)

// messagesOf are the messages that the end of a round leaves in the thread. In the tools form these are the
// message of the model as it is, and an answer to each of its calls; in the prompt form act has appended what
// was said. A person's answer follows.
func (r *round) messagesOf(item *state.Item, said *response.Response) (out []workgraph.ThreadItem, err error) {
	if r.d.Form == formTools {
		if out, err = r.answered(item, said.TaskCalls); err != nil {
			return nil, err
		}
	}
	if r.answeredCall {
		return out, nil // the person's answer is that of the call
	}
	for _, answer := range replies(item.Answer) {
		it, err := messageItem(message{Role: "user", Content: answer}, maxMessage)
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	return out, nil
}

// answered are the model's message and the answers to its calls, which have maxMessage bytes together. Every
// call is answered, since no model server takes a conversation with a call that is not.
func (r *round) answered(item *state.Item, own []response.TaskCall) ([]workgraph.ThreadItem, error) {
	raw := item.RawResponse
	var m struct {
		Role  string `json:"role"`
		Calls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Role != "assistant" || len(raw) > maxMessage || !answerable(raw) {
		// A reasoner that is no model, text alone, or calls that no model server takes back.
		one, err := messageItem(message{Role: "assistant", Content: inWords(raw)}, maxMessage)
		if err != nil {
			return nil, err
		}
		out := []workgraph.ThreadItem{one}
		if item.Refused != "" || len(item.ActionResults) > 0 {
			told, err := messageItem(message{Role: "user", Content: prompt.ActionResults(item.ActionResults, r.d.MaxResultBytes, r.d.History.share())}, maxMessage)
			if err != nil {
				return nil, err
			}
			out = append(out, told)
		}
		return out, nil
	}
	out := []workgraph.ThreadItem{{Kind: workgraph.ThreadMessage, Body: raw}}
	answers := map[string]*state.Result{}
	item.ActionResults.Each(func(one *state.Result) { answers[one.Call] = one })
	for i, call := range m.Calls {
		answer := message{Role: "tool", ToolCallID: call.ID}
		at := slices.IndexFunc(own, func(c response.TaskCall) bool { return c.Index == i })
		switch one, ok := answers[call.ID]; {
		case at >= 0 && own[at].Signal && !r.signaled:
			answer.Content, answer.IsError = cmp.Or(item.Refused, notDone), true
		case at >= 0 && own[at].Asks():
			answer.Content, r.answeredCall = strings.Join(replies(item.Answer), "\n"), true
		case at >= 0:
			answer.Content, answer.IsError = own[at].Answer, own[at].Failed
		case ok && call.ID != "":
			answer.Content, answer.IsError = r.d.answer(one)
		case item.Refused != "":
			answer.Content, answer.IsError = item.Refused, true
		case len(m.Calls) == 1 && len(item.ActionResults) == 1:
			answer.Content, answer.IsError = r.d.answer(&item.ActionResults[0])
		default:
			answer.Content, answer.IsError = notDone, true
		}
		it, err := messageItem(answer, maxMessage/len(m.Calls))
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	if len(m.Calls) == 0 && item.Refused != "" {
		it, err := messageItem(message{Role: "user", Content: item.Refused}, maxMessage)
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	return out, nil
}

// notDone is the answer to a call that was put off by another one.
const notDone = "it was not done"

// answer is what a model is told of one call.
func (d *definition) answer(one *state.Result) (content string, failed bool) {
	return errs.Clip(one.Text(), d.MaxResultBytes), one.Error != nil || one.Skipped != ""
}

// messages is the outcome that carries the newest messages of the thread, within the room of the round. What
// is told in every round stands before them, then the summary, and the newest user input if they lack it.
func (r *round) messages(ctx context.Context, l *loop, items []workgraph.ThreadItem) (workgraph.Outcome, error) {
	recent, err := r.recent(ctx, l, items)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	m := room{left: r.d.History.Tokens}
	var out []json.RawMessage
	say := func(text string) error {
		if text == "" {
			return nil
		}
		raw, err := actor.Encode(message{Role: "user", Content: text})
		out = append(out, raw)
		return err
	}
	about := m.take(r.about())
	full := m.left
	before := r.summary.told(&m)
	parts := partsOf(recent)
	if n := r.d.History.older(parts, full-m.left, m.left); n > 0 && r.asks() {
		return r.ask(parts[:n], parts[n].first-1)
	}
	if err := errors.Join(say(about), say(before)); err != nil {
		return workgraph.Outcome{}, badLoop("%v", err)
	}
	c, err := r.choose(ctx, l, parts, &m)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	for i := range c.input {
		out = append(out, c.input[i].raw)
	}
	kept := c.kept
	switch {
	case len(out) > 0 || len(kept) > 0 && kept[0].messages[0].Role == "user":
	case len(kept) > 0:
		err = say("(Earlier messages are left out.)") // model servers want a message of the user first
	default:
		err = say("Go on.")
	}
	if err != nil {
		return workgraph.Outcome{}, badLoop("%v", err)
	}
	if len(kept) == 1 && kept[0].tokens > m.left {
		r.sent.Cut = kept[0].cut(m.left)
	}
	for i := range kept {
		for k := range kept[i].messages {
			raw := kept[i].messages[k].raw
			if r.sent.Cut > 0 {
				if raw, err = shortAnswer(raw, r.sent.Cut); err != nil {
					return workgraph.Outcome{}, badLoop("%v", err)
				}
			}
			out = append(out, raw)
		}
	}
	r.sent.About = r.at.About
	told := map[string]any{"messages": out}
	if r.d.Reasoner != actorLLM {
		told["round"] = r.number
	}
	return r.value(told)
}

// cut is to how many bytes each answer of a call is shortened so that the call and its answers fit, or 0 if
// it has none.
func (p *part) cut(left int64) int {
	if len(p.messages) < 2 {
		return 0
	}
	left -= llm.EstimateMessage(&p.messages[0].Message)
	return max(minShare, int(left)*tokenBytes/(len(p.messages)-1))
}

// shortAnswer shortens an answer to a call. Other messages stay as they are.
func shortAnswer(raw json.RawMessage, most int) (json.RawMessage, error) {
	e := entryOf(0, raw)
	if e.Role != "tool" || len(e.Content) <= most {
		return raw, nil
	}
	e.Content = errs.Clip(e.Content, most)
	return actor.Encode(e.Message)
}

// about is the context, the user profile, the attachments, and results that the agent began with.
func (r *round) about() string {
	t, err := prompt.Parse(aboutTemplate)
	if err != nil {
		return "" // cannot happen: a test parses it
	}
	m := room{left: r.d.History.Tokens}
	values := map[string]string{}
	values[prompt.Context] = m.clip(r.in.Context)
	values[prompt.UserProfile] = m.clip(r.in.UserProfile)
	values[prompt.Attachments] = m.take(prompt.AttachmentsText(r.in.Attachments, m.share()))
	values[prompt.ActionResult] = prompt.ActionResults(r.in.ActionResults, r.d.MaxResultBytes, m.share())
	return t.Render(values)
}

const aboutTemplate = `[[
User profile:
{user_profile}
]]

[[
Context:
{context}
]]

[[
Attachments:
{attachments}
]]

[[
Results so far:
{action_result}
]]
`
