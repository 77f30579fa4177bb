package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// summary is the body of an item that stands for others of its thread: those from First to Last.
type summary struct {
	First int64  `json:"first"`
	Last  int64  `json:"last"`
	Text  string `json:"summary"`

	seq int64
}

// summaryLead begins what is told of a summary.
const summaryLead = "Summary of what came before:\n"

// told is the summary as the reasoner is told it, within a share of the room.
func (s *summary) told(m *room) string {
	if s == nil {
		return ""
	}
	return m.take(summaryLead + errs.Clip(s.Text, m.share()))
}

// summary is the newest one of a thread up to a position, or nil.
func (l *loop) summary(ctx context.Context, at standing.Place) (*summary, error) {
	if at.Thread == "" {
		return nil, nil
	}
	items, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), at.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadSummary}, Before: at.Seq + 1, Limit: 1})
	if err != nil {
		return nil, standing.Error(err)
	}
	if len(items) == 0 {
		return nil, nil
	}
	s := &summary{seq: items[0].Seq}
	if err := json.Unmarshal(items[0].Body, s); err != nil {
		return nil, workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "summary %d of thread %s cannot be read: %v", s.seq, at.Thread, err)
	}
	return s, nil
}

// part is what is told of a thread or left out as a whole: a state, or a message. A call and its answers are
// one part.
type part struct {
	first, last int64 // sequences
	tokens      int64
	state       *state.Brief
	messages    []entry
}

// entry is a message of a thread.
type entry struct {
	seq int64
	raw json.RawMessage
	llm.Message
}

func entryOf(seq int64, raw json.RawMessage) entry {
	e := entry{seq: seq, raw: raw}
	if json.Unmarshal(raw, &e.Message) != nil || e.Role == "" {
		e.Message = llm.Message{Content: string(raw)} // an item that is no message is told as it is
	}
	return e
}

// said adds the message as a conversation shows it, if it does.
func (e *entry) said(to []prompt.Said) []prompt.Said {
	if e.Role != "" {
		return append(to, prompt.Said{Role: e.Role, Text: e.Content})
	}
	if s, ok := prompt.ReadSaid(e.raw); ok {
		to = append(to, s)
	}
	return to
}

// notKnown is the answer to a call whose own one is not in the thread. A fork may begin between a call and
// its answers, and no model server takes a conversation with a call that is not answered.
const notKnown = "its result is not known here: the conversation was forked before it came"

// partsOf groups messages that are in order. Answers without their call are left out, and a call without an
// answer gets one.
func partsOf(messages []entry) []part {
	var out []part
	var open []string // the calls of the last part that have no answer yet
	answered := func(e entry) {
		p := &out[len(out)-1]
		p.last, p.tokens, p.messages = e.seq, p.tokens+llm.EstimateMessage(&e.Message), append(p.messages, e)
	}
	end := func() {
		for _, id := range open {
			answered(unanswered(out[len(out)-1].last, id))
		}
		open = nil
	}
	for i := range messages {
		e := &messages[i]
		if e.Role == llm.ToolRole {
			if at := slices.Index(open, e.ToolCallID); at >= 0 {
				open = slices.Delete(open, at, at+1)
				answered(*e)
			}
			continue
		}
		end()
		out = append(out, part{first: e.seq, last: e.seq, tokens: llm.EstimateMessage(&e.Message), messages: messages[i : i+1 : i+1]})
		for k := range e.ToolCalls {
			open = append(open, e.ToolCalls[k].ID)
		}
	}
	end()
	return out
}

// unanswered is the answer to a call that has none.
func unanswered(seq int64, id string) entry {
	e := entry{seq: seq, Message: llm.Message{Role: llm.ToolRole, ToolCallID: id, Content: notKnown, IsError: true}}
	e.raw, _ = actor.Encode(e.Message) // texts always marshal
	return e
}

// promptParts are the messages and the states that a prompt may show, by sequence.
func (r *round) promptParts(messages []entry, states []seen) []part {
	t := r.d.template
	var out []part
	for i := range messages {
		e := &messages[i]
		if e.Role == "tool" || e.Content == "" || !t.Holds(prompt.Conversation) {
			continue
		}
		out = append(out, part{first: e.seq, last: e.seq, tokens: llm.EstimateText(e.Content) + 3, messages: messages[i : i+1]})
	}
	for i := range states {
		s := &states[i]
		if !r.after(s.seq) {
			continue
		}
		p := part{first: s.seq, last: s.seq, state: &s.Brief}
		if t.Holds(prompt.PreviousStates) {
			p.tokens = llm.EstimateText(cmp.Or(s.DescriptionExtended, s.Description))
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b part) int { return cmp.Compare(a.first, b.first) })
	return out
}

