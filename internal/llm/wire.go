package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
)

// chatBody is a request of the chat protocol without the fields that callers add.
type chatBody struct {
	Model               string          `json:"model"`
	Messages            []Message       `json:"messages"`
	MaxTokens           int64           `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64           `json:"max_completion_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	ResponseFormat      *responseFormat `json:"response_format,omitempty"`
	Stream              bool            `json:"stream,omitempty"`
	StreamOptions       *streamOptions  `json:"stream_options,omitempty"`
}

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema,omitempty"`
}

type jsonSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict bool            `json:"strict"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// completion is an answer, or one piece of a streamed one. Unused fields of the protocol are left out.
type completion struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Message      piece  `json:"message"`
		Delta        piece  `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage usage           `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type piece struct {
	Content string `json:"content"`
	Refusal string `json:"refusal"`
}

type usage struct {
	PromptTokens        *count `json:"prompt_tokens"`
	CompletionTokens    *count `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens count `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// count is a number of tokens, which some servers write as a decimal fraction.
type count int64

// UnmarshalJSON reads any number.
func (c *count) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f > math.MaxInt32*1e3 {
		return fmt.Errorf("%.40q is no number of tokens", raw)
	}
	*c = count(f)
	return nil
}

func (u usage) report() Usage {
	out := Usage{
		CachedInput: int64(u.PromptTokensDetails.CachedTokens), Reasoning: int64(u.CompletionTokensDetails.ReasoningTokens),
		Known: u.PromptTokens != nil || u.CompletionTokens != nil,
	}
	if u.PromptTokens != nil {
		out.Input = int64(*u.PromptTokens)
	}
	if u.CompletionTokens != nil {
		out.Output = int64(*u.CompletionTokens)
	}
	return out
}

// encode is the body of a request.
func (c *Client) encode(req Request, stream bool) ([]byte, error) {
	bad := func(text string) ([]byte, error) {
		return nil, &Error{Class: Permanent, Code: "REQUEST", Message: text}
	}
	if len(req.Messages) == 0 || req.Model == "" {
		return bad("a request needs a model and at least one message")
	}
	for _, m := range req.Messages {
		if !slices.Contains([]string{"system", "developer", "user", "assistant"}, m.Role) {
			return bad("unknown role " + strconv.Quote(m.Role))
		}
	}
	b := chatBody{Model: req.Model, Messages: req.Messages, Temperature: req.Temperature, Stream: stream}
	if c.cfg.LegacyMaxTokens {
		b.MaxTokens = req.MaxOutputTokens
	} else {
		b.MaxCompletionTokens = req.MaxOutputTokens
	}
	if stream {
		b.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	switch f := req.Format; {
	case f == nil:
	case len(f.Schema) == 0:
		b.ResponseFormat = &responseFormat{Type: "json_object"}
	case !json.Valid(f.Schema):
		return bad("the schema of the response format is not JSON")
	default:
		b.ResponseFormat = &responseFormat{Type: "json_schema", JSONSchema: &jsonSchema{Name: f.Name, Schema: f.Schema, Strict: f.Strict}}
	}
	out, err := plainJSON(b)
	if err != nil {
		return nil, err
	}
	if len(req.Extra) == 0 {
		return out, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(out, &fields); err != nil {
		return nil, err
	}
	for name, value := range req.Extra {
		if slices.Contains([]string{"model", "messages", "stream", "stream_options"}, name) || !json.Valid(value) {
			return bad("extra field " + strconv.Quote(name) + " is not allowed or not JSON")
		}
	}
	maps.Copy(fields, req.Extra)
	return plainJSON(fields)
}

// plainJSON leaves <, > and & as they are: they are what a prompt says.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// post sends a request. The response is a successful one, and the caller closes its body. With an error the
// body is closed, and only the status and the headers are left.
func (c *Client) post(ctx context.Context, req Request, stream bool) (*http.Response, error) {
	body, err := c.encode(req, stream)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if stream {
		r.Header.Set("Accept", "text/event-stream")
	}
	r.Header.Set("User-Agent", "epigraph")
	if !c.cfg.APIKey.IsZero() {
		r.Header.Set("Authorization", "Bearer "+c.cfg.APIKey.Reveal())
	}
	if req.IdempotencyKey != "" {
		r.Header.Set("Idempotency-Key", req.IdempotencyKey)
	}
	res, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	text, err := io.ReadAll(res.Body)
	err = errors.Join(err, res.Body.Close())
	if err != nil && res.StatusCode < 400 {
		return res, err
	}
	return res, readRefusal(res.StatusCode, text)
}

// refusal is what a server says that does not answer.
type refusal struct {
	status        int
	code, message string
}

// Error is for logs.
func (r *refusal) Error() string { return fmt.Sprintf("HTTP %d %s: %s", r.status, r.code, r.message) }

// readRefusal reads the body of a response without success; servers have several forms of it.
func readRefusal(status int, body []byte) *refusal {
	out := &refusal{status: status}
	var doc struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return out
	}
	var detail struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(doc.Error, &detail) == nil:
		out.message = detail.Message
		if code, ok := detail.Code.(string); ok {
			out.code = code
		}
	case json.Unmarshal(doc.Error, &out.message) == nil:
	default:
		out.message = doc.Message
	}
	return out
}

// decodeWhole reads one answer.
func decodeWhole(body io.Reader) (completion, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return completion{}, err
	}
	var out completion
	return out, json.Unmarshal(text, &out)
}

// errStream is an error that a server reports in the middle of a stream.
var errStream = errors.New("the server reports an error in the stream")

// pieces calls each for the server-sent events of a stream, until the stream announces its end or ends. A
// line longer than most bytes is an error.
func pieces(body io.Reader, most int, each func(completion) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), most)
	var data []byte
	done := false
	flush := func() error {
		event := data
		data = data[:0]
		switch {
		case len(event) == 0:
			return nil
		case bytes.HasPrefix(event, []byte("[DONE]")):
			done = true
			return nil
		}
		var c completion
		if err := json.Unmarshal(event, &c); err != nil {
			return err
		}
		if len(c.Error) > 0 && string(c.Error) != "null" {
			return fmt.Errorf("%w: %.200s", errStream, c.Error)
		}
		return each(c)
	}
	for !done && lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch {
		case len(lines.Bytes()) == 0:
			if err := flush(); err != nil {
				return err
			}
		case string(name) == "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
	}
	if err := lines.Err(); err != nil || done {
		return err
	}
	return flush() // the last event of a server that leaves the empty line out
}
