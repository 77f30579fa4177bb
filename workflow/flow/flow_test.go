package flow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// seen is what a call sees of its run.
type seen struct {
	nodes map[string]string
	// visits are those of nodes in later rounds, by node.
	visits map[string]int
}

func (s seen) Var(string) (json.RawMessage, bool) { return nil, false }
func (s seen) Ancestors() []string                { return nil }
func (s seen) Rounds(string) []json.RawMessage    { return nil }
func (s seen) Ancestor(id string) (workgraph.NodeResult, bool) {
	v, ok := s.nodes[id]
	return workgraph.NodeResult{Ref: workgraph.Ref{Node: id, Visit: s.visits[id]}, Values: []json.RawMessage{json.RawMessage(v)}}, ok
}

// call calls an actor with arguments of its own.
func call(do workgraph.ActorFunc, own string, s seen, more ...string) (workgraph.Outcome, error) {
	c := workgraph.Start{Own: map[string]json.RawMessage{}}
	if err := json.Unmarshal([]byte(own), &c.Own); err != nil {
		return workgraph.Outcome{}, err
	}
	c.Named = map[string]json.RawMessage{}
	for k, v := range c.Own {
		c.Named[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		c.Named[more[i]] = json.RawMessage(more[i+1])
	}
	return do(context.Background(), workgraph.NewCall(c, workgraph.CallOptions{Scope: s}))
}

func TestItems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ own, want, err string }{
		"a list":        {`{"max": 2, "over": [1, "a"]}`, `[1, "a"]`, ""},
		"a text":        {`{"max": 2, "over": " [1]"}`, `[1]`, ""},
		"none":          {`{"max": 2, "over": []}`, `[]`, ""},
		"inputs":        {`{"max": 2, "over": ["x"], "as": "it", "with": {"a": 1}}`, `[{"named": {"it": "x", "index": 0, "a": 1}}]`, ""},
		"too long":      {`{"max": 1, "over": [1, 2]}`, "", "LIST_TOO_LONG: the list has 2 items, the step goes through 1 at most"},
		"another thing": {`{"max": 1, "over": {"a": 1}}`, "", "NOT_A_LIST"},
		"nothing":       {`{"max": 1, "over": null}`, "", "NOT_A_LIST"},
		"a word":        {`{"max": 1, "over": "[x"}`, "", "NOT_A_LIST"},
		"no object":     {`{"max": 1, "over": [], "as": "x", "with": 1}`, "", "FLOW_ARGUMENTS"},
		"no number":     {`{"max": "x", "over": []}`, "", "FLOW_ARGUMENTS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := call(flow.Items, c.own, seen{})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(out.Values[0]))
		})
	}
}

// each goes through a list, and returns the items.
func each(t testing.TB, list string, change func(round int) string) []string {
	t.Helper()
	const own = `{"list": "l", "loop": "me"}`
	s := seen{nodes: map[string]string{"l": list}}
	var items []string
	var more []string
	for range 1000 {
		out, err := call(flow.Each, own, s, more...)
		require.NoError(t, err)
		var r struct {
			Item  json.RawMessage
			Index int
			Done  bool
		}
		require.NoError(t, json.Unmarshal(out.Values[0], &r))
		require.Equal(t, len(items), r.Index)
		if r.Done {
			return items
		}
		items = append(items, string(r.Item))
		s.nodes["me"], more = string(out.Values[0]), []string{"again", "true"}
		if change != nil {
			s.nodes["l"] = change(len(items))
		}
	}
	t.Fatal("it does not end")
	return nil
}

func TestEach(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{`1`, `"a,]"`, `[2,[]]`, `{"b":"]"}`, `null`}, each(t, ` [1 , "a,]",[2,[]] ,{"b":"]"},null ] `, nil))
	require.Empty(t, each(t, "[]", nil))
	// A list that was written anew on the way is gone through by number.
	require.Equal(t, []string{`1`, `2`, `3`}, each(t, "[1,2,3]", func(int) string { return "[ 1, 2 , 3 ]" }))
	for name, s := range map[string]map[string]string{"nothing": {}, "no list": {"l": "7"}, "no round before": {"l": "[1]"}} {
		_, err := call(flow.Each, `{"list": "l", "loop": "me"}`, seen{nodes: s}, "again", "true")
		require.Error(t, err, name)
	}
}

// FuzzEach finds the items that the list has, whatever they are.
func FuzzEach(f *testing.F) {
	for _, list := range []string{"[]", "[1,2]", `["a,]",{"x":[1,"\""]}]`, "[null,null]", "[[[]]]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		var want []json.RawMessage
		if len(list) > 1000 || json.Unmarshal([]byte(list), &want) != nil || want == nil || !strings.HasPrefix(strings.TrimSpace(list), "[") {
			return
		}
		got := each(t, list, nil)
		require.Len(t, got, len(want))
		for i := range want {
			require.JSONEq(t, string(want[i]), got[i])
		}
	})
}

func TestLimit(t *testing.T) {
	t.Parallel()
	out, err := call(flow.Limit, `{"max": 3}`, seen{})
	require.NoError(t, err)
	require.Equal(t, "MAX_ITERATIONS", out.Pause)
	_, err = call(flow.Limit, `{"max": 3, "fail": true}`, seen{})
	require.ErrorContains(t, err, "MAX_ITERATIONS: the loop has gone round 3 times")
}

func TestSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, fits, not string }{
		{"integer", "-7", "1.5"}, {"number", "1.5", `"1"`}, {"string", `"a"`, "1"}, {"boolean", "true", "null"}, {"array", "[1]", "{}"}, {"object", "{}", "[]"},
	} {
		own := `{"types": {"k": "` + c.kind + `"}}`
		out, err := call(flow.Set, own, seen{}, "state", `{"k": `+c.fits+`}`)
		require.NoError(t, err, c.kind)
		require.JSONEq(t, c.fits, string(out.State["k"]))
		_, err = call(flow.Set, own, seen{}, "state", `{"k": `+c.not+`}`)
		require.ErrorContains(t, err, "STATE_TYPE", c.kind)
	}
	_, err := call(flow.Set, `{}`, seen{}, "state", `7`)
	require.ErrorContains(t, err, "FLOW_ARGUMENTS")
}

func TestUser(t *testing.T) {
	t.Parallel()
	out, err := flow.User(t.Context(), workgraph.NewCall(workgraph.Start{RunID: "run_1", UserID: "ann"}, workgraph.CallOptions{}))
	require.NoError(t, err)
	require.JSONEq(t, `{"user_id": "ann", "chat_id": null, "run_id": "run_1"}`, string(out.Values[0]))
}
