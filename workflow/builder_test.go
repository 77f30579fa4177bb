package workflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

// A graph with a loop and conditions, and a router, as one would draw them.
func ExampleNew() {
	agent1 := workflow.Agent{Name: "agent1", Instructions: "You find files.", Tools: []workflow.Tool{{Actor: "mcp/files/search"}}}
	agent2 := workflow.Agent{Name: "agent2", Instructions: "You check what was found."}
	agent3 := workflow.Agent{Name: "agent3", Instructions: "You answer."}
	agent4 := workflow.Agent{Name: "agent4", Instructions: "You keep the minutes."}
	graph := workflow.NewGraph().
		AddAgent(agent1, agent2, agent3, agent4).
		AddLoop(agent1, agent2, workflow.Any(workflow.Says("AGAIN"), workflow.Expr("result.calls.size() == 0"))).
		AddTransition(agent2, agent3, workflow.Any(workflow.Says("FOUND"), workflow.All(workflow.Says("GIVE UP"), workflow.Not(workflow.Says("AGAIN"))))).
		AddTransition(agent3, agent4)
	router := workflow.NewRouter().
		AddRoute(workflow.From(agent1), agent2).
		AddRoute(workflow.From(agent1, agent2), agent3, workflow.BatchSize(10), workflow.TTL(time.Hour)).
		AddRoute(workflow.FromAny(), agent4)
	d, _, faults := workflow.New("Files", workflow.WithGraph(graph), workflow.WithRouter(router), workflow.WithStop(workflow.StopCondition{"timeout": "1h"}))
	fmt.Println(d.Name, len(faults))
	for _, w := range workflow.Warnings(d) {
		fmt.Println(w.Code, w.Message)
	}
	// Output:
	// Files 0
	// NO_EFFECT "agent3" is called by the graph, not by the number of its messages
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	a, b := workflow.Agent{Name: "a", Instructions: "x"}, workflow.Agent{Name: "b", Instructions: "y"}
	_, text, faults := workflow.New("x", workflow.WithGraph(workflow.NewGraph().AddAgent(a).AddTransition(a, b)))
	require.NotEmpty(t, text)
	require.ErrorContains(t, faults, `there is no agent "b"`)
	_, _, faults = workflow.New("x", workflow.WithGraph(workflow.NewGraph().AddAgent(a, b).AddLoop(a, b)))
	require.ErrorContains(t, faults, "has no end")
	_, _, faults = workflow.New("x", workflow.WithStop(workflow.StopCondition{"f": func() {}}))
	require.ErrorContains(t, faults, "unsupported type")
}
