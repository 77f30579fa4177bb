package grpckit

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/access"
)

type (
	namespaceKey struct{}
	requestKey   struct{}
)

// Namespace returns the namespace of the call, and DefaultNamespace outside of one.
func Namespace(ctx context.Context) string {
	if ns, ok := ctx.Value(namespaceKey{}).(string); ok {
		return ns
	}
	return DefaultNamespace
}

// WithNamespace returns a context whose outgoing calls are for this namespace.
func WithNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

// PrincipalOf returns who made the call; the zero Principal outside of one.
func PrincipalOf(ctx context.Context) Principal { return access.Of(ctx) }

// AsService returns a context whose calls a service makes for itself, and on behalf of nobody. Whoever
// uses it has to know that the call may be made.
func AsService(ctx context.Context) context.Context {
	return access.With(ctx, access.Principal{Kind: access.Internal})
}

// WithPrincipal returns a context that says who calls.
func WithPrincipal(ctx context.Context, p Principal) context.Context { return access.With(ctx, p) }

// RequestID returns the id under which this request is logged everywhere, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// WithRequestID returns a context whose outgoing calls carry this request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// ValidRequestID reports whether a caller's request id can be taken over: 1 to 128 visible ASCII
// characters.
func ValidRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

type drainKey struct{}

// Draining returns a channel that closes when the server of this call begins to stop, so that a handler that
// waits can return in good order. Outside of a call it never closes.
func Draining(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(drainKey{}).(chan struct{})
	return c
}
