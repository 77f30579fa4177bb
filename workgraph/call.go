package workgraph

// NewCall is the call of an attempt by whoever starts attempts outside of this package. A nil heartbeat is fine.
func NewCall(s Start, heartbeat func()) *Call { return &Call{Start: s, heartbeat: heartbeat} }
