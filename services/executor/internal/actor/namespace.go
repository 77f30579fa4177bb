package actor

import "context"

type namespaceKey struct{}

// WithNamespace returns a context whose call belongs to a run of the namespace.
func WithNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

// Namespace is that of the run that makes the call of ctx; empty if no engine makes it.
func Namespace(ctx context.Context) string {
	ns, _ := ctx.Value(namespaceKey{}).(string)
	return ns
}
