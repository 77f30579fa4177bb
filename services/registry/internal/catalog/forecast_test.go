package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/workgraph"
)

// forecast is that of a definition without runs. A million tokens of the model `known` cost a dollar.
func forecast(t *testing.T, steps string) catalog.Forecast {
	t.Helper()
	return forecastWith(t, steps, catalog.Calls{}, catalog.Earlier{})
}

// forecastWith is forecast where some calls and runs are known.
func forecastWith(t *testing.T, steps string, calls catalog.Calls, earlier catalog.Earlier) catalog.Forecast {
	t.Helper()
	c, faults, err := catalog.Read(catalog.Definition, "name: w\nsteps:\n"+steps, "")
	require.NoError(t, err)
	require.Empty(t, faults)
	v := catalog.Version{Content: c}
	g, err := v.Unpack()
	require.NoError(t, err)
	prices := usage.Book{{Provider: "a", Model: "known", Output: 1e9}, {Provider: "b", Model: "known", Output: 5e8}}
	return catalog.ForecastGraph(&v, g, prices, calls, earlier, time.Now())
}

func TestForecastGraph(t *testing.T) {
	t.Parallel()
	const ask = "type: categorizer, categories: [p, q], prompt: which"
	for name, c := range map[string]struct {
		steps string
		// calls, tokens and cost of the first node that asks a model; -1 is not known.
		calls, tokens, cost int64
		unknown             string
		// all are the tokens of all, -1 is not known.
		all int64
	}{
		"one call": {"- {id: a, " + ask + ", model: {model_name: known, max_tokens: 100}}\n", 1, 100, 100_000, "", 100},
		"two calls": {"- {id: a, " + ask + ", model: {model_name: known, max_tokens: 100}}\n- {id: b, " + ask + ", model: {model_name: known, max_tokens: 50}}\n",
			1, 100, 100_000, "", 150},
		"rounds of an agent":  {"- {id: a, type: agent, prompt: do, model: {model_name: known, max_tokens: 7}}\n", 10, 70, 70_000, "", 70},
		"no limit":            {"- {id: a, " + ask + ", model: {model_name: known}}\n", 1, -1, -1, "max_output_tokens", -1},
		"no model":            {"- {id: a, " + ask + ", model: {max_tokens: 100}}\n", 1, 100, -1, "names no model", 100},
		"no price":            {"- {id: a, " + ask + ", model: {model_name: other, max_tokens: 100}}\n", 1, 100, -1, "the price", 100},
		"one of two is known": {"- {id: a, " + ask + ", model: {model_name: known, max_tokens: 100}}\n- {id: b, " + ask + ", model: {}}\n", 1, 100, 100_000, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forecast(t, c.steps)
			require.Equal(t, catalog.FromGraph, f.Basis)
			known := func(p *int64) int64 {
				if p == nil {
					return -1
				}
				return *p
			}
			n := f.Nodes[0]
			require.Equal(t, []int64{c.calls, c.tokens, c.cost, c.all}, []int64{known(n.Calls), known(n.Tokens), known(n.NanoUSD), known(f.Tokens.Answers)})
			require.Contains(t, n.Unknown, c.unknown)
			require.Equal(t, c.unknown == "", n.Unknown == "")
			require.Nil(t, f.DurationMS.P50)
		})
	}
}

func TestForecastLoop(t *testing.T) {
	t.Parallel()
	const body = "  body:\n  - {id: ask, type: categorizer, categories: [p, q], prompt: which, model: {model_name: known, max_tokens: 100}}\n"
	t.Run("a loop multiplies", func(t *testing.T) {
		t.Parallel()
		f := forecast(t, "- id: l\n  type: loop\n  until: \"{{ ask.category }} == 'q'\"\n  max_iterations: 4\n"+body)
		require.NotNil(t, f.Nodes[0].Calls, "%+v", f)
		require.Equal(t, []int64{4, 400}, []int64{*f.Nodes[0].Calls, *f.Tokens.Answers})
	})
	t.Run("the items of a map are not known", func(t *testing.T) {
		t.Parallel()
		f := forecast(t, "- {id: a, type: transform, value: [1, 2]}\n- id: m\n  type: map\n  over: \"{{ a }}\"\n"+body)

		require.Nil(t, f.Tokens.Answers, "%+v", f)
	})
}

