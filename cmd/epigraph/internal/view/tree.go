package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// Tree is what a run's events say of its nodes. Events may be applied in any number of pieces; it is not safe
// for concurrent use.
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
	// spent is what the whole run has cost so far, before single nodes' costs are known. input and output are
	// the tokens of it and of the runs below it.
	spent, input, output int64
	// unbooked is how many attempts are missing in the costs.
	unbooked int64
	// changed are the nodes that the next durable event moves, and began is what it begins.
	changed []*treeNode
	began   string
	// interrupts are open.
	interrupts []interrupt
	// below are the nodes that the runs below this one belong to, by run.
	below map[string]*treeNode
}

// interrupt is an open interrupt of the run.
type interrupt struct {
	id, node string
	// run is the run below that has opened it, empty for the run itself.
	run string
	// says is the text of the interrupt, and answer the command that answers it.
	says, answer string
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
	// err is why the node failed or is tried again, itemErr why the last item failed that did.
	err, itemErr *executorv1.RunError
	retryAt      time.Time
	text         string
	// doing is what the runs below it do.
	doing string
	// wait is what it waits for, in words; mark says where its values came from when it was not called.
	wait, mark string
	// children is how many child runs it waits for.
	children int
	// unreached says that the run ended before it came here.
	unreached bool
}

// NewTree makes a tree of the run's graph; all nodes wait.
func NewTree(runID string, g *graphv1.Graph) *Tree {
	t := &Tree{runID: runID, nodes: map[string]*treeNode{}, depth: map[string]int{}, from: map[string][]string{}, cost: map[string]nodeCost{}, below: map[string]*treeNode{}}
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

// Apply applies an event and returns a line about it, or "" when it is not worth one.
func (t *Tree) Apply(s Style, ev *executorv1.RunEvent) string {
	if ev.GetRunId() != "" && ev.GetRunId() != t.runID {
		return t.applyBelow(s, ev)
	}
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_VisitsChanged:
		t.change(e.VisitsChanged, ev.GetTime().AsTime())
		return ""
	case *executorv1.RunEvent_ChildrenSpawned:
		t.spawned(t.node(e.ChildrenSpawned.GetVisit()), e.ChildrenSpawned.GetRunIds())
		t.began = s.dim("  spawned " + OneLine(strings.Join(e.ChildrenSpawned.GetRunIds(), ", "), 100))
		return ""
	case *executorv1.RunEvent_GraphExpanded:
		t.began = s.dim("  inserts " + Plural(len(e.GraphExpanded.GetNodeIds()), "node"))
		return ""
	case *executorv1.RunEvent_InterruptOpened:
		q := asked(e.InterruptOpened)
		t.interrupts = append(t.interrupts, q)
		t.began = s.Fit("  " + q.says + "\n  " + q.answer)
		return ""
	}
	line, of := t.apply(s, ev)
	if ev.GetSeq() == 0 {
		return line // the durable event of the change has the line
	}
	changed, began := t.changed, t.began
	t.changed, t.began = nil, ""
	var lines []string
	for _, l := range []string{line, began} {
		if l != "" {
			lines = append(lines, l)
		}
	}
	for _, n := range changed {
		if n != of {
			lines = append(lines, t.line(s, n, ""))
		}
	}
	return strings.Join(lines, "\n")
}

// change takes it into account that visits stand elsewhere. The lines about them follow with the event that
// moved them.
func (t *Tree) change(c *executorv1.VisitsChanged, at time.Time) {
	for _, v := range c.GetVisits() {
		n := t.node(v.GetVisit())
		n.visits = max(n.visits, v.GetVisit().GetVisit())
		if v.GetVisit().GetItem() > 0 {
			n.countItem(v.GetState(), v.GetError())
			continue
		}
		t.answered("", n.id)
		n.state, n.err, n.wait, n.mark, n.ended = v.GetState(), v.GetError(), "", "", time.Time{}
		switch n.state {
		case executorv1.VisitState_VISIT_STATE_UNSPECIFIED:
			// reset to before it began
			n.started, n.items, n.failed, n.itemErr, n.children = time.Time{}, 0, 0, nil, 0
		case executorv1.VisitState_VISIT_STATE_SKIPPED:
			n.mark = Skipped(v.GetReason(), v.GetMessage())
		case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_FAILED, executorv1.VisitState_VISIT_STATE_ABSTAINED,
			executorv1.VisitState_VISIT_STATE_CANCELED:
			n.ended = at
		}
		if !slices.Contains(t.changed, n) {
			t.changed = append(t.changed, n)
		}
	}
}

