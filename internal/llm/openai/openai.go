// Package openai owns the chat protocol of OpenAI, which most other servers speak too, over OpenAI's own
// client. It must not retry, nor know profiles.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"github.com/epigraph-run/epigraph/internal/llm"
)

// BaseURL is asked when a profile names no other.
const BaseURL = "https://api.openai.com/v1"

// path is that of the protocol's one method.
const path = "chat/completions"

type model struct {
	// post is a method of a client. A client in its place would link all methods of all its services: other
	// code of the binary finds methods by name.
	post            func(ctx context.Context, path string, params, res any, opts ...option.RequestOption) error
	legacyMaxTokens bool
}

// Open is an llm.Provider. A query of the base URL goes with every request, as some servers want their
// version there. Without a key no Authorization is sent.
func Open(e llm.Endpoint) (llm.Model, error) {
	if e.BaseURL == "" {
		e.BaseURL = BaseURL
	}
	u, err := url.Parse(e.BaseURL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	u.RawQuery = ""
	opts := []option.RequestOption{
		option.WithBaseURL(u.String()), option.WithHTTPClient(e.Doer()), option.WithMaxRetries(0), option.WithHeader("User-Agent", "epigraph"),
	}
	for name, values := range query {
		for _, v := range values {
			opts = append(opts, option.WithQueryAdd(name, v))
		}
	}
	if !e.APIKey.IsZero() {
		opts = append(opts, option.WithAPIKey(e.APIKey.Reveal()))
	}
	// A whole client would read the environment besides.
	client := &sdk.Client{Options: sdk.NewChatCompletionService(opts...).Options}
	return &model{post: client.Post, legacyMaxTokens: e.LegacyMaxTokens}, nil
}

// Generate implements llm.Model. The client's method for any path takes the parameters as they are sent. That
// of the service takes a copy of them, and both would stand on the stack of a call that waits.
func (m *model) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	var res *sdk.ChatCompletion
	body, err := llm.Encode(m.params(&req))
	if err == nil {
		err = m.post(ctx, path, body, &res, header(&req)...)
	}
	if err != nil {
		return llm.Response{}, err
	}
	return answer(res)
}

// answer reads a whole answer. It is not inlined: its values would stand on the stack of a call that waits.
//
//go:noinline
func answer(res *sdk.ChatCompletion) (llm.Response, error) {
	if res == nil || len(res.Choices) == 0 {
		return llm.Response{}, llm.Malformed("the answer has no choice")
	}
	first := &res.Choices[0]
	out := llm.Response{ID: res.ID, Model: res.Model, Refusal: first.Message.Refusal, FinishReason: first.FinishReason, Usage: usage(&res.Usage)}
	out.Message.Content = first.Message.Content
	for i := range first.Message.ToolCalls {
		c := &first.Message.ToolCalls[i]
		out.Message.ToolCalls = append(out.Message.ToolCalls, llm.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: llm.Arguments(c.Function.Arguments)})
	}
	return out, nil
}

// Stream implements llm.Model.
func (m *model) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	params := m.params(&req)
	params.StreamOptions = sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	body, err := llm.Encode(params)
	var res *http.Response
	if err == nil {
		opts := append(header(&req), option.WithHeader("Accept", "text/event-stream"), option.WithJSONSet("stream", true))
		err = m.post(ctx, path, body, &res, opts...)
	}
	if err != nil {
		return llm.Response{}, err
	}
	return read(ssestream.NewStream[sdk.ChatCompletionChunk](ssestream.NewDecoder(res), nil), delta)
}

// read reads a streamed answer. It is not inlined for the same reason as answer.
//
//go:noinline
func read(stream *ssestream.Stream[sdk.ChatCompletionChunk], delta func(llm.Delta) error) (out llm.Response, err error) {
	defer func() { _ = stream.Close() }() // what is left of it is of no interest
	var a llm.Assembly
	var refusal strings.Builder
	began := false
	for stream.Next() {
		chunk := stream.Current()
		if out.ID == "" {
			out.ID, out.Model = chunk.ID, chunk.Model
		}
		if used := usage(&chunk.Usage); used.Known {
			out.Usage = used
		}
		if len(chunk.Choices) == 0 {
			continue
		}
		first := &chunk.Choices[0]
		if first.FinishReason != "" {
			out.FinishReason = first.FinishReason
		}
		refusal.WriteString(first.Delta.Refusal)
		for _, d := range pieces(&first.Delta) {
			began = true
			if err := a.Add(d); err != nil {
				return llm.Response{}, err
			}
			if err := delta(d); err != nil {
				return llm.Response{}, llm.GaveUp(err)
			}
		}
	}
	if err := stream.Err(); err != nil {
		var said []byte
		if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
			said = e.Event.Data
		}
		return llm.Response{}, llm.Broken(err, began, said)
	}
	if out.FinishReason == "" {
		return llm.Response{}, llm.Ended()
	}
	out.Message, out.Refusal = a.Message(), refusal.String()
	return out, nil
}

