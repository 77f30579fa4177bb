// Command client submits the loads to an executor through its public gRPC API and waits for the end of each
// run on a watch. It must not know how the executor runs them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func main() {
	addr := flag.String("addr", "", "where the executor serves")
	actor := flag.String("actor", "bench", "the actor that nodes call")
	flag.Parse()
	os.Exit(drive.Main(func(context.Context) (drive.Engine, error) {
		conn, err := grpc.NewClient(*addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		return &client{conn: conn, api: executorv1.NewExecutorServiceClient(conn), actor: *actor, graphs: map[*load.Graph]*graphv1.Graph{}}, nil
	}))
}

type client struct {
	conn  *grpc.ClientConn
	api   executorv1.ExecutorServiceClient
	actor string

	mu     sync.Mutex
	graphs map[*load.Graph]*graphv1.Graph
	recent []sample
	ended  int64
}

// sample is a run that Verify looks at again.
type sample struct {
	id    string
	nodes int
}

// samples is how many of the last runs Verify reads back.
const samples = 32

func (c *client) Run(ctx context.Context, r *drive.Run) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	run, err := c.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: c.graph(r.Graph)})
	if err != nil {
		return err
	}
	end, err := c.await(ctx, run.GetId())
	if err != nil {
		return err
	}
	if end.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
		return fmt.Errorf("%s ended %s: %s %s", run.GetId(), end.GetState(), end.GetReason(), end.GetError().GetMessage())
	}
	if sinks := r.Graph.Sinks(); len(end.GetOutputs()) != len(sinks) {
		return fmt.Errorf("%s has %d outputs, not %d", run.GetId(), len(end.GetOutputs()), len(sinks))
	}
	var first time.Time
	if len(r.Graph.Nodes) == 1 {
		if first, err = load.Began(end.GetResult().GetJson()); err != nil {
			return err
		}
	}
	r.Remote(len(r.Graph.Nodes), first)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	if c.recent = append(c.recent, sample{run.GetId(), len(r.Graph.Nodes)}); len(c.recent) > samples {
		c.recent = c.recent[1:]
	}
	return nil
}

// await watches a run until its end. The watch begins at the beginning, since the server refuses a sequence
// that the run has not come to.
func (c *client) await(ctx context.Context, id string) (*executorv1.RunEnded, error) {
	events, err := c.api.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
	if err != nil {
		return nil, err
	}
	for {
		ev, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the watch on %s ended before the run", id)
		}
		if err != nil {
			return nil, err
		}
		if end := ev.GetRunEnded(); end != nil {
			return end, nil
		}
		if p := ev.GetRunPaused(); p != nil {
			return nil, fmt.Errorf("%s paused: %s %s", id, p.GetReason(), p.GetMessage())
		}
	}
}

func (c *client) graph(g *load.Graph) *graphv1.Graph {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.graphs[g]; ok {
		return p
	}
	if len(c.graphs) > 4096 { // graphs of requests long answered
		clear(c.graphs)
	}
	p := &graphv1.Graph{Name: g.Name, Nodes: make([]*graphv1.Node, len(g.Nodes))}
	for i, n := range g.Nodes {
		node := &graphv1.Node{Id: nodeID(i), Actor: c.actor}
		if n.Sleep > 0 {
			node.Named = map[string]*graphv1.Payload{"us": {Json: strconv.AppendInt(nil, n.Sleep.Microseconds(), 10)}}
		}
		p.Nodes[i] = node
		for _, d := range n.Deps {
			p.Edges = append(p.Edges, &graphv1.Edge{From: nodeID(d), To: nodeID(i)})
		}
	}
	c.graphs[g] = p
	return p
}

func nodeID(i int) string { return "n" + strconv.Itoa(i) }

// Verify reads the last runs back: each must have ended with all of its nodes completed, each of which is a
// visit in the journal.
func (c *client) Verify(ctx context.Context, runs, _ int64) error {
	c.mu.Lock()
	recent, ended := c.recent, c.ended
	c.mu.Unlock()
	if ended != runs {
		return fmt.Errorf("%d runs ended, %d were counted", ended, runs)
	}
	for _, s := range recent {
		run, err := c.api.GetRun(ctx, &executorv1.GetRunRequest{RunId: s.id})
		if err != nil {
			return err
		}
		if run.GetState() != executorv1.RunState_RUN_STATE_COMPLETED || int(run.GetNodes().GetCompleted()) != s.nodes {
			return fmt.Errorf("%s is %s with %d of %d nodes completed", s.id, run.GetState(), run.GetNodes().GetCompleted(), s.nodes)
		}
		visits := 0
		for token := ""; ; {
			page, err := c.api.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: s.id, PageSize: 1000, PageToken: token})
			if err != nil {
				return err
			}
			for _, v := range page.GetVisits() {
				if v.GetState() == executorv1.VisitState_VISIT_STATE_COMPLETED {
					visits++
				}
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if visits != s.nodes {
			return fmt.Errorf("%s has %d completed visits, not %d", s.id, visits, s.nodes)
		}
	}
	return nil
}

// Wait starts runs that wait for an hour on a timer, and returns when each of them waits.
func (c *client) Wait(ctx context.Context, runs int) error {
	hour, err := json.Marshal("1h")
	if err != nil {
		return err
	}
	g := &graphv1.Graph{Name: "waiting", Nodes: []*graphv1.Node{{Id: "n0", Actor: "sleep", Named: map[string]*graphv1.Payload{"duration": {Json: hour}}}}}
	var wg sync.WaitGroup
	const clients = 64
	faults := make([]error, clients)
	for k := range clients {
		wg.Go(func() {
			for i := k; i < runs && faults[k] == nil; i += clients {
				_, faults[k] = c.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g, Labels: map[string]string{"bench": "waiting"}})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	running := []executorv1.RunState{executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_PENDING}
	for { // the timers are set a moment after the runs are recorded
		page, err := c.api.ListRuns(ctx, &executorv1.ListRunsRequest{PageSize: 1, States: running, Labels: map[string]string{"bench": "waiting"}})
		if err != nil || len(page.GetRuns()) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *client) Close() error { return c.conn.Close() }
