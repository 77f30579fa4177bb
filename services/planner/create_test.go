package planner_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/planner"
)

const (
	sound    = "[\n{\"id\": \"find\", \"request\": \"Find a flight\", \"tool\": \"search\", \"args\": {\"q\": \"OSL\"}, \"needs\": []},\n{\"id\": \"pick\", \"request\": \"Pick one\", \"needs\": [\"find\"]}\n]"
	dangling = "[\n{\"id\": \"find\", \"request\": \"Find a flight\", \"needs\": []},\n{\"id\": \"pick\", \"request\": \"Pick one\", \"needs\": [\"look\"]}\n]"
	cyclic   = "[\n{\"id\": \"a\", \"request\": \"x\", \"needs\": [\"b\"]},\n{\"id\": \"b\", \"request\": \"y\", \"needs\": [\"a\"]}\n]"
)

// writing serves a planner whose model answers by a script.
func writing(t *testing.T, script fakellm.Script, registry registryv1.RegistryServiceClient, change func(*planner.Config)) (plannerv1.PlannerServiceClient, *fakellm.Server) {
	t.Helper()
	return writingWith(t, script, planner.Deps{Registry: registry}, change)
}

func writingWith(t *testing.T, script fakellm.Script, d planner.Deps, change func(*planner.Config)) (plannerv1.PlannerServiceClient, *fakellm.Server) {
	t.Helper()
	fake := fakellm.New(script)
	s := httptest.NewServer(fake)
	t.Cleanup(func() {
		require.NoError(t, fake.Close())
		s.Close()
	})
	cfg := planner.DefaultConfig()
	cfg.Models.Change("default", func(p *llm.Profile) { p.BaseURL, p.Model = s.URL+"/v1", "fake-1" })
	if change != nil {
		change(&cfg)
	}
	return clientWith(t, cfg, d), fake
}

// answers gives one text after the other, and then the last.
func answers(texts ...string) fakellm.Script {
	s := fakellm.Script{Default: fakellm.Reply{Text: texts[len(texts)-1]}}
	for _, text := range texts {
		s.Rules = append(s.Rules, fakellm.Rule{Times: 1, Reply: fakellm.Reply{Text: text, Usage: fakellm.Usage{Input: 100, Output: 10}}})
	}
	return s
}

func searchTool() *plannerv1.PlanTool {
	return &plannerv1.PlanTool{Name: "search", Description: "Searches the web", Schema: &graphv1.Payload{Json: []byte(`{"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": false}`)}}
}

func goal(change ...func(*plannerv1.CreatePlanRequest)) *plannerv1.CreatePlanRequest {
	req := &plannerv1.CreatePlanRequest{Goal: "Fly to Oslo", Tools: []*plannerv1.PlanTool{searchTool()}}
	for _, f := range change {
		f(req)
	}
	return req
}

