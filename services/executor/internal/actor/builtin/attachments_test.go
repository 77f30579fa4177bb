package builtin_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/builtin"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The problem at a join gets the results of all problems before it as attachments, whichever actor does it.
func TestAttachments(t *testing.T) {
	t.Parallel()
	const text = "<Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem><Problem><Request>b</Request><ProblemID>B</ProblemID></Problem>" +
		"<Problem><Request>c</Request><ProblemID>C</ProblemID></Problem></Problems><ProblemGraph>A, B -> C</ProblemGraph>"
	var mu sync.Mutex
	sent := map[string]json.RawMessage{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var problem struct{ Request string }
		if err != nil || json.Unmarshal(body, &problem) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		sent[problem.Request] = body
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode("did " + problem.Request)
	}))
	t.Cleanup(server.Close)
	cfg := builtin.DefaultConfig()
	cfg.HTTP.AllowPrivate = []string{"127.0.0.0/8"}
	set, err := builtin.New(cfg, builtin.Deps{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	actors := workgraph.Actors{}
	for _, s := range set.Specs() {
		actors[s.Name] = s.Actor
	}
	// solve runs the plan with an actor for all of its problems.
	solve := func(t *testing.T, actor, named string, input workgraph.Input) json.RawMessage {
		t.Helper()
		o := compile.Options{DefaultActor: actor}
		require.NoError(t, json.Unmarshal([]byte(named), &o.Named))
		g, err := compile.Graph(t.Context(), plan.Parse(text).Graph, o)
		require.NoError(t, err)
		res, err := workgraph.Run(context.WithoutCancel(t.Context()), g, actors, input)
		require.NoError(t, err)
		require.Equal(t, workgraph.StatusCompleted, res.Status, "%v", res.Error)
		return res.Result
	}
	const both = `[{"id": "A", "description": "The result of the 'A' agent", "content": "did a"}, {"id": "B", "description": "The result of the 'B' agent", "content": "did b"}]`
	t.Run("Starlark", func(t *testing.T) {
		t.Parallel()
		got := solve(t, "starlark", `{"script": "def main(request):\n    return named['attachments'] if request == 'c' else 'did ' + request"}`, workgraph.Input{})
		require.JSONEq(t, both, string(got))
	})
	t.Run("Template", func(t *testing.T) {
		t.Parallel()
		got := solve(t, "template", `{"text": "{{ named.request == 'c' ? dyn(named.attachments.map(a, a.id + ': ' + a.content)) : dyn('did ' + named.request) }}"}`, workgraph.Input{})
		require.JSONEq(t, `"[\"A: did a\",\"B: did b\"]"`, string(got))
	})
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		got := solve(t, "http", `{"method": "POST", "url": "`+server.URL+`"}`, workgraph.Input{})
		require.Contains(t, string(got), `"did c"`)
		mu.Lock()
		defer mu.Unlock()
		require.JSONEq(t, `{"request": "a"}`, string(sent["a"]))
		var body struct {
			Request     string
			Attachments []struct {
				ID, Description string
				Content         struct{ Body string }
			}
		}
		require.NoError(t, json.Unmarshal(sent["c"], &body))
		require.Len(t, body.Attachments, 2)
		require.Equal(t, "did a", body.Attachments[0].Content.Body)
		require.Equal(t, []string{"A", "B"}, []string{body.Attachments[0].ID, body.Attachments[1].ID})
	})
	t.Run("Given/StayInFront", func(t *testing.T) {
		t.Parallel()
		got := solve(t, "starlark", `{"script": "def main(request):\n    return [a['id'] for a in named['attachments']] if request == 'c' else 'did ' + request"}`,
			workgraph.Input{Named: map[string]json.RawMessage{"attachments": json.RawMessage(`[{"id": "doc", "content": "x"}]`)}})
		require.JSONEq(t, `["doc", "A", "B"]`, string(got))
	})
	t.Run("OtherNodes/AreAsTheyWere", func(t *testing.T) {
		t.Parallel()
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"1"`)}},
			{ID: "b", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"has(named.attachments)"`)}}}, Edges: []workgraph.Edge{{From: "a", To: "b"}}}
		res, err := workgraph.Run(t.Context(), g, actors, workgraph.Input{})
		require.NoError(t, err)
		require.JSONEq(t, `false`, string(res.Result))
	})
}
