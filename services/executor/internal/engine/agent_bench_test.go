package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkAgentRounds runs one agent for 1,000 rounds of one action each. It reports the time of a round
// around rounds 10, 100 and 1,000, and the rows of a round in the journal and in the thread. What a round
// costs must not depend on how many came before. heap is what a round leaves in memory, in the machine and in
// the cache of threads, until the run leaves it.
func BenchmarkAgentRounds(b *testing.B) {
	const rounds = 1000
	eachBench(b, func(b *testing.B, s store) {
		for b.Loop() {
			var mu sync.Mutex
			var at []time.Time
			var live [2]uint64 // bytes of the heap in rounds 200 and 800
			prompts := make([]int, rounds+2)
			own := instant()
			own["reasoner"] = workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				prompts[len(at)] = len(c.Named["request"])
				if n := len(at); n == 200 || n == 800 {
					live[n/800] = heapInUse()
				}
				say := fmt.Sprintf(`{"actions": [{"action": "ok", "arguments": {"n": %d}}], "task_status_description": "in round %d"}`, len(at), len(at))
				if len(at) > rounds {
					say = `{"result": "done"}`
				}
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}}, nil
			})
			for _, sp := range agent.Specs(thread.NewCache(s.open(b), 0), nil) {
				own[sp.Name] = pureActor{sp.Actor}
			}
			l := run(b, s, own, quiet, func(c *engine.Config, _ *engine.Deps) { c.ID = fmt.Sprintf("bench-%d", b.N) })
			l.jobs(b)
			n := workgraph.Node{ID: "agent", Actor: "agent"}
			require.NoError(b, json.Unmarshal([]byte(`{"goal": "x", "reasoner": "reasoner", "max_rounds": 5000, "actions": {"ok": {}}}`), &n.Named))
			id := l.start(b, &workgraph.Graph{Nodes: []workgraph.Node{n}})
			l.wait(b, id, journal.StateCompleted)
			below, err := l.j.Descendants(b.Context(), ns, id)
			require.NoError(b, err)
			require.Len(b, below, 1, "no round is a run of its own")
			events := l.eventRows(b, below[0].RunID)
			threads, err := l.j.ListThreads(b.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
			require.NoError(b, err)
			// around is the median time of the rounds about one.
			around := func(round int) float64 {
				var of []time.Duration
				for i := max(1, round-20); i < min(round+20, rounds); i++ {
					of = append(of, at[i].Sub(at[i-1]))
				}
				return medianMs(of)
			}
			b.ReportMetric(around(10), "ms/round10")
			b.ReportMetric(around(100), "ms/round100")
			b.ReportMetric(around(1000), "ms/round1000")
			b.ReportMetric(float64(events)/rounds, "events/round")
			b.ReportMetric(float64(threads[0].Last)/rounds, "items/round")
			b.ReportMetric(float64(int64(live[1]-live[0]))/600, "B-heap/round")
			b.ReportMetric(float64(prompts[10]), "B/prompt10")
			b.ReportMetric(float64(prompts[1000]), "B/prompt1000")
			l.stop()
		}
	})
}

