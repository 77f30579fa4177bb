// Package google owns generateContent of Google's Gemini API, over Google's own client. It must not retry,
// nor know profiles. Arguments of tool calls are protobuf structs at Google, so that whole numbers beyond 53
// bits lose their last digits there.
package google

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/epigraph-run/epigraph/internal/llm"
)

// BaseURL is asked when a profile names no other. The client adds the version of the API.
const BaseURL = "https://generativelanguage.googleapis.com/"

// opaque is the key of llm.Message.Opaque under which the parts of an answer with signatures are kept.
const opaque = "google"

type model struct{ models *genai.Models }

// Open is an llm.Provider.
func Open(e llm.Endpoint) (llm.Model, error) {
	if e.APIKey.IsZero() {
		return keyless{}, nil
	}
	if e.BaseURL == "" {
		e.BaseURL = BaseURL
	}
	c, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: e.APIKey.Reveal(), Backend: genai.BackendGeminiAPI, HTTPClient: e.HTTP, HTTPOptions: genai.HTTPOptions{BaseURL: e.BaseURL},
	})
	if err != nil {
		return nil, errors.New("the client of Google cannot be made") // its error shows the key
	}
	return &model{models: c.Models}, nil
}

// keyless is the model of a profile without a key, which a process that never asks it may have.
type keyless struct{}

// Generate implements llm.Model.
func (keyless) Generate(context.Context, llm.Request) (llm.Response, error) {
	return llm.Response{}, &llm.Error{Class: llm.Permanent, Code: "API_KEY", Message: "the model profile has no api_key: set it, or GEMINI_API_KEY"}
}

// Stream implements llm.Model.
func (k keyless) Stream(ctx context.Context, req llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
	return k.Generate(ctx, req)
}

// Generate implements llm.Model.
func (m *model) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	cfg, err := config(&req)
	if err != nil {
		return llm.Response{}, err
	}
	contents, err := contents(&req)
	if err != nil {
		return llm.Response{}, err
	}
	res, err := m.models.GenerateContent(ctx, req.Model, contents, cfg)
	if err != nil {
		return llm.Response{}, err
	}
	var a answer
	a.add(res)
	return a.response()
}

// Stream implements llm.Model.
func (m *model) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	cfg, err := config(&req)
	if err != nil {
		return llm.Response{}, err
	}
	contents, err := contents(&req)
	if err != nil {
		return llm.Response{}, err
	}
	var a answer
	began := false
	for res, err := range m.models.GenerateContentStream(ctx, req.Model, contents, cfg) {
		if err != nil {
			return llm.Response{}, broken(err, began)
		}
		for _, d := range a.add(res) {
			began = true
			if err := delta(d); err != nil {
				return llm.Response{}, llm.GaveUp(err)
			}
		}
	}
	if a.finish == "" && a.blocked == "" {
		return llm.Response{}, llm.Ended()
	}
	return a.response()
}

// broken is the error of a stream, or of the request for it: llm.Set tells them apart by the status.
func broken(err error, began bool) error {
	e, said := errors.AsType[genai.APIError](err)
	if !said {
		return llm.Broken(err, began, nil)
	}
	raw, _ := json.Marshal(map[string]any{"error": e}) // of strings and numbers
	return llm.Broken(err, began, raw)
}

// answer is what came of an answer so far.
type answer struct {
	id, version     string
	text            strings.Builder
	calls           []llm.ToolCall
	parts           []*genai.Part
	signed          bool
	finish, blocked string
	usage           llm.Usage
}

// add adds a response, or a piece of one, and returns its deltas. Reasoning is a delta without content.
func (a *answer) add(res *genai.GenerateContentResponse) (out []llm.Delta) {
	if res.ResponseID != "" {
		a.id = res.ResponseID
	}
	if res.ModelVersion != "" {
		a.version = res.ModelVersion
	}
	if u := res.UsageMetadata; u != nil {
		a.usage = llm.Usage{
			Input: int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount), CachedInput: int64(u.CachedContentTokenCount),
			Output: int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount), Reasoning: int64(u.ThoughtsTokenCount), Known: true,
		}
	}
	if f := res.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = "the prompt was blocked: " + string(f.BlockReason)
		if f.BlockReasonMessage != "" {
			a.blocked += ": " + f.BlockReasonMessage
		}
	}
	if len(res.Candidates) == 0 {
		return nil
	}
	first := res.Candidates[0]
	if first.FinishReason != "" {
		a.finish = string(first.FinishReason)
	}
	if first.Content == nil {
		return nil
	}
	for _, p := range first.Content.Parts {
		if p != nil {
			out = append(out, a.part(p)...)
		}
	}
	return out
}

func (a *answer) part(p *genai.Part) []llm.Delta {
	if len(p.ThoughtSignature) > 0 {
		a.signed = true
	}
	if !p.Thought || len(p.ThoughtSignature) > 0 {
		a.parts = append(a.parts, p)
	}
	switch {
	case p.Thought:
		return []llm.Delta{{}}
	case p.FunctionCall != nil:
		c := llm.ToolCall{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: json.RawMessage("{}")}
		if c.ID == "" {
			c.ID = "call_" + strings.ToLower(rand.Text()[:20])
			p.FunctionCall.ID = c.ID
		}
		if raw, err := json.Marshal(p.FunctionCall.Args); err == nil && len(p.FunctionCall.Args) > 0 {
			c.Arguments = raw
		}
		a.calls = append(a.calls, c)
		return []llm.Delta{{Call: &llm.CallDelta{Index: len(a.calls) - 1, ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}}}
	case p.Text != "":
		a.text.WriteString(p.Text)
		return []llm.Delta{{Text: p.Text}}
	}
	return nil
}

