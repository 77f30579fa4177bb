// Package anthropic owns the messages protocol of Anthropic, over Anthropic's own client. It must not retry,
// nor know profiles.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/epigraph-run/epigraph/internal/llm"
)

// BaseURL is asked when a profile names no other.
const BaseURL = "https://api.anthropic.com"

// opaque is the key of llm.Message.Opaque under which the content blocks of an answer with reasoning are
// kept.
const opaque = "anthropic"

// forJSON asks for JSON where the protocol has no field for it: there is none for JSON without a schema.
const forJSON = "Answer with one JSON object and nothing else."

type model struct{ messages sdk.MessageService }

// Open is an llm.Provider.
func Open(e llm.Endpoint) (llm.Model, error) {
	if e.BaseURL == "" {
		e.BaseURL = BaseURL
	}
	opts := []option.RequestOption{
		option.WithBaseURL(e.BaseURL), option.WithHTTPClient(e.Doer()), option.WithMaxRetries(0), option.WithHeader("User-Agent", "epigraph"),
		// The client refuses long answers that are not streamed unless the caller limits the time, as llm.Set
		// does.
		option.WithRequestTimeout(time.Duration(math.MaxInt64)),
	}
	if !e.APIKey.IsZero() {
		opts = append(opts, option.WithAPIKey(e.APIKey.Reveal()))
	}
	return &model{messages: sdk.NewMessageService(opts...)}, nil
}

// Generate implements llm.Model.
func (m *model) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	res, err := m.messages.New(ctx, params(&req), header(&req)...)
	if err != nil {
		return llm.Response{}, err
	}
	if res == nil || res.Role == "" || !res.JSON.Content.Valid() {
		return llm.Response{}, llm.Malformed("the answer has no content")
	}
	return response(res)
}

// Stream implements llm.Model.
func (m *model) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	stream := m.messages.NewStreaming(ctx, params(&req), append(header(&req), option.WithHeader("Accept", "text/event-stream"))...)
	defer func() { _ = stream.Close() }() // what is left of it is of no interest
	if err := stream.Err(); err != nil {
		return llm.Response{}, err
	}
	whole := accumulation{parts: map[int64]*parts{}}
	began, ended := false, false
	calls := map[int64]int{} // the place among the calls, by that among the blocks
	for stream.Next() {
		event := stream.Current()
		if err := whole.add(&event); err != nil {
			return llm.Response{}, llm.Broken(err, began, nil)
		}
		if ended = event.Type == "message_stop"; ended {
			break
		}
		d, ok := piece(&event, calls)
		if !ok {
			continue
		}
		began = true
		if err := delta(d); err != nil {
			return llm.Response{}, llm.GaveUp(err)
		}
	}
	if err := stream.Err(); err != nil {
		var said []byte
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			said = []byte(e.RawJSON())
		}
		return llm.Response{}, llm.Broken(err, began, said)
	}
	if !ended || whole.message.StopReason == "" {
		return llm.Response{}, llm.Ended()
	}
	return response(&whole.message)
}

// accumulation is the message of a stream. The SDK copies what it has of a block for each piece and at each
// end of the block, so it gets the pieces of a block together, and one end.
type accumulation struct {
	message sdk.Message
	parts   map[int64]*parts // of the blocks that are open
}

type parts struct{ text, thinking, signature strings.Builder }

func (a *accumulation) add(event *sdk.MessageStreamEventUnion) error {
	p := a.parts[event.Index]
	switch event.Type {
	case "content_block_start":
		a.parts[event.Index] = &parts{}
	case "content_block_delta":
		if p == nil {
			return fmt.Errorf("a piece of block %d, which is not open", event.Index)
		}
		switch d := &event.Delta; d.Type {
		case "text_delta":
			p.text.WriteString(d.Text)
			return nil
		case "thinking_delta":
			p.thinking.WriteString(d.Thinking)
			return nil
		case "signature_delta":
			p.signature.WriteString(d.Signature)
			return nil
		}
	case "content_block_stop":
		if p == nil {
			return fmt.Errorf("the end of block %d, which is not open", event.Index)
		}
		if err := a.flush(event.Index); err != nil {
			return err
		}
	case "message_stop":
		for i := range a.parts {
			if err := a.flush(i); err != nil {
				return err
			}
		}
	}
	return a.message.Accumulate(*event)
}

