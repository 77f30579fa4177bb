package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestMeaning has a model that makes vectors: what an agent writes, and what a client writes, is found
// by other words.
func TestMeaning(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{store: store, env: []string{"EPIGRAPH_MODELS_EMBEDS=default"}, script: fakellm.Script{Vectors: []fakellm.Vector{
				{Match: "tea", Values: []float32{1, 0, 0}}, {Match: "beverage", Values: []float32{0.9, 0.1, 0}},
				{Match: "chess", Values: []float32{0, 1, 0}}, {Match: "pastime", Values: []float32{0.1, 0.9, 0}}, {Values: []float32{0, 0, 1}},
			}}})
			// act has an agent call an actor, and returns what the actor has answered.
			act := func(t *testing.T, actor, arguments string) (out struct {
				Success  bool
				Memories []struct{ Key, Text string }
				Note     string
			}) {
				t.Helper()
				expr := `named.round == 1 ? dyn({'actions': [[{'action': 'act', 'arguments': ` + arguments + `}]]}) : dyn({'result': named.action_results[0].ok})`
				body, err := json.Marshal(map[string]any{"graph": map[string]any{"name": "acts", "nodes": []any{map[string]any{"id": "agent", "actor": "agent", "named": map[string]any{
					"goal": "remember", "reasoner": "cel", "reasoner_args": map[string]any{"expr": expr}, "actions": map[string]any{"act": map[string]any{"actor": actor}},
				}}}}})
				require.NoError(t, err)
				r := s.awaitEnd(t, s.run(t, string(body)).ID)
				require.Equal(t, "RUN_STATE_COMPLETED", r.State, "%+v", r.Error)
				require.NoError(t, json.Unmarshal(r.Result, &out), string(r.Result))
				require.True(t, out.Success, string(r.Result))
				require.Empty(t, out.Note)
				return out
			}
			act(t, "memory_write", `{'key': 'ann', 'value': 'likes tea'}`)
			found := act(t, "memory_read", `{'query': 'a beverage'}`).Memories
			require.NotEmpty(t, found, "by words alone there is nothing")
			require.Equal(t, "likes tea", found[0].Text)

			// What a client writes gets its vector by and by, and both are there then.
			s.ask(t, request{path: "/v1/memory", body: map[string]any{"memory": map[string]any{"scope": map[string]any{"level": "MEMORY_LEVEL_NAMESPACE"}, "key": "bob", "text": "plays chess"}}}, nil)
			testkit.Within(t, timeout, 500*time.Millisecond, func() bool {
				found := act(t, "memory_read", `{'query': 'some pastime'}`).Memories
				return len(found) == 2 && found[0].Text == "plays chess" && found[1].Text == "likes tea"
			})
			// No other model is called, so all tokens are those of vectors.
			testkit.Within(t, timeout, 500*time.Millisecond, func() bool { return s.namespaceUsage(t).SpentTokens > 0 })
		})
	}
}
