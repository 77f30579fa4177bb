// Package spawn holds the actors that make more work: child runs, and expansions. They only describe it; the
// engine owns the ids, the limits and the starts.
package spawn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

const childProperties = `
    "graph": {"type": "object", "description": "The graph to run."},
    "ref": {"type": "string", "description": "Instead of a graph: \"self\", the graph of this run, or \"workflow/SLUG@version\"."},
    "input": {
      "type": "object",
      "description": "What the start nodes of the run receive.",
      "properties": {"args": {"type": "array"}, "named": {"type": "object"}},
      "additionalProperties": false
    },
    "task_id": {"type": "string", "description": "The task that the run works on; without it its costs land on this run's."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "budget": {
      "type": "object",
      "description": "What the run may use before it is paused: at most what the run that spawns it has left.",
      "properties": {"nano_usd": {"type": "integer", "minimum": 0}, "tokens": {"type": "integer", "minimum": 0}},
      "additionalProperties": false
    }`

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "anyOf": [{"required": ["runs"]}, {"required": ["graph"]}, {"required": ["ref"]}],
  "properties": {
    "runs": {
      "type": "array",
      "minItems": 1,
      "description": "The runs, in the order of the results.",
      "items": {"type": "object", "additionalProperties": false, "properties": {` + childProperties + `}}
    },` + childProperties + `,
    "timeout": {"type": "string", "description": "How long to wait at most, like 1h; runs that still go on then are canceled and their results say TIMED_OUT."},
    "fail_fast": {"type": "boolean", "description": "Whether the first run that does not complete fails the node and cancels the others."},
    "as_result": {"type": "boolean", "description": "With one run: whether its result is the result of the node, in place of the list, and its failure that of the node."}
  }
}`

// Spec describes the actor that runs graphs below this run and waits for them.
func Spec(tasks epics.Owners) actor.Spec {
	return actor.Spec{
		Name: "spawn", Version: "1", Effect: workgraph.Idempotent, NamedOnly: true, Schema: schema, Examine: examine, Inner: inner, WaitsFor: []string{"timeout"},
		Description: "Runs one or many graphs as runs of their own and waits for them; the result lists what became of each, in the order asked.",
		Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
			return spawn(ctx, tasks, call)
		}),
	}
}

// child is one run that is asked for.
type child struct {
	Graph  json.RawMessage   `json:"graph"`
	Ref    string            `json:"ref"`
	Input  workgraph.Input   `json:"input"`
	TaskID string            `json:"task_id"`
	Labels map[string]string `json:"labels"`
	Budget *workgraph.Budget `json:"budget"`
}

func (c *child) empty() bool {
	return len(c.Graph) == 0 && c.Ref == "" && c.Input.Args == nil && c.Input.Named == nil && c.TaskID == "" && c.Labels == nil && c.Budget == nil
}

func (c *child) run() (workgraph.Child, error) {
	out := workgraph.Child{Ref: c.Ref, Input: c.Input, TaskID: c.TaskID, Labels: c.Labels, Budget: c.Budget}
	given := len(c.Graph) > 0 && string(c.Graph) != "null"
	if given == (c.Ref != "") {
		return out, actor.BadArguments("give each run exactly one of graph and ref")
	}
	if !given {
		return out, nil
	}
	var err error
	out.Graph, err = graph(c.Graph)
	return out, err
}

// arguments are those of a call.
type arguments struct {
	Runs     []child           `json:"runs"`
	Graph    json.RawMessage   `json:"graph"`
	Ref      string            `json:"ref"`
	Input    workgraph.Input   `json:"input"`
	TaskID   string            `json:"task_id"`
	Labels   map[string]string `json:"labels"`
	Budget   *workgraph.Budget `json:"budget"`
	Timeout  string            `json:"timeout"`
	FailFast bool              `json:"fail_fast"`
	AsResult bool              `json:"as_result"`
}

// examine returns the faults of a node's own arguments: their combination, and the shape of the graphs in
// them. Unknown actors in these graphs are only warnings: see inner.
func examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	var a arguments
	if err := actor.Decode(n.Named, &a); err != nil {
		return nil // the schema says what type each has
	}
	var out []workgraph.Argument
	if text, ok := actor.OwnText(n, "timeout"); ok {
		_, err := wait.Timeout(text)
		out = append(out, actor.Faulty("timeout", err)...)
	}
	at, runs := "runs", a.Runs
	if len(runs) == 0 {
		if at = "graph"; len(a.Graph) == 0 {
			at = "ref"
		}
		if len(a.Graph) == 0 && a.Ref == "" {
			return out // one may be a propagated input
		}
		runs = []child{{Graph: a.Graph, Ref: a.Ref}}
	}
	if a.AsResult && len(runs) != 1 {
		out = append(out, workgraph.Argument{Arg: "as_result", Fault: fmt.Sprintf("it needs exactly one run, there are %d", len(runs))})
	}
	for i := range runs {
		run, err := runs[i].run()
		if err == nil && run.Ref != "" && run.Ref != workgraph.RefSelf && !strings.HasPrefix(run.Ref, "workflow/") {
			err = actor.BadArguments("%q names no workflow: write \"self\" or \"workflow/SLUG@version\"", run.Ref)
		}
		if err == nil && run.Graph != nil {
			var faults []workgraph.Fault
			if faults, err = workgraph.ValidateFor(ctx, run.Graph, nil, nil); err != nil {
				return out // the time is over
			}
			if len(faults) > 0 {
				err = actor.BadArguments("run %d: %v", i+1, faults[0])
			}
		}
		out = append(out, actor.Faulty(at, err)...)
	}
	return out
}

// inner are the nodes of the graphs that a node gives its runs itself.
func inner(n *workgraph.Node) (out []workgraph.InnerNode) {
	var a arguments
	if err := actor.Decode(n.Named, &a); err != nil {
		return nil // examine has said so
	}
	add := func(place string, raw json.RawMessage) {
		if len(raw) == 0 {
			return
		}
		if g, err := graph(raw); err == nil {
			out = append(out, workgraph.InnerNodes(place, g)...)
		}
	}
	add("named.graph", a.Graph)
	for i := range a.Runs {
		add(fmt.Sprintf("named.runs[%d].graph", i), a.Runs[i].Graph)
	}
	return out
}

func spawn(ctx context.Context, tasks epics.Owners, c *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	timeout, err := wait.Timeout(a.Timeout)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Runs == nil {
		a.Runs = []child{{Graph: a.Graph, Ref: a.Ref, Input: a.Input, TaskID: a.TaskID, Labels: a.Labels, Budget: a.Budget}}
	} else if one := (child{Graph: a.Graph, Ref: a.Ref, Input: a.Input, TaskID: a.TaskID, Labels: a.Labels, Budget: a.Budget}); !one.empty() {
		return workgraph.Outcome{}, actor.BadArguments("give either runs, each with what is its own, or one run's graph, ref, input, task_id, labels and budget")
	}
	if len(a.Runs) == 0 {
		return workgraph.Outcome{}, actor.BadArguments("runs is empty")
	}
	if a.AsResult && len(a.Runs) != 1 {
		return workgraph.Outcome{}, actor.BadArguments("as_result needs exactly one run, there are %d", len(a.Runs))
	}
	children := &workgraph.Children{Timeout: timeout, FailFast: a.FailFast, AsResult: a.AsResult}
	for i := range a.Runs {
		run, err := a.Runs[i].run()
		if err != nil {
			return workgraph.Outcome{}, err
		}
		switch err := mine(ctx, tasks, c, run.TaskID); {
		case errs.Is(err, errs.NotFound):
			return workgraph.Outcome{}, actor.BadArguments("task_id: %v", errs.From(err).Message)
		case err != nil:
			return catalog.Answer(ctx, err, "")
		}
		children.Runs = append(children.Runs, run)
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: children}}, nil
}

const expandSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["graph"],
  "properties": {
    "graph": {"description": "The graph to insert after this node: an object, or its JSON as a text."},
    "value": {"description": "Its input; null when absent."}
  }
}`

