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
func model(t testing.TB, script fakellm.Script) (actor.Spec, *fakellm.Server) {
	t.Helper()
	fake := fakellm.New(script)
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	cfg := providers.DefaultConfig()
	cfg.Change("default", func(p *llm.Profile) {
		p.BaseURL, p.APIKey, p.Model, p.WhenSoftCap = s.URL+"/v1", conf.NewSecret("test"), "fake-1", "small"
	})
	cfg.Change("small", func(p *llm.Profile) {
		p.BaseURL, p.Model, p.PriceKey, p.MaxOutputTokens, p.OutputLimit = s.URL+"/v1", "fake-2", "cheap", 500, 1000
	})
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
	const shape = `"request": "x", "response_schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "maximum": 9}}}`
	t.Run("Schema/AnotherAnswerIsTriedAgainAndBooked", func(t *testing.T) {
		t.Parallel()
		// The server was given the schema and does not heed it.
		s, fake := model(t, fakellm.Script{Default: fakellm.Reply{Text: `{"n": 10}`}})
		e := actortest.Fails(t, s, `{`+shape+`}`)
		require.Equal(t, workgraph.Retryable, e.Type)
		require.Equal(t, actorllm.ReasonOffSchema, e.Reason)
		require.Contains(t, e.Message, "/n", "where it is wrong")
		require.Len(t, e.Usage, 1)
		require.NotZero(t, e.Usage[0].OutputTokens)
		require.Len(t, fake.Requests(), 1)
	})
	t.Run("Schema/TheAnswerIsReadLeniently", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: "```json\n{'n': 9,}\n```"}})
		require.Equal(t, `{"n":9}`, actortest.Value(t, s, `{`+shape+`}`))
	})
	t.Run("Schema/ThatCannotBeUsedAsksNobody", func(t *testing.T) {
		t.Parallel()
		s, fake := model(t, fakellm.Script{Default: fakellm.Reply{Text: `1`}})
		require.Contains(t, actortest.Fails(t, s, `{"request": "x", "response_schema": {"$ref": "https://x.example/s"}}`).Message, "response_schema")
		require.Empty(t, fake.Requests())
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
	t.Run("Stream/OnlyIfSomebodyWatches", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			stream, thread    string
			watched, streamed bool
		}{
			"Always":           {"true", "", false, true},
			"Never":            {"false", "thr_1", true, false},
			"Watched":          {`"watched"`, "", true, true},
			"WatchedByNobody":  {`"watched"`, "", false, false},
			"WatchedOnAThread": {`"watched"`, "thr_1", false, true},
		} {
			s, fake := model(t, fakellm.Script{Default: fakellm.Reply{Text: "an answer"}})
			r := pieces{watched: c.watched}
			_, err := s.Actor.Call(actor.WithReporter(t.Context(), &r), workgraph.NewCall(workgraph.Start{Thread: c.thread,
				Named: map[string]json.RawMessage{"request": json.RawMessage(`"x"`), "stream": json.RawMessage(c.stream)}}, workgraph.CallOptions{}))
			require.NoError(t, err, name)
			require.Equal(t, c.streamed, fake.Requests()[0].Stream, name)
			require.Equal(t, c.streamed, len(r.got) > 0, name)
			require.Empty(t, r.raw, name)
		}
	})
	t.Run("Stream/OfADecisionIsWhatItSays", func(t *testing.T) {
		t.Parallel()
		const decision = "<StructuredResponse><InstantResponse>I look &amp; see</InstantResponse><TaskStatus>Completed</TaskStatus></StructuredResponse>"
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{Text: decision}})
		var r pieces
		_, err := s.Actor.Call(actor.WithReporter(t.Context(), &r), workgraph.NewCall(workgraph.Start{
			Named: map[string]json.RawMessage{"request": json.RawMessage(`"x"`), "stream": json.RawMessage("true"), "decision": json.RawMessage("true")},
		}, workgraph.CallOptions{}))
		require.NoError(t, err)
		require.Equal(t, decision, strings.Join(r.raw, ""))
		require.Greater(t, len(r.got), 1)
		require.Equal(t, "I look & see", strings.Join(r.got, ""))
	})
}

