package pricelist_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/pricelist"
)

func ptr(n int64) *int64 { return &n }

func TestRead(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	want := []pricelist.Price{
		{Provider: "p", Model: "a", ValidFrom: day, Input: 1_250_000_000, CachedInput: ptr(0), Output: 10_000_000_000, Reasoning: ptr(1)},
		{Model: "b*", ValidFrom: day.Add(12 * time.Hour), Input: 0, Output: 500_000_000},
	}
	for name, tc := range map[string]struct {
		text  string
		csv   bool
		lines []int
	}{
		"YAML": {"as_of: \"2026-02-01\"\nsource: mine\nprices:\n  - provider: p\n    model: a\n    valid_from: 2026-01-31\n    input: 1.25\n    cached_input: 0\n    output: 10\n    reasoning: 0.000000001\n" +
			"  - {model: \"b*\", valid_from: \"2026-01-31T13:00:00+01:00\", input: 0, output: .5}\n", false, []int{4, 11}},
		"JSON": {"{\"as_of\": \"2026-02-01\", \"source\": \"mine\", \"prices\": [\n{\"provider\": \"p\", \"model\": \"a\", \"valid_from\": \"2026-01-31\", \"input\": 1.25, \"cached_input\": 0, \"output\": 10, \"reasoning\": \"0.000000001\"},\n" +
			"{\"model\": \"b*\", \"valid_from\": \"2026-01-31T12:00:00Z\", \"input\": 0, \"output\": 0.5, \"reasoning\": null}]}", false, []int{2, 3}},
		"CSV": {"# mine\nmodel,provider,valid_from,input,cached_input,output,reasoning\na,p,2026-01-31,1.25,0,10,0.000000001\nb*,,2026-01-31T12:00:00Z,0,,0.5,\n", true, []int{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := pricelist.Read([]byte(tc.text), tc.csv)
			require.NoError(t, err)
			for i := range got.Prices {
				require.Equal(t, tc.lines[i], got.Prices[i].Line)
				got.Prices[i].Line = 0
			}
			require.Equal(t, want, got.Prices)
			if !tc.csv {
				require.Equal(t, []string{"2026-02-01", "mine"}, []string{got.AsOf, got.Source})
			}
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const head = "model,valid_from,input,output\n"
	for name, tc := range map[string]struct {
		text string
		csv  bool
		want []string
	}{
		"every one is told": {head + "a,May,1,1\n,2026-01-31,1,x\n", true, []string{"line 2: valid_from", "line 3: a price needs a model", "line 3: output"}},
		"nothing":           {"", true, []string{"line 1: the first line must name the columns"}},
		"no prices":         {"prices: []\n", false, []string{"line 1: the file has no prices"}},
		"unknown column":    {"model,price\n", true, []string{`line 1: "price" is no column`}},
		"twice":             {head + "a,2026-01-31,1,1\na,2026-01-31T00:00:00Z,2,2\n", true, []string{"line 3: the model has a price from the same time on in line 2"}},
		"star":              {head + "a*b,2026-01-31,1,1\n", true, []string{`line 2: a "*" may only end`}},
		"negative":          {head + "a,2026-01-31,-1,1\n", true, []string{"line 2: input"}},
		"too fine":          {head + "a,2026-01-31,0.0000000001,1\n", true, []string{"line 2: input: 0.0000000001 has parts"}},
		"too high":          {head + "a,2026-01-31,9999999999,1\n", true, []string{"line 2: input: 9999999999 is too high"}},
		"missing values":    {head + "a,2026-01-31\nb,2026-01-31,1,1\n,,,\n", true, []string{"line 2: the line is not CSV", "line 4: a price needs a model"}},
		"unknown key":       {"price: 1\n", false, []string{`line 1: there is no key "price"`}},
		"unknown field":     {"prices:\n  - model: a\n    cost: 1\n", false, []string{`line 3: a price has no "cost"`}},
		"no list":           {"prices: 1\n", false, []string{"line 1: prices must be a list"}},
		"nested":            {"prices:\n  - model: [a]\n", false, []string{"line 2: model must be a text or a number"}},
		"no YAML":           {"prices: [", false, []string{"line 1: the file is neither YAML nor JSON"}},
		"too large":         {strings.Repeat("#", pricelist.MaxBytes+1), false, []string{"line 1: the file has"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := pricelist.Read([]byte(tc.text), tc.csv)
			require.Error(t, err)
			require.Empty(t, got)
			for _, w := range tc.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}
