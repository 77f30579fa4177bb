package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestCache(t *testing.T) {
	t.Parallel()
	cacheOf := func(t *testing.T, src string) *workgraph.Cache {
		t.Helper()
		g := compiled(t, src)
		return g.Nodes[len(g.Nodes)-1].Cache
	}
	const agent = "name: x\ninputs: {topic: {type: string}}\nsteps:\n- {id: a, type: agent, prompt: \"Write about {{ inputs.topic }}\", cache: "
	hour := workgraph.Duration(time.Hour)
	t.Run("Forms", func(t *testing.T) {
		for said, want := range map[string]workgraph.Cache{
			"1h}":                          {TTL: hour},
			"{ttl: 1h}}":                   {TTL: hour},
			"{ttl: 1h, scope: chat}}":      {TTL: hour},
			"{ttl: 2d, scope: user}}":      {TTL: 48 * hour, Scope: workgraph.CacheForUser},
			"{ttl: 1h, scope: namespace}}": {TTL: hour, Scope: workgraph.CacheForNamespace},
			"{ttl: 1h, key: \"{{ inputs.topic }}\"}}": {TTL: hour, Key: `nodes["inputs"].result["topic"]`},
		} {
			got := cacheOf(t, agent+said+"\n")
			require.NotNil(t, got, said)
			require.Equal(t, want.TTL, got.TTL, said)
			require.Equal(t, want.Scope, got.Scope, said)
			require.Equal(t, want.Key != "", got.Key != "", "%s: %s", said, got.Key)
		}
	})
	t.Run("Steps/OfEveryTypeThatCalls", func(t *testing.T) {
		for _, step := range []string{"type: http, url: http://x", "type: actor, actor: llm, with: {request: hi}", "type: workflow, workflow: other@1", "type: categorizer, prompt: hi, categories: [a, b]",
			"type: extractor, prompt: hi, schema: {n: {type: integer}}", "type: code, code: result = 1", "type: deep_agent, prompt: hi"} {
			require.NotNil(t, cacheOf(t, "name: x\nsteps:\n- {id: a, "+step+", cache: 1h}\n"), step)
		}
	})
	t.Run("Member/ThatIsAWorkflow", func(t *testing.T) {
		g := compiled(t, `
name: x
agents:
  a: {instructions: hi}
  b: {cache: {ttl: 1h, scope: user}, workflow: {name: y, inputs: {task: {type: string}}, steps: [{type: transform, value: "{{ inputs.task }}"}]}}
graph: {transitions: ["a -> b"]}
task: hi
`)
		require.Contains(t, string(g.Nodes[len(g.Nodes)-1].Named["team"]), `"cache":{"ttl":"1h0m0s","scope":"USER"}`)
	})
	t.Run("Refused/ByName", func(t *testing.T) {
		for src, want := range map[string]string{
			"- {type: human, message: hi, cache: 1h}":                                                         "asks a person each time",
			"- {type: wait, delay: 1s, cache: 1h}":                                                            "only waits",
			"- {type: loop, over: inputs.l, as: x, cache: 1h, body: [{type: wait, delay: 1s}]}":               "the steps of its body may have",
			"- {type: map, over: inputs.l, as: x, cache: 1h, body: [{type: wait, delay: 1s}]}":                "the steps of its body may have",
			"- {type: transform, value: 1, cache: 1h}":                                                        "nothing is called for its result",
			"- {type: agent, prompt: hi, memory: true, cache: 1h}":                                            "goes on with a conversation",
			"- {type: agent, prompt: hi, cache: 0s}":                                                          "no time for which a result could be kept",
			"- {type: agent, prompt: hi, cache: {scope: user}}":                                               "needs `ttl`",
			"- {type: agent, prompt: hi, cache: {ttl: 1h, scope: all}}":                                       "scope",
			"- {type: agent, prompt: hi, cache: {ttl: 1h, key: \"{{ nobody.x }}\"}}":                          "nobody",
			"- {type: agent, prompt: hi, cache: {ttl: 1h, key: \"1 +\"}}":                                     "the expression cannot be used",
			"- {type: agent, prompt: hi, cache: [1h]}":                                                        "must be a text",
			"- {type: best_of, n: 2, body: [{type: agent, prompt: hi, cache: 1h}], score: \"result.size()\"}": "would all be the same one",
		} {
			d, faults := workflow.Read([]byte("name: x\ninputs: {l: {type: array}}\nsteps:\n" + src + "\n"))
			if len(faults) == 0 {
				_, faults = workflow.Compile(d)
			}
			require.NotEmpty(t, faults, src)
			all := make([]string, len(faults))
			for i := range faults {
				all[i] = faults[i].Message + " " + faults[i].Hint
			}
			require.Contains(t, strings.Join(all, "\n"), want, src)
		}
	})
}
