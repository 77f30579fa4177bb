package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// Tree is what a run's events say of its nodes. Events may be applied in any number of pieces; it is not safe for concurrent use.
type Tree struct {
	runID string
	order []string
	nodes map[string]*treeNode
	depth map[string]int
	from  map[string][]string
	ended *executorv1.RunEnded
	cost  map[string]nodeCost
	total nodeCost
	// paused is why the run stands still, empty while it does not.
	paused string
	// spent is what the whole run has cost so far, before single nodes' costs are known.
	spent int64
}

type nodeCost struct {
	nano     int64
	known    bool
	unpriced int64
}

type treeNode struct {
	id, actor      string
	state          executorv1.VisitState
	started, ended time.Time
	attempts       int32
	visits         int32
	items, failed  int
	input, output  int64
	err            *executorv1.RunError
	retryAt        time.Time
	text           string
	// wait is what it waits for, in words; mark says where its values came from when it was not called.
	wait, mark string
	// children is how many child runs it waits for.
	children int
}

// NewTree makes a tree of the run's graph; all nodes wait.
func NewTree(runID string, g *graphv1.Graph) *Tree {
	t := &Tree{runID: runID, nodes: map[string]*treeNode{}, depth: map[string]int{}, from: map[string][]string{}, cost: map[string]nodeCost{}}
	next := map[string][]string{}
	degree := map[string]int{}
	for _, n := range g.GetNodes() {
		t.nodes[n.GetId()] = &treeNode{id: n.GetId(), actor: n.GetActor()}
		degree[n.GetId()] += 0
	}
	for _, e := range g.GetEdges() {
		if e.GetKind() == graphv1.EdgeKind_EDGE_KIND_BACK || t.nodes[e.GetFrom()] == nil || t.nodes[e.GetTo()] == nil {
			continue
		}
		next[e.GetFrom()] = append(next[e.GetFrom()], e.GetTo())
		t.from[e.GetTo()] = append(t.from[e.GetTo()], e.GetFrom())
		degree[e.GetTo()]++
	}
	// Depth is the length of the longest way from a start.
	var ready []string
	for _, n := range g.GetNodes() {
		if degree[n.GetId()] == 0 {
			ready = append(ready, n.GetId())
		}
	}
	for len(ready) > 0 {
		id := ready[0]
		ready = ready[1:]
		t.order = append(t.order, id)
		for _, to := range next[id] {
			t.depth[to] = max(t.depth[to], t.depth[id]+1)
			if degree[to]--; degree[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	// Loops without a declared way back leave nodes over.
	for _, n := range g.GetNodes() {
		if degree[n.GetId()] > 0 {
			t.order = append(t.order, n.GetId())
		}
	}
	slices.SortStableFunc(t.order, func(a, b string) int { return t.depth[a] - t.depth[b] })
	return t
}

// Apply takes an event into account and returns a line that tells of it, or "" when it is not worth one.
func (t *Tree) Apply(s Style, ev *executorv1.RunEvent) string {
	if ev.GetRunId() != "" && ev.GetRunId() != t.runID {
		return "" // a descendant's
	}
	at := ev.GetTime().AsTime()
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_AttemptStarted:
		ref := e.AttemptStarted.GetVisit()
		n := t.node(ref)
		if ref.GetVisit() > n.visits || n.started.IsZero() {
			n.started = at // every visit has its own time, all attempts of a visit share one
		}
		n.state, n.attempts, n.visits = executorv1.VisitState_VISIT_STATE_RUNNING, e.AttemptStarted.GetAttempt(), max(n.visits, ref.GetVisit())
		n.ended, n.err, n.text = time.Time{}, nil, ""
		if ref.GetItem() > 0 {
			return "" // a line for each item of a map would drown the rest
		}
		return t.line(s, n, "")
	case *executorv1.RunEvent_AttemptIntended:
		n := t.node(e.AttemptIntended.GetVisit())
		n.state = executorv1.VisitState_VISIT_STATE_RUNNING
		return ""
	case *executorv1.RunEvent_TokenDelta:
		n := t.node(e.TokenDelta.GetVisit())
		n.text = tail(n.text+e.TokenDelta.GetText(), 200)
		return ""
	case *executorv1.RunEvent_AttemptEnded:
		return t.attemptEnded(s, at, e.AttemptEnded)
	case *executorv1.RunEvent_VisitsSettled:
		var lines []string
		for _, v := range e.VisitsSettled.GetVisits() {
			n := t.node(v.GetVisit())
			n.state = v.GetState()
			lines = append(lines, t.line(s, n, v.GetReason()))
		}
		return strings.Join(lines, "\n")
	case *executorv1.RunEvent_TimerFired:
		n := t.node(e.TimerFired.GetVisit())
		if n.state != executorv1.VisitState_VISIT_STATE_WAITING {
			return "" // another attempt follows
		}
		n.state, n.ended = executorv1.VisitState_VISIT_STATE_COMPLETED, at
		return t.line(s, n, "")
	case *executorv1.RunEvent_RunStarted:
		for _, v := range e.RunStarted.GetAdopted() {
			n := t.node(v)
			n.state, n.mark, n.visits = executorv1.VisitState_VISIT_STATE_COMPLETED, "adopted", max(n.visits, v.GetVisit())
		}
		if k := len(e.RunStarted.GetAdopted()); k > 0 {
			return s.dim(Plural(k, "visit") + " taken over")
		}
		return ""
	case *executorv1.RunEvent_RunQueued:
		return s.dim("… queued: " + OneLine(e.RunQueued.GetReason(), 60))
	case *executorv1.RunEvent_ChildrenSpawned:
		n := t.node(e.ChildrenSpawned.GetVisit())
		k := len(e.ChildrenSpawned.GetRunIds())
		n.wait, n.children = Plural(k, "child run"), k
		return t.line(s, n, "spawned "+OneLine(strings.Join(e.ChildrenSpawned.GetRunIds(), ", "), 100))
	case *executorv1.RunEvent_ChildEnded:
		n := t.node(e.ChildEnded.GetVisit())
		if n.children--; n.children == 0 {
			t.woke(n, at, true)
		}
		return t.line(s, n, e.ChildEnded.GetRunId()+" "+Word(e.ChildEnded.GetState().String(), "RUN_STATE_"))
	case *executorv1.RunEvent_InterruptOpened:
		n := t.node(e.InterruptOpened.GetVisit())
		n.wait = "answer to " + e.InterruptOpened.GetInterruptId()
		return t.line(s, n, "asks "+e.InterruptOpened.GetInterruptId()+": "+string(e.InterruptOpened.GetPrompt().GetJson()))
	case *executorv1.RunEvent_InterruptClosed:
		n := t.node(e.InterruptClosed.GetVisit())
		how := "answered"
		switch {
		case e.InterruptClosed.GetExpired():
			how = "expired"
		case e.InterruptClosed.GetCanceled():
			how = "given up"
		}
		if by := e.InterruptClosed.GetBy(); by != "" {
			how += " by " + by
		}
		t.woke(n, at, !e.InterruptClosed.GetCanceled() && (!e.InterruptClosed.GetExpired() || e.InterruptClosed.GetAnswer() != nil))
		return t.line(s, n, e.InterruptClosed.GetInterruptId()+" "+how)
	case *executorv1.RunEvent_TaskCompleted:
		n := t.node(e.TaskCompleted.GetVisit())
		t.woke(n, at, !e.TaskCompleted.GetExpired())
		return t.line(s, n, "the work outside has ended")
	case *executorv1.RunEvent_SignalReceived:
		if v := e.SignalReceived.GetVisit(); v.GetNodeId() != "" {
			t.woke(t.node(v), at, true)
		}
		return s.dim("⚑ signal " + OneLine(e.SignalReceived.GetName(), 60))
	case *executorv1.RunEvent_MessageDelivered:
		return s.dim("✉ " + OneLine("message from "+e.MessageDelivered.GetFrom()+" to "+e.MessageDelivered.GetNodeId(), 120))
	case *executorv1.RunEvent_GraphExpanded:
		return t.line(s, t.node(e.GraphExpanded.GetVisit()), "inserts "+Plural(len(e.GraphExpanded.GetNodeIds()), "node"))
	case *executorv1.RunEvent_GraphAmended:
		g := e.GraphAmended
		for _, id := range g.GetRemovedNodes() {
			t.remove(id)
		}
		for _, id := range g.GetAddedNodes() {
			t.node(&executorv1.VisitRef{NodeId: id})
		}
		return s.yellow(OneLine(fmt.Sprintf("✎ the graph was changed: %d new, %d gone, %d other", len(g.GetAddedNodes()), len(g.GetRemovedNodes()), len(g.GetChangedNodes())), 200))
	case *executorv1.RunEvent_ReconciliationNeeded:
		n := t.node(e.ReconciliationNeeded.GetVisit())
		n.state = executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION
		return t.line(s, n, e.ReconciliationNeeded.GetReason())
	case *executorv1.RunEvent_Reconciled:
		n := t.node(e.Reconciled.GetVisit())
		n.state, n.ended, n.err = e.Reconciled.GetState(), at, nil
		note := "reconciled"
		if by := e.Reconciled.GetBy(); by != "" {
			note += " by " + by
		}
		return t.line(s, n, note)
	case *executorv1.RunEvent_RunPaused:
		t.paused = e.RunPaused.GetReason()
		why := e.RunPaused.GetReason()
		if m := e.RunPaused.GetMessage(); m != "" {
			why += ", " + m
		}
		return s.yellow("⏸ paused: " + OneLine(why, 200))
	case *executorv1.RunEvent_RunResumed:
		t.paused = ""
		return "▶ goes on"
	case *executorv1.RunEvent_BudgetChanged:
		return "▷ may use more or less from here on"
	case *executorv1.RunEvent_UsageSettled:
		text := "▷ " + Plural(int(e.UsageSettled.GetCalls()), "call") + " priced: " + Money(e.UsageSettled.GetNanoUsd())
		if n := e.UsageSettled.GetUnpricedCalls(); n > 0 {
			text += ", " + Count(int64(n)) + " at no known price"
		}
		return text
	case *executorv1.RunEvent_CancelRequested:
		return s.yellow(OneLine("⊗ cancel requested: "+e.CancelRequested.GetReason(), 200))
	case *executorv1.RunEvent_RunEnded:
		t.ended = e.RunEnded
		var lines []string
		for _, id := range t.order {
			if n := t.nodes[id]; n.items > 0 && n.state == executorv1.VisitState_VISIT_STATE_RUNNING && e.RunEnded.GetState() == executorv1.RunState_RUN_STATE_COMPLETED {
				n.state = executorv1.VisitState_VISIT_STATE_COMPLETED
				lines = append(lines, t.line(s, n, ""))
			}
		}
		return strings.Join(lines, "\n")
	}
	return ""
}

func (t *Tree) attemptEnded(s Style, at time.Time, e *executorv1.AttemptEnded) string {
	n := t.node(e.GetVisit())
	n.input += e.GetUsage().GetInputTokens()
	n.output += e.GetUsage().GetOutputTokens()
	n.attempts, n.visits = e.GetAttempt(), max(n.visits, e.GetVisit().GetVisit())
	if st := e.GetStartTime(); st != nil && (n.started.IsZero() || st.AsTime().Before(n.started)) {
		n.started = st.AsTime()
	}
	n.err, n.ended, n.retryAt = e.GetError(), at, time.Time{}
	if e.GetState() == executorv1.VisitState_VISIT_STATE_WAITING || e.GetState() == executorv1.VisitState_VISIT_STATE_BACKING_OFF {
		n.ended = time.Time{} // the attempt is over, the visit is not
	}
	if r := e.GetRetryTime(); r != nil {
		n.retryAt = r.AsTime()
	}
	if e.GetVisit().GetItem() > 0 && e.GetState() != executorv1.VisitState_VISIT_STATE_BACKING_OFF {
		n.items++
		if e.GetError() != nil {
			n.failed++
		}
	}
	n.state, n.wait, n.mark = e.GetState(), waitText(e.GetWait()), ""
	if e.GetCached() {
		n.mark = "cached"
	}
	item, failed := e.GetVisit().GetItem(), e.GetError() != nil
	if item > 0 && n.state == executorv1.VisitState_VISIT_STATE_COMPLETED && len(e.GetReadyNodes()) == 0 {
		n.state = executorv1.VisitState_VISIT_STATE_RUNNING // no event says how many items there are; the end of the run settles it
	}
	for _, id := range e.GetSkippedNodes() {
		if k, ok := t.nodes[id]; ok && k.state == executorv1.VisitState_VISIT_STATE_UNSPECIFIED {
			k.state = executorv1.VisitState_VISIT_STATE_SKIPPED
		}
	}
	note := ""
	switch {
	case e.GetTerminated():
		note = "asks the run to stop"
	case e.GetAbstained():
		note = "abstains"
	case item > 0 && failed:
		note = fmt.Sprintf("item %d", item)
	case item > 0 && n.state == executorv1.VisitState_VISIT_STATE_RUNNING:
		return "" // a line for each item of a map would drown the rest
	}
	return t.line(s, n, note)
}

// waitText says what a visit waits for.
func waitText(w *executorv1.WaitInfo) string {
	switch w.GetKind() {
	case executorv1.WaitKind_WAIT_KIND_CHILDREN:
		return Plural(len(w.GetChildRunIds()), "child run")
	case executorv1.WaitKind_WAIT_KIND_INTERRUPT:
		return "answer to " + w.GetInterruptId()
	case executorv1.WaitKind_WAIT_KIND_TASK:
		return "work outside"
	case executorv1.WaitKind_WAIT_KIND_SIGNAL:
		return "signal " + OneLine(w.GetSignal(), 40)
	case executorv1.WaitKind_WAIT_KIND_TIMER:
		return "timer"
	}
	return ""
}

// woke ends the wait of a visit. What the run does about a wait that ended badly, later events say.
func (t *Tree) woke(n *treeNode, at time.Time, well bool) {
	if n.state != executorv1.VisitState_VISIT_STATE_WAITING {
		return
	}
	n.ended, n.state = at, executorv1.VisitState_VISIT_STATE_COMPLETED
	if !well {
		n.state = executorv1.VisitState_VISIT_STATE_FAILED
	}
}

// remove takes out a node that the graph has no longer, unless something happened in it.
func (t *Tree) remove(id string) {
	if n := t.nodes[id]; n != nil && n.state == executorv1.VisitState_VISIT_STATE_UNSPECIFIED {
		delete(t.nodes, id)
		t.order = slices.DeleteFunc(t.order, func(o string) bool { return o == id })
	}
}

func (t *Tree) node(v *executorv1.VisitRef) *treeNode {
	n, ok := t.nodes[v.GetNodeId()]
	if !ok {
		n = &treeNode{id: v.GetNodeId()}
		t.nodes[n.id] = n
		t.order = append(t.order, n.id)
	}
	return n
}

// Book sets what single nodes cost, as the registry booked it.
func (t *Tree) Book(node string, nano int64, known bool) {
	c := t.cost[node]
	if known {
		c.nano += nano
		c.known = true
		t.total.nano += nano
		t.total.known = true
	} else {
		c.unpriced++
		t.total.unpriced++
	}
	t.cost[node] = c
}

// ResetCosts forgets what was booked, before it is read again.
func (t *Tree) ResetCosts() {
	clear(t.cost)
	t.total = nodeCost{}
}

// Spend sets what the whole run has cost so far; it is shown until the costs of nodes are known.
func (t *Tree) Spend(nano int64) { t.spent = nano }

// Ended is how the run ended, or nil.
func (t *Tree) Ended() *executorv1.RunEnded { return t.ended }

// Paused is why the run stands still, or "".
func (t *Tree) Paused() string { return t.paused }

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
	case executorv1.VisitState_VISIT_STATE_WAITING, executorv1.VisitState_VISIT_STATE_HELD:
		return s.yellow("…")
	case executorv1.VisitState_VISIT_STATE_SKIPPED, executorv1.VisitState_VISIT_STATE_ABSTAINED:
		return s.dim("⊘")
	case executorv1.VisitState_VISIT_STATE_CANCELLED, executorv1.VisitState_VISIT_STATE_CANCELLING: //nolint:misspell // the API's word
		return s.yellow("⊗")
	case executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION:
		return s.red("?")
	}
	return s.dim("·")
}

