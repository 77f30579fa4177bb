package epigraph_test

import (
	"context"
	"encoding/json"
	"fmt"

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
