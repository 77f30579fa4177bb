package executor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// explained waits until the first blocker of a run is of a kind, and returns it.
func explained(t *testing.T, c executorv1.ExecutorServiceClient, id string, want executorv1.BlockerKind) (*executorv1.Blocker, *executorv1.ExplainRunResponse) {
	t.Helper()
	var x *executorv1.ExplainRunResponse
	testkit.Eventually(t, func() bool {
		var err error
		x, err = c.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: id})
		require.NoError(t, err)
		return len(x.GetBlockers()) > 0 && x.GetBlockers()[0].GetKind() == want
	}, "%v", x)
	require.Contains(t, x.GetSummary(), x.GetBlockers()[0].GetMessage(), "the summary is of the first")
	return x.GetBlockers()[0], x
}

func TestExplain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		called, open := make(chan string, 10), make(chan struct{})
		f := serve(t, workgraph.Actors{
			"slow": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				called <- c.RunID
				select {
				case <-open:
					return workgraph.Outcome{}, nil
				case <-ctx.Done():
					return workgraph.Outcome{}, context.Cause(ctx)
				}
			}),
			"quick": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return workgraph.Outcome{}, nil }),
			"spends": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 1200, OutputTokens: 800}}}, nil
			}),
			"odd":     model("unknown", false),
			"listens": asks(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
		}, store)
		limits := executorv1.NewLimitServiceClient(f.conn)
		put := func(t *testing.T, l *executorv1.Limit) {
			t.Helper()
			_, err := limits.UpdateLimit(t.Context(), &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: l})
			require.NoError(t, err)
			t.Cleanup(func() {
				_, err := limits.DeleteLimit(context.Background(), &executorv1.DeleteLimitRequest{Name: l.GetName()})
				require.NoError(t, err)
			})
		}
		begin := func(t *testing.T, ns ...*graphv1.Node) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: ns}})
			require.NoError(t, err)
			return r.GetId()
		}

		t.Run("Budget/SaysWhatHasNoPriceInEveryState", func(t *testing.T) {
			limit := int64(45_000)
			graph := &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a", Actor: "odd"}, {Id: "b", Actor: "listens"}}, Edges: []*graphv1.Edge{{From: "a", To: "b"}}}
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: graph, Budget: &executorv1.RunBudget{NanoUsd: &limit}})
			require.NoError(t, err)
			_, x := explained(t, f, r.GetId(), executorv1.BlockerKind_BLOCKER_KIND_SIGNAL)
			require.Contains(t, x.GetSummary(), "1 call without a known price not counted", "while it waits")
			_, err = f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			_, x = explained(t, f, r.GetId(), executorv1.BlockerKind_BLOCKER_KIND_PAUSED)
			require.Contains(t, x.GetSummary(), "1 call without a known price not counted", "while it is paused")
			_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { // the registry has the end a moment after it
				_, x = explained(t, f, r.GetId(), executorv1.BlockerKind_BLOCKER_KIND_ENDED)
				return strings.Contains(x.GetSummary(), "1 call without a known price not counted")
			}, "%v", x)
		})
		t.Run("Budget/SaysHowMuchWasUsedAndWhatHelps", func(t *testing.T) {
			caps := func(n int64) *executorv1.RunBudget { return &executorv1.RunBudget{Tokens: &n} }
			two := &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a", Actor: "spends"}, {Id: "b", Actor: "listens"}}, Edges: []*graphv1.Edge{{From: "a", To: "b"}}}
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: two, Budget: caps(1500), Metadata: map[string]string{"mine": "yes"}, RequestId: "b1"})
			require.NoError(t, err)
			id := r.GetId()
			require.Equal(t, int64(1500), r.GetBudget().GetTokens())
			b, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_BUDGET)
			testkit.Eventually(t, func() bool { // the owner knows what it decided before the row does
				b, x = explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_BUDGET)
				return x.GetState() == executorv1.RunState_RUN_STATE_PAUSED
			})
			require.Equal(t, "BUDGET_EXHAUSTED", b.GetName())
			require.Contains(t, b.GetMessage(), "2000 of 1500 tokens")
			require.Contains(t, b.GetHint(), "epigraph runs resume "+id+" --budget-tokens")
			_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id})
			require.Equal(t, codes.FailedPrecondition, status.Code(err))
			require.ErrorContains(t, err, "2000 of 1500 tokens")
			_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id, Budget: caps(-1)})
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			_, err = f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: two, Budget: caps(-1)})
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			r, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id, Budget: caps(2001)})
			require.NoError(t, err)
			require.Equal(t, int64(2001), r.GetBudget().GetTokens())
			require.Equal(t, "yes", r.GetMetadata()["mine"], "what the caller keeps there stays")
			explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_SIGNAL)
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{})
			require.NoError(t, err)
			require.Equal(t, int64(2001), list.GetRuns()[0].GetBudget().GetTokens())
			again, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: two, Budget: caps(1500), Metadata: map[string]string{"mine": "yes"}, RequestId: "b1"})
			require.NoError(t, err)
			require.Equal(t, id, again.GetId(), "the request is known still")
		})
		t.Run("RateLimit/SaysUntilWhen", func(t *testing.T) {
			put(t, &executorv1.Limit{Name: "actor/quick", MaxRate: 1, RateInterval: durationpb.New(time.Hour)})
			id := begin(t, &graphv1.Node{Id: "a", Actor: "quick"}, &graphv1.Node{Id: "b", Actor: "quick"})
			var b *executorv1.Blocker
			testkit.Eventually(t, func() bool { // it is known with the answer to the first request for a turn
				b, _ = explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_RATE_LIMIT)
				return b.GetUntil() != nil
			})
			require.Equal(t, "quick", b.GetActor())
			require.Equal(t, "actor/quick", b.GetName(), "the limit, as limits are listed")
			require.Contains(t, b.GetMessage(), "actor/quick")
			require.Contains(t, []string{"a", "b"}, b.GetVisit().GetNodeId())
			require.WithinRange(t, b.GetUntil().AsTime(), time.Now().Add(time.Minute), time.Now().Add(time.Hour+time.Minute))
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_CANCELED)
		})
		t.Run("ConcurrencyKey/NamesTheHolder", func(t *testing.T) {
			keyed := &graphv1.Node{Id: "a", Actor: "slow", ConcurrencyKey: `"lock-" + string(7)`}
			holder := begin(t, keyed)
			require.Equal(t, holder, <-called)
			id := begin(t, keyed)
			b, _ := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_CONCURRENCY_KEY)
			require.Equal(t, "lock-7", b.GetName())
			require.Equal(t, []string{holder}, b.GetRunIds())
			require.Contains(t, b.GetMessage(), holder)
			require.Contains(t, b.GetHint(), "epigraph runs explain "+holder)
			first, _ := explained(t, f, holder, executorv1.BlockerKind_BLOCKER_KIND_RUNNING)
			require.Equal(t, "slow", first.GetActor())
		})
		t.Run("ConcurrencyKey/SaysThatTheRunItselfHoldsIt", func(t *testing.T) {
			keyed := func(id string) *graphv1.Node { return &graphv1.Node{Id: id, Actor: "slow", ConcurrencyKey: `"own"`} }
			id := begin(t, keyed("a"), keyed("b"))
			require.Equal(t, id, <-called)
			b, _ := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_CONCURRENCY_KEY)
			require.Equal(t, []string{id}, b.GetRunIds())
			require.Contains(t, b.GetMessage(), `the concurrency key "own", which another call of this run holds`)
			require.Empty(t, b.GetHint())
		})
		t.Run("Quota/OfTheNamespace", func(t *testing.T) {
			put(t, &executorv1.Limit{Name: "namespace", MaxOpenRuns: 1})
			id := begin(t, &graphv1.Node{Id: "a", Actor: "quick"})
			b, x := explained(t, f, id, executorv1.BlockerKind_BLOCKER_KIND_QUOTA)
			require.Equal(t, executorv1.RunState_RUN_STATE_PENDING, x.GetState())
			require.Contains(t, b.GetHint(), "epigraph limits list")
			require.NotNil(t, b.GetSince())
		})
		close(open)
	})
}

