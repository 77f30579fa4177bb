package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// AmendPlan is what an amendment would do to a run, or why it would be refused.
type AmendPlan struct {
	// Revision is that of the graph for which the plan was made. Amended must name it.
	Revision int64     `json:"revision"`
	Diff     GraphDiff `json:"diff"`
	// Cancels are the visits under way that would be canceled: those of nodes that are removed or changed, or
	// whose inputs are.
	Cancels []Ref `json:"cancels,omitempty"`
	// Starts are the attempts that would start at once, including those of canceled visits that begin again.
	Starts []Ref `json:"starts,omitempty"`
	// Refusals are all reasons to refuse the amendment, with the node and field or the edge.
	Refusals Faults `json:"refusals,omitempty"`
}

// AmendRefused is the error of an amendment that would change what has already happened. It is an ErrState.
type AmendRefused struct{ Refusals Faults }

// Error lists the refusals, one per line.
func (e *AmendRefused) Error() string {
	return "workgraph: the amendment would change what has happened:\n" + e.Refusals.Error()
}

// Unwrap makes it an ErrState.
func (e *AmendRefused) Unwrap() error { return ErrState }

// attemptNumbers are the last attempt and generation of a visit whose node an amendment has removed. If the
// node comes back, its attempts count on from there, so that no late report and no effect key can be mistaken
// for another.
type attemptNumbers struct {
	No  int32 `json:"no"`
	Gen int32 `json:"gen"`
}

// PlanAmend says what Amended with p would do at the time now. It changes nothing. The time matters because
// messages expire. The error is an *AmendRefused if the amendment would be refused; the plan then holds the
// difference and the refusals. The work ends with ctx.
func (s *State) PlanAmend(ctx context.Context, p *Program, now time.Time) (AmendPlan, error) {
	plan := AmendPlan{Revision: s.revision}
	if err := s.mayAmend(p); err != nil {
		return plan, err
	}
	a, err := s.examineAmend(ctx, p)
	if err != nil {
		return plan, err
	}
	plan.Diff, plan.Refusals = a.diff, a.refusals
	if len(a.refusals) > 0 {
		return plan, &AmendRefused{a.refusals}
	}
	snap, err := s.Snapshot()
	if err != nil {
		return plan, err
	}
	trial, err := Restore(ctx, s.p, snap)
	if err != nil {
		return plan, err
	}
	trial.OnEvaluation(func() (context.Context, context.CancelFunc) { return ctx, func() {} })
	evs, fx, err := trial.Advance(Amended{Program: p, Revision: s.revision, Now: now})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return plan, err
	}
	for i := range evs {
		plan.Cancels = append(plan.Cancels, evs[i].Resets()...)
	}
	for i := range fx.Starts {
		plan.Starts = append(plan.Starts, fx.Starts[i].Ref)
	}
	return plan, nil
}

// Resets are the visits that the event took back because of an amendment or a void approval.
func (ev *Event) Resets() (out []Ref) {
	for i := range ev.Steps {
		if st := &ev.Steps[i]; st.Op == OpReset || st.Op == OpReopen {
			out = append(out, Ref{Node: st.Node, Visit: st.Visit})
		}
	}
	return out
}

func (s *State) mayAmend(p *Program) error {
	switch {
	case s.end != nil:
		return ErrEnded
	case p == nil:
		return fmt.Errorf("%w: an amendment needs a program", ErrState)
	case s.root == nil:
		return fmt.Errorf("%w: the run has not begun", ErrState)
	case s.drain != "":
		return fmt.Errorf("%w: the run is ending", ErrState)
	}
	return nil
}

