package fakellm

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// google is generateContent of Google's Gemini API.
var google = protocol{
	name: "google", read: readContents, fail: failGoogle, whole: wholeContent, stream: streamContent,
	failure: func(c code) any { return googleError(c.status, c.code, c.message, 0) },
	none:    func(*Request) any { return map[string]any{"responseId": "r1", "candidates": []any{}} },
	codes: map[Fault]code{
		RateLimit:     {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "too many requests"},
		QuotaExceeded: {http.StatusForbidden, "PERMISSION_DENIED", "billing is disabled"},
		Overloaded:    {http.StatusServiceUnavailable, "UNAVAILABLE", "the model is overloaded"},
		ServerError:   {http.StatusInternalServerError, "INTERNAL", "the server had an error"},
		BadRequest:    {http.StatusBadRequest, "INVALID_ARGUMENT", "the input token count exceeds the maximum"},
		Unauthorized:  {http.StatusUnauthorized, "UNAUTHENTICATED", "the API key is not valid"},
		ModelNotFound: {http.StatusNotFound, "NOT_FOUND", "the model does not exist"},
	},
}

type contentPart struct {
	Text             string `json:"text"`
	Thought          bool   `json:"thought"`
	ThoughtSignature string `json:"thoughtSignature"`
	FunctionCall     *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		ID       string `json:"id"`
		Name     string `json:"name"`
		Response struct {
			Output json.RawMessage `json:"output"`
			Error  json.RawMessage `json:"error"`
		} `json:"response"`
	} `json:"functionResponse"`
}

type content struct {
	Role  string        `json:"role"`
	Parts []contentPart `json:"parts"`
}

