// Package calling puts the current call of a worker's function into its context, where the client finds it.
// It must not know how the worker and the client use it.
package calling

import "context"

// Call is a call of a node's actor.
type Call struct {
	RunID, NodeID string
	// AttemptToken shows that the call is this one.
	AttemptToken string
}

type key struct{}

// With is ctx for the call.
func With(ctx context.Context, c Call) context.Context { return context.WithValue(ctx, key{}, c) }

// Of is the call that ctx was made for; zero outside of one.
func Of(ctx context.Context) Call {
	c, _ := ctx.Value(key{}).(Call)
	return c
}
