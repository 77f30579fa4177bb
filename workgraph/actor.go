package workgraph

import (
	"context"
	"encoding/json"
	"sync/atomic"
)

// Actor does the work of a node. Call may run concurrently with itself. It returns when ctx is done, at the latest soon after.
// An error that is not an *Error counts as UNKNOWN for an UNSAFE node and as RETRYABLE otherwise.
type Actor interface {
	Call(ctx context.Context, c *Call) (Outcome, error)
}

// ActorFunc is an Actor made of a function.
type ActorFunc func(ctx context.Context, c *Call) (Outcome, error)

// Call calls f.
func (f ActorFunc) Call(ctx context.Context, c *Call) (Outcome, error) { return f(ctx, c) }

// Call is one attempt as its actor sees it.
type Call struct {
	Start
	heartbeat func(details json.RawMessage)
	scope     func(Ref) Scope
	looked    atomic.Bool
}

// Heartbeat tells that the attempt is alive and restarts its idle timeout. Details, one JSON value at most, say how far it is: whoever
// watches the run sees them, and the next attempt after one that was lost or failed finds the last ones in Start.Details.
func (c *Call) Heartbeat(details ...json.RawMessage) {
	if c.heartbeat == nil {
		return
	}
	var d json.RawMessage
	if len(details) > 0 {
		d = details[0]
	}
	c.heartbeat(d)
}

// ActorInfo is what validation and compilation need to know about an actor.
type ActorInfo struct {
	// Effect is what a call does to the world unless the node overrides it; empty counts as UNSAFE.
	Effect Effect
	// EffectOf decides the effect from a node's own arguments, for actors where it depends on them. It wins over Effect.
	EffectOf func(n *Node) Effect
	// SeesPlace says that results depend on the node or visit that calls, so that a cache must tell these apart.
	SeesPlace bool
	// Computes says that a call keeps a processor busy for as long as it runs, so that a few at once are enough.
	Computes bool
	// Elsewhere says that the work of a call is done by others: here it only waits for them, and what it holds meanwhile is small.
	Elsewhere bool
	Version   string
	// Schema is the JSON Schema of the named arguments, if the actor states one.
	Schema json.RawMessage
	// Examine looks at a node's own arguments beyond the schema, and names the expressions in them.
	Examine func(ctx context.Context, n *Node) []Argument
	// NeverExpands says that no outcome of the actor inserts a sub-graph.
	NeverExpands bool
	// WaitsFor are the arguments that bound the wait in which every call ends, the usual one first; none of an
	// actor that does its work in the call. A node's timeouts bound calls, and nothing of such a wait.
	WaitsFor []string
	// Approves tells from a node's own arguments whether its calls ask for an approval. Nil says that they do not.
	Approves func(n *Node) bool
	// Inner lists what calls will make of a node's own arguments: the nodes of graphs in them, or whatever they
	// name actors for. Nil has none.
	Inner func(n *Node) []InnerNode
}

// InnerNode is a node that a call of another node's actor brings about.
type InnerNode struct {
	Node *Node
	// Place is where the outer node says so, such as "named.graph.nodes[x]", and ActorPlace where it names the
	// actor.
	Place, ActorPlace string
}

// maxInnerID is how much of an inner node's id its place tells: nobody has looked at the id yet.
const maxInnerID = 100

// InnerNodes are the nodes of a graph that stands at a place of a node.
func InnerNodes(place string, g *Graph) []InnerNode {
	out := make([]InnerNode, len(g.Nodes))
	for i := range g.Nodes {
		at := place + ".nodes[" + clipText(g.Nodes[i].ID, maxInnerID) + "]"
		out[i] = InnerNode{Node: &g.Nodes[i], Place: at, ActorPlace: at + ".actor"}
	}
	return out
}

// Argument is something about one of a node's own arguments: an expression that the actor will evaluate, or a fault.
type Argument struct {
	Arg         string
	Expr        string
	Fault, Hint string
}

// ActorSet knows actors by name. It is asked during validation and compilation only.
type ActorSet interface {
	ActorInfo(name string) (info ActorInfo, ok bool)
}

// Described is an Actor that knows its own ActorInfo.
type Described interface {
	Actor
	Info() ActorInfo
}

// Actors is the ActorSet of the in-memory runner. An actor that is not Described counts as IDEMPOTENT.
type Actors map[string]Actor

// ActorInfo is the info of the named actor.
func (a Actors) ActorInfo(name string) (ActorInfo, bool) {
	act, ok := a[name]
	if !ok {
		return ActorInfo{}, false
	}
	if d, ok := act.(Described); ok {
		return d.Info(), true
	}
	return ActorInfo{Effect: Idempotent}, true
}