// Expand describes the actor that inserts a graph after its node.
func Expand() actor.Spec {
	return actor.Spec{
		Name: "expand", Version: "1", Effect: workgraph.Pure, Schema: expandSchema, Expands: true, Examine: examineExpand, Inner: innerExpand,
		Description: "Inserts the graph that it is given after its node; the nodes that follow run on what that graph gives.",
		Actor:       workgraph.ActorFunc(expand),
	}
}

// examineExpand returns the faults of the shape of a graph of the node's own.
func examineExpand(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	raw := n.Named["graph"]
	if len(raw) == 0 {
		return nil // it may be a propagated input
	}
	g, err := graph(raw)
	if err != nil {
		return actor.Faulty("graph", err)
	}
	_, faults, err := workgraph.ValidatePart(ctx, g, nil)
	if err != nil || len(faults) == 0 {
		return nil
	}
	return actor.Faulty("graph", actor.BadArguments("%v", faults[0]))
}

// innerExpand are the nodes of a graph of the node's own.
func innerExpand(n *workgraph.Node) []workgraph.InnerNode {
	raw := n.Named["graph"]
	if len(raw) == 0 {
		return nil
	}
	g, err := graph(raw)
	if err != nil {
		return nil // examineExpand has said so
	}
	return workgraph.InnerNodes("named.graph", g)
}

func expand(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Graph json.RawMessage `json:"graph"`
		Value json.RawMessage `json:"value"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Graph) == 0 {
		return workgraph.Outcome{}, actor.BadArguments("graph is missing")
	}
	if len(a.Value) == 0 {
		a.Value = json.RawMessage("null")
	}
	g, err := graph(a.Graph)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Values: []json.RawMessage{a.Value}, Expand: g}, nil
}

// graph reads a graph, or the text of one as a model writes it.
func graph(raw json.RawMessage) (*workgraph.Graph, error) {
	var text string
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, actor.BadArguments("graph: %v", err)
		}
		raw = json.RawMessage(text)
	}
	g, err := graphpb.ReadModel(raw)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	return g, nil
}
