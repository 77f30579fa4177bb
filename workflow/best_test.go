package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// bestOf is a workflow with one step that makes attempts.
func bestOf(keys string) string {
	return "name: T\nsteps:\n  - {id: top, type: best_of, " + keys + "}\n  - {type: transform, template: {of: \"{{ top }}\", best: \"{{ top.best }}\", n: \"{{ top.number }}\"}}\n"
}

// TestBestOf compiles steps that make several attempts.
func TestBestOf(t *testing.T) {
	t.Parallel()
	const body = `body: [{id: one, type: transform, expr: "{{ item }} * 10 + {{ inputs.more }}"}]`
	t.Run("Scored/Graph", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, bestOf(`n: 3, enough: 20, score: "{{ one }} - 1", `+body))
		require.Equal(t, []string{"inputs -> top.items", "top.items -> top.attempts", "top.attempts -> top", "top -> transform_2"}, edges(g))
		m := g.Nodes[2].Map
		require.Equal(t, workgraph.Map{Over: `nodes["top.items"].result`, As: "input", MaxParallel: 3, OnItemError: workgraph.ContinueItems, Until: "result.score >= 20.0"}, *m)
		var child workgraph.Graph
		require.NoError(t, json.Unmarshal(g.Nodes[2].Named["graph"], &child))
		require.Equal(t, []string{"inputs -> one", "one -> top.score"}, edges(&child))
	})
	t.Run("Judged/Graph", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, "name: T\nmodel: small\n"+strings.TrimPrefix(bestOf(`n: 2, judge: {prompt: "Which is best for {{ inputs.who }}?", model: large}, max_parallel: 1, on_item_error: fail, body: {type: transform, template: 1}`), "name: T\n"))
		require.Equal(t, []string{"inputs -> top.items", "top.items -> top.attempts", "top.attempts -> top.ballot", "top.ballot -> top.judge [result.count > 1]",
			"top.judge -> top", "top.ballot -> top", "top -> transform_2"}, edges(g))
		require.Equal(t, workgraph.FailFast, g.Nodes[2].Map.OnItemError)
		require.Equal(t, 1, g.Nodes[2].Map.MaxParallel)
		judge := g.Nodes[4]
		require.Equal(t, `"large"`, string(judge.Named["profile"]))
		require.Equal(t, "Which is best for {{ inputs.who }}?\n\n{{.attempts}}", textOf(t, judge.Bind["request"].Value))
	})
	t.Run("Scored/TheHighestOneAndTheFirstOfSeveral", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"of": {"best": 35, "number": 3, "scores": [14, 24, 34]}, "best": 35, "n": 3}`, result(t, bestOf(`n: 3, score: "{{ one }} - 1", `+body), `{"more": 5}`))
		require.JSONEq(t, `{"of": {"best": 10, "number": 1, "scores": [0.5, 0.5]}, "best": 10, "n": 1}`, result(t, bestOf(`n: 2, score: "0.5", `+body), `{"more": 0}`))
	})
	t.Run("Enough/OneAtATimeEndsEarly", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"of": {"best": 20, "number": 2, "scores": [10, 20, null, null]}, "best": 20, "n": 2}`, result(t, bestOf(`n: 4, max_parallel: 1, enough: 15.5, score: "{{ one }}", `+body), `{"more": 0}`))
	})
	t.Run("Failed/CountsAsLost", func(t *testing.T) {
		t.Parallel()
		const odd = `body: [{id: one, type: assertion, rules: [{field: item, operator: in, value: [2, 4]}]}, {id: told, type: transform, template: "{{ item }}"}]`
		require.JSONEq(t, `{"of": {"best": 4, "number": 4, "scores": [null, 2, null, 4]}, "best": 4, "n": 4}`, result(t, bestOf(`n: 4, score: "{{ told }}", `+odd), ""))
	})
	t.Run("Failed/AScoreThatIsNoNumber", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"of": {"best": 10, "number": 1, "scores": [10, null]}, "best": 10, "n": 1}`, result(t, bestOf(`n: 2, score: "{{ item }} == 1 ? dyn({{ one }}) : dyn('high')", `+body), `{"more": 0}`))
	})
	t.Run("Failed/AllOfThem", func(t *testing.T) {
		t.Parallel()
		const none = `n: 2, score: "1", body: [{type: assertion, rules: [{field: item, value: 7}]}]`
		res := run(t, bestOf(none), "")
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "NO_ATTEMPT: none of 2 attempts has succeeded: CHILD_FAILED")
		require.JSONEq(t, `{"of": {"best": 0, "number": 0}, "best": 0, "n": 0}`, result(t, bestOf(none+`, on_error: {value: {best: 0, number: 0}}`), ""))
		res = run(t, bestOf(`on_item_error: fail, `+none), "")
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Message, "CHILD_FAILED")
	})
	t.Run("InALoopAndWithinEachOther", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `[22, 32]`, result(t, "name: T\nsteps:\n  - {id: lp, type: loop, over: [1, 2], body: [{id: top, type: best_of, n: 2, as: k, score: \"{{ inner.number }} * {{ k }}\", body: [{id: inner, type: best_of, n: 2, as: j, score: \"{{ j }}\", body: {type: transform, template: \"{{ j }}\"}}, {id: told, type: transform, expr: \"{{ item }} * 10 + 10 + {{ k }}\"}]}, {id: keep, type: transform, template: \"{{ top.best }}\"}]}\n  - {type: transform, template: \"{{ lp }}\"}\n", ""))
	})
	t.Run("Faults", func(t *testing.T) {
		t.Parallel()
		for keys, want := range map[string]string{
			`score: "1", ` + body:                                                  "MISSING_KEY",
			`n: 65, score: "1", ` + body:                                           "OUT_OF_RANGE",
			`n: 0, score: "1", ` + body:                                            "OUT_OF_RANGE",
			`n: 2, ` + body:                                                        "MISSING_KEY",
			`n: 2, score: "1"`:                                                     "MISSING_KEY",
			`n: 2, score: "1", body: []`:                                           "EMPTY",
			`n: 2, score: "1", judge: x, ` + body:                                  "SEVERAL_FORMS",
			`n: 2, judge: x, enough: 1, ` + body:                                   "FIELD_NOT_USED",
			`n: 2, judge: {model: x}, ` + body:                                     "MISSING_KEY",
			`n: 2, judge: {prompt: x, good: y}, ` + body:                           "UNKNOWN_KEY",
			`n: 2, judge: "{{ nobody }}", ` + body:                                 "UNKNOWN_STEP",
			`n: 2, judge: "{{ one }}", ` + body:                                    "IN_LOOP",
			`n: 2, score: "1 +", ` + body:                                          "BAD_EXPRESSION",
			`n: 2, score: "{{ nobody }}", ` + body:                                 "UNKNOWN_STEP",
			`n: 2, score: "1", enough: much, ` + body:                              "WRONG_TYPE",
			`n: 2, score: "1", retry: 3, ` + body:                                  "FIELD_NOT_USED",
			`n: 2, score: "1", as: result, ` + body:                                "BAD_ID",
			`n: 2, score: "1", on_item_error: wait, ` + body:                       "UNKNOWN_WORD",
			`n: 2, score: "{{ one }}", body: [{type: transform, template: 1}]`:     "UNKNOWN_STEP",
			`n: 2, score: "1", body: {id: top, type: transform, template: "{{ x"}`: "DUPLICATE_ID",
		} {
			var codes []string
			for _, f := range faultsOf(bestOf(keys)) {
				codes = append(codes, f.Code)
				require.NotZero(t, f.Place.Line, "%s: %v", keys, f)
			}
			require.Contains(t, codes, want, "%s", keys)
		}
		require.Contains(t, faultsOf("name: T\nsteps:\n  - {id: top, type: best_of, n: 2, score: \"1\", " + body + "}\n  - {type: transform, template: \"{{ top.winner }}\"}\n")[0].Hint, "`number`")
	})
	t.Run("Uses/TheModelOfTheJudge", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte(bestOf(`n: 2, judge: {prompt: x, model: large}, ` + body)))
		require.Empty(t, faults)
		require.Equal(t, []string{"large"}, d.Uses().Models)
		require.Contains(t, d.Uses().Types, "best_of")
	})
}

func textOf(t *testing.T, raw json.RawMessage) (s string) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &s))
	return s
}
