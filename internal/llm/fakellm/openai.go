package fakellm

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// openai is the chat protocol of OpenAI.
var openai = protocol{
	name: "openai", read: readChat, fail: failOpenAI, whole: wholeChat, stream: streamChat,
	failure: func(c code) any { return openAIError(c.code, c.message) },
	none: func(req *Request) any {
		return map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "model": req.Model, "choices": []any{}}
	},
	codes: map[Fault]code{
		RateLimit:     {http.StatusTooManyRequests, "rate_limit_exceeded", "too many requests"},
		QuotaExceeded: {http.StatusTooManyRequests, "insufficient_quota", "you exceeded your quota"},
		Overloaded:    {http.StatusServiceUnavailable, "overloaded", "the engine is overloaded"},
		ServerError:   {http.StatusInternalServerError, "server_error", "the server had an error"},
		BadRequest:    {http.StatusBadRequest, "context_length_exceeded", "the request is too long for this model"},
		Unauthorized:  {http.StatusUnauthorized, "invalid_api_key", "the API key is not valid"},
		ModelNotFound: {http.StatusNotFound, "model_not_found", "the model does not exist"},
	},
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func readChat(_ *http.Request, body []byte, into *Request) error {
	var in struct {
		Model    string `json:"model"`
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCalls  []chatCall      `json:"tool_calls"`
			ToolCallID string          `json:"tool_call_id"`
		} `json:"messages"`
		Stream         bool  `json:"stream"`
		MaxTokens      int64 `json:"max_tokens"`
		MaxCompletion  int64 `json:"max_completion_tokens"`
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
		ToolChoice json.RawMessage `json:"tool_choice"`
		Stop       []string        `json:"stop"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	into.Model, into.Stream, into.MaxTokens, into.Format, into.Stop = in.Model, in.Stream, max(in.MaxTokens, in.MaxCompletion), in.ResponseFormat.Type, in.Stop
	into.noUsage = in.Stream && !in.StreamOptions.IncludeUsage
	for _, m := range in.Messages {
		out := Message{Role: m.Role, Content: texts(m.Content), ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			out.ToolCalls = append(out.ToolCalls, ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		into.Messages = append(into.Messages, out)
	}
	for _, t := range in.Tools {
		into.Tools = append(into.Tools, t.Function.Name)
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if len(in.ToolChoice) > 0 && json.Unmarshal(in.ToolChoice, &into.ToolChoice) != nil && json.Unmarshal(in.ToolChoice, &named) == nil {
		into.ToolChoice = named.Function.Name
	}
	return nil
}

func failOpenAI(w http.ResponseWriter, status int, code, message string, retryAfter time.Duration) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64))
	}
	write(w, status, openAIError(code, message))
}

func openAIError(code, message string) any {
	return map[string]any{"error": map[string]any{"message": message, "type": code, "code": code, "param": nil}}
}

func chatEnvelope(req *Request, reply Reply, object string) map[string]any {
	return map[string]any{"id": "chatcmpl-" + hashed(req, reply), "object": object, "created": 1, "model": req.Model}
}

func wholeChat(req *Request, reply Reply) any {
	out := chatEnvelope(req, reply, "chat.completion")
	message := map[string]any{"role": "assistant", "content": reply.Text, "refusal": nil}
	if reply.Refusal != "" {
		message["content"], message["refusal"] = nil, reply.Refusal
	}
	var calls []any
	for _, c := range reply.ToolCalls {
		calls = append(calls, chatToolCall(c.ID, c.Name, c.Arguments))
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	if reply.Thinking != "" {
		message["reasoning_content"] = reply.Thinking
	}
	if reply.Fault == Filtered {
		message["content"], reply.FinishReason = "", "content_filter"
	}
	out["choices"] = []any{map[string]any{"index": 0, "finish_reason": reply.FinishReason, "message": message}}
	if !reply.NoUsage {
		out["usage"] = chatUsage(reply.Usage)
	}
	return out
}

func chatToolCall(id, name, arguments string) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}
}

func streamChat(req *Request, reply Reply, s *sender) error {
	send := func(choices []any, usage any) error {
		chunk := chatEnvelope(req, reply, "chat.completion.chunk")
		chunk["choices"], chunk["usage"] = choices, usage
		return s.event("", chunk)
	}
	delta := func(d map[string]any, finish any) error {
		return send([]any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	if err := delta(map[string]any{"role": "assistant", "content": ""}, nil); err != nil {
		return err
	}
	if err := s.pieces(reply.Thinking, func(p string) error { return delta(map[string]any{"reasoning_content": p}, nil) }); err != nil {
		return err
	}
	text := reply.Text
	if reply.Fault == Filtered {
		text, reply.FinishReason = text[:len(text)/2], "content_filter"
	}
	if err := s.pieces(text, func(p string) error { return delta(map[string]any{"content": p}, nil) }); err != nil {
		return err
	}
	if reply.Refusal != "" {
		if err := s.pieces(reply.Refusal, func(p string) error { return delta(map[string]any{"refusal": p}, nil) }); err != nil {
			return err
		}
	}
	for i, c := range reply.ToolCalls {
		first := chatToolCall(c.ID, c.Name, "")
		first["index"] = i
		if err := delta(map[string]any{"tool_calls": []any{first}}, nil); err != nil {
			return err
		}
		if err := s.pieces(c.Arguments, func(p string) error {
			return delta(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": p}}}}, nil)
		}); err != nil {
			return err
		}
	}
	if err := delta(map[string]any{}, reply.FinishReason); err != nil {
		return err
	}
	if !req.noUsage && !reply.NoUsage {
		if err := send([]any{}, chatUsage(reply.Usage)); err != nil {
			return err
		}
	}
	_, err := s.w.Write([]byte("data: [DONE]\n\n"))
	return err
}

func chatUsage(u Usage) map[string]any {
	return map[string]any{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedInput},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
	}
}
