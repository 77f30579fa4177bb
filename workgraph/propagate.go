package workgraph

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
)

// sources returns the edges that a visit joins, in declared order, and the frame that holds them.
func (s *State) sources(ns *nodeState) ([]int32, *frame) {
	f := ns.f
	r := &s.p.regions[f.region]
	switch {
	case r.token: // its only input is in the frame itself
		return nil, f
	case r.head != ns.n:
		return s.p.nodes[ns.n].inAt(f.serial), f
	case f.prev != nil:
		return r.backs, f.prev
	default:
		return s.p.nodes[ns.n].inAt(f.parent.serial), f.parent
	}
}

// propagate computes the arguments of a visit from the inputs marked as used.
func (s *State) propagate(ns *nodeState) ([]json.RawMessage, map[string]json.RawMessage) {
	if s.p.regions[ns.f.region].token {
		if s.p.nodes[ns.n].inbox != nil {
			return nil, batchArgument(ns.f.messages)
		}
		if ns.f.tokenEdge < 0 {
			return s.input.Args, s.input.Named
		}
		es := edgeState{src: ns.f.tokenSrc, propagated: ns.f.edges[0].propagated}
		return s.one(ns.f.tokenEdge, &es)
	}
	edges, f := s.sources(ns)
	if len(edges) == 0 {
		return s.input.Args, s.input.Named
	}
	if len(edges) == 1 {
		return s.one(edges[0], &f.edges[s.p.localEdge[edges[0]]])
	}
	if f != ns.f && ns.f.prev == f {
		return s.merge(edges, f, s.p.nodes[ns.n].multiBack)
	}
	return s.merge(edges, f, s.multiAt(ns.n, edges, f))
}

// Bounds of the arguments that are propagated to one visit. Positional arguments concatenate at joins, so
// each join of two branches doubles them. A key of several edges becomes one list.
const (
	maxPropagatedArgs  = 50_000
	maxPropagatedBytes = 64 << 20
)

// tooMuch is an error if the used edges together carry more than a visit may receive. It is checked before
// anything is put together.
func (s *State) tooMuch(edges []int32, f *frame) *Error {
	count, size := 0, 0
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		if es.state != edgeUsed {
			continue
		}
		pe := &s.p.edges[e]
		switch {
		case pe.mode == MergePassDown && es.propagated != nil:
			count += len(es.propagated.Args)
		case pe.mode == ResultAsLeadingArgs:
			count += len(es.src.args) + len(es.src.values)
		default:
			count += max(1, len(es.src.args))
		}
		if pe.mode == KeyPassDown && len(edges) > 1 {
			for _, v := range es.src.values {
				size += len(v)
			}
		}
	}
	switch {
	case count > maxPropagatedArgs && count > len(edges):
		return Errorf(Permanent, ReasonTooManyArguments, "%d positional arguments come together here, the limit is %d: every join of branches adds up what "+
			"is passed on along each of them; pass results down by KEY, or choose with MERGE what goes on", count, maxPropagatedArgs)
	case size > maxPropagatedBytes:
		return Errorf(Permanent, ReasonArgumentsTooLarge, "%d bytes of results come together here, the limit is %d: keep large results outside and pass "+
			"references", size, maxPropagatedBytes)
	}
	return nil
}

// merge joins the used edges: positional arguments concatenate and named ones merge in declared order. A
// value passed down under a key at this join wins over propagated arguments of that name. Keys of two or more
// declared edges become lists.
func (s *State) merge(edges []int32, f *frame, multi map[string]bool) ([]json.RawMessage, map[string]json.RawMessage) {
	var args []json.RawMessage
	var named map[string]json.RawMessage
	var keyed map[string][]json.RawMessage
	owned := false
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		if es.state != edgeUsed {
			continue
		}
		a, k := s.pass(e, es)
		args = append(args, a...)
		switch {
		case len(k) == 0:
		case named == nil:
			named = k
		default:
			if !owned {
				named, owned = maps.Clone(named), true
			}
			maps.Copy(named, k)
		}
		if pe := &s.p.edges[e]; pe.mode == KeyPassDown {
			if keyed == nil {
				keyed = map[string][]json.RawMessage{}
			}
			keyed[pe.key] = append(keyed[pe.key], single(s.passed(pe, es.src)))
		}
	}
	if keyed == nil {
		return args, named
	}
	if !owned {
		named = cloneNamed(named, len(keyed))
	}
	for k, vals := range keyed {
		if multi[k] {
			named[k] = joinList(vals)
		} else {
			named[k] = vals[len(vals)-1]
		}
	}
	return args, named
}

// one is merge for a single edge.
func (s *State) one(e int32, es *edgeState) ([]json.RawMessage, map[string]json.RawMessage) {
	args, named := s.pass(e, es)
	if pe := &s.p.edges[e]; pe.mode == KeyPassDown {
		named = cloneNamed(named, 1)
		named[pe.key] = single(s.passed(pe, es.src))
	}
	return args, named
}

func cloneNamed(m map[string]json.RawMessage, more int) map[string]json.RawMessage {
	c := make(map[string]json.RawMessage, len(m)+more)
	maps.Copy(c, m)
	return c
}

// passed is the value that the edge hands on: the source's error on an ERROR edge, else its result.
func (s *State) passed(pe *pedge, src *nodeState) []json.RawMessage {
	if pe.kind == ErrorEdge && src.err != nil {
		return []json.RawMessage{errorJSON(src.err)}
	}
	return src.values
}

