package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	// ToolRole is the role of a message that answers one tool call.
	ToolRole = "tool"
)

// Message is one message of a conversation. Its JSON is stored in threads and cassettes.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// ToolCalls are what an assistant message asks for.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID is the call that a tool message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// IsError marks the answer of a tool that failed.
	IsError bool `json:"is_error,omitempty"`
	// Opaque is what a provider wants back unchanged, by provider, such as signatures of reasoning. Other
	// providers leave it out.
	Opaque map[string]json.RawMessage `json:"opaque,omitempty"`
}

// ToolCall is a call that a model asks for.
type ToolCall struct {
	// ID tells the calls of one message apart; the answer names it.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments are valid JSON: an object, unless the model wrote something else. A text that is no JSON is
	// kept as a JSON string.
	Arguments json.RawMessage `json:"arguments"`
}

// Tool is something that the model may call.
type Tool struct {
	// Name may hold any text: names that a provider does not take are sent in another form, and translated
	// back.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Schema is the JSON Schema of the arguments; nil means no arguments.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Values of Request.ToolChoice besides the name of a tool. The empty one is ChooseAuto.
const (
	ChooseAuto     = "auto"
	ChooseNone     = "none"
	ChooseRequired = "required"
)

// Format asks for JSON. With a Schema the answer must fit it, without one any JSON object will do.
type Format struct {
	Name   string          `json:"name,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	// Strict asks servers that can to let nothing else through.
	Strict bool `json:"strict,omitempty"`
}

// Request is one call. Its JSON is stored in cassettes.
type Request struct {
	// Profile is the profile that is asked; empty leaves it to Model, and then to the default.
	Profile string `json:"profile,omitempty"`
	// Model is a model of that profile's server, or the name of a profile; empty means the profile's model.
	Model    string    `json:"model,omitempty"`
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools,omitempty"`
	// ToolChoice is ChooseAuto, ChooseNone, ChooseRequired or the name of the tool to call.
	ToolChoice string `json:"tool_choice,omitempty"`
	// Format is nil for plain text.
	Format *Format `json:"format,omitempty"`
	// MaxOutputTokens bounds the answer; 0 means the profile's limit.
	MaxOutputTokens int64 `json:"max_output_tokens,omitempty"`
	// Temperature is left to the server if nil.
	Temperature *float64 `json:"temperature,omitempty"`
	// Stop are texts at which the answer ends.
	Stop []string `json:"stop,omitempty"`
	// Extra are further top-level fields of the provider's request, by name, as JSON.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
	// IdempotencyKey, if set, is sent as the header Idempotency-Key. It is no part of what is asked.
	IdempotencyKey string `json:"-"`
}

// Bounds of a request. Those of models are below them.
const (
	maxMessages = 100_000
	// maxTools bounds the tools, and their names together with those of earlier calls.
	maxTools        = 1_000
	maxRequestBytes = 64 << 20
)

// Check reports the first fault that no provider would accept, as an *Error that is permanent.
func (r *Request) Check() error {
	switch {
	case len(r.Messages) == 0:
		return bad("messages is empty: a request needs at least one message")
	case len(r.Messages) > maxMessages:
		return bad("messages has %d messages, %d at most: trim the conversation", len(r.Messages), maxMessages)
	case len(r.Tools) > maxTools:
		return bad("tools has %d tools, %d at most", len(r.Tools), maxTools)
	}
	size := 0
	names := map[string]bool{}
	for i, t := range r.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
		if t.Name == "" || names[t.Name] {
			return bad("tools[%d].name %q is empty or not unique", i, t.Name)
		}
		if !isObject(t.Schema) && len(t.Schema) > 0 {
			return bad("tools[%d].schema is no JSON object", i)
		}
		names[t.Name] = true
	}
	if c := r.ToolChoice; c != "" && c != ChooseAuto && c != ChooseNone && c != ChooseRequired && !names[c] {
		return bad("tool_choice %q is neither auto, none, required nor the name of a tool", c)
	}
	open := map[string]int{} // calls without an answer yet, with the message that made them
	for i := range r.Messages {
		m := &r.Messages[i]
		size += m.size()
		if err := m.check(i, open); err != nil {
			return err
		}
		for _, c := range m.ToolCalls {
			if names[c.Name] = true; len(names) > maxTools {
				return bad("messages[%d] calls a tool of yet another name: tools and earlier calls have %d different names at most", i, maxTools)
			}
		}
	}
	if len(open) > 0 {
		return unanswered(open)
	}
	for name, value := range r.Extra {
		if size += len(name) + len(value); !json.Valid(value) {
			return bad("extra field %q is no JSON", name)
		}
	}
	for _, text := range r.Stop {
		size += len(text)
	}
	if r.Format != nil {
		size += len(r.Format.Schema)
	}
	switch {
	case size > maxRequestBytes:
		return bad("the request has %d bytes, %d at most", size, maxRequestBytes)
	case r.ToolChoice != "" && r.ToolChoice != ChooseNone && len(r.Tools) == 0:
		return bad("tool_choice is %q, but tools is empty", r.ToolChoice)
	case r.MaxOutputTokens < 0:
		return bad("max_output_tokens is negative")
	case r.Format != nil && len(r.Format.Schema) > 0 && !isObject(r.Format.Schema):
		return bad("format.schema is no JSON object")
	}
	return nil
}

