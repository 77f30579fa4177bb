package epigraph_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A graph is built in Go, or read from JSON by workgraph.Decode.
func ExampleGraph() {
	g := workgraph.NewBuilder("greet").
		Node("hello", "template", workgraph.Named("text", "hello"), workgraph.Pass(workgraph.Key("greeting"))).
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
	if err := w.Ready(ctx); err != nil { // before that no server knows the actor
		fmt.Println(err)
		return
	}

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
	if err != nil || len(diff.GetCanceled()) > 0 {
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
	report := workgraph.NewBuilder("report").Node("write", "llm", workgraph.Named("request", "What happened yesterday?")).Graph()
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

// A graph is compiled from a plan that a model wrote. The run fails, is inspected and deleted.
func ExampleClient_CompilePlan() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()

	compiled, err := client.CompilePlan(ctx, "collect -> write, translate\nwrite, translate -> publish", epigraph.DefaultActor("llm"))
	if err != nil {
		fmt.Println(err) // with every fault of the plan and its place
		return
	}
	run, err := client.StartGraph(ctx, compiled.GetGraph(), epigraph.Label("by", "planner"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := epigraph.Result[string](ctx, run)
	fmt.Println(text, err)

	failed := &executorv1.ListRunsRequest{States: []executorv1.RunState{executorv1.RunState_RUN_STATE_FAILED}, Labels: map[string]string{"by": "planner"}}
	for r, err := range client.Runs(ctx, failed) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.GetId(), r.GetError().GetReason(), client.Run(r.GetId()).Delete(ctx))
	}
}

// Nodes run over lists, are tried again, and have a value to fall back to.
func Example_builder() {
	g := workgraph.NewBuilder("digest").
		Node("read", "http", workgraph.Named("url", "https://example.com/feed"),
			workgraph.WithRetry(workgraph.Retry{MaxAttempts: 5}), workgraph.WithOnError(workgraph.FallbackTo([]string{}))).
		Node("sum", "llm", workgraph.Named("request", "Sum it up."),
			workgraph.WithMap(workgraph.Map{Over: "nodes.read.result", MaxParallel: 4, OnItemError: workgraph.ContinueItems})).
		Chain("read", "sum").Graph()
	fmt.Println(g.Nodes[0].Retry.MaxAttempts, string(g.Nodes[0].OnError.Value), g.Nodes[1].Map.Over)
	// Output: 5 [] nodes.read.result
}

// Nobody knows whether an interrupted call was made. Somebody looks, and records the outcome.
func ExampleRun_Reconcile() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx, run := context.Background(), client.Run("run_01…")

	why, err := run.Explain(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range why.GetBlockers() {
		if b.GetKind() == executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION {
			fmt.Println(b.GetError().GetMessage())
			if err := run.Reconcile(ctx, b.GetVisit(), epigraph.Performed(map[string]string{"receipt": "17"}), "ada"); err != nil {
				fmt.Println(err)
			}
		}
	}
	fmt.Println(run.Resume(ctx, "reconciled"))
}

// The cost of an epic's work, call by call.
func ExampleClient_Usage() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()

	epic, err := client.CreateEpic(ctx, &registryv1.Epic{Title: "Launch the new release"})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := client.CreateTask(ctx, &registryv1.Task{EpicId: epic.GetId(), Title: "Write the notes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := client.StartRun(ctx, workgraph.NewBuilder("notes").Node("write", "llm", workgraph.Named("request", "Write the notes.")).Graph(), epigraph.Task(task.GetId()))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for call, err := range client.Usage(ctx, &registryv1.ListUsageRequest{EpicId: epic.GetId()}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(call.GetModel(), call.GetInputTokens(), call.GetOutputTokens(), call.GetCostNanoUsd())
	}
}

// A conversation: the agent keeps in mind what was said, over restarts of both sides.
func ExampleThread_Ask() {
	client, err := epigraph.Dial("127.0.0.1:7400", epigraph.WithKey("ek_…"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()

	talk, err := client.CreateThread(ctx, "agent/support", epigraph.ThreadUser("ann", "desk"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, message := range []string{"My order has not come.", "It is number 17."} {
		// The agent may answer the first message with a question, which the second one answers.
		reply, err := talk.Ask(ctx, message, "")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(reply.Text())
	}
}

// A workflow is kept in the catalog, found by what it can do, and run by name.
func ExampleClient_RunWorkflow() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	w, err := client.CreateWorkflow(ctx, "name: Greet\nsteps:\n  - {id: say, type: reply_chat, message: \"Hello {{ inputs.name }}\"}\n")
	if err != nil {
		fmt.Println(err) // every fault of the definition
		return
	}
	if _, err := client.SetWorkflowAlias(ctx, w.GetSlug(), "prod", w.GetLatestVersion()); err != nil {
		fmt.Println(err)
		return
	}
	run, err := client.RunWorkflow(ctx, w.GetSlug()+"@prod", epigraph.Named("name", "Ada"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := epigraph.Result[string](ctx, run)
	fmt.Println(text, err)

	found, err := client.DiscoverWorkflows(ctx, "greeting", &registryv1.WorkflowRequirements{NodeTypes: []string{"reply_chat"}}, 5)
	for _, m := range found {
		fmt.Println(m.GetSlug(), m.GetMatchScore(), m.GetRecommendation())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// A workflow that names its triggers is turned on, and what became of its events is looked at.
func ExampleClient_Triggers() {
	client, err := epigraph.Dial("127.0.0.1:7400")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	on, err := client.Triggers("orders@prod").Activate(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range on.GetTriggers() {
		fmt.Println(t.GetType(), t.GetPath(), t.GetSecret()) // the secret is shown this once
	}
	refused := &executorv1.ListTriggerDeliveriesRequest{State: executorv1.TriggerDeliveryState_TRIGGER_DELIVERY_STATE_REFUSED}
	for d, err := range client.ListTriggerDeliveries(ctx, refused) {
		if err != nil {
			fmt.Println(err)
			return
		}
		again, err := client.RepeatTriggerDelivery(ctx, d.GetId())
		fmt.Println(d.GetMessage(), again.GetId(), err)
	}
}