// ten are calls of a model that use 10, 20 … 100 tokens, at a nano-dollar each.
func ten(model string) (out []usage.Entry) {
	for i := range int64(10) {
		e := usage.Entry{Kind: usage.Model, Actor: "llm", Model: model, InputTokens: 9 * (i + 1), OutputTokens: i + 1, DurationMS: 100 * (i + 1)}
		e.Source = usage.Executor
		cost := e.InputTokens + e.OutputTokens
		e.CostNanoUSD = &cost
		out = append(out, e)
	}
	return out
}

func TestForecastByCalls(t *testing.T) {
	t.Parallel()
	const ask = "type: categorizer, categories: [p, q], prompt: which"
	const loop = "- id: l\n  type: loop\n  until: \"{{ ask.category }} == 'q'\"\n  max_iterations: 4\n  body:\n  - {id: ask, " + ask + ", model: {model_name: known}}\n"
	const items = "- {id: a, type: transform, value: [1, 2]}\n- id: m\n  type: map\n  over: \"{{ a }}\"\n  body:\n  - {id: ask, " + ask + ", model: {model_name: known}}\n"
	const beside = "- {id: before, " + ask + ", model: {model_name: known}}\n"
	tool := ten("known")
	failed := ten("known")
	for i := range tool {
		tool[i].Kind, failed[i].Failed = usage.Tool, true
	}
	unpriced := ten("known")
	for i := range unpriced {
		unpriced[i].CostNanoUSD = nil
	}
	for name, c := range map[string]struct {
		steps  string
		booked []usage.Entry
		// The p50 and p90 of tokens and cost; -1 is not known.
		tokens, cost [2]int64
		note         string
	}{
		"of its model":     {"- {id: a, " + ask + ", model: {model_name: known}}\n", ten("known"), [2]int64{50, 90}, [2]int64{50, 90}, "By calls of their model"},
		"rounds of agents": {"- {id: a, type: agent, prompt: do, model: {model_name: known}}\n", ten("known"), [2]int64{500, 900}, [2]int64{500, 900}, "By calls of their model"},
		"rounds of a loop": {loop, ten("known"), [2]int64{200, 360}, [2]int64{200, 360}, "By calls of their model"},
		"runs of a map":    {beside + items, ten("known"), [2]int64{-1, -1}, [2]int64{-1, -1}, "so the sums are not known: m"},
		"of any model":     {"- {id: a, " + ask + "}\n", ten("other"), [2]int64{50, 90}, [2]int64{50, 90}, "of all models"},
		"too few":          {"- {id: a, " + ask + ", model: {model_name: known, max_tokens: 100}}\n", ten("known")[:4], [2]int64{100, 100}, [2]int64{100_000, 100_000}, "at the limits of their answers"},
		"none at all":      {"- {id: a, " + ask + ", model: {model_name: known}}\n", nil, [2]int64{-1, -1}, [2]int64{-1, -1}, "so the sums are not known"},
		"no price":         {"- {id: a, " + ask + ", model: {model_name: known}}\n", unpriced, [2]int64{50, 90}, [2]int64{-1, -1}, "By calls of their model"},
		"of tools":         {"- {id: a, " + ask + ", model: {model_name: known}}\n", tool, [2]int64{-1, -1}, [2]int64{-1, -1}, "so the sums are not known"},
		"failed ones":      {"- {id: a, " + ask + ", model: {model_name: known}}\n", failed, [2]int64{-1, -1}, [2]int64{-1, -1}, "so the sums are not known"},
		"one is unknown": {"- {id: a, " + ask + ", model: {model_name: known}}\n- {id: b, " + ask + ", model: {model_name: strange}}\n", ten("known"),
			[2]int64{-1, -1}, [2]int64{-1, -1}, "so the sums are not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forecastWith(t, c.steps, catalog.NewCalls(c.booked), catalog.Earlier{})
			known := func(a catalog.Amount) [2]int64 {
				if a.P50 == nil || a.P90 == nil {
					return [2]int64{-1, -1}
				}
				return [2]int64{*a.P50, *a.P90}
			}
			require.Equal(t, c.tokens, known(f.Tokens), "%v", f.Notes)
			require.Equal(t, c.cost, known(f.Cost), "%v", f.Notes)
			require.Contains(t, strings.Join(f.Notes, "\n"), c.note)
		})
	}
	t.Run("items of a node", func(t *testing.T) {
		t.Parallel()
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "llm", Map: &workgraph.Map{Over: "input"}, Named: map[string]json.RawMessage{"model": json.RawMessage(`"known"`)}}}}
		f := catalog.ForecastGraph(&catalog.Version{}, g, nil, catalog.NewCalls(ten("known")), catalog.Earlier{}, time.Now())
		require.Equal(t, []int64{500, 900}, []int64{*f.Tokens.P50, *f.Tokens.P90})
		require.Contains(t, strings.Join(f.Notes, "\n"), "10 items or rounds are assumed: a.")
		require.Nil(t, f.Tokens.Answers)
	})
	t.Run("the time is that of the critical path", func(t *testing.T) {
		t.Parallel()
		node := func(id, actor string) workgraph.Node {
			return workgraph.Node{ID: id, Actor: actor, Named: map[string]json.RawMessage{"model": json.RawMessage(`"known"`)}}
		}
		// first is followed by long, which goes round 3 times, and by short; last joins them. A call
		// takes 500 and 900 ms.
		long := node("long", "llm")
		long.MaxVisits = 3
		g := &workgraph.Graph{
			Nodes: []workgraph.Node{node("first", "llm"), long, node("short", "llm"), node("sum", "cel"), node("last", "llm")},
			Edges: []workgraph.Edge{{From: "first", To: "long"}, {From: "long", To: "long"}, {From: "first", To: "short"}, {From: "long", To: "sum"},
				{From: "short", To: "sum"}, {From: "sum", To: "last"}},
		}
		at := func(g *workgraph.Graph, calls []usage.Entry) catalog.Forecast {
			return catalog.ForecastGraph(&catalog.Version{}, g, nil, catalog.NewCalls(calls), catalog.Earlier{}, time.Now())
		}
		f := at(g, ten("known"))
		require.NotNil(t, f.DurationMS.P50, "%v", f.Notes)
		require.Equal(t, []int64{5 * 500, 5 * 900}, []int64{*f.DurationMS.P50, *f.DurationMS.P90})
		require.Contains(t, strings.Join(f.Notes, "\n"), "the critical path")

		f = at(&workgraph.Graph{Nodes: []workgraph.Node{node("sum", "cel")}}, ten("known"))
		require.Nil(t, f.DurationMS.P50, "unknown is not 0")
		g.Nodes = append(g.Nodes, node("person", "approve"))
		f = at(g, ten("known"))
		require.Nil(t, f.DurationMS.P50)
		require.Contains(t, strings.Join(f.Notes, "\n"), "are known of person.")
		require.NotNil(t, f.Tokens.P50)
	})
	t.Run("the time is that of an earlier version", func(t *testing.T) {
		t.Parallel()
		var runs []catalog.Sample
		for i := range int64(10) {
			runs = append(runs, catalog.Sample{DurationMS: new(i + 1)})
		}
		f := forecastWith(t, "- {id: a, type: transform, value: 1}\n", catalog.Calls{}, catalog.Earlier{Version: 3, Samples: runs})
		require.Equal(t, []int64{5, 9}, []int64{*f.DurationMS.P50, *f.DurationMS.P90})
		require.Contains(t, strings.Join(f.Notes, "\n"), "10 runs of version 3")
	})
}