func (s *State) amend(c Amended) error {
	if err := s.mayAmend(c.Program); err != nil {
		return err
	}
	if c.Revision != s.revision {
		return fmt.Errorf("%w: the change was made for revision %d of the graph, which has come to %d", ErrState, c.Revision, s.revision)
	}
	a, err := s.examineAmend(s.evaluation(), c.Program)
	if err != nil {
		return fmt.Errorf("%w: the change cannot be worked out in time: %w", ErrState, err)
	}
	if len(a.refusals) > 0 {
		return &AmendRefused{a.refusals}
	}
	now := instant(c.Now)
	ev := s.openEvent(GraphAmended, now)
	ev.By, ev.Revision, ev.Graph = c.By, c.Revision, c.Program.g
	back := make(map[*nodeState]bool, len(a.reopens)+len(a.resets))
	for _, ns := range a.reopens {
		back[ns] = true
		s.record(s.step(OpReopen, ns, nil))
		s.applyReopen(ns)
	}
	for _, ns := range a.resets {
		if back[ns] {
			continue
		}
		back[ns] = true
		s.record(s.step(OpReset, ns, nil))
		s.applyReset(ns)
	}
	q := *c.Program
	q.amended(s.p)
	s.record(Step{Op: OpGraph})
	s.applyAmend(&q)
	s.decideNew(a)
	s.runQueues()
	s.wake()
	s.conclude(now)
	return nil
}

// amended takes over what the amendment's program does not set itself.
func (p *Program) amended(from *Program) {
	actors, limits := p.actors, p.limits
	p.inherit(from)
	if actors != nil {
		p.actors = actors
	}
	if !limits.none() {
		p.limits = limits
	}
}

// recompiled is the program of a graph that a run of this program has come to. The error is that of ctx, or
// ErrCorrupt, because the graph was checked when the run came to it.
func (p *Program) recompiled(ctx context.Context, g *Graph) (*Program, error) {
	q, faults, err := build(&checker{ctx: ctx, expanded: true, exprs: maps.Clone(p.exprs), schemas: maps.Clone(p.schemas)}, g)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, Faults(faults))
	}
	q.inherit(p)
	return q, nil
}

// applyReset takes a visit that has not ended back to the state before it began. Attempt numbers count on.
func (s *State) applyReset(ns *nodeState) {
	no, gen := ns.no, ns.gen
	if ns.m != nil {
		for i := range ns.m.next {
			u := unit{ns, int32(i + 1)}
			no, gen = max(no, u.try().no), max(gen, u.try().gen)
			s.letGo(u)
		}
		s.forgetItems(ns)
	}
	s.letGo(unit{ns, 0})
	s.unmarkInputs(ns)
	ns.try = try{status: VisitPending, no: no, gen: gen, pos: -1}
	ns.kept, ns.enteredAt = nil, 0
	s.forgetApprovals()
	ns.before, ns.m, ns.args, ns.named, ns.key = no, nil, nil, nil, ""
}

// forgetItems drops all references to items of a visit, which will have other items or none.
func (s *State) forgetItems(ns *nodeState) {
	s.held = slices.DeleteFunc(s.held, func(u unit) bool { return u.ns == ns })
	timers := s.timers[:0]
	for _, t := range s.timers {
		if t.ns != ns {
			timers.push(t)
		}
	}
	clear(s.timers[len(timers):])
	s.timers = timers
	for name, ls := range s.listeners {
		if ls = slices.DeleteFunc(ls, func(l listener) bool { return l.ns == ns }); len(ls) == 0 {
			delete(s.listeners, name)
		} else {
			s.listeners[name] = ls
		}
	}
}

// applyAmend replaces the graph by an amended one. Visits that it removes have been reset before.
func (s *State) applyAmend(q *Program) {
	for i := range s.p.nodes {
		id := s.p.nodes[i].ID
		if _, stays := q.index[id]; stays {
			continue
		}
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.no == 0 {
				continue
			}
			if s.removed == nil {
				s.removed = map[string]attemptNumbers{}
			}
			f := s.removed[id]
			s.removed[id] = attemptNumbers{max(f.No, ns.no), max(f.Gen, ns.gen)}
		}
	}
	s.applyGraph(q)
}

func (s *State) replayReset(st *Step) error {
	ns := s.lookup(st.Node, st.Visit)
	if ns == nil || ns.resolved() || ns.status == VisitPending {
		return fmt.Errorf("%w: no visit %s@%d to take back", ErrCorrupt, st.Node, st.Visit)
	}
	s.applyReset(ns)
	return nil
}

