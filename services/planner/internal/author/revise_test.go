package author

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/workgraph"
)

func work(id, request string) workgraph.Node {
	raw, _ := json.Marshal(request) // a text always marshals
	return workgraph.Node{
		ID: id, Name: id, Kind: workgraph.ProblemKind, Actor: "llm", Effect: workgraph.Pure, Named: map[string]json.RawMessage{"request": raw},
		PassDown: workgraph.Key("previous_agent_results"), Retry: workgraph.Retry{MaxAttempts: 7},
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// whole reads a text that is complete.
func whole(text string) plan.Result { return plan.Parse(text, plan.WithComplete()) }

// equipped is a reviser that checks answers.
func equipped(t require.TestingT, r Remainder) *reviser {
	v, err := newReviser(r)
	require.NoError(t, err)
	require.NoError(t, v.equip(context.Background()))
	return v
}

func dataEdge(from, to string) workgraph.Edge {
	return workgraph.Edge{From: from, To: to, Kind: workgraph.DataEdge}
}

// revised is the patch of an answer, and the graph that it leads to.
func revised(t require.TestingT, v *reviser, text string) Revision {
	out := Revision{Text: text, Read: v.read(text, whole)}
	found, err := v.check(context.Background(), &out)
	require.NoError(t, err)
	for _, d := range found {
		require.NotEqual(t, plan.Error, d.Severity, d.String()+"\n"+text)
	}
	require.NotNil(t, out.Patch)
	return out
}

func TestRevisedGraph(t *testing.T) {
	t.Parallel()
	// first -> next -> last, first -> other; next has not begun
	chain := func(t *testing.T, past ...Past) *reviser {
		t.Helper()
		g := &workgraph.Graph{
			Nodes: []workgraph.Node{work("done", "did it"), work("next", "do it"), work("last", "end it"), work("other", "do another thing")},
			Edges: []workgraph.Edge{dataEdge("done", "next"), dataEdge("next", "last"), dataEdge("done", "other")},
		}
		if past == nil {
			past = []Past{{Node: "done", State: "COMPLETED", Values: []json.RawMessage{json.RawMessage(`"its result"`)}}}
		}
		return equipped(t, Remainder{Graph: g, Past: past})
	}
	t.Run("TheModelSeesWhatIsDoneAndWhatIsOpen", func(t *testing.T) {
		t.Parallel()
		v := chain(t)
		require.Equal(t, "- \"done\": did it\n  COMPLETED: \"its result\"", v.doneText())
		require.Contains(t, v.openText(), `{"id":"last","request":"end it","needs":["next"]}`)
		require.NotContains(t, v.openText(), `"id":"done"`)
	})
	t.Run("TheSameListChangesNothing", func(t *testing.T) {
		t.Parallel()
		v := chain(t)
		require.Equal(t, workgraph.Patch{}, *revised(t, v, v.openText()).Patch)
	})
	t.Run("AnEmptyListRemovesWhatIsOpen", func(t *testing.T) {
		t.Parallel()
		v := chain(t)
		out := Revision{}
		found, err := v.check(t.Context(), &out)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, workgraph.Patch{RemoveNodes: []string{"next", "last", "other"}}, *out.Patch)
	})
	t.Run("AChangedRequestKeepsTheRest", func(t *testing.T) {
		t.Parallel()
		p := revised(t, chain(t), `[{"id": "next", "request": "do it better", "needs": ["done"]}, {"id": "last", "request": "end it", "needs": ["next", "extra"]}, {"id": "extra", "request": "one more", "needs": ["done"]}]`).Patch
		require.Equal(t, []string{"other"}, p.RemoveNodes)
		require.Len(t, p.PutNodes, 2)
		require.Equal(t, 7, p.PutNodes[0].Retry.MaxAttempts)
		require.JSONEq(t, `"do it better"`, string(p.PutNodes[0].Named["request"]))
		require.Equal(t, "extra", p.PutNodes[1].ID)
		require.ElementsMatch(t, []workgraph.Edge{{From: "done", To: "extra"}, {From: "extra", To: "last"}}, p.AddEdges)
		require.Empty(t, p.RemoveEdges)
	})
	t.Run("ADecidedEdgeThatGoesTakesItsNodeAlong", func(t *testing.T) {
		t.Parallel()
		p := revised(t, chain(t), `[{"id": "next", "request": "do it", "needs": []}, {"id": "last", "request": "end it", "needs": ["next"]}]`).Patch
		require.Equal(t, []string{"next", "other"}, p.RemoveNodes)
		require.Len(t, p.PutNodes, 1)
		require.Equal(t, "next-2", p.PutNodes[0].ID)
		require.Equal(t, []workgraph.Edge{dataEdge("next-2", "last")}, p.AddEdges)
	})
	t.Run("WhatHasBegunIsNoTask", func(t *testing.T) {
		t.Parallel()
		text := `[{"id": "done", "request": "again", "needs": []}, {"id": "next", "request": "do it", "needs": ["done", "look"]}]`
		v := chain(t)
		out := Revision{Text: text, Read: v.read(text, whole)}
		found, err := v.check(t.Context(), &out)
		require.NoError(t, err)
		require.Nil(t, out.Patch)
		require.Equal(t, Begun, found[0].Code)
		require.Equal(t, "done", found[0].Element)
	})
	t.Run("UnknownNeedsAreFaults", func(t *testing.T) {
		t.Parallel()
		text := `[{"id": "next", "request": "do it", "needs": ["done", "look"]}]`
		v := chain(t)
		out := Revision{Text: text, Read: v.read(text, whole)}
		found, err := v.check(t.Context(), &out)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, plan.UnknownReference, found[0].Code)
		require.Equal(t, "look", found[0].Element)
	})
	t.Run("ToolsKeepAndChangeTheirArguments", func(t *testing.T) {
		t.Parallel()
		ask := work("ask", "ask it")
		ask.Actor, ask.Named["url"] = "http", json.RawMessage(`"https://x"`)
		ask.Bind = map[string]workgraph.Binding{"json": {Value: json.RawMessage(`{"q": "$next.city"}`), Uses: []workgraph.ResultUse{{Mark: "$next.city", Node: "next", Field: "city"}}}}
		v := equipped(t, Remainder{
			Graph: &workgraph.Graph{Nodes: []workgraph.Node{work("done", "did it"), work("next", "do it"), ask}, Edges: []workgraph.Edge{dataEdge("done", "next"), dataEdge("next", "ask")}},
			Past:  []Past{{Node: "done", State: "COMPLETED"}},
		})
		const shown = `{"id":"ask","request":"ask it","tool":"http","args":{"json":{"q":"$next.city"},"url":"https://x"},"needs":["next"]}`
		require.Contains(t, v.openText(), shown)
		require.Equal(t, workgraph.Patch{}, *revised(t, v, v.openText()).Patch, "the same list changes nothing")
		p := revised(t, v, strings.Replace(v.openText(), `"url":"https://x"`, `"url":"https://y","method":"PUT"`, 1)).Patch
		require.Len(t, p.PutNodes, 1)
		require.Equal(t, 7, p.PutNodes[0].Retry.MaxAttempts)
		require.JSONEq(t, `{"request": "ask it", "url": "https://y", "method": "PUT"}`, encoded(t, p.PutNodes[0].Named))
		require.JSONEq(t, encoded(t, ask.Bind), encoded(t, p.PutNodes[0].Bind))
		p = revised(t, v, strings.Replace(v.openText(), `"request":"do it","needs":["done"]`, `"request":"do it","needs":[]`, 1)).Patch
		require.Equal(t, "next-2", p.PutNodes[0].ID)
		require.Equal(t, "next-2", p.PutNodes[1].Bind["json"].Uses[0].Node, "a binding follows the task that it uses")
		require.Equal(t, "next", ask.Bind["json"].Uses[0].Node)
	})
	t.Run("PlacesAreThoseOfTheAnswer", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			`[{"id": "next", "request": "ü", "needs": ["done", "look"]}]`:                                              `"look"`,
			"So:\n[{\"id\": \"done\", \"request\": \"x\", \"needs\": []}]":                                             `{"id": "done"`,
			"[\n{\"id\": \"next\", \"request\": \"x\", \"needs\": [\"done\", \"look\"]}]":                              `"look"`,
			`[{"id": "next", "request": "x", "tool": "hammer", "needs": []}, {"id": "b", "request": "", "needs": []}]`: `{"id": "next"`,
		} {
			v := chain(t)
			out := Revision{Text: text, Read: v.read(text, whole)}
			found, err := v.check(t.Context(), &out)
			require.NoError(t, err)
			require.NotEmpty(t, found, text)
			line := []rune(strings.Split(text, "\n")[found[0].Line-1])
			require.True(t, strings.HasPrefix(string(line[found[0].Column-1:]), want), "%v in %s", found[0], text)
		}
	})
	t.Run("WhatAPauseHoldsBackIsOpen", func(t *testing.T) {
		t.Parallel()
		v := chain(t, Past{Node: "done", State: "COMPLETED"}, Past{Node: "next", State: "HELD", Open: true})
		require.Contains(t, v.openText(), `"id":"next"`)
	})
	t.Run("WhatABegunNodeStillWaitsForStays", func(t *testing.T) {
		t.Parallel()
		v := chain(t, Past{Node: "last", State: "RUNNING"})
		require.Equal(t, map[string]bool{"done": true, "next": true, "last": true}, v.fixed)
	})
	t.Run("AVisitOfNoNodeIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := newReviser(Remainder{Graph: &workgraph.Graph{}, Past: []Past{{Node: "x"}}})
		require.ErrorContains(t, err, `node "x"`)
	})
	t.Run("ResultsAreBounded", func(t *testing.T) {
		t.Parallel()
		huge, err := json.Marshal(strings.Repeat("x", 1<<20))
		require.NoError(t, err)
		require.Less(t, len(chain(t, Past{Node: "done", State: "COMPLETED", Values: []json.RawMessage{huge}}).doneText()), 2*maxResult)
	})
}

