package workgraph

import (
	"encoding/json"
	"slices"
	"strconv"
)

// CallOptions are the parts of a call besides its Start. Every field may be nil.
type CallOptions struct {
	// Heartbeat takes a heartbeat with the details of the call's progress. Nil details leave the last ones.
	Heartbeat func(details json.RawMessage)
	// Scope is what the call may read of its run; see State.ScopeOf.
	Scope Scope
}

// NewCall makes the call of an attempt, for callers outside of this package that start attempts.
func NewCall(s Start, o CallOptions) *Call {
	c := &Call{Start: s, heartbeat: o.Heartbeat}
	if o.Scope != nil {
		c.scope = func(Ref) Scope { return o.Scope }
	}
	return c
}

var _ Scope = (*Call)(nil)

// Var is one of the variables of expressions as JSON. "args", "named", "node", "visit" and "attempt" are
// those of the call; "item" is that of a map. "input" (an object of args and named), "context" (null if there
// is none) and "state" (at the time of asking) are those of the run. "usage", which expressions do not
// know, is what the run has used so far, see Used. ok is false for any other name, and for variables of the
// run in a call outside of a run. The value is put together on demand: arguments may be large, and most
// expressions read little of them.
func (c *Call) Var(name string) (raw json.RawMessage, ok bool) {
	switch name {
	case "args":
		return joinList(c.Args), true
	case "named":
		return joinMap(c.Named), true
	case "node":
		return textJSON(c.Ref.Node), true
	case "visit":
		return strconv.AppendInt(nil, int64(c.Visit), 10), true
	case "attempt":
		return strconv.AppendInt(nil, int64(c.Attempt), 10), true
	}
	if c.scope == nil {
		return nil, false
	}
	if name != "item" { // the item is among the arguments
		c.looked.Store(true)
	}
	return c.scope(c.Ref).Var(name)
}

// Ancestor is what the node named id gave, as seen from the place of the call: the values of the latest visit
// that had completed when the call's visit began. ok is false for any other node.
func (c *Call) Ancestor(id string) (r NodeResult, ok bool) {
	if c.scope == nil { // outside of a run only the sources are known
		for i := range c.Upstream {
			if u := &c.Upstream[i]; u.Node == id && u.Outcome == VisitCompleted {
				return NodeResult{Ref: Ref{Node: u.Node, Visit: u.Visit}, Values: u.Values}, true
			}
		}
		return NodeResult{}, false
	}
	r, ok = c.scope(c.Ref).Ancestor(id)
	if !ok || !slices.ContainsFunc(c.Upstream, func(u Upstream) bool { return u.Node == r.Node && u.Visit == r.Visit }) {
		c.looked.Store(true)
	}
	return r, ok
}

// Ancestors are the ids of the nodes that Ancestor finds.
func (c *Call) Ancestors() []string {
	if c.scope == nil {
		var ids []string
		for i := range c.Upstream {
			if c.Upstream[i].Outcome == VisitCompleted {
				ids = append(ids, c.Upstream[i].Node)
			}
		}
		return ids
	}
	c.looked.Store(true)
	return c.scope(c.Ref).Ancestors()
}

// Rounds are the results that a node gave in the rounds of a loop before the call, see Scope.
func (c *Call) Rounds(id string) []json.RawMessage {
	if c.scope == nil {
		return nil
	}
	c.looked.Store(true)
	return c.scope(c.Ref).Rounds(id)
}

// Looked reports whether the call has read anything that is not in its Start. Its outcome must then not be
// reused for an equal call.
func (c *Call) Looked() bool { return c.looked.Load() }

// Used is what a run has used, with the runs below it that have ended. Costs that are not known are not in
// NanoUSD; Unpriced counts the calls, or in a run without a budget the models, that they are of. Without a
// cap in money a price book is not asked, and only the costs count that calls reported themselves.
type Used struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Tokens       int64 `json:"tokens"`
	NanoUSD      int64 `json:"nano_usd"`
	Unpriced     int64 `json:"unpriced"`
}

// soFar is what the run has used at the time of asking. What counts against a budget is what Spent says.
func (s *State) soFar() Used {
	_, spent := s.Under(nil)
	out := Used{Tokens: spent.Tokens, NanoUSD: spent.NanoUSD, Unpriced: spent.Unpriced}
	for i := range s.usage {
		out.InputTokens = plus(out.InputTokens, max(s.usage[i].InputTokens, 0))
		out.OutputTokens = plus(out.OutputTokens, max(s.usage[i].OutputTokens, 0))
	}
	return out
}

// Var is one of the run's own variables that a call may read: input, context, state or usage. ok is false
// for any other name.
func (s *State) Var(name string) (json.RawMessage, bool) {
	var v any
	switch name {
	case "input":
		in := struct {
			Args  []json.RawMessage          `json:"args"`
			Named map[string]json.RawMessage `json:"named"`
		}{s.input.Args, s.input.Named}
		if in.Args == nil {
			in.Args = []json.RawMessage{}
		}
		if in.Named == nil {
			in.Named = map[string]json.RawMessage{}
		}
		v = in
	case "context":
		if len(s.context) == 0 {
			return rawNull, true
		}
		return s.context, true
	case "state":
		v = s.StateValues()
	case "usage":
		v = s.soFar()
	default:
		return nil, false
	}
	raw, err := json.Marshal(v)
	return raw, err == nil
}

// And joins the effects of two commands whose events are made durable together. Those of fx come first.
func (fx Effects) And(next Effects) Effects {
	fx.Starts = append(fx.Starts[:len(fx.Starts):len(fx.Starts)], next.Starts...)
	fx.Cancels = append(fx.Cancels, next.Cancels...)
	fx.Spawns = append(fx.Spawns, next.Spawns...)
	fx.CancelChildren = append(fx.CancelChildren, next.CancelChildren...)
	fx.Opened = append(fx.Opened, next.Opened...)
	fx.Closed = append(fx.Closed, next.Closed...)
	fx.Threads = append(fx.Threads, next.Threads...)
	fx.Kept = append(fx.Kept, next.Kept...)
	if next.Graph != nil {
		fx.Graph = next.Graph
	}
	if next.Ended != nil {
		fx.Ended = next.Ended
	}
	return fx
}
