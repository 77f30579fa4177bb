package workgraph

// Fault is one thing that keeps a graph from running. Code is stable; exactly the fields of the place that apply are set.
type Fault struct {
	Code    string `json:"code"`
	Node    string `json:"node,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Faults is every fault of a graph as one error.
type Faults []Fault

func (f Faults) Error() string { return "" }

// Validate returns all faults of g at once, in declared order; none means that Compile succeeds. A nil actors skips the checks
// that need them.
func Validate(g *Graph, actors ActorSet) []Fault { return nil }
