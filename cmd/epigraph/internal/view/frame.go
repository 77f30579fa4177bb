package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// still is the frame of a picture that does not move.
const still = -1

// mark is one sign per state.
func (s Style) mark(st executorv1.VisitState, frame int) string {
	switch st {
	case executorv1.VisitState_VISIT_STATE_RUNNING:
		if frame == still {
			return s.cyan("▶")
		}
		return s.cyan(string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10]))
	case executorv1.VisitState_VISIT_STATE_COMPLETED:
		return s.green("✓")
	case executorv1.VisitState_VISIT_STATE_FAILED:
		return s.red("✗")
	case executorv1.VisitState_VISIT_STATE_BACKING_OFF:
		return s.yellow("↻")
	case executorv1.VisitState_VISIT_STATE_WAITING:
		return s.yellow("…")
	case executorv1.VisitState_VISIT_STATE_HELD:
		return s.yellow("‖")
	case executorv1.VisitState_VISIT_STATE_SKIPPED:
		return s.dim("⊘")
	case executorv1.VisitState_VISIT_STATE_ABSTAINED:
		return s.dim("○")
	case executorv1.VisitState_VISIT_STATE_CANCELED:
		return s.yellow("⊗")
	case executorv1.VisitState_VISIT_STATE_CANCELING:
		return s.yellow("⊖")
	case executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION:
		return s.red("?")
	}
	return s.dim("·")
}

// line is the state of one node, for output that only grows.
func (t *Tree) line(s Style, n *treeNode, note string) string {
	out := s.mark(n.state, still) + " " + s.Bold(OneLine(n.id, 60)) + "  " + t.facts(s, n, time.Time{}, false)
	if note != "" {
		out += s.dim("  (" + OneLine(note, 100) + ")")
	}
	return strings.TrimRight(out, " ")
}

func (t *Tree) facts(s Style, n *treeNode, now time.Time, live bool) string {
	var parts []string
	state := Word(n.state.String(), "VISIT_STATE_")
	switch {
	case n.unreached:
		parts = append(parts, "not reached")
	case n.state != executorv1.VisitState_VISIT_STATE_UNSPECIFIED && n.state != executorv1.VisitState_VISIT_STATE_COMPLETED:
		parts = append(parts, strings.ReplaceAll(state, "_", " "))
	}
	if n.state == executorv1.VisitState_VISIT_STATE_BACKING_OFF && live && n.retryAt.After(now) {
		parts = append(parts, "again in "+Took(n.retryAt.Sub(now)))
	}
	if n.wait != "" && n.state == executorv1.VisitState_VISIT_STATE_WAITING {
		parts = append(parts, "for "+n.wait)
		if live && n.doing != "" {
			parts = append(parts, n.doing)
		}
	}
	if n.mark != "" {
		parts = append(parts, n.mark)
	}
	if n.visits > 1 {
		parts = append(parts, fmt.Sprintf("visit %d", n.visits))
	}
	if n.attempts > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", n.attempts))
	}
	if n.items > 0 {
		parts = append(parts, Plural(n.items, "item"))
		if n.failed > 0 {
			parts = append(parts, s.red(fmt.Sprintf("%d failed", n.failed)))
		}
	}
	switch {
	case !n.ended.IsZero() && !n.started.IsZero():
		parts = append(parts, Took(n.ended.Sub(n.started)))
	case live && !n.started.IsZero() && (n.state == executorv1.VisitState_VISIT_STATE_RUNNING || n.state == executorv1.VisitState_VISIT_STATE_WAITING):
		parts = append(parts, Took(now.Sub(n.started)))
	}
	if n.input+n.output > 0 {
		parts = append(parts, fmt.Sprintf("%s→%s tok", Count(n.input), Count(n.output)))
	}
	if c := t.cost[n.id]; c.known {
		parts = append(parts, Money(c.nano))
	} else if c.unpriced > 0 {
		parts = append(parts, "price unknown")
	}
	err := n.err
	if err == nil {
		err = n.itemErr
	}
	if err != nil && (n.state == executorv1.VisitState_VISIT_STATE_FAILED || n.err != nil && n.state != executorv1.VisitState_VISIT_STATE_COMPLETED) {
		parts = append(parts, s.red(OneLine(errorText(err), 120)))
	}
	if moves := n.state == executorv1.VisitState_VISIT_STATE_RUNNING || n.doing != ""; live && moves && n.text != "" {
		parts = append(parts, s.dim(OneLine(tail(n.text, 40), 40)))
	}
	return strings.Join(parts, "  ")
}

// maxLines is how many nodes a tree shows at most; of larger graphs it shows those where something happens.
const maxLines = 40

// maxInterrupts is how many open interrupts stand below a tree at most.
const maxInterrupts = 3

// leastFacts is how much room a tree keeps for what happens. Where there is less, the actors are left out and
// depth is one column.
const leastFacts = 24

// Frame says how a tree is drawn.
type Frame struct {
	// Width is how many columns there are, and Height how many lines; 0 is no limit.
	Width, Height int
	// Turn moves the sign of what runs from picture to picture; negative is a picture that does not move.
	Turn int
	// Now is the time that running nodes are measured against.
	Now time.Time
}