// TestRevisionsAreAccepted holds the patches of random answers against the state machine that amends runs: it
// refuses none of them, the nodes that have begun stay, and each task waits for what the answer says.
func TestRevisionsAreAccepted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		g := &workgraph.Graph{Name: "g"}
		for i := range n {
			g.Nodes = append(g.Nodes, work(fmt.Sprint("n", i), fmt.Sprint("work ", i)))
			for k := range i {
				if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
					g.Edges = append(g.Edges, dataEdge(fmt.Sprint("n", k), fmt.Sprint("n", i)))
				}
			}
		}
		state, past := played(t, g)
		v := equipped(t, Remainder{Graph: g, Past: past})
		text, needs := drawAnswer(t, v)
		out := revised(t, v, text)
		q, err := workgraph.Recompile(t.Context(), out.Graph, nil)
		require.NoError(t, err)
		_, err = state.PlanAmend(t.Context(), q, time.Unix(100, 0))
		require.NoError(t, err, text)

		names := map[string]string{} // by id
		for i := range out.Graph.Nodes {
			names[out.Graph.Nodes[i].ID] = out.Graph.Nodes[i].Name
		}
		got := map[string][]string{}
		for _, e := range out.Graph.Edges {
			if to := names[e.To]; !v.fixed[to] {
				got[to] = append(got[to], names[e.From])
			}
		}
		left := 0
		for _, name := range names {
			if v.fixed[name] {
				continue
			}
			left++
			want, listed := needs[name]
			require.True(t, listed, name)
			require.ElementsMatch(t, want, got[name], text)
		}
		require.Len(t, needs, left)
	})
}

