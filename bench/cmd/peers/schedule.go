package main

import (
	"cmp"
	"slices"
	"time"
)

// A run is to end in bounded time on any machine, so rounds are given out by what they cost: everybody takes
// part in the first one, Epigraph and the floors in leastRounds, and in further ones whoever fits into the
// load's share of the time that is left. Once the whole time is over, which happens on a busy machine, peers
// are left out of what remains, and named.

// leastRounds is how many rounds Epigraph and the floors take in any case, if as many are asked for.
const leastRounds = 3

// schedule shares out the time of the whole run. It is used by one goroutine.
type schedule struct {
	began, until time.Time
	left         int // the weight of the coming loads together
}

func newSchedule(began time.Time, most time.Duration, loads []*loadSpec) *schedule {
	s := &schedule{began: began, until: began.Add(most)}
	for _, l := range loads {
		s.left += l.weight
	}
	return s
}

// share is the end of the time in which a load may take further rounds. It subtracts the load from the coming
// ones.
func (s *schedule) share(l *loadSpec, now time.Time) time.Time {
	if s.left == 0 {
		return now
	}
	part := time.Duration(float64(max(0, s.until.Sub(now))) * float64(l.weight) / float64(s.left))
	s.left -= l.weight
	return now.Add(part)
}

// takes picks who takes part in a round of a load: costs are what the last turn of each took, left is the
// time that the load may still take.
func (o options) takes(all []*contestant, round int, costs map[*contestant]time.Duration, left time.Duration) []*contestant {
	if round == 0 {
		return all
	}
	var own time.Duration
	var peers []*contestant
	for _, c := range all {
		switch {
		case !c.peer:
			own += costs[c]
		case round < o.peerRounds:
			peers = append(peers, c)
		}
	}
	if round >= min(leastRounds, o.rounds) && own > left {
		return nil
	}
	// The time of our contestants in the mandatory rounds is subtracted already.
	left -= own * time.Duration(max(1, min(leastRounds, o.rounds)-round))
	slices.SortStableFunc(peers, func(a, b *contestant) int { return cmp.Compare(costs[a], costs[b]) })
	in := map[*contestant]bool{}
	for _, c := range peers {
		if costs[c] > left {
			break
		}
		in[c], left = true, left-costs[c]*time.Duration(o.peerRounds-round)
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *contestant) bool { return c.peer && !in[c] })
}