// pass applies the edge's mode to the source's arguments. The caller, which knows the join, adds the value of
// KEY.
func (s *State) pass(e int32, es *edgeState) ([]json.RawMessage, map[string]json.RawMessage) {
	pe, src := &s.p.edges[e], es.src
	named := src.named
	if s.p.nodes[src.n].inbox != nil {
		named = nil // messages are not propagated
	}
	switch pe.mode {
	case ResultAsFirstArg:
		args := make([]json.RawMessage, 1, max(1, len(src.args)))
		args[0] = single(s.passed(pe, src))
		if len(src.args) > 1 {
			args = append(args, src.args[1:]...)
		}
		return args, named
	case ResultAsLeadingArgs:
		return slices.Concat(s.passed(pe, src), src.args), named
	case MergePassDown:
		if es.propagated != nil {
			return es.propagated.Args, es.propagated.Named
		}
	}
	return src.args, named
}

func errorJSON(e *Error) json.RawMessage {
	c := Error{Type: e.Type, Reason: e.Reason, Message: e.Message}
	b, err := json.Marshal(c)
	if err != nil {
		return rawNull // cannot happen: three strings can always be written
	}
	return b
}

// mergePropagated evaluates a MERGE expression.
func (s *State) mergePropagated(x *Expr, sc *scope) (*Input, error) {
	v, err := s.eval(x, sc)
	if err != nil {
		return nil, err
	}
	out := &Input{Args: sc.args, Named: sc.named}
	if sc.s.node(sc.ns).inbox != nil {
		out.Named = nil // messages are not propagated
	}
	if v.Type() == types.NullType {
		return out, nil
	}
	m, ok := v.(traits.Mapper)
	if !ok {
		return nil, fmt.Errorf("MERGE gives %s, not a map {args, named}", v.Type().TypeName())
	}
	// A null part counts as absent: an empty list or map drops arguments, a missing value never does.
	if a, ok := m.Find(types.String("args")); ok && a.Type() != types.NullType {
		raw, err := celJSON(a)
		if err != nil {
			return nil, err
		}
		if out.Args, ok = splitList(raw); !ok {
			return nil, errors.New("MERGE gives args that are no list")
		}
	}
	if n, ok := m.Find(types.String("named")); ok && n.Type() != types.NullType {
		if sc.isResult(n) {
			out.Named = splitObject(single(sc.values)) // a copy would be kept as long as the result
			return out, nil
		}
		raw, err := celJSON(n)
		if err != nil {
			return nil, err
		}
		out.Named = map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &out.Named); err != nil {
			return nil, errors.New("MERGE gives named that is no map")
		}
	}
	return out, nil
}

// makeStart fills in one attempt.
func (s *State) makeStart(st *Start, ns *nodeState, item int32) {
	n := s.node(ns)
	t := unit{ns, item}.try()
	st.Ref = s.ref(ns, item)
	st.RunID, st.Actor, st.Name, st.Kind, st.Effect, st.Thread = s.runID, n.Actor, n.Name, n.Kind, n.Effect, n.Thread
	st.Attempt, st.Generation, st.ConcurrencyKey = int(t.no), int(t.gen), ns.key
	st.Timeout, st.IdleTimeout = n.timeouts()
	st.Stopping = s.stopping
	st.Cache = n.Cache
	st.Args, st.Named, st.Messages = ns.args, ns.named, ns.f.messages
	if item > 0 {
		value := ns.m.list[item-1]
		if n.Map.As == "" {
			st.Args = slices.Concat([]json.RawMessage{value}, ns.args)
		} else {
			st.Named = cloneNamed(ns.named, 1)
			st.Named[n.Map.As] = value
		}
	}
	if len(n.Args) > 0 {
		st.Args = slices.Concat(n.Args, st.Args)
	}
	st.Own = n.Named
	switch {
	case len(n.Named) == 0:
	case len(st.Named) == 0:
		st.Named = n.Named
	default:
		own := cloneNamed(n.Named, len(st.Named))
		maps.Copy(own, st.Named)
		st.Named = own
	}
	if len(n.bindings) > 0 {
		st.Named = cloneNamed(st.Named, len(n.bindings))
		maps.Copy(st.Named, s.boundOf(ns))
	}
	st.Upstream = s.upstream(ns)
}

// upstream lists the sources that ran: with their values if the edge is an input, and with their status if
// they failed or abstained.
func (s *State) upstream(ns *nodeState) []Upstream {
	if s.p.regions[ns.f.region].token {
		if ns.f.tokenEdge < 0 {
			return nil
		}
		return []Upstream{s.source(ns.f.tokenSrc)}
	}
	edges, f := s.sources(ns)
	if len(edges) == 0 {
		return nil
	}
	if cap(s.upstreams)-len(s.upstreams) < len(edges) {
		s.upstreams = make([]Upstream, 0, max(upstreamChunk, len(edges)))
	}
	out := s.upstreams[len(s.upstreams):len(s.upstreams)]
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		if es.state == edgeUsed || es.state == edgeDead && es.src != nil && (es.src.status == VisitFailed || es.src.status == VisitAbstained) {
			out = append(out, s.source(es.src))
		}
	}
	s.upstreams = s.upstreams[:len(s.upstreams)+len(out)]
	return out[:len(out):len(out)]
}

func (s *State) source(src *nodeState) Upstream {
	u := Upstream{Node: s.node(src).ID, Visit: int(src.f.serial), Outcome: src.status, Error: src.err}
	if src.status == VisitCompleted {
		u.Values = src.values
	}
	return u
}