// countItem counts an item of a map that has ended.
func (n *treeNode) countItem(state executorv1.VisitState, err *executorv1.RunError) {
	switch state {
	case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_ABSTAINED:
		n.items++
	case executorv1.VisitState_VISIT_STATE_FAILED:
		n.items++
		n.failed++
		n.itemErr = err
	}
}

// apply applies a durable or ephemeral event. It returns a line about it, and the node of the line, if there
// is one.
func (t *Tree) apply(s Style, ev *executorv1.RunEvent) (string, *treeNode) {
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
			return "", nil // a line for each item of a map would drown the rest
		}
		return t.line(s, n, ""), n
	case *executorv1.RunEvent_AttemptIntended:
		t.node(e.AttemptIntended.GetVisit()).state = executorv1.VisitState_VISIT_STATE_RUNNING
	case *executorv1.RunEvent_TokenDelta:
		if e.TokenDelta.GetKind() == executorv1.TextKind_TEXT_KIND_RAW {
			return "", nil
		}
		n := t.node(e.TokenDelta.GetVisit())
		n.text = tail(n.text+e.TokenDelta.GetText(), 200)
	case *executorv1.RunEvent_AttemptEnded:
		n := t.node(e.AttemptEnded.GetVisit())
		if e.AttemptEnded.GetVisit().GetItem() > 0 {
			return t.itemEnded(s, n, e.AttemptEnded), n
		}
		return t.attemptEnded(s, n, at, e.AttemptEnded), n
	case *executorv1.RunEvent_RunStarted:
		for _, v := range e.RunStarted.GetReused() {
			n := t.node(v)
			n.state, n.mark, n.visits = executorv1.VisitState_VISIT_STATE_COMPLETED, "reused", max(n.visits, v.GetVisit())
			t.changed = slices.DeleteFunc(t.changed, func(c *treeNode) bool { return c == n })
		}
		if k := len(e.RunStarted.GetReused()); k > 0 {
			return s.dim(Plural(k, "visit") + " taken over"), nil
		}
	case *executorv1.RunEvent_ChildEnded:
		n := t.node(e.ChildEnded.GetVisit())
		if n.children--; n.children > 0 {
			n.wait = Plural(n.children, "child run")
		}
		return t.line(s, n, e.ChildEnded.GetRunId()+" "+Word(e.ChildEnded.GetState().String(), "RUN_STATE_")), n
	case *executorv1.RunEvent_InterruptClosed:
		n := t.node(e.InterruptClosed.GetVisit())
		t.interrupts = slices.DeleteFunc(t.interrupts, func(q interrupt) bool { return q.id == e.InterruptClosed.GetInterruptId() })
		return t.line(s, n, e.InterruptClosed.GetInterruptId()+" "+closedText(e.InterruptClosed)), n
	case *executorv1.RunEvent_CompletionReceived:
		n := t.node(e.CompletionReceived.GetVisit())
		note := "the work outside has ended"
		if e.CompletionReceived.GetExpired() {
			note = "the work outside did not end in time"
		}
		return t.line(s, n, note), n
	case *executorv1.RunEvent_TimerFired:
		n := t.node(e.TimerFired.GetVisit())
		if !slices.Contains(t.changed, n) {
			return "", nil // another attempt follows
		}
		return t.line(s, n, ""), n
	case *executorv1.RunEvent_GraphAmended:
		g := e.GraphAmended
		for _, id := range g.GetRemovedNodes() {
			t.remove(id)
		}
		for _, id := range g.GetAddedNodes() {
			t.node(&executorv1.VisitRef{NodeId: id})
		}
		return s.yellow(OneLine(fmt.Sprintf("✎ the graph was changed: %d new, %d gone, %d other", len(g.GetAddedNodes()), len(g.GetRemovedNodes()), len(g.GetChangedNodes())), 200)), nil
	case *executorv1.RunEvent_Reconciled:
		n := t.node(e.Reconciled.GetVisit())
		n.state, n.ended, n.err = e.Reconciled.GetState(), at, nil
		note := "reconciled"
		if by := e.Reconciled.GetBy(); by != "" {
			note += " by " + by
		}
		return t.line(s, n, note), n
	case *executorv1.RunEvent_RunEnded:
		t.ended, t.interrupts = e.RunEnded, nil
		for _, n := range t.nodes {
			n.runEnded(at)
		}
	default:
		return t.ofRun(s, ev), nil
	}
	return "", nil
}

