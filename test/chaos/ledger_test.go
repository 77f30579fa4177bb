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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// cappedRuns make cappedCalls each, which use cappedUse tokens each.
	cappedRuns, cappedCalls, cappedUse = 12, 24, 110
	// cappedAll is what all of them use, and cappedParts how often the cap is raised until it leaves room for
	// that.
	cappedAll, cappedParts = cappedRuns * cappedCalls * cappedUse, 4
	// cappedKills is how often an executor is killed under each cap, within cappedTime.
	cappedKills = 10
	cappedTime  = 20 * time.Second
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

// capped is a cluster whose runs make calls under a cap of their namespace, in tokens or in money.
type capped struct {
	*cluster
	ctx context.Context
	// money says that the cap is one in nano-USD, of which a token costs nanoPerToken.
	money bool
	runs  []string
	// most is the most that was spent and reserved at once, under any cap.
	most atomic.Int64
}

// nanoPerToken is what a token costs, input or output.
const nanoPerToken = 1000

// unit is how much of what is capped a token is.
func (c *capped) unit() int64 {
	if c.money {
		return nanoPerToken
	}
	return 1
}

// held is what is spent and reserved of what is capped.
func (c *capped) held(b *registryv1.Budget) (spent, reserved int64) {
	if c.money {
		return b.GetSpentNanoUsd(), b.GetReservedNanoUsd()
	}
	return b.GetSpentTokens(), b.GetReservedTokens()
}

// limit caps what so many tokens use.
func (c *capped) limit(tokens int64) {
	c.t.Helper()
	hard, most := &registryv1.Caps{Tokens: &tokens}, tokens*c.unit()
	if c.money {
		hard = &registryv1.Caps{NanoUsd: &most}
	}
	_, err := persist(c.ctx, func(ctx context.Context) (*registryv1.Budget, error) {
		return c.reg.SetBudget(ctx, &registryv1.SetBudgetRequest{Budget: &registryv1.Budget{Name: "namespace", Hard: hard}})
	})
	require.NoError(c.t, err)
}

func (c *capped) budget() *registryv1.Budget {
	b, err := persist(c.ctx, func(ctx context.Context) (*registryv1.Budget, error) {
		return c.reg.GetBudget(ctx, &registryv1.GetBudgetRequest{Name: "namespace"})
	})
	if err != nil {
		c.t.Errorf("the budget: %v", err)
	}
	return b
}

// every reports whether all runs are as done says.
func (c *capped) every(done func(*executorv1.Run) bool) bool {
	for _, id := range c.runs {
		r, err := ask(c.ctx, c.cluster, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
			return e.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		})
		if err != nil || !done(r) {
			return false
		}
	}
	return true
}

func completed(r *executorv1.Run) bool {
	return r.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
}

// resume lets runs ask for room at once, which they do by themselves within a minute.
func (c *capped) resume() {
	c.t.Helper()
	for _, id := range c.runs {
		_, err := ask(c.ctx, c.cluster, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
			return e.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: id})
		})
		if err != nil {
			require.Equal(c.t, codes.FailedPrecondition, status.Code(err), "%v: it has gone on, or has ended", err)
		}
	}
}

// kill kills executors, and the registry once, while another goroutine looks at the ledger.
func (c *capped) kill() {
	c.t.Helper()
	var watching, killing sync.WaitGroup
	calm := make(chan struct{})
	watching.Go(func() {
		for {
			select {
			case <-calm:
				return
			default:
			}
			b := c.budget()
			spent, reserved := c.held(b)
			c.most.Store(max(c.most.Load(), spent+reserved))
			sleep.For(c.ctx, 20*time.Millisecond)
		}
	})
	begin := time.Now()
	var left atomic.Int64
	left.Store(cappedKills)
	for _, r := range append([]*replica{c.registry}, c.replicas...) {
		killing.Go(func() {
			for left.Add(-1) >= 0 && time.Since(begin) < cappedTime {
				sleep.For(c.ctx, 300*time.Millisecond+rand.N(1500*time.Millisecond))
				r.kill()
				if err := r.start(nil); err != nil {
					c.t.Errorf("start %s: %v", r.name, err)
				}
				if r == c.registry {
					return
				}
			}
		})
	}
	killing.Wait()
	for _, r := range append([]*replica{c.registry}, c.replicas...) {
		testkit.Within(c.t, timeout, 10*time.Millisecond, r.serves, "%s does not serve", r.name)
	}
	close(calm)
	watching.Wait()
}

