package workgraph

import "encoding/json"

// CallOptions is what an attempt's call is given besides its Start; every field may be nil.
type CallOptions struct {
	// Heartbeat takes a sign of life with the details of how far the call is; nil details leave the last ones.
	Heartbeat func(details json.RawMessage)
	// Var looks up what Call.Var tells.
	Var func(name string) (json.RawMessage, bool)
}

// NewCall is the call of an attempt by whoever starts attempts outside of this package.
func NewCall(s Start, o CallOptions) *Call {
	return &Call{Start: s, heartbeat: o.Heartbeat, look: o.Var}
}

// Var is one of the run's own variables as JSON: "input" (an object of args and named), "context" (null if there is none) or
// "state", which is that of the time of asking. ok is false for any other name, and for a call outside of a run.
func (c *Call) Var(name string) (raw json.RawMessage, ok bool) {
	if c.look == nil {
		return nil, false
	}
	return c.look(name)
}

// Var is one of the variables that a call may ask for: see Call.Var.
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
	default:
		return nil, false
	}
	raw, err := json.Marshal(v)
	return raw, err == nil
}

// And are the effects of two commands whose events are made durable together, the receiver's first.
func (fx Effects) And(next Effects) Effects {
	fx.Starts = append(fx.Starts[:len(fx.Starts):len(fx.Starts)], next.Starts...)
	fx.Cancels = append(fx.Cancels, next.Cancels...)
	fx.Spawns = append(fx.Spawns, next.Spawns...)
	fx.CancelChildren = append(fx.CancelChildren, next.CancelChildren...)
	fx.Opened = append(fx.Opened, next.Opened...)
	fx.Closed = append(fx.Closed, next.Closed...)
	if next.Graph != nil {
		fx.Graph = next.Graph
	}
	if next.Ended != nil {
		fx.Ended = next.Ended
	}
	return fx
}
