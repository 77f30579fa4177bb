package actor

import (
	"context"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Directory finds actors by name for a call that must know them, remote workers' included. Implementations
// are safe for concurrent use.
type Directory interface {
	// Find returns those of the named actors that the namespace of the call has.
	Find(ctx context.Context, names []string) (map[string]workgraph.ActorInfo, error)
	// Below returns the names of the actors of the namespace that begin with a prefix, in order. It waits for
	// a bounded time for a server that has never said what it has.
	Below(ctx context.Context, prefix string) ([]string, error)
}

type directoryKey struct{}

// WithDirectory returns a context whose calls find actors in d.
func WithDirectory(ctx context.Context, d Directory) context.Context {
	return context.WithValue(ctx, directoryKey{}, d)
}

// DirectoryOf is the directory of ctx; one that finds nothing if there is none.
func DirectoryOf(ctx context.Context) Directory {
	if d, ok := ctx.Value(directoryKey{}).(Directory); ok {
		return d
	}
	return empty{}
}

type empty struct{}

func (empty) Find(context.Context, []string) (map[string]workgraph.ActorInfo, error) {
	return nil, nil
}

func (empty) Below(context.Context, string) ([]string, error) { return nil, nil }