// runEnded closes all visits: none of them can end any more.
func (n *treeNode) runEnded(at time.Time) {
	switch n.state {
	case executorv1.VisitState_VISIT_STATE_UNSPECIFIED:
		n.unreached = true
	case executorv1.VisitState_VISIT_STATE_RUNNING, executorv1.VisitState_VISIT_STATE_WAITING, executorv1.VisitState_VISIT_STATE_BACKING_OFF,
		executorv1.VisitState_VISIT_STATE_HELD, executorv1.VisitState_VISIT_STATE_CANCELING:
		n.state, n.ended = executorv1.VisitState_VISIT_STATE_CANCELED, at
	}
}

// ofRun is a line about what concerns a run as a whole.
func (t *Tree) ofRun(s Style, ev *executorv1.RunEvent) string {
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_RunQueued:
		return s.dim("… queued: " + OneLine(e.RunQueued.GetReason(), 60))
	case *executorv1.RunEvent_SignalReceived:
		return s.dim("⚑ signal " + OneLine(e.SignalReceived.GetName(), 60))
	case *executorv1.RunEvent_MessageDelivered:
		return s.dim("✉ " + OneLine("message from "+e.MessageDelivered.GetFrom()+" to "+e.MessageDelivered.GetNodeId(), 120))
	case *executorv1.RunEvent_RunPaused:
		t.paused = e.RunPaused.GetReason()
		why := e.RunPaused.GetReason()
		if m := e.RunPaused.GetMessage(); m != "" {
			why += ", " + m
		}
		return s.yellow("⏸ paused: " + OneLine(why, 200))
	case *executorv1.RunEvent_RunResumed:
		t.paused = ""
		if e.RunResumed.GetStep() {
			return "▶ goes on for one round"
		}
		return "▶ goes on"
	case *executorv1.RunEvent_StopRequested:
		return s.yellow(OneLine("◼ stop requested: "+e.StopRequested.GetReason(), 200))
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
	case *executorv1.RunEvent_DeadlinePassed:
		return s.yellow("⊗ the run's deadline has passed")
	}
	return ""
}

// asked is the text of an interrupt: the prompt or the approval, and the command that answers it.
func asked(q *executorv1.InterruptOpened) interrupt {
	says, answer := "asks: "+OneLine(jsonText(q.GetPrompt().GetJson()), 200), "VALUE"
	if what := q.GetApprove().GetJson(); len(what) > 0 {
		says, answer = "asks to approve: "+OneLine(jsonText(what), 200), "yes|no"
		if prompt := jsonText(q.GetPrompt().GetJson()); prompt != "" && prompt != "null" {
			says = "asks: " + OneLine(prompt, 100) + "; to approve: " + OneLine(jsonText(what), 200)
		}
	} else if c := ChoicesOf(q.GetSchema().GetJson()); !c.Multiple {
		answer = c.Words(answer)
	}
	return interrupt{id: q.GetInterruptId(), node: q.GetVisit().GetNodeId(), says: says, answer: "`epigraph interrupts answer " + q.GetInterruptId() + " " + answer + "`"}
}

