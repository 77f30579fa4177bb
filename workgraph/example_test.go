package workgraph_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/epigraph-run/epigraph/workgraph"
)

// shout returns the actor's arguments as text, with the node's id in front.
func shout(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	b, err := json.Marshal(fmt.Sprintf("%s%s", c.Node, c.Args))
	return workgraph.Outcome{Values: []json.RawMessage{b}}, err
}

// A diamond: B and C run at the same time, and D joins them in declared order.
func ExampleRun() {
	g := workgraph.NewBuilder("diamond").
		Node("A", "shout", workgraph.Pass(workgraph.FirstArg())).
		Node("B", "shout", workgraph.Pass(workgraph.FirstArg())).
		Node("C", "shout", workgraph.Pass(workgraph.FirstArg())).
		Node("D", "shout").
		Edge("A", "B").Edge("A", "C").Edge("B", "D").Edge("C", "D").
		Graph()
	res, err := workgraph.Run(context.Background(), g, workgraph.Actors{"shout": workgraph.ActorFunc(shout)}, workgraph.Input{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, string(res.Result))
	// Output: COMPLETED "D[\"B[\\\"A[]\\\"]\" \"C[\\\"A[]\\\"]\"]"
}

// Validate finds all faults at once, with their places and hints.
func ExampleValidate() {
	g := workgraph.FromText("fetch -> write\nwrite -> fetch", func(string) workgraph.Node { return workgraph.Node{Actor: "llm"} })
	g.Nodes[0].When = "results.ok"
	faults, err := workgraph.Validate(context.Background(), g, nil)
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range faults {
		fmt.Println(f.Code, f.Node, f.Field)
	}
	// Output:
	// BAD_EXPRESSION fetch when
	// CYCLE fetch
}

// A loop is declared by the edge that closes it. Its exit edges are decided when it has ended.
func ExampleBuilder_Back() {
	g := workgraph.NewBuilder("refine").
		Node("draft", "add", workgraph.Pass(workgraph.FirstArg())).
		Node("publish", "add").
		Edge("draft", "publish").
		Back("draft", "draft", "result < 3").
		Graph()
	add := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		var n int
		if err := json.Unmarshal(c.Args[0], &n); err != nil {
			return workgraph.Outcome{}, err
		}
		fmt.Println(c.Node, c.Visit, n)
		return workgraph.Outcome{Values: []json.RawMessage{fmt.Append(nil, n+1)}}, nil
	})
	_, err := workgraph.Run(context.Background(), g, workgraph.Actors{"add": add}, workgraph.Input{Args: []json.RawMessage{[]byte("0")}})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// draft 1 0
	// draft 2 1
	// draft 3 2
	// publish 1 3
}

// A durable engine advances the state, stores the events, and only then acts on the effects. After a crash it
// replays.
func ExampleState() {
	g := workgraph.NewBuilder("").Node("A", "x", func(n *workgraph.Node) { n.Effect = workgraph.Idempotent }).Graph()
	p, err := workgraph.Compile(context.Background(), g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var journal []workgraph.Event
	s := workgraph.New(p, "run_1")
	events, effects, err := s.Advance(workgraph.Begin{})
	journal = append(journal, events...) // durable before A is called
	fmt.Println(len(effects.Starts), effects.Starts[0].EffectKey(), err)

	back, err := workgraph.Replay(context.Background(), p, "run_1", journal)
	fmt.Println(back.Outstanding()[0].Node, "is started again", err)

	events, effects, err = back.Advance(workgraph.Ended{Ref: workgraph.Ref{Node: "A", Visit: 1}, Attempt: 1, Outcome: &workgraph.Outcome{}})
	fmt.Println(len(events), effects.Ended.Status, err)
	_, _, err = back.Advance(workgraph.Cancel{})
	fmt.Println(errors.Is(err, workgraph.ErrEnded))
	// Output:
	// 1 run_1/A/1/0/1 <nil>
	// A is started again <nil>
	// 2 COMPLETED <nil>
	// true
}
