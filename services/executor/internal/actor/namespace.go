package actor

import "context"

type namespaceKey struct{}

// WithNamespace returns a context whose call is made for a namespace.
func WithNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

// Namespace is the namespace that the call of ctx is made for; empty if ctx names none. Whatever calls share
// has a share for each namespace.
func Namespace(ctx context.Context) string {
	n, _ := ctx.Value(namespaceKey{}).(string)
	return n
}