func (s *State) replayGraph(ctx context.Context, ev *Event) error {
	if ev.Kind != GraphAmended {
		return fmt.Errorf("%w: a new graph in an event of kind %s", ErrCorrupt, ev.Kind)
	}
	q, err := s.p.recompiled(ctx, ev.Graph)
	if err != nil {
		return err
	}
	s.applyAmend(q)
	return nil
}

// decideNew decides the new edges of nodes that have ended.
func (s *State) decideNew(a *amendment) {
	for e := range s.p.edges {
		pe := &s.p.edges[e]
		if a.hadEdge[e] {
			continue
		}
		visits := s.visitsOf(pe.from)
		if len(visits) == 0 || !visits[len(visits)-1].resolved() {
			continue
		}
		src := visits[len(visits)-1]
		if l := s.latest[pe.from]; l != nil && !s.superseded(l) {
			// The node is in a loop that is over: its last completed visit counts.
			src = l
		}
		t := edgeTask{e: int32(e), src: src}
		var sc *scope
		values := src.values
		switch src.status {
		case VisitCompleted:
			switch {
			case pe.kind != DataEdge:
				t.note = "NO_ERROR"
			case src.decision() == Rejected && !s.p.onResult(pe):
				t.note = Rejected
			default:
				t.live = true
			}
		case VisitFailed:
			t.live = pe.kind == ErrorEdge && s.node(src).OnError.Action == Route
			t.note = "FAILED"
			if t.live {
				t.note, values = "", []json.RawMessage{errorJSON(src.err)}
			}
		case VisitAbstained:
			t.note = "ABSTAINED"
		case VisitSkipped:
			t.note = "SKIPPED"
		default:
			t.note = ReasonCanceled
		}
		if err := s.evalEdge(&t, &sc, values); err != nil {
			// The visit has ended and cannot fail any more.
			t.live, t.propagated, t.note = false, nil, err.Reason
		}
		s.edgeQ = append(s.edgeQ, t)
	}
}

// wake starts everything that no longer waits for anything: visits that an amendment has added or taken back,
// and joins that it released.
func (s *State) wake() {
	ids := make([]string, len(s.p.nodes))
	for i := range ids {
		ids[i] = s.p.nodes[i].ID
	}
	for _, id := range ids { // by id, since a started visit may change the graph again
		if s.drain != "" {
			return
		}
		p := s.p
		n := p.index[id]
		r := p.nodes[n].region
		switch {
		case r == 0:
			ns := &s.root.nodes[p.localNode[n]]
			if ns.status != VisitPending {
				continue
			}
			if len(p.nodes[n].in) == 0 {
				s.enter(ns)
			} else {
				s.decide(ns, p.nodes[n].joinVerdict(&ns.join, 1))
			}
		case p.regions[r].head == n && p.regions[r].parent == 0:
			if inst := &s.root.insts[p.regions[r].slot]; !inst.opened && inst.limited == 0 {
				if len(p.nodes[n].in) == 0 {
					s.openLoop(r, s.root, nil, verdictRun)
				} else if v := p.nodes[n].joinVerdict(&inst.join, 1); v != verdictWait {
					s.openLoop(r, s.root, nil, v)
				}
			}
			s.wakeAgain(n)
		case p.regions[r].token && !p.regions[r].inbox && len(p.nodes[n].in) == 0 && len(s.tokens[n]) == 0 && !s.atToken(n):
			s.tokenVisit(r, n, -1, nil, nil)
		default:
			s.wakeAgain(n)
		}
		s.runQueues()
	}
}

// atToken reports whether the first visit of a start node in an irreducible loop is held at its limit.
func (s *State) atToken(n int32) bool {
	return slices.ContainsFunc(s.limited, func(l limitedVisit) bool { return l.node == n })
}

// wakeAgain enters the visits of a node in a loop that were taken back. Their inputs are the same as before.
func (s *State) wakeAgain(n int32) {
	for _, ns := range s.visitsOf(n) {
		if ns.status == VisitPending && ns.no > 0 && s.drain == "" {
			s.enter(ns)
		}
	}
}