// counts are numbers of messages and of states. Each of them has the same bound.
type counts struct{ messages, states int }

func (c *counts) add(p *part) {
	if c.messages += len(p.messages); p.state != nil {
		c.states++
	}
}

func (c *counts) above(most int) bool { return max(c.messages, c.states) > most }

// newest is the index of the first of the newest parts that fit. The last part is always among them.
func newest(parts []part, tokens int64, most int) int {
	from := len(parts)
	for n := (counts{}); from > 0; from-- {
		p := &parts[from-1]
		n.add(p)
		if tokens -= p.tokens; from < len(parts) && (tokens < 0 || n.above(most)) {
			break
		}
	}
	return from
}

// older is how many parts are to be summarized now, the oldest first. told is the room of the summary that
// there is.
func (h *history) older(parts []part, told, left int64) int {
	s := h.Summarize
	if s == nil {
		return 0
	}
	limit := min(s.Above, told+left)
	tokens, n := told, counts{}
	for i := range parts {
		tokens += parts[i].tokens
		n.add(&parts[i])
	}
	if tokens <= limit && !n.above(h.Messages) {
		return 0
	}
	return newest(parts, min(s.Keep, limit/2), max(1, h.Messages/2))
}

// limit is how many items are read at most. What is to be summarized is read whole, as far as a summary can
// hold it.
func (r *round) limit(pending int) int {
	switch {
	case r.d.History.Summarize == nil:
		return r.d.History.Messages - pending
	case r.summary == nil:
		return maxMessages
	}
	return int(min(maxMessages, r.from.Seq-r.summary.Last))
}

// after reports whether no summary stands for the item.
func (r *round) after(seq int64) bool { return r.summary == nil || seq > r.summary.Last }

// recent are the messages that may be told, oldest first: those that the outcome will append, and those of
// the thread that no summary stands for.
func (r *round) recent(ctx context.Context, l *loop, items []workgraph.ThreadItem) ([]entry, error) {
	var out []entry
	size := 0
	for i, it := range slices.Backward(items) {
		if it.Kind == workgraph.ThreadMessage {
			out = append(out, entryOf(r.from.Seq+int64(i)+1, it.Body))
			size += len(it.Body)
		}
	}
	most := int(r.d.History.Tokens) * maxTokenBytes
	if more := r.limit(len(out)); more > 0 && r.from.Thread != "" && size < most {
		older, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), r.from.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}, Before: r.from.Seq + 1,
			Limit: more, MaxBytes: most - size})
		if err != nil {
			return nil, standing.Error(err)
		}
		for i := range older {
			if !r.after(older[i].Seq) {
				break
			}
			out = append(out, entryOf(older[i].Seq, older[i].Body))
		}
	}
	slices.Reverse(out)
	return out, nil
}

// seen is a state of a thread, without what was said in its round.
type seen struct {
	seq int64
	state.Brief
}

// enoughStates is how many states are read whatever a summary stands for: the current one is the newest that
// is not Pending.
const enoughStates = 16

// states are the newest states, oldest first: those that the outcome will append, and those of the thread.
func (r *round) states(ctx context.Context, l *loop, items []workgraph.ThreadItem) ([]seen, error) {
	var out []seen
	add := func(seq int64, brief []byte) error {
		var s struct { // of a state.Brief
			NewTask             bool            `json:"new_task"`
			Status              response.Status `json:"task_status"`
			Description         string          `json:"task_status_description"`
			DescriptionExtended string          `json:"task_status_description_extended"`
		}
		if err := json.Unmarshal(brief, &s); err != nil {
			return workgraph.Errorf(workgraph.Permanent, thread.ReasonInvalid, "state %d of thread %s cannot be read: %v", seq, r.from.Thread, err)
		}
		out = append(out, seen{seq, state.Brief{NewTask: s.NewTask, Status: s.Status, Description: s.Description, DescriptionExtended: s.DescriptionExtended}})
		return nil
	}
	for i, it := range slices.Backward(items) {
		if it.Kind == workgraph.ThreadState {
			if err := add(r.from.Seq+int64(i)+1, it.Brief); err != nil {
				return nil, err
			}
		}
	}
	more := r.limit(len(out))
	if r.summary != nil {
		more = max(more, enoughStates)
	}
	if more > 0 && r.from.Thread != "" {
		items, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), r.from.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadState}, Before: r.from.Seq + 1,
			Limit: more, MaxBytes: maxBriefs, Briefs: true})
		if err != nil {
			return nil, standing.Error(err)
		}
		for i := range items {
			if err := add(items[i].Seq, items[i].Brief); err != nil {
				return nil, err
			}
		}
	}
	slices.Reverse(out)
	return out, nil
}

