package view

import (
	"slices"
	"strings"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// toolPrefix begins the ids of the nodes that carry out an agent's actions.
const toolPrefix = "do."

// between reports whether an actor carries out the loop of an agent or of a team, between what these do.
func between(actor string) bool {
	return strings.HasPrefix(actor, "loop/") || strings.HasPrefix(actor, "team/")
}

// HasAgent reports whether a node of a graph is an agent or a team, whose work is in runs below.
func HasAgent(g *graphv1.Graph) bool {
	return slices.ContainsFunc(g.GetNodes(), func(n *graphv1.Node) bool {
		return n.GetActor() == "agent" || n.GetActor() == "team" || strings.HasPrefix(n.GetActor(), "agent/")
	})
}

// spawned notes the node of this run that child runs belong to.
func (t *Tree) spawned(n *treeNode, ids []string) {
	for _, id := range ids {
		t.below[id] = n
	}
}

// applyBelow applies an event of a run below this one and returns a line about it, or "". The line names the
// node of this run that the other run belongs to.
func (t *Tree) applyBelow(s Style, ev *executorv1.RunEvent) string {
	n := t.below[ev.GetRunId()]
	if n == nil {
		return "" // its spawning was not shown
	}
	line := func(text string) string { return "  " + s.dim("↳ "+OneLine(n.id, 60)+":") + " " + text }
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_ChildrenSpawned:
		t.spawned(n, e.ChildrenSpawned.GetRunIds())
	case *executorv1.RunEvent_VisitsChanged:
		for _, v := range e.VisitsChanged.GetVisits() {
			if v.GetVisit().GetItem() > 0 {
				continue // other items may wait still
			}
			t.answered(ev.GetRunId(), v.GetVisit().GetNodeId())
		}
	case *executorv1.RunEvent_InterruptOpened:
		q := asked(e.InterruptOpened)
		q.run = ev.GetRunId()
		t.interrupts = append(t.interrupts, q)
		return line(s.Fit(q.says + "\n  " + q.answer))
	case *executorv1.RunEvent_InterruptClosed:
		t.interrupts = slices.DeleteFunc(t.interrupts, func(q interrupt) bool { return q.id == e.InterruptClosed.GetInterruptId() })
		return line(e.InterruptClosed.GetInterruptId() + " " + closedText(e.InterruptClosed))
	case *executorv1.RunEvent_RunPaused:
		return line(s.yellow("⏸ " + OneLine(ev.GetRunId()+" paused: "+e.RunPaused.GetReason()+", "+e.RunPaused.GetMessage(), 200)))
	case *executorv1.RunEvent_RunEnded:
		t.interrupts = slices.DeleteFunc(t.interrupts, func(q interrupt) bool { return q.run == ev.GetRunId() })
	case *executorv1.RunEvent_TokenDelta:
		if e.TokenDelta.GetKind() != executorv1.TextKind_TEXT_KIND_RAW {
			n.text = tail(n.text+e.TokenDelta.GetText(), 200)
		}
	case *executorv1.RunEvent_AttemptStarted:
		if !between(e.AttemptStarted.GetActor()) {
			n.doing, n.text = step(e.AttemptStarted.GetVisit()), ""
		}
	case *executorv1.RunEvent_AttemptEnded:
		return t.stepEnded(s, n, e.AttemptEnded, line)
	}
	return ""
}

// stepEnded is about an attempt of a run below.
func (t *Tree) stepEnded(s Style, n *treeNode, e *executorv1.AttemptEnded, line func(string) string) string {
	if between(e.GetActor()) || e.GetState() == executorv1.VisitState_VISIT_STATE_WAITING {
		return "" // what it waits for tells more
	}
	n.doing = ""
	text := s.mark(e.GetState(), still) + " " + step(e.GetVisit())
	if e.GetCached() {
		text += " cached"
	}
	if u := e.GetUsage(); u.GetInputTokens()+u.GetOutputTokens() > 0 {
		text += s.dim("  " + Count(u.GetInputTokens()) + "→" + Count(u.GetOutputTokens()) + " tok")
	}
	if e.GetError() != nil {
		text += "  " + s.red(OneLine(errorText(e.GetError()), 200))
	}
	return line(text)
}

// step is what a visit of a run below does, in words: an action by its name.
func step(v *executorv1.VisitRef) string {
	text := OneLine(strings.TrimPrefix(v.GetNodeId(), toolPrefix), 60)
	if v.GetVisit() > 1 {
		text += " " + Count(int64(v.GetVisit()))
	}
	return text
}

// answered drops the interrupts of a visit, which has moved on. run is empty for those of the shown run.
func (t *Tree) answered(run, node string) {
	t.interrupts = slices.DeleteFunc(t.interrupts, func(q interrupt) bool { return q.run == run && q.node == node })
}
