package catalog

import (
	"container/heap"
	"math"
	"slices"
)

// Piece is what is known before its start of one task of an epic.
type Piece struct {
	TaskID, Title string
	// Workflow is the version that would work on it, as SLUG@VERSION.
	Workflow string
	// Priority is that of the task; smaller ones start first.
	Priority int
	// After are the places of the tasks that it depends on.
	After []int
	// Basis is zero where there is no forecast; Unknown says why.
	Basis                    Basis
	Cost, Tokens, DurationMS Amount
	Unknown                  string
}

// Estimate is an amount of an epic. P50 and P90 are nil if a piece is not known.
type Estimate struct {
	P50, P90         *int64
	Known50, Known90 int64
	Unknown          int
	BudgetLeft       *int64
}

// Total adds up an amount of all pieces.
func Total(pieces []Piece, of func(*Piece) Amount) Estimate {
	return estimate(pieces, of, func(each []int64) (sum int64) {
		for _, n := range each {
			sum = capped(sum, n)
		}
		return sum
	})
}

// Makespan is how long the pieces take if so many are worked on at once, each as soon as those that it
// depends on have ended, the most urgent first. 0 is no limit: that is the critical path.
func Makespan(pieces []Piece, parallel int) Estimate {
	if parallel <= 0 {
		parallel = len(pieces)
	}
	return estimate(pieces, func(p *Piece) Amount { return p.DurationMS }, func(took []int64) int64 { return makespan(pieces, took, parallel) })
}

func estimate(pieces []Piece, of func(*Piece) Amount, sum func([]int64) int64) (e Estimate) {
	p50, p90 := make([]int64, len(pieces)), make([]int64, len(pieces))
	for i := range pieces {
		a := of(&pieces[i])
		if a.P50 == nil || a.P90 == nil {
			e.Unknown++
			continue
		}
		p50[i], p90[i] = *a.P50, *a.P90
	}
	e.Known50, e.Known90 = sum(p50), sum(p90)
	if e.Unknown == 0 {
		e.P50, e.P90 = &e.Known50, &e.Known90
	}
	return e
}

// capped is a sum that stops at the largest number.
func capped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// due is a piece that can start, or one at work.
type due struct {
	at    int64 // its end, or its priority
	piece int
}

type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	if d[i].at != d[j].at {
		return d[i].at < d[j].at
	}
	return d[i].piece < d[j].piece
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func makespan(pieces []Piece, took []int64, parallel int) (now int64) {
	waits, next := make([]int, len(pieces)), make([][]int, len(pieces))
	var ready, busy dues
	for i, p := range pieces {
		waits[i] = len(p.After)
		for _, before := range p.After {
			next[before] = append(next[before], i)
		}
		if waits[i] == 0 {
			ready = append(ready, due{int64(p.Priority), i})
		}
	}
	heap.Init(&ready)
	for len(ready)+len(busy) > 0 {
		for len(ready) > 0 && len(busy) < parallel {
			p := heap.Pop(&ready).(due).piece
			heap.Push(&busy, due{capped(now, took[p]), p})
		}
		done := heap.Pop(&busy).(due)
		now = done.at
		for _, p := range next[done.piece] {
			if waits[p]--; waits[p] == 0 {
				heap.Push(&ready, due{int64(pieces[p].Priority), p})
			}
		}
	}
	return now
}

// EpicForecast tells what is left to do of an epic.
type EpicForecast struct {
	Parallel                             int
	Pieces                               []Piece
	Cost, Tokens, Duration, CriticalPath Estimate
	Notes                                []string
}

// Sum makes the forecast of an epic of its pieces. left is what is left of its budget.
func (f *EpicForecast) Sum(leftNanoUSD, leftTokens *int64) {
	f.Cost = Total(f.Pieces, func(p *Piece) Amount { return p.Cost })
	f.Tokens = Total(f.Pieces, func(p *Piece) Amount { return p.Tokens })
	f.Duration, f.CriticalPath = Makespan(f.Pieces, f.Parallel), Makespan(f.Pieces, 0)
	f.Cost.BudgetLeft, f.Tokens.BudgetLeft = leftNanoUSD, leftTokens
	if len(f.Pieces) == 0 {
		f.Notes = append(f.Notes, "No task is left to do.")
		return
	}
	f.Notes = append(f.Notes, "It is made of the forecasts of the workflows of the tasks that have not ended; one at work counts as a whole.",
		"P90 adds up the P90 of the tasks, which is more than nine of ten such epics need. Tasks that are tried again, and what agents use that make or watch the tasks, are not in it.")
	if slices.ContainsFunc(f.Pieces, func(p Piece) bool { return p.Unknown != "" }) {
		f.Notes = append(f.Notes, "Of some tasks something is not known: the known amounts are a lower bound.")
	}
	for _, over := range []struct {
		e    Estimate
		what string
	}{{f.Cost, "money"}, {f.Tokens, "tokens"}} {
		switch left := over.e.BudgetLeft; {
		case left == nil:
		case over.e.Known50 > *left:
			f.Notes = append(f.Notes, "The budget of "+over.what+" is likely to stop it: what is left is less than the P50.")
		case over.e.Known90 > *left:
			f.Notes = append(f.Notes, "The budget of "+over.what+" may stop it: what is left is less than the P90.")
		}
	}
}
