// Command temporalsdk is the client and the worker of a Temporal server: a run is a workflow that takes the
// graph as its input and calls an activity for each node as it becomes ready. It must not know the harness
// beyond its protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
)

func main() {
	addr := flag.String("addr", "", "where the server's frontend is")
	pollers := flag.Int("pollers", 0, "pollers of each kind; 0 leaves it to the SDK")
	activities := flag.Int("activities", 0, "activities that run at once; 0 leaves it to the SDK")
	flag.Parse()
	os.Exit(drive.Main(func(ctx context.Context) (drive.Engine, error) {
		return open(ctx, *addr, worker.Options{
			MaxConcurrentActivityTaskPollers: *pollers, MaxConcurrentWorkflowTaskPollers: *pollers,
			MaxConcurrentActivityExecutionSize: *activities,
		})
	}))
}

const (
	queue     = "bench"
	namespace = "default"
)

type engine struct {
	client client.Client
	worker worker.Worker

	mu     sync.Mutex
	runs   map[int64]*drive.Run
	recent []string
	nodes  map[string]int
}

// input is what a workflow gets.
type input struct {
	Run   int64
	Graph load.Graph
}

func open(ctx context.Context, addr string, o worker.Options) (drive.Engine, error) {
	e := &engine{runs: map[int64]*drive.Run{}, nodes: map[string]int{}}
	logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	if err := await(ctx, func() (err error) {
		e.client, err = client.DialContext(ctx, client.Options{HostPort: addr, Namespace: namespace, Logger: logger})
		return err
	}); err != nil {
		return nil, err
	}
	if err := await(ctx, func() error {
		_, err := e.client.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: namespace, WorkflowExecutionRetentionPeriod: durationpb.New(72 * time.Hour)})
		var exists *serviceerror.NamespaceAlreadyExists
		if errors.As(err, &exists) {
			return nil
		}
		return err
	}); err != nil {
		return nil, err
	}
	// A new namespace is known to all parts of the server only after a while, and a worker that finds none
	// gives up.
	if err := await(ctx, func() error {
		_, err := e.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	}); err != nil {
		return nil, err
	}
	e.worker = worker.New(e.client, queue, o)
	e.worker.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: "run"})
	e.worker.RegisterActivityWithOptions(e.node, activity.RegisterOptions{Name: "node"})
	if err := e.worker.Start(); err != nil {
		return nil, err
	}
	one := load.Chain(1)
	return e, await(ctx, func() error {
		try, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		return e.Run(try, drive.NewRun(&one, -time.Now().UnixNano()))
	})
}

// await tries until it works; a server that comes up refuses for a while.
func await(ctx context.Context, try func() error) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func run(ctx workflow.Context, in input) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	next, waits, left := in.Graph.Successors(), make([]int, len(in.Graph.Nodes)), len(in.Graph.Nodes)
	s := workflow.NewSelector(ctx)
	var fault error
	var start func(i int)
	start = func(i int) {
		s.AddFuture(workflow.ExecuteActivity(ctx, "node", in.Run, i), func(f workflow.Future) {
			var result []byte
			if err := f.Get(ctx, &result); err != nil {
				fault = err
				return
			}
			left--
			for _, n := range next[i] {
				if waits[n]--; waits[n] == 0 {
					start(n)
				}
			}
		})
	}
	for i, n := range in.Graph.Nodes {
		if waits[i] = len(n.Deps); waits[i] == 0 {
			start(i)
		}
	}
	for left > 0 && fault == nil {
		s.Select(ctx)
	}
	return fault
}

func (e *engine) node(_ context.Context, run int64, i int) ([]byte, error) {
	e.mu.Lock()
	r := e.runs[run]
	e.mu.Unlock()
	if r == nil {
		return nil, errors.New("the run is gone")
	}
	return r.Exec(i), nil
}

// kept is how many of the last runs Verify looks at.
const kept = 16

func (e *engine) Run(ctx context.Context, r *drive.Run) error {
	e.mu.Lock()
	e.runs[r.Number] = r
	e.mu.Unlock()
	id := "run-" + strconv.FormatInt(r.Number, 10)
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.runs, r.Number)
		e.nodes[id] = len(r.Graph.Nodes)
		if e.recent = append(e.recent, id); len(e.recent) > kept {
			delete(e.nodes, e.recent[0])
			e.recent = e.recent[1:]
		}
	}()
	h, err := e.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue}, "run", input{r.Number, *r.Graph})
	if err != nil {
		return err
	}
	return h.Get(ctx, nil)
}

// Verify reads the histories of the last runs.
func (e *engine) Verify(ctx context.Context, _, _ int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.recent {
		completed := 0
		for it := e.client.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			ev, err := it.Next()
			if err != nil {
				return err
			}
			if ev.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
				completed++
			}
		}
		if completed != e.nodes[id] {
			return fmt.Errorf("%s has %d completed activities for %d nodes", id, completed, e.nodes[id])
		}
	}
	return nil
}

func (e *engine) Close() error {
	e.worker.Stop()
	e.client.Close()
	return nil
}
