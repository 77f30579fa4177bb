package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkTeamRounds lets ten members speak in turn, 10,000 messages. It reports the time of a turn around
// messages 10 and 10,000, and what a member is told in bytes there. A turn must not depend on how many came
// before.
func BenchmarkTeamRounds(b *testing.B) {
	const messages = 10_000
	eachBench(b, func(b *testing.B, s store) {
		for b.Loop() {
			var mu sync.Mutex
			at, told := make([]time.Time, 0, messages), make([]int, 0, messages)
			own := instant()
			own["says"] = workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				at, told = append(at, time.Now()), append(told, len(c.Named["text"]))
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"a sentence that somebody says"`)}}, nil
			})
			for _, sp := range team.Specs(thread.NewCache(s.open(b), 0)) {
				own[sp.Name] = pureActor{sp.Actor}
			}
			l := run(b, s, own, quiet, func(c *engine.Config, _ *engine.Deps) { c.ID = fmt.Sprintf("bench-%d", b.N) })
			l.jobs(b)
			var members, transitions []string
			for i := range 10 {
				members = append(members, fmt.Sprintf(`{"name": "m%d", "actor": "says"}`, i))
				transitions = append(transitions, fmt.Sprintf(`{"from": "m%d", "to": "m%d"}`, i, (i+1)%10))
			}
			n := workgraph.Node{ID: "team", Actor: "team"}
			require.NoError(b, json.Unmarshal(fmt.Appendf(nil, `{"task": "talk", "team": {"members": [%s], "transitions": [%s], "start": ["m0"], "stop": {"max_messages": %d}}}`,
				strings.Join(members, ","), strings.Join(transitions, ","), messages), &n.Named))
			id := l.start(b, &workgraph.Graph{Nodes: []workgraph.Node{n}})
			l.wait(b, id, journal.StateCompleted)
			around := func(message int) float64 {
				var of []time.Duration
				for i := max(1, message-20); i < min(message+20, len(at)); i++ {
					of = append(of, at[i].Sub(at[i-1]))
				}
				return medianMs(of)
			}
			b.ReportMetric(around(10), "ms/message10")
			b.ReportMetric(around(1000), "ms/message1000")
			b.ReportMetric(around(messages), "ms/message10000")
			b.ReportMetric(float64(told[20]), "B/told20")
			b.ReportMetric(float64(told[len(told)-1]), "B/told10000")
			l.stop()
		}
	})
}
