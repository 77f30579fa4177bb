// Package calling owns the way in which a worker's function tells the client which call it is: by its context.
// It must not know what either does with it.
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
