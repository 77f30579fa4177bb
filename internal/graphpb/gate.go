package graphpb

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// largeGraph is how many nodes and edges make a graph so large that only one such is worked on at a time.
const largeGraph = 20_000

// ReasonGraphsBusy is the reason when a large graph found no turn in time.
const ReasonGraphsBusy = "LARGE_GRAPHS_BUSY"

// Gate lets large graphs in one after the other, so that a crowd of them cannot exhaust the memory; all others pass at once.
// It is safe for concurrent use.
type Gate struct{ turn chan struct{} }

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{turn: make(chan struct{}, 1)} }

// Enter waits for the graph's turn, at most until ctx ends. After success leave must be called.
func (g *Gate) Enter(ctx context.Context, graph *graphv1.Graph) (leave func(), err error) {
	if len(graph.GetNodes())+len(graph.GetEdges()) <= largeGraph {
		return func() {}, nil
	}
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn }, nil
	case <-ctx.Done():
		return nil, errs.New(errs.ResourceExhausted, ReasonGraphsBusy, "too many large graphs are being worked on").
			Hint("try again in a moment").With(ctx.Err())
	}
}