// Render draws the tree: nodes by depth, each with what it waits for, and how many are in which state. Of
// more nodes than there is room for it shows those where something happens, then the last that ended, then
// the next to come.
func (t *Tree) Render(s Style, f Frame) string {
	room := maxLines
	if f.Height > 0 {
		room = max(min(room, f.Height-1), 1)
	}
	asks := t.interrupts[:min(len(t.interrupts), maxInterrupts, (room-1)/2/3)]
	shown := t.pick(room - 2*len(asks))
	label := func(id string) string { return strings.Repeat("  ", min(t.depth[id], 12)) + OneLine(id, 32) }
	idWidth, actorWidth := 0, 0
	for _, id := range shown {
		idWidth = max(idWidth, Columns(label(id)))
		actorWidth = max(actorWidth, Columns(OneLine(t.nodes[id].actor, 16)))
	}
	narrow := f.Width > 0 && 2+idWidth+2+actorWidth+2+leastFacts > f.Width
	// A picture that moves has one line for each node; the last one has room.
	moves := f.Height > 0
	fit := func(line string) string {
		if moves || f.Width <= 0 {
			return shorten(line, f.Width)
		}
		return strings.Join(breakLine(line, f.Width, strings.Repeat(" ", 4)), "\n")
	}
	switch {
	case narrow && !moves:
		label = func(id string) string { return strings.Repeat(" ", min(t.depth[id], 6)) + OneLine(id, 60) }
		idWidth = 0
		for _, id := range shown {
			if n := Columns(label(id)); n <= f.Width*2/5 { // a longer one stands out
				idWidth = max(idWidth, n)
			}
		}
	case narrow:
		label = func(id string) string {
			return strings.Repeat(" ", min(t.depth[id], 6)) + OneLine(id, max(f.Width*2/5, 8))
		}
		idWidth = 0
		for _, id := range shown {
			idWidth = max(idWidth, Columns(label(id)))
		}
	}
	turn := max(f.Turn, still)
	var b strings.Builder
	for _, id := range shown {
		n := t.nodes[id]
		line := s.mark(n.state, turn) + " " + pad(label(id), idWidth) + "  "
		if !narrow {
			line += s.dim(pad(OneLine(n.actor, 16), actorWidth)) + "  "
		}
		line += t.facts(s, n, f.Now, true)
		if from := t.from[id]; len(from) > 0 && n.state == executorv1.VisitState_VISIT_STATE_UNSPECIFIED && !n.unreached {
			line += s.dim("← " + OneLine(strings.Join(from, ", "), 60))
		}
		b.WriteString(fit(strings.TrimRight(line, " ")) + "\n")
	}
	counts := t.counts(s)
	if hidden := len(t.order) - len(shown); hidden > 0 {
		counts = s.dim(fmt.Sprintf("… and %s · ", Plural(hidden, "more node"))) + counts
	}
	if moves {
		b.WriteString(fit(counts) + "\n")
	} else {
		b.WriteString(Style{Width: f.Width}.Fit(counts) + "\n")
	}
	for _, q := range asks {
		answer := "  " + q.answer
		if moves && f.Width > 0 && Columns(answer) > f.Width {
			answer = "  `epigraph interrupts list`" // which lists the command for the answer
		}
		who := q.node
		if n := t.below[q.run]; n != nil {
			who = n.id
		}
		b.WriteString(fit(OneLine(who, 32)+" "+q.says) + "\n" + fit(answer) + "\n")
	}
	return b.String()
}

// pick chooses which nodes are shown where not all can be; they stay in order.
func (t *Tree) pick(room int) []string {
	if len(t.order) <= room {
		return t.order
	}
	var active, ended, waiting []int
	for i, id := range t.order {
		switch t.nodes[id].state {
		case executorv1.VisitState_VISIT_STATE_UNSPECIFIED:
			waiting = append(waiting, i)
		case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_SKIPPED, executorv1.VisitState_VISIT_STATE_ABSTAINED:
			ended = append(ended, i)
		default:
			active = append(active, i)
		}
	}
	slices.SortStableFunc(ended, func(a, b int) int { return t.nodes[t.order[b]].ended.Compare(t.nodes[t.order[a]].ended) })
	chosen := slices.Concat(active, ended[:min(len(ended), max(room/2, room-len(active)-len(waiting)))], waiting)
	chosen = chosen[:min(room, len(chosen))]
	slices.Sort(chosen)
	out := make([]string, len(chosen))
	for i, at := range chosen {
		out[i] = t.order[at]
	}
	return out
}

func (t *Tree) counts(s Style) string {
	count := map[string]int{}
	var in, out int64
	for _, n := range t.nodes {
		in, out = in+n.input, out+n.output
		if n.unreached {
			count["not reached"]++
			continue
		}
		count[Word(n.state.String(), "VISIT_STATE_")]++
	}
	in, out = max(in, t.input), max(out, t.output)
	waiting := count["unspecified"]
	delete(count, "unspecified")
	parts := []string{}
	for _, w := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[w], strings.ReplaceAll(w, "_", " ")))
	}
	if waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d to come", waiting))
	}
	if in+out > 0 {
		parts = append(parts, fmt.Sprintf("%s→%s tokens", Count(in), Count(out)))
	}
	switch {
	case t.unbooked > 0:
		parts = append(parts, Cost(max(t.total.nano, t.spent), t.total.known, t.total.unpriced, t.unbooked))
	case t.total.known || t.total.unpriced > 0:
		parts = append(parts, Cost(t.total.nano, t.total.known, t.total.unpriced, t.unbooked))
	case t.spent > 0:
		cost := Money(t.spent)
		if t.ended == nil {
			cost += " so far"
		}
		parts = append(parts, cost)
	}
	return s.dim(strings.Join(parts, " · "))
}
