package workgraph

import (
	"slices"
	"time"
)

// Cause says why a visit has not ended.
type Cause string

// The causes, in the order of Why: those that need somebody to act come first.
const (
	CauseReconciliation Cause = "NEEDS_RECONCILIATION"
	CauseLimit          Cause = "MAX_VISITS"
	CauseHeld           Cause = "HELD"
	CauseInterrupt      Cause = "INTERRUPT"
	CauseCompletion     Cause = "COMPLETION"
	CauseSignal         Cause = "SIGNAL"
	CauseChildren       Cause = "CHILDREN"
	CauseTimer          Cause = "TIMER"
	CauseBackoff        Cause = "BACKOFF"
	CauseCanceling      Cause = "CANCELING"
	CauseRunning        Cause = "RUNNING"
	CauseInbox          Cause = "INBOX"
	CauseDependency     Cause = "DEPENDENCY"
)

// Reason is one fact about why a run has not got further.
type Reason struct {
	Ref
	Cause   Cause
	Attempt int
	// Generation is that of the call whose outcome is unknown, for EffectKey. It is 0 for other causes.
	Generation int
	// Due is when a timer or back-off ends, or when a wait ends by itself. It is zero if it does not.
	Due time.Time
	// On names what is waited for: nodes (DEPENDENCY: the sources whose edges are not decided), child runs,
	// the interrupt's id or the signal's name. More counts names that were left out.
	On   []string
	More int
	// Have and Need count the messages of an INBOX and of its batch.
	Have, Need int
	// Note is the reason of the pause that holds a HELD visit.
	Note string
	// Of is the number of the last attempt that may be made. Error is the error of the previous attempt, or
	// of the attempt itself if its outcome is unknown. Both are set only for visits with attempts.
	Of    int
	Error *Error
}

// maxReasonNames bounds Reason.On.
const maxReasonNames = 20

func (r *Reason) on(name string) {
	if len(r.On) < maxReasonNames {
		r.On = append(r.On, name)
		return
	}
	r.More++
}

// Why lists up to limit facts about why the run has not ended (100 if limit is not above 0): one for each
// open visit or item that has been reached, or of which a source has. Status and its reason say the rest,
// since a run that is paused or ending starts nothing. Why looks at every visit.
func (s *State) Why(limit int) []Reason {
	if limit <= 0 {
		limit = 100
	}
	if s.root == nil || s.end != nil {
		return nil
	}
	w := &why{s: s, limit: limit}
	w.standing()
	w.waits()
	w.moving()
	w.inboxes()
	w.dependencies()
	for i := range w.out {
		if r := &w.out[i]; r.Attempt > 0 {
			if u, ok := s.find(r.Ref); ok {
				r.Of, r.Error = s.lastAttempt(u), u.try().failed
			}
		}
	}
	return w.out
}

type why struct {
	s     *State
	limit int
	out   []Reason
}

// add adds a fact. It is nil if there are enough.
func (w *why) add(c Cause, r Ref) *Reason {
	if len(w.out) >= w.limit {
		return nil
	}
	w.out = append(w.out, Reason{Ref: r, Cause: c})
	return &w.out[len(w.out)-1]
}

// standing are visits that go on only after somebody has acted.
func (w *why) standing() {
	s := w.s
	if s.unknown > 0 {
		s.Visits(func(v VisitInfo) bool {
			if v.Status == VisitReconciliation {
				if r := w.add(CauseReconciliation, v.Ref); r != nil {
					r.Attempt, r.Generation = v.Attempt, v.Generation
				}
			}
			return len(w.out) < w.limit
		})
	}
	for _, l := range s.limited {
		visit := len(s.frames[l.region]) + 1
		if s.p.regions[l.region].token {
			visit = len(s.tokens[l.node]) + 1
		}
		if r := w.add(CauseLimit, Ref{Node: s.p.nodes[l.node].ID, Visit: visit}); r != nil {
			r.Have, r.Need = visit-1, visit
		}
	}
	for _, u := range s.held {
		if u.try().status == VisitHeld {
			if r := w.add(CauseHeld, s.ref(u.ns, u.item)); r != nil {
				r.Attempt, r.Note = int(u.try().no), s.reason
			}
		}
	}
}