// played is a run of g that has come to some place, and its visits.
func played(t *rapid.T, g *workgraph.Graph) (*workgraph.State, []Past) {
	p, err := workgraph.Compile(t.Context(), g, nil)
	require.NoError(t, err)
	s := workgraph.New(p, "run_1")
	now := time.Unix(1, 0)
	_, fx, err := s.Advance(workgraph.Begin{Now: now})
	require.NoError(t, err)
	open := fx.Starts
	states := map[string]string{}
	for steps := rapid.IntRange(0, 2*len(g.Nodes)).Draw(t, "steps"); steps > 0 && len(open) > 0; steps-- {
		i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
		st := open[i]
		open = slices.Delete(open, i, i+1)
		_, _, err := s.Advance(workgraph.Attempt{Ref: st.Ref, Attempt: st.Attempt, Now: now})
		require.NoError(t, err)
		_, fx, err := s.Advance(workgraph.Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage("1")}}, Now: now})
		require.NoError(t, err)
		states[st.Node] = "COMPLETED"
		open = append(open, fx.Starts...)
	}
	if len(open) == 0 { // an ended run takes no change
		t.Skip("the run has ended")
	}
	for _, st := range open {
		states[st.Node] = "RUNNING"
	}
	var past []Past
	for id, state := range states {
		past = append(past, Past{Node: id, State: state})
	}
	return s, past
}

// drawAnswer is a list of tasks, and what each of them needs.
func drawAnswer(t *rapid.T, v *reviser) (text string, needs map[string][]string) {
	var before, lines []string
	for id := range v.fixed {
		before = append(before, id)
	}
	slices.Sort(before)
	needs = map[string][]string{}
	add := func(id, request string) {
		var list []string
		for _, b := range before {
			if rapid.IntRange(0, 3).Draw(t, "need") == 0 {
				list = append(list, b)
			}
		}
		before = append(before, id)
		needs[id] = list
		raw, err := json.Marshal(map[string]any{"id": id, "request": request, "needs": append([]string{}, list...)})
		require.NoError(t, err)
		lines = append(lines, string(raw))
	}
	for i := range v.Graph.Nodes {
		id := v.Graph.Nodes[i].ID
		if v.fixed[id] || rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
			continue
		}
		if rapid.Bool().Draw(t, "anew") {
			add(fmt.Sprint("new", i), "something new")
		}
		request, _ := requestOf(&v.Graph.Nodes[i])
		add(id, request+rapid.SampledFrom([]string{"", " differently"}).Draw(t, "change"))
	}
	if len(lines) == 0 {
		add("only", "the rest")
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n]", needs
}
