// Package drive owns the protocol between the harness and the process of a contestant: one JSON object per
// line, requests on the standard input, answers on the standard output. It drives the contestant's engine and
// times it, the same way for all, and checks that every node ran once and after those it depends on. It must
// not know any engine.
package drive

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/bench/load"
)

// Memory is what a Go process has in use after a collection, in bytes.
type Memory struct {
	Heap       int64 `json:"heap"`
	Stacks     int64 `json:"stacks"`
	Goroutines int   `json:"goroutines"`
}

// Operations of a Request.
const (
	// OpRun runs graphs and times them.
	OpRun = "run"
	// OpVerify checks, outside of any timing, that what ran so far is in the store.
	OpVerify = "verify"
	// OpWait starts runs that wait for an hour, for engines that are Waiters.
	OpWait = "wait"
	// OpMeasure asks engines that are Limits for their figures.
	OpMeasure = "measure"
)

// Request asks for one operation.
type Request struct {
	Op     string       `json:"op"`
	Graphs []load.Graph `json:"graphs,omitempty"`
	// Runs is how many runs there are at most; run i is of graph i mod len(Graphs).
	Runs int `json:"runs,omitempty"`
	// InFlight is how many of them go on at once.
	InFlight int `json:"in_flight,omitempty"`
	// Pause is how long a runner rests between two runs.
	Pause time.Duration `json:"pause,omitempty"`
	// MaxWall is when no more runs are started; 0 is never. At least one run is made.
	MaxWall time.Duration `json:"max_wall,omitempty"`
}

// Answer is what came of it. The first one of a process only says that it is ready.
type Answer struct {
	Ready bool   `json:"ready,omitempty"`
	Addr  string `json:"addr,omitempty"`
	// Debug is where the process serves profiles and Memory over HTTP, if it does.
	Debug string `json:"debug,omitempty"`
	Err   string `json:"err,omitempty"`

	Wall  time.Duration `json:"wall,omitempty"`
	Nodes int           `json:"nodes,omitempty"`
	// Took is by run: from its submission until the caller knew that it had ended.
	Took []time.Duration `json:"took,omitempty"`
	// Start is by run: from its submission until its first node began.
	Start []time.Duration `json:"start,omitempty"`
	// Repeats counts the nodes that ran again, of engines that are AtLeastOnce.
	Repeats int `json:"repeats,omitempty"`
	// Values are figures of engines that measure themselves.
	Values map[string]float64 `json:"values,omitempty"`
}

// Engine runs graphs. Run may be called concurrently.
type Engine interface {
	// Run executes the run's graph and returns once its end is durable and known. Every node is executed by
	// Run.Exec, or, when that happens in another process, reported by Run.Remote.
	Run(ctx context.Context, r *Run) error
	// Verify checks that the store holds this many nodes and runs, as their sum since the engine was opened.
	Verify(ctx context.Context, runs, nodes int64) error
	Close() error
}

// Waiter is an Engine that can start runs that wait for an hour.
type Waiter interface {
	Wait(ctx context.Context, runs int) error
}

// Limit is an Engine that measures itself instead.
type Limit interface {
	Measure(ctx context.Context, req Request) (map[string]float64, error)
}

// AtLeastOnce is an Engine whose promise allows that a node's body runs again before its result is recorded.
// Such repeats are counted and shown; for any other engine they are a fault.
type AtLeastOnce interface {
	MayRepeat()
}

// Called is the result of a node that reports when it was called, in nanoseconds since 1970, and by which
// executor.
type Called struct {
	At       int64  `json:"t"`
	Executor string `json:"executor"`
}

// Run is one run of a graph.
type Run struct {
	Graph *load.Graph
	// Number identifies a run of a process.
	Number int64

	left    atomic.Int64
	done    []atomic.Bool
	first   atomic.Int64
	repeats atomic.Int64
	again   atomic.Int64 // a node that was repeated, plus 1
	trouble atomic.Pointer[string]
}

func newRun(g *load.Graph, number int64) *Run {
	r := &Run{Graph: g, Number: number, done: make([]atomic.Bool, len(g.Nodes))}
	r.left.Store(int64(len(g.Nodes)))
	return r
}

// NewRun is a run for tests and for engines that need one of their own.
func NewRun(g *load.Graph, number int64) *Run { return newRun(g, number) }

// Exec is the body of node i. It returns the node's result.
func (r *Run) Exec(i int) []byte {
	now := time.Now()
	r.first.CompareAndSwap(0, now.UnixNano())
	for _, d := range r.Graph.Nodes[i].Deps {
		if !r.done[d].Load() {
			r.fault(fmt.Sprintf("node %d began before node %d had ended", i, d))
		}
	}
	if s := r.Graph.Nodes[i].Sleep; s > 0 {
		load.Sleep(s)
	}
	if r.done[i].Swap(true) {
		r.repeats.Add(1)
		r.again.CompareAndSwap(0, int64(i)+1)
	} else {
		r.left.Add(-1)
	}
	return load.Result(now)
}

// Remote says that all nodes ran elsewhere, and when the first of them began; a zero time is not known.
func (r *Run) Remote(nodes int, first time.Time) {
	r.left.Add(-int64(nodes))
	if !first.IsZero() {
		r.first.Store(first.UnixNano())
	}
}

func (r *Run) fault(text string) { r.trouble.CompareAndSwap(nil, &text) }

