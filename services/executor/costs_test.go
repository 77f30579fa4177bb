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
				overhead := 0
				for _, e := range f.registry.booked {
					if e.GetTaskId() != "tk_"+name {
						continue
					}
					sum += e.GetCostNanoUsd()
					if e.GetKind() == registryv1.UsageKind_USAGE_KIND_OVERHEAD {
						require.EqualValues(t, 500, e.GetCostNanoUsd())
						overhead++
					}
				}
				require.EqualValues(t, total, sum)
				require.Equal(t, 1, overhead, "the agent's own reasoning")
			})
		}
	})
}