func TestTools(t *testing.T) {
	t.Parallel()
	script := fakellm.Script{Rules: []fakellm.Rule{
		{After: "12 degrees", Reply: fakellm.Reply{Text: "It is cold."}},
		{Match: "weather", Reply: fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "c1", Name: "get_weather", Arguments: `{"day": 9007199254740993}`}}}},
	}}
	const tools = `"tools": [{"name": "get/weather", "description": "d", "schema": {"type": "object"}}], "tool_choice": "auto"`
	t.Run("ResultIsTheAssistantMessage", func(t *testing.T) {
		t.Parallel()
		s, fake := model(t, script)
		out, err := actortest.Call(t, s, `{"request": "the weather?", `+tools+`}`)
		require.NoError(t, err)
		require.Equal(t, `{"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"get/weather","arguments":{"day":9007199254740993}}]}`, string(out.Values[0]))
		require.Len(t, out.Usage, 1)
		require.Equal(t, []string{"get_weather"}, fake.Requests()[0].Tools)
		require.Equal(t, "auto", fake.Requests()[0].ToolChoice)
		require.Equal(t, `{"role":"assistant","content":"It is cold."}`, actortest.Value(t, s, `{`+tools+`, "messages": [
			{"role": "user", "content": "the weather?"}, `+string(out.Values[0])+`, {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"}]}`), "a text with tools is a message, too")
	})
	t.Run("CutOffWithinACall", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{FinishReason: "length", ToolCalls: []fakellm.ToolCall{{Name: "get_weather", Arguments: `{"da`}}}})
		require.Equal(t, actorllm.ReasonCutOff, actortest.Fails(t, s, `{"request": "x", `+tools+`}`).Reason)
	})
	t.Run("NothingWritten", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Rules: []fakellm.Rule{{Reply: fakellm.Reply{FinishReason: "malformed_function_call"}}}})
		e := actortest.Fails(t, s, `{"request": "x", `+tools+`}`)
		require.Equal(t, actorllm.ReasonEmpty, e.Reason)
		require.Equal(t, workgraph.Retryable, e.Type)
		require.Len(t, e.Usage, 1)
	})
	t.Run("AnAnswerOfNoUseIsBooked", func(t *testing.T) {
		t.Parallel()
		s, _ := model(t, fakellm.Script{Default: fakellm.Reply{ToolCalls: []fakellm.ToolCall{{Name: "", Arguments: `{}`}}, Usage: fakellm.Usage{Input: 11, Output: 5}}})
		e := actortest.Fails(t, s, `{"request": "x", `+tools+`}`)
		require.Equal(t, workgraph.Unknown, e.Type)
		require.Equal(t, []workgraph.Usage{{Provider: "openai", Model: "fake-1", InputTokens: 11, OutputTokens: 5, Call: "chat"}}, e.Usage)
	})
	t.Run("FaultyMessagesAreNamed", func(t *testing.T) {
		t.Parallel()
		s, fake := model(t, script)
		e := actortest.Fails(t, s, `{"messages": [{"role": "tool", "tool_call_id": "c9", "content": "x"}]}`)
		require.Equal(t, workgraph.Permanent, e.Type)
		require.Contains(t, e.Message, `messages[0] answers tool call "c9"`)
		require.Empty(t, fake.Requests())
	})
}

func TestSoftCap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		over               bool
		args, model, usage string
	}{
		"Over/AsksTheCheaperProfile":          {true, `{"request": "x"}`, "fake-2", "chat_soft_cap"},
		"Over/AsksForNoMoreThanTheOtherGives": {true, `{"request": "x", "max_output_tokens": 2000}`, "fake-2", "chat_soft_cap"},
		"Over/WithoutACheaperOneAsksItsOwn":   {true, `{"request": "x", "profile": "small"}`, "fake-2", "chat"},
		"Under/AsksItsOwn":                    {false, `{"request": "x"}`, "fake-1", "chat"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, fake := model(t, fakellm.Script{Default: fakellm.Reply{Text: "yes"}})
			var named map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(tt.args), &named))
			ctx := t.Context()
			if tt.over {
				ctx = actor.WithSoftCap(ctx)
			}
			out, err := s.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
			require.NoError(t, err)
			require.Len(t, fake.Requests(), 1)
			require.Equal(t, tt.model, fake.Requests()[0].Model)
			require.Equal(t, tt.usage, out.Usage[0].Call)
		})
	}
}