// flush gives the SDK the pieces of a block, which is no longer open.
func (a *accumulation) flush(block int64) error {
	p := a.parts[block]
	delete(a.parts, block)
	for _, d := range []sdk.MessageStreamEventUnionDelta{
		{Type: "text_delta", Text: p.text.String()},
		{Type: "thinking_delta", Thinking: p.thinking.String()},
		{Type: "signature_delta", Signature: p.signature.String()},
	} {
		if d.Text+d.Thinking+d.Signature == "" {
			continue
		}
		if err := a.message.Accumulate(sdk.MessageStreamEventUnion{Type: "content_block_delta", Index: block, Delta: d}); err != nil {
			return err
		}
	}
	return nil
}

// piece is the delta of an event. Reasoning is a delta without content: a sign that the answer goes on.
func piece(event *sdk.MessageStreamEventUnion, calls map[int64]int) (llm.Delta, bool) {
	switch event.Type {
	case "content_block_start":
		if b := event.ContentBlock; b.Type == "tool_use" {
			calls[event.Index] = len(calls)
			return llm.Delta{Call: &llm.CallDelta{Index: calls[event.Index], ID: b.ID, Name: b.Name}}, true
		}
	case "content_block_delta":
		switch event.Delta.Type {
		case "text_delta":
			return llm.Delta{Text: event.Delta.Text}, true
		case "input_json_delta":
			i, ok := calls[event.Index]
			return llm.Delta{Call: &llm.CallDelta{Index: i, Arguments: event.Delta.PartialJSON}}, ok
		case "thinking_delta":
			return llm.Delta{}, true
		}
	}
	return llm.Delta{}, false
}

func header(req *llm.Request) []option.RequestOption {
	if req.IdempotencyKey == "" {
		return nil
	}
	return []option.RequestOption{option.WithHeader("Idempotency-Key", req.IdempotencyKey)}
}

// response is a message in neutral form.
func response(m *sdk.Message) (llm.Response, error) {
	out := llm.Response{ID: m.ID, Model: m.Model, FinishReason: finish(m.StopReason), Usage: usage(&m.Usage)}
	var text strings.Builder
	reasoned := false
	blocks := make([]json.RawMessage, 0, len(m.Content))
	for i := range m.Content {
		b := &m.Content[i]
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "thinking", "redacted_thinking":
			reasoned = true
		case "tool_use":
			out.Message.ToolCalls = append(out.Message.ToolCalls, llm.ToolCall{ID: b.ID, Name: b.Name, Arguments: llm.Arguments(string(b.Input))})
		}
		raw, err := json.Marshal(b.ToParam())
		if err != nil {
			return llm.Response{}, err
		}
		blocks = append(blocks, raw)
	}
	if reasoned {
		raw, err := json.Marshal(blocks)
		if err != nil {
			return llm.Response{}, err
		}
		out.Message.Opaque = map[string]json.RawMessage{opaque: raw}
	}
	out.Message.Content = text.String()
	if m.StopReason == sdk.StopReasonRefusal {
		out.Refusal = m.StopDetails.Explanation
	}
	return out, nil
}

func finish(reason sdk.StopReason) string {
	switch reason {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence:
		return llm.FinishStop
	case sdk.StopReasonMaxTokens, "model_context_window_exceeded":
		return llm.FinishLength
	case sdk.StopReasonToolUse:
		return llm.FinishToolCalls
	case sdk.StopReasonRefusal:
		return llm.FinishContentFilter
	}
	return string(reason)
}

// usage counts tokens that were read from or written to the cache as input, which Anthropic does not.
func usage(u *sdk.Usage) llm.Usage {
	return llm.Usage{
		Input: u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, CachedInput: u.CacheReadInputTokens,
		Output: u.OutputTokens, Reasoning: u.OutputTokensDetails.ThinkingTokens,
		Known: u.JSON.InputTokens.Valid() || u.JSON.OutputTokens.Valid(),
	}
}