// jsonText is a JSON value as it is, a text without its quotes.
func jsonText(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// closedText says how an interrupt ended.
func closedText(c *executorv1.InterruptClosed) string {
	how := "answered"
	switch {
	case c.GetDecision() != "":
		how = strings.ToLower(c.GetDecision())
		if c.GetExpired() {
			how += " since nobody answered in time"
		}
	case c.GetExpired() && len(c.GetAnswer().GetJson()) > 0:
		how = "has its default answer, since nobody answered in time"
	case c.GetExpired():
		how = "expired"
	case c.GetCanceled():
		how = "given up"
	}
	if by := c.GetBy(); by != "" {
		how += " by " + by
	}
	return how
}

// Skipped says why a visit was skipped; details are in the message.
func Skipped(reason, message string) string {
	switch reason {
	case "CONDITION_FALSE":
		return "its condition is false"
	case "KEY_MISSING":
		return "its condition is false, " + OneLine(message, 120)
	case "NO_LIVE_INPUT":
		if message != "" {
			return "nothing leads to it, " + OneLine(message, 120)
		}
		return "nothing leads to it"
	}
	return OneLine(reason, 60)
}

func (t *Tree) attemptEnded(s Style, n *treeNode, at time.Time, e *executorv1.AttemptEnded) string {
	t.use(n, e)
	n.err, n.ended, n.retryAt = e.GetError(), at, time.Time{}
	if e.GetState() == executorv1.VisitState_VISIT_STATE_WAITING || e.GetState() == executorv1.VisitState_VISIT_STATE_BACKING_OFF {
		n.ended = time.Time{} // the attempt is over, the visit is not
	}
	if r := e.GetRetryTime(); r != nil {
		n.retryAt = r.AsTime()
	}
	n.state, n.wait, n.mark, n.children = e.GetState(), waitText(e.GetWait()), "", len(e.GetWait().GetChildRunIds())
	if e.GetCached() {
		n.mark = cached(e)
	}
	note := ""
	switch {
	case e.GetTerminated():
		note = "asks the run to stop"
	case e.GetAbstained():
		note = "leaves its value out"
	}
	return t.line(s, n, note)
}

// itemEnded is about one item of a map. The map stays where it is until the event before says that it has
// ended.
func (t *Tree) itemEnded(s Style, n *treeNode, e *executorv1.AttemptEnded) string {
	t.use(n, e)
	n.countItem(e.GetState(), e.GetError())
	switch item := e.GetVisit().GetItem(); {
	case e.GetState() == executorv1.VisitState_VISIT_STATE_BACKING_OFF:
		return t.line(s, n, fmt.Sprintf("item %d is tried again: %s", item, errorText(e.GetError())))
	case e.GetError() != nil:
		return t.line(s, n, fmt.Sprintf("item %d: %s", item, errorText(e.GetError())))
	case slices.Contains(t.changed, n):
		return t.line(s, n, "")
	}
	return "" // a line for each item of a map would drown the rest
}

// use counts what an attempt took.
func (t *Tree) use(n *treeNode, e *executorv1.AttemptEnded) {
	n.input += e.GetUsage().GetInputTokens()
	n.output += e.GetUsage().GetOutputTokens()
	n.attempts, n.visits = e.GetAttempt(), max(n.visits, e.GetVisit().GetVisit())
	if st := e.GetStartTime(); st != nil && (n.started.IsZero() || st.AsTime().Before(n.started)) {
		n.started = st.AsTime()
	}
}

func errorText(e *executorv1.RunError) string {
	if e.GetMessage() == "" {
		return e.GetReason()
	}
	return e.GetReason() + ": " + Dollars(e.GetMessage())
}

// waitText says what a visit waits for.
func waitText(w *executorv1.WaitInfo) string {
	switch w.GetKind() {
	case executorv1.WaitKind_WAIT_KIND_CHILDREN:
		return Plural(len(w.GetChildRunIds()), "child run")
	case executorv1.WaitKind_WAIT_KIND_INTERRUPT:
		return "answer to " + w.GetInterruptId()
	case executorv1.WaitKind_WAIT_KIND_COMPLETION:
		return "work outside"
	case executorv1.WaitKind_WAIT_KIND_SIGNAL:
		return "signal " + OneLine(w.GetSignal(), 40)
	case executorv1.WaitKind_WAIT_KIND_TIMER:
		return "timer"
	}
	return ""
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

// ResetCosts drops the booked costs, before they are read again.
func (t *Tree) ResetCosts() {
	clear(t.cost)
	t.total = nodeCost{}
}

// Spend sets what the whole run and the runs below it have used so far. The cost is shown until the costs of
// nodes are known.
func (t *Tree) Spend(u *executorv1.Usage) {
	t.spent, t.input, t.output = u.GetCostNanoUsd(), u.GetInputTokens(), u.GetOutputTokens()
}

// Miss sets how many attempts of the whole run are not booked yet: their money is in no cost.
func (t *Tree) Miss(attempts int64) { t.unbooked = attempts }

// Ended is how the run ended, or nil.
func (t *Tree) Ended() *executorv1.RunEnded { return t.ended }

// Paused is why the run stands still, or "".
func (t *Tree) Paused() string { return t.paused }