func (w *why) waits() {
	s := w.s
	us := s.openWaits()
	for _, kind := range [...]WaitKind{WaitInterrupt, WaitCompletion, WaitSignal, WaitChildren, WaitTimer} {
		for _, u := range us {
			t := u.try()
			if t.wait.kind != kind {
				continue
			}
			r := w.add(Cause(kind), s.ref(u.ns, u.item))
			if r == nil {
				return
			}
			r.Attempt, r.Due = int(t.no), t.due
			switch o := t.wait.out.Wait; kind {
			case WaitInterrupt:
				r.on(o.Interrupt.ID)
			case WaitSignal:
				r.on(o.Signal.Name)
			case WaitChildren:
				for i, sl := range t.wait.slots {
					if sl == nil {
						r.on(o.Children.Runs[i].ID)
					}
				}
			}
		}
	}
}

// moving are visits that go on by themselves.
func (w *why) moving() {
	s := w.s
	var backoffs []timer
	for _, t := range s.timers {
		if t.valid() && t.try().status == VisitBackoff {
			backoffs = append(backoffs, t)
		}
	}
	slices.SortFunc(backoffs, func(a, b timer) int { return a.due.Compare(b.due) })
	for _, t := range backoffs {
		if r := w.add(CauseBackoff, s.ref(t.ns, t.item)); r != nil {
			r.Attempt, r.Due = int(t.try().no), t.due
		}
	}
	fs := slices.Clone(s.flights)
	slices.SortFunc(fs, func(a, b flight) int { return int(min(1, max(-1, a.order-b.order))) })
	for _, f := range fs {
		cause := CauseRunning
		if f.try().status == VisitCanceling {
			cause = CauseCanceling
		}
		r := w.add(cause, s.ref(f.ns, f.item))
		if r == nil {
			return
		}
		r.Attempt = int(f.try().no)
	}
}

func (w *why) inboxes() {
	s := w.s
	for _, n := range s.p.inboxes {
		if s.drain != "" || s.instanceOf(n).closed {
			continue
		}
		have := 0
		if b := s.inboxes[n]; b != nil {
			have = len(b.messages)
		}
		if r := w.add(CauseInbox, Ref{Node: s.p.nodes[n].ID, Visit: len(s.tokens[n]) + 1}); r != nil {
			r.Have, r.Need = have, s.p.nodes[n].inbox.BatchSize
		}
	}
}

// dependencies are visits whose inputs are not decided.
func (w *why) dependencies() {
	s := w.s
	for i := range s.p.nodes {
		if len(w.out) >= w.limit || s.drain != "" {
			return
		}
		n := int32(i)
		r := s.p.nodes[n].region
		if s.p.nodes[n].inbox != nil || s.p.regions[r].token {
			continue
		}
		visits := s.visitsOf(n)
		if len(visits) == 0 {
			w.unopened(n, r)
			continue
		}
		ns := visits[len(visits)-1]
		if ns.status != VisitPending {
			continue
		}
		edges, at := s.sources(ns)
		w.depends(s.ref(ns, 0), edges, at)
	}
}

// unopened adds a loop that has not been entered.
func (w *why) unopened(n, r int32) {
	s := w.s
	up := s.p.regions[r].parent
	if s.p.regions[r].head != n || up < 0 {
		return
	}
	f := s.root
	if up != 0 {
		fs := s.frames[up]
		if len(fs) == 0 {
			return
		}
		f = fs[len(fs)-1]
		if round := int(s.p.roundOf(up, n)); round > 0 { // a loop within the expansion of that round
			if round > len(fs) {
				return
			}
			f = fs[round-1]
		}
	}
	if inst := &f.insts[s.p.regions[r].slot]; !inst.opened && !inst.closed {
		w.depends(Ref{Node: s.p.nodes[n].ID, Visit: 1}, s.p.nodes[n].inAt(f.serial), f)
	}
}

func (w *why) depends(ref Ref, edges []int32, f *frame) {
	s := w.s
	var on Reason
	for _, e := range edges {
		if from := s.p.nodes[s.p.edges[e].from].ID; f.edges[s.p.localEdge[e]].state == edgeOpen && !slices.Contains(on.On, from) {
			on.on(from)
		}
	}
	if len(on.On) == 0 {
		return
	}
	if r := w.add(CauseDependency, ref); r != nil {
		r.On, r.More = on.On, on.More
	}
}
