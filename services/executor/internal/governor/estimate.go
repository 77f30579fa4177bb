package governor

import "math"

// guess learns how far the estimates of one namespace are off, by what its calls used. The zero value takes
// them as they are.
type guess struct {
	known              int
	mean, squares, top float64
}

const (
	// memory is how much the last call weighs.
	memory = 0.02
	// trusted is after how many calls an estimate is corrected downwards.
	trusted = 5
	// caution is how many deviations above the mean the calls under way together are assumed to take.
	caution = 4
)

// learn notes an estimate and what was used.
func (g *guess) learn(estimate, used int64) {
	if estimate <= 0 {
		return
	}
	r := float64(used) / float64(estimate)
	g.known++
	w := max(memory, 1/float64(g.known))
	g.mean += w * (r - g.mean)
	g.squares += w * (r*r - g.squares)
	g.top = max(r, g.top*(1-memory/4))
}

// of is what to take for an estimate while so many calls of the namespace are under way. The errors of many
// calls even out; the error of the mean, which they share, does not.
func (g *guess) of(estimate int64, flying int) int64 {
	f := 1.
	if g.known > 0 {
		spread := math.Sqrt(max(g.squares-g.mean*g.mean, 0))
		f = min(g.mean+caution*spread*math.Sqrt(1/float64(flying+1)+memory/2), max(g.top, g.mean))
		if g.known < trusted {
			f = max(f, 1)
		}
	}
	return int64(math.Ceil(f * float64(estimate)))
}
