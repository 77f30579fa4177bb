package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkWakeUp measures the time from the commit of a signal, by a process that runs nothing, to the start
// of the node after the wait. The evicted run is woken on another replica, by the job alone.
func BenchmarkWakeUp(b *testing.B) {
	for name, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			began := make(chan time.Time, 1)
			l := run(b, s, actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
				"ok": outcome(func(*workgraph.Call) workgraph.Outcome {
					began <- time.Now()
					return workgraph.Outcome{}
				})})
			l.jobs(b)
			g := chain(2, "ok")
			g.Nodes[0].Actor = "signal"
			payload := record.Payload{Name: "go"}
			body, err := payload.Encode()
			require.NoError(b, err)
			var took []time.Duration
			for b.Loop() {
				id := l.start(b, g)
				l.evicted(b, id, journal.StateWaiting)
				_, err := l.j.Enqueue(b.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: ids.New("req"), Body: body, Time: dbkit.Now()}})
				require.NoError(b, err)
				committed := time.Now()
				took = append(took, (<-began).Sub(committed))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-max")
		})
	}
}