// input are the messages with the newest user input that come before what is kept, and their room. They are
// told whatever gives way.
func (r *round) input(ctx context.Context, l *loop, parts, kept []part) (out []entry, err error) {
	span := r.at.Input
	for i := 0; span == nil && i < len(parts); i++ {
		if p := &parts[len(parts)-1-i]; len(p.messages) > 0 && p.messages[0].Role == "user" {
			span = &state.Span{First: p.first, Last: p.last}
		}
	}
	if span == nil || len(kept) > 0 && kept[0].first <= span.First {
		return nil, nil
	}
	last := span.Last
	if len(kept) > 0 {
		last = min(last, kept[0].first-1)
	}
	for i := range parts {
		if p := &parts[i]; len(p.messages) > 0 && p.first >= span.First && p.last <= last {
			out = append(out, p.messages...)
		}
	}
	if int64(len(out)) == last-span.First+1 || r.from.Thread == "" {
		return out, nil
	}
	items, err := l.threads.Items(ctx, actor.NamespaceOf(ctx), r.from.Thread, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}, Before: last + 1, Limit: int(last - span.First + 1)})
	if err != nil {
		return nil, standing.Error(err)
	}
	out = nil
	for _, it := range slices.Backward(items) {
		if it.Seq >= span.First {
			out = append(out, entryOf(it.Seq, it.Body))
		}
	}
	return out, nil
}

// choice is what of a thread is told: the input that comes before the kept parts, and these.
type choice struct {
	input []entry
	kept  []part
}

// choose leaves out the oldest parts beyond the room.
func (r *round) choose(ctx context.Context, l *loop, parts []part, m *room) (c choice, err error) {
	c.kept = parts[newest(parts, m.left, r.d.History.Messages):]
	if c.input, err = r.input(ctx, l, parts, c.kept); err != nil {
		return c, err
	}
	if len(c.input) > 0 {
		for i := range c.input {
			m.left = max(0, m.left-llm.EstimateMessage(&c.input[i].Message))
		}
		c.kept = parts[newest(parts, m.left, r.d.History.Messages):]
		if c.input, err = r.input(ctx, l, parts, c.kept); err != nil {
			return c, err
		}
		if n := len(c.input); n > 0 {
			r.sent.Input = &state.Span{First: c.input[0].seq, Last: c.input[n-1].seq}
		}
	}
	if n := len(c.kept); n > 0 {
		r.sent.First, r.sent.Last = c.kept[0].first, c.kept[n-1].last
	}
	if r.summary != nil {
		r.sent.Summary = r.summary.seq
	}
	return c, nil
}

// ask is the outcome that asks for a summary of the older parts of a thread, up to a sequence. If they are
// too much for one call, their oldest are left out.
func (r *round) ask(parts []part, upTo int64) (workgraph.Outcome, error) {
	left := r.d.History.Tokens / 4 * 3
	text := ""
	if r.summary != nil {
		text = summaryLead + r.summary.Text + "\n\n"
		left -= llm.EstimateText(text)
	}
	parts = parts[newest(parts, left, maxMessages):]
	r.asked = &state.Span{First: parts[0].first, Last: upTo}
	if r.summary != nil {
		r.asked.First = r.summary.First
	}
	each := maxMessage
	if parts[0].tokens > left { // one part, whatever its length
		each = max(minShare, int(left)*tokenBytes/max(1, len(parts[0].messages)))
	}
	var b strings.Builder
	b.WriteString(text)
	for i := range parts {
		parts[i].spell(&b, each)
	}
	request := r.d.History.Summarize.template.Render(map[string]string{prompt.Conversation: strings.TrimSpace(b.String())})
	return value(map[string]string{"request": request})
}

// spell writes a part for who summarizes it, with at most so many bytes of each text.
func (p *part) spell(b *strings.Builder, each int) {
	line := func(who, said string) {
		if said != "" {
			b.WriteString(prompt.Entry(who, said, each) + "\n")
		}
	}
	if s := p.state; s != nil {
		line("State", cmp.Or(s.DescriptionExtended, s.Description))
	}
	for i := range p.messages {
		m := &p.messages[i]
		switch {
		case m.Role == "assistant":
			line("Agent", m.Content)
		case m.Role == "tool" && m.IsError:
			line("Failure", m.Content)
		case m.Role == "tool":
			line("Result", m.Content)
		default:
			if m.Content != "" {
				b.WriteString("User: " + errs.Clip(m.Content, each) + "\n")
			}
		}
		for _, call := range m.ToolCalls {
			line("Agent calls "+call.Name, actor.AsText(call.Arguments))
		}
	}
}
