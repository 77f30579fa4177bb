package chaos_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// totals is what all trials of this process add up to.
var totals = &tally{kills: map[string]int{}, faults: map[string]int{}}

// tally counts over trials.
type tally struct {
	mu     sync.Mutex
	kills  map[string]int
	faults map[string]int
	trials int
	// runs is the number of started runs, visits that of ended attempts; calls are those that arrived
	// outside, unsafe how many of them were UNSAFE.
	runs, visits, calls, unsafe int
	// settled are reconciled UNSAFE calls, released runs that were resumed from quarantine.
	settled, released int
	// failover is how long the runs of each killed executor stood still.
	failover []time.Duration
	moved    int
}

// kill counts the end of a process, or what comes near it, by its kind.
func (t *tally) kill(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kills[kind]++
}

// trial adds what a trial came to.
func (t *tally) trial(runs, visits, calls, unsafe int, faults map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trials++
	t.runs += runs
	t.visits += visits
	t.calls += calls
	t.unsafe += unsafe
	for what, n := range faults {
		t.faults[what] += n
	}
}

func (t *tally) helped(settled, released int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled += settled
	t.released += released
}

func (t *tally) moves(took []time.Duration, runs int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failover = append(t.failover, took...)
	t.moved += runs
}

// print writes everything as one table.
func (t *tally) print(w io.Writer, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trials == 0 {
		return
	}
	var b strings.Builder
	line := func(what string, value any) { fmt.Fprintf(&b, "| %-52s | %12v |\n", what, value) }
	head := func(what, unit string) {
		line(what, unit)
		fmt.Fprintf(&b, "|%s|%s|\n", strings.Repeat("-", 54), strings.Repeat("-", 13)+":")
	}
	sum := 0
	for _, n := range t.kills {
		sum += n
	}
	fmt.Fprintf(&b, "\n%d trials in %s\n\n", t.trials, took.Round(time.Second))
	head("killed", "processes")
	for _, kind := range slices.Sorted(maps.Keys(t.kills)) {
		line(kind, t.kills[kind])
	}
	line("together", sum)
	b.WriteByte('\n')
	head("done meanwhile", "number")
	line("runs asked for", t.runs)
	line("attempts ended in journals", t.visits)
	line("calls that came to the world outside", t.calls)
	line("of these UNSAFE", t.unsafe)
	line("UNSAFE calls of unknown outcome, settled", t.settled)
	line("resumed from quarantine", t.released)
	b.WriteByte('\n')
	head("must not be", "found")
	for _, what := range slices.Sorted(maps.Keys(t.faults)) {
		line(what, t.faults[what])
	}
	if n := len(t.failover); n > 0 {
		slices.Sort(t.failover)
		b.WriteByte('\n')
		head(fmt.Sprintf("failover, %d kills, %d runs", n, t.moved), "standstill")
		line("fastest", t.failover[0].Round(time.Millisecond))
		line("median", t.failover[n/2].Round(time.Millisecond))
		line("90th of 100", t.failover[n*9/10].Round(time.Millisecond))
		line("slowest", t.failover[n-1].Round(time.Millisecond))
	}
	_, _ = io.WriteString(w, b.String())
}
