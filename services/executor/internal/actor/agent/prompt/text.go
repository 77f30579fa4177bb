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

// ActionResults is the XML of what became of actions, empty if there are none: an Action for each, with its
// ActionType and ActionResult, and an ActionGroup around the actions of a parallel group. A value that no
// action gave has no ActionType; a list of such values has an Action for each. Every result has at most so
// many bytes before it is escaped; truncated tells the whole length of one that was cut.
func ActionResults(rs state.Results, most int) string {
	if len(rs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<ActionResults>\n")
	results(&b, rs, most, "  ")
	b.WriteString("</ActionResults>")
	return b.String()
}

func results(b *strings.Builder, rs state.Results, most int, indent string) {
	for i := range rs {
		r := &rs[i]
		switch {
		case len(r.Group) > 0:
			b.WriteString(indent + "<ActionGroup>\n")
			results(b, r.Group, most, indent+"  ")
			b.WriteString(indent + "</ActionGroup>\n")
		case len(r.Value) > 0:
			for _, v := range members(r.Value) {
				one(b, &state.Result{OK: v}, most, indent)
			}
		default:
			one(b, r, most, indent)
		}
	}
}

// members are the elements of a list, or any other value alone.
func members(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return list
	}
	return []json.RawMessage{raw}
}

func one(b *strings.Builder, r *state.Result, most int, indent string) {
	b.WriteString(indent + "<Action>\n")
	in := indent + "  "
	if r.Action != "" {
		element(b, in, "ActionType", "", r.Action)
	}
	switch {
	case r.Error != nil:
		element(b, in, "ActionError", "", r.Error.Reason+": "+errs.Clip(r.Error.Message, most))
	case r.Skipped != "":
		element(b, in, "ActionSkipped", "", r.Skipped)
	case r.Abstained:
		element(b, in, "ActionSkipped", "", "it gave no result")
	default:
		s := actor.AsText(r.OK)
		cut := ""
		if whole := max(len(s), r.Cut); whole > most || r.Cut > 0 {
			cut = fmt.Sprintf(` truncated="%d"`, whole)
			s = errs.Clip(s, most)
		}
		element(b, in, "ActionResult", cut, s)
	}
	b.WriteString(indent + "</Action>\n")
}

func element(b *strings.Builder, indent, tag, attributes, text string) {
	fmt.Fprintf(b, "%s<%s%s>", indent, tag, attributes)
	escape(b, text, false)
	fmt.Fprintf(b, "</%s>\n", tag)
}

// escape writes text as XML, for the value of an attribute or the content of an element. Characters that XML
// does not have become U+FFFD.
func escape(b *strings.Builder, s string, attribute bool) {
	for _, r := range s {
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
	}
}

// Memory is what actions want to be remembered: the texts of action_memory.memory in their results, a line
// each.
func Memory(rs state.Results) string {
	var lines []string
	for i := range rs {
		r := &rs[i]
		if len(r.Group) > 0 {
			if m := Memory(r.Group); m != "" {
				lines = append(lines, m)
			}
			continue
		}
		for _, raw := range []json.RawMessage{r.OK, r.Value} {
			var v struct {
				Memory struct {
					Memory json.RawMessage `json:"memory"`
				} `json:"action_memory"`
			}
			if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &v) == nil {
				if m := actor.AsText(v.Memory.Memory); m != "" {
					lines = append(lines, m)
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

// Attachment is a document for a reasoner.
type Attachment struct {
	ID          string          `json:"id"`
	Description string          `json:"description,omitempty"`
	Content     json.RawMessage `json:"content,omitempty"`
	// URI is where the content is, if it is not here.
	URI string `json:"uri,omitempty"`
}

// AttachmentsText is the attachments as text, each of at most so many bytes before it is escaped.
func AttachmentsText(as []Attachment, most int) string {
	var b strings.Builder
	for i := range as {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(`<Attachment id="`)
		escape(&b, as[i].ID, true)
		if as[i].Description != "" {
			b.WriteString(`" description="`)
			escape(&b, as[i].Description, true)
		}
		body := actor.AsText(as[i].Content)
		if body == "" {
			body = as[i].URI
		}
		if len(body) > most {
			fmt.Fprintf(&b, `" truncated="%d`, len(body))
			body = errs.Clip(body, most)
		}
		b.WriteString("\">\n")
		escape(&b, body, false)
		b.WriteString("\n</Attachment>")
	}
	return b.String()
}

// ConversationText is the conversation of messages of a thread, which are given newest first: a line
// "User: …" for each of the user's, and "Agent: …" for each of the agent's that says something. It has at
// most so many bytes: the oldest lines give way, and the end of a line that is longer.
func ConversationText(messages []json.RawMessage, most int) string {
	var lines []string
	size := 0
	for _, raw := range messages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		who, said := "User", actor.AsText(m.Content)
		if m.Role == "assistant" {
			who = "Agent"
		}
		if m.Role == "tool" || said == "" {
			continue
		}
		line := errs.Clip(who+": "+said, most)
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
