// Package response reads what a reasoner decided: the XML form, native tool calls, and JSON decisions. It
// owns these forms and their bounds. Everything that it reads is written by a model. It must not know which
// actions are allowed.
package response

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/plan/lenient"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
)

// Status is the status of the agent's task after a round.
type Status string

// The statuses. Pending asks the user and waits for the answer.
const (
	Ongoing   Status = "Ongoing"
	Pending   Status = "Pending"
	Completed Status = "Completed"
)

// Response is what a reasoner wants.
type Response struct {
	// InstantResponse is what it says to the user.
	InstantResponse string
	// Groups are the next actions: groups one after another, the actions of a group at the same time. None is
	// empty.
	Groups [][]Action
	// Graph is a graph of actions in JSON, in place of groups.
	Graph json.RawMessage
	// Compiled says that Graph was made of a plan, by us, and is to be done as it is. Read never sets it.
	Compiled bool
	// Result is the result of the task, or nil if the response states none.
	Result json.RawMessage

	Learnings []Learning
	NewTask   bool
	Status    Status
	// Stated says that the status was written. Else the rest of the response implies it.
	Stated              bool
	Description         string
	DescriptionExtended string
	// Calls says that the groups are native tool calls, each of which wants an answer.
	Calls bool
	// TaskCalls are calls that were not actions but said something of the task, or are signals.
	TaskCalls []TaskCall
	// Signals are calls that end the turn once the actions are done.
	Signals []Signal
	// empty says that groups were written, all without an action.
	empty bool
}

// Acts reports whether there is something to be done.
func (r *Response) Acts() bool { return len(r.Groups) > 0 || r.Graph != nil }

// FirstCall is the id of the tool call that asked for the first action, or empty.
func (r *Response) FirstCall() string {
	if len(r.Groups) == 0 {
		return ""
	}
	return r.Groups[0][0].Call
}