func heapInUse() uint64 {
	runtime.GC() // twice, since finalizers keep what they are about to free
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func medianMs(of []time.Duration) float64 {
	slices.Sort(of)
	return float64(of[len(of)/2].Microseconds()) / 1000
}

// eventRows is how many events a run has.
func (l *live) eventRows(t testing.TB, id string) int {
	t.Helper()
	n := 0
	for after := int64(0); ; {
		rows, err := l.j.Events(t.Context(), ns, id, after, 1000)
		require.NoError(t, err)
		if len(rows) == 0 {
			return n
		}
		n += len(rows)
		after = rows[len(rows)-1].Seq
	}
}

// BenchmarkAgentPrompt builds the first prompt of an agent on a thread of 10,000 messages and 2,000
// states, in both forms, as long as one may be and as long as it is by default: cold, with nothing of
// the thread in memory, and warm. It times the step of the loop that builds it, in runs of agents; hold
// is the time of that step in which the thread is held, which is a commit and counts in neither. All
// are medians.
func BenchmarkAgentPrompt(b *testing.B) {
	eachBench(b, func(b *testing.B, s store) {
		var began workgraph.ActorFunc
		own := instant()
		own["reasoner"] = workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"result": "done"}`)}}, nil
		})
		for _, sp := range agent.Specs(thread.NewCache(s.open(b), 0), nil) {
			own[sp.Name] = pureActor{sp.Actor}
		}
		own["loop/begin"] = pureActor{workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return began(ctx, c) })}
		own["fill"] = workgraph.ActorFunc(fillThread)
		l := run(b, s, own, quiet)
		l.jobs(b)
		id := l.thread(b)
		g := &workgraph.Graph{}
		for k := range 12 {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprint("n", k), Actor: "fill", Named: map[string]json.RawMessage{"thread": json.RawMessage(`"` + id + `"`), "after": fmt.Appendf(nil, "%d", 1000*k)}})
			if k > 0 {
				g.Edges = append(g.Edges, workgraph.Edge{From: fmt.Sprint("n", k-1), To: fmt.Sprint("n", k)})
			}
		}
		l.wait(b, l.start(b, g), journal.StateCompleted)
		const longest = `, "history": {"messages": 1000, "tokens": 400000}`
		for _, c := range []struct{ name, form, history string }{{"prompt", "prompt", longest}, {"tools", "tools", longest}, {"prompt by default", "prompt", ""}, {"tools by default", "tools", ""}} {
			b.Run(c.name, func(b *testing.B) {
				var cold, warm, hold []time.Duration
				bytes := 0
				began = func(ctx context.Context, c *workgraph.Call) (out workgraph.Outcome, err error) {
					threads := &heldReader{Reader: thread.NewCache(l.j, 0)}
					specs := agent.Specs(threads, nil)
					begin := specs[slices.IndexFunc(specs, func(sp actor.Spec) bool { return sp.Name == "loop/begin" })].Actor
					for _, of := range []*[]time.Duration{&cold, &warm} {
						threads.took = 0
						at := time.Now()
						if out, err = begin.Call(ctx, c); err != nil {
							return out, err
						}
						*of = append(*of, time.Since(at)-threads.took)
						hold = append(hold, threads.took)
					}
					bytes = len(out.Values[0])
					return out, nil
				}
				for range b.N {
					n := workgraph.Node{ID: "agent", Actor: "agent"}
					require.NoError(b, json.Unmarshal(fmt.Appendf(nil, `{"thread_id": %q, "user_input": "go on", "reasoner": "reasoner", "form": %q, "actions": {"ok": {}}%s}`, id, c.form, c.history), &n.Named))
					l.wait(b, l.start(b, &workgraph.Graph{Nodes: []workgraph.Node{n}}), journal.StateCompleted)
				}
				for name, of := range map[string][]time.Duration{"cold": cold, "warm": warm, "hold": hold} {
					b.ReportMetric(medianMs(of), "ms/"+name)
				}
				b.ReportMetric(float64(bytes), "B/prompt")
			})
		}
		l.stop()
	})
}

// fillThread appends 1,000 items to a thread after a sequence: a state after every five messages.
func fillThread(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var id string
	after := int64(0)
	if err := errors.Join(json.Unmarshal(c.Named["thread"], &id), json.Unmarshal(c.Named["after"], &after)); err != nil {
		return workgraph.Outcome{}, err
	}
	text := strings.Repeat("word ", 40)
	a := workgraph.ThreadAppend{Thread: id, After: after}
	for i := range 1000 {
		if i%6 == 5 {
			brief := fmt.Appendf(nil, `{"task_status": "Ongoing", "task_status_description": "state %d", "user_input": %q, "instant_response": %q}`, i, text, text)
			a.Items = append(a.Items, workgraph.ThreadItem{Kind: workgraph.ThreadState, Brief: brief, Body: fmt.Appendf(nil, `{"raw_response": %q}`, strings.Repeat(text, 10))})
			continue
		}
		a.Items = append(a.Items, workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: fmt.Appendf(nil, `{"role": "user", "content": %q}`, text)})
	}
	return workgraph.Outcome{Threads: []workgraph.ThreadAppend{a}, Values: []json.RawMessage{json.RawMessage(`1`)}}, nil
}

// heldReader is a reader that notes how long holding a thread takes.
type heldReader struct {
	thread.Reader
	took time.Duration
}

func (r *heldReader) HoldThread(ctx context.Context, namespace, id string, runs []string) error {
	at := time.Now()
	defer func() { r.took += time.Since(at) }()
	return r.Reader.HoldThread(ctx, namespace, id, runs)
}
