package workgraph

import "encoding/json"

// itemEnded journals the end of one item of a map and decides how the map goes on.
func (s *State) itemEnded(u unit, o *Outcome, err *Error) {
	var values []json.RawMessage
	var stop Stop
	d := &Detail{Error: err}
	if o != nil {
		values, stop = o.Values, o.Stop
		d.Stop, d.Values = stop, values
	}
	if o != nil && o == s.ev.Outcome && stop == Proceed || err != nil && err == s.ev.Error {
		d = nil
	}
	st := s.step(OpItem, u.ns, d)
	st.Item = int(u.item)
	s.record(st)
	s.applyItem(u.ns, u.item, values, stop, err)
	switch {
	case stop == Terminate && s.drain == "":
		s.succeed(u.ns, []json.RawMessage{u.ns.m.results()}, &Outcome{Stop: Terminate}, nil)
	case s.drain != "":
		if u.ns.m.open == 0 {
			s.drop(unit{u.ns, 0})
		}
	case err == nil && stop == Proceed && s.node(u.ns).until != nil:
		s.mapEnough(u, values)
	default:
		s.mapVerdict(u.ns, err)
	}
}

// mapEnough ends the map if the item that has just ended is all that it needs.
func (s *State) mapEnough(u unit, values []json.RawMessage) {
	until := s.node(u.ns).until
	enough, _, err := s.cond(until, s.outcomeScope(u.ns, u.item, values))
	switch {
	case err != nil:
		s.stopItems(u.ns)
		s.failVisit(u.ns, Errorf(Permanent, ReasonConditionFailed, "condition %q of the map: %v", until.src, err), false)
	case enough:
		s.stopItems(u.ns)
		s.finishMap(u.ns)
	default:
		s.mapProgress(u.ns)
	}
}

// mapVerdict fails the map if an item's failure does so.
func (s *State) mapVerdict(ns *nodeState, err *Error) {
	if err != nil && s.node(ns).Map.OnItemError == FailFast {
		s.stopItems(ns)
		s.failVisit(ns, err, false)
		return
	}
	s.mapProgress(ns)
}

// mapProgress ends the map if it is done, fails it if its quorum can no longer be met, and otherwise starts
// items up to its window.
func (s *State) mapProgress(ns *nodeState) {
	m, n := ns.m, s.node(ns)
	if q := n.Map.Quorum; n.Map.OnItemError == QuorumItems && len(m.list)-m.bad < q {
		s.stopItems(ns)
		s.failVisit(ns, Errorf(Permanent, ReasonQuorumUnreachable, "a quorum of %d out of %d items can no longer be met", q, len(m.list)), false)
		return
	}
	if m.done == len(m.list) {
		s.finishMap(ns)
		return
	}
	for m.open < n.window && m.next < len(m.list) {
		st := s.step(OpStart, ns, nil)
		st.Item = m.next + 1
		s.record(st)
		s.applyNextItem(ns)
	}
}

func (s *State) finishMap(ns *nodeState) {
	values := []json.RawMessage{ns.m.results()}
	if s.node(ns).transform != nil {
		v, err := s.transform(ns, values)
		if err != nil {
			s.failVisit(ns, err, false)
			return
		}
		values = v
	}
	if err := deepValues(values); err != nil {
		s.failVisit(ns, err, false)
		return
	}
	s.succeed(ns, values, nil, nil)
}

// results is the typed list of a map. Items that did not end have canceled entries.
func (m *mapState) results() json.RawMessage {
	list := make([]json.RawMessage, len(m.items))
	for i := range m.items {
		if list[i] = m.items[i].result; list[i] == nil {
			list[i] = itemError(&Error{Type: NotPerformed, Reason: ReasonCanceled})
		}
	}
	return joinList(list)
}

// stopItems stops the open items of a map that ends without them. UNSAFE calls under way run to their end.
func (s *State) stopItems(ns *nodeState) {
	unsafe := s.node(ns).Effect == Unsafe
	for i := range ns.m.next {
		u := unit{ns, int32(i + 1)}
		switch t := u.try(); t.status {
		case VisitRunning:
			if !unsafe {
				s.cancelUnit(u)
			} else if !t.intent {
				s.drop(u)
			}
		case VisitBackoff, VisitWaiting, VisitHeld:
			s.drop(u)
		}
	}
}
