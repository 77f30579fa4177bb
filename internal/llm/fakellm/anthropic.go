package fakellm

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// anthropic is the messages protocol of Anthropic.
var anthropic = protocol{
	name: "anthropic", read: readMessages, fail: failAnthropic, whole: wholeMessage, stream: streamMessage, errorEvent: "error",
	failure: func(c code) any { return anthropicError(c.code, c.message) },
	none: func(req *Request) any {
		return map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": req.Model}
	},
	codes: map[Fault]code{
		RateLimit:     {http.StatusTooManyRequests, "rate_limit_error", "too many requests"},
		QuotaExceeded: {http.StatusBadRequest, "billing_error", "your credit balance is too low"},
		Overloaded:    {529, "overloaded_error", "Overloaded"},
		ServerError:   {http.StatusInternalServerError, "api_error", "the server had an error"},
		BadRequest:    {http.StatusBadRequest, "invalid_request_error", "prompt is too long"},
		Unauthorized:  {http.StatusUnauthorized, "authentication_error", "invalid x-api-key"},
		ModelNotFound: {http.StatusNotFound, "not_found_error", "the model does not exist"},
	},
}

// block is a content block of a message, in either direction.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

func readMessages(r *http.Request, body []byte, into *Request) error {
	if r.Header.Get("Anthropic-Version") == "" {
		return errors.New("the header anthropic-version is missing")
	}
	var in struct {
		Model     string          `json:"model"`
		MaxTokens int64           `json:"max_tokens"`
		System    json.RawMessage `json:"system"`
		Messages  []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Stream       bool     `json:"stream"`
		Stop         []string `json:"stop_sequences"`
		OutputConfig struct {
			Format struct {
				Type string `json:"type"`
			} `json:"format"`
		} `json:"output_config"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		ToolChoice struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tool_choice"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	if in.MaxTokens <= 0 {
		return errors.New("max_tokens must be positive")
	}
	into.Model, into.Stream, into.MaxTokens, into.Format, into.Stop = in.Model, in.Stream, in.MaxTokens, in.OutputConfig.Format.Type, in.Stop
	switch in.ToolChoice.Type {
	case "any":
		into.ToolChoice = "required"
	case "tool":
		into.ToolChoice = in.ToolChoice.Name
	default:
		into.ToolChoice = in.ToolChoice.Type
	}
	for _, t := range in.Tools {
		into.Tools = append(into.Tools, t.Name)
	}
	if s := texts(in.System); s != "" {
		into.Messages = append(into.Messages, Message{Role: "system", Content: s})
	}
	for _, m := range in.Messages {
		messages, err := readBlocks(m.Role, m.Content)
		if err != nil {
			return err
		}
		into.Messages = append(into.Messages, messages...)
	}
	return nil
}

// readBlocks is a message in the form of OpenAI: a message for each answer of a tool, and one for the rest.
func readBlocks(role string, content json.RawMessage) ([]Message, error) {
	if role != "user" && role != "assistant" {
		return nil, errors.New("a role is user or assistant")
	}
	var blocks []block
	if json.Unmarshal(content, &blocks) != nil {
		return []Message{{Role: role, Content: texts(content)}}, nil
	}
	if len(blocks) == 0 {
		return nil, errors.New("a message has no content")
	}
	var out []Message
	rest := Message{Role: role}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			if b.Text == "" {
				return nil, errors.New("text content blocks must be non-empty")
			}
			rest.Content += b.Text
		case "thinking":
			rest.Thinking = append(rest.Thinking, b.Signature)
		case "tool_use":
			if len(b.Input) == 0 || b.Input[0] != '{' {
				return nil, errors.New("the input of a tool use must be an object")
			}
			rest.ToolCalls = append(rest.ToolCalls, ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		case "tool_result":
			out = append(out, Message{Role: "tool", Content: texts(b.Content), ToolCallID: b.ToolUseID, IsError: b.IsError})
		default:
			return nil, errors.New("unknown content block " + strconv.Quote(b.Type))
		}
	}
	if rest.Content != "" || len(rest.ToolCalls) > 0 || len(out) == 0 {
		out = append(out, rest)
	}
	return out, nil
}

func failAnthropic(w http.ResponseWriter, status int, code, message string, retryAfter time.Duration) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64))
	}
	write(w, status, anthropicError(code, message))
}

func anthropicError(code, message string) any {
	return map[string]any{"type": "error", "error": map[string]any{"type": code, "message": message}, "request_id": "req_1"}
}

// signature is that of a text of reasoning.
func signature(text string) string { return "signed:" + text }

func anthropicStop(reply *Reply) string {
	switch {
	case reply.Fault == Filtered, reply.Refusal != "":
		return "refusal"
	case reply.FinishReason == "stop":
		return "end_turn"
	case reply.FinishReason == "length":
		return "max_tokens"
	case reply.FinishReason == "tool_calls":
		return "tool_use"
	}
	return reply.FinishReason
}

// uncached is the usage as Anthropic counts it: what was cached is not part of the input.
func anthropicUsage(u Usage) map[string]any {
	return map[string]any{
		"input_tokens": u.Input - u.CachedInput, "cache_read_input_tokens": u.CachedInput, "cache_creation_input_tokens": 0,
		"output_tokens": u.Output, "output_tokens_details": map[string]any{"thinking_tokens": u.Reasoning},
	}
}

func envelopeMessage(req *Request, reply Reply) map[string]any {
	return map[string]any{
		"id": "msg_" + hashed(req, reply), "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil,
	}
}

func stopDetails(reply Reply) any {
	if reply.Refusal == "" {
		return nil
	}
	return map[string]any{"type": "refusal", "category": "general_harms", "explanation": reply.Refusal}
}

func wholeMessage(req *Request, reply Reply) any {
	out := envelopeMessage(req, reply)
	content := []any{}
	if reply.Thinking != "" {
		content = append(content, block{Type: "thinking", Thinking: reply.Thinking, Signature: signature(reply.Thinking)})
	}
	if reply.Text != "" && reply.Fault != Filtered {
		content = append(content, block{Type: "text", Text: reply.Text})
	}
	for _, c := range reply.ToolCalls {
		content = append(content, block{Type: "tool_use", ID: c.ID, Name: c.Name, Input: object(c.Arguments)})
	}
	out["content"], out["stop_reason"], out["stop_details"] = content, anthropicStop(&reply), stopDetails(reply)
	if !reply.NoUsage {
		out["usage"] = anthropicUsage(reply.Usage)
	}
	return out
}

// object is a text if it is JSON, and else nothing, as a server that reads its model's text would send it.
func object(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(text)
}

func streamMessage(req *Request, reply Reply, s *sender) error {
	begin := envelopeMessage(req, reply)
	if !reply.NoUsage {
		used := anthropicUsage(reply.Usage)
		used["output_tokens"] = 1
		begin["usage"] = used
	}
	steps := []func() error{
		func() error {
			return s.event("message_start", map[string]any{"type": "message_start", "message": begin})
		},
		func() error { return s.event("ping", map[string]any{"type": "ping"}) },
	}
	index := 0
	one := func(start block, delta func(send func(kind, field, text string) error) error) {
		i := index
		index++
		steps = append(steps, func() error {
			if err := s.event("content_block_start", map[string]any{"type": "content_block_start", "index": i, "content_block": blockStart(start)}); err != nil {
				return err
			}
			err := delta(func(kind, field, text string) error {
				return s.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": i, "delta": map[string]any{"type": kind, field: text}})
			})
			if err != nil {
				return err
			}
			return s.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": i})
		})
	}
	if reply.Thinking != "" {
		one(block{Type: "thinking"}, func(send func(kind, field, text string) error) error {
			if err := s.pieces(reply.Thinking, func(p string) error { return send("thinking_delta", "thinking", p) }); err != nil {
				return err
			}
			return send("signature_delta", "signature", signature(reply.Thinking))
		})
	}
	text := reply.Text
	if reply.Fault == Filtered {
		text = text[:len(text)/2]
	}
	if text != "" {
		one(block{Type: "text"}, func(send func(kind, field, text string) error) error {
			return s.pieces(text, func(p string) error { return send("text_delta", "text", p) })
		})
	}
	for _, c := range reply.ToolCalls {
		one(block{Type: "tool_use", ID: c.ID, Name: c.Name}, func(send func(kind, field, text string) error) error {
			return s.pieces(c.Arguments, func(p string) error { return send("input_json_delta", "partial_json", p) })
		})
	}
	steps = append(steps,
		func() error {
			end := map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": anthropicStop(&reply), "stop_sequence": nil, "stop_details": stopDetails(reply)}}
			if !reply.NoUsage {
				end["usage"] = map[string]any{"output_tokens": reply.Usage.Output, "output_tokens_details": map[string]any{"thinking_tokens": reply.Usage.Reasoning}}
			}
			return s.event("message_delta", end)
		},
		func() error { return s.event("message_stop", map[string]any{"type": "message_stop"}) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func blockStart(b block) map[string]any {
	switch b.Type {
	case "thinking":
		return map[string]any{"type": "thinking", "thinking": "", "signature": ""}
	case "tool_use":
		return map[string]any{"type": "tool_use", "id": b.ID, "name": b.Name, "input": map[string]any{}}
	}
	return map[string]any{"type": "text", "text": ""}
}
