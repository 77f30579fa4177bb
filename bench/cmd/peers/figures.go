package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/measure"
)

// Figures by contestant. Those of a load begin with its key.
const (
	wall       = " ms"
	rate       = "W3 nodes/s"
	perCPU     = "W3 nodes/CPU-s"
	runTime    = "W3 run p50 ms"
	overPath   = " x path"
	startP50   = "W5 start p50 ms"
	startP99   = "W5 start p99 ms"
	doneP50    = "W5 done p50 ms"
	walBytes   = "WAL B/node"
	pageBytes  = "full-page B/node"
	dbBytes    = "database B/node"
	rssPeak    = "RssAnon MB"
	rssSettled = "RssAnon settled B"
	runsEnded  = "runs ended"

	finishedBytes = "RssAnon B/finished run"
	waitingBytes  = "RssAnon B/waiting run"
)

// figureLoad is the load that a figure comes from.
func figureLoad(name string) string {
	switch name {
	case walBytes, pageBytes, dbBytes, rssPeak, rssSettled, runsEnded, finishedBytes:
		return w3
	case waitingBytes:
		return w6
	}
	load, _, _ := strings.Cut(name, " ")
	return load
}

// turn is what one contestant did at one load in one round.
type turn struct {
	round   int
	answer  drive.Answer
	cpu     time.Duration
	rss     int64
	settled int64
	wal     measure.WAL
	growth  int64
}

// figures are values by name and round.
type figures map[string]map[int]float64

func (f figures) put(name string, round int, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	if f[name] == nil {
		f[name] = map[int]float64{}
	}
	f[name][round] = v
}

func (f figures) add(l *loadSpec, t turn) {
	a := t.answer
	ms := func(d []time.Duration, q float64) float64 { return quantile(d, q).Seconds() * 1e3 }
	nodes := float64(a.Nodes)
	switch l.key {
	case limitsKey, w8:
		for name, v := range a.Values {
			f.put(l.key+" "+name, t.round, v)
		}
	case w1, w2small, w2large:
		f.put(l.key+wall, t.round, ms(a.Took, 0.5))
	case w3:
		f.put(rate, t.round, nodes/a.Wall.Seconds())
		f.put(perCPU, t.round, nodes/t.cpu.Seconds())
		f.put(runTime, t.round, ms(a.Took, 0.5))
		f.put(rssPeak, t.round, float64(t.rss)/(1<<20))
		if t.settled > 0 {
			f.put(rssSettled, t.round, float64(t.settled))
			f.put(runsEnded, t.round, float64(len(a.Took)))
		}
		if t.wal.Records > 0 {
			f.put(walBytes, t.round, float64(t.wal.Records)/nodes)
			f.put(pageBytes, t.round, float64(t.wal.Pages)/nodes)
		}
		if t.growth > 0 {
			f.put(dbBytes, t.round, float64(t.growth)/nodes)
		}
	case w5:
		f.put(startP50, t.round, ms(a.Start, 0.5))
		f.put(startP99, t.round, ms(a.Start, 0.99))
		f.put(doneP50, t.round, ms(a.Took, 0.5))
	case w4, w7alone, w7many:
		ratios := make([]float64, len(a.Took))
		for i, d := range a.Took {
			ratios[i] = float64(d) / float64(l.critical[i%len(l.critical)])
		}
		f.put(l.key+overPath, t.round, median(ratios))
	}
}

// value is the median over the rounds.
func (f figures) value(name string) (float64, bool) {
	if len(f[name]) == 0 {
		return 0, false
	}
	return median(f.all(name)), true
}

// all is the values in the order of the rounds.
func (f figures) all(name string) []float64 {
	rounds := make([]int, 0, len(f[name]))
	for r := range f[name] {
		rounds = append(rounds, r)
	}
	slices.Sort(rounds)
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = f[name][r]
	}
	return out
}

// ratio is the median, over the rounds that both took part in, of this value by the other's of the same
// round.
func (f figures) ratio(other figures, name string) (float64, bool) {
	var out []float64
	for r, v := range f[name] {
		if o, ok := other[name][r]; ok && o > 0 {
			out = append(out, v/o)
		}
	}
	if len(out) == 0 {
		return 0, false
	}
	return median(out), true
}

// noise is what memory differs by between two looks at a process that did nothing.
const noise = 1 << 20

// finished puts what the memory grew by beyond the noise with each run that ended, from the first round to
// the last.
func (f figures) finished() {
	held, runs := f.all(rssSettled), f.all(runsEnded)
	if len(held) < 2 {
		return
	}
	sum := 0.0
	for _, n := range runs[1:] {
		sum += n
	}
	f.put(finishedBytes, 0, max(0, held[len(held)-1]-held[0]-noise)/sum)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func quantile(v []time.Duration, q float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}
