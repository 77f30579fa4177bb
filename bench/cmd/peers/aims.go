package main

import "fmt"

// aim is a target for one of our contestants. It is compared in one run with the floors of the same rounds.
type aim struct {
	contestant, figure, text string
	// baseline, if set, is the contestant whose figure divides ours.
	baseline string
	// limit bounds the figure, the ratio, or the difference to the baseline.
	limit   float64
	atLeast bool
	plus    bool // compare the difference
}

// Wake-ups that have aims, as their contestant names them.
const (
	wakeAnswered = "interrupt answered, run held by the other"
	wakeChild    = "child done, parent held by the other"
	wakeTimer    = "timer due, run in the database"
)

func aims() []aim {
	return []aim{
		{contestant: epigraphLocal, figure: perCPU, baseline: floorGroup, limit: 0.30, atLeast: true, text: "W3 nodes per CPU-second >= 30 % of floor-B"},
		{contestant: epigraphLocal, figure: w1 + wall, baseline: floorOne, limit: 1.3, text: "W1 <= 1.3 x floor-1"},
		{contestant: epigraphLocal, figure: w2small + wall, baseline: floorGroup, limit: 2, text: "W2(100) <= 2 x floor-B"},
		{contestant: epigraphLocal, figure: w2large + wall, baseline: floorGroup, limit: 3, text: "W2(1000) <= 3 x floor-B"},
		{contestant: epigraphLocal, figure: w4 + overPath, limit: 1.03, text: "W4 <= 1.03 x critical path"},
		{contestant: epigraphLocal, figure: startP50, baseline: floorOne, plus: true, limit: 1, text: "W5 start p50 <= floor-1 + 1 ms"},
		{contestant: epigraphLocal, figure: doneP50, baseline: floorOne, plus: true, limit: 1, text: "W5 done p50 <= floor-1 + 1 ms"},
		{contestant: epigraphLocal, figure: w7alone + overPath, limit: 1.05, text: "W7 one at a time, median <= 1.05 x critical path"},
		{contestant: epigraphLocal, figure: w7many + overPath, limit: 1.05, text: "W7 16 at a time, median <= 1.05 x critical path"},
		{contestant: epigraphLocal, figure: walBytes, baseline: floorGroup, limit: 1.5, text: "WAL per node <= 1.5 x floor-B"},
		{contestant: epigraphLocal, figure: rssPeak, limit: 60, text: "RssAnon <= 60 MB in W3"},
		{contestant: epigraphLocal, figure: finishedBytes, limit: 16, text: "RssAnon flat in finished runs (<= 16 B each, beyond 1 MiB)"},
		{contestant: epigraphLocal, figure: waitingBytes, limit: 4096, text: "RssAnon <= 4 KiB per waiting run"},
		{contestant: epigraphRemote, figure: w1 + wall, limit: 150, text: "W1 <= 150 ms with remote workers"},
		{contestant: epigraphRemote, figure: rate, limit: 3000, atLeast: true, text: "W3 >= 3,000 nodes/s with remote workers"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeAnswered + "|p50", limit: 10, text: "Wake-up, interrupt answered at the other replica: p50 <= 10 ms"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeAnswered + "|max", limit: 150, text: "Wake-up, interrupt answered at the other replica: worst <= 150 ms"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeChild + "|p50", limit: 10, text: "Wake-up, child done at the other replica: p50 <= 10 ms"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeChild + "|max", limit: 150, text: "Wake-up, child done at the other replica: worst <= 150 ms"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeTimer + "|p50", limit: 10, text: "Wake-up, timer due, whichever replica: p50 <= 10 ms"},
		{contestant: epigraphTwo, figure: w8 + " " + wakeTimer + "|max", limit: 150, text: "Wake-up, timer due, whichever replica: worst <= 150 ms"},
		{contestant: epigraphMem, figure: rate, limit: 300_000, atLeast: true, text: "W3 >= 300,000 nodes/s in memory"},
	}
}

// Verdict is an aim as it came out.
type Verdict struct {
	Contestant string  `json:"contestant"`
	Aim        string  `json:"aim"`
	Got        float64 `json:"got"`
	Measured   bool    `json:"measured"`
	Met        bool    `json:"met"`
	Shown      string  `json:"-"`
}

func (h *harness) verdicts() []Verdict {
	by := map[string]*contestant{}
	for _, c := range h.contestants {
		by[c.name] = c
	}
	var out []Verdict
	for _, a := range aims() {
		v := Verdict{Contestant: a.contestant, Aim: a.text, Shown: "not measured"}
		c, base := by[a.contestant], by[a.baseline]
		if c == nil {
			continue
		}
		switch {
		case a.baseline != "" && base == nil:
		case a.plus:
			mine, ok := c.figures.value(a.figure)
			other, also := base.figures.value(a.figure)
			v.Got, v.Measured = mine-other, ok && also
			v.Shown = fmt.Sprintf("%.2f - %.2f = %+.2f ms", mine, other, v.Got)
		case a.baseline != "":
			v.Got, v.Measured = c.figures.ratio(base.figures, a.figure)
			v.Shown = fmt.Sprintf("%.2f x", v.Got)
		default:
			v.Got, v.Measured = c.figures.value(a.figure)
			v.Shown = number(v.Got)
		}
		if !v.Measured {
			v.Shown = "not measured"
		}
		v.Met = v.Measured && ((a.atLeast && v.Got >= a.limit) || (!a.atLeast && v.Got <= a.limit))
		out = append(out, v)
	}
	return out
}