// TestExplainElsewhere asks an executor about a run that another one owns: facts from the owner's memory come
// over one hop.
func TestExplainElsewhere(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	serverTLS, clientTLS := authority(t)
	serving := func(id string) *replica {
		return openWith(t, id, serverTLS, clientTLS, func(c *executor.Config) { c.Store, c.PostgresURL = "postgres", conf.NewSecret(url) })
	}
	a, b := serving("a"), serving("b")
	w := a.worker(t, hello(4, pure("held")))
	node := func(id string) *graphv1.Node {
		return &graphv1.Node{Id: id, Actor: "held", ConcurrencyKey: `"one"`}
	}
	got := start(t, a.client(keyAcme), &graphv1.Graph{Nodes: []*graphv1.Node{node("x"), node("y")}})
	v := w.visit()
	for _, asked := range []*replica{a, b} {
		first, x := explained(t, asked.client(keyAcme), got.GetId(), executorv1.BlockerKind_BLOCKER_KIND_CONCURRENCY_KEY)
		require.Equal(t, "a", x.GetOwner())
		require.Equal(t, "one", first.GetName())
		require.NotEqual(t, v.GetVisit().GetNodeId(), first.GetVisit().GetNodeId())
		require.Len(t, x.GetBlockers(), 2, "the call under way is told once: %v", x)
		require.Equal(t, executorv1.BlockerKind_BLOCKER_KIND_RUNNING, x.GetBlockers()[1].GetKind())
		require.NotNil(t, x.GetBlockers()[1].GetSince(), "which only its owner knows")
	}
	_, err := b.client(keyOther).ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: got.GetId()})
	require.ErrorContains(t, err, "not found")
	w.answer(v.GetToken(), `1`)
	w.answer(w.visit().GetToken(), `2`)
	got.is(executorv1.RunState_RUN_STATE_COMPLETED)
}
