// Package fakellm owns a scripted server that speaks the protocols of OpenAI (chat completions,
// embeddings), Anthropic (messages) and Google (generateContent) over real HTTP, whole and streamed,
// with tool calls, and with faults on demand. Tests and the demo use it in place of a model; the same
// request always gets the same answer. It must not know who calls it or why.
package fakellm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Fault is a way to go wrong; the empty one is to answer.
type Fault string

// The faults.
const (
	// RateLimit answers 429, with Retry-After if the reply says so.
	RateLimit Fault = "rate_limit"
	// QuotaExceeded answers 429 with the code that means that no wait helps.
	QuotaExceeded Fault = "quota_exceeded"
	// Overloaded answers 503, or 529 where the protocol has it.
	Overloaded Fault = "overloaded"
	// Filtered ends the answer as the server's safety filter would: before it begins, or after half of a
	// streamed text.
	Filtered Fault = "filtered"
	// StreamError reports an error within a stream, after half of the text. Whole answers are a ServerError.
	StreamError Fault = "stream_error"
	// EarlyError reports an overload within a stream, before anything else. Whole answers are Overloaded.
	EarlyError Fault = "early_error"
	// Stall stops a stream after half of the text, until the caller or the server gives up.
	Stall Fault = "stall"
	// ServerError answers 500.
	ServerError Fault = "server_error"
	// BadGateway answers 502 with a page of HTML, as a proxy would.
	BadGateway Fault = "bad_gateway"
	// BadRequest answers 400.
	BadRequest Fault = "bad_request"
	// Unauthorized answers 401.
	Unauthorized Fault = "unauthorized"
	// ModelNotFound answers 404.
	ModelNotFound Fault = "model_not_found"
	// Hang never answers, until the caller or the server gives up.
	Hang Fault = "hang"
	// Malformed answers 200 with something that is not JSON.
	Malformed Fault = "malformed"
	// NoChoices answers 200 without any choice.
	NoChoices Fault = "no_choices"
	// Disconnect breaks the connection, in a stream after half of the text.
	Disconnect Fault = "disconnect"
	// Oversized answers with 64 MiB of text.
	Oversized Fault = "oversized"
)

// Usage are token counts in a reply; counts that are 0 are computed from the text.
type Usage struct {
	Input       int64 `yaml:"input" json:"input"`
	CachedInput int64 `yaml:"cached_input" json:"cached_input"`
	Output      int64 `yaml:"output" json:"output"`
	Reasoning   int64 `yaml:"reasoning" json:"reasoning"`
}

// ToolCall is a call that a reply asks for. Arguments may be any text, as a model may write it.
type ToolCall struct {
	// ID is made up if it is empty.
	ID        string `yaml:"id" json:"id"`
	Name      string `yaml:"name" json:"name"`
	Arguments string `yaml:"arguments" json:"arguments"`
}

// Reply is an answer or a fault.
type Reply struct {
	Text      string     `yaml:"text"`
	ToolCalls []ToolCall `yaml:"tool_calls"`
	// Thinking is a text of reasoning before the answer, with a signature that must be sent back. In OpenAI's
	// protocol it is the field reasoning_content, which other servers add to it, and has no signature.
	Thinking string `yaml:"thinking"`
	// Refusal is what the model says in place of an answer.
	Refusal string `yaml:"refusal"`
	// Delay is waited before the first byte; streams spread ChunkDelay between the pieces besides.
	Delay      time.Duration `yaml:"delay"`
	ChunkDelay time.Duration `yaml:"chunk_delay"`
	// Hold, if set, is called before each piece of a streamed text with the text that was sent before. It may
	// wait; false ends the stream in the middle.
	Hold func(ctx context.Context, sent string) bool `yaml:"-"`
	// FinishReason is stop, or tool_calls with tool calls, unless said otherwise: in the words of OpenAI.
	FinishReason string `yaml:"finish_reason"`
	Usage        Usage  `yaml:"usage"`
	// NoUsage leaves the usage out, as some servers do.
	NoUsage    bool          `yaml:"no_usage"`
	Fault      Fault         `yaml:"fault"`
	RetryAfter time.Duration `yaml:"retry_after"`
}

// Rule gives Reply to requests whose last user message contains Match; an empty Match fits every one.
type Rule struct {
	Match string `yaml:"match"`
	// After restricts the rule to requests whose last message is the answer of a tool that holds this text.
	After string `yaml:"after"`
	// Model restricts the rule to one model; empty means all.
	Model string `yaml:"model"`
	// Times is how often the rule is used before it is passed over; 0 means always.
	Times int   `yaml:"times"`
	Reply Reply `yaml:"reply"`
}

// Vector gives its values to texts that contain Match; an empty Match fits every one. With a fault the
// request of the text fails.
type Vector struct {
	Match  string    `yaml:"match"`
	Values []float32 `yaml:"values"`
	Fault  Fault     `yaml:"fault"`
}

// Script is what a server says: the first rule that fits, else the default.
type Script struct {
	Rules []Rule `yaml:"rules"`
	// Default answers what no rule fits. Without a text it answers "Done: " and the start of the last
	// user message, as JSON if JSON was asked for.
	Default Reply `yaml:"default"`
	// Models are what /v1/models lists; default "fake-1".
	Models []string `yaml:"models"`
	// Vectors are what /v1/embeddings answers: the first rule that fits a text, else a vector of eight
	// dimensions that stems from the text.
	Vectors []Vector `yaml:"vectors"`
	// Limits, if set, refuses what is beyond them.
	Limits *Limits `yaml:"limits"`
	// Answer is asked before the rules, for models that work out what they say; false leaves the request to
	// them. It must be safe for concurrent use.
	Answer func(Request) (Reply, bool) `yaml:"-"`
}

// Parse reads a script from YAML; unknown keys are errors.
func Parse(text []byte) (Script, error) {
	var s Script
	if err := yaml.UnmarshalWithOptions(text, &s, yaml.Strict()); err != nil {
		return Script{}, fmt.Errorf("read script: %w", err)
	}
	return s, nil
}

// Tokens is the number of tokens that the server counts for a text: one per four bytes, rounded up.
func Tokens(text string) int64 { return (int64(len(text)) + 3) / 4 }

// InputTokens is the number of tokens that the server counts for a conversation: those of each message and
// four more.
func InputTokens(messages []Message) int64 {
	var n int64
	for _, m := range messages {
		n += Tokens(m.Content) + 4
	}
	return n
}

// Message is one message of a conversation as text, in the roles of OpenAI.
type Message struct {
	Role    string
	Content string
	// ToolCalls are those of an assistant message, ToolCallID is what a tool message answers.
	ToolCalls  []ToolCall
	ToolCallID string
	IsError    bool
	// Thinking are the signatures that the caller sent back.
	Thinking []string
}

func lastUser(messages []Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "user" {
			return messages[i].Content
		}
	}
	return ""
}

// fits reports whether a rule is for a request.
func (r Rule) fits(req *Request) bool {
	last := req.Messages[len(req.Messages)-1]
	switch {
	case r.Model != "" && r.Model != req.Model:
		return false
	case r.After != "" && (last.Role != "tool" || !strings.Contains(last.Content, r.After)):
		return false
	}
	return strings.Contains(lastUser(req.Messages), r.Match)
}

// texts joins the texts of a content: a string, or a list of parts with texts.
func texts(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &parts) // other content has no text
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
