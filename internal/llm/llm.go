// Package llm owns calls to language models: one request, one answer, whole or streamed, with tools,
// structured output, usage, typed errors, and a span by the GenAI conventions. Named profiles say which
// server and model is asked, within which limits, and which profile stands in when it refuses. Providers are
// packages below this one; it knows none of them. It must not know prices, budgets or actors.
package llm

import "context"

// Model answers requests. Implementations are safe for concurrent use. Errors are *Error.
type Model interface {
	// Generate returns the whole answer.
	Generate(ctx context.Context, req Request) (Response, error)
	// Stream is Generate with the pieces as they arrive: delta is called for each, in order, on the calling
	// goroutine. An error from delta ends the call and is the cause of the error. A stream that breaks is an
	// error, even after pieces were delivered.
	Stream(ctx context.Context, req Request, delta func(Delta) error) (Response, error)
}

type callerKey struct{}

// WithCaller returns a context whose calls are made for a namespace.
func WithCaller(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, callerKey{}, namespace)
}

// CallerOf is the namespace for which the calls of ctx are made, or "".
func CallerOf(ctx context.Context) string {
	namespace, _ := ctx.Value(callerKey{}).(string)
	return namespace
}

// Account is an account at a provider with its limits. Profiles that name it share them.
type Account struct {
	// Name is its name in the configuration; empty means that nothing is governed.
	Name string
	AccountLimits
}

// Governor keeps the calls of all replicas within the limits of accounts. Implementations are safe for
// concurrent use.
type Governor interface {
	// Admit waits until the account has room for one more call of a namespace with this estimated usage, and
	// takes it. The error is that of ctx, or an *Error.
	Admit(ctx context.Context, account Account, namespace string, estimate Usage) (Permit, error)
}

// Permit is room that a call took.
type Permit interface {
	// Sent is called when the request was written to the connection, so that the provider counts it from then
	// on. It is called again for a connection that turns out to be closed, and never for a call without any.
	Sent()
	// Done is called exactly once, at the end of the call. failed is nil if the model answered; used is not
	// known of a call that failed, nor if the server reports nothing.
	Done(used Usage, failed *Error)
}
