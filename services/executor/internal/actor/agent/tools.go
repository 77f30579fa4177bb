package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// messagesOf are the messages that the end of a round leaves in the thread. In the tools form these are the
// message of the model as it is, and an answer to each of its calls; in the prompt form act has appended what
// was said. A person's answer follows.
func (r *round) messagesOf(item *state.Item, said *response.Response) (out []workgraph.ThreadItem, err error) {
	if r.d.Form == formTools {
		if out, err = r.answered(item, said); err != nil {
			return nil, err
		}
	}
	for _, answer := range inputs(item.Answer) {
		it, err := messageItem(message{Role: "user", Content: answer})
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	return out, nil
}

// answered are the model's message and the answers to its calls. Every call is answered, since no model
// server takes a conversation with a call that is not.
func (r *round) answered(item *state.Item, said *response.Response) ([]workgraph.ThreadItem, error) {
	raw := item.RawResponse
	var m struct {
		Role  string `json:"role"`
		Calls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Role != "assistant" || len(raw) > maxMessage {
		// A reasoner that is no model, or text alone.
		one, err := messageItem(message{Role: "assistant", Content: actor.AsText(raw)})
		if err != nil {
			return nil, err
		}
		out := []workgraph.ThreadItem{one}
		if item.Refused != "" || len(item.ActionResults) > 0 {
			told, err := messageItem(message{Role: "user", Content: prompt.ActionResults(item.ActionResults, r.d.share(item.ActionResults))})
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
	for _, call := range m.Calls {
		answer := message{Role: "tool", ToolCallID: call.ID}
		switch one, ok := answers[call.ID]; {
		case ok && call.ID != "":
			answer.Content, answer.IsError = r.d.answer(one)
		case item.Refused != "":
			answer.Content, answer.IsError = item.Refused, true
		case len(m.Calls) == 1 && len(item.ActionResults) == 1:
			answer.Content, answer.IsError = r.d.answer(&item.ActionResults[0])
		default:
			answer.Content, answer.IsError = "it was not done", true
		}
		it, err := messageItem(answer)
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	if len(m.Calls) == 0 && item.Refused != "" {
		it, err := messageItem(message{Role: "user", Content: item.Refused})
		if err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	return out, nil
}

// answer is what a model is told of one call.
func (d *definition) answer(one *state.Result) (content string, failed bool) {
	switch {
	case one.Error != nil:
		return one.Error.Reason + ": " + one.Error.Message, true
	case one.Skipped != "":
		return one.Skipped, true
	case one.Abstained:
		return "it gave no result", false
	}
	return errs.Clip(actor.AsText(one.OK), d.MaxResultBytes), false
}

// recent are the newest messages of the thread, newest first: those of items, which are not there yet, and
// older ones while all have at most so many bytes.
func (r *round) recent(ctx context.Context, l *loop, items []workgraph.ThreadItem, most int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	size := 0
	for i := range slices.Backward(items) {
		if items[i].Kind == workgraph.ThreadMessage {
			all = append(all, items[i].Body)
			size += len(items[i].Body)
		}
	}
	if more := r.d.MaxStates - len(all); more > 0 && r.from.Thread != "" && size < most {
		older, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), r.from.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}, Before: r.from.Seq + 1,
			Limit: more, MaxBytes: most - size})
		if err != nil {
			return nil, threadError(err)
		}
		for i := range older {
			if size += len(older[i].Body); size > most {
				break
			}
			all = append(all, older[i].Body)
		}
	}
	return all, nil
}

// messages is the outcome that carries the newest messages of the thread, within the bounds of what is told.
// An answer to a call whose message is not told is left out, and the task stands first if what is left does
// not begin with a message of the user.
func (r *round) messages(ctx context.Context, l *loop, items []workgraph.ThreadItem) (workgraph.Outcome, error) {
	all, err := r.recent(ctx, l, items, r.d.MaxHistoryBytes)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	slices.Reverse(all)
	for len(all) > 0 && roleOf(all[0]) == "tool" {
		all = all[1:]
	}
	if len(all) == 0 || roleOf(all[0]) != "user" {
		task := r.in.UserInput
		if task == "" {
			task = "Go on."
		}
		raw, err := actor.Encode(message{Role: "user", Content: task})
		if err != nil {
			return workgraph.Outcome{}, badLoop("%v", err)
		}
		all = append([]json.RawMessage{raw}, all...)
	}
	// What is told in every round stands before the conversation, so that it is there whatever is left out.
	if about := r.about(); about != "" {
		raw, err := actor.Encode(message{Role: "user", Content: about})
		if err != nil {
			return workgraph.Outcome{}, badLoop("%v", err)
		}
		all = append([]json.RawMessage{raw}, all...)
	}
	told := map[string]any{"messages": all}
	if r.d.Reasoner != actorLLM {
		told["round"] = r.number
	}
	return r.value(told)
}

// about is the context, the user profile, the attachments, and results that the agent began with.
func (r *round) about() string {
	t, err := prompt.Parse(aboutTemplate)
	if err != nil {
		return "" // cannot happen: a test parses it
	}
	half := r.d.MaxHistoryBytes / 2
	return t.Render(map[string]string{
		prompt.UserProfile:  errs.Clip(r.in.UserProfile, half),
		prompt.Context:      errs.Clip(r.in.Context, half),
		prompt.Attachments:  prompt.AttachmentsText(r.in.Attachments, max(256, r.d.MaxHistoryBytes/max(1, len(r.in.Attachments)))),
		prompt.ActionResult: prompt.ActionResults(r.in.ActionResults, r.d.share(r.in.ActionResults)),
	})
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

func roleOf(raw json.RawMessage) string {
	var m struct {
		Role string `json:"role"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) || json.Unmarshal(raw, &m) != nil {
		return ""
	}
	return m.Role
}
