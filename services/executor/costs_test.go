package executor_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// says is an actor that reports the cost of its calls, and returns a value.
func says(value string, usage ...workgraph.Usage) workgraph.Actor {
	return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(value)}, Usage: usage}, nil
	})
}

// TestCostsAgree uses calls whose price is in the price book, calls that report their cost, and both: of
// nodes, tools and an agent's reasoning. It compares the budget of the run with the booked cost.
func TestCostsAgree(t *testing.T) {
	t.Parallel()
	cost := func(n int64) *int64 { return &n }
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		const total = 70 + 30 + 70 + 4 + 500
		f := serve(t, workgraph.Actors{
			"model":  model("priced", false),
			"states": says(`1`, workgraph.Usage{Provider: "p", Model: "own", InputTokens: 5, CostNanoUSD: cost(30)}),
			"both":   says(`2`, workgraph.Usage{Provider: "p", Model: "priced", InputTokens: 10, CostNanoUSD: cost(1)}),
			"tool":   says(`3`, workgraph.Usage{CostNanoUSD: cost(4)}),
			"thinks": says(`{"result": "done"}`, workgraph.Usage{Provider: "p", Model: "own", InputTokens: 9, CostNanoUSD: cost(500)}),
		}, store)
		for name, budget := range map[string]*executorv1.RunBudget{"WithACapInMoney": {NanoUsd: proto.Int64(total)}, "Without": nil} {
			t.Run(name, func(t *testing.T) {
				agent := actorNode("agent", "agent", `{"goal": "x", "reasoner": "thinks", "actions": {"tool": {"description": "a tool"}}}`)
				run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{TaskId: "tk_" + name, Budget: budget, Graph: nodes(
					agent, &graphv1.Node{Id: "a", Actor: "model"}, &graphv1.Node{Id: "b", Actor: "states"}, &graphv1.Node{Id: "c", Actor: "both"},
					&graphv1.Node{Id: "d", Actor: "tool"}, actorNode("last", "cel", `{"expr": "1"}`))})
				require.NoError(t, err)
				if budget == nil {
					f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
				} else {
					f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_PAUSED)
					_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: run.GetId()})
					require.Equal(t, strconv.Itoa(total), errs.From(grpckit.FromStatus(err)).Meta["used_nano_usd"], "%v", err)
				}
				testkit.Eventually(t, func() bool {
					run, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
					require.NoError(t, err)
					return run.GetUsage().GetUnbookedAttempts() == 0
				})
				require.EqualValues(t, total, run.GetUsage().GetCostNanoUsd())
				f.registry.mu.Lock()
				defer f.registry.mu.Unlock()
				var sum int64
				for _, e := range f.registry.booked {
					if e.GetTaskId() != "tk_"+name {
						continue
					}
					sum += e.GetCostNanoUsd()
					require.NotEqual(t, registryv1.UsageKind_USAGE_KIND_OVERHEAD, e.GetKind(), "an agent that works on a task does the work")
				}
				require.EqualValues(t, total, sum)
			})
		}
	})
}

// TestCostsOfLosers is about the calls of children that lost a race and were given up: they are
// booked, and are not in the total of the run.
func TestCostsOfLosers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		begun := make(chan struct{})
		slow := workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			close(begun)
			<-ctx.Done()
			err := workgraph.Errorf(workgraph.Unknown, workgraph.ReasonCanceled, "cut off")
			err.Usage = []workgraph.Usage{{Provider: "p", Model: "priced", InputTokens: 8, OutputTokens: 1}}
			return workgraph.Outcome{}, err
		})
		quick := workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			<-begun
			return model("priced", false).Call(ctx, c)
		})
		f := serve(t, workgraph.Actors{"slow": slow, "quick": quick}, store)
		g := nodes(actorNode("a", "spawn", `{"graph": {"nodes": [{"id": "x", "actor": "slow"}]}}`), &graphv1.Node{Id: "b", Actor: "quick"}, actorNode("first", "cel", `{"expr": "1"}`))
		g.Nodes[2].Join = &graphv1.Join{Kind: graphv1.JoinKind_JOIN_KIND_ANY, Losers: graphv1.Losers_LOSERS_CANCEL}
		g.Edges = []*graphv1.Edge{{From: "a", To: "first"}, {From: "b", To: "first"}}
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
		require.NoError(t, err)
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		var u *executorv1.Usage
		testkit.Eventually(t, func() bool {
			run, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			u = run.GetUsage()
			return u.GetBookedCalls() == 2
		}, "the call that lost is booked")
		require.Equal(t, []int64{1, 10, 3}, []int64{u.GetCalls(), u.GetInputTokens(), u.GetOutputTokens()}, "the run's own")
		require.Equal(t, []int64{18, 4}, []int64{u.GetBookedInputTokens(), u.GetBookedOutputTokens()}, "in all")
		require.EqualValues(t, 7*18, u.GetCostNanoUsd(), "in all")
	})
}