func TestCreatePlan(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, c plannerv1.PlannerServiceClient, req *plannerv1.CreatePlanRequest) *plannerv1.CreatePlanResponse {
		t.Helper()
		r, err := c.CreatePlan(t.Context(), req)
		require.NoError(t, err)
		return r
	}
	t.Run("AnswersWithTheGraph", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound), nil, nil)
		r := create(t, c, goal(func(r *plannerv1.CreatePlanRequest) {
			r.Context, r.DefaultActor, r.Name = "Ada pays.", "agent", "trip"
			r.Named = map[string]*graphv1.Payload{"team": {Json: []byte(`"north"`)}}
		}))
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, r.GetAuthoring().GetEnd())
		require.Empty(t, r.GetAuthoring().GetMessage())
		nodes := r.GetGraph().GetNodes()
		require.Len(t, nodes, 2)
		require.Equal(t, "search", nodes[0].GetActor())
		require.Equal(t, "agent", nodes[1].GetActor())
		require.Equal(t, `"north"`, string(nodes[1].GetNamed()["team"].GetJson()))
		require.Equal(t, "trip", r.GetGraph().GetName())
		require.Len(t, r.GetGraphHash(), 64)
		require.Equal(t, "task_list", r.GetPlan().GetDialect(), "the notation of the instructions can be read while it is written")
		require.Equal(t, sound, r.GetText())
		told := fake.Requests()[0].Messages
		require.Contains(t, told[0].Content, "JSON list of tasks")
		for _, want := range []string{"Fly to Oslo", "Ada pays.", "- search: Searches the web", `"required":["q"]`} {
			require.Contains(t, told[1].Content, want)
		}
	})
	t.Run("TellsTheFaultsWithTheirPlaces", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(dangling, sound), nil, nil)
		r := create(t, c, goal())
		require.NotNil(t, r.GetGraph())
		rounds := r.GetAuthoring().GetRounds()
		require.Len(t, rounds, 2)
		require.Equal(t, "UNKNOWN_REFERENCE", rounds[0].GetDiagnostics()[0].GetCode())
		require.EqualValues(t, 200, r.GetAuthoring().GetInputTokens())
		require.EqualValues(t, 20, r.GetAuthoring().GetOutputTokens())
		require.Nil(t, r.GetAuthoring().CostNanoUsd, "without a registry no cost is known")
		told := fake.Requests()[1].Messages
		require.Equal(t, dangling, told[2].Content)
		for _, want := range []string{"line 3, column ", `UNKNOWN_REFERENCE "look"`, "Hint: ", `{"id": "pick"`} {
			require.Contains(t, told[3].Content, want)
		}
		require.Equal(t, told[3].Content, rounds[1].GetTold())
	})
	t.Run("ToolsAreChecked", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct{ text, code, says string }{
			"Unknown":  {strings.Replace(sound, `"search"`, `"serch"`, 1), "UNKNOWN_TOOL", `did you mean "search"?`},
			"Missing":  {strings.Replace(sound, `{"q": "OSL"}`, `{}`, 1), "ARGUMENT_INVALID", "q"},
			"Wrong":    {strings.Replace(sound, `"OSL"`, `7`, 1), "ARGUMENT_INVALID", "string"},
			"Surplus":  {strings.Replace(sound, `"OSL"`, `"OSL", "x": 1`, 1), "ARGUMENT_INVALID", "x"},
			"Referred": {strings.Replace(sound, `"request": "Pick one"`, `"request": "Pick one", "tool": "search", "args": {"z": "$find"}`, 1), "ARGUMENT_INVALID", `"q" is missing`},
		} {
			c, fake := writing(t, answers(tc.text, sound), nil, nil)
			r := create(t, c, goal())
			require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, r.GetAuthoring().GetEnd(), name)
			require.Len(t, fake.Requests(), 2, name)
			told := fake.Requests()[1].Messages[3].Content
			require.Contains(t, told, tc.code, name)
			require.Contains(t, told, tc.says, name)
		}
	})
	t.Run("WithoutToolsNoneMayBeNamed", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound, strings.Replace(sound, `"tool": "search", "args": {"q": "OSL"}, `, "", 1)), nil, nil)
		r := create(t, c, goal(func(r *plannerv1.CreatePlanRequest) { r.Tools = nil }))
		require.NotNil(t, r.GetGraph())
		require.NotContains(t, fake.Requests()[0].Messages[1].Content, "Tools:")
		require.Contains(t, fake.Requests()[1].Messages[3].Content, "no tools are given")
	})
	ends := func(name string, script fakellm.Script, rounds int, want plannerv1.AuthorEnd, says string, change ...func(*plannerv1.CreatePlanRequest)) {
		t.Run("Ends/"+name, func(t *testing.T) {
			t.Parallel()
			c, _ := writing(t, script, nil, nil)
			r := create(t, c, goal(change...))
			require.Nil(t, r.GetGraph())
			require.Empty(t, r.GetGraphHash())
			require.Equal(t, want, r.GetAuthoring().GetEnd())
			require.Contains(t, r.GetAuthoring().GetMessage(), says)
			require.Len(t, r.GetAuthoring().GetRounds(), rounds)
		})
	}
	limit := func(l *plannerv1.AuthorLimits) func(*plannerv1.CreatePlanRequest) {
		return func(r *plannerv1.CreatePlanRequest) { r.Limits = l }
	}
	ends("SameFaults", answers(dangling, strings.ReplaceAll(dangling, "flight", "train")), 2, plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS, "same faults")
	ends("FaultsThatTakeTurns", answers(dangling, cyclic, dangling), 3, plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS, "same faults")
	ends("Rounds", answers(dangling, cyclic), 2, plannerv1.AuthorEnd_AUTHOR_END_ROUNDS, "2 answers", limit(&plannerv1.AuthorLimits{MaxRounds: 2}))
	ends("Tokens", answers(dangling, cyclic), 0, plannerv1.AuthorEnd_AUTHOR_END_TOKENS, "500 tokens", limit(&plannerv1.AuthorLimits{MaxTokens: 500}))
	ends("TokensAfterARound", fakellm.Script{Default: fakellm.Reply{Text: dangling, Usage: fakellm.Usage{Input: 900, Output: 200}}}, 1, plannerv1.AuthorEnd_AUTHOR_END_TOKENS, "1200 tokens", limit(&plannerv1.AuthorLimits{MaxTokens: 1200}))
	ends("Time", fakellm.Script{Default: fakellm.Reply{Fault: fakellm.Hang}}, 0, plannerv1.AuthorEnd_AUTHOR_END_TIME, "200ms", limit(&plannerv1.AuthorLimits{Timeout: durationpb.New(200 * time.Millisecond)}))
	ends("Declined", fakellm.Script{Default: fakellm.Reply{Refusal: "I will not."}}, 1, plannerv1.AuthorEnd_AUTHOR_END_DECLINED, "I will not.")
	ends("ModelFailed", fakellm.Script{Default: fakellm.Reply{Fault: fakellm.Unauthorized}}, 0, plannerv1.AuthorEnd_AUTHOR_END_MODEL_FAILED, "did not answer")
	ends("NoPlan", answers("Nice weather today."), 2, plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS, "same faults")
	t.Run("AnAnswerThatWasCutOffIsNoPlan", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, fakellm.Script{Rules: []fakellm.Rule{{Times: 1, Reply: fakellm.Reply{Text: sound, FinishReason: "length"}}}, Default: fakellm.Reply{Text: sound}}, nil, nil)
		require.NotNil(t, create(t, c, goal()).GetGraph())
		require.Contains(t, fake.Requests()[1].Messages[3].Content, "cut off at its limit")
	})
	t.Run("AnEmptyAnswerIsToldInThePrompt", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(" ", sound), nil, nil)
		require.NotNil(t, create(t, c, goal()).GetGraph())
		told := fake.Requests()[1].Messages
		require.Len(t, told, 2)
		require.Contains(t, told[1].Content, "NO_PLAN")
	})
	t.Run("WhatTheModelIsToldIsBounded", func(t *testing.T) {
		t.Parallel()
		long := "[\n" + strings.Repeat("{\"id\": \"a\", \"request\": \"x\", \"needs\": [\""+strings.Repeat("y", 5000)+"\"]},\n", 200) + "{\"id\": \"b\", \"request\": \"x\", \"needs\": []}\n]"
		c, fake := writing(t, answers(long, sound), nil, nil)
		require.NotNil(t, create(t, c, goal()).GetGraph())
		told := fake.Requests()[1].Messages
		require.LessOrEqual(t, len(told[2].Content), 64<<10+len("…"))
		require.LessOrEqual(t, len(told[3].Content), 32<<10)
		require.Contains(t, told[3].Content, "more")
	})
	t.Run("ALargePromptIsRefused", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound), nil, nil)
		_, err := c.CreatePlan(t.Context(), goal(func(r *plannerv1.CreatePlanRequest) { r.Context = strings.Repeat("x", 300<<10) }))
		require.Equal(t, "PROMPT_TOO_LARGE", errs.ReasonOf(err))
		require.Empty(t, fake.Requests())
	})
	t.Run("BadRequestsAreRefused", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound), nil, nil)
		for _, tc := range []struct {
			reason string
			change func(*plannerv1.CreatePlanRequest)
		}{
			{"UNKNOWN_PROFILE", func(r *plannerv1.CreatePlanRequest) { r.Profile = "nobody" }},
			{"TOOLS_INVALID", func(r *plannerv1.CreatePlanRequest) {
				r.Tools = append(r.Tools, searchTool(), &plannerv1.PlanTool{Name: "x", Schema: &graphv1.Payload{Json: []byte(`{"type": 7}`)}})
			}},
			{"TOOLS_INVALID", func(r *plannerv1.CreatePlanRequest) { r.Tools[0].Schema.Json = []byte("{") }},
			{"GRAPH_INVALID", func(r *plannerv1.CreatePlanRequest) {
				r.Named = map[string]*graphv1.Payload{"x": {Json: []byte("{")}}
			}},
			{"PRICE_UNKNOWN", limit(&plannerv1.AuthorLimits{MaxCostNanoUsd: proto.Int64(1)})},
		} {
			_, err := c.CreatePlan(t.Context(), goal(tc.change))
			require.Equal(t, tc.reason, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.InvalidArgument) || errs.Is(err, errs.FailedPrecondition), "got %v", err)
		}
		require.Empty(t, fake.Requests())
	})
	t.Run("OneNamespaceHasFourAtOnce", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, fakellm.Script{Rules: []fakellm.Rule{{Match: "picnic", Reply: fakellm.Reply{Fault: fakellm.Hang}}}, Default: fakellm.Reply{Text: sound}}, nil, nil)
		crowd, end := context.WithCancel(t.Context())
		ended := make(chan error, 12)
		for range cap(ended) {
			go func() {
				_, err := c.CreatePlan(grpckit.WithNamespace(crowd, "a"), goal(func(r *plannerv1.CreatePlanRequest) { r.Goal = "picnic" }))
				ended <- err
			}()
		}
		testkit.Eventually(t, func() bool { return len(fake.Requests()) == 4 })
		_, err := c.CreatePlan(grpckit.WithNamespace(t.Context(), "b"), goal())
		require.NoError(t, err)
		require.Len(t, fake.Requests(), 5)
		end()
		for range cap(ended) {
			require.Error(t, <-ended)
		}
	})
	t.Run("TemplatesMayBeReplaced", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound), nil, func(c *planner.Config) {
			c.Author.Instructions, c.Author.Prompt = "Plan as JSON.", "Do this: {goal}\n\nBy the way: {context}\n\nWith {tools}"
		})
		require.NotNil(t, create(t, c, goal(func(r *plannerv1.CreatePlanRequest) { r.Goal = "say {context}" })).GetGraph())
		told := fake.Requests()[0].Messages
		require.Equal(t, "Plan as JSON.", told[0].Content)
		require.True(t, strings.HasPrefix(told[1].Content, "Do this: say {context}\n\nWith - search"), told[1].Content)
	})
}

