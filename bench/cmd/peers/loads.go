package main

import (
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
)

// The loads.
const (
	limitsKey = "L"
	w1        = "W1"
	w2small   = "W2/100"
	w2large   = "W2/1000"
	w3        = "W3"
	w4        = "W4"
	w5        = "W5"
	w6        = "W6"
	w7alone   = "W7/alone"
	w7many    = "W7/16"
	w8        = "W8"
)

// loadSpec is one load and how much of it makes a turn.
type loadSpec struct {
	key, title string
	req        drive.Request
	// warm is the turn before the first one, which does not count.
	warm drive.Request
	// peerWarm, if not nil, is that of the other engines.
	peerWarm *drive.Request
	// critical is by graph: the time that it takes at least; empty where nodes take no time.
	critical []time.Duration
	// once is for loads that are a sample by themselves.
	once bool
	// weight is about what part of the time the load takes.
	weight int
	// fit, if not nil, makes the load as large as can be done in the time by so many contestants.
	fit func(l *loadSpec, left time.Duration, takers int) error
}

func plan(o options) ([]*loadSpec, error) {
	all := []*loadSpec{
		{key: limitsKey, title: "bare commits, batched inserts, gRPC echo", weight: 2, req: drive.Request{Op: drive.OpMeasure, MaxWall: 1500 * time.Millisecond}},
		simple(w1, 10, "a chain of 100 nodes: ms for one run", load.Chain(100), 10, time.Second),
		simple(w2small, 6, "fan-out 1 -> 100 -> 1: ms for one run", load.Fan(100), 10, time.Second),
		simple(w2large, 13, "fan-out 1 -> 1000 -> 1: ms for one run", load.Fan(1000), 5, time.Second),
		simple(w3, 14, "runs of 10 nodes in a row, 64 in flight", load.Chain(10), 1_000_000, 1500*time.Millisecond),
		simple(w4, 7, "20 sleepers of 50 ms in 4 levels: time / critical path", load.Layers(4, 5, 50*time.Millisecond), 3, time.Second),
		simple(w5, 8, "start latency of a run of one node on an idle system", load.Chain(1), 30, time.Second),
	}
	all[5].critical = []time.Duration{200 * time.Millisecond}
	for _, l := range all {
		switch l.key {
		case w1:
			// A tenth of the load: with some, one run takes ten seconds and more.
			l.warm.Graphs = []load.Graph{load.Chain(10)}
		case w2large:
			l.warm.Graphs = []load.Graph{load.Fan(100)}
		case w3:
			l.req.InFlight, l.warm.InFlight = 64, 64
			l.warm.Runs, l.warm.MaxWall = 2000, 400*time.Millisecond
			// A slow one would take a minute to end what 64 have begun.
			l.peerWarm = &drive.Request{Graphs: l.req.Graphs, Runs: 8, InFlight: 8, MaxWall: 200 * time.Millisecond, Op: drive.OpRun}
		case w5:
			l.req.Pause, l.warm.Pause = 15*time.Millisecond, 5*time.Millisecond
			l.warm.Runs = 5
		}
		if o.quick && l.key != limitsKey {
			l.req.Runs = map[string]int{w3: 30, w5: 3}[l.key]
			l.req.Runs, l.warm.Runs = max(l.req.Runs, 1), 1
		}
		if o.quick {
			l.req.MaxWall = min(l.req.MaxWall, 200*time.Millisecond)
		}
	}
	if o.dags != "" {
		for _, l := range []*loadSpec{
			{key: w7alone, title: "real graphs, one at a time: median of time / critical path", once: true, weight: 16, req: drive.Request{InFlight: 1}},
			{key: w7many, title: "real graphs, 16 at a time: median of time / critical path", once: true, weight: 9, req: drive.Request{InFlight: 16}},
		} {
			l.fit = o.sample
			if err := o.sample(l, time.Hour, 1); err != nil {
				return nil, err
			}
			all = append(all, l)
		}
	}
	if o.wakes > 0 {
		n := o.wakes
		if o.quick {
			n = min(n, 20)
		}
		all = append(all, &loadSpec{key: w8, title: "wake-ups of each kind between two replicas: ms until the next node is called", once: true, weight: 12,
			req: drive.Request{Op: drive.OpMeasure, Runs: n}})
	}
	var out []*loadSpec
	for _, l := range all {
		if l.req.Op == "" {
			l.req.Op = drive.OpRun
		}
		l.warm.Op = drive.OpRun
		if wanted(o.loads, l.key) {
			out = append(out, l)
		}
	}
	if len(out) == 0 && !wanted(o.loads, w6) {
		return nil, fmt.Errorf("-loads %q names no load", o.loads)
	}
	return out, nil
}

// foresee estimates from the runs of the warm-up how long one run of the load itself will take.
func (l *loadSpec) foresee(warm []time.Duration) time.Duration {
	if len(warm) == 0 || len(l.req.Graphs) == 0 || len(l.warm.Graphs) == 0 {
		return 0
	}
	return quantile(warm, 0.5) * time.Duration(len(l.req.Graphs[0].Nodes)/len(l.warm.Graphs[0].Nodes))
}

// sample picks the graphs of W7: as many as asked for, unless time is short. One graph takes about 250 ms.
func (o options) sample(l *loadSpec, left time.Duration, takers int) error {
	count := o.dagCount
	if o.quick {
		count = 6
	}
	each := 250 * time.Millisecond * time.Duration(max(1, takers)) / time.Duration(l.req.InFlight)
	if l.req.InFlight > 1 {
		each *= 4 // then the processor is what they wait for
	}
	count = min(count, max(leastGraphs, int(left/each)))
	graphs, err := load.ReadDAGs(o.dags, count)
	if err != nil {
		return err
	}
	l.req.Graphs, l.req.Runs, l.critical = graphs, len(graphs), make([]time.Duration, len(graphs))
	for i := range graphs {
		l.critical[i] = graphs[i].CriticalPath()
	}
	return nil
}

// leastGraphs is how many graphs are run however short the time is.
const leastGraphs = 16

func simple(key string, weight int, title string, g load.Graph, runs int, wall time.Duration) *loadSpec {
	graphs := []load.Graph{g}
	return &loadSpec{key: key, title: title, weight: weight,
		req:  drive.Request{Graphs: graphs, Runs: runs, InFlight: 1, MaxWall: wall},
		warm: drive.Request{Graphs: graphs, Runs: 2, InFlight: 1, MaxWall: wall / 2},
	}
}
