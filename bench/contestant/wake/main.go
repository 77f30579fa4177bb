// Command wake measures how soon a run goes on after an event at another replica than the one it was started
// on: an interrupt is answered, a child ends, a timer comes due. It starts runs at one of two executors,
// makes each event happen at the other, at a steady pace regardless of the answers, and asks afterwards when
// and where the node after the wait was called. It must not know how the executors communicate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/bench/drive"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func main() {
	addrs := flag.String("addrs", "", "where the two executors serve")
	names := flag.String("names", "", "what they are called")
	only := flag.String("only", "", "regular expression on the cases to measure; empty means all")
	flag.Parse()
	os.Exit(drive.Main(func(context.Context) (drive.Engine, error) {
		re, err := regexp.Compile(*only)
		if err != nil {
			return nil, err
		}
		w := &wake{names: strings.Split(*names, ","), only: re}
		for _, a := range strings.Split(*addrs, ",") {
			conn, err := grpc.NewClient(a, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.conns, w.apis = append(w.conns, conn), append(w.apis, executorv1.NewExecutorServiceClient(conn))
		}
		if len(w.apis) != 2 || len(w.names) != 2 {
			return nil, errors.New("-addrs and -names want two each")
		}
		return w, nil
	}))
}

type wake struct {
	conns []*grpc.ClientConn
	apis  []executorv1.ExecutorServiceClient
	names []string
	only  *regexp.Regexp
}

func (w *wake) Run(context.Context, *drive.Run) error      { return errors.New("no loads are run here") }
func (w *wake) Verify(context.Context, int64, int64) error { return nil }

func (w *wake) Close() error {
	var faults []error
	for _, c := range w.conns {
		faults = append(faults, c.Close())
	}
	return errors.Join(faults...)
}

// wakeCase is a kind of event, and what becomes of the run meanwhile.
type wakeCase struct {
	name  string
	graph func(due time.Time) *graphv1.Graph
	// held says that a branch of the run stays under way, so that the replica which the run was started on
	// keeps it. Others are in the database alone when their time comes.
	held, child, timer bool
}

func cases() []wakeCase {
	ask := func(time.Time) *graphv1.Graph {
		return graph("answered", "human", map[string]any{"prompt": "Shall it go on?"})
	}
	spawn := func(time.Time) *graphv1.Graph {
		return graph("parent", "spawn", map[string]any{"graph": json.RawMessage(
			`{"name": "child", "nodes": [{"id": "wait", "actor": "signal", "named": {"name": "go"}}, {"id": "after", "actor": "where"}], "edges": [{"from": "wait", "to": "after"}]}`)})
	}
	timer := func(due time.Time) *graphv1.Graph { return graph("timer", "sleep", map[string]any{"until": due}) }
	return []wakeCase{
		{name: "interrupt answered, run in the database", graph: ask},
		{name: "interrupt answered, run held by the other", graph: ask, held: true},
		{name: "child done, parent in the database", graph: spawn, child: true},
		{name: "child done, parent held by the other", graph: spawn, child: true, held: true},
		{name: "timer due, run in the database", graph: timer, timer: true},
	}
}

// graph is a node that waits, and one after it that reports when it is called.
func graph(name, actor string, named map[string]any) *graphv1.Graph {
	return &graphv1.Graph{Name: name, Nodes: []*graphv1.Node{{Id: "wait", Actor: actor, Named: payloads(named)}, {Id: "after", Actor: "where"}},
		Edges: []*graphv1.Edge{{From: "wait", To: "after"}}}
}

func payloads(named map[string]any) map[string]*graphv1.Payload {
	out := map[string]*graphv1.Payload{}
	for k, v := range named {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err) // only constants and times come here
		}
		out[k] = &graphv1.Payload{Json: raw}
	}
	return out
}

const (
	// pace is how often something happens.
	pace = 12 * time.Millisecond
	// clients is how many calls are under way that are not measured.
	clients = 32
	// slack is what the branch of a held run stays beyond the last event.
	slack = 40 * time.Second
)

// woken is a run and the measurements of its wake-up.
type woken struct {
	id, subject string // subject is what the event is about: a question or a child
	start       int    // the executor it was started on; things happen at the other
	at          time.Time
	late        time.Duration
	elsewhere   bool
}