// line tells where one node stands, for output that only grows.
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
	if n.state != executorv1.VisitState_VISIT_STATE_UNSPECIFIED && n.state != executorv1.VisitState_VISIT_STATE_COMPLETED {
		parts = append(parts, strings.ReplaceAll(state, "_", " "))
	}
	if n.state == executorv1.VisitState_VISIT_STATE_BACKING_OFF && live && n.retryAt.After(now) {
		parts = append(parts, "again in "+Took(n.retryAt.Sub(now)))
	}
	if n.wait != "" && n.state == executorv1.VisitState_VISIT_STATE_WAITING {
		parts = append(parts, "for "+n.wait)
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
	if n.err != nil && n.state != executorv1.VisitState_VISIT_STATE_COMPLETED {
		parts = append(parts, s.red(OneLine(n.err.GetReason()+": "+n.err.GetMessage(), 120)))
	}
	if live && n.state == executorv1.VisitState_VISIT_STATE_RUNNING && n.text != "" {
		parts = append(parts, s.dim(OneLine(tail(n.text, 40), 40)))
	}
	return strings.Join(parts, "  ")
}

// maxLines is how many nodes a tree shows at most; of larger graphs it shows those where something happens.
const maxLines = 40

// leastFacts is how much room a tree keeps for what happens. Where there is less, the actors are left out and depth is one column.
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

