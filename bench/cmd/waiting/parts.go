package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/measure"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// kind is what a run waits for.
type kind int

const (
	forPerson kind = iota
	forTimer
	forSignal
	forChild
	kinds
)

func (k kind) String() string { return [...]string{"person", "timer", "signal", "child"}[k] }

// payloads makes named arguments of values that JSON can say.
func payloads(named map[string]any) map[string]*graphv1.Payload {
	out := map[string]*graphv1.Payload{}
	for k, v := range named {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err) // only constants come here
		}
		out[k] = &graphv1.Payload{Json: raw}
	}
	return out
}

func graph(k kind) *graphv1.Graph {
	node := &graphv1.Node{Id: "wait"}
	switch k {
	case forPerson:
		node.Actor, node.Named = "human", payloads(map[string]any{"prompt": "Shall it go on?"})
	case forTimer:
		node.Actor, node.Named = "sleep", payloads(map[string]any{"duration": "24h"})
	case forSignal:
		node.Actor, node.Named = "signal", payloads(map[string]any{"name": "go"})
	default:
		node.Actor, node.Named = "spawn", payloads(map[string]any{"graph": json.RawMessage(
			`{"name": "child", "nodes": [{"id": "wait", "actor": "signal", "named": {"name": "go"}}]}`)})
	}
	return &graphv1.Graph{Name: "waits-for-" + k.String(), Nodes: []*graphv1.Node{node}}
}

// waiter is a run that waits.
type waiter struct {
	id   string
	kind kind
}

// wait lets n runs wait, a quarter for each kind of thing but that the children wait as well, and wakes some.
func (r *rig) wait(ctx context.Context, o options, n int, out io.Writer) error {
	h := r.hosts[0]
	graphs := [kinds]*graphv1.Graph{}
	for k := range kinds {
		graphs[k] = graph(k)
	}
	begin := func(ctx context.Context, k kind) (waiter, error) {
		run, err := h.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: graphs[k]})
		return waiter{run.GetId(), k}, err
	}
	// Memory that a process needs once is allocated before the measurement.
	const warm = 200
	if err := drive.Each(ctx, warm, 16, func(ctx context.Context, i int) error {
		w, err := begin(ctx, kind(i)%kinds)
		if err == nil {
			_, err = h.api.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: w.id})
		}
		return err
	}); err != nil {
		return err
	}
	if err := r.still(ctx, 0); err != nil {
		return err
	}
	before, err := h.memory()
	if err != nil {
		return err
	}
	if _, err := r.log(ctx); err != nil {
		return err
	}
	_, bytesBefore, err := r.tables(ctx)
	if err != nil {
		return err
	}
	starts := n * int(kinds) / (int(kinds) + 1) // each of the last kind has a child
	waiters := make([]waiter, starts)
	began := time.Now()
	if err := drive.Each(ctx, starts, o.clients, func(ctx context.Context, i int) (err error) {
		waiters[i], err = begin(ctx, kind(i)%kinds)
		return err
	}); err != nil {
		return err
	}
	started := time.Since(began)
	all := starts + starts/int(kinds)
	if err := r.still(ctx, all); err != nil {
		return err
	}
	evicted := time.Since(began)
	wal, err := r.log(ctx)
	if err != nil {
		return err
	}
	peak, err := measure.RssAnon(h.cmd.Process.Pid)
	if err != nil {
		return err
	}
	after, err := h.memory()
	if err != nil {
		return err
	}
	tables, bytes, err := r.tables(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "### %d waiting runs\n\n", all)
	fmt.Fprintf(out, "- made in %s (%.0f runs/s), all without an owner after %s\n", started.Round(time.Millisecond), float64(all)/evicted.Seconds(), evicted.Round(time.Millisecond))
	fmt.Fprintf(out, "- executor's RssAnon: %s before, %s right after, %s at rest: %d bytes for each waiting run\n", mib(before), mib(peak), mib(after), (after-before)/int64(all))
	fmt.Fprintf(out, "- database: %s more, %d bytes for each", mib(bytes-bytesBefore), (bytes-bytesBefore)/int64(all))
	if wal.Records > 0 {
		fmt.Fprintf(out, "; log %s (%d bytes for each) and %s of full pages", mib(wal.Records), wal.Records/int64(all), mib(wal.Pages))
	}
	fmt.Fprintf(out, "\n\n| table | rows | bytes with indexes |\n|---|---|---|\n")
	for _, t := range tables {
		if t.rows > 1000 {
			fmt.Fprintf(out, "| %s | %d | %d |\n", t.name, t.rows, t.bytes)
		}
	}
	fmt.Fprintln(out)
	if err := r.wake(ctx, o, waiters, out); err != nil {
		return err
	}
	return r.due(ctx, o, out)
}