// TestCapUnderKills kills executors and the registry while calls are made under a cap of their namespace.
// Nothing is ever over the cap, and once it leaves room for all calls they are made, each is booked once, and
// no reservation is left.
func TestCapUnderKills(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store    string
		replicas int
		money    bool
	}{
		"TokensOnPostgres": {"postgres", 3, false},
		"MoneyOnPostgres":  {"postgres", 3, true},
		"MoneyOnSQLite":    {"sqlite", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			capUnderKills(t, c.store, c.replicas, c.money)
		})
	}
}

func capUnderKills(t *testing.T, store string, replicas int, money bool) {
	model := fakellm.New(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 10, Output: cappedUse - 10}, Delay: 200 * time.Millisecond}, true
	}})
	url, err := model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, model.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := &capped{ctx: ctx, money: money, cluster: newCluster(t, clusterOptions{store: store, replicas: replicas, settings: []string{
		"models.profiles.default.base_url=" + url, "models.profiles.default.price_key=me/mine", "executor.max_takeovers=100"}})}
	_, err = persist(ctx, func(ctx context.Context) (*registryv1.Price, error) {
		return c.reg.CreatePrice(ctx, &registryv1.CreatePriceRequest{RequestId: "price", Price: &registryv1.Price{Provider: "me", Model: "mine",
			ValidFrom: timestamppb.New(time.Unix(0, 0)), InputPerMillion: nanoPerToken * 1e6, OutputPerMillion: nanoPerToken * 1e6}})
	})
	require.NoError(t, err)
	begin := time.Now()
	for part := range int64(cappedParts - 1) {
		limit := (part + 1) * cappedAll / cappedParts
		c.limit(limit)
		for i := range cappedRuns - len(c.runs) {
			r, err := ask(ctx, c.cluster, func(ctx context.Context, e executorv1.ExecutorServiceClient) (*executorv1.Run, error) {
				return e.StartRun(ctx, cappedRun(fmt.Sprint("capped ", i)))
			})
			require.NoError(t, err)
			c.runs = append(c.runs, r.GetId())
		}
		c.resume()
		c.kill()
		// The calls that fit are not shared out evenly, so that some runs may come to their end.
		testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
			return c.every(func(r *executorv1.Run) bool {
				return r.GetState() == executorv1.RunState_RUN_STATE_PAUSED && r.GetStateReason() == "CAP_REACHED" || completed(r)
			})
		}, "runs do not come to the cap")
		var spent, reserved int64
		testkit.Within(t, timeout, 100*time.Millisecond, func() bool { spent, reserved = c.held(c.budget()); return reserved == 0 },
			"no call is under way, and something is reserved")
		limit *= c.unit()
		t.Logf("cap %d: at most %d were spent and reserved, %d are spent; %d kills, %d answers of the model after %s",
			limit, c.most.Load(), spent, c.kills.Load(), len(model.Requests()), time.Since(begin).Round(time.Second))
		require.LessOrEqual(t, c.most.Load(), limit)
		require.LessOrEqual(t, spent, limit)
		require.Greater(t, spent, limit/2, "what is free is used")
		require.False(t, c.every(completed))
	}
	c.limit(cappedAll * 2)
	c.resume()
	c.kill()
	testkit.Within(t, timeout, 100*time.Millisecond, func() bool { return c.every(completed) }, "runs do not go on")
	testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
		spent, reserved := c.held(c.budget())
		return reserved == 0 && spent == cappedAll*c.unit()
	}, "the ledger does not add up")
	require.Greater(t, c.kills.Load(), int64((replicas+1)/2*cappedParts))
	require.Empty(t, c.examined(ctx))
	t.Logf("%d kills in %s", c.kills.Load(), time.Since(begin).Round(time.Second))
}
