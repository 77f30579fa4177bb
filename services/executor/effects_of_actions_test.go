package executor_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// What a model writes must not make a call do more than the action does by itself, whatever the form of the
// decision.
func TestEffectsOfActions(t *testing.T) {
	t.Parallel()
	var posts atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
	}))
	t.Cleanup(web.Close)
	f := serve(t, nil, func(c *executor.Config) { c.Actors.HTTP.AllowPrivate = []string{"127.0.0.1/32"} })
	agent := func(t *testing.T, action, decision string) *graphv1.Node {
		script, err := json.Marshal("def main(round, request):\n    if round == 1:\n        return " + decision + "\n    return {\"result\": request}\n")
		require.NoError(t, err)
		return actorNode("a", "agent", `{"user_input": "x", "branch": false, "allow_graph": true, "reasoner": "starlark", "reasoner_args": {"script": `+string(script)+`},
			"actions": {"h": {"actor": "http", `+strings.ReplaceAll(action, "URL", web.URL)+`}}}`)
	}
	const open, post = `"named": {"url": "URL"}`, `{"method": "POST"}`
	for _, c := range []struct {
		name, action, decision string
		effect                 graphv1.Effect
		posts                  int32
		refused                string
	}{
		{"Alone", open, `{"actions": [{"action": "h", "arguments": ` + post + `}]}`, graphv1.Effect_EFFECT_PURE, 0, "UNSAFE, and the action is PURE"},
		{"Groups", open, `{"actions": [[{"action": "h", "arguments": ` + post + `}, {"action": "h"}]]}`, graphv1.Effect_EFFECT_PURE, 0, "UNSAFE, and the action is PURE"},
		{"LongNumber", open, `{"actions": [{"action": "h", "arguments": {"method": "POST", "json": 12345678901234567890123}}]}`, graphv1.Effect_EFFECT_PURE, 0, "UNSAFE, and the action is PURE"},
		{"Graph", open, `{"graph": {"nodes": [{"id": "x", "actor": "h", "named": ` + post + `}]}}`, graphv1.Effect_EFFECT_PURE, 0, "UNSAFE, and the action is PURE"},
		{"DeclaredWeaker", open + `, "effect": "IDEMPOTENT"`, `{"actions": [["h", {"action": "h", "arguments": ` + post + `}]]}`, graphv1.Effect_EFFECT_IDEMPOTENT, 0, "UNSAFE, and the action is IDEMPOTENT"},
		{"DeclaredUnsafe", open + `, "effect": "UNSAFE"`, `{"actions": [["h", {"action": "h", "arguments": ` + post + `}]]}`, graphv1.Effect_EFFECT_UNSAFE, 1, ""},
		{"FixedPost", `"named": {"url": "URL", "method": "POST"}`, `{"actions": [["h", "h"]]}`, graphv1.Effect_EFFECT_UNSAFE, 2, ""},
		{"FixedPostDeclaredIdempotent", `"effect": "IDEMPOTENT", "named": {"url": "URL", "method": "POST"}`, `{"actions": [["h", "h"]]}`, graphv1.Effect_EFFECT_IDEMPOTENT, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := posts.Load()
			n := agent(t, c.action, c.decision)
			v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: nodes(n)})
			require.NoError(t, err)
			require.Empty(t, v.GetFaults())
			require.Equal(t, max(c.effect, graphv1.Effect_EFFECT_IDEMPOTENT), v.GetBehaviors()[0].GetEffect(), "the agent itself is IDEMPOTENT")
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(n)})
			require.NoError(t, err)
			done := talking{fixture: f}.ends(t, r.GetId())
			require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, done.GetState(), "%v", done.GetError())
			require.Equal(t, c.posts, posts.Load()-before)
			if c.refused != "" {
				require.Contains(t, string(done.GetResult().GetJson()), c.refused)
			}
		})
	}
}
