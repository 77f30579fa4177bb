package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// cappedRuns make cappedCalls each, which use cappedUse tokens each.
	cappedRuns, cappedCalls, cappedUse = 12, 20, 110
	// cappedLimit leaves room for about a third of them.
	cappedLimit = cappedRuns * cappedCalls * cappedUse / 3
	// cappedKills is how often an executor is killed, within cappedTime.
	cappedKills = 15
	cappedTime  = 30 * time.Second
)

// cappedRun is a run of calls of which the later half wait for the first half. The estimate of each is above
// what it uses.
func cappedRun(name string) *executorv1.StartRunRequest {
	g := &graphv1.Graph{}
	for i := range cappedCalls {
		g.Nodes = append(g.Nodes, &graphv1.Node{Id: fmt.Sprint("n", i), Actor: "llm", Retry: &graphv1.Retry{MaxAttempts: 50}, Named: map[string]*graphv1.Payload{
			"request":           {Json: fmt.Appendf(nil, "%q", name+strings.Repeat(" word", 40))},
			"max_output_tokens": {Json: []byte("120")}, "upstream": {Json: []byte("false")}}})
		if half := cappedCalls / 2; i >= half {
			g.Edges = append(g.Edges, &graphv1.Edge{From: fmt.Sprint("n", i-half), To: fmt.Sprint("n", i)})
		}
	}
	return &executorv1.StartRunRequest{Graph: g, RequestId: name}
}

// TestCapUnderKills kills executors that make calls under a cap of their namespace. Nothing is ever over the
// cap, and once it is raised all calls are made and no reservation is left.
func TestCapUnderKills(t *testing.T) {
	t.Parallel()
	model := fakellm.New(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 10, Output: cappedUse - 10}, Delay: 200 * time.Millisecond}, true
	}})
	url, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, model.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := newCluster(t, clusterOptions{store: "postgres", replicas: 3, settings: []string{
		"models.profiles.default.base_url=" + url, "executor.max_takeovers=100"}})
	limit := func(tokens int64) {
		t.Helper()
		_, err := c.reg.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: "namespace", Hard: &registryv1.Caps{Tokens: &tokens}}})
		require.NoError(t, err)
	}
	budget := func() *registryv1.Budget {
		t.Helper()
		b, err := persist(ctx, func(ctx context.Context) (*registryv1.Budget, error) {
			return c.reg.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: "namespace"})
		})
		require.NoError(t, err)
		return b
	}
	limit(cappedLimit)
	var ids []string
	for i := range cappedRuns {
		r, err := ask(ctx, c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
			return e.StartRun(ctx, cappedRun(fmt.Sprint("capped ", i)))
		})
		require.NoError(t, err)
		ids = append(ids, r.GetId())
	}
	every := func(done func(*executorv1.Run) bool) func() bool {
		return func() bool {
			for _, id := range ids {
				r, err := ask(ctx, c, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
					return e.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
				})
				if err != nil || !done(r) {
					return false
				}
			}
			return true
		}
	}

	var most atomic.Int64
	var watching, killing sync.WaitGroup
	calm := make(chan struct{})
	watching.Go(func() {
		for {
			select {
			case <-calm:
				return
			default:
			}
			b := budget()
			most.Store(max(most.Load(), b.GetSpentTokens()+b.GetReservedTokens()))
			sleep.For(ctx, 20*time.Millisecond)
		}
	})
	begin := time.Now()
	var left atomic.Int64
	left.Store(cappedKills)
	for _, r := range c.replicas {
		killing.Go(func() {
			for left.Add(-1) >= 0 && time.Since(begin) < cappedTime {
				sleep.For(ctx, 300*time.Millisecond+rand.N(1500*time.Millisecond))
				r.kill()
				if err := r.start(nil); err != nil {
					t.Errorf("start %s: %v", r.name, err)
					return
				}
			}
		})
	}
	killing.Wait()
	for _, r := range c.replicas {
		testkit.Within(t, timeout, 10*time.Millisecond, r.serves, "%s does not serve", r.name)
	}
	testkit.Within(t, timeout, 100*time.Millisecond, every(func(r *executorv1.Run) bool {
		return r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && r.GetStateReason() == "CAP_REACHED"
	}), "runs do not come to the cap")
	close(calm)
	watching.Wait()
	capped := budget()
	t.Logf("%d kills in %s: at most %d of %d tokens were spent and reserved, %d spent in the end; the model answered %d calls",
		c.kills.Load(), time.Since(begin).Round(time.Second), most.Load(), cappedLimit, capped.GetSpentTokens(), len(model.Requests()))
	require.LessOrEqual(t, most.Load(), int64(cappedLimit))
	require.LessOrEqual(t, capped.GetSpentTokens()+capped.GetReservedTokens(), int64(cappedLimit))
	require.Greater(t, capped.GetSpentTokens(), int64(cappedLimit/2), "what is free is used")

	limit(1 << 40)
	testkit.Within(t, timeout, 100*time.Millisecond, every(func(r *executorv1.Run) bool {
		return r.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
	}), "runs do not go on")
	testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
		b := budget()
		return b.GetReservedTokens() == 0 && b.GetSpentTokens() == cappedRuns*cappedCalls*cappedUse
	}, "the ledger: %v", budget())
	require.Empty(t, c.examined(ctx))
	t.Logf("%s in all", time.Since(begin).Round(time.Second))
}
