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
	// prior is how many calls the assumption weighs that a guess begins with.
	prior = 5
	// trusted is after how many calls an estimate is corrected downwards.
	trusted = 5
	// reliable is after how many calls a namespace is known by its own calls alone.
	reliable = 50
	// caution is how many deviations above the mean the calls under way together are assumed to take.
	caution = 4
	// sparePer is the part of a limit that all calls under way take at least beyond what they will probably
	// use.
	sparePer = 50
	// outlasted is how many later calls end before a call counts as one that uses its whole estimate.
	outlasted = 256
)

// learn notes an estimate and what was used.
func (g *guess) learn(estimate, used int64) {
	if estimate <= 0 {
		return
	}
	if *g == (guess{}) {
		g.mean, g.squares = 1, 1
	}
	r := float64(used) / float64(estimate)
	g.known++
	w := max(memory, 1/float64(g.known+prior))
	g.mean += w * (r - g.mean)
	g.squares += w * (r*r - g.squares)
	g.top = max(r, g.top*(1-memory/20))
}

// heir is what a namespace is assumed to be like of which nothing is known yet: as all others.
func (g *guess) heir() guess {
	h := *g
	h.known = 0
	return h
}

// taking is what a call is expected to use: probably, with caution, and at most.
type taking struct{ likely, careful, most int64 }

// of is what to take for an estimate while so many calls of the namespace are under way. The errors of many
// calls even out; the error of the mean, which they share, does not.
func (g *guess) of(estimate int64, flying int) taking {
	likely, careful, most := 1., 1., 1.
	if *g != (guess{}) {
		spread := math.Sqrt(max(g.squares-g.mean*g.mean, 0))
		most = max(g.top, g.mean, 1)
		likely = g.mean
		careful = min(g.mean+caution*spread*math.Sqrt(1/float64(flying+1)+memory/2), max(g.top, g.mean))
		if g.known < trusted {
			likely, careful = max(likely, 1), max(careful, 1)
		}
	}
	n := func(f float64) int64 { return int64(math.Ceil(f * float64(estimate))) }
	return taking{n(likely), n(careful), n(most)}
}

func (t taking) plus(u taking) taking {
	return taking{t.likely + u.likely, t.careful + u.careful, t.most + u.most}
}

func (t taking) atLeast(u taking) taking {
	return taking{max(t.likely, u.likely), max(t.careful, u.careful), max(t.most, u.most)}
}

// with is what the call takes if it has a part of the spare room.
func (t taking) with(spare int64) int64 { return min(max(t.careful, t.likely+spare), t.most) }

// outcome is what became of a call, to be learned from.
type outcome struct {
	estimate, used [2]int64 // of the prompt and of the answer
	// ended means that used is final if it is known; passed, that nothing more is learned from it.
	ended, known, passed bool
}

// settle learns from the calls that have ended, in the order in which they began: those that take long use
// more, so that learning from the first that end would make the guess too small.
func (l *line) settle(all *[2]guess) {
	for len(l.begun) > 0 {
		o := l.begun[0]
		if !o.ended {
			if l.ended <= outlasted {
				return
			}
			o.used, o.known, o.passed = o.estimate, true, true
		} else {
			l.ended--
		}
		if o.known {
			for i := range o.estimate {
				l.guess[i].learn(o.estimate[i], o.used[i])
				all[i].learn(o.estimate[i], o.used[i])
			}
		}
		l.begun[0] = nil
		l.begun = l.begun[1:]
	}
}