// Measure implements drive.Limit: for each case the middle, the tail, and how many were called by another
// executor than where the event happened, or for a timer than where the run was started.
func (w *wake) Measure(ctx context.Context, req drive.Request) (map[string]float64, error) {
	out := map[string]float64{}
	for _, c := range cases() {
		if !w.only.MatchString(c.name) {
			continue
		}
		if _, err := w.wake(ctx, c, min(req.Runs, 50)); err != nil {
			// connections, plans, code: one-time costs
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		runs, err := w.wake(ctx, c, req.Runs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		late, elsewhere := make([]time.Duration, len(runs)), 0
		for i, r := range runs {
			late[i] = r.late
			if r.elsewhere {
				elsewhere++
			}
		}
		slices.Sort(late)
		ms := func(q float64) float64 {
			return late[min(len(late)-1, int(q*float64(len(late))))].Seconds() * 1e3
		}
		out[c.name+"|n"], out[c.name+"|p50"], out[c.name+"|p99"], out[c.name+"|max"] = float64(len(late)), ms(0.5), ms(0.99), ms(1)
		out[c.name+"|elsewhere"] = float64(elsewhere)
	}
	return out, nil
}

func (w *wake) wake(ctx context.Context, c wakeCase, n int) ([]*woken, error) {
	runs := make([]*woken, n)
	first := time.Now().Add(5*time.Second + time.Duration(n)*5*time.Millisecond) // of timers
	hold := slack + time.Duration(n)*(pace+5*time.Millisecond)
	began := time.Now()
	err := each(ctx, n, func(ctx context.Context, i int) error {
		r := &woken{start: i % 2, at: first.Add(time.Duration(i) * pace)}
		g := c.graph(r.at)
		if c.held {
			g.Nodes = append(g.Nodes, &graphv1.Node{Id: "hold", Actor: "bench", Named: payloads(map[string]any{"us": hold.Microseconds()})})
		}
		runs[i] = r
		return untilReady(ctx, func() error {
			run, err := w.apis[r.start].StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
			r.id = run.GetId()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if err := each(ctx, n, func(ctx context.Context, i int) error { return w.ready(ctx, c, runs[i]) }); err != nil {
		return nil, err
	}
	if c.timer {
		if late := time.Since(first); late > -2500*time.Millisecond { // they leave memory before that
			return nil, fmt.Errorf("the first timer was due before all runs waited: %s", late)
		}
	} else {
		if err := drive.Rest(ctx, time.Second); err != nil {
			// a run that waits for children leaves memory after a moment
			return nil, err
		}
		if err := w.events(ctx, c, runs); err != nil {
			return nil, err
		}
	}
	if err := each(ctx, n, func(ctx context.Context, i int) error { return w.look(ctx, c, runs[i]) }); err != nil {
		return nil, err
	}
	if !c.held {
		return runs, nil
	}
	if took := time.Since(began); took > hold {
		return nil, fmt.Errorf("took %s, but the runs were held for %s only", took, hold)
	}
	return runs, each(ctx, n, func(ctx context.Context, i int) error {
		return untilReady(ctx, func() error {
			_, err := w.apis[runs[i].start].CancelRun(ctx, &executorv1.CancelRunRequest{RunId: runs[i].id})
			return err
		})
	})
}

// ready returns when the run waits, and finds what the event is to be about.
func (w *wake) ready(ctx context.Context, c wakeCase, r *woken) error {
	return until(ctx, func() (bool, error) {
		api := w.apis[r.start]
		switch {
		case c.child:
			page, err := api.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: r.id})
			if err != nil || len(page.GetRuns()) != 1 {
				return false, err
			}
			r.subject = page.GetRuns()[0].GetId()
			return page.GetRuns()[0].GetState() == executorv1.RunState_RUN_STATE_WAITING, nil
		case c.timer:
			run, err := api.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.id})
			return run.GetState() == executorv1.RunState_RUN_STATE_WAITING, err
		}
		page, err := api.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: r.id})
		if err != nil || len(page.GetInterrupts()) != 1 {
			return false, err
		}
		r.subject = page.GetInterrupts()[0].GetId()
		return true, nil
	})
}

// events lets things happen, one at each beat.
func (w *wake) events(ctx context.Context, c wakeCase, runs []*woken) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	beat := time.NewTicker(pace)
	defer beat.Stop()
	for _, r := range runs {
		select {
		case <-beat.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			api := w.apis[1-r.start]
			r.at = time.Now()
			if err := untilReady(ctx, func() (err error) {
				if c.child {
					_, err = api.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: r.subject, Name: "go"})
				} else {
					_, err = api.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: r.subject, Answer: &graphv1.Payload{Json: []byte(`"yes"`)}})
				}
				return err
			}); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// look finds out when the node after the wait was called.
func (w *wake) look(ctx context.Context, c wakeCase, r *woken) error {
	after, err := w.called(ctx, r.start, r.id)
	if err != nil {
		return err
	}
	from, at := 1-r.start, r.at
	if c.timer {
		from = r.start
	}
	if c.child { // from the call of the child's last node, which returns at once
		child, err := w.called(ctx, r.start, r.subject)
		if err != nil {
			return err
		}
		at, from = time.Unix(0, child.At), slices.Index(w.names, child.Executor)
	}
	r.late, r.elsewhere = time.Unix(0, after.At).Sub(at), from < 0 || after.Executor != w.names[from]
	return nil
}

func (w *wake) called(ctx context.Context, api int, id string) (out drive.Called, err error) {
	err = until(ctx, func() (bool, error) {
		page, err := w.apis[api].ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: id, NodeId: "after"})
		if err != nil {
			return false, err
		}
		for _, v := range page.GetVisits() {
			if v.GetState() == executorv1.VisitState_VISIT_STATE_COMPLETED && len(v.GetValues()) == 1 {
				return true, json.Unmarshal(v.GetValues()[0].GetJson(), &out)
			}
		}
		return false, nil
	})
	if err != nil {
		return out, fmt.Errorf("the node after the wait of %s: %w", id, err)
	}
	return out, nil
}

// each calls f for every run, from some goroutines, until one fails.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	return drive.Each(ctx, n, clients, func(ctx context.Context, i int) error {
		if err := f(ctx, i); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
		return nil
	})
}

// untilReady retries while the executor says that it is not ready, as any client does: an executor that
// cannot keep its lease on a busy machine is unavailable for a moment. The time counts.
func untilReady(ctx context.Context, f func() error) error {
	for {
		err := f()
		if status.Code(err) != codes.Unavailable {
			return err
		}
		if err := drive.Rest(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// until polls cond for half a minute.
func until(ctx context.Context, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		ok, err := cond()
		if ok || err != nil && status.Code(err) != codes.Unavailable {
			return err
		}
		if err := drive.Rest(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
