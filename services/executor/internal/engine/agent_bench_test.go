package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkAgentRounds runs one agent for 1,000 rounds of one action each. It reports the time of a round
// around rounds 10, 100 and 1,000, and the rows of a round in the journal and in the thread. What a round
// costs must not depend on how many came before.
func BenchmarkAgentRounds(b *testing.B) {
	const rounds = 1000
	eachBench(b, func(b *testing.B, s store) {
		for b.Loop() {
			var mu sync.Mutex
			var at []time.Time
			prompts := make([]int, rounds+2)
			own := instant()
			own["reasoner"] = workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				prompts[len(at)] = len(c.Named["request"])
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
				slices.Sort(of)
				return float64(of[len(of)/2].Microseconds()) / 1000
			}
			b.ReportMetric(around(10), "ms/round10")
			b.ReportMetric(around(100), "ms/round100")
			b.ReportMetric(around(1000), "ms/round1000")
			b.ReportMetric(float64(events)/rounds, "events/round")
			b.ReportMetric(float64(threads[0].Last)/rounds, "items/round")
			b.ReportMetric(float64(prompts[10]), "B/prompt10")
			b.ReportMetric(float64(prompts[1000]), "B/prompt1000")
			l.stop()
		}
	})
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
