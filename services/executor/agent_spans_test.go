package executor_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
)

// spanTree finds spans by what is above and below them.
type spanTree struct {
	all []tracetest.SpanStub
}

func (s spanTree) named(name string) (out []tracetest.SpanStub) {
	for _, one := range s.all {
		if one.Name == name {
			out = append(out, one)
		}
	}
	return out
}

func (s spanTree) one(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	found := s.named(name)
	require.Len(t, found, 1, name)
	return found[0]
}

func (s spanTree) parent(of tracetest.SpanStub) string {
	for _, one := range s.all {
		if one.SpanContext.SpanID() == of.Parent.SpanID() {
			return one.Name
		}
	}
	return ""
}

// below are the names of the spans right below one, in order.
func (s spanTree) below(of tracetest.SpanStub) (out []string) {
	for _, one := range s.all {
		if one.Parent.SpanID() == of.SpanContext.SpanID() {
			out = append(out, one.Name)
		}
	}
	slices.Sort(out)
	return out
}

// told are the attributes of a span by the conventions for generative AI.
func told(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, kv := range s.Attributes {
		if name, ok := strings.CutPrefix(string(kv.Key), "gen_ai."); ok {
			out[name] = kv.Value.String()
		}
	}
	return out
}

// TestAgentSpans follows an agent of the configuration that calls tools of three kinds: HTTP, an MCP server
// and another agent.
func TestAgentSpans(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`"sunny"`)) }))
	t.Cleanup(web.Close)
	calls := func(list ...fakellm.ToolCall) fakellm.Reply { return fakellm.Reply{ToolCalls: list} }
	fake := fakellm.New(fakellm.Script{Rules: []fakellm.Rule{
		{Match: "look around", Reply: fakellm.Reply{Text: "nobody"}},
		{After: "nobody", Reply: fakellm.Reply{Text: "all told"}},
		{After: "hello", Reply: fakellm.Reply{Text: "all told"}},
		{After: "sunny", Reply: calls(fakellm.ToolCall{ID: "call_2", Name: "greet", Arguments: `{"who": "ada"}`}, fakellm.ToolCall{ID: "call_3", Name: "scout", Arguments: `{"user_input": "look around"}`})},
		{Match: "my secret wish", Reply: calls(fakellm.ToolCall{ID: "call_1", Name: "weather", Arguments: `{}`})},
	}})
	model := httptest.NewServer(fake)
	t.Cleanup(model.Close)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	f := serve(t, nil, withTools(toolServer(t, "127.0.0.1:0")), func(c *executor.Config) {
		c.Models.Change(c.Models.Default, func(p *llm.Profile) { p.BaseURL, p.Model = model.URL+"/v1", "fake-1" })
		c.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
		c.Actors.Agents = agent.Config{
			"scout": {Definition: `{"form": "tools", "actions": {"weather": {"actor": "http", "named": {"url": "` + web.URL + `"}}}}`},
			"boss": {Definition: `{"form": "tools", "actions": {"weather": {"actor": "http", "named": {"url": "` + web.URL + `"}},
				"greet": {"actor": "mcp/hi/greet"}, "scout": {"actor": "agent/scout"}}}`},
		}
	})
	run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "agent/boss", `{"user_input": "my secret wish"}`))})
	require.NoError(t, err)
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.JSONEq(t, `"all told"`, string(run.GetResult().GetJson()))
	var tree spanTree
	testkit.Eventually(t, func() bool {
		tree = spanTree{f.spans.GetSpans()}
		// The start of a child is known a little later than what it does.
		return len(tree.named("invoke_agent agent/boss")) == 1 && len(tree.named("invoke_agent agent/scout")) == 1 && !slices.ContainsFunc(tree.all, func(s tracetest.SpanStub) bool {
			return s.Parent.IsValid() && tree.parent(s) == ""
		})
	})

	t.Run("Tools/EachIsOneSpanAboveWhatItDoes", func(t *testing.T) {
		for _, c := range []struct{ tool, call, below string }{{"weather", "call_1", "HTTP GET"}, {"greet", "call_2", "tools/call greet"}, {"scout", "call_3", "run.start"}} {
			span := tree.one(t, "execute_tool "+c.tool)
			require.Equal(t, "run.start", tree.parent(span))
			require.Equal(t, []string{c.below}, tree.below(span))
			got := told(span)
			require.Regexp(t, "^thr_", got["conversation.id"])
			delete(got, "conversation.id")
			require.Equal(t, map[string]string{"operation.name": "execute_tool", "agent.name": "agent/boss", "tool.name": c.tool, "tool.type": "function", "tool.call.id": c.call}, got)
		}
		require.Equal(t, map[string]string{"tool.name": "greet"}, told(tree.one(t, "tools/call greet")), "one span of the two is the execution")
	})
	t.Run("Agents/HaveASpanEachWithTheirThreads", func(t *testing.T) {
		boss, scout := tree.one(t, "invoke_agent agent/boss"), tree.one(t, "invoke_agent agent/scout")
		require.Equal(t, "run.start", tree.parent(boss))
		require.Equal(t, "run.start", tree.parent(scout))
		require.NotEqual(t, told(boss)["conversation.id"], told(scout)["conversation.id"])
		require.Equal(t, told(boss)["conversation.id"], told(tree.one(t, "execute_tool greet"))["conversation.id"])
		asked := map[string]int{}
		for _, chat := range tree.named("chat fake-1") {
			require.Equal(t, "invoke llm", tree.parent(chat))
			got := told(chat)
			asked[got["agent.name"]+" "+got["conversation.id"]]++
		}
		require.Equal(t, map[string]int{"agent/boss " + told(boss)["conversation.id"]: 3, "agent/scout " + told(scout)["conversation.id"]: 1}, asked)
	})
	t.Run("Content/IsInNoSpan", func(t *testing.T) {
		for _, s := range tree.all {
			for _, kv := range s.Attributes {
				for _, secret := range []string{"secret wish", "sunny", "ada", "nobody", "all told"} {
					require.NotContains(t, kv.Value.String(), secret, "%s %s", s.Name, kv.Key)
				}
			}
		}
	})
	t.Run("Metrics/AreByAgentAndTool", func(t *testing.T) {
		var got metricdata.ResourceMetrics
		require.NoError(t, f.metrics.Collect(t.Context(), &got))
		var series []string
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				h, ok := m.Data.(metricdata.Histogram[float64])
				if !ok || m.Name != "gen_ai.invoke_agent.duration" && m.Name != "gen_ai.execute_tool.duration" {
					continue
				}
				require.Equal(t, "s", m.Unit)
				for _, p := range h.DataPoints {
					require.EqualValues(t, 1, p.Count)
					series = append(series, m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder()))
				}
			}
		}
		slices.Sort(series)
		require.Equal(t, []string{
			"gen_ai.execute_tool.duration gen_ai.agent.name=agent/boss,gen_ai.tool.name=greet,gen_ai.tool.type=function",
			"gen_ai.execute_tool.duration gen_ai.agent.name=agent/boss,gen_ai.tool.name=weather,gen_ai.tool.type=function",
			"gen_ai.invoke_agent.duration gen_ai.agent.name=agent/boss,gen_ai.operation.name=invoke_agent",
			"gen_ai.invoke_agent.duration gen_ai.agent.name=agent/scout,gen_ai.operation.name=invoke_agent",
		}, series)
	})
}