// ledger is a registry that knows one price: 10 nano-USD for a token.
type ledger struct {
	registryv1.UnimplementedRegistryServiceServer
	mu     sync.Mutex
	booked map[string][]*registryv1.UsageEntry
	away   bool
	// bounds says that there is a cap, capped that it leaves no room.
	bounds, capped bool
}

func (l *ledger) PriceUsage(_ context.Context, req *registryv1.PriceUsageRequest) (*registryv1.PriceUsageResponse, error) {
	return &registryv1.PriceUsageResponse{Entries: l.price(req.GetEntries())}, nil
}

func (l *ledger) RecordUsage(ctx context.Context, req *registryv1.RecordUsageRequest) (*registryv1.RecordUsageResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, errs.New(errs.Unavailable, "AWAY", "away")
	}
	if l.booked == nil {
		l.booked = map[string][]*registryv1.UsageEntry{}
	}
	l.booked[grpckit.Namespace(ctx)] = req.GetEntries()
	return &registryv1.RecordUsageResponse{Entries: l.price(req.GetEntries())}, nil
}

func (l *ledger) ReserveUsage(_ context.Context, req *registryv1.ReserveUsageRequest) (*registryv1.ReserveUsageResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, errs.New(errs.Unavailable, "AWAY", "away")
	}
	r := &registryv1.UsageReservation{Capped: l.bounds || l.capped}
	if l.capped {
		r.Refusal = &registryv1.BudgetRefusal{Budget: "namespace", Message: "namespace has spent 5 of 5"}
	}
	return &registryv1.ReserveUsageResponse{Reservations: []*registryv1.UsageReservation{r}}, nil
}

