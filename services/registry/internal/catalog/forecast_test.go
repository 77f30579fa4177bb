package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// forecast is that of a definition without runs. A million tokens of the model `known` cost a dollar.
func forecast(t *testing.T, steps string) catalog.Forecast {
	t.Helper()
	c, faults, err := catalog.Read(catalog.Definition, "name: w\nsteps:\n"+steps, "")
	require.NoError(t, err)
	require.Empty(t, faults)
	v := catalog.Version{Content: c}
	g, err := v.Unpack()
	require.NoError(t, err)
	prices := usage.Book{{Provider: "a", Model: "known", Output: 1e9}, {Provider: "b", Model: "known", Output: 5e8}}
	return catalog.ForecastGraph(&v, g, prices, time.Now())
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
