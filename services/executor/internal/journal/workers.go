package journal

import (
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Reasons of what workers are refused for.
const (
	// ReasonActorConflict is the reason when another worker that lives serves an actor under another effect;
	// Meta "actor" names it.
	ReasonActorConflict = "ACTOR_EFFECT_CONFLICT"
	// ReasonTooManyActors is the reason when a namespace would have more actors than it may.
	ReasonTooManyActors = "TOO_MANY_ACTORS"
	// ReasonActorsTooLarge is the reason when what is recorded of a namespace's actors would take more bytes
	// than it may.
	ReasonActorsTooLarge = "ACTORS_TOO_LARGE"
)

// Workers tells the executors of one database which remote workers there are, and keeps the actors that they
// serve or once served. An executor's own entries count while it lives, that is while its heartbeat is
// younger than the lease and its incarnation the same.
type Workers interface {
	// PutActors records what a worker of the namespace serves. The newest description, version and schema
	// win. An effect may change only when no executor but self has a worker for the actor:
	// ReasonActorConflict. ReasonTooManyActors when the namespace would have more than limit, those not
	// counted that nobody served for ForgetActors; ReasonActorsTooLarge when its actors would grow beyond
	// MaxActorBytes. Nothing is written then.
	PutActors(ctx context.Context, self Owner, namespace string, actors []RemoteActor, lease time.Duration, limit int) error
	// RemoteActors lists the recorded actors of the namespace with one of the names, or all when names is
	// nil, by name. They count for the answer that they are read for.
	RemoteActors(ctx context.Context, namespace string, names []string) ([]RemoteActor, error)
	// ActorNames lists the names of all recorded actors of the namespace, by name.
	ActorNames(ctx context.Context, namespace string) ([]string, error)
	// SyncWorkers changes what the others see of self's workers, and wakes those who wait for routes that
	// were put. ReasonFenced.
	SyncWorkers(ctx context.Context, self Owner, s WorkerSync) error
	// Routes lists who has workers for an actor, live executors only, self included, by executor.
	Routes(ctx context.Context, namespace, actor string, lease time.Duration) ([]WorkerRoute, error)
	// Workers lists the workers of the namespace at live executors, by executor and id.
	Workers(ctx context.Context, namespace string, lease time.Duration) ([]Worker, error)
	// WorkerWakes returns a channel that gets a value after workers came to some executor. It is a hint:
	// values may be lost or come for nothing, so look at Routes now and then. The channel is closed when ctx
	// ends.
	WorkerWakes(ctx context.Context) (<-chan struct{}, error)
}

// ForgetActors is after how long an actor that no worker serves may be forgotten.
const ForgetActors = 30 * 24 * time.Hour

// RemoteActor is an actor that a remote worker serves, or once served.
type RemoteActor struct {
	Name, Description string
	// Effect is the word of workgraph.
	Effect  string
	Version string
	// Schema is the JSON Schema of the named arguments, or nil.
	Schema []byte
	// LastSeen is when a worker last said that it serves it.
	LastSeen time.Time
}

// MaxActorBytes bounds the names, descriptions, versions and schemas of all actors of a namespace together:
// whoever lists or looks up actors holds them in memory.
const MaxActorBytes = 16 << 20

// Size is what the actor counts for in MaxActorBytes.
func (a *RemoteActor) Size() int64 {
	return int64(len(a.Name) + len(a.Description) + len(a.Version) + len(a.Schema))
}

// WorkerRoute says how many visits of an actor an executor's workers take.
type WorkerRoute struct {
	Executor Owner
	Addr     string
	Slots    int
	// Busy is how many of them were taken when the executor last said so.
	Busy int
}

// Worker is a worker that is connected to an executor.
type Worker struct {
	ID, ExecutorID string
	Namespace      string
	Actors         []string
	Slots, Busy    int
	ConnectTime    time.Time
	UserAgent      string
	Draining       bool
}

// WorkerSync is a change of what is seen of an executor's workers.
type WorkerSync struct {
	// All says that Put and Routes are everything there is; what else was there is dropped.
	All  bool
	Put  []Worker
	Drop []WorkerID
	// Routes with Slots 0 are dropped.
	Routes []NamedRoute
}

// WorkerID names a worker.
type WorkerID struct{ Namespace, ID string }

// NamedRoute is a route of the executor that syncs.
type NamedRoute struct {
	Namespace, Actor string
	Slots, Busy      int
}

// ActorConflict returns the error of an actor that is served under two effects.
func ActorConflict(name, has, wants string) error {
	return errs.New(errs.FailedPrecondition, ReasonActorConflict, "actor %q is served as %s by a worker that is connected, and cannot become %s meanwhile", name, has, wants).
		Set("actor", name).Hint("stop the other workers first, or give the changed actor another name")
}

// TooManyActors returns the error of a namespace that is full.
func TooManyActors(limit int) error {
	return errs.New(errs.ResourceExhausted, ReasonTooManyActors, "a namespace has at most %d actors of workers", limit).
		Hint("actors that no worker serves any more are forgotten after a while")
}

// ActorsTooLarge returns the error of a namespace whose actors take too many bytes.
func ActorsTooLarge() error {
	return errs.New(errs.ResourceExhausted, ReasonActorsTooLarge, "the actors of a namespace, with their descriptions and schemas, have at most %d bytes", MaxActorBytes).
		Hint("shorten the schemas, or let workers serve fewer actors; actors that no worker serves any more are forgotten after a while")
}

// ActorRoom says why a namespace that has n actors of size bytes has no room for fresh ones more and added
// bytes more; nil if it has. Drivers only.
func ActorRoom(n, fresh, limit int, size, added int64) error {
	switch {
	case fresh > 0 && n+fresh > limit:
		return TooManyActors(limit)
	case added > 0 && size+added > MaxActorBytes:
		return ActorsTooLarge()
	}
	return nil
}

// Wakes reports whether the change makes free places known, for which others may wait. Drivers only.
func (w WorkerSync) Wakes() bool {
	return slices.ContainsFunc(w.Routes, func(r NamedRoute) bool { return r.Busy < r.Slots })
}