func (a *answer) response() (llm.Response, error) {
	out := llm.Response{ID: a.id, Model: a.version, Usage: a.usage, Refusal: a.blocked}
	out.Message = llm.Message{Content: a.text.String(), ToolCalls: a.calls}
	switch genai.FinishReason(a.finish) {
	case genai.FinishReasonStop:
		out.FinishReason = llm.FinishStop
	case genai.FinishReasonMaxTokens:
		out.FinishReason = llm.FinishLength
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent, genai.FinishReasonSPII:
		out.FinishReason = llm.FinishContentFilter
	case "":
		if a.blocked == "" {
			return llm.Response{}, llm.Malformed("the answer has no candidate")
		}
		out.FinishReason = llm.FinishContentFilter
	default:
		out.FinishReason = strings.ToLower(a.finish)
	}
	if a.signed {
		raw, err := json.Marshal(a.parts)
		if err != nil {
			return llm.Response{}, err
		}
		out.Message.Opaque = map[string]json.RawMessage{opaque: raw}
	}
	return out, nil
}

// config is the part of a request beside its messages. System messages come first, wherever they stand.
func config(req *llm.Request) (*genai.GenerateContentConfig, error) {
	once := false
	cfg := &genai.GenerateContentConfig{
		MaxOutputTokens: int32(min(req.MaxOutputTokens, math.MaxInt32)), //nolint:gosec // bounded
		StopSequences:   req.Stop, AutomaticContinuation: &once, HTTPOptions: &genai.HTTPOptions{Headers: http.Header{}},
	}
	if req.IdempotencyKey != "" {
		cfg.HTTPOptions.Headers.Set("Idempotency-Key", req.IdempotencyKey)
	}
	for i := range req.Messages {
		if m := &req.Messages[i]; m.Role == llm.System && m.Content != "" {
			if cfg.SystemInstruction == nil {
				cfg.SystemInstruction = &genai.Content{}
			}
			cfg.SystemInstruction.Parts = append(cfg.SystemInstruction.Parts, &genai.Part{Text: m.Content})
		}
	}
	if req.Temperature != nil {
		t := float32(*req.Temperature)
		cfg.Temperature = &t
	}
	if f := req.Format; f != nil {
		cfg.ResponseMIMEType = "application/json"
		if len(f.Schema) > 0 {
			cfg.ResponseJsonSchema = f.Schema
		}
	}
	if len(req.Tools) > 0 {
		t := &genai.Tool{}
		for _, tool := range req.Tools {
			f := &genai.FunctionDeclaration{Name: tool.Name, Description: tool.Description}
			if len(tool.Schema) > 0 {
				f.ParametersJsonSchema = tool.Schema
			}
			t.FunctionDeclarations = append(t.FunctionDeclarations, f)
		}
		cfg.Tools = []*genai.Tool{t}
	}
	if req.ToolChoice != "" {
		calling := &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeAny}
		switch req.ToolChoice {
		case llm.ChooseAuto:
			calling.Mode = genai.FunctionCallingConfigModeAuto
		case llm.ChooseNone:
			calling.Mode = genai.FunctionCallingConfigModeNone
		case llm.ChooseRequired:
		default:
			calling.AllowedFunctionNames = []string{req.ToolChoice}
		}
		cfg.ToolConfig = &genai.ToolConfig{FunctionCallingConfig: calling}
	}
	if len(req.Extra) > 0 {
		cfg.HTTPOptions.ExtraBody = make(map[string]any, len(req.Extra))
		for name, raw := range req.Extra {
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				return nil, err
			}
			cfg.HTTPOptions.ExtraBody[name] = value
		}
	}
	return cfg, nil
}

// contents are the messages besides those of the system.
func contents(req *llm.Request) ([]*genai.Content, error) {
	names := map[string]string{} // of the tools, by the calls
	var out []*genai.Content
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Role == llm.System {
			continue
		}
		for _, c := range m.ToolCalls {
			names[c.ID] = c.Name
		}
		role, parts, err := parts(m, names)
		if err != nil {
			return nil, err
		}
		if len(parts) == 0 {
			continue
		}
		// The answers to the calls of one message must be in one content.
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Parts = append(out[last].Parts, parts...)
			continue
		}
		out = append(out, &genai.Content{Role: role, Parts: parts})
	}
	return out, nil
}

// parts are those of one message, with the role that it has.
func parts(m *llm.Message, names map[string]string) (string, []*genai.Part, error) {
	if m.Role == llm.ToolRole {
		key := "output"
		if m.IsError {
			key = "error"
		}
		return genai.RoleUser, []*genai.Part{{FunctionResponse: &genai.FunctionResponse{
			ID: m.ToolCallID, Name: names[m.ToolCallID], Response: map[string]any{key: m.Content},
		}}}, nil
	}
	role := string(genai.RoleUser)
	var out []*genai.Part
	if m.Role == llm.Assistant {
		role = genai.RoleModel
		if raw := m.Opaque[opaque]; len(raw) > 0 && json.Unmarshal(raw, &out) == nil && len(out) > 0 {
			return role, out, nil
		}
		out = nil
	}
	if m.Content != "" {
		out = append(out, &genai.Part{Text: m.Content})
	}
	for _, c := range m.ToolCalls {
		args, err := object(c.Arguments)
		if err != nil {
			return "", nil, err
		}
		out = append(out, &genai.Part{FunctionCall: &genai.FunctionCall{ID: c.ID, Name: c.Name, Args: args}})
	}
	return role, out, nil
}

// object is the arguments of a call as the object that the protocol wants.
func object(raw json.RawMessage) (map[string]any, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		return m, nil
	}
	return map[string]any{"arguments": v}, nil
}
