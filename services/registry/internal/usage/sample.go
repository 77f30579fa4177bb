package usage

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// keptOutputs is how many samples of what its calls put out are kept of a model in a namespace.
const keptOutputs = 100

// OutputSample is what one call of a model put out. It takes the place of an older one.
type OutputSample struct {
	Model        string
	Place        int32
	OutputTokens int64
}

// OutputSamples takes one call of each model out of entries, by chance, and gives it a place by chance.
// So a booking writes few samples, what is kept is bounded without being counted, and older calls fade.
func OutputSamples(entries []Entry) (out []OutputSample) {
	chosen, seen := map[string]int64{}, map[string]int{}
	for i := range entries {
		e := &entries[i]
		if e.Source != Executor || e.Kind == Tool || e.Model == "" || e.OutputTokens <= 0 {
			continue
		}
		if seen[e.Model]++; rand.IntN(seen[e.Model]) == 0 { //nolint:gosec // no secret
			chosen[e.Model] = e.OutputTokens
		}
	}
	for _, model := range slices.Sorted(maps.Keys(chosen)) {
		out = append(out, OutputSample{Model: model, Place: rand.Int32N(keptOutputs), OutputTokens: chosen[model]}) //nolint:gosec // no secret
	}
	return out
}

// P90 is the 90th percentile of samples, the nearest rank: at least nine of ten are not above it. It is
// 0 if there are none.
func P90(samples []int64) int64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)*9+9)/10-1]
}
