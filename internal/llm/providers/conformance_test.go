package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/cassette"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// serve is a scripted server with the base URLs of the providers.
func serve(t *testing.T, script fakellm.Script) (s *fakellm.Server, urls map[string]string) {
	t.Helper()
	s = fakellm.New(script)
	url, err := s.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	root := strings.TrimSuffix(url, "/v1")
	return s, map[string]string{"openai": url, "anthropic": root, "google": root}
}

// profile makes a provider's model at that server the only profile.
func profile(provider, url string) providers.Config {
	c := providers.DefaultConfig()
	c.Change("default", func(p *llm.Profile) {
		p.Provider, p.BaseURL, p.APIKey, p.Model = provider, url, conf.NewSecret("sk-test-0123456789"), "fake-1"
	})
	return c
}

func open(t *testing.T, c providers.Config, o llm.Options) *llm.Set {
	t.Helper()
	set, err := providers.Open(c, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

// fixture is one provider with a scripted server.
type fixture struct {
	provider string
	set      *llm.Set
	fake     *fakellm.Server
}

func (f fixture) asked(t *testing.T) fakellm.Request {
	t.Helper()
	all := f.fake.Requests()
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

// each runs a test for every provider.
func each(t *testing.T, name string, script fakellm.Script, change func(*llm.Profile), test func(*testing.T, fixture)) {
	t.Helper()
	for _, provider := range providers.Names() {
		t.Run(name+"/"+provider, func(t *testing.T) {
			t.Parallel()
			fake, urls := serve(t, script)
			c := profile(provider, urls[provider])
			if change != nil {
				c.Change("default", change)
			}
			test(t, fixture{provider, open(t, c, llm.Options{}), fake})
		})
	}
}

func ask(text string) llm.Request {
	return llm.Request{Messages: []llm.Message{{Role: llm.System, Content: "be brief"}, {Role: llm.User, Content: text}}}
}

func drop(llm.Delta) error { return nil }

func fault(t *testing.T, err error) *llm.Error {
	t.Helper()
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	return e
}

// both runs a test with the answer whole and streamed.
func both(t *testing.T, f fixture, req llm.Request, test func(*testing.T, llm.Response)) {
	t.Helper()
	out, err := f.set.Generate(t.Context(), req)
	require.NoError(t, err)
	test(t, out)
	streamed, err := f.set.Stream(t.Context(), req, drop)
	require.NoError(t, err)
	test(t, streamed)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	used := fakellm.Usage{Input: 30, CachedInput: 10, Output: 7, Reasoning: 5}
	each(t, "TextUsageAndWhatWasSent", fakellm.Script{Rules: []fakellm.Rule{{Match: "weather", Reply: fakellm.Reply{Text: "sunny <&>", Usage: used}}}}, nil,
		func(t *testing.T, f fixture) {
			temp := 0.5
			req := ask("the weather? a < b & c")
			req.MaxOutputTokens, req.Temperature, req.IdempotencyKey, req.Stop = 100, &temp, "run_1/a/1", []string{"END"}
			both(t, f, req, func(t *testing.T, out llm.Response) {
				require.NotEmpty(t, out.ID)
				require.Equal(t, llm.Response{
					ID: out.ID, Profile: "default", Provider: f.provider, Model: "fake-1", Message: llm.Message{Role: "assistant", Content: "sunny <&>"},
					FinishReason: "stop", Usage: llm.Usage{Input: 30, CachedInput: 10, Output: 7, Reasoning: 5, Known: true},
				}, out)
				got := f.asked(t)
				require.Equal(t, f.provider, got.Protocol)
				require.Equal(t, "run_1/a/1", got.Header.Get("Idempotency-Key"))
				require.NotContains(t, got.Header.Get("User-Agent"), "retry")
				require.EqualValues(t, 100, got.MaxTokens)
				require.Equal(t, []string{"END"}, got.Stop)
				require.Contains(t, string(got.Body), `"temperature":0.5`)
				require.Equal(t, []fakellm.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: "the weather? a < b & c"}}, got.Messages)
				require.Contains(t, strings.Join([]string{got.Header.Get("Authorization"), got.Header.Get("X-Api-Key"), got.Header.Get("X-Goog-Api-Key")}, ""), "sk-test")
			})
		})
	each(t, "ALimitIsAlwaysSent", fakellm.Script{}, func(p *llm.Profile) { p.MaxOutputTokens = 2 }, func(t *testing.T, f fixture) {
		both(t, f, ask("hello"), func(t *testing.T, out llm.Response) {
			require.Equal(t, "length", out.FinishReason)
			require.Equal(t, "Done: he", out.Message.Content)
			require.EqualValues(t, 2, f.asked(t).MaxTokens)
		})
	})
	each(t, "MissingUsageIsUnknown", fakellm.Script{Default: fakellm.Reply{Text: "x", NoUsage: true}}, nil, func(t *testing.T, f fixture) {
		both(t, f, ask("x"), func(t *testing.T, out llm.Response) { require.False(t, out.Usage.Known) })
	})
	each(t, "ExtraFieldsAreSent", fakellm.Script{}, func(p *llm.Profile) { p.Extra = map[string]string{"labels": `{"team":"x"}`, "over": "1"} }, func(t *testing.T, f fixture) {
		req := ask("x")
		req.Extra = map[string]json.RawMessage{"over": json.RawMessage("[2]"), "a.b": json.RawMessage("true")}
		both(t, f, req, func(t *testing.T, _ llm.Response) {
			for _, want := range []string{`"labels":{"team":"x"}`, `"over":[2]`, `"a.b":true`} {
				require.Contains(t, string(f.asked(t).Body), want)
			}
		})
	})
	each(t, "JSON/WithAndWithoutASchema", fakellm.Script{Default: fakellm.Reply{Text: `{"a": 1}`}}, nil, func(t *testing.T, f fixture) {
		req := ask("x")
		req.Format = &llm.Format{Name: "w", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}}}`), Strict: true}
		both(t, f, req, func(t *testing.T, out llm.Response) {
			require.Equal(t, `{"a": 1}`, out.Message.Content)
			require.Contains(t, []string{"json_schema", "application/json"}, f.asked(t).Format)
			require.Contains(t, string(f.asked(t).Body), `"integer"`)
		})
		req.Format = &llm.Format{}
		both(t, f, req, func(t *testing.T, _ llm.Response) {
			require.Contains(t, strings.ToLower(string(f.asked(t).Body)), "json")
		})
	})
	each(t, "MessagesOfOneRoleInARow", fakellm.Script{}, nil, func(t *testing.T, f fixture) {
		req := llm.Request{Messages: []llm.Message{
			{Role: llm.System, Content: "one"}, {Role: llm.User, Content: "a"}, {Role: llm.User, Content: ""}, {Role: llm.User, Content: "b"},
			{Role: llm.Assistant, Content: "c"}, {Role: llm.System, Content: "two"}, {Role: llm.User, Content: "d"},
		}}
		both(t, f, req, func(t *testing.T, out llm.Response) {
			require.Equal(t, "Done: d", out.Message.Content)
			var all strings.Builder
			for _, m := range f.asked(t).Messages {
				all.WriteString(m.Role[:1] + ":" + m.Content + " ")
			}
			want := map[string]string{"openai": "s:one u:a u: u:b a:c s:two u:d ", "anthropic": "s:onetwo u:ab a:c u:d ", "google": "s:onetwo u:ab a:c u:d "}
			require.Equal(t, want[f.provider], all.String())
		})
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("Ünïcode text. ", 20)
	each(t, "PiecesMakeTheText", fakellm.Script{Default: fakellm.Reply{Text: long}}, nil, func(t *testing.T, f fixture) {
		var pieces []string
		out, err := f.set.Stream(t.Context(), ask("go"), func(d llm.Delta) error {
			require.Nil(t, d.Call)
			require.NotEmpty(t, d.Text)
			pieces = append(pieces, d.Text)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, long, out.Message.Content)
		require.Equal(t, long, strings.Join(pieces, ""))
		require.Greater(t, len(pieces), 5)
		require.Equal(t, fakellm.Tokens(long), out.Usage.Output)
	})
	for kind, want := range map[fakellm.Fault]struct {
		class llm.Class
		codes []string
	}{
		fakellm.Disconnect:  {llm.Unknown, []string{"TRUNCATED"}},
		fakellm.StreamError: {llm.Unknown, []string{"TRUNCATED"}},
		fakellm.EarlyError:  {llm.Retryable, []string{"overloaded", "overloaded_error", "UNAVAILABLE"}},
		fakellm.Stall:       {llm.Unknown, []string{"IDLE_TIMEOUT"}},
		fakellm.Hang:        {llm.Unknown, []string{"FIRST_TOKEN_TIMEOUT"}},
		fakellm.Overloaded:  {llm.Retryable, []string{"overloaded", "overloaded_error", "UNAVAILABLE"}},
		fakellm.RateLimit:   {llm.Retryable, []string{"rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"}},
	} {
		each(t, "Fault/"+string(kind), fakellm.Script{Default: fakellm.Reply{Text: long, Fault: kind, RetryAfter: 2 * time.Second}}, func(p *llm.Profile) {
			p.FirstTokenTimeout, p.IdleTimeout = 400*time.Millisecond, 200*time.Millisecond
		}, func(t *testing.T, f fixture) {
			_, err := f.set.Stream(t.Context(), ask("go"), drop)
			e := fault(t, err)
			require.Equal(t, want.class, e.Class, "%v: %v", e, e.Err)
			require.Contains(t, want.codes, e.Code, "%v", e.Err)
			require.Len(t, f.fake.Requests(), 1, "a call is never repeated")
			if kind == fakellm.RateLimit {
				require.Equal(t, 2*time.Second, e.RetryAfter)
			}
		})
	}
	each(t, "ReaderMayGiveUp", fakellm.Script{Default: fakellm.Reply{Text: long, ChunkDelay: time.Millisecond}}, nil, func(t *testing.T, f fixture) {
		stop := errors.New("enough")
		_, err := f.set.Stream(t.Context(), ask("go"), func(llm.Delta) error { return stop })
		require.ErrorIs(t, err, stop)
		require.Equal(t, "CANCELED", fault(t, err).Code)
	})
	each(t, "ReasoningKeepsAStreamAlive", fakellm.Script{Default: fakellm.Reply{Text: "x", Thinking: strings.Repeat("hmm ", 30), ChunkDelay: 20 * time.Millisecond}}, func(p *llm.Profile) {
		p.FirstTokenTimeout, p.IdleTimeout = 5*time.Second, 5*time.Second
	}, func(t *testing.T, f fixture) {
		var text string
		_, err := f.set.Stream(t.Context(), ask("go"), func(d llm.Delta) error { text += d.Text; return nil })
		require.NoError(t, err)
		require.Equal(t, "x", text, "reasoning is no part of the answer")
	})
}

func TestTools(t *testing.T) {
	t.Parallel()
	tools := []llm.Tool{
		{Name: "mcp/files/read", Description: "reads", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		{Name: "mcp_files_read"}, {Name: "7 wonders!"},
	}
	script := fakellm.Script{Rules: []fakellm.Rule{
		{After: "lost", Reply: fakellm.Reply{Text: "all read"}},
		{Reply: fakellm.Reply{Text: "one moment", Thinking: "two files", ToolCalls: []fakellm.ToolCall{
			{Name: "mcp_files_read_2", Arguments: `{"path":"a very long path, in several pieces"}`}, {ID: "own", Name: "_7_wonders_", Arguments: `{}`},
		}}},
	}}
	each(t, "RoundTrip", script, nil, func(t *testing.T, f fixture) {
		req := ask("read")
		req.Tools = tools
		var first llm.Message
		both(t, f, req, func(t *testing.T, out llm.Response) {
			first = out.Message
			require.Equal(t, "tool_calls", out.FinishReason)
			require.Equal(t, "one moment", first.Content)
			require.Len(t, first.ToolCalls, 2)
			require.NotEmpty(t, first.ToolCalls[0].ID)
			require.Equal(t, "mcp/files/read", first.ToolCalls[0].Name)
			require.JSONEq(t, `{"path":"a very long path, in several pieces"}`, string(first.ToolCalls[0].Arguments))
			require.Equal(t, llm.ToolCall{ID: "own", Name: "7 wonders!", Arguments: json.RawMessage("{}")}, first.ToolCalls[1])
			require.Equal(t, []string{"mcp_files_read_2", "mcp_files_read", "_7_wonders_"}, f.asked(t).Tools)
		})
		req.Messages = append(req.Messages, first,
			llm.Message{Role: llm.ToolRole, ToolCallID: first.ToolCalls[0].ID, Content: "text of it"},
			llm.Message{Role: llm.ToolRole, ToolCallID: "own", Content: "lost", IsError: true})
		both(t, f, req, func(t *testing.T, out llm.Response) {
			require.Equal(t, "all read", out.Message.Content)
			got := f.asked(t).Messages
			require.Len(t, got, 5)
			require.Equal(t, "one moment", got[2].Content)
			require.Len(t, got[2].ToolCalls, 2)
			require.Equal(t, "mcp_files_read_2", got[2].ToolCalls[0].Name)
			require.JSONEq(t, `{"path":"a very long path, in several pieces"}`, got[2].ToolCalls[0].Arguments)
			require.Equal(t, fakellm.Message{Role: "tool", ToolCallID: first.ToolCalls[0].ID, Content: "text of it"}, got[3])
			require.Equal(t, "lost", got[4].Content)
			require.Equal(t, "own", got[4].ToolCallID)
			require.Equal(t, f.provider != "openai", got[4].IsError, "the protocol of OpenAI has no field for it")
			if f.provider != "openai" {
				require.Equal(t, []string{"signed:two files"}, got[2].Thinking, "signatures go back unchanged")
			}
		})
	})
	each(t, "PiecesMakeTheCalls", script, nil, func(t *testing.T, f fixture) {
		req := ask("read")
		req.Tools = tools
		var a llm.Assembly
		out, err := f.set.Stream(t.Context(), req, a.Add)
		require.NoError(t, err)
		want := out.Message
		want.Opaque = nil
		require.Equal(t, want, a.Message())
	})
	each(t, "AnotherProvidersOpaqueIsLeftOut", fakellm.Script{}, nil, func(t *testing.T, f fixture) {
		req := ask("x")
		req.Messages = append(req.Messages, llm.Message{Role: llm.Assistant, Content: "plain", Opaque: map[string]json.RawMessage{"other": json.RawMessage(`[{"secret":1}]`)}},
			llm.Message{Role: llm.User, Content: "more"})
		both(t, f, req, func(t *testing.T, _ llm.Response) {
			require.NotContains(t, string(f.asked(t).Body), "secret")
			require.Equal(t, "plain", f.asked(t).Messages[2].Content)
		})
	})
	each(t, "Choice", script, nil, func(t *testing.T, f fixture) {
		for choice, want := range map[string]string{"": "", "auto": "auto", "none": "none", "required": "required", "mcp/files/read": "mcp_files_read_2"} {
			req := ask("read")
			req.Tools, req.ToolChoice = tools, choice
			_, err := f.set.Generate(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, want, f.asked(t).ToolChoice, choice)
		}
	})
	each(t, "ArgumentsThatAreNoObject", fakellm.Script{Rules: []fakellm.Rule{
		{After: "what?", Reply: fakellm.Reply{Text: "sorry"}}, {Reply: fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "c", Name: "t", Arguments: `{"a": oops`}}}},
	}}, nil, func(t *testing.T, f fixture) {
		req := ask("x")
		req.Tools = []llm.Tool{{Name: "t"}}
		out, err := f.set.Generate(t.Context(), req)
		require.NoError(t, err)
		call := out.Message.ToolCalls[0]
		require.True(t, json.Valid(call.Arguments))
		if f.provider == "openai" {
			require.JSONEq(t, `"{\"a\": oops"`, string(call.Arguments), "the text of the model is kept")
		}
		call.Arguments = json.RawMessage(`"{\"a\": oops"`)
		out.Message.ToolCalls[0] = call
		req.Messages = append(req.Messages, out.Message, llm.Message{Role: llm.ToolRole, ToolCallID: "c", Content: "what?"})
		out, err = f.set.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "sorry", out.Message.Content)
		require.Contains(t, f.asked(t).Messages[2].ToolCalls[0].Arguments, "oops")
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	type want struct {
		class  llm.Class
		status int
		code   map[string]string
	}
	of := func(openai, anthropic, google string) map[string]string {
		return map[string]string{"openai": openai, "anthropic": anthropic, "google": google}
	}
	same := func(code string) map[string]string { return of(code, code, code) }
	for kind, w := range map[fakellm.Fault]want{
		fakellm.RateLimit:     {llm.Retryable, 429, of("rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED")},
		fakellm.QuotaExceeded: {llm.Permanent, 0, of("insufficient_quota", "billing_error", "PERMISSION_DENIED")},
		fakellm.Overloaded:    {llm.Retryable, 0, of("overloaded", "overloaded_error", "UNAVAILABLE")},
		fakellm.ServerError:   {llm.Retryable, 500, of("server_error", "api_error", "INTERNAL")},
		fakellm.BadGateway:    {llm.Retryable, 502, same("")},
		fakellm.BadRequest:    {llm.Permanent, 400, of("context_length_exceeded", "invalid_request_error", "INVALID_ARGUMENT")},
		fakellm.Unauthorized:  {llm.Permanent, 401, of("invalid_api_key", "authentication_error", "UNAUTHENTICATED")},
		fakellm.ModelNotFound: {llm.Permanent, 404, of("model_not_found", "not_found_error", "NOT_FOUND")},
		fakellm.Malformed:     {llm.Unknown, 0, same("MALFORMED")},
		fakellm.NoChoices:     {llm.Unknown, 0, same("MALFORMED")},
		fakellm.Disconnect:    {llm.Unknown, 0, same("CONNECTION")},
		fakellm.Hang:          {llm.Unknown, 0, same("TIMEOUT")},
		fakellm.Oversized:     {llm.Permanent, 0, same("RESPONSE_TOO_LARGE")},
	} {
		each(t, string(kind), fakellm.Script{Rules: []fakellm.Rule{{Times: 1, Reply: fakellm.Reply{Fault: kind, RetryAfter: 1500 * time.Millisecond}}}}, func(p *llm.Profile) {
			p.MaxResponseBytes = 1 << 20
			if kind == fakellm.Hang {
				p.Timeout = 100 * time.Millisecond
			}
		}, func(t *testing.T, f fixture) {
			_, err := f.set.Generate(t.Context(), ask("x"))
			e := fault(t, err)
			require.Equal(t, w.class, e.Class, "%v: %v", e, e.Err)
			require.Equal(t, w.code[f.provider], e.Code, "%v", e.Err)
			if w.status != 0 {
				require.Equal(t, w.status, e.Status)
			}
			if kind == fakellm.RateLimit {
				require.Equal(t, 1500*time.Millisecond, e.RetryAfter)
			}
			require.NotEmpty(t, e.Message)
			require.Len(t, f.fake.Requests(), 1, "a call is never repeated")
			require.NotContains(t, err.Error(), "sk-test")
			if kind == fakellm.Hang {
				return
			}
			_, err = f.set.Generate(t.Context(), ask("x"))
			require.NoError(t, err, "a rule is passed over after its times")
		})
	}
	each(t, "Filtered", fakellm.Script{Default: fakellm.Reply{Text: "bad things in many words", Fault: fakellm.Filtered}}, nil, func(t *testing.T, f fixture) {
		both(t, f, ask("x"), func(t *testing.T, out llm.Response) { require.Equal(t, "content_filter", out.FinishReason) })
	})
	each(t, "Refusal", fakellm.Script{Default: fakellm.Reply{Refusal: "I will not, ever."}}, nil, func(t *testing.T, f fixture) {
		both(t, f, ask("x"), func(t *testing.T, out llm.Response) { require.Contains(t, out.Refusal, "I will not, ever.") })
	})
	each(t, "Canceled", fakellm.Script{Default: fakellm.Reply{Fault: fakellm.Hang}}, nil, func(t *testing.T, f fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := f.set.Generate(ctx, ask("x"))
			ended <- err
		}()
		testkit.Eventually(t, func() bool { return len(f.fake.Requests()) == 1 })
		cancel()
		err := <-ended
		require.Equal(t, "CANCELED", fault(t, err).Code)
		require.ErrorIs(t, err, context.Canceled)
	})
	for _, provider := range providers.Names() {
		t.Run("NobodyListens/"+provider, func(t *testing.T) {
			t.Parallel()
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.NoError(t, lis.Close())
			set := open(t, profile(provider, "http://"+lis.Addr().String()), llm.Options{})
			_, err = set.Generate(t.Context(), ask("x"))
			require.Equal(t, llm.NotPerformed, fault(t, err).Class)
			_, err = set.Stream(t.Context(), ask("x"), drop)
			require.Equal(t, llm.NotPerformed, fault(t, err).Class)
		})
	}
	t.Run("GoogleWithoutAKey", func(t *testing.T) {
		t.Parallel()
		c := profile("google", "")
		c.Change("default", func(p *llm.Profile) { p.APIKey = conf.Secret{} })
		_, err := open(t, c, llm.Options{}).Generate(t.Context(), ask("x"))
		require.Equal(t, "API_KEY", fault(t, err).Code)
	})
}

// full is a governor of accounts without room.
type full struct{}

func (full) Admit(context.Context, llm.Account, string, llm.Usage) (llm.Permit, error) {
	return nil, errors.New("no room")
}

func TestCassette(t *testing.T) {
	t.Parallel()
	for _, provider := range providers.Names() {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			fake, urls := serve(t, fakellm.Script{
				Rules:   []fakellm.Rule{{Match: "busy", Reply: fakellm.Reply{Fault: fakellm.RateLimit, RetryAfter: time.Second}}},
				Default: fakellm.Reply{Text: "a text in some pieces", Thinking: "hm", ToolCalls: []fakellm.ToolCall{{Name: "a_b", Arguments: `{"q":1}`}}},
			})
			c := profile(provider, urls[provider])
			c.Cassette.Mode, c.Cassette.Path = cassette.Record, filepath.Join(t.TempDir(), "calls.jsonl")
			asked := func(set *llm.Set) (out []any) {
				req := ask("x")
				req.Tools = []llm.Tool{{Name: "a/b"}}
				whole, err := set.Generate(t.Context(), req)
				require.NoError(t, err)
				streamed, err := set.Stream(t.Context(), req, drop)
				require.NoError(t, err)
				_, err = set.Generate(t.Context(), ask("busy"))
				e := *fault(t, err)
				e.Err = nil
				return append(out, whole, streamed, e)
			}
			// traced are the spans of the calls, without what only a server says.
			traced := func(o llm.Options) (llm.Options, func() []string) {
				spans := tracetest.NewSpanRecorder()
				o.Telemetry = obs.Noop()
				o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
				return o, func() (out []string) {
					for _, s := range spans.Ended() {
						if !strings.HasPrefix(s.Name(), "chat ") {
							continue
						}
						of := []string{s.Name(), s.Status().Code.String()}
						for _, kv := range s.Attributes() {
							if key := string(kv.Key); !strings.HasPrefix(key, "server.") && !strings.HasSuffix(key, "time_to_first_chunk") {
								of = append(of, key+"="+kv.Value.String())
							}
						}
						slices.Sort(of)
						out = append(out, strings.Join(of, " "))
					}
					return out
				}
			}
			o, recorded := traced(llm.Options{})
			want := asked(open(t, c, o))
			require.Len(t, recorded(), 3)
			for i, has := range [][]string{
				{"Unset", "gen_ai.operation.name=chat", `gen_ai.response.finish_reasons=["tool_calls"]`, "gen_ai.usage.output_tokens="},
				{"Unset", "gen_ai.operation.name=chat", `gen_ai.response.finish_reasons=["tool_calls"]`, "gen_ai.usage.input_tokens="},
				{"Error", "error.type=", "epigraph.error.class=retryable", "gen_ai.request.model="},
			} {
				for _, part := range has {
					require.Contains(t, recorded()[i], part)
				}
			}
			require.Len(t, fake.Requests(), 3)
			raw, err := os.ReadFile(c.Cassette.Path)
			require.NoError(t, err)
			require.NotContains(t, string(raw), "sk-test")
			require.NoError(t, fake.Close())
			c.Cassette.Mode = cassette.Replay
			c.Accounts = map[string]llm.AccountLimits{"full": {MaxConcurrent: 1}}
			c.Change("default", func(p *llm.Profile) { p.APIKey, p.Account = conf.Secret{}, "full" })
			o, replayed := traced(llm.Options{Governor: full{}})
			set := open(t, c, o)
			require.Equal(t, want, asked(set), "with the server gone")
			require.Equal(t, recorded(), replayed(), "spans as of real calls")
			account, _ := set.Account("default")
			require.Empty(t, account.Name, "nobody waits for room in an account that is not asked")
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	c := providers.DefaultConfig()
	for _, name := range providers.Names() {
		c.Change(name, func(p *llm.Profile) { p.Provider, p.Model = name, "m" })
	}
	c.Change("own", func(p *llm.Profile) { p.BaseURL = "http://own.test" })
	c.Change("keyed", func(p *llm.Profile) { p.APIKey = conf.NewSecret("mine") })
	got := providers.FromEnvironment(c.Config, []string{"OPENAI_API_KEY=o", "ANTHROPIC_API_KEY=a", "GEMINI_API_KEY=g", "GOOGLE_API_KEY=", "ANTHROPIC_BASE_URL=http://a.test"})
	keys := map[string]string{}
	for name, p := range got.Profiles {
		keys[name] = p.APIKey.Reveal() + "@" + p.BaseURL
	}
	require.Equal(t, map[string]string{
		"default": "o@", "openai": "o@", "anthropic": "a@http://a.test", "google": "g@", "own": "@http://own.test", "keyed": "mine@",
	}, keys)
	require.True(t, c.Profiles["openai"].APIKey.IsZero(), "the given configuration stays as it is")
	require.Equal(t, []string{"anthropic", "google", "openai"}, providers.Names())
}

func TestCassetteOfVectors(t *testing.T) {
	t.Parallel()
	fake, urls := serve(t, fakellm.Script{Vectors: []fakellm.Vector{{Match: "tea", Values: []float32{1, 0}}, {Match: "busy", Fault: fakellm.RateLimit}, {Values: []float32{0, 1}}}})
	c := profile("openai", urls["openai"])
	c.Embeds = "default"
	c.Cassette.Mode, c.Cassette.Path = cassette.Record, filepath.Join(t.TempDir(), "calls.jsonl")
	asked := func(set *llm.Set) []any {
		got, err := set.Embed(t.Context(), []string{"green tea", "chess"})
		require.NoError(t, err)
		_, err = set.Embed(t.Context(), []string{"busy"})
		e := *fault(t, err)
		e.Err = nil
		return []any{got, e}
	}
	want := asked(open(t, c, llm.Options{}))
	require.Equal(t, [][]float32{{1, 0}, {0, 1}}, want[0].(llm.Vectors).Values)
	require.NotZero(t, want[0].(llm.Vectors).Spent[0].Usage.Input)
	require.NoError(t, fake.Close())
	c.Cassette.Mode = cassette.Replay
	set := open(t, c, llm.Options{})
	require.Equal(t, want, asked(set), "with the server gone")
	_, err := set.Embed(t.Context(), []string{"something else"})
	require.Equal(t, "NOT_RECORDED", fault(t, err).Code)
}
