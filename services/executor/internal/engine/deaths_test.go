package engine_test

import "math/rand/v2"

// maxDeaths bounds the calls of one workflow at which executors die under the race detector, which makes
// each death several times slower.
const maxDeaths = 6

// deaths are the calls, from first to last, at which executors die: all of them, or under the race detector
// some, evenly apart, other ones each time.
func deaths(first, last int) []int {
	step := 1
	if n := last - first + 1; raced && n > maxDeaths {
		step = (n + maxDeaths - 1) / maxDeaths
	}
	var at []int
	for n := first + rand.IntN(step); n <= last; n += step {
		at = append(at, n)
	}
	return at
}
