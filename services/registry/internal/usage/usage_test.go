package usage_test

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func day(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }

func ptr[T any](v T) *T { return &v }

func TestCost(t *testing.T) {
	t.Parallel()
	t.Run("Cost/RoundsHalfUpOnce", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct {
			price usage.Price
			entry usage.Entry
			want  int64
		}{
			"nothing":         {usage.Price{Input: 5}, usage.Entry{}, 0},
			"below a half":    {usage.Price{Input: 499_999}, usage.Entry{InputTokens: 1}, 0},
			"a half":          {usage.Price{Input: 500_000}, usage.Entry{InputTokens: 1}, 1},
			"rounded once":    {usage.Price{Input: 250_000, Output: 250_000}, usage.Entry{InputTokens: 1, OutputTokens: 1}, 1},
			"classes":         {usage.Price{Input: 4e6, CachedInput: ptr(int64(1e6)), Output: 8e6, Reasoning: ptr(int64(2e6))}, usage.Entry{InputTokens: 10, CachedInputTokens: 4, OutputTokens: 10, ReasoningTokens: 5}, 6*4 + 4 + 5*8 + 5*2},
			"absent classes":  {usage.Price{Input: 4e6, Output: 8e6}, usage.Entry{InputTokens: 10, CachedInputTokens: 4, OutputTokens: 10, ReasoningTokens: 5}, 120},
			"free cache":      {usage.Price{Input: 4e6, CachedInput: ptr(int64(0))}, usage.Entry{InputTokens: 10, CachedInputTokens: 10}, 0},
			"more than whole": {usage.Price{Input: 4e6, CachedInput: ptr(int64(1e6))}, usage.Entry{InputTokens: 2, CachedInputTokens: 9}, 2},
			"largest":         {usage.Price{Input: 1e6}, usage.Entry{InputTokens: math.MaxInt64}, math.MaxInt64},
		} {
			got, err := tc.price.Cost(tc.entry)
			require.NoError(t, err, name)
			require.Equal(t, tc.want, got, name)
		}
	})
	t.Run("Cost/AgreesWithBigIntegers", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			n := rapid.OneOf(rapid.Int64Range(0, 1e7), rapid.Int64Range(0, math.MaxInt64))
			e := usage.Entry{InputTokens: n.Draw(rt, "in"), OutputTokens: n.Draw(rt, "out")}
			e.CachedInputTokens = rapid.Int64Range(0, e.InputTokens).Draw(rt, "cached")
			e.ReasoningTokens = rapid.Int64Range(0, e.OutputTokens).Draw(rt, "reasoning")
			p := usage.Price{Input: n.Draw(rt, "p1"), CachedInput: ptr(n.Draw(rt, "p2")), Output: n.Draw(rt, "p3"), Reasoning: ptr(n.Draw(rt, "p4"))}
			sum := new(big.Int)
			for _, part := range [][2]int64{
				{e.InputTokens - e.CachedInputTokens, p.Input}, {e.CachedInputTokens, *p.CachedInput},
				{e.OutputTokens - e.ReasoningTokens, p.Output}, {e.ReasoningTokens, *p.Reasoning},
			} {
				sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
			}
			sum.Add(sum, big.NewInt(500_000)).Div(sum, big.NewInt(1_000_000))
			got, err := p.Cost(e)
			if !sum.IsInt64() {
				require.Equal(rt, usage.ReasonOutOfRange, errs.ReasonOf(err))
				return
			}
			require.NoError(rt, err)
			require.Equal(rt, sum.Int64(), got)
		})
	})
}