func TestProfile(t *testing.T) {
	t.Parallel()
	s, fake := model(t, fakellm.Script{})
	out, err := actortest.Call(t, s, `{"request": "x", "profile": "small"}`)
	require.NoError(t, err)
	require.Equal(t, "fake-2", fake.Requests()[0].Model)
	require.Equal(t, "cheap", out.Usage[0].Provider, "as the price key says")
	_, err = actortest.Call(t, s, `{"request": "x", "model": "small", "stop": ["END"]}`)
	require.NoError(t, err)
	require.Equal(t, "fake-2", fake.Requests()[1].Model)
	require.Equal(t, []string{"END"}, fake.Requests()[1].Stop)
	_, err = actortest.Call(t, s, `{"request": "x", "model": "third"}`)
	require.NoError(t, err)
	require.Equal(t, "third", fake.Requests()[2].Model)
	require.Contains(t, actortest.Fails(t, s, `{"request": "x", "profile": "smal"}`).Message, "did you mean small?")
	found := s.Examine(t.Context(), &workgraph.Node{Named: map[string]json.RawMessage{"profile": json.RawMessage(`"smal"`)}})
	require.Len(t, found, 1)
	require.Equal(t, "profile", found[0].Arg)
	require.Empty(t, s.Examine(t.Context(), &workgraph.Node{Named: map[string]json.RawMessage{"profile": json.RawMessage(`"small"`)}}))
}

type pieces struct {
	mu       sync.Mutex
	got, raw []string
	watched  bool
}

func (p *pieces) Text(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, s)
}

func (p *pieces) Raw(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw = append(p.raw, s)
}
func (p *pieces) Progress(json.RawMessage) {}
func (p *pieces) Watched() bool            { return p.watched }

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
	t.Run("EarlierResultsMayBeLeftOut", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Go on.", "upstream": false}`, upstream)
		require.Equal(t, "Go on.", user)
	})
	t.Run("PreviousResultsAreToldWhenTheirSourceIsNotKnown", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Go on.", "previous_agent_results": ["a", 1]}`)
		require.Contains(t, user, `["a",1]`)
	})
	t.Run("WhatAnAgentGivesItsActions", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "Go on.", "upstream": false, "previous_action_results": ["A", ["B", "C"]], "previous_agent_results": "kept"}`, upstream)
		require.Equal(t, "Go on.\n\n<result from=\"earlier steps\">\nkept\n</result>\n\n<result from=\"earlier actions\">\n[\"A\",[\"B\",\"C\"]]\n</result>", user)
		_, user = last(t, `{"request": "Go on.", "upstream": false, "previous_action_results": [ ]}`, upstream)
		require.Equal(t, "Go on.", user)
	})
	t.Run("ReferencesOfAPlanAreTold", func(t *testing.T) {
		t.Parallel()
		_, user := last(t, `{"request": "How old is #E1?", "references": [{"argument": "q", "text": "#E1", "node": "E1"}, {"text": "$2.n", "node": "two", "field": "n"}]}`)
		require.Equal(t, "How old is #E1?\n\nReferences:\n#E1 is the result of \"E1\"\n$2.n is the result of \"two\", field \"n\"", user)
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
		require.Equal(t, &workgraph.Error{Type: workgraph.Unknown, Usage: []workgraph.Usage{{Provider: "openai", Model: "fake-1", InputTokens: 5, Call: "chat"}}}, <-ended,
			"whoever ended the call names the reason; the prompt is paid")
	})
}
