package workgraph

import (
	"context"
	"encoding/json"
	"sync/atomic"
)

// Actor does the work of a node. Call may run concurrently with itself. It must return soon after ctx is
// done. An error that is not an *Error counts as UNKNOWN for an UNSAFE node and as RETRYABLE otherwise.
type Actor interface {
	Call(ctx context.Context, c *Call) (Outcome, error)
}

// ActorFunc is a function as an Actor.
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

// Heartbeat reports that the attempt is alive and restarts its idle timeout. Details, at most one JSON value,
// is the progress of the call. Watchers of the run see it, and the next attempt after a lost or failed one
// finds the last details in Start.Details.
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
	// Effect is the effect of a call unless the node overrides it. Empty counts as UNSAFE.
	Effect Effect
	// EffectOf decides the effect from a node's own arguments, for actors whose effect depends on them. It
	// wins over Effect.
	EffectOf func(n *Node) Effect
	// SeesPlace says that results depend on the calling node or visit, so that a cache must tell these apart.
	SeesPlace bool
	// NamedOnly says that results depend on the named arguments alone, not on other arguments or on sources.
	NamedOnly bool
	// Computes says that a call keeps a processor busy for as long as it runs, so that few calls should run
	// at once.
	Computes bool
	// Elsewhere says that the work of a call is done by others. The call only waits here and holds little
	// memory.
	Elsewhere bool
	// Description says what a call does, for people and models. It may be empty.
	Description string
	Version     string
	// Schema is the JSON Schema of the named arguments, if the actor states one.
	Schema json.RawMessage
	// Examine checks a node's own arguments beyond the schema, and names the expressions in them.
	Examine func(ctx context.Context, n *Node) []Argument
	// NeverExpands says that no outcome of the actor inserts a sub-graph.
	NeverExpands bool
	// WaitsFor are the arguments that bound the wait in which every call ends, the usual one first. It is
	// empty for an actor that does its work within the call. A node's timeouts bound calls and not such a
	// wait.
	WaitsFor []string
	// Approves reports from a node's own arguments whether its calls ask for an approval. Nil stands for no.
	Approves func(n *Node) bool
	// Inner lists the nodes that calls will make of a node's own arguments: nodes of graphs in the arguments,
	// or other arguments that name an actor. Nil stands for none.
	Inner func(n *Node) []InnerNode
	// Uncached says why no call of a node may be answered with the outcome of an equal one, or that it may,
	// by an empty text. Nil stands for the latter.
	Uncached func(n *Node) string
	// Internal says that only the graphs of children that a MakesInternal actor asks for may name the actor.
	// An engine hides it from all other graphs.
	Internal, MakesInternal bool
}

// InnerNode is a node that a call of another node's actor brings about.
type InnerNode struct {
	Node *Node
	// Place is where the outer node declares it, such as "named.graph.nodes[x]". ActorPlace is where the
	// outer node names its actor.
	Place, ActorPlace string
}

// maxInnerID bounds, in bytes, the part of an inner node's id that stands in its place. The id is not
// validated yet at that point.
const maxInnerID = 100

// InnerNodes are the nodes of g as inner nodes, where place is the argument of the outer node that holds g.
func InnerNodes(place string, g *Graph) []InnerNode {
	out := make([]InnerNode, len(g.Nodes))
	for i := range g.Nodes {
		at := place + ".nodes[" + clipText(g.Nodes[i].ID, maxInnerID) + "]"
		out[i] = InnerNode{Node: &g.Nodes[i], Place: at, ActorPlace: at + ".actor"}
	}
	return out
}

// Argument is a finding about one of a node's own arguments: an expression that the actor will evaluate, or a
// fault.
type Argument struct {
	Arg         string
	Expr        string
	Fault, Hint string
}

// ActorSet finds actors by name. Only validation and compilation use it.
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
