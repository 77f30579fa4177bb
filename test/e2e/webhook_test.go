package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// webhooks are set over REST, and report an interrupt, a pause and the end.
func webhooks(t *testing.T, s *suite) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	got := make(chan *epigraph.WebhookMessage, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := epigraph.VerifyWebhook(secret, r.Header, body)
		if err != nil || r.Header.Get("x-tenant") != "a" || r.Header.Get("traceparent") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got <- m
	}))
	t.Cleanup(receiver.Close)
	next := func() *epigraph.WebhookMessage {
		select {
		case m := <-got:
			return m
		case <-time.After(timeout):
			require.FailNow(t, "nothing is told")
			return nil
		}
	}
	var r struct {
		run
		Webhooks []map[string]any
	}
	s.ask(t, request{path: "/v1/runs", body: map[string]any{
		"graph": map[string]any{"name": "told", "nodes": []any{map[string]any{"id": "q", "actor": "human", "named": map[string]any{"prompt": "which color?"}}}},
		"webhooks": []any{map[string]any{"url": receiver.URL, "secret": secret, "headers": map[string]string{"x-tenant": "a"},
			"events": []string{"WEBHOOK_EVENT_INTERRUPT_OPENED", "WEBHOOK_EVENT_RUN_ENDED"}}}}}, &r)
	require.Len(t, r.Webhooks, 1)
	require.Equal(t, receiver.URL, r.Webhooks[0]["url"])
	require.Equal(t, []any{"WEBHOOK_EVENT_INTERRUPT_OPENED", "WEBHOOK_EVENT_RUN_ENDED"}, r.Webhooks[0]["events"])
	require.Empty(t, r.Webhooks[0]["secret"])
	require.Empty(t, r.Webhooks[0]["headers"])

	asked := next()
	require.Equal(t, epigraph.InterruptOpened, asked.Type)
	require.Equal(t, r.ID, asked.RunID)
	require.JSONEq(t, `"which color?"`, string(asked.Interrupt.Prompt))
	s.ask(t, request{path: asked.Interrupt.Link + ":answer", body: map[string]any{"answer": "red"}}, nil)
	ended := next()
	require.Equal(t, epigraph.RunEnded, ended.Type)
	require.Equal(t, "RUN_STATE_COMPLETED", ended.State)
	require.JSONEq(t, `"red"`, string(ended.Result))
	require.Greater(t, ended.Sequence, asked.Sequence)
	s.ask(t, request{path: ended.Link}, nil)

	status, body := s.do(t, request{path: "/v1/runs", body: map[string]any{
		"graph": map[string]any{"nodes": []any{map[string]any{"id": "a", "actor": "cel", "named": map[string]any{"expr": "1"}}}}, "webhooks": []any{map[string]any{"url": "http://10.0.0.1/"}}}})
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(body), "WEBHOOK_ADDRESS_REFUSED")
	require.Contains(t, string(body), "webhooks[0].url")
}
