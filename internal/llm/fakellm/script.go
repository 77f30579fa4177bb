// Package fakellm owns a scripted server that speaks the OpenAI chat-completions protocol over real
// HTTP, whole and streamed, with faults on demand. Tests and the demo use it in place of a model; the
// same request always gets the same answer. It must not know who calls it or why.
package fakellm

import (
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

// Reply is an answer or a fault.
type Reply struct {
	Text string `yaml:"text"`
	// Delay is waited before the first byte; streams spread ChunkDelay between the pieces besides.
	Delay      time.Duration `yaml:"delay"`
	ChunkDelay time.Duration `yaml:"chunk_delay"`
	// FinishReason is "stop" unless said otherwise.
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
	// Model restricts the rule to one model; empty means all.
	Model string `yaml:"model"`
	// Times is how often the rule is used before it is passed over; 0 means always.
	Times int   `yaml:"times"`
	Reply Reply `yaml:"reply"`
}

// Script is what a server says: the first rule that fits, else the default.
type Script struct {
	Rules []Rule `yaml:"rules"`
	// Default answers what no rule fits. Without a text it answers "Done: " and the start of the last
	// user message, as JSON if JSON was asked for.
	Default Reply `yaml:"default"`
	// Models are what /v1/models lists; default "fake-1".
	Models []string `yaml:"models"`
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

// Message is one message of a conversation as text.
type Message struct {
	Role    string
	Content string
}

// UnmarshalJSON accepts content as a string and as a list of text parts, which are joined.
func (m *Message) UnmarshalJSON(b []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	m.Role = raw.Role
	if json.Unmarshal(raw.Content, &m.Content) == nil {
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw.Content, &parts); err != nil {
		return err
	}
	var b2 strings.Builder
	for _, p := range parts {
		b2.WriteString(p.Text)
	}
	m.Content = b2.String()
	return nil
}

func lastUser(messages []Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "user" {
			return messages[i].Content
		}
	}
	return ""
}