func readContents(r *http.Request, body []byte, into *Request) error {
	name, verb, _ := strings.Cut(r.PathValue("call"), ":")
	if verb != "generateContent" && verb != "streamGenerateContent" {
		return errors.New("no such method")
	}
	if r.Header.Get("X-Goog-Api-Key") == "" {
		return errors.New("there is no API key")
	}
	var in struct {
		Contents          []content `json:"contents"`
		SystemInstruction content   `json:"systemInstruction"`
		GenerationConfig  struct {
			MaxOutputTokens  int64    `json:"maxOutputTokens"`
			ResponseMIMEType string   `json:"responseMimeType"`
			StopSequences    []string `json:"stopSequences"`
		} `json:"generationConfig"`
		Tools []struct {
			FunctionDeclarations []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		ToolConfig struct {
			FunctionCallingConfig struct {
				Mode                 string   `json:"mode"`
				AllowedFunctionNames []string `json:"allowedFunctionNames"`
			} `json:"functionCallingConfig"`
		} `json:"toolConfig"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	into.Model, into.Stream, into.MaxTokens = name, verb == "streamGenerateContent", in.GenerationConfig.MaxOutputTokens
	into.Format, into.Stop = in.GenerationConfig.ResponseMIMEType, in.GenerationConfig.StopSequences
	if into.Format == "text/plain" {
		into.Format = ""
	}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			into.Tools = append(into.Tools, f.Name)
		}
	}
	mode := in.ToolConfig.FunctionCallingConfig
	into.ToolChoice = map[string]string{"AUTO": "auto", "NONE": "none", "ANY": "required"}[mode.Mode]
	if len(mode.AllowedFunctionNames) == 1 {
		into.ToolChoice = mode.AllowedFunctionNames[0]
	}
	all := in.Contents
	if len(in.SystemInstruction.Parts) > 0 {
		in.SystemInstruction.Role = "system"
		all = append([]content{in.SystemInstruction}, all...)
	}
	for _, c := range all {
		messages, err := c.messages()
		if err != nil {
			return err
		}
		into.Messages = append(into.Messages, messages...)
	}
	return nil
}

// messages is a content in the form of OpenAI.
func (c content) messages() ([]Message, error) {
	roles := map[string]string{"user": "user", "model": "assistant", "system": "system"}
	rest := Message{Role: roles[c.Role]}
	if rest.Role == "" || len(c.Parts) == 0 {
		return nil, errors.New("a content needs a valid role and a part")
	}
	var out []Message
	for _, p := range c.Parts {
		if p.ThoughtSignature != "" {
			raw, err := base64.StdEncoding.DecodeString(p.ThoughtSignature)
			if err != nil {
				return nil, err
			}
			rest.Thinking = append(rest.Thinking, string(raw))
		}
		switch {
		case p.FunctionCall != nil:
			rest.ToolCalls = append(rest.ToolCalls, ToolCall{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: string(p.FunctionCall.Args)})
		case p.FunctionResponse != nil:
			m := Message{Role: "tool", ToolCallID: p.FunctionResponse.ID, Content: texts(p.FunctionResponse.Response.Output)}
			if p.FunctionResponse.Name == "" {
				return nil, errors.New("a function response needs a name")
			}
			if e := p.FunctionResponse.Response.Error; len(e) > 0 {
				m.Content, m.IsError = texts(e), true
			}
			out = append(out, m)
		case !p.Thought:
			rest.Content += p.Text
		}
	}
	if rest.Content != "" || len(rest.ToolCalls) > 0 || len(out) == 0 {
		out = append(out, rest)
	}
	return out, nil
}

func failGoogle(w http.ResponseWriter, status int, code, message string, retryAfter time.Duration) {
	write(w, status, googleError(status, code, message, retryAfter))
}

func googleError(status int, code, message string, retryAfter time.Duration) any {
	e := map[string]any{"code": status, "status": code, "message": message}
	if retryAfter > 0 {
		e["details"] = []any{
			map[string]any{"@type": "type.googleapis.com/google.rpc.Help"},
			map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": retryAfter.String()},
		}
	}
	return map[string]any{"error": e}
}

func googleUsage(u Usage) map[string]any {
	return map[string]any{
		"promptTokenCount": u.Input, "cachedContentTokenCount": u.CachedInput,
		"candidatesTokenCount": u.Output - u.Reasoning, "thoughtsTokenCount": u.Reasoning, "totalTokenCount": u.Input + u.Output,
	}
}

func googleFinish(reply *Reply) string {
	switch {
	case reply.Fault == Filtered:
		return "SAFETY"
	case reply.FinishReason == "stop", reply.FinishReason == "tool_calls":
		return "STOP"
	case reply.FinishReason == "length":
		return "MAX_TOKENS"
	}
	return reply.FinishReason
}

func candidate(parts []any, finish string) map[string]any {
	out := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if finish != "" {
		out["finishReason"] = finish
	}
	return out
}

// calls are the parts with the tool calls of a reply; the first has the signature of its reasoning.
func (reply *Reply) calls() []any {
	var out []any
	for i, c := range reply.ToolCalls {
		p := map[string]any{"functionCall": map[string]any{"id": c.ID, "name": c.Name, "args": object(c.Arguments)}}
		if i == 0 && reply.Thinking != "" {
			p["thoughtSignature"] = base64.StdEncoding.EncodeToString([]byte(signature(reply.Thinking)))
		}
		out = append(out, p)
	}
	return out
}

func contentEnvelope(req *Request, reply Reply) map[string]any {
	out := map[string]any{"responseId": "r" + hashed(req, reply), "modelVersion": req.Model}
	if !reply.NoUsage {
		out["usageMetadata"] = googleUsage(reply.Usage)
	}
	return out
}

func wholeContent(req *Request, reply Reply) any {
	out := contentEnvelope(req, reply)
	if reply.Refusal != "" {
		out["promptFeedback"] = map[string]any{"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": reply.Refusal}
		return out
	}
	var parts []any
	if reply.Thinking != "" {
		parts = append(parts, map[string]any{"text": reply.Thinking, "thought": true})
	}
	if reply.Text != "" && reply.Fault != Filtered {
		parts = append(parts, map[string]any{"text": reply.Text})
	}
	out["candidates"] = []any{candidate(append(parts, reply.calls()...), googleFinish(&reply))}
	return out
}

func streamContent(req *Request, reply Reply, s *sender) error {
	send := func(parts []any, finish string) error {
		out := contentEnvelope(req, reply)
		out["candidates"] = []any{candidate(parts, finish)}
		return s.event("", out)
	}
	if reply.Refusal != "" {
		return s.event("", wholeContent(req, reply))
	}
	if reply.Thinking != "" {
		if err := send([]any{map[string]any{"text": reply.Thinking, "thought": true}}, ""); err != nil {
			return err
		}
	}
	text := reply.Text
	if reply.Fault == Filtered {
		text = text[:len(text)/2]
	}
	if err := s.pieces(text, func(p string) error { return send([]any{map[string]any{"text": p}}, "") }); err != nil {
		return err
	}
	for _, c := range reply.calls() {
		if err := send([]any{c}, ""); err != nil {
			return err
		}
	}
	return send([]any{map[string]any{"text": ""}}, googleFinish(&reply))
}
