package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
)

// minEntry is how many bytes of a text each of its entries has at least, if there is that much.
const minEntry = 256

// ActionResults is the XML of what became of actions, empty if there are none: an Action for each, with its
// ActionType and ActionResult, and an ActionGroup around the actions of a parallel group. A value that no
// action gave has no ActionType; a list of such values has an Action for each. Every result has at most each
// bytes; truncated tells the whole length of one that was cut. All of them have about all bytes. Results
// beyond that are left out, and ActionsLeftOut says how many.
func ActionResults(rs state.Results, each, all int) string {
	if len(rs) == 0 {
		return ""
	}
	rs = spread(rs)
	w := &listing{each: each, share: max(minEntry, all/rs.Count()), left: all}
	w.b.WriteString("<ActionResults>\n")
	w.results(rs, "  ")
	if w.leftOut > 0 {
		fmt.Fprintf(&w.b, "  <ActionsLeftOut>%d</ActionsLeftOut>\n", w.leftOut)
	}
	w.b.WriteString("</ActionResults>")
	return w.b.String()
}

// spread is the results with a list of values as a result for each.
func spread(rs state.Results) state.Results {
	out := make(state.Results, 0, len(rs))
	for _, r := range rs {
		r.Group = spread(r.Group)
		list, _ := state.Members(r.Value, state.MaxMembers)
		for _, v := range list {
			out = append(out, state.Result{OK: v})
		}
		if len(list) == 0 {
			if len(r.Value) > 0 {
				r.OK, r.Value = r.Value, nil
			}
			out = append(out, r)
		}
	}
	return out
}

// listing writes results within a number of bytes.
type listing struct {
	b strings.Builder
	// each bounds a result, share what is written for it, left all of them.
	each, share, left int
	leftOut           int
}

func (w *listing) results(rs state.Results, indent string) {
	for i := range rs {
		r := &rs[i]
		switch {
		case len(r.Group) == 0:
			w.result(r, indent)
		case w.leftOut > 0:
			w.leftOut += r.Group.Count()
		default:
			w.b.WriteString(indent + "<ActionGroup>\n")
			w.results(r.Group, indent+"  ")
			w.b.WriteString(indent + "</ActionGroup>\n")
		}
	}
}

// result writes one result, unless it or one before it has no room.
func (w *listing) result(r *state.Result, indent string) {
	if w.leftOut > 0 {
		w.leftOut++
		return
	}
	in := indent + "  "
	text, tail := indent+"<Action>\n", indent+"</Action>\n"
	if r.Action != "" {
		text += element(in, "ActionType", "", clipped(r.Action, w.share/4, false))
	}
	const tags = len("<ActionResult truncated=\"\"></ActionResult>\n") + 10
	most := max(0, min(w.each, w.share-len(text)-len(tail)-len(in)-tags))
	whole, tag, attribute := r.Text(), "ActionResult", ""
	shown, cut := escaped(whole, most, false)
	switch {
	case r.Error != nil:
		tag = "ActionError"
	case r.Skipped != "" || r.Abstained:
		tag = "ActionSkipped"
	case cut || r.Cut > 0:
		attribute = fmt.Sprintf(` truncated="%d"`, max(len(whole), r.Cut))
	}
	text += element(in, tag, attribute, shown)
	text += tail
	if len(text) > w.left {
		w.leftOut++
		return
	}
	w.left -= len(text)
	w.b.WriteString(text)
}

func element(indent, tag, attributes, text string) string {
	return indent + "<" + tag + attributes + ">" + text + "</" + tag + ">\n"
}

// escaped is a text as XML, for the value of an attribute or the content of an element. Characters that XML
// does not have become U+FFFD. It has at most so many bytes, and an ellipsis if it was cut.
func escaped(s string, most int, attribute bool) (text string, cut bool) {
	var b strings.Builder
	for _, r := range s {
		n := b.Len()
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"' && attribute:
			b.WriteString("&quot;")
		case r < 0x20 && r != '\t' && r != '\n' && r != '\r', r == 0xFFFE, r == 0xFFFF:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
		if b.Len() > most {
			return b.String()[:n] + "…", true
		}
	}
	return b.String(), false
}

// clipped is escaped without whether it was cut.
func clipped(s string, most int, attribute bool) string {
	text, _ := escaped(s, most, attribute)
	return text
}

// Memory is what actions want to be remembered: the texts of action_memory.memory in their results, a line
// each, in at most so many bytes and an ellipsis. They are escaped as XML, and all lines but the first are
// indented: nothing that they hold reads as results, or as what the user said.
func Memory(rs state.Results, most int) string {
	return clipped(breaks.Replace(errs.Clip(strings.Join(memories(rs, nil), "\n"), most)), most, false)
}

