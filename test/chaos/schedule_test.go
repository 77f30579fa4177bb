package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestSchedules kills two executors in turn, and now and then both, while schedules are due every second:
// each time must start exactly one run.
func TestSchedules(t *testing.T) {
	t.Parallel()
	const clocks = 3
	x := newTrial(t, clusterOptions{store: "postgres", replicas: 2}, "signal")
	service := func(r *replica) executorv1.ScheduleServiceClient { return executorv1.NewScheduleServiceClient(r.conn) }
	wire := &graphv1.Graph{Name: "clock", Nodes: []*graphv1.Node{{Id: "s", Actor: "sleep", Named: map[string]*graphv1.Payload{"seconds": {Json: []byte("0.5")}}}}}
	for i := range clocks {
		_, err := service(x.replicas[0]).CreateSchedule(x.ctx, &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{
			Id: fmt.Sprintf("clock-%d", i), Cron: "@every 1s", Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW,
			CatchupWindow: durationpb.New(time.Hour), Start: &executorv1.StartRunRequest{Graph: wire}}})
		require.NoError(t, err)
	}
	for i := range scheduleKills {
		still(rand.N(1200 * time.Millisecond))
		victim := x.replicas[i%2]
		victim.kill()
		if i%3 == 2 { // nobody is there for a while
			other := x.replicas[(i+1)%2]
			other.kill()
			still(rand.N(2 * time.Second))
			require.NoError(t, other.start(nil))
		}
		still(rand.N(time.Second))
		victim.launch(nil)
	}
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool { return x.replicas[0].serves() && x.replicas[1].serves() })
	type call func(context.Context, executorv1.ScheduleServiceClient, string) (*executorv1.Schedule, error)
	each := func(do call) {
		for i := range clocks {
			_, err := ask(x.ctx, x.cluster, func(ctx context.Context, _ executorv1.ExecutorServiceClient) (*executorv1.Schedule, error) {
				return do(ctx, service(x.replicas[i%2]), fmt.Sprintf("clock-%d", i))
			})
			require.NoError(t, err)
		}
	}
	pause := func(ctx context.Context, s executorv1.ScheduleServiceClient, id string) (*executorv1.Schedule, error) {
		return s.PauseSchedule(ctx, &executorv1.PauseScheduleRequest{ScheduleId: id})
	}
	resume := func(ctx context.Context, s executorv1.ScheduleServiceClient, id string) (*executorv1.Schedule, error) {
		return s.ResumeSchedule(ctx, &executorv1.ResumeScheduleRequest{ScheduleId: id})
	}
	each(pause)
	testkit.Within(t, timeout, time.Second, func() bool {
		if len(x.rows(x.ctx, `SELECT run_id FROM schedule_starts WHERE result = 'QUEUED'`)) == 0 {
			return true
		}
		// A start that a kill cut off just before the pause waits for the end of the pause.
		each(resume)
		each(pause)
		return false
	}, "occasions are not carried out")
	x.awaitEnds()
	occasions := x.rows(x.ctx, `SELECT uid || ': ' || count(*) FROM schedule_starts GROUP BY uid ORDER BY 1`)
	require.Len(t, occasions, clocks)
	t.Logf("occasions by schedule: %v", occasions)
	faults := map[string]int{}
	for what, sql := range map[string]string{
		"occasions of schedules left out": `SELECT uid FROM schedule_starts GROUP BY uid HAVING extract(epoch FROM max(time) - min(time)) + 1 <> count(*)`,
		"occasions of schedules twice":    `SELECT uid || ' ' || time FROM schedule_starts GROUP BY uid, time HAVING count(*) <> 1`,
		"occasions without their run": `SELECT s.uid || ' ' || s.time || ' ' || s.result || ' ' || s.message FROM schedule_starts s
			WHERE s.result <> 'STARTED' OR NOT EXISTS (SELECT FROM runs r WHERE r.run_id = s.run_id AND r.schedule_id <> '')`,
		"runs of schedules without occasion": `SELECT r.run_id FROM runs r WHERE r.schedule_id <> '' AND NOT EXISTS (SELECT FROM schedule_starts s WHERE s.run_id = r.run_id)`,
		"two occasions for one run":          `SELECT run_id FROM schedule_starts GROUP BY run_id HAVING count(*) <> 1`,
	} {
		found := x.rows(x.ctx, sql)
		faults[what] = len(found)
		require.Empty(t, found, what)
	}
	totals.trial(len(x.rows(x.ctx, `SELECT run_id FROM schedule_starts`)), 0, 0, 0, faults)
}