func (l *ledger) ReleaseUsage(context.Context, *registryv1.ReleaseUsageRequest) (*registryv1.ReleaseUsageResponse, error) {
	return &registryv1.ReleaseUsageResponse{}, nil
}

func (l *ledger) price(in []*registryv1.UsageEntry) (out []*registryv1.UsageEntry) {
	for _, e := range in {
		e = proto.CloneOf(e)
		if e.GetProvider() == "openai" && e.GetModel() == "fake-1" {
			e.CostNanoUsd = proto.Int64(10 * (e.GetInputTokens() + e.GetOutputTokens()))
		}
		out = append(out, e)
	}
	return out
}

func (l *ledger) client(t *testing.T) registryv1.RegistryServiceClient {
	t.Helper()
	return registryv1.NewRegistryServiceClient(served(t, "registry", func(r grpc.ServiceRegistrar) { registryv1.RegisterRegistryServiceServer(r, l) }))
}

func TestCreatePlanCosts(t *testing.T) {
	t.Parallel()
	t.Run("IsPricedAndBookedOnce", func(t *testing.T) {
		t.Parallel()
		l := &ledger{}
		c, _ := writing(t, answers(dangling, sound), l.client(t), nil)
		r, err := c.CreatePlan(grpckit.WithNamespace(t.Context(), "north"), goal())
		require.NoError(t, err)
		require.EqualValues(t, 2200, r.GetAuthoring().GetCostNanoUsd())
		require.EqualValues(t, 1100, r.GetAuthoring().GetRounds()[1].GetCostNanoUsd())
		booked := l.booked["north"]
		require.Len(t, booked, 2)
		for i, e := range booked {
			require.Equal(t, r.GetAuthoring().GetUsageId(), e.GetRunId())
			require.EqualValues(t, i, e.GetCall())
			require.Equal(t, registryv1.UsageKind_USAGE_KIND_OVERHEAD, e.GetKind())
			require.EqualValues(t, 100, e.GetInputTokens())
		}
	})
	t.Run("ALimitOfMoneyIsKeptBeforeTheCall", func(t *testing.T) {
		t.Parallel()
		l := &ledger{}
		c, fake := writing(t, answers(dangling, sound), l.client(t), nil)
		ask := func(most int64) *plannerv1.Authoring {
			r, err := c.CreatePlan(t.Context(), goal(func(r *plannerv1.CreatePlanRequest) { r.Limits = &plannerv1.AuthorLimits{MaxCostNanoUsd: &most} }))
			require.NoError(t, err)
			return r.GetAuthoring()
		}
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COST, ask(1000).GetEnd())
		require.Empty(t, fake.Requests())
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, ask(1e6).GetEnd())
	})
	t.Run("ACapOfTheNamespaceIsAskedBeforeTheCall", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(sound), (&ledger{capped: true}).client(t), nil)
		r, err := c.CreatePlan(t.Context(), goal())
		require.NoError(t, err)
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COST, r.GetAuthoring().GetEnd())
		require.Contains(t, r.GetAuthoring().GetMessage(), "namespace has spent 5 of 5")
		require.Empty(t, fake.Requests())
	})
	t.Run("ARegistryThatIsAwayHoldsBackTheCallsOfANamespaceWithCaps", func(t *testing.T) {
		t.Parallel()
		l := &ledger{bounds: true}
		c, fake := writing(t, answers(sound, sound), l.client(t), nil)
		_, err := c.CreatePlan(grpckit.WithNamespace(t.Context(), "capped"), goal())
		require.NoError(t, err)
		l.mu.Lock()
		l.away = true
		l.mu.Unlock()
		_, err = c.CreatePlan(grpckit.WithNamespace(t.Context(), "capped"), goal())
		require.Equal(t, "REGISTRY_UNAVAILABLE", errs.ReasonOf(err))
		require.Len(t, fake.Requests(), 1)
		_, err = c.CreatePlan(grpckit.WithNamespace(t.Context(), "free"), goal())
		require.NoError(t, err, "no cap is known of")
	})
	t.Run("AnUnknownPriceRefusesALimitOfMoney", func(t *testing.T) {
		t.Parallel()
		l := &ledger{}
		c, fake := writing(t, answers(sound), l.client(t), func(c *planner.Config) {
			c.Author.MaxCost = 1e9
			c.Models.Change("default", func(p *llm.Profile) { p.PriceKey = "elsewhere" })
		})
		_, err := c.CreatePlan(t.Context(), goal())
		require.Equal(t, "PRICE_UNKNOWN", errs.ReasonOf(err))
		require.Empty(t, fake.Requests())
	})
	t.Run("ARegistryThatIsAwayLosesNoPlan", func(t *testing.T) {
		t.Parallel()
		l := &ledger{away: true}
		c, _ := writing(t, answers(sound), l.client(t), nil)
		r, err := c.CreatePlan(t.Context(), goal())
		require.NoError(t, err)
		require.NotNil(t, r.GetGraph())
		require.Empty(t, r.GetAuthoring().GetUsageId())
		require.Nil(t, r.GetAuthoring().CostNanoUsd)
	})
}

func TestAuthorConfig(t *testing.T) {
	t.Parallel()
	cfg := planner.DefaultConfig()
	cfg.Author.Rounds, cfg.Author.Timeout, cfg.Author.Prompt = 0, 0, "{aim}"
	err := cfg.Validate()
	for _, want := range []string{"planner.author: rounds", "timeout must be positive", "prompt: {goal} is missing"} {
		require.ErrorContains(t, err, want)
	}
	cfg.Author.Prompt = "{goal} {user}"
	require.ErrorContains(t, cfg.Validate(), "{user} is no placeholder")
	cfg = planner.DefaultConfig()
	cfg.Author.Profile = "nobody"
	_, err = planner.Open(t.Context(), cfg, planner.Deps{})
	require.ErrorContains(t, err, "planner.author.profile")
}