// Action is one action that is wanted.
type Action struct {
	Type      string                     `json:"action"`
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"`
	// Call is the id of the tool call that asked for it.
	Call      string `json:"call,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// FollowUp and Memory are what the XML form says of the action: that it continues an earlier one, and
	// where its result is to be remembered. They are kept in the state.
	FollowUp bool   `json:"is_follow_up,omitempty"`
	Memory   string `json:"memory_target,omitempty"`
	// texts says that the arguments were written as texts, so that a schema may read them as other types.
	texts bool
	// index is the place of the tool call in its message.
	index int
}

// Texts reports whether every argument was written as a text, as in XML. A number is the text of a number
// then.
func (a *Action) Texts() bool { return a.texts }

// Learning is a fact to be kept.
type Learning struct {
	ID      string `json:"id"`
	Content string `json:"content"`
}

// bounded is the learning with texts that are not too long.
func (l Learning) bounded() Learning {
	return Learning{errs.Clip(l.ID, maxLearning/32), errs.Clip(l.Content, maxLearning)}
}

// Bounds of what is read.
const (
	MaxBytes     = 1 << 20
	maxActions   = 10_000
	maxLearnings = 100
	maxLearning  = 8 << 10 // bytes of one
	maxStarts    = 16      // places in a text at which JSON is looked for
)

// askPrefix begins the type of an action that is a question to the user.
const askPrefix = "UserInputsRequired"

const want = "say what is to be done next, or give the result"

// Read decodes the output of a reasoner in the forms that models use: an assistant message with tool calls, a
// decision as an object or as a text, bare, fenced or after other words, and the XML form with whatever
// stands around it. A text of none of these forms is the result. The error is for the reasoner.
func Read(raw json.RawMessage) (*Response, error) {
	return read(raw, readText, readValue)
}

// ReadCalls decodes the output of a reasoner in the tools form, which acts by native tool calls alone. Words
// are words there, whatever they quote, and so is JSON unless deciding says that an object or a list is a
// decision, as of a reasoner that is no model. The error is for the reasoner.
func ReadCalls(raw json.RawMessage, deciding bool) (*Response, error) {
	value := readValue
	if !deciding {
		value = func(raw json.RawMessage) (*Response, error) {
			return &Response{InstantResponse: actor.AsText(raw), Result: raw}, nil
		}
	}
	return read(raw, textResult, value)
}

// read decodes an output whose words and whose JSON are read by these functions.
func read(raw json.RawMessage, text func(string) (*Response, error), value func(json.RawMessage) (*Response, error)) (*Response, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > MaxBytes:
		return nil, fmt.Errorf("the decision has %d bytes, the limit is %d", len(raw), MaxBytes)
	case len(raw) == 0:
		return nil, errors.New("there is no decision: " + want)
	case raw[0] == '"':
		return finish(text(actor.AsText(raw)))
	case raw[0] == '{':
		if m, ok := message(raw); ok {
			return finish(m.read(text))
		}
	}
	return finish(value(raw))
}

// finish settles the status that a response implies.
func finish(r *Response, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	for _, g := range r.Groups {
		for i := range g {
			if strings.HasPrefix(g[i].Type, askPrefix) {
				r.Status = Pending
				if r.InstantResponse == "" {
					r.InstantResponse = question(&g[i])
				}
			}
		}
	}
	if r.Status == Pending && r.InstantResponse == "" {
		r.InstantResponse = r.Description // the question
	}
	r.Stated = r.Status != ""
	acts := r.Acts()
	switch {
	case r.Status == Pending && r.InstantResponse == "":
		return nil, errors.New("the task is Pending but nothing is asked: write the question as the InstantResponse")
	case r.Status == Pending:
		// The question comes first. What was to be done besides is decided again when it is answered.
		r.Groups, r.Graph, r.Result, r.Calls = nil, nil, nil, false
	case acts:
		r.Status = Ongoing
	case r.Status == "" && r.empty && r.Result == nil:
		r.Status = Ongoing // it meant to act
	case r.Status == "":
		r.Status = Completed
	}
	return r, nil
}

// question is what an action of askPrefix asks.
func question(a *Action) string {
	for _, k := range []string{"question", "prompt", "target"} {
		if t := actor.AsText(a.Arguments[k]); t != "" {
			return t
		}
	}
	return a.Reasoning
}

// readText reads a text in the form that stands outermost in it: the XML form may hold JSON, and JSON may
// quote tags of that form.
func readText(s string) (*Response, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, errors.New("the decision is empty: " + want)
	}
	if r, ok, err := readXML(s); ok {
		return r, err
	}
	found, err := within(s)
	if err != nil {
		return nil, fmt.Errorf("the decision is not valid JSON: %w", err)
	}
	for _, c := range found {
		if looksLikeOne(c) {
			return readValue(c)
		}
	}
	if inner := lenient.Unfence(s); len(found) > 0 && (inner[0] == '{' || inner[0] == '[') {
		return readValue(found[0])
	}
	return textResult(s)
}

// textResult is the response of plain words.
func textResult(s string) (*Response, error) {
	if s = strings.TrimSpace(s); s == "" {
		return nil, errors.New("the decision is empty: " + want)
	}
	raw, err := actor.Encode(s)
	if err != nil {
		return nil, err
	}
	return &Response{InstantResponse: s, Result: raw}, nil
}

// assistant is a message of a model.
type assistant struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []toolCall      `json:"tool_calls"`
}

type toolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// message reads an assistant message. Other objects are none.
func message(raw json.RawMessage) (*assistant, bool) {
	var head struct {
		Role json.RawMessage `json:"role"`
	}
	if json.Unmarshal(raw, &head) != nil || string(head.Role) != `"assistant"` {
		return nil, false
	}
	var m assistant
	if json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	return &m, true
}

// read is the message as a response: its calls, or else its text.
func (m *assistant) read(text func(string) (*Response, error)) (*Response, error) {
	said := strings.TrimSpace(actor.AsText(m.Content))
	if len(m.ToolCalls) == 0 {
		if said == "" {
			return nil, errors.New("the message has no text and calls no tool: call a tool, or write the result")
		}
		return text(said)
	}
	if len(m.ToolCalls) > maxActions {
		return nil, fmt.Errorf("there are %d tool calls, far too many", len(m.ToolCalls))
	}
	r := &Response{InstantResponse: said, Calls: true}
	group := make([]Action, len(m.ToolCalls))
	for i, c := range m.ToolCalls {
		args, err := arguments(c.Arguments)
		if err != nil {
			return nil, fmt.Errorf("tool_calls[%d]: the arguments of %.80q must be a JSON object: %w", i, c.Name, err)
		}
		group[i] = Action{Type: strings.TrimSpace(c.Name), Arguments: args, Call: c.ID, index: i}
	}
	r.Groups = [][]Action{group}
	return r, nil
}

// arguments reads an object, or the text of one.
func arguments(raw json.RawMessage) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if absent(raw) {
		return out, nil
	}
	if raw = bytes.TrimSpace(raw); raw[0] != '"' {
		return out, json.Unmarshal(raw, &out)
	}
	return argumentsIn(lenient.Unfence(actor.AsText(raw)))
}

// argumentsIn reads the text of an object.
func argumentsIn(s string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if absent(json.RawMessage(s)) {
		return out, nil
	}
	raw, err := lenient.JSON(s)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(raw, &out)
}

// Inner is the JSON that a text holds, fenced or not and with the slips of models mended.
func Inner(s string) (json.RawMessage, error) { return lenient.JSON(lenient.Unfence(s)) }
