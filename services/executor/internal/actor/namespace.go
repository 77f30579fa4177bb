package actor

import (
	"context"
	"strings"
)

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

type softCapKey struct{}

// WithSoftCap returns a context whose call is made although a budget above it is over its soft cap.
func WithSoftCap(ctx context.Context) context.Context {
	return context.WithValue(ctx, softCapKey{}, true)
}

// OverSoftCap reports whether a budget above the call is over its soft cap.
func OverSoftCap(ctx context.Context) bool { return ctx.Value(softCapKey{}) != nil }

type workflowKey struct{}

// WithWorkflow returns a context whose call is made within a workflow of the catalog, as SLUG@VERSION.
func WithWorkflow(ctx context.Context, version string) context.Context {
	return context.WithValue(ctx, workflowKey{}, version)
}

// WorkflowOf is the slug of the workflow of the catalog within which the call is made, or "".
func WorkflowOf(ctx context.Context) string {
	version, _ := ctx.Value(workflowKey{}).(string)
	slug, _, _ := strings.Cut(version, "@")
	return slug
}

type delegatedKey struct{}

// WithDelegated returns a context whose call is made in a run with so many runs that a model chose on the way
// to it from its root, itself included.
func WithDelegated(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, delegatedKey{}, n)
}

// DelegatedOf is how many runs that a model chose stand on the way to the run of the call.
func DelegatedOf(ctx context.Context) int {
	n, _ := ctx.Value(delegatedKey{}).(int)
	return n
}
