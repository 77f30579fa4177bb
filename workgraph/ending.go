package workgraph

import (
	"encoding/json"
	"slices"
)

// ending is how the run ends now, or nil if it goes on.
func (s *State) ending() *RunEnd {
	if len(s.flights) > 0 {
		return nil
	}
	end := &RunEnd{Status: StatusCompleted}
	switch {
	case s.drain == drainFail:
		end.Status, end.Reason = StatusFailed, ReasonNodeFailed
		end.Failed, end.Error = s.failed, s.failure
		if s.failure != nil {
			end.Message = s.failed.String() + ": " + s.failure.Error()
		}
	case s.drain == drainTerminate:
		end.Reason = ReasonTerminated
	case s.drain == drainCancel:
		end.Status, end.Reason, end.Message = StatusCanceled, ReasonCancelRequest, s.reason
	case s.drain == drainDeadline:
		end.Status, end.Reason, end.Message = StatusFailed, ReasonDeadline, "the run's deadline has passed"
	case s.unknown > 0:
		return nil
	case s.root.open == 0:
	case s.paused || s.suspended > 0 || len(s.limited) > 0:
		return nil
	default:
		end.Status, end.Reason = StatusFailed, ReasonStarved
		end.Message = "nothing is in flight, and these nodes still wait: " + s.waiting()
	}
	end.Outputs, end.Result = s.outputs()
	if s.drain != "" {
		end.Unknown = s.Unknown()
	}
	return end
}

// Unknown are the UNSAFE calls, by visit or item, whose outcome is not known: those that wait for
// reconciliation and, in a run that has ended or is ending, those that were never reconciled.
func (s *State) Unknown() []Ref {
	if s.root == nil {
		return nil
	}
	var out []Ref
	look := func(ns *nodeState, item int32) {
		t := unit{ns: ns, item: item}.try()
		if t.failed != nil && t.failed.Type == Unknown && (t.status == VisitReconciliation || t.status == VisitCanceled) {
			out = append(out, s.ref(ns, item))
		}
	}
	for i := range s.p.nodes {
		if s.p.nodes[i].Effect != Unsafe {
			continue
		}
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.m == nil {
				look(ns, 0)
				continue
			}
			for k := range ns.m.items {
				look(ns, int32(k+1))
			}
		}
	}
	return out
}

// waiting names up to ten nodes that have not ended.
func (s *State) waiting() string {
	text, more := "", 0
	for i := range s.p.nodes {
		vs := s.visitsOf(int32(i))
		if len(vs) > 0 && vs[len(vs)-1].resolved() {
			continue
		}
		if more++; more <= 10 {
			if text != "" {
				text += ", "
			}
			text += s.p.nodes[i].ID
		}
	}
	if more > 10 {
		text += " and " + itoa(more-10) + " more"
	}
	return text
}

// outputs are the values of the effective sinks: visits that completed, that no later round of their loop
// superseded, and that have no completed descendant. A visit that ended the run by TERMINATE is always one.
func (s *State) outputs() (map[string]json.RawMessage, json.RawMessage) {
	n := len(s.p.nodes)
	counts := make([]bool, n)   // the node's last completed visit counts
	followed := make([]bool, n) // a descendant of it counts
	for i, ns := range s.latest {
		counts[i] = ns != nil && !s.superseded(ns)
	}
	for k := n - 1; k >= 0; k-- {
		v := s.p.topo[k]
		leads := func(e int32) bool {
			pe := &s.p.edges[e]
			return pe.kind != BackEdge && !(pe.message && pe.peer) && (counts[pe.to] || followed[pe.to])
		}
		out := s.p.nodes[v].out
		if ns := s.latest[v]; ns != nil {
			out = s.out(ns)
		}
		followed[v] = slices.ContainsFunc(out, leads)
	}
	sink := make([]*nodeState, n)
	for i, ns := range s.latest {
		if counts[i] && !followed[i] {
			sink[i] = ns
		}
	}
	for _, ns := range s.terminated {
		sink[ns.n] = ns
	}
	var out map[string]json.RawMessage
	var list []json.RawMessage
	for i, ns := range sink {
		if ns == nil {
			continue
		}
		if out == nil {
			out = map[string]json.RawMessage{}
		}
		v := single(ns.values)
		out[s.p.nodes[i].ID] = v
		list = append(list, v)
	}
	switch len(list) {
	case 0:
		return out, rawNull
	case 1:
		return out, list[0]
	}
	return out, joinList(list)
}

// superseded reports whether a later round of the visit's loop, or of an enclosing loop, has completed its
// head.
func (s *State) superseded(ns *nodeState) bool {
	if s.p.regions[ns.f.region].token {
		return ns.superseded
	}
	for f := ns.f; f.inst != nil; f = f.parent {
		if head := s.latest[s.p.regions[f.region].head]; head != nil && head.f.serial > f.serial {
			return true
		}
	}
	return false
}