// Render draws the tree: nodes by depth, each with what it waits for, and how many are in which state. Of more nodes than there is
// room for it shows those where something happens, then the last that ended, then the next to come.
func (t *Tree) Render(s Style, f Frame) string {
	room := maxLines
	if f.Height > 0 {
		room = max(min(room, f.Height-1), 1)
	}
	shown := t.pick(room)
	label := func(id string) string { return strings.Repeat("  ", min(t.depth[id], 12)) + OneLine(id, 32) }
	idWidth, actorWidth := 0, 0
	for _, id := range shown {
		idWidth = max(idWidth, Columns(label(id)))
		actorWidth = max(actorWidth, Columns(OneLine(t.nodes[id].actor, 16)))
	}
	narrow := f.Width > 0 && 2+idWidth+2+actorWidth+2+leastFacts > f.Width
	if narrow {
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
		if from := t.from[id]; len(from) > 0 && n.state == executorv1.VisitState_VISIT_STATE_UNSPECIFIED {
			line += s.dim("← " + OneLine(strings.Join(from, ", "), 60))
		}
		b.WriteString(clip(strings.TrimRight(line, " "), f.Width) + "\n")
	}
	counts := t.counts(s)
	if hidden := len(t.order) - len(shown); hidden > 0 {
		counts = s.dim(fmt.Sprintf("… and %s · ", Plural(hidden, "more node"))) + counts
	}
	b.WriteString(clip(counts, f.Width) + "\n")
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
		case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_SKIPPED:
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
		count[Word(n.state.String(), "VISIT_STATE_")]++
	}
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
	case t.total.known && t.total.unpriced > 0:
		parts = append(parts, fmt.Sprintf("%s + %s unpriced", Money(t.total.nano), Count(t.total.unpriced)))
	case t.total.known:
		parts = append(parts, Money(t.total.nano))
	case t.total.unpriced > 0:
		parts = append(parts, "price unknown")
	case t.spent > 0:
		parts = append(parts, Money(t.spent)+" so far")
	}
	return s.dim(strings.Join(parts, " · "))
}
