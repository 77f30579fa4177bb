package llm_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/providers"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	actorllm "github.com/epigraph-run/epigraph/services/executor/internal/actor/llm"
	"github.com/epigraph-run/epigraph/workgraph"
)

// model serves a scripted model over real HTTP and returns the actor that asks it.
func model(t *testing.T, script fakellm.Script) (actor.Spec, *fakellm.Server) {
	t.Helper()
	fake := fakellm.New(script)
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	cfg := providers.DefaultConfig()
	cfg.Change("default", func(p *llm.Profile) { p.BaseURL, p.APIKey, p.Model = s.URL+"/v1", conf.NewSecret("test"), "fake-1" })
	cfg.Change("small", func(p *llm.Profile) { p.BaseURL, p.Model, p.PriceKey = s.URL+"/v1", "fake-2", "cheap" })
	models, err := providers.Open(cfg, llm.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, models.Close()) })
	return actorllm.Spec(actorllm.Config{}, models), fake
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	t.Run("Text/WithUsageOnTheBooks", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Rules: []fakellm.Rule{{Match: "capital", Reply: fakellm.Reply{Text: "Paris", Usage: fakellm.Usage{Input: 11, CachedInput: 3, Output: 5, Reasoning: 2}}}}})
		out, err := actortest.Call(t, s, `{"request": "What is the capital of France?"}`)
		require.NoError(t, err)
		require.Equal(t, `"Paris"`, string(out.Values[0]))
		require.Equal(t, []workgraph.Usage{{Provider: "openai", Model: "fake-1", InputTokens: 11, CachedTokens: 3, OutputTokens: 5, ReasoningTokens: 2, Call: "chat"}}, out.Usage)
	})
	t.Run("JSON/StaysJSON", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: `{"n": 9007199254740993}`}})
		require.Equal(t, `{"n": 9007199254740993}`, actortest.Value(t, s, `{"request": "x", "json": true}`))
	})
	t.Run("JSON/SomethingElseIsTriedAgainAndBooked", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: "well, …"}})
		e := actortest.Fails(t, s, `{"request": "x", "json": true}`)
		require.Equal(t, workgraph.Retryable, e.Type)
		require.Equal(t, actorllm.ReasonNotJSON, e.Reason)
		require.Len(t, e.Usage, 1)
	})
	t.Run("JSON/ACutAnswerSaysSo", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: `{"a":`, FinishReason: "length"}})
		require.Equal(t, actorllm.ReasonCutOff, actortest.Fails(t, s, `{"request": "x", "json": true}`).Reason)
	})
	t.Run("Stream/IsReportedPieceByPiece", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: "one two three four five six seven"}})
		var r pieces
		out, err := s.Actor.Call(actor.WithReporter(t.Context(), &r), workgraph.NewCall(workgraph.Start{
			Named: map[string]json.RawMessage{"request": json.RawMessage(`"x"`), "stream": json.RawMessage("true")},
		}, workgraph.CallOptions{}))
		require.NoError(t, err)
		require.Greater(t, len(r.got), 1)
		require.Equal(t, `"`+strings.Join(r.got, "")+`"`, string(out.Values[0]))
		require.NotZero(t, out.Usage[0].OutputTokens)
	})
}

type pieces struct {
	mu  sync.Mutex
	got []string
}

func (p *pieces) Text(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, s)
}
func (p *pieces) Progress(json.RawMessage) {}

