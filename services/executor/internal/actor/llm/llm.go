// Package llm is the actor that asks a language model: it makes a conversation of its arguments and of
// earlier results, and books the usage. It must not know prices.
package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "request": {"type": "string", "description": "What is wanted. One of request, user_input and messages is needed."},
    "user_input": {"type": "string", "description": "The same as request."},
    "messages": {
      "type": "array",
      "description": "A conversation; the request, if there is one, follows it.",
      "items": {
        "type": "object",
        "required": ["role", "content"],
        "additionalProperties": false,
        "properties": {"role": {"enum": ["system", "developer", "user", "assistant"]}, "content": {"type": "string"}}
      }
    },
    "system": {"type": "string", "description": "The system message."},
    "model": {"type": "string", "description": "The model; the operator's default when absent."},
    "max_output_tokens": {"type": "integer", "minimum": 1, "description": "Limit of the answer; the operator's default when absent. It is always sent."},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "response_schema": {"type": "object", "description": "JSON Schema that the answer must fit; then the result is JSON."},
    "json": {"type": "boolean", "description": "Whether the answer is to be any JSON object; then the result is JSON."},
    "stream": {"type": "boolean", "description": "Whether watchers see the text while it is written."},
    "previous_agent_results": {"description": "Results of earlier steps, told to the model when the nodes before this one are not known."},
    "upstream": {"type": "boolean", "description": "Whether the results of the nodes before this one are told to the model; true when absent."},
    "attachments": {"type": "array", "description": "Documents, told to the model.", "items": {"type": "object"}},
    "tool": {"description": "The tool that a plan names for the problem, told to the model if it is a text that the request does not hold."},
    "arguments": {"type": "array", "description": "The arguments that a plan gave the problem, told to the model.", "items": {"type": "object"}}
  }
}`

// Config says which model is asked when a node does not say.
type Config struct {
	// Server is the model server.
	Server llm.Config `conf:"server"`
	// Model is asked when a node names none.
	Model string `conf:"model" help:"default model of a node"`
	// System is the system message when a node gives none; empty sends none.
	System string `conf:"system" help:"default system message of a node"`
	// MaxOutputTokens bounds every answer whose node states no bound of its own.
	MaxOutputTokens int64 `conf:"max_output_tokens" help:"default limit of the answer to a node"`
}

// DefaultConfig asks OpenAI's small model.
func DefaultConfig() Config {
	return Config{Server: llm.DefaultConfig(), Model: "gpt-4o-mini", MaxOutputTokens: 4096}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if err := c.Server.Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.Model == "" {
		faults = append(faults, errors.New("model must be set"))
	}
	if c.MaxOutputTokens <= 0 {
		faults = append(faults, errors.New("max_output_tokens must be positive"))
	}
	return errors.Join(faults...)
}

// maxPrompt bounds the earlier results in the prompt of one call, far beyond the context of any model.
const maxPrompt = 16 << 20

// Reasons of failed calls.
const (
	// ReasonModel is the reason when the model's server refused or failed.
	ReasonModel = "MODEL_CALL_FAILED"
	// ReasonRefused is the reason when the model declined to answer.
	ReasonRefused = "MODEL_REFUSED"
	// ReasonNotJSON is the reason when JSON was asked for and something else came.
	ReasonNotJSON = "ANSWER_NOT_JSON"
	// ReasonCutOff is the reason when the answer reached its token limit and JSON was asked for.
	ReasonCutOff = "ANSWER_CUT_OFF"
)

// Spec describes the actor. The client stays the caller's.
func Spec(cfg Config, client *llm.Client) actor.Spec {
	return actor.Spec{
		Name: "llm", Version: "1", Elsewhere: true, Effect: workgraph.Idempotent, Schema: schema, Actor: &model{cfg: cfg, client: client},
		Description: "Asks a language model that speaks the OpenAI chat protocol, with the results of earlier steps.",
	}
}

type model struct {
	cfg    Config
	client *llm.Client
}

type arguments struct {
	Request     string            `json:"request"`
	UserInput   string            `json:"user_input"`
	Messages    []llm.Message     `json:"messages"`
	System      string            `json:"system"`
	Model       string            `json:"model"`
	MaxOutput   int64             `json:"max_output_tokens"`
	Temperature *float64          `json:"temperature"`
	Schema      json.RawMessage   `json:"response_schema"`
	JSON        bool              `json:"json"`
	Stream      bool              `json:"stream"`
	Previous    json.RawMessage   `json:"previous_agent_results"`
	Upstream    *bool             `json:"upstream"`
	Attachments []attachment      `json:"attachments"`
	Tool        json.RawMessage   `json:"tool"`
	Arguments   []json.RawMessage `json:"arguments"`
}

type attachment struct {
	ID          string          `json:"id"`
	Description string          `json:"description"`
	Content     json.RawMessage `json:"content"`
	URI         string          `json:"uri"`
}

// Call asks the model once.
func (m *model) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	messages, err := m.conversation(&a, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	req := llm.Request{
		Model: a.Model, Messages: messages, MaxOutputTokens: a.MaxOutput, Temperature: a.Temperature, IdempotencyKey: c.EffectKey(),
	}
	if req.Model == "" {
		req.Model = m.cfg.Model
	}
	if req.MaxOutputTokens <= 0 {
		req.MaxOutputTokens = m.cfg.MaxOutputTokens
	}
	asJSON := a.JSON || len(a.Schema) > 0
	if asJSON {
		req.Format = &llm.Format{Name: "answer", Schema: a.Schema, Strict: len(a.Schema) > 0}
	}
	var resp llm.Response
	if a.Stream {
		report := actor.ReporterOf(ctx)
		resp, err = m.client.Stream(ctx, req, func(text string) error {
			c.Heartbeat()
			report.Text(text)
			return nil
		})
	} else {
		resp, err = m.client.Chat(ctx, req)
	}
	if err != nil {
		return workgraph.Outcome{}, failure(ctx, err)
	}
	usage := m.usage(req.Model, resp)
	fail := func(t workgraph.ErrorType, reason, format string, args ...any) (workgraph.Outcome, error) {
		e := workgraph.Errorf(t, reason, format, args...)
		e.Usage = usage
		return workgraph.Outcome{}, e
	}
	switch {
	case resp.Refusal != "":
		return fail(workgraph.Permanent, ReasonRefused, "the model declined: %s", resp.Refusal)
	case resp.FinishReason == "content_filter":
		return fail(workgraph.Permanent, ReasonRefused, "the model's content filter ended the answer")
	case asJSON && resp.FinishReason == "length":
		return fail(workgraph.Permanent, ReasonCutOff, "the answer reached its limit of %d tokens: raise max_output_tokens", req.MaxOutputTokens)
	case asJSON && !json.Valid([]byte(resp.Text)):
		return fail(workgraph.Retryable, ReasonNotJSON, "the model was asked for JSON and wrote something else")
	}
	out := workgraph.Outcome{Usage: usage}
	if asJSON {
		out.Values = []json.RawMessage{json.RawMessage(resp.Text)}
		return out, nil
	}
	text, err := actor.Value(resp.Text)
	out.Values = text.Values
	return out, err
}

// conversation is the prompt: the system message, given messages, then one user message with the request and
// the texts of earlier steps and documents, each under its source.
func (m *model) conversation(a *arguments, c *workgraph.Call) ([]llm.Message, error) {
	system := a.System
	if system == "" {
		system = m.cfg.System
	}
	var out []llm.Message
	if system != "" {
		out = append(out, llm.Message{Role: "system", Content: system})
	}
	out = append(out, a.Messages...)
	request := a.Request
	if request == "" {
		request = a.UserInput
	}
	if request == "" && len(c.Args) > 0 && len(a.Messages) == 0 {
		request = text(c.Args[0])
	}
	if request == "" && len(a.Messages) == 0 {
		return nil, actor.BadArguments("one of request, user_input and messages is needed")
	}
	var b strings.Builder
	b.WriteString(request)
	if len(a.Tool) > 0 && a.Tool[0] == '"' && !strings.Contains(request, text(a.Tool)) {
		b.WriteString("\n\nTool: " + text(a.Tool))
	}
	if len(a.Arguments) > 0 {
		b.WriteString("\n\nArguments:")
		for _, arg := range a.Arguments {
			b.WriteString("\n" + text(arg))
		}
	}
	for _, d := range a.Attachments {
		body := text(d.Content)
		if body == "" {
			body = d.URI
		}
		section(&b, "attachment", d.ID, d.Description, body)
	}
	told := false
	for _, u := range c.Upstream {
		if a.Upstream != nil && !*a.Upstream {
			break
		}
		switch u.Outcome {
		case workgraph.VisitCompleted:
			if len(u.Values) == 0 {
				continue
			}
			if b.Len() > maxPrompt {
				return nil, actor.BadArguments("the results of the nodes before this one are longer than %d bytes together: keep large ones outside and pass references", maxPrompt)
			}
			told = true
			section(&b, "result", u.Node, "", text(actor.Result(u.Values)))
		case workgraph.VisitFailed:
			if u.Error != nil {
				section(&b, "failure", u.Node, "", u.Error.Error())
			}
		}
	}
	if !told && len(a.Previous) > 0 && string(a.Previous) != "null" {
		section(&b, "result", "earlier steps", "", text(a.Previous))
	}
	if b.Len() > 0 {
		out = append(out, llm.Message{Role: "user", Content: b.String()})
	}
	return out, nil
}

func section(b *strings.Builder, tag, from, description, body string) {
	fmt.Fprintf(b, "\n\n<%s from=%q", tag, from)
	if description != "" {
		fmt.Fprintf(b, " description=%q", description)
	}
	fmt.Fprintf(b, ">\n%s\n</%s>", body, tag)
}

// text is a JSON string's text, and any other value as JSON.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b bytes.Buffer // without the spaces, which cost tokens
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// usage books the call even if the server reported no counts: then it is one call of unknown size, not none.
func (m *model) usage(asked string, resp llm.Response) []workgraph.Usage {
	name := resp.Model
	if name == "" {
		name = asked
	}
	return []workgraph.Usage{{
		Provider: m.cfg.Server.Provider, Model: name,
		InputTokens: resp.Usage.Input, OutputTokens: resp.Usage.Output,
		CachedTokens: resp.Usage.CachedInput, ReasoningTokens: resp.Usage.Reasoning, Call: "chat",
	}}
}

// failure types a call without an answer. ctx is that of the call.
func failure(ctx context.Context, err error) error {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return err
	}
	t := workgraph.Unknown
	switch e.Class {
	case llm.Retryable:
		t = workgraph.Retryable
	case llm.Permanent:
		t = workgraph.Permanent
	case llm.NotPerformed:
		t = workgraph.NotPerformed
	}
	if ctx.Err() != nil && (e.Class == llm.Unknown || e.Class == llm.NotPerformed) {
		return actor.Interrupted(t)
	}
	msg := e.Message
	if e.Status != 0 {
		msg = fmt.Sprintf("HTTP %d: %s", e.Status, msg)
	}
	if e.Code != "" {
		msg += " (" + e.Code + ")"
	}
	out := workgraph.Errorf(t, ReasonModel, "%s", msg)
	out.RetryAfter = workgraph.Duration(e.RetryAfter)
	return out
}
