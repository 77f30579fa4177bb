package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/mcp"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/starlark"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/workgraph"
)

const examples = "../../../../../examples/agent/"

func TestExamples(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"graph.json":    `"together they cost 31"`,
		"react.json":    `"Together they cost 31."`,
		"sequence.json": `["initial", "A1", ["B1", "B2"]]`,
		"branches.json": `"north asks 7; south asks 5"`,
		"nested.json":   `"At the market: most people for the rent."`,
		"plan.json":     `"compare them knows 2: NORTH, SOUTH"`,
		"dispatch.json": `"go south"`,
		"memory.json": `"Ada pays in cash.\nMemory: Tea costs 7.\n\nResults:\n<ActionResults>\n  <Action>\n    <ActionType>look</ActionType>\n` +
			`    <ActionResult>{\"action_memory\":{\"memory\":\"Tea costs 7.\"},\"page\":\"long\"}</ActionResult>\n  </Action>\n</ActionResults>"`,
		"ask.json":      `"User: Order a coffee.\nAgent: Which size?\nUser: large"`,
		"approve.json":  `"paid 7 to bob"`,
		"named.json":    `"The Nile is 6650 km long."`,
		"handover.json": `"You get 20 back."`,
		"signals.json":  `"Planned: onboard Acme Corp"`,
		"starlark.json": `{"Bergen": 500, "Oslo": 730}`,
	}
	files, err := filepath.Glob(examples + "*.json")
	require.NoError(t, err)
	require.Len(t, files, len(want)+1, "all but mcp.json, which needs a server")
	for name, result := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(examples + name)
			require.NoError(t, err)
			g, err := workgraph.Decode(raw)
			require.NoError(t, err)
			e := newEnv(t, workgraph.Actors{"llm": recorded(t, examples+"nested.jsonl")})
			raw, err = os.ReadFile(examples + "agents.yaml")
			require.NoError(t, err)
			specs, err := namedAgents(t, raw).Specs(nil)
			require.NoError(t, err)
			reg, err := actor.NewRegistry(append(specs, template.Spec(), starlark.Spec(starlark.DefaultConfig()))...)
			require.NoError(t, err)
			for _, s := range reg.Specs() {
				info, _ := reg.ActorInfo(s.Name)
				e.all[s.Name] = described{t, s.Actor, info, e}
			}
			res, err := workgraph.Run(t.Context(), g, e.all, workgraph.Input{}, workgraph.WithInterrupts(func(_ context.Context, q workgraph.OpenedInterrupt) (workgraph.Answer, error) {
				if len(q.Interrupt.Approve) > 0 {
					return workgraph.Answer{Decision: workgraph.Approved, By: "ada"}, nil
				}
				return workgraph.Answer{Value: json.RawMessage(`"large"`)}, nil
			}))
			require.NoError(t, err)
			done(t, res, result)
		})
	}
}

// TestFirstAgent runs the agent with which docs/agents.md begins.
func TestFirstAgent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../../docs/agents.md")
	require.NoError(t, err)
	_, rest, _ := bytes.Cut(page, []byte("```yaml\n"))
	raw, _, found := bytes.Cut(rest, []byte("```"))
	require.True(t, found)
	specs, err := namedAgents(t, raw).Specs(nil)
	require.NoError(t, err)
	model := &reasoner{script: []string{`{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "forecast", "arguments": {"query": {"latitude": 59.9, "longitude": 10.7, "hourly": "rain"}}}]}`,
		`{"role": "assistant", "content": "No rain in Oslo."}`}}
	api := says(`{"status": 200, "body": {"hourly": {"rain": [0, 0]}}}`)
	e := newEnv(t, workgraph.Actors{"llm": model, "http": api})
	reg, err := actor.NewRegistry(specs...)
	require.NoError(t, err)
	info, _ := reg.ActorInfo("agent/weather")
	e.all["agent/weather"] = described{t, specs[0].Actor, info, e}
	g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "w", Actor: "agent/weather", Named: map[string]json.RawMessage{"user_input": json.RawMessage(`"Rain in Oslo?"`)}}}}
	res, err := workgraph.Run(t.Context(), g, e.all, workgraph.Input{})
	require.NoError(t, err)
	done(t, res, `"No rain in Oslo."`)
	require.Len(t, api.calls, 1)
	require.JSONEq(t, `{"method": "GET", "url": "https://api.open-meteo.com/v1/forecast", "query": {"latitude": 59.9, "longitude": 10.7, "hourly": "rain"}, "previous_action_results": []}`, api.calls[0])
	require.Contains(t, string(model.asked[1]["messages"]), `"rain\":[0,0]`)
}

// namedAgents are those of a configuration.
func namedAgents(t *testing.T, raw []byte) agent.Config {
	t.Helper()
	var file struct {
		Executor struct {
			Actors struct {
				Agents agent.Config
				MCP    mcp.Config `conf:"mcp"`
			}
		}
	}
	src := conf.Sources{File: filepath.Join(t.TempDir(), "epigraph.yaml")}
	require.NoError(t, os.WriteFile(src.File, raw, 0o600))
	require.NoError(t, conf.Load(&file, src))
	return file.Executor.Actors.Agents
}

// recorded is a model that answers as a cassette says. TestTree of cmd/epigraph records it.
func recorded(t *testing.T, file string) workgraph.Actor {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	answers := map[string]string{}
	for line := range bytes.Lines(raw) {
		var e struct {
			Request  llm.Request
			Response llm.Response
		}
		require.NoError(t, json.Unmarshal(line, &e))
		if n := len(e.Request.Messages); n > 0 {
			answers[e.Request.Messages[n-1].Content] = e.Response.Message.Content
		}
	}
	return workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		var prompt string
		if err := json.Unmarshal(c.Named["request"], &prompt); err != nil {
			return workgraph.Outcome{}, err
		}
		said, ok := answers[prompt]
		if !ok {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NOT_RECORDED", "record the cassette anew with go test ./cmd/epigraph -run TestTree -update: %s", prompt)
		}
		v, err := json.Marshal(said)
		return workgraph.Outcome{Values: []json.RawMessage{v}}, err
	})
}