// still returns when n runs have no owner and no more are open.
func (r *rig) still(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	err := until(ctx, func() (bool, error) {
		got, err := r.evicted(ctx)
		return got == n, err
	})
	if err != nil {
		got, _ := r.evicted(context.WithoutCancel(ctx))
		return fmt.Errorf("%d runs wait, not %d: %w", got, n, err)
	}
	return nil
}

// wake wakes some of those that do not wait for time, and measures from the call to the end of the run as a
// watcher sees it.
func (r *rig) wake(ctx context.Context, o options, all []waiter, out io.Writer) error {
	h := r.hosts[0]
	var chosen []waiter
	for _, i := range rand.Perm(len(all)) {
		if all[i].kind != forTimer && len(chosen) < o.wake {
			chosen = append(chosen, all[i])
		}
	}
	var mu sync.Mutex
	took := map[kind][]time.Duration{}
	var every []time.Duration
	err := drive.Each(ctx, len(chosen), o.atOnce, func(ctx context.Context, i int) error {
		w := chosen[i]
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		call := func() error {
			_, err := h.api.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: w.id, Name: "go"})
			return err
		}
		switch w.kind {
		case forPerson:
			page, err := h.api.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: w.id})
			if err != nil || len(page.GetInterrupts()) != 1 {
				return fmt.Errorf("%d questions of %s: %w", len(page.GetInterrupts()), w.id, err)
			}
			call = func() error {
				_, err := h.api.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: page.GetInterrupts()[0].GetId(), Answer: &graphv1.Payload{Json: []byte(`"yes"`)}})
				return err
			}
		case forChild:
			page, err := h.api.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: w.id})
			if err != nil || len(page.GetRuns()) != 1 {
				return fmt.Errorf("%d children of %s: %w", len(page.GetRuns()), w.id, err)
			}
			call = func() error {
				_, err := h.api.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: page.GetRuns()[0].GetId(), Name: "go"})
				return err
			}
		}
		watch, err := h.api.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: w.id, DurableOnly: true})
		if err != nil {
			return err
		}
		if _, err := watch.Recv(); err != nil { // the watch stands
			return err
		}
		began := time.Now()
		if err := call(); err != nil {
			return err
		}
		if err := h.end(ctx, w.id, watch); err != nil {
			return err
		}
		d := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		took[w.kind] = append(took[w.kind], d)
		every = append(every, d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	fmt.Fprintf(out, "- woken: %d at random, %d at a time, from the call to the end of the run as its watcher sees it: %s\n", len(every), o.atOnce, spread(every))
	for k := range kinds {
		if len(took[k]) > 0 {
			fmt.Fprintf(out, "  - waited for a %s: %s\n", k, spread(took[k]))
		}
	}
	return nil
}

// due lets timers come due together while all the others wait, and measures how late the nodes after them are
// called.
func (r *rig) due(ctx context.Context, o options, out io.Writer) error {
	if o.timers == 0 {
		return nil
	}
	h := r.hosts[0]
	at := time.Now().Add(20 * time.Second).Truncate(time.Second)
	g := &graphv1.Graph{Name: "due", Nodes: []*graphv1.Node{{Id: "wait", Actor: "sleep", Named: payloads(map[string]any{"until": at})}, {Id: "after", Actor: "where"}},
		Edges: []*graphv1.Edge{{From: "wait", To: "after"}}}
	late := make([]time.Duration, o.timers)
	err := drive.Each(ctx, o.timers, o.clients, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		run, err := h.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
		if err != nil {
			return err
		}
		return until(ctx, func() (bool, error) {
			page, err := h.api.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: run.GetId(), NodeId: "after"})
			if err != nil || time.Now().Before(at) || len(page.GetVisits()) == 0 || len(page.GetVisits()[0].GetValues()) == 0 {
				return false, err
			}
			var called drive.Called
			err = json.Unmarshal(page.GetVisits()[0].GetValues()[0].GetJson(), &called)
			late[i] = time.Unix(0, called.At).Sub(at)
			return true, err
		})
	})
	if err != nil {
		return fmt.Errorf("timers: %w", err)
	}
	fmt.Fprintf(out, "- %d timers due at the same moment: the nodes after them are called later by %s\n\n", o.timers, spread(late))
	return nil
}

