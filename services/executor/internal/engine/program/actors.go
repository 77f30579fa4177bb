package program

import (
	"context"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Actors is what the engine asks about actors; every namespace has its own. An error says that it cannot be
// told just now whether there is such an actor. Implementations are safe for concurrent use.
type Actors interface {
	// Find returns those of the named actors that the namespace has. It is asked before a graph is accepted.
	Find(ctx context.Context, namespace string, names []string) (map[string]ActorInfo, error)
	// Actor is the actor of that name with what is known of it. It is asked before every call.
	Actor(ctx context.Context, namespace, name string) (workgraph.Actor, ActorInfo, bool, error)
	// Names lists the names of the namespace in order.
	Names(ctx context.Context, namespace string) ([]string, error)
}

// ActorInfo is what the engine needs to know of an actor before it is called.
type ActorInfo struct {
	workgraph.ActorInfo
	// Changes says that another namespace, or this one at another time, may know something else under the
	// same name.
	Changes bool
}