func memories(rs state.Results, to []string) []string {
	for i := range rs {
		r := &rs[i]
		to = memories(r.Group, to)
		for _, raw := range []json.RawMessage{r.OK, r.Value} {
			var v struct {
				Memory struct {
					Memory json.RawMessage `json:"memory"`
				} `json:"action_memory"`
			}
			if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &v) == nil {
				if m := actor.AsText(v.Memory.Memory); m != "" {
					to = append(to, m)
				}
			}
		}
	}
	return to
}

// Attachment is a document for a reasoner.
type Attachment struct {
	ID          string          `json:"id"`
	Description string          `json:"description,omitempty"`
	Content     json.RawMessage `json:"content,omitempty"`
	// URI is where the content is, if it is not here.
	URI string `json:"uri,omitempty"`
}

// AttachmentsText is the attachments as text of about so many bytes. Each has an equal share; those that have
// no room are left out, and a line says how many.
func AttachmentsText(as []Attachment, all int) string {
	var b strings.Builder
	share := max(minEntry, all/max(1, len(as)))
	for i := range as {
		text := as[i].text(share)
		if i > 0 && b.Len()+len(text) > all {
			fmt.Fprintf(&b, "\n(%d more attachments are left out.)", len(as)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

// text is the attachment in an element of at most so many bytes. Its id and its description have a quarter of
// them each at most.
func (a *Attachment) text(most int) string {
	head := `<Attachment id="` + clipped(a.ID, most/4, true)
	if a.Description != "" {
		head += `" description="` + clipped(a.Description, most/4, true)
	}
	const tail, more = "\n</Attachment>", len("\" truncated=\"\">\n") + 10
	whole := actor.AsText(a.Content)
	if whole == "" {
		whole = a.URI
	}
	body, cut := escaped(whole, max(0, most-len(head)-len(tail)-more), false)
	if cut {
		head += fmt.Sprintf(`" truncated="%d`, len(whole))
	}
	return head + "\">\n" + body + tail
}

// breaks are the ends of lines, as models may read them.
var breaks = strings.NewReplacer("\r\n", "\n  ", "\n", "\n  ", "\r", "\n  ", "\v", "\n  ", "\f", "\n  ", "\u0085", "\n  ", "\u2028", "\n  ", "\u2029", "\n  ")

// Entry is what an agent or a tool said as an entry of a conversation, in so many bytes at most. All its
// lines but the first are indented: nothing that they write reads as an entry of the user's.
func Entry(who, said string, most int) string {
	return errs.Clip(who+": "+breaks.Replace(errs.Clip(said, most)), most)
}

// Said is a message of a thread as a conversation shows it.
type Said struct{ Role, Text string }

// ReadSaid reads a message whose content may be any JSON. ok is false of what is no message.
func ReadSaid(raw json.RawMessage) (s Said, ok bool) {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return s, false
	}
	return Said{m.Role, actor.AsText(m.Content)}, true
}

// ConversationText is the conversation of messages, which are given newest first: "User: …" for each of the
// user's, and an Entry "Agent" for each of the agent's that says something. It has at most so many bytes: the
// oldest entries give way, and the end of an entry that is longer.
func ConversationText(messages []Said, most int) string {
	var lines []string
	size := 0
	for _, m := range messages {
		if m.Role == "tool" || m.Text == "" {
			continue
		}
		var line string
		if m.Role == "assistant" {
			line = Entry("Agent", m.Text, most)
		} else {
			line = errs.Clip("User: "+m.Text, most)
		}
		if size += len(line) + 1; size > most && len(lines) > 0 {
			break
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// States are the texts of the current state and of those before it. The current state is the newest that is
// not Pending; the others of the same task that are not Pending follow, the newest first, joined by a blank
// line. A state without a description has no text. The texts have at most so many bytes each: the oldest
// states give way.
func States(states []state.Brief, most int) (current, previous string) {
	var before []string
	found := false
	size := 0
	for i := len(states) - 1; i >= 0; i-- {
		s := &states[i]
		if s.Status != response.Pending {
			text := s.DescriptionExtended
			if text == "" {
				text = s.Description
			}
			text = errs.Clip(text, most)
			switch {
			case !found:
				current, found = text, true
			case text != "":
				if size += len(text) + 2; size > most && len(before) > 0 {
					return current, strings.Join(before, "\n\n")
				}
				before = append(before, text)
			}
		}
		if s.NewTask {
			break // what came before is another task
		}
	}
	return current, strings.Join(before, "\n\n")
}
