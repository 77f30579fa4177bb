package usage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func TestP90(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		samples []int64
		want    int64
	}{
		"none":           {nil, 0},
		"one":            {[]int64{7}, 7},
		"nine of ten":    {[]int64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}, 9},
		"ten of eleven":  {[]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 10},
		"all of a few":   {[]int64{3, 1, 2}, 3},
		"equal ones":     {[]int64{5, 5, 5, 5}, 5},
		"a rare outlier": {[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1000}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, usage.P90(tc.samples))
		})
	}
}

func TestOutputSamples(t *testing.T) {
	t.Parallel()
	call := func(model string, output int64) usage.Entry {
		return usage.Entry{Key: usage.Key{Source: usage.Executor}, Kind: usage.Model, Model: model, OutputTokens: output}
	}
	t.Run("Models/GetOneSampleEach", func(t *testing.T) {
		t.Parallel()
		got := usage.OutputSamples([]usage.Entry{call("b", 1), call("a", 2), call("b", 1)})
		require.Len(t, got, 2)
		require.Equal(t, []any{"a", int64(2), "b", int64(1)}, []any{got[0].Model, got[0].OutputTokens, got[1].Model, got[1].OutputTokens})
	})
	t.Run("Entries/ThatAreNoCallsOfExecutorsAreLeftOut", func(t *testing.T) {
		t.Parallel()
		client, estimate, tool := call("m", 1), call("m", 1), call("m", 1)
		client.Source, estimate.Source, tool.Kind = usage.Client, usage.Estimate, usage.Tool
		require.Empty(t, usage.OutputSamples([]usage.Entry{client, estimate, tool, call("m", 0), call("", 1)}))
	})
}
