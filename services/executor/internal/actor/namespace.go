package actor

import "context"

type namespaceKey struct{}

// WithNamespace returns a context whose call is made for a run of that namespace.
func WithNamespace(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

// NamespaceOf is the namespace of the run that calls, or "".
func NamespaceOf(ctx context.Context) string {
	namespace, _ := ctx.Value(namespaceKey{}).(string)
	return namespace
}