func TestConversation(t *testing.T) {
	t.Parallel()
	last := func(t *testing.T, named string, change ...func(*workgraph.Start)) (system, user string) {
		t.Helper()
		s, fake := model(t, fakellm.Script{})
		_, err := actortest.Call(t, s, named, change...)
		require.NoError(t, err)
		requests := fake.Requests()
		require.Len(t, requests, 1)
		for _, m := range requests[0].Messages {
			switch m.Role {
			case "system":
				system = m.Content
			case "user":
				user = m.Content
			}
		}
		return system, user
	}
	upstream := func(s *workgraph.Start) {
		s.Upstream = []workgraph.Upstream{
			{Node: "search", Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{json.RawMessage(`"found it"`)}},
			{Node: "count", Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{json.RawMessage(`{"n":2}`)}},
			{Node: "broken", Outcome: workgraph.VisitFailed, Error: workgraph.Errorf(workgraph.Permanent, "R", "gone")},
		}
	}
	t.Run("EarlierResultsAreToldUnderTheirSource", func(t *testing.T) {
		t.Parallel()
		system, user := last(t, `{"user_input": "Sum up.", "system": "Be brief.", "previous_agent_results": ["twice"]}`, upstream)
		require.Equal(t, "Be brief.", system)
		require.Equal(t, "Sum up.\n\n<result from=\"search\">\nfound it\n</result>\n\n<result from=\"count\">\n{\"n\":2}\n</result>\n\n<failure from=\"broken\">\nR: gone\n</failure>", user)
	})
	t.Run("PreviousResultsAreToldWhenTheirSourceIsNotKnown", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Go on.", "previous_agent_results": ["a", 1]}`)
		require.Contains(t, user, `["a",1]`)
	})
	t.Run("DocumentsAndArgumentsAreTold", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Read.", "attachments": [{"id": "d1", "description": "a note", "content": "text of it"}], "arguments": [{"name": "city", "value": "Rome"}]}`)
		require.Contains(t, user, "<attachment from=\"d1\" description=\"a note\">\ntext of it\n</attachment>")
		require.Contains(t, user, `{"name":"city","value":"Rome"}`)
	})
	t.Run("ToolIsToldOnce", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Look it up.", "tool": "web.search", "arguments": [{"name": "city", "value": "Rome"}]}`)
		require.Equal(t, "Look it up.\n\nTool: web.search\n\nArguments:\n{\"name\":\"city\",\"value\":\"Rome\"}", user)
		_, user = last(t, `{"request": "web.search(Rome)", "tool": "web.search"}`)
		require.Equal(t, "web.search(Rome)", user)
		_, user = last(t, `{"request": "Dig.", "tool": {"hammer": 1}}`)
		require.Equal(t, "Dig.", user, "a propagated argument may be anything")
	})
	t.Run("ATravellingTextIsARequest", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{}`, func(s *workgraph.Start) { s.Args = []json.RawMessage{json.RawMessage(`"hello"`)} })
		require.Equal(t, "hello", user)
	})
	t.Run("NothingToSayIsRefused", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{})
		require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, s, `{}`).Reason)
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	for fault, want := range map[fakellm.Fault]workgraph.ErrorType{
		fakellm.RateLimit: workgraph.Retryable, fakellm.ServerError: workgraph.Retryable, fakellm.BadRequest: workgraph.Permanent,
		fakellm.Unauthorized: workgraph.Permanent, fakellm.QuotaExceeded: workgraph.Permanent, fakellm.Malformed: workgraph.Unknown,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Fault: fault, RetryAfter: 3 * time.Second}})
			e := actortest.Fails(t, s, `{"request": "x"}`)
			require.Equal(t, want, e.Type)
			require.Equal(t, actorllm.ReasonModel, e.Reason)
			if fault == fakellm.RateLimit {
				require.Equal(t, workgraph.Duration(3*time.Second), e.RetryAfter)
			}
		})
	}
	t.Run("ACanceledCallEnds", func(t *testing.T) {
		t.Parallel()
		s, fake := model(t, fakellm.Script{Default: fakellm.Reply{Fault: fakellm.Hang}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: map[string]json.RawMessage{"request": json.RawMessage(`"x"`)}}, workgraph.CallOptions{}))
			ended <- err
		}()
		testkit.Eventually(t, func() bool { return len(fake.Requests()) == 1 })
		cancel()
		require.Equal(t, &workgraph.Error{Type: workgraph.Unknown}, <-ended, "whoever ended the call names the reason")
	})
}