// pieces are the deltas of a chunk. One that holds neither text nor a call, but something of the answer, such
// as reasoning, is a delta without content: a sign that the answer goes on.
func pieces(d *sdk.ChatCompletionChunkChoiceDelta) []llm.Delta {
	var out []llm.Delta
	if d.Content != "" {
		out = append(out, llm.Delta{Text: d.Content})
	}
	for i := range d.ToolCalls {
		c := &d.ToolCalls[i]
		out = append(out, llm.Delta{Call: &llm.CallDelta{Index: int(c.Index), ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments}})
	}
	if len(out) == 0 && (d.Refusal != "" || reasons(d)) {
		out = append(out, llm.Delta{})
	}
	return out
}

// reasons reports whether a chunk has reasoning. Each server has a name of its own for it, such as
// reasoning_content or reasoning, and none is in OpenAI's protocol.
func reasons(d *sdk.ChatCompletionChunkChoiceDelta) bool {
	for _, field := range d.JSON.ExtraFields {
		switch field.Raw() {
		case "", "null", `""`, "[]", "{}", "false", "0":
		default:
			return true
		}
	}
	return false
}

func header(req *llm.Request) []option.RequestOption {
	if req.IdempotencyKey == "" {
		return nil
	}
	return []option.RequestOption{option.WithHeader("Idempotency-Key", req.IdempotencyKey)}
}

// params is a request in the form of the protocol.
func (m *model) params(req *llm.Request) *sdk.ChatCompletionNewParams {
	p := &sdk.ChatCompletionNewParams{Model: req.Model, Messages: make([]sdk.ChatCompletionMessageParamUnion, len(req.Messages))}
	for i := range req.Messages {
		p.Messages[i] = message(&req.Messages[i])
	}
	for _, t := range req.Tools {
		def := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			def.Description = param.NewOpt(t.Description)
		}
		if len(t.Schema) > 0 {
			def.SetExtraFields(map[string]any{"parameters": t.Schema}) // as it is, in the order of its author
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(def))
	}
	switch req.ToolChoice {
	case "":
	case llm.ChooseAuto, llm.ChooseNone, llm.ChooseRequired:
		p.ToolChoice.OfAuto = param.NewOpt(req.ToolChoice)
	default:
		p.ToolChoice = sdk.ToolChoiceOptionFunctionToolChoice(sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: req.ToolChoice})
	}
	if m.legacyMaxTokens {
		p.MaxTokens = param.NewOpt(req.MaxOutputTokens)
	} else {
		p.MaxCompletionTokens = param.NewOpt(req.MaxOutputTokens)
	}
	if req.Temperature != nil {
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	p.Stop.OfStringArray = req.Stop
	switch f := req.Format; {
	case f == nil:
	case len(f.Schema) == 0:
		p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	default:
		name := f.Name
		if name == "" {
			name = "answer"
		}
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: name, Schema: f.Schema, Strict: param.NewOpt(f.Strict),
		}}
	}
	if len(req.Extra) > 0 {
		extra := make(map[string]any, len(req.Extra))
		for name, value := range req.Extra {
			extra[name] = value
		}
		p.SetExtraFields(extra)
	}
	return p
}

func message(m *llm.Message) sdk.ChatCompletionMessageParamUnion {
	switch m.Role {
	case llm.System:
		return sdk.SystemMessage(m.Content)
	case llm.ToolRole:
		return sdk.ToolMessage(m.Content, m.ToolCallID)
	case llm.User:
		return sdk.UserMessage(m.Content)
	}
	a := &sdk.ChatCompletionAssistantMessageParam{}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		a.Content.OfString = param.NewOpt(m.Content)
	}
	for _, c := range m.ToolCalls {
		a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
			ID: c.ID, Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: written(c.Arguments)},
		}})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: a}
}

// written is the text that the model wrote as the arguments of a call.
func written(raw json.RawMessage) string {
	var s string
	if strings.HasPrefix(string(raw), `"`) && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func usage(u *sdk.CompletionUsage) llm.Usage {
	return llm.Usage{
		Input: u.PromptTokens, CachedInput: u.PromptTokensDetails.CachedTokens,
		Output: u.CompletionTokens, Reasoning: u.CompletionTokensDetails.ReasoningTokens,
		Known: u.JSON.PromptTokens.Valid() || u.JSON.CompletionTokens.Valid(),
	}
}
