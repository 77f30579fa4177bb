package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/flow"
)

func TestBallot(t *testing.T) {
	t.Parallel()
	const own = `{"attempts": "a"}`
	t.Run("OnlyWhatSucceeded/ByNumber", func(t *testing.T) {
		t.Parallel()
		out, err := call(flow.Ballot, own, seen{nodes: map[string]string{"a": `[{"ok": "x"}, {"error": {"reason": "R"}}, {"abstained": true}, {"ok": {"y": 1}}]`}})
		require.NoError(t, err)
		require.JSONEq(t, `{"count": 2, "numbers": [1, 4], "text": "Attempt 1:\nx\n\nAttempt 4:\n{\"y\": 1}"}`, string(out.Values[0]))
	})
	t.Run("LongAttempts/AreCut", func(t *testing.T) {
		t.Parallel()
		long, err := json.Marshal([]map[string]string{{"ok": strings.Repeat("é", 1<<20)}, {"ok": strings.Repeat("b", 1<<20)}})
		require.NoError(t, err)
		out, err := call(flow.Ballot, own, seen{nodes: map[string]string{"a": string(long)}})
		require.NoError(t, err)
		require.Less(t, len(out.Values[0]), 257<<10)
		require.Contains(t, string(out.Values[0]), `…\n\nAttempt 2:`)
	})
	for name, given := range map[string]string{"None": `[]`, "NoList": `7`, "AllFailed": `[{"error": {"reason": "R", "message": "M"}}]`} {
		t.Run(name+"/Fails", func(t *testing.T) {
			t.Parallel()
			_, err := call(flow.Ballot, own, seen{nodes: map[string]string{"a": given}})
			require.ErrorContains(t, err, flow.ReasonNoAttempt)
			if name == "AllFailed" {
				require.ErrorContains(t, err, "R: M")
			}
		})
	}
}

func TestBest(t *testing.T) {
	t.Parallel()
	const scored, judged = `{"attempts": "a", "scored": true}`, `{"attempts": "a", "judge": "j"}`
	const list = `[{"ok": "x"}, {"error": {"reason": "R"}}, {"ok": "z"}]`
	for name, c := range map[string]struct {
		own, attempts, judge string
		visit                int
		want, err            string
	}{
		"the highest score":        {scored, `[{"ok": {"output": 1, "score": -2}}, {"ok": {"output": null, "score": -1.5}}, {"error": {}}]`, "", 1, `{"best": null, "number": 2, "scores": [-2, -1.5, null]}`, ""},
		"a number of many digits":  {scored, `[{"ok": {"output": 1, "score": 9007199254740993}}]`, "", 1, `{"best": 1, "number": 1, "scores": [9007199254740993]}`, ""},
		"no score":                 {scored, `[{"ok": {"output": 1}}]`, "", 1, "", "the attempt 1 has no score"},
		"beyond numbers":           {scored, `[{"ok": {"output": 1, "score": 1e999}}]`, "", 1, "", "the score of the attempt 1"},
		"the judge chose":          {judged, list, `{"best": 3, "reason": "short"}`, 1, `{"best": "z", "number": 3, "reason": "short"}`, ""},
		"only one is there":        {judged, `[{"error": {}}, {"ok": 5}]`, "", 1, `{"best": 5, "number": 2, "reason": ""}`, ""},
		"one that failed":          {judged, list, `{"best": 2}`, 1, "", flow.ReasonNoChoice},
		"one that there is not":    {judged, list, `{"best": 4}`, 1, "", flow.ReasonNoChoice},
		"nobody was asked":         {judged, list, "", 1, "", flow.ReasonNoChoice},
		"a judge of an older loop": {judged, list, `{"best": 3}`, 2, "", flow.ReasonNoChoice},
		"no number":                {judged, list, `{"best": "three"}`, 1, "", flow.ReasonNoChoice},
		"bad arguments":            {`{"attempts": 1}`, list, "", 1, "", flow.ReasonArguments},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seen{nodes: map[string]string{"a": c.attempts}, visits: map[string]int{"a": c.visit, "j": 1}}
			if c.judge != "" {
				s.nodes["j"] = c.judge
			}
			out, err := call(flow.Best, c.own, s)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(out.Values[0]))
			require.NotContains(t, string(out.Values[0]), "e+")
		})
	}
}
