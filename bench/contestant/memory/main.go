// Command memory runs the loads on the in-memory runner of package workgraph: nothing is durable. It must not
// know the harness beyond its protocol.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
	"github.com/epigraph-run/epigraph/workgraph"
)

func main() {
	os.Exit(drive.Main(func(context.Context) (drive.Engine, error) { return &engine{programs: map[*load.Graph]*program{}}, nil }))
}

type engine struct {
	mu       sync.Mutex
	programs map[*load.Graph]*program
}

// program is a compiled graph with the index of each node.
type program struct {
	compiled *workgraph.Program
	index    map[string]int
}

func (e *engine) Run(ctx context.Context, r *drive.Run) error {
	p, err := e.program(r.Graph)
	if err != nil {
		return err
	}
	body := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{r.Exec(p.index[c.Node])}}, nil
	})
	res, err := p.compiled.Run(ctx, workgraph.Actors{"bench": body}, workgraph.Input{}, workgraph.WithParallel(max(64, len(r.Graph.Nodes))))
	if err != nil {
		return err
	}
	if res.Status != workgraph.StatusCompleted {
		return fmt.Errorf("the run ended %s: %s", res.Status, res.Reason)
	}
	return nil
}

func (e *engine) program(g *load.Graph) (*program, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.programs[g]; ok {
		return p, nil
	}
	w, p := &workgraph.Graph{Name: g.Name}, &program{index: map[string]int{}}
	for i, n := range g.Nodes {
		id := "n" + strconv.Itoa(i)
		p.index[id] = i
		w.Nodes = append(w.Nodes, workgraph.Node{ID: id, Actor: "bench"})
		for _, d := range n.Deps {
			w.Edges = append(w.Edges, workgraph.Edge{From: "n" + strconv.Itoa(d), To: id})
		}
	}
	var err error
	if p.compiled, err = workgraph.Compile(context.Background(), w, workgraph.Actors{"bench": workgraph.ActorFunc(nil)}); err != nil {
		return nil, err
	}
	if len(e.programs) > 4096 { // graphs of requests long answered
		clear(e.programs)
	}
	e.programs[g] = p
	return p, nil
}

func (e *engine) Verify(context.Context, int64, int64) error { return nil }
func (e *engine) Close() error                               { return nil }
