package workgraph

import (
	"context"
)

// Result is what a run in memory ended in.
type Result struct {
	RunEnd
	// Events counts the journal entries of the run.
	Events int64
	Usage  []Usage
}

// Option changes how Run works.
type Option func(*runConfig)

type runConfig struct {
	runID    string
	parallel int
	progress func(Event)
}

// WithRunID names the run; the name is the first part of every effect key. The default is "run".
func WithRunID(id string) Option { return func(c *runConfig) { c.runID = id } }

// WithParallel caps how many actors run at once. The default is 64.
func WithParallel(n int) Option { return func(c *runConfig) { c.parallel = n } }

// WithProgress receives every event in order. It is called under the run's lock and must be quick.
func WithProgress(f func(Event)) Option { return func(c *runConfig) { c.progress = f } }

// Run compiles g and runs it to its end in this process. Nothing is kept: a run that pauses (a loop at its limit, an UNSAFE
// attempt that ended in the unknown) returns with status PAUSED and the reason. The error is non-nil only when g is at fault;
// how the run went is in the Result. Canceling ctx cancels the run.
func Run(ctx context.Context, g *Graph, actors Actors, input Input, opts ...Option) (Result, error) {
	p, err := Compile(g, actors)
	if err != nil {
		return Result{}, err
	}
	return p.Run(ctx, actors, input, opts...)
}

// Run runs the program once; see the function Run.
func (p *Program) Run(ctx context.Context, actors Actors, input Input, opts ...Option) (Result, error) {
	return Result{}, nil
}
