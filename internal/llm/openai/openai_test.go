package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/openai"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// answering is a model of a server that answers every request with a status and a text; sent and body are its
// last request.
func answering(t *testing.T, status int, text string, change ...func(*llm.Profile)) (set *llm.Set, sent *http.Request, body *[]byte) {
	t.Helper()
	sent, body = &http.Request{}, new([]byte)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*sent = *r
		*body, _ = io.ReadAll(r.Body)
		if strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream") {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	c := llm.DefaultConfig()
	c.Change("default", func(p *llm.Profile) {
		p.BaseURL, p.Model = s.URL+"/v1?api-version=2", "m"
		for _, f := range change {
			f(p)
		}
	})
	set, err := llm.Open(c, map[string]llm.Provider{"openai": openai.Open}, llm.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, set.Close())
		s.Close()
	})
	return set, sent, body
}

func hello() llm.Request {
	return llm.Request{Messages: []llm.Message{{Role: "user", Content: "a < b & c"}}}
}

func TestWire(t *testing.T) {
	t.Parallel()
	t.Run("Request/IsThatOfTheProtocol", func(t *testing.T) {
		t.Parallel()
		c, sent, body := answering(t, 200, `{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}`)
		req := hello()
		req.MaxOutputTokens, req.IdempotencyKey = 7, "k"
		req.Tools = []llm.Tool{{Name: "t", Description: "d", Schema: json.RawMessage(`{"type":"object","maximum":9007199254740993}`)}, {Name: "bare"}}
		req.Format = &llm.Format{Name: "f", Schema: json.RawMessage(`{"type":"object"}`), Strict: true}
		req.Extra = map[string]json.RawMessage{"a.b": json.RawMessage(`[1]`), "top_k": json.RawMessage(`9007199254740993`)}
		_, err := c.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "/v1/chat/completions?api-version=2", sent.RequestURI)
		require.Equal(t, "k", sent.Header.Get("Idempotency-Key"))
		require.Equal(t, "epigraph", sent.Header.Get("User-Agent"))
		require.Empty(t, sent.Header.Get("Authorization"), "no key, no header")
		for name := range sent.Header {
			require.NotContains(t, name, "Stainless", "servers are not told on which platform this runs")
		}
		require.Contains(t, string(*body), `"maximum":9007199254740993`)
		require.Contains(t, string(*body), `"top_k":9007199254740993`)
		require.JSONEq(t, `{"model": "m", "messages": [{"role": "user", "content": "a < b & c"}], "max_completion_tokens": 7, "a.b": [1], "top_k": 9007199254740993,
			"tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object", "maximum": 9007199254740993}}}, {"type": "function", "function": {"name": "bare"}}],
			"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "object"}, "strict": true}}}`, string(*body))
	})
	t.Run("Request/UserOfTheAddress", func(t *testing.T) {
		t.Parallel()
		c, sent, _ := answering(t, 200, `{"choices": [{"message": {"content": "x"}}]}`, func(p *llm.Profile) { p.BaseURL = strings.Replace(p.BaseURL, "://", "://ann:s%20t@", 1) })
		_, err := c.Generate(t.Context(), hello())
		require.NoError(t, err)
		user, password, _ := sent.BasicAuth()
		require.Equal(t, []string{"ann", "s t"}, []string{user, password})
	})
	t.Run("Request/OlderServers", func(t *testing.T) {
		t.Parallel()
		c, _, body := answering(t, 200, `{"choices": [{"message": {"content": "x"}}]}`, func(p *llm.Profile) { p.LegacyMaxTokens = true })
		_, err := c.Generate(t.Context(), hello())
		require.NoError(t, err)
		require.Contains(t, string(*body), `"max_tokens":4096`)
		require.NotContains(t, string(*body), "max_completion_tokens")
	})
	t.Run("Answer/AsOtherServersWriteIt", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 200, `{"id": "1", "model": "m2", "choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}], "unknown": {},
			"usage": {"prompt_tokens": 12.0, "completion_tokens": 1e2, "prompt_tokens_details": null, "completion_tokens_details": {"reasoning_tokens": null}}}`)
		out, err := c.Generate(t.Context(), hello())
		require.NoError(t, err)
		require.Equal(t, llm.Response{
			ID: "1", Profile: "default", Provider: "openai", Model: "m2", Message: llm.Message{Role: "assistant"}, Refusal: "no", FinishReason: "stop",
			Usage: llm.Usage{Input: 12, Output: 100, Known: true},
		}, out)
	})
	t.Run("Refusal/InEveryForm", func(t *testing.T) {
		t.Parallel()
		for body, want := range map[string]struct{ code, message string }{
			`{"error": {"message": "no such model", "code": "model_not_found"}}`:               {"model_not_found", "no such model"},
			`{"error": {"message": "m", "code": "` + strings.Repeat("c", 5000) + `"}}`:         {strings.Repeat("c", 96) + "…", "m"},
			`{"error": {"message": "busy", "code": 17}}`:                                       {"", "busy"},
			`{"error": {"message": "busy", "code": 17, "status": "S", "details": "in words"}}`: {"S", "busy"},
			`{"error": "just a text"}`:                           {"", "just a text"},
			`{"message": "at the top"}`:                          {"", "at the top"},
			`[{"error": {"message": "in a list", "type": "t"}}]`: {"t", "in a list"},
			`<html>no JSON</html>`:                               {"", "Not Found"},
			`{"error": null}`:                                    {"", "Not Found"},
			``:                                                   {"", "Not Found"},
		} {
			c, _, _ := answering(t, 404, body)
			_, err := c.Generate(t.Context(), hello())
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, &llm.Error{Class: llm.Permanent, Status: 404, Code: want.code, Message: want.message, Err: e.Err}, e, body)
		}
	})
	t.Run("Answer/Null", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 200, "null")
		_, err := c.Generate(t.Context(), hello())
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "MALFORMED", e.Code)
	})
	t.Run("Redirect/IsNotFollowed", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 302, "")
		_, err := c.Generate(t.Context(), hello())
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "MALFORMED", e.Code)
	})
	t.Run("Stream/Forms", func(t *testing.T) {
		t.Parallel()
		const a, b = `{"choices": [{"delta": {"content": "a"}}]}`, `{"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]}`
		const call = `{"choices": [{"delta": {"tool_calls": [{"index": 5, "id": "x", "function": {"name": "t"}}]}}]}`
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
			"CallOutOfOrder":  {"data: " + call + "\n\ndata: " + b + "\n\n", "", "MALFORMED"},
			"Nothing":         {"", "", "TRUNCATED"},
		} {
			client, sent, body := answering(t, 200, c.stream)
			out, err := client.Stream(t.Context(), hello(), func(llm.Delta) error { return nil })
			require.Equal(t, "text/event-stream", sent.Header.Get("Accept"))
			require.Contains(t, string(*body), `"stream_options":{"include_usage":true}`)
			if c.code != "" {
				var e *llm.Error
				require.ErrorAs(t, err, &e, name)
				require.Equal(t, c.code, e.Code, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, c.text, out.Message.Content, name)
		}
	})
	t.Run("Stream/ReasoningIsASignOfLife", func(t *testing.T) {
		t.Parallel()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, delta := range []string{
				`{"role": "assistant", "content": ""}`, `{"reasoning_content": "hm"}`, `{"content": null, "reasoning": "hm"}`, `{"reasoning_details": [{"text": "hm"}]}`,
				`{"reasoning_content": null, "reasoning": ""}`, `{"refusal": "no"}`, `{"content": "x", "reasoning_content": null}`,
			} {
				_, _ = io.WriteString(w, `data: {"choices": [{"delta": `+delta+"}]}\n\n")
			}
			_, _ = io.WriteString(w, `data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}`+"\n\n")
		}))
		defer s.Close()
		m, err := openai.Open(llm.Endpoint{BaseURL: s.URL, HTTP: s.Client()})
		require.NoError(t, err)
		var got []llm.Delta
		_, err = m.Stream(t.Context(), hello(), func(d llm.Delta) error { got = append(got, d); return nil })
		require.NoError(t, err)
		require.Equal(t, []llm.Delta{{}, {}, {}, {}, {Text: "x"}}, got, "three of reasoning, one of the refusal, and the text")
	})
	t.Run("Calls/WithoutIDs", func(t *testing.T) {
		t.Parallel()
		const whole = `{"choices": [{"message": {"tool_calls": [{"id": "", "function": {"name": "t", "arguments": "{}"}}, {"function": {"name": "t", "arguments": "{}"}}]}, "finish_reason": "stop"}]}`
		const piece = `{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "t", "arguments": "{}"}}, {"index": 1, "function": {"name": "t", "arguments": "{}"}}]}, "finish_reason": "stop"}]}`
		check := func(out llm.Response, err error) {
			require.NoError(t, err)
			require.Len(t, out.Message.ToolCalls, 2)
			req := llm.Request{Messages: []llm.Message{out.Message}}
			for _, c := range out.Message.ToolCalls {
				req.Messages = append(req.Messages, llm.Message{Role: llm.ToolRole, ToolCallID: c.ID})
			}
			require.NoError(t, req.Check())
		}
		c, _, _ := answering(t, 200, whole)
		check(c.Generate(t.Context(), hello()))
		c, _, _ = answering(t, 200, "data: "+piece+"\n\n")
		check(c.Stream(t.Context(), hello(), func(llm.Delta) error { return nil }))
	})
	t.Run("Stream/IsBounded", func(t *testing.T) {
		t.Parallel()
		c, _, _ := answering(t, 200, "data: "+strings.Repeat("x", 4096), func(p *llm.Profile) { p.MaxResponseBytes = 1024 })
		_, err := c.Stream(t.Context(), hello(), func(llm.Delta) error { return nil })
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "RESPONSE_TOO_LARGE", e.Code)
	})
}
