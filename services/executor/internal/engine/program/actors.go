package program

import (
	"context"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Actors is the catalog of actors; every namespace has its own. An error means that the answer is not known
// at the moment. Implementations are safe for concurrent use.
type Actors interface {
	// Find returns those of the named actors that the namespace has. It is called before a graph is
	// accepted.
	Find(ctx context.Context, namespace string, names []string) (map[string]ActorInfo, error)
	// Actor returns an actor and its description. It is called before every call of the actor.
	Actor(ctx context.Context, namespace, name string) (workgraph.Actor, ActorInfo, bool, error)
	// Names lists the actors of the namespace in order.
	Names(ctx context.Context, namespace string) ([]string, error)
}

// Learner is an ability of Actors that know some actors only a while after their start, such as the tools of
// a server elsewhere.
type Learner interface {
	// Learn waits for a bounded time until as much is known of the named actors as can be now. Calls of
	// actors that tell others of them wait so; the check of a graph does not.
	Learn(ctx context.Context, names []string)
}

// ActorInfo describes an actor before it is called.
type ActorInfo struct {
	workgraph.ActorInfo
	// Changes reports that the name may mean another actor in another namespace, or later.
	Changes bool
}