func (m *Message) size() int {
	n := len(m.Content) + len(m.ToolCallID) + 16
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Name) + len(c.Arguments) + 16
	}
	for _, raw := range m.Opaque {
		n += len(raw)
	}
	return n
}

// check checks message i. open holds the calls before it that have no answer yet.
func (m *Message) check(i int, open map[string]int) error {
	if !slices.Contains([]string{System, User, Assistant, ToolRole}, m.Role) {
		return bad("messages[%d].role is %q: it is system, user, assistant or tool", i, m.Role)
	}
	if m.Role == ToolRole {
		if _, ok := open[m.ToolCallID]; !ok {
			return bad("messages[%d] answers tool call %q, which no assistant message just before it makes", i, m.ToolCallID)
		}
		delete(open, m.ToolCallID)
		return nil
	}
	if len(open) > 0 {
		return unanswered(open)
	}
	if len(m.ToolCalls) > 0 && m.Role != Assistant {
		return bad("messages[%d] has tool calls, but its role is %s", i, m.Role)
	}
	for k, c := range m.ToolCalls {
		if _, twice := open[c.ID]; twice || c.ID == "" || c.Name == "" {
			return bad("messages[%d].tool_calls[%d] has no name, or no id of its own", i, k)
		}
		if !json.Valid(c.Arguments) {
			return bad("messages[%d].tool_calls[%d].arguments is no JSON", i, k)
		}
		open[c.ID] = i
	}
	return nil
}

func unanswered(open map[string]int) error {
	id, at := "", 0
	for k, i := range open {
		if id == "" || k < id {
			id, at = k, i
		}
	}
	return bad("tool call %q of messages[%d] has no answer: a tool message for each call must follow", id, at)
}

func bad(format string, args ...any) error {
	return &Error{Class: Permanent, Code: "REQUEST", Message: errs.Clip(fmt.Sprintf(format, args...), maxMessage)}
}

func isObject(raw json.RawMessage) bool {
	return json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}

// Arguments is the JSON for what a model wrote as the arguments of a call: the text itself if it is JSON, an
// empty object if it is blank, and else the text as a JSON string.
func Arguments(text string) json.RawMessage {
	raw := json.RawMessage(text)
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage("{}")
	case json.Valid(raw):
		return raw
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(strconv.Quote("")) // texts always marshal
	}
	return quoted
}

// Usage is what a call used, in tokens. CachedInput is part of Input, and Reasoning of Output.
type Usage struct {
	Input       int64 `json:"input"`
	CachedInput int64 `json:"cached_input,omitempty"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning,omitempty"`
	// Known is false if the server reported nothing.
	Known bool `json:"known"`
}

// maxTokens is more than a call has.
const maxTokens = 1_000_000_000

// believed is a usage as callers get it: money and limits are counted by it, and servers may report anything.
// Counts that no call can have are as good as none.
func (u Usage) believed() Usage {
	if min(u.Input, u.Output) < 0 || max(u.Input, u.Output) > maxTokens {
		return Usage{}
	}
	u.CachedInput = min(max(u.CachedInput, 0), u.Input)
	u.Reasoning = min(max(u.Reasoning, 0), u.Output)
	return u
}

// or is the usage if it is known, and else an estimate, which stays one that is not known. Money and tokens
// are counted by it: a server that reports nothing must not be free.
func (u Usage) or(input, output int64) Usage {
	if u.Known {
		return u
	}
	return Usage{Input: input, Output: output}
}

// Reasons for which an answer ended.
const (
	FinishStop          = "stop"
	FinishLength        = "length"
	FinishToolCalls     = "tool_calls"
	FinishContentFilter = "content_filter"
)

// Response is an answer.
type Response struct {
	ID string `json:"id,omitempty"`
	// Profile is the profile that answered, which may be a fallback of the one that was asked.
	Profile string `json:"profile,omitempty"`
	// Provider and Model are what the usage is booked under: those of the profile's price key, else the
	// profile's provider and the model that the server named.
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	// Message is the answer: an assistant message.
	Message Message `json:"message"`
	// Refusal is what the model said in place of an answer, usually empty.
	Refusal string `json:"refusal,omitempty"`
	// FinishReason is one of the constants, or what else the server said.
	FinishReason string `json:"finish_reason,omitempty"`
	Usage        Usage  `json:"usage"`
	// Earlier are calls before this one that cost something and gave no answer.
	Earlier []Spent `json:"earlier,omitempty"`
}

// Spent is what one call cost. The fields are those of a Response.
type Spent struct {
	Profile  string `json:"profile,omitempty"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Usage    Usage  `json:"usage"`
}

// Spent lists what the answer cost, with the calls before it.
func (r *Response) Spent() []Spent {
	return append(slices.Clip(r.Earlier), Spent{Profile: r.Profile, Provider: r.Provider, Model: r.Model, Usage: r.Usage})
}

// Delta is a piece of an answer that is being written: text, or a piece of a tool call.
type Delta struct {
	Text string `json:"text,omitempty"`
	// Call is nil for text.
	Call *CallDelta `json:"call,omitempty"`
}

// CallDelta is a piece of a tool call. ID and Name come with the first piece of each.
type CallDelta struct {
	// Index is the place of the call among those of the message.
	Index     int    `json:"index"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}
