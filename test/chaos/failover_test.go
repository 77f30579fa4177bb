//go:build chaos

package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// failoverLimit is the promise: within it every run of a killed executor goes on elsewhere, with default
// settings.
const failoverLimit = 5 * time.Second

// failoverTime bounds the trial: a machine that is too slow for 50 kills in 8 minutes makes fewer.
const failoverTime = 8 * time.Minute

// TestFailover kills one of three executors under load, again and again, and measures how long it takes until
// each of its runs has gone on with another: until its journal is longer, or it is over.
func TestFailover(t *testing.T) {
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 3}, "long", "long", "unsafe", "map")
	var took []time.Duration
	runs := 0
	for i, begin := 0, time.Now(); i < failovers && time.Since(begin) < failoverTime; i++ {
		victim := x.replicas[i%len(x.replicas)]
		owned := fmt.Sprintf(`SELECT run_id || ' ' || (SELECT coalesce(max(e.seq), 0) FROM events e WHERE e.run_id = r.run_id) FROM runs r WHERE r.state < 6 AND r.owner_id = '%s'`, victim.id)
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool { return len(x.rows(x.ctx, owned)) >= 3 }, "%s is given no runs", victim.name)
		victim.kill()
		begin := time.Now()
		var left []string
		for _, line := range x.rows(x.ctx, owned) {
			id, seq, _ := strings.Cut(line, " ")
			left = append(left, fmt.Sprintf("('%s', %s)", id, seq))
		}
		if len(left) == 0 {
			victim.launch(nil)
			continue
		}
		runs += len(left)
		waiting := `SELECT x.id FROM (VALUES ` + strings.Join(left, ", ") + `) x (id, seq) JOIN runs r ON r.run_id = x.id WHERE r.state < 6
			AND NOT EXISTS (SELECT FROM events e WHERE e.run_id = x.id AND e.seq > x.seq)`
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool { return len(x.rows(x.ctx, waiting)) == 0 }, "runs of a killed executor stand still")
		took = append(took, time.Since(begin))
		victim.launch(nil)
	}
	totals.moves(took, runs)
	slices.Sort(took)
	t.Logf("failover: %d kills, %d runs moved: fastest %s, median %s, p90 %s, slowest %s", len(took), runs, took[0].Round(time.Millisecond),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*9/10].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	x.awaitEnds()
	require.Less(t, took[len(took)-1], failoverLimit)
}
