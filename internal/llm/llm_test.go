package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func start(t *testing.T, script fakellm.Script, change func(*llm.Config)) (*llm.Client, *fakellm.Server, *tracetest.SpanRecorder) {
	t.Helper()
	s := fakellm.New(script)
	url, err := s.Listen("127.0.0.1:0")
	require.NoError(t, err)
	cfg := llm.DefaultConfig()
	cfg.BaseURL, cfg.APIKey = url, conf.NewSecret("sk-test")
	if change != nil {
		change(&cfg)
	}
	rec := tracetest.NewSpanRecorder()
	tel := obs.Noop()
	tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
	c, err := llm.New(cfg, tel)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	})
	return c, s, rec
}

func ask(text string) llm.Request {
	return llm.Request{Model: "fake-1", Messages: []llm.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: text}}}
}

func TestChat(t *testing.T) {
	t.Parallel()
	t.Run("Chat/TextUsageAndWhatWasSent", func(t *testing.T) {
		t.Parallel()
		c, s, _ := start(t, fakellm.Script{Rules: []fakellm.Rule{{
			Match: "weather", Reply: fakellm.Reply{Text: "sunny", Usage: fakellm.Usage{Input: 30, CachedInput: 10, Output: 7, Reasoning: 5}},
		}}}, nil)
		temp := 0.0
		req := ask("the weather?")
		req.MaxOutputTokens, req.Temperature, req.IdempotencyKey = 100, &temp, "run_1/a/1"
		req.Format = &llm.Format{Name: "w", Schema: json.RawMessage(`{"type":"object"}`), Strict: true}
		req.Extra = map[string]json.RawMessage{"seed": json.RawMessage(`9007199254740993`)}
		out, err := c.Chat(t.Context(), req)
		require.NoError(t, err)
		require.NotEmpty(t, out.ID)
		require.Equal(t, llm.Response{
			ID: out.ID, Model: "fake-1", Text: "sunny", FinishReason: "stop",
			Usage: llm.Usage{Input: 30, CachedInput: 10, Output: 7, Reasoning: 5, Known: true},
		}, out)
		got := s.Requests()[0]
		require.Equal(t, "Bearer sk-test", got.Header.Get("Authorization"))
		require.Equal(t, "run_1/a/1", got.Header.Get("Idempotency-Key"))
		require.NotEmpty(t, got.Header.Get("Traceparent"))
		require.EqualValues(t, 100, got.MaxTokens)
		require.Equal(t, "json_schema", got.Format)
		require.Contains(t, string(got.Body), `"seed":9007199254740993`)
		require.Contains(t, string(got.Body), `"temperature":0`)
		require.Equal(t, []fakellm.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "the weather?"}}, got.Messages)
	})
	t.Run("Chat/DefaultIsDeterministicAndStopsAtTheLimit", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{}, func(cfg *llm.Config) { cfg.LegacyMaxTokens, cfg.APIKey = true, conf.Secret{} })
		a, err := c.Chat(t.Context(), ask("hello"))
		require.NoError(t, err)
		b, err := c.Chat(t.Context(), ask("hello"))
		require.NoError(t, err)
		require.Equal(t, a, b)
		require.Equal(t, "Done: hello", a.Text)
		require.Equal(t, llm.Usage{Input: 2 + 4 + 2 + 4, Output: 3, Known: true}, a.Usage)
		req := ask("hello")
		req.MaxOutputTokens = 2
		out, err := c.Chat(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "length", out.FinishReason)
		require.Equal(t, "Done: he", out.Text)
		req = ask("hello")
		req.Format = &llm.Format{}
		out, err = c.Chat(t.Context(), req)
		require.NoError(t, err)
		require.JSONEq(t, `{"result":"Done: hello"}`, out.Text)
	})
	t.Run("Chat/MissingUsageIsUnknown", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{Default: fakellm.Reply{Text: "x", NoUsage: true}}, nil)
		out, err := c.Chat(t.Context(), ask("x"))
		require.NoError(t, err)
		require.False(t, out.Usage.Known)
		out, err = c.Stream(t.Context(), ask("x"), func(string) error { return nil })
		require.NoError(t, err)
		require.False(t, out.Usage.Known)
	})
}

