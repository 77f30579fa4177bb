// Package llm is the actor that asks a language model: it makes a conversation of its arguments and of
// earlier results, and books the usage. It must not know prices.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/plan/lenient"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
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
        "required": ["role"],
        "additionalProperties": false,
        "properties": {
          "role": {"enum": ["system", "user", "assistant", "tool"]},
          "content": {"type": "string"},
          "tool_calls": {
            "type": "array",
            "description": "Calls that an assistant message asks for.",
            "items": {
              "type": "object",
              "required": ["id", "name", "arguments"],
              "additionalProperties": false,
              "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"description": "The arguments of the call, as JSON."}}
            }
          },
          "tool_call_id": {"type": "string", "description": "The call that a tool message answers."},
          "is_error": {"type": "boolean", "description": "Whether the tool failed."},
          "opaque": {"type": "object", "description": "What a provider wants back unchanged."}
        }
      }
    },
    "system": {"type": "string", "description": "The system message."},
    "profile": {"type": "string", "description": "The model profile of the operator that is asked; the default one when absent."},
    "model": {"type": "string", "description": "A model of the profile's server, or the name of a profile; the profile's model when absent."},
    "tools": {
      "type": "array",
      "description": "What the model may call. Then the result is the assistant message, with its tool_calls.",
      "items": {
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "description": {"type": "string"}, "schema": {"type": "object", "description": "JSON Schema of the arguments."}}
      }
    },
    "tool_choice": {"type": "string", "description": "auto, none, required, or the tool that must be called."},
    "stop": {"type": "array", "description": "Texts at which the answer ends.", "items": {"type": "string"}},
    "upstream": {"type": "boolean", "description": "Whether the results of the nodes before this one are told to the model; true by default."},
    "max_output_tokens": {"type": "integer", "minimum": 1, "description": "Limit of the answer; the profile's when absent. It is always sent."},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "response_schema": {"type": "object", "description": "JSON Schema that the answer must fit; then the result is JSON."},
    "json": {"type": "boolean", "description": "Whether the answer is to be any JSON object; then the result is JSON."},
    "stream": {"enum": [true, false, "watched"], "description": "Whether watchers see the text while it is written; with watched only if somebody watches the run when the model is asked, or the run works on a thread."},
    "decision": {"type": "boolean", "description": "Whether the answer is the decision of an agent: then watchers see what it says to the user apart from the raw text."},
    "previous_agent_results": {"description": "Results of earlier steps, told to the model when the nodes before this one are not known."},
    "attachments": {"type": "array", "description": "Documents, told to the model.", "items": {"type": "object"}},
    "tool": {"description": "The tool that a plan names for the problem, told to the model if it is a text that the request does not hold."},
    "arguments": {"type": "array", "description": "The arguments that a plan gave the problem, told to the model.", "items": {"type": "object"}},
    "references": {"type": "array", "description": "What texts like #E1 in the request of a plan's problem stand for, told to the model.", "items": {"type": "object"}},
    "previous_action_results": {"description": "Results of the actions before this one, told to the model when an agent calls it as an action."}
  }
}`

// Config says what is asked when a node does not say.
type Config struct {
	// Profile is asked when a node names none; empty means the default of the models.
	Profile string `conf:"profile" help:"model profile of a node that names none; empty means models.default"`
	// System is the system message when a node gives none; empty sends none.
	System string `conf:"system" help:"default system message of a node"`
}

// maxRefusal bounds the text of a model that declines, in an error.
const maxRefusal = 2048

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
	// ReasonOffSchema is the reason when the model wrote JSON that is not what response_schema asks for.
	ReasonOffSchema = "ANSWER_OFF_SCHEMA"
	// ReasonEmpty is the reason when the model wrote nothing and did not end as it should, as after a tool
	// call that its server could not read.
	ReasonEmpty = "ANSWER_EMPTY"
	// ReasonCutOff is the reason when the answer reached its token limit and JSON was asked for.
	ReasonCutOff = "ANSWER_CUT_OFF"
)

// Spec describes the actor. The models stay the caller's.
func Spec(cfg Config, models *llm.Set) actor.Spec {
	m := &model{cfg: cfg, models: models}
	return actor.Spec{
		Name: "llm", Version: "2", Elsewhere: true, Effect: workgraph.Idempotent, Schema: schema, Examine: m.examine, Actor: m,
		Description: "Asks a language model, with the results of earlier steps and with tools that it may call.",
	}
}

// profileOf is the profile that a call of the actor asks, with the model that it asks for.
func profileOf(cfg Config, models *llm.Set, s *workgraph.Start) (name string, p llm.Profile, err error) {
	own := func(name string) (text string) {
		if raw := s.Named[name]; len(raw) < maxName && json.Unmarshal(raw, &text) != nil {
			return ""
		}
		return text
	}
	profile, model := own("profile"), own("model")
	if profile == "" && model == "" {
		profile = cfg.Profile
	}
	return models.Resolve(profile, model)
}

// Booked is the provider and the model under which the usage of a call is booked, unless a fallback
// answers. ok is false if there is no such profile: then no model is asked.
func Booked(cfg Config, models *llm.Set, s *workgraph.Start) (provider, model string, ok bool) {
	_, p, err := profileOf(cfg, models, s)
	if err != nil {
		return "", "", false
	}
	provider, model = p.Booked(p.Model)
	return provider, model, true
}

// Expected is roughly what a call of the actor takes.
type Expected struct {
	Profile       string
	Input, Output int64
	// Usual says that the call is expected to put out what most calls of its model do, and no more than
	// Output.
	Usual bool
}

// Estimate says which profile a call of the actor asks, and roughly how many tokens it takes, before
// the prompt is made.
func Estimate(cfg Config, models *llm.Set, s *workgraph.Start) Expected {
	name, p, err := profileOf(cfg, models, s)
	if err != nil {
		return Expected{}
	}
	bytes := len(cfg.System)
	for _, raw := range s.Args {
		bytes += len(raw)
	}
	for _, raw := range s.Named {
		bytes += len(raw)
	}
	for i := range s.Upstream {
		for _, raw := range s.Upstream[i].Values {
			bytes += len(raw)
		}
	}
	out := Expected{Profile: name, Input: int64(bytes)/4 + 1, Output: p.MaxOutputTokens, Usual: p.ReserveUsual}
	// A call that asks for more than it may is refused before it begins.
	if raw := s.Named["max_output_tokens"]; len(raw) > 0 && len(raw) < maxName {
		var n int64
		if json.Unmarshal(raw, &n) == nil && n > 0 {
			out.Output, out.Usual = min(n, p.OutputLimit), false
		}
	}
	return out
}

// maxFault bounds what is told of an answer that is not as it should be, in bytes.
const maxFault = 1000

// maxName is longer than the name of a profile or model can be, as JSON.
const maxName = 1024

type model struct {
	cfg    Config
	models *llm.Set
}

// examine finds the profile of a node that there is not.
func (m *model) examine(_ context.Context, n *workgraph.Node) []workgraph.Argument {
	name, ok := actor.OwnText(n, "profile")
	if !ok || name == "" {
		return nil
	}
	if _, _, err := m.models.Resolve(name, ""); err != nil {
		if e, ok := errors.AsType[*llm.Error](err); ok {
			return []workgraph.Argument{{Arg: "profile", Fault: e.Message}}
		}
		return actor.Faulty("profile", err)
	}
	return nil
}

type arguments struct {
	Request     string            `json:"request"`
	UserInput   string            `json:"user_input"`
	Messages    []llm.Message     `json:"messages"`
	System      string            `json:"system"`
	Profile     string            `json:"profile"`
	Model       string            `json:"model"`
	Tools       []llm.Tool        `json:"tools"`
	ToolChoice  string            `json:"tool_choice"`
	Stop        []string          `json:"stop"`
	Upstream    *bool             `json:"upstream"`
	MaxOutput   int64             `json:"max_output_tokens"`
	Temperature *float64          `json:"temperature"`
	Schema      json.RawMessage   `json:"response_schema"`
	JSON        bool              `json:"json"`
	Stream      json.RawMessage   `json:"stream"`
	Decision    bool              `json:"decision"`
	Previous    json.RawMessage   `json:"previous_agent_results"`
	Attachments []attachment      `json:"attachments"`
	Tool        json.RawMessage   `json:"tool"`
	Arguments   []json.RawMessage `json:"arguments"`
	References  []json.RawMessage `json:"references"`
	Before      json.RawMessage   `json:"previous_action_results"`
}

type attachment struct {
	ID          string          `json:"id"`
	Description string          `json:"description"`
	Content     json.RawMessage `json:"content"`
	URI         string          `json:"uri"`
}

// Call asks the model once. What comes before and after that stands in functions of its own: the stack of a
// call that waits is memory, and calls wait by the thousand.
func (m *model) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	q, err := m.read(ctx, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	m.spare(ctx, q)
	resp, err := m.ask(llm.WithCaller(ctx, actor.NamespaceOf(ctx)), c, q)
	return q.outcome(ctx, resp, err)
}

// spare has a call ask the cheaper profile of its own, if it has one and a budget above the call is over its
// soft cap. What was reserved for it stays that of its own.
func (m *model) spare(ctx context.Context, q *asked) {
	if !actor.OverSoftCap(ctx) {
		return
	}
	_, p, err := m.models.Resolve(q.Profile, q.Model)
	if err != nil || p.WhenSoftCap == "" {
		return
	}
	_, cheaper, err := m.models.Resolve(p.WhenSoftCap, "")
	if err != nil {
		return
	}
	if q.MaxOutputTokens == 0 {
		q.MaxOutputTokens = p.MaxOutputTokens // what was reserved
	}
	q.Profile, q.Model, q.call = p.WhenSoftCap, "", callSoftCap
	q.MaxOutputTokens = min(q.MaxOutputTokens, cheaper.OutputLimit)
}

// asked is what a call asks, and how its answer is read.
type asked struct {
	llm.Request
	// stream and decision are those of the arguments, and tools says that there are some.
	stream          string
	decision, tools bool
	// asJSON says that JSON is asked for. fits checks it if it is not nil: not every server heeds the schema
	// that it is given.
	asJSON bool
	fits   *workgraph.Schema
	// call is what its usage is called.
	call string
}

// callChat and callSoftCap are what the usage of calls is called. That of calls which ask a cheaper profile,
// since a budget is over its soft cap, says so.
const callChat, callSoftCap = "chat", "chat_soft_cap"

// read makes the request of the arguments, which are not needed any more then.
func (m *model) read(ctx context.Context, c *workgraph.Call) (*asked, error) {
	var a arguments
	if err := actor.Decode(c.Named, &a); err != nil {
		return nil, err
	}
	messages, err := m.conversation(&a, c)
	if err != nil {
		return nil, err
	}
	q := &asked{stream: string(a.Stream), decision: a.Decision, tools: len(a.Tools) > 0, asJSON: a.JSON || len(a.Schema) > 0, call: callChat}
	q.Request = llm.Request{
		Profile: a.Profile, Model: a.Model, Messages: messages, Tools: a.Tools, ToolChoice: a.ToolChoice, Stop: a.Stop,
		MaxOutputTokens: a.MaxOutput, Temperature: a.Temperature, IdempotencyKey: c.EffectKey(),
	}
	if q.Profile == "" && q.Model == "" {
		q.Profile = m.cfg.Profile
	}
	if len(a.Schema) > 0 {
		if q.fits, err = workgraph.CompileSchema(ctx, a.Schema); err != nil {
			return nil, actor.BadArguments("response_schema: %v", err)
		}
	}
	if q.asJSON {
		q.Format = &llm.Format{Name: "answer", Schema: a.Schema, Strict: len(a.Schema) > 0}
	}
	return q, nil
}

// ask asks the model, and shows watchers the text while it is written.
func (m *model) ask(ctx context.Context, c *workgraph.Call, q *asked) (llm.Response, error) {
	if q.stream == "true" || q.stream == `"watched"` && (c.Thread != "" || actor.ReporterOf(ctx).Watched()) {
		return m.tell(ctx, c, q)
	}
	return m.models.Generate(ctx, q.Request)
}

// tell is ask with the text shown.
//
//go:noinline
func (m *model) tell(ctx context.Context, c *workgraph.Call, q *asked) (llm.Response, error) {
	report := actor.ReporterOf(ctx)
	var speech response.Speech
	return m.models.Stream(ctx, q.Request, func(d llm.Delta) error {
		c.Heartbeat()
		switch {
		case d.Text == "":
		case q.decision:
			report.Raw(d.Text)
			if said := speech.Write(d.Text); said != "" {
				report.Text(said)
			}
		default:
			report.Text(d.Text)
		}
		return nil
	})
}

// outcome is that of a call from what the model answered, or from the error in place of that.
func (q *asked) outcome(ctx context.Context, resp llm.Response, err error) (workgraph.Outcome, error) {
	if err != nil {
		return workgraph.Outcome{}, failure(ctx, err, q.call)
	}
	used := usage(resp.Spent(), q.call)
	fail := func(t workgraph.ErrorType, reason, format string, args ...any) (workgraph.Outcome, error) {
		e := workgraph.Errorf(t, reason, format, args...)
		e.Usage = used
		return workgraph.Outcome{}, e
	}
	calls := len(resp.Message.ToolCalls) > 0
	content := resp.Message.Content
	switch {
	case resp.Refusal != "":
		return fail(workgraph.Permanent, ReasonRefused, "the model declined: %s", errs.Clip(resp.Refusal, maxRefusal))
	case resp.FinishReason == llm.FinishContentFilter:
		return fail(workgraph.Permanent, ReasonRefused, "the model's content filter ended the answer")
	case q.asJSON && resp.FinishReason == llm.FinishLength:
		return fail(workgraph.Permanent, ReasonCutOff, "the answer reached its limit of tokens: raise max_output_tokens")
	case calls && resp.FinishReason == llm.FinishLength:
		return fail(workgraph.Permanent, ReasonCutOff, "the answer reached its limit of tokens within a tool call: raise max_output_tokens")
	case !calls && content == "" && resp.FinishReason != llm.FinishStop && resp.FinishReason != llm.FinishLength:
		return fail(workgraph.Retryable, ReasonEmpty, "the model ended with %q and wrote nothing", errs.Clip(resp.FinishReason, 100))
	}
	var value json.RawMessage
	if q.asJSON && (!calls || !q.tools) {
		if value, err = lenient.JSON(lenient.Unfence(content)); err != nil {
			return fail(workgraph.Retryable, ReasonNotJSON, "the model was asked for JSON and wrote something else: %s", errs.Clip(err.Error(), maxFault))
		}
		if q.fits != nil {
			if err := q.fits.Check(ctx, value); err != nil {
				return fail(workgraph.Retryable, ReasonOffSchema, "the answer is not what response_schema asks for: %s", errs.Clip(err.Error(), maxFault))
			}
		}
	}
	var out workgraph.Outcome
	switch {
	case q.tools:
		out, err = actor.Value(resp.Message)
	case q.asJSON:
		out.Values = []json.RawMessage{value}
	default:
		out, err = actor.Value(content)
	}
	out.Usage = used
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
		request = actor.AsText(c.Args[0])
	}
	if request == "" && len(a.Messages) == 0 {
		return nil, actor.BadArguments("one of request, user_input and messages is needed")
	}
	var b strings.Builder
	b.WriteString(request)
	if len(a.Tool) > 0 && a.Tool[0] == '"' && !strings.Contains(request, actor.AsText(a.Tool)) {
		b.WriteString("\n\nTool: " + actor.AsText(a.Tool))
	}
	if len(a.Arguments) > 0 {
		b.WriteString("\n\nArguments:")
		for _, arg := range a.Arguments {
			b.WriteString("\n" + actor.AsText(arg))
		}
	}
	if refs := actor.References(a.References); refs != "" {
		b.WriteString("\n\n" + refs)
	}
	for _, d := range a.Attachments {
		body := actor.AsText(d.Content)
		if body == "" {
			body = d.URI
		}
		section(&b, "attachment", d.ID, d.Description, body)
	}
	told := false
	upstream := c.Upstream
	if a.Upstream != nil && !*a.Upstream {
		upstream = nil
	}
	for _, u := range upstream {
		switch u.Outcome {
		case workgraph.VisitCompleted:
			if len(u.Values) == 0 {
				continue
			}
			if b.Len() > maxPrompt {
				return nil, actor.BadArguments("the results of the nodes before this one are longer than %d bytes together: keep large ones outside and pass references", maxPrompt)
			}
			told = true
			section(&b, "result", u.Node, "", actor.AsText(actor.Result(u.Values)))
		case workgraph.VisitFailed:
			if u.Error != nil {
				section(&b, "failure", u.Node, "", u.Error.Error())
			}
		}
	}
	if !told && len(a.Previous) > 0 && string(a.Previous) != "null" {
		section(&b, "result", "earlier steps", "", actor.AsText(a.Previous))
	}
	if actor.Filled(a.Before) {
		section(&b, "result", "earlier actions", "", actor.AsText(a.Before))
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

// usage is what is booked for calls, which is an estimate where a server reported nothing.
func usage(spent []llm.Spent, call string) []workgraph.Usage {
	var out []workgraph.Usage
	for _, s := range spent {
		out = append(out, workgraph.Usage{
			Provider: s.Provider, Model: s.Model, InputTokens: s.Usage.Input, OutputTokens: s.Usage.Output,
			CachedTokens: s.Usage.CachedInput, ReasoningTokens: s.Usage.Reasoning, Call: call,
		})
	}
	return out
}

// failure types a call without an answer. ctx is that of the call.
func failure(ctx context.Context, err error, call string) error {
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
	used := usage(e.Used, call)
	if ctx.Err() != nil && (e.Class == llm.Unknown || e.Class == llm.NotPerformed) {
		return actor.Interrupted(t, used...)
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
	out.Usage = used
	return out
}
