package llm

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answering is a client of a server that answers every request with a status and a text; sent is the body of
// its last request.
func answering(t *testing.T, status int, text string) (c *Client, sent *http.Request, body *[]byte) {
	t.Helper()
	sent, body = &http.Request{}, new([]byte)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*sent = *r
		*body, _ = io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	cfg := DefaultConfig()
	cfg.BaseURL = s.URL + "/v1?api-version=2"
	c, err := New(cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		s.Close()
	})
	return c, sent, body
}

var hello = Request{Model: "m", Messages: []Message{{Role: "user", Content: "a < b & c"}}}

func TestWire(t *testing.T) {
	t.Parallel()
	t.Run("Request/IsThatOfTheProtocol", func(t *testing.T) {
		t.Parallel()
		c, sent, body := answering(t, 200, `{"choices": [{"message": {"content": "x"}, "finish_reason": null}]}`)
		req := hello
		req.MaxOutputTokens, req.IdempotencyKey = 7, "k"
		req.Format = &Format{Name: "f", Schema: json.RawMessage(`{"type":"object"}`), Strict: true}
		req.Extra = map[string]json.RawMessage{"a.b": json.RawMessage(`[1]`), "top_k": json.RawMessage(`3`)}
		_, err := c.Chat(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "/v1/chat/completions?api-version=2", sent.RequestURI)
		require.Equal(t, "k", sent.Header.Get("Idempotency-Key"))
		require.Empty(t, sent.Header.Get("Authorization"), "no key, no header")
		require.Contains(t, string(*body), "a < b & c", "prompts are sent as they are")
		require.JSONEq(t, `{"model": "m", "messages": [{"role": "user", "content": "a < b & c"}], "max_completion_tokens": 7, "a.b": [1], "top_k": 3,
			"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "object"}, "strict": true}}}`, string(*body))
	})
	t.Run("Answer/AsOtherServersWriteIt", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 200, `{"id": "1", "model": "m", "choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}], "unknown": {},
			"usage": {"prompt_tokens": 12.0, "completion_tokens": 1e2, "prompt_tokens_details": null, "completion_tokens_details": {"reasoning_tokens": null}}}`)
		out, err := c.Chat(t.Context(), hello)
		require.NoError(t, err)
		require.Equal(t, Response{ID: "1", Model: "m", Refusal: "no", FinishReason: "stop", Usage: Usage{Input: 12, Output: 100, Known: true}}, out)
	})
	t.Run("Refusal/InEveryForm", func(t *testing.T) {
		t.Parallel()
		for body, want := range map[string]struct{ code, message string }{
			`{"error": {"message": "no such model", "code": "model_not_found"}}`: {"model_not_found", "no such model"},
			`{"error": {"message": "busy", "code": 17}}`:                         {"", "busy"},
			`{"error": "just a text"}`:                                           {"", "just a text"},
			`{"message": "at the top"}`:                                          {"", "at the top"},
			`<html>no JSON</html>`:                                               {"", "Not Found"},
			`{"error": null}`:                                                    {"", "Not Found"},
			``:                                                                   {"", "Not Found"},
		} {
			c, _, _ := answering(t, 404, body)
			_, err := c.Chat(t.Context(), hello)
			e, ok := errors.AsType[*Error](err)
			require.True(t, ok)
			require.Equal(t, &Error{Class: Permanent, Status: 404, Code: want.code, Message: want.message, Err: e.Err}, e, body)
		}
	})
	t.Run("Redirect/IsNotFollowed", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 302, "")
		_, err := c.Chat(t.Context(), hello)
		e, ok := errors.AsType[*Error](err)
		require.True(t, ok)
		require.Equal(t, "MALFORMED", e.Code)
	})
	t.Run("Stream/Forms", func(t *testing.T) {
		t.Parallel()
		const a, b = `{"choices": [{"delta": {"content": "a"}}]}`, `{"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]}`
		for name, c := range map[string]struct{ stream, text, code string }{
			"Usual":           {"data: " + a + "\n\ndata: " + b + "\n\ndata: [DONE]\n\n", "ab", ""},
			"CarriageReturns": {"data: " + a + "\r\n\r\ndata: " + b + "\r\n\r\ndata: [DONE]\r\n\r\n", "ab", ""},
			"CommentsAndIDs":  {": hi\n\nid: 7\nevent: x\ndata:" + a + "\n\nretry: 3\n\ndata:" + b + "\n\n", "ab", ""},
			"TwoDataLines":    {"data: {\"choices\": [\ndata: {\"delta\": {\"content\": \"c\"}, \"finish_reason\": \"stop\"}]}\n\n", "c", ""},
			"NoEmptyLineLast": {"data: " + a + "\n\ndata: " + b, "ab", ""},
			"UsageAfterwards": {"data: " + b + "\n\ndata: {\"choices\": [], \"usage\": {\"prompt_tokens\": 1}}\n\ndata: [DONE]\n\n", "b", ""},
			"ErrorInside":     {"data: " + a + "\n\ndata: {\"error\": {\"message\": \"over\"}}\n\n", "", "TRUNCATED"},
			"NoEnd":           {"data: " + a + "\n\n", "", "TRUNCATED"},
			"BrokenJSON":      {"data: " + a + "\n\ndata: {\"cho", "", "TRUNCATED"},
			"Nothing":         {"", "", "TRUNCATED"},
		} {
			client, sent, body := answering(t, 200, c.stream)
			out, err := client.Stream(t.Context(), hello, func(string) error { return nil })
			require.Equal(t, "text/event-stream", sent.Header.Get("Accept"))
			require.Contains(t, string(*body), `"stream_options":{"include_usage":true}`)
			if c.code != "" {
				e, ok := errors.AsType[*Error](err)
				require.True(t, ok, name)
				require.Equal(t, c.code, e.Code, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, c.text, out.Text, name)
		}
	})
	t.Run("Stream/LineIsBounded", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 200, "data: "+strings.Repeat("x", 4096))
		c.cfg.MaxResponseBytes = 1024
		_, err := c.Stream(t.Context(), hello, func(string) error { return nil })
		require.Error(t, err)
	})
}