func TestStream(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("Ünïcode text. ", 20)
	t.Run("Stream/PiecesMakeTheText", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{Default: fakellm.Reply{Text: long}}, nil)
		var pieces []string
		out, err := c.Stream(t.Context(), ask("go"), func(p string) error { pieces = append(pieces, p); return nil })
		require.NoError(t, err)
		require.Equal(t, long, out.Text)
		require.Equal(t, long, strings.Join(pieces, ""))
		require.Greater(t, len(pieces), 5)
		require.Equal(t, "stop", out.FinishReason)
		require.Equal(t, fakellm.Tokens(long), out.Usage.Output)
		require.True(t, out.Usage.Known)
	})
	t.Run("Stream/BrokenIsUnknown", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{Default: fakellm.Reply{Text: long, Fault: fakellm.Disconnect}}, nil)
		_, err := c.Stream(t.Context(), ask("go"), func(string) error { return nil })
		e := fault(t, err)
		require.Equal(t, llm.Unknown, e.Class)
		require.Equal(t, "TRUNCATED", e.Code)
	})
	t.Run("Stream/ReaderMayGiveUp", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{Default: fakellm.Reply{Text: long, ChunkDelay: time.Millisecond}}, nil)
		stop := errors.New("enough")
		_, err := c.Stream(t.Context(), ask("go"), func(string) error { return stop })
		require.ErrorIs(t, err, stop)
	})
	t.Run("Stream/RefusalsAreTyped", func(t *testing.T) {
		t.Parallel()
		c, _, _ := start(t, fakellm.Script{Default: fakellm.Reply{Fault: fakellm.RateLimit, RetryAfter: 2 * time.Second}}, nil)
		_, err := c.Stream(t.Context(), ask("go"), func(string) error { return nil })
		e := fault(t, err)
		require.Equal(t, llm.Retryable, e.Class)
		require.Equal(t, 2*time.Second, e.RetryAfter)
	})
}

