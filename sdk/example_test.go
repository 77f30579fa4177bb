package epigraph_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A graph is built in Go, or read from JSON by workgraph.Decode.
func ExampleGraph() {
	g := workgraph.NewBuilder("greet").
		Node("hello", "template", workgraph.Arg("text", json.RawMessage(`"hello"`)), workgraph.Pass(workgraph.Key("greeting"))).
		Node("shout", "shout").Chain("hello", "shout").Graph()
	m, err := epigraph.Graph(g)
	fmt.Println(len(m.GetNodes()), m.GetEdges()[0].GetTo(), m.GetNodes()[0].GetResultPassDownMode().GetKey(), err)
	// Output: 2 shout greeting <nil>
}

// A client starts a run and waits for its result; a worker serves the actor that it calls.
func Example() {
	client, err := epigraph.Dial("127.0.0.1:7400", epigraph.WithKey("ek_…"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	w := worker.New(client, worker.Options{})
	worker.Register(w, "shout", func(_ context.Context, in struct {
		Greeting string `json:"greeting"`
	}) (string, error) {
		return in.Greeting + "!", nil
	}, worker.Effect(worker.Pure))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = w.Run(ctx) }()

	run, err := client.StartRun(ctx, workgraph.NewBuilder("greet").Node("shout", "shout").Graph(), epigraph.Named("greeting", "hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := epigraph.Result[string](ctx, run)
	fmt.Println(text, err)
}

// A live run is changed by a patch that was made for the graph as it is: the difference is looked at first.
func ExampleRun_Amend() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx, run := context.Background(), client.Run("run_01…")

	_, revision, err := run.Graph(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	patch := workgraph.Patch{PutNodes: []workgraph.Node{{ID: "write", Actor: "template", Named: map[string]json.RawMessage{"text": json.RawMessage(`"shorter"`)}}}}
	diff, err := run.Compare(ctx, patch, revision)
	if err != nil || len(diff.GetCancelled()) > 0 {
		fmt.Println("not now:", err)
		return
	}
	_, err = run.Amend(ctx, patch, revision, epigraph.AmendedBy("ada"))
	if epigraph.ReasonOf(err) == "GRAPH_REVISION_MISMATCH" {
		fmt.Println("somebody was faster")
	}
}

// A schedule starts runs by the clock, within limits.
func ExampleClient_CreateSchedule() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()

	if _, err := client.SetLimit(ctx, epigraph.ActorLimit("llm"), epigraph.AtOnce(8), epigraph.Rate(600, time.Minute)); err != nil {
		fmt.Println(err)
		return
	}
	report := workgraph.NewBuilder("report").Node("write", "llm", workgraph.Arg("prompt", json.RawMessage(`"What happened yesterday?"`))).Graph()
	nightly, err := client.CreateSchedule(ctx, "nightly", "0 3 * * *", report,
		epigraph.TimeZone("Europe/Berlin"), epigraph.CatchUp(time.Hour), epigraph.Starting(epigraph.Label("by", "clock")))
	if err != nil {
		fmt.Println(err)
		return
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	starts, err := nightly.Backfill(ctx, yesterday, time.Now(), executorv1.OverlapPolicy_OVERLAP_POLICY_QUEUE_ALL)
	fmt.Println(len(starts), err)
}