// params is a request in the form of the protocol. System messages come first, wherever they stand.
func params(req *llm.Request) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: req.Model, MaxTokens: req.MaxOutputTokens, StopSequences: req.Stop}
	if req.Temperature != nil {
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Role == llm.System {
			if m.Content != "" {
				p.System = append(p.System, sdk.TextBlockParam{Text: m.Content})
			}
			continue
		}
		role, blocks := content(m)
		if len(blocks) == 0 {
			continue
		}
		// The answers to the calls of one message must be in one message.
		if last := len(p.Messages) - 1; last >= 0 && p.Messages[last].Role == role {
			p.Messages[last].Content = append(p.Messages[last].Content, blocks...)
			continue
		}
		p.Messages = append(p.Messages, sdk.MessageParam{Role: role, Content: blocks})
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, tool(&t))
	}
	switch req.ToolChoice {
	case "":
	case llm.ChooseAuto:
		p.ToolChoice.OfAuto = &sdk.ToolChoiceAutoParam{}
	case llm.ChooseNone:
		p.ToolChoice.OfNone = &sdk.ToolChoiceNoneParam{}
	case llm.ChooseRequired:
		p.ToolChoice.OfAny = &sdk.ToolChoiceAnyParam{}
	default:
		p.ToolChoice = sdk.ToolChoiceParamOfTool(req.ToolChoice)
	}
	if f := req.Format; f != nil {
		if len(f.Schema) == 0 {
			p.System = append(p.System, sdk.TextBlockParam{Text: forJSON})
		} else {
			var format sdk.JSONOutputFormatParam
			format.SetExtraFields(map[string]any{"schema": f.Schema}) // as it is, in the order of its author
			p.OutputConfig.Format = format
		}
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

func tool(t *llm.Tool) sdk.ToolUnionParam {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	def := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
	if t.Description != "" {
		def.Description = param.NewOpt(t.Description)
	}
	return sdk.ToolUnionParam{OfTool: def}
}

// content is a message as content blocks, which must not be empty texts.
func content(m *llm.Message) (sdk.MessageParamRole, []sdk.ContentBlockParamUnion) {
	if m.Role == llm.ToolRole {
		result := sdk.ToolResultBlockParam{ToolUseID: m.ToolCallID}
		if m.Content != "" {
			result.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: m.Content}}}
		}
		if m.IsError {
			result.IsError = param.NewOpt(true)
		}
		return sdk.MessageParamRoleUser, []sdk.ContentBlockParamUnion{{OfToolResult: &result}}
	}
	if m.Role == llm.User {
		if m.Content == "" {
			return sdk.MessageParamRoleUser, nil
		}
		return sdk.MessageParamRoleUser, []sdk.ContentBlockParamUnion{sdk.NewTextBlock(m.Content)}
	}
	var kept []json.RawMessage
	if raw := m.Opaque[opaque]; len(raw) > 0 && json.Unmarshal(raw, &kept) == nil && len(kept) > 0 {
		blocks := make([]sdk.ContentBlockParamUnion, len(kept))
		for i, b := range kept {
			blocks[i] = param.Override[sdk.ContentBlockParamUnion](b)
		}
		return sdk.MessageParamRoleAssistant, blocks
	}
	var blocks []sdk.ContentBlockParamUnion
	if m.Content != "" {
		blocks = append(blocks, sdk.NewTextBlock(m.Content))
	}
	for _, c := range m.ToolCalls {
		blocks = append(blocks, sdk.NewToolUseBlock(c.ID, input(c.Arguments), c.Name))
	}
	return sdk.MessageParamRoleAssistant, blocks
}

// input is the arguments of a call as the object that the protocol wants.
func input(raw json.RawMessage) json.RawMessage {
	if strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
		return raw
	}
	return json.RawMessage(`{"arguments":` + string(raw) + `}`)
}
