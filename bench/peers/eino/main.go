// Command eino runs the loads on the graphs of Eino, in memory: nothing is durable. It must not know the
// harness beyond its protocol.
package main

import (
	"context"
	"os"
	"strconv"
	"sync"

	"github.com/cloudwego/eino/compose"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
)

func main() {
	os.Exit(drive.Main(func(context.Context) (drive.Engine, error) {
		return &engine{graphs: map[*load.Graph]compose.Runnable[map[string]any, map[string]any]{}}, nil
	}))
}

type engine struct {
	mu     sync.Mutex
	graphs map[*load.Graph]compose.Runnable[map[string]any, map[string]any]
}

type runKey struct{}

func (e *engine) Run(ctx context.Context, r *drive.Run) error {
	g, err := e.graph(ctx, r.Graph)
	if err != nil {
		return err
	}
	_, err = g.Invoke(context.WithValue(ctx, runKey{}, r), map[string]any{"in": ""})
	return err
}

// graph is compiled once: only the run is measured.
func (e *engine) graph(ctx context.Context, g *load.Graph) (compose.Runnable[map[string]any, map[string]any], error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.graphs[g]; ok {
		return c, nil
	}
	b := compose.NewGraph[map[string]any, map[string]any]()
	for i, n := range g.Nodes {
		id := "n" + strconv.Itoa(i)
		body := compose.InvokableLambda(func(ctx context.Context, _ map[string]any) (string, error) {
			return string(ctx.Value(runKey{}).(*drive.Run).Exec(i)), nil
		})
		if err := b.AddLambdaNode(id, body, compose.WithOutputKey(id)); err != nil {
			return nil, err
		}
		if len(n.Deps) == 0 {
			if err := b.AddEdge(compose.START, id); err != nil {
				return nil, err
			}
		}
		for _, d := range n.Deps {
			if err := b.AddEdge("n"+strconv.Itoa(d), id); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range g.Sinks() {
		if err := b.AddEdge("n"+strconv.Itoa(s), compose.END); err != nil {
			return nil, err
		}
	}
	c, err := b.Compile(ctx, compose.WithNodeTriggerMode(compose.AllPredecessor))
	if err != nil {
		return nil, err
	}
	if len(e.graphs) > 4096 { // graphs of requests long answered
		clear(e.graphs)
	}
	e.graphs[g] = c
	return c, nil
}

func (e *engine) Verify(context.Context, int64, int64) error { return nil }
func (e *engine) Close() error                               { return nil }