func fault(t *testing.T, err error) *llm.Error {
	t.Helper()
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fakellm.Fault]struct {
		class  llm.Class
		status int
		code   string
	}{
		fakellm.RateLimit:     {llm.Retryable, 429, "rate_limit_exceeded"},
		fakellm.QuotaExceeded: {llm.Permanent, 429, "insufficient_quota"},
		fakellm.ServerError:   {llm.Retryable, 500, "server_error"},
		fakellm.BadGateway:    {llm.Retryable, 502, ""},
		fakellm.BadRequest:    {llm.Permanent, 400, "context_length_exceeded"},
		fakellm.Unauthorized:  {llm.Permanent, 401, "invalid_api_key"},
		fakellm.ModelNotFound: {llm.Permanent, 404, "model_not_found"},
		fakellm.Malformed:     {llm.Unknown, 200, "MALFORMED"},
		fakellm.NoChoices:     {llm.Unknown, 0, "MALFORMED"},
		fakellm.Disconnect:    {llm.Unknown, 0, "CONNECTION"},
		fakellm.Hang:          {llm.Unknown, 0, "TIMEOUT"},
		fakellm.Oversized:     {llm.Permanent, 0, "RESPONSE_TOO_LARGE"},
	} {
		t.Run("Fault/"+string(kind), func(t *testing.T) {
			t.Parallel()
			c, s, rec := start(t, fakellm.Script{Rules: []fakellm.Rule{{Times: 1, Reply: fakellm.Reply{Fault: kind}}}}, func(cfg *llm.Config) {
				cfg.MaxResponseBytes = 1 << 20
				if kind == fakellm.Hang {
					cfg.Timeout = 50 * time.Millisecond
				}
			})
			_, err := c.Chat(t.Context(), ask("x"))
			e := fault(t, err)
			require.Equal(t, want.class, e.Class, "%v: %v", e, e.Err)
			require.Equal(t, want.status, e.Status)
			require.Equal(t, want.code, e.Code)
			require.Len(t, s.Requests(), 1, "a call is never repeated")
			require.NotContains(t, err.Error(), "sk-test")
			spans := rec.Ended()
			require.Equal(t, "Error", spans[len(spans)-1].Status().Code.String())
			if kind != fakellm.Hang {
				_, err = c.Chat(t.Context(), ask("x"))
				require.NoError(t, err, "a rule is passed over after its times")
			}
		})
	}
	t.Run("Fault/NobodyListens", func(t *testing.T) {
		t.Parallel()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, lis.Close())
		c, _, _ := start(t, fakellm.Script{}, func(cfg *llm.Config) { cfg.BaseURL = "http://" + lis.Addr().String() + "/v1" })
		_, err = c.Chat(t.Context(), ask("x"))
		require.Equal(t, llm.NotPerformed, fault(t, err).Class)
	})
	t.Run("Fault/Canceled", func(t *testing.T) {
		t.Parallel()
		c, s, _ := start(t, fakellm.Script{Default: fakellm.Reply{Fault: fakellm.Hang}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.Chat(ctx, ask("x"))
			ended <- err
		}()
		testkit.Eventually(t, func() bool { return len(s.Requests()) == 1 })
		cancel()
		err := <-ended
		e := fault(t, err)
		require.Equal(t, "CANCELED", e.Code)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("Fault/BadRequestsNeverLeave", func(t *testing.T) {
		t.Parallel()
		c, s, _ := start(t, fakellm.Script{}, nil)
		for _, req := range []llm.Request{
			{}, {Model: "m"}, {Model: "m", Messages: []llm.Message{{Role: "robot"}}},
			{Model: "m", Messages: []llm.Message{{Role: "user"}}, Extra: map[string]json.RawMessage{"messages": json.RawMessage("[]")}},
			{Model: "m", Messages: []llm.Message{{Role: "user"}}, Format: &llm.Format{Schema: json.RawMessage("{")}},
		} {
			_, err := c.Chat(t.Context(), req)
			require.Equal(t, llm.Permanent, fault(t, err).Class)
		}
		require.Empty(t, s.Requests())
	})
	t.Run("Config/FaultsAllAtOnce", func(t *testing.T) {
		t.Parallel()
		_, err := llm.New(llm.Config{BaseURL: "ftp://x"}, nil)
		require.True(t, errs.Is(err, errs.InvalidArgument))
		for _, word := range []string{"base_url", "timeout", "max_response_bytes"} {
			require.ErrorContains(t, err, word)
		}
	})
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for _, capture := range []bool{false, true} {
		c, _, rec := start(t, fakellm.Script{Default: fakellm.Reply{Text: "secret answer"}}, func(cfg *llm.Config) { cfg.CaptureContent = capture })
		_, err := c.Chat(t.Context(), ask("secret question"))
		require.NoError(t, err)
		spans := rec.Ended()
		require.Len(t, spans, 2)
		httpSpan, chat := spans[0], spans[1]
		require.Equal(t, "chat fake-1", chat.Name())
		require.Equal(t, chat.SpanContext().SpanID(), httpSpan.Parent().SpanID())
		attrs := map[string]string{}
		for _, kv := range chat.Attributes() {
			attrs[string(kv.Key)] = kv.Value.String()
		}
		require.Equal(t, "chat", attrs["gen_ai.operation.name"])
		require.Equal(t, "openai", attrs["gen_ai.provider.name"])
		require.Equal(t, "fake-1", attrs["gen_ai.request.model"])
		require.Equal(t, "4", attrs["gen_ai.usage.output_tokens"])
		if capture {
			require.Contains(t, attrs["gen_ai.input.messages"], "secret question")
			require.Contains(t, attrs["gen_ai.output.messages"], "secret answer")
			continue
		}
		for _, v := range attrs {
			require.NotContains(t, v, "secret")
		}
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	s, err := fakellm.Parse([]byte("rules:\n- match: a\n  times: 2\n  reply: {text: b, delay: 20ms, usage: {input: 5}}\n- match: c\n  reply: {fault: rate_limit, retry_after: 1s}\nmodels: [m]\n"))
	require.NoError(t, err)
	require.Equal(t, 20*time.Millisecond, s.Rules[0].Reply.Delay)
	require.EqualValues(t, 5, s.Rules[0].Reply.Usage.Input)
	require.Equal(t, fakellm.RateLimit, s.Rules[1].Reply.Fault)
	_, err = fakellm.Parse([]byte("ruls: []\n"))
	require.Error(t, err)
}
