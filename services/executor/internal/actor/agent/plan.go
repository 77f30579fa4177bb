package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxProblems bounds the problems of one plan.
const maxProblems = 200

// stated finds the marks of a plan that is meant as one: lists in prose are read as plans too, but an answer
// may hold them.
var stated = regexp.MustCompile(`(?i)<Problem|ProblemGraph|->`)

// readPlan reads the plan in a response. The first response is a plan in whatever form; later ones are plans
// if they are marked as such, and else the answer. The error is for the reasoner.
func (d *definition) readPlan(ctx context.Context, c *workgraph.Call, raw json.RawMessage) (*response.Response, error) {
	if len(raw) > response.MaxBytes {
		return nil, fmt.Errorf("the plan has %d bytes, the limit is %d", len(raw), response.MaxBytes)
	}
	said := planText(raw)
	if c.Visit > 1 && !stated.MatchString(said) {
		return response.Read(raw)
	}
	read := plan.Parse(said, plan.WithContext(ctx))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case read.NoPlan != nil && c.Visit > 1:
		return response.Read(raw)
	case read.NoPlan != nil:
		if r, err := response.Read(raw); err == nil && r.Status == response.Pending {
			return r, nil
		}
		return nil, fmt.Errorf("there is no plan: %s", read.NoPlan.Message)
	case read.HasErrors():
		return nil, planFaults(read.Diagnostics)
	case len(read.Graph.Problems) > maxProblems:
		return nil, fmt.Errorf("the plan has %d problems, the limit is %d: plan larger pieces of work", len(read.Graph.Problems), maxProblems)
	}
	name, named := d.solver()
	g, err := compile.Graph(ctx, read.Graph, compile.Options{DefaultActor: name, Named: named})
	if bad, ok := errors.AsType[*compile.Error](err); ok {
		return nil, planFaults(bad.Diagnostics)
	}
	if err != nil {
		return nil, err
	}
	for i := range g.Nodes {
		if g.Nodes[i].ID == nodeResults {
			return nil, fmt.Errorf("%q cannot be the id of a problem: choose another", nodeResults)
		}
	}
	graph, err := actor.Encode(g)
	if err != nil {
		return nil, err
	}
	return response.Remarks(said).With(graph), nil
}

// shown is a graph as it is kept: without the arguments of the solver, which are the same in every node.
func (d *definition) shown(graph json.RawMessage) json.RawMessage {
	if d.Dispatch != dispatchPlan || len(graph) == 0 {
		return graph
	}
	g, err := workgraph.Decode(graph)
	if err != nil {
		return nil // cannot happen: it was compiled
	}
	_, same := d.solver()
	for i := range g.Nodes {
		maps.DeleteFunc(g.Nodes[i].Named, func(name string, _ json.RawMessage) bool {
			_, ok := same[name]
			return ok
		})
	}
	raw, err := actor.Encode(g)
	if err != nil {
		return nil // cannot happen: it was read from JSON
	}
	return raw
}

// planText is the text of a response: its own, or that of a message.
func planText(raw json.RawMessage) string {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &m) == nil && m.Role == "assistant" {
		return actor.AsText(m.Content)
	}
	return actor.AsText(raw)
}

// planFaults are the faults of a plan, for the reasoner.
func planFaults(found []plan.Diagnostic) error {
	var f faults
	for _, diagnostic := range found {
		if diagnostic.Severity == plan.Error {
			f.add("%s", diagnostic.String())
		}
	}
	return fmt.Errorf("the plan has faults and was not done:\n%s", f)
}

// solver is the actor that does the problems of a plan, with its arguments.
func (d *definition) solver() (name string, named map[string]json.RawMessage) {
	name = actorAgent
	named = map[string]json.RawMessage{}
	for k, v := range d.Solver {
		if k == "actor" {
			name = strings.TrimSpace(actor.AsText(v))
			continue
		}
		named[k] = v
	}
	return name, named
}

// compiled is the graph that readPlan made.
func compiled(raw json.RawMessage) (*workgraph.Graph, error) {
	g, err := workgraph.Decode(raw)
	if err != nil {
		return nil, actor.BadArguments("the compiled plan: %v", err)
	}
	return g, nil
}