// Check says what went wrong in the run, if anything did. Repeats are no fault if mayRepeat is set.
func (r *Run) Check(mayRepeat bool) error {
	if t := r.trouble.Load(); t != nil {
		return errors.New(*t)
	}
	if i := r.again.Load(); i != 0 && !mayRepeat {
		return fmt.Errorf("node %d ran twice", i-1)
	}
	if n := r.left.Load(); n != 0 {
		return fmt.Errorf("%d of %d nodes did not run", n, len(r.Graph.Nodes))
	}
	return nil
}

// Walk runs the nodes of a run in this process as each becomes ready. commit makes a node's result durable;
// the nodes that wait for it go on only after that.
func Walk(ctx context.Context, r *Run, commit func(ctx context.Context, node int, result []byte) error) error {
	next, waits := r.Graph.Successors(), make([]atomic.Int32, len(r.Graph.Nodes))
	var ready []int
	for i, n := range r.Graph.Nodes {
		waits[i].Store(int32(len(n.Deps)))
		if len(n.Deps) == 0 {
			ready = append(ready, i)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var visit func(i int)
	visit = func(i int) {
		for i >= 0 && ctx.Err() == nil {
			if err := commit(ctx, i, r.Exec(i)); err != nil {
				cancel(err)
				return
			}
			mine := -1 // the first that became ready goes on here, the others beside it
			for _, s := range next[i] {
				if waits[s].Add(-1) > 0 {
					continue
				}
				if mine < 0 {
					mine = s
					continue
				}
				wg.Go(func() { visit(s) })
			}
			i = mine
		}
	}
	for _, i := range ready[1:] {
		wg.Go(func() { visit(i) })
	}
	visit(ready[0])
	wg.Wait()
	return context.Cause(ctx)
}

// Main runs a contestant's process until its standard input ends or it is stopped, and returns its exit code.
func Main(open func(ctx context.Context) (Engine, error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, in io.Reader, out io.Writer, open func(ctx context.Context) (Engine, error)) (err error) {
	engine, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	w := json.NewEncoder(out)
	if err := w.Encode(Answer{Ready: true}); err != nil {
		return err
	}
	requests := make(chan Request)
	go func() {
		defer close(requests)
		for dec := json.NewDecoder(bufio.NewReaderSize(in, 1<<20)); ; {
			var req Request
			if dec.Decode(&req) != nil {
				return
			}
			requests <- req
		}
	}()
	d := &driver{engine: engine}
	for {
		select {
		case <-ctx.Done():
			return nil
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			if err := w.Encode(d.answer(ctx, req)); err != nil {
				return err
			}
		}
	}
}

type driver struct {
	engine      Engine
	runs, nodes int64
	numbers     atomic.Int64
}

func (d *driver) answer(ctx context.Context, req Request) Answer {
	a, err := d.do(ctx, req)
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func (d *driver) do(ctx context.Context, req Request) (Answer, error) {
	switch req.Op {
	case OpVerify:
		return Answer{}, d.engine.Verify(ctx, d.runs, d.nodes)
	case OpWait:
		w, ok := d.engine.(Waiter)
		if !ok {
			return Answer{}, errors.New("this contestant cannot start waiting runs")
		}
		return Answer{}, w.Wait(ctx, req.Runs)
	case OpMeasure:
		l, ok := d.engine.(Limit)
		if !ok {
			return Answer{}, errors.New("this contestant has no figures of its own")
		}
		values, err := l.Measure(ctx, req)
		return Answer{Values: values}, err
	case OpRun:
		return d.run(ctx, req)
	}
	return Answer{}, fmt.Errorf("unknown operation %q", req.Op)
}

func (d *driver) run(ctx context.Context, req Request) (Answer, error) {
	if len(req.Graphs) == 0 || req.Runs < 1 {
		return Answer{}, errors.New("there is nothing to run")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := Answer{Took: make([]time.Duration, req.Runs), Start: make([]time.Duration, req.Runs)}
	var next, ended atomic.Int64
	var nodes, repeats atomic.Int64
	_, mayRepeat := d.engine.(AtLeastOnce)
	var wg sync.WaitGroup
	began := time.Now()
	for range max(1, min(req.InFlight, req.Runs)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if req.MaxWall > 0 && next.Load() > 0 && time.Since(began) > req.MaxWall {
					return
				}
				i := int(next.Add(1)) - 1
				if i >= req.Runs {
					return
				}
				r := newRun(&req.Graphs[i%len(req.Graphs)], d.numbers.Add(1))
				at := time.Now()
				if err := errors.Join(d.engine.Run(ctx, r), r.Check(mayRepeat)); err != nil {
					cancel(fmt.Errorf("run %d (%s): %w", i, r.Graph.Name, err))
					return
				}
				a.Took[i] = time.Since(at)
				if t := r.first.Load(); t != 0 {
					a.Start[i] = time.Duration(t - at.UnixNano())
				}
				ended.Add(1)
				nodes.Add(int64(len(r.Graph.Nodes)))
				repeats.Add(r.repeats.Load())
				if req.Pause > 0 {
					_ = Rest(ctx, req.Pause) // the loop looks at ctx
				}
			}
		})
	}
	wg.Wait()
	a.Wall, a.Nodes, a.Repeats = time.Since(began), int(nodes.Load()), int(repeats.Load())
	a.Took, a.Start = a.Took[:ended.Load()], a.Start[:ended.Load()]
	d.runs += ended.Load()
	d.nodes += nodes.Load()
	return a, context.Cause(ctx)
}

// Each calls f for 0 to n-1 from so many goroutines, until one fails; it returns that error, or why ctx
// ended.
func Each(ctx context.Context, n, clients int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Rest waits, or returns why ctx ended before that.
func Rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