func TestBook(t *testing.T) {
	t.Parallel()
	book := usage.Book{
		{ID: "any", Model: "*", ValidFrom: day(1)},
		{ID: "gpt", Model: "gpt-*", ValidFrom: day(1)},
		{ID: "gpt-4o*", Model: "gpt-4o*", ValidFrom: day(1)},
		{ID: "exact old", Model: "gpt-4o", ValidFrom: day(1), ValidUntil: day(10)},
		{ID: "exact", Model: "gpt-4o", ValidFrom: day(10)},
		{ID: "named", Provider: "azure", Model: "gpt-4o", ValidFrom: day(10)},
		{ID: "named pattern", Provider: "azure", Model: "gpt-*", ValidFrom: day(1)},
		{ID: "own", Namespace: "n", Model: "g*", ValidFrom: day(20)},
	}
	for name, tc := range map[string]struct {
		provider, model string
		at              time.Time
		want            string
	}{
		"before every price":             {"openai", "gpt-4o", day(1).Add(-1), ""},
		"exact":                          {"openai", "gpt-4o", day(11), "exact"},
		"at its beginning":               {"openai", "gpt-4o", day(10), "exact"},
		"just before it":                 {"openai", "gpt-4o", day(10).Add(-1), "exact old"},
		"longest pattern":                {"openai", "gpt-4o-mini", day(11), "gpt-4o*"},
		"pattern of a named provider":    {"azure", "gpt-5", day(11), "named pattern"},
		"model before provider":          {"azure", "gpt-4o-mini", day(11), "gpt-4o*"},
		"named provider":                 {"azure", "gpt-4o", day(11), "named"},
		"everything":                     {"", "llama", day(11), "any"},
		"the namespace's own goes first": {"openai", "gpt-4o", day(20), "own"},
		"but only where it covers":       {"openai", "llama", day(20), "any"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ok := book.Find(tc.provider, tc.model, tc.at)
			require.Equal(t, tc.want != "", ok)
			require.Equal(t, tc.want, p.ID)
		})
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	t.Run("New/PatternsEndInTheirStar", func(t *testing.T) {
		t.Parallel()
		for _, model := range []string{"*a", "a*b", "a**"} {
			_, err := usage.NewPrice("n", usage.Price{Model: model})
			require.Equal(t, usage.ReasonModelPattern, errs.ReasonOf(err), model)
		}
		p, err := usage.NewPrice("n", usage.Price{Model: "a*", ID: "given", ValidUntil: day(1)})
		require.NoError(t, err)
		require.True(t, ids.Valid(usage.PricePrefix, p.ID))
		require.True(t, p.ValidUntil.IsZero())
	})
	t.Run("New/RefusesWhatCanOverflow", func(t *testing.T) {
		t.Parallel()
		most := int64(usage.MaxRate)
		for field, p := range map[string]usage.Price{
			"price.input_per_million": {Input: most + 1}, "price.cached_input_per_million": {CachedInput: ptr(most + 1)},
			"price.output_per_million": {Output: most + 1}, "price.reasoning_per_million": {Reasoning: ptr(most + 1)},
		} {
			p.Model = "m"
			_, err := usage.NewPrice("n", p)
			bad, ok := errors.AsType[*errs.Error](err)
			require.True(t, ok, field)
			require.Equal(t, usage.ReasonOutOfRange, bad.Reason)
			require.Equal(t, field, bad.Violations[0].Field)
		}
		dearest, err := usage.NewPrice("n", usage.Price{Model: "m", Input: most, CachedInput: &most, Output: most, Reasoning: &most})
		require.NoError(t, err)
		_, err = dearest.Cost(usage.Entry{InputTokens: 1e12, OutputTokens: 1e12})
		require.NoError(t, err, "no call of an executor records has more tokens")
	})
	t.Run("Defaults/AreDistinctStableAndKnown", func(t *testing.T) {
		t.Parallel()
		list, err := usage.Defaults()
		require.NoError(t, err)
		again, err := usage.Defaults()
		require.NoError(t, err)
		require.Equal(t, list, again)
		seen := map[string]bool{}
		for _, p := range list {
			require.True(t, ids.Valid(usage.PricePrefix, p.ID), p.Model)
			require.False(t, seen[p.ID], p.Model)
			seen[p.ID] = true
			_, err := usage.NewPrice("", p)
			require.NoError(t, err)
		}
		book := usage.Book(list)
		for model, known := range map[string]bool{
			"gpt-4o": true, "gpt-4o-2024-11-20": true, "gpt-4o-mini": true, "gpt-4o-audio-preview": false, "o3": true, "o3-pro": false,
			"fake-model": true, "scripted": true, "llama3": false,
		} {
			_, ok := book.Find("whoever", model, day(1))
			require.Equal(t, known, ok, model)
		}
	})
}

func TestTotals(t *testing.T) {
	t.Parallel()
	t.Run("Entry/UnknownPriceIsNotZero", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			in   usage.Entry
			want usage.Totals
		}{
			{usage.Entry{Kind: usage.Model}, usage.Totals{UnpricedCalls: 1, ModelCalls: 1}},
			{usage.Entry{Kind: usage.Model, CostNanoUSD: ptr(int64(0))}, usage.Totals{ModelCalls: 1}},
			{usage.Entry{Kind: usage.Tool}, usage.Totals{ToolCalls: 1}},
			{usage.Entry{Kind: usage.Tool, InputTokens: 1}, usage.Totals{Tokens: 1, UnpricedCalls: 1, ToolCalls: 1}},
			{usage.Entry{Kind: usage.Overhead, OutputTokens: 2, CostNanoUSD: ptr(int64(3))}, usage.Totals{Tokens: 2, NanoUSD: 3, OverheadTokens: 2, OverheadNanoUSD: 3, ModelCalls: 1}},
		} {
			got, err := tc.in.Totals()
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		}
	})
	t.Run("Plus/RefusesWhatDoesNotFit", func(t *testing.T) {
		t.Parallel()
		_, err := usage.Totals{NanoUSD: math.MaxInt64}.Plus(usage.Totals{NanoUSD: 1})
		require.Equal(t, usage.ReasonOutOfRange, errs.ReasonOf(err))
		_, err = usage.Entry{InputTokens: math.MaxInt64, OutputTokens: 1}.Totals()
		require.Error(t, err)
		sum, err := usage.Totals{NanoUSD: math.MaxInt64 - 1}.Plus(usage.Totals{NanoUSD: 1})
		require.NoError(t, err)
		require.EqualValues(t, math.MaxInt64, sum.NanoUSD)
	})
}

// Each pattern against each model is the reference.
func TestCovering(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringMatching(`[ab*]{0,3}`)
		models := rapid.SliceOf(word).Draw(rt, "models")
		patterns := rapid.SliceOf(rapid.Map(word, func(s string) string { return s + "*" })).Draw(rt, "patterns")
		want := slices.Clone(models)
		for _, p := range patterns {
			if slices.ContainsFunc(models, func(m string) bool { return strings.HasPrefix(m, strings.TrimSuffix(p, "*")) }) {
				want = append(want, p)
			}
		}
		require.Equal(rt, want, usage.Covering(patterns, models))
	})
}

func TestShipped(t *testing.T) {
	t.Parallel()
	list, err := usage.Shipped()
	require.NoError(t, err)
	require.NotEmpty(t, list.Source)
	asOf, err := time.Parse(time.DateOnly, list.AsOf)
	require.NoError(t, err)
	for _, p := range list.Prices {
		require.False(t, p.ValidFrom.After(asOf), "line %d begins after the date of the list", p.Line)
	}
}