// live holds runs in memory, each with a call under way, and looks at what they take.
func (r *rig) live(ctx context.Context, o options, out io.Writer) error {
	h := r.hosts[0]
	before, err := h.memory()
	if err != nil {
		return err
	}
	const hold = 40 * time.Second
	g := &graphv1.Graph{Name: "live", Nodes: []*graphv1.Node{{Id: "hold", Actor: "bench", Named: payloads(map[string]any{"us": hold.Microseconds()})}}}
	began := time.Now()
	if err := drive.Each(ctx, o.live, o.clients, func(ctx context.Context, _ int) error {
		_, err := h.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
		return err
	}); err != nil {
		return err
	}
	if took := time.Since(began); took > hold-5*time.Second {
		return fmt.Errorf("it took %s to start %d runs: they do not all live at once", took, o.live)
	}
	after, err := h.memory()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "- %d live runs, each with a call under way: executor's RssAnon %s, %d bytes for each run\n", o.live, mib(after), (after-before)/int64(o.live))
	return nil
}

// push sends runs of 10 nodes in a row through all executors and waits for each one's end.
func (r *rig) push(ctx context.Context, o options, out io.Writer) error {
	const nodes = 10
	g := &graphv1.Graph{Name: "chain"}
	for i := range nodes {
		g.Nodes = append(g.Nodes, &graphv1.Node{Id: fmt.Sprintf("n%d", i), Actor: "bench"})
		if i > 0 {
			g.Edges = append(g.Edges, &graphv1.Edge{From: fmt.Sprintf("n%d", i-1), To: fmt.Sprintf("n%d", i)})
		}
	}
	one := func(ctx context.Context, i int) error {
		h := r.hosts[i%len(r.hosts)]
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		run, err := h.api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
		if err != nil {
			return err
		}
		watch, err := h.api.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: run.GetId(), AfterSeq: nodes, DurableOnly: true})
		if err != nil {
			return err
		}
		return h.end(ctx, run.GetId(), watch)
	}
	if err := drive.Each(ctx, 500, o.clients, one); err != nil {
		return err
	}
	if _, err := r.log(ctx); err != nil {
		return err
	}
	used := func() (time.Duration, time.Duration, error) {
		var pids []int
		for _, h := range r.hosts {
			pids = append(pids, h.cmd.Process.Pid)
		}
		mine, err := measure.CPU(pids...)
		if err != nil {
			return 0, 0, err
		}
		base, err := r.cpu()
		return mine, base, err
	}
	executors, base, err := used()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := drive.Each(ctx, o.throughput, o.clients, one); err != nil {
		return err
	}
	took := time.Since(began)
	executors2, base2, err := used()
	if err != nil {
		return err
	}
	wal, err := r.log(ctx)
	if err != nil {
		return err
	}
	n := float64(o.throughput)
	fmt.Fprintf(out, "- %d executors, runs of %d nodes through gRPC, %d in flight: %.0f runs/s, %.0f nodes/s; a run costs %.2f ms of processor in executors and %.2f ms in the database",
		len(r.hosts), nodes, o.clients, n/took.Seconds(), nodes*n/took.Seconds(), ms(executors2-executors)/n, ms(base2-base)/n)
	if wal.Records > 0 {
		fmt.Fprintf(out, ", and %d bytes of log", wal.Records/int64(o.throughput))
	}
	fmt.Fprintln(out)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
