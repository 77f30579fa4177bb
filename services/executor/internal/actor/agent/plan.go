package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxProblems bounds the problems of one plan.
const maxProblems = 200

// stated finds the marks of a plan that is meant as one: its tags, or arrows between ids alone on a line.
// Lists and arrows in prose are read as plans too, but an answer may hold them.
var stated = regexp.MustCompile(strings.ReplaceAll(`(?im)<Problem|ProblemGraph|^[ \t]*ID(?:[ \t]*,[ \t]*ID)*[ \t]*->[ \t]*ID(?:[ \t]*(?:,|->)[ \t]*ID)*[ \t]*;?[ \t\r]*$`,
	"ID", `[\pL\pN_.#/-]+`))

// maxPlanTold bounds what a reasoner is shown of a plan of its own that has faults, in bytes.
const maxPlanTold = 12 << 10

// readPlan reads the plan in a response. With open a plan may be in whatever form, else only with the marks
// of one: the first response may be a plan, and so may that after a refused one. A response without a plan is
// the answer; one that must have a plan is so only if it states its status. The error is for the reasoner.
func (d *definition) readPlan(ctx context.Context, raw json.RawMessage, open, must bool) (*response.Response, error) {
	if len(raw) > response.MaxBytes {
		return nil, fmt.Errorf("the plan has %d bytes, the limit is %d", len(raw), response.MaxBytes)
	}
	said := planText(raw)
	if !stated.MatchString(said) {
		r, err := response.Read(raw)
		if !open || err == nil && r.Stated && r.Status != response.Ongoing { // lists in an answer are no plan
			return r, err
		}
	}
	read := plan.Parse(said, plan.WithContext(ctx))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case read.NoPlan != nil && !must:
		return response.Read(raw)
	case read.NoPlan != nil:
		return nil, fmt.Errorf("there is no plan: %s. If nothing is to be planned, answer with an InstantResponse and the TaskStatus Completed", read.NoPlan.Message)
	case read.HasErrors():
		return nil, planFaults(read.Diagnostics, said)
	case len(read.Graph.Problems) > maxProblems:
		return nil, fmt.Errorf("the plan has %d problems, the limit is %d: plan larger pieces of work", len(read.Graph.Problems), maxProblems)
	}
	name, named := d.solver()
	g, err := compile.Graph(ctx, read.Graph, compile.Options{DefaultActor: name, Named: named})
	if bad, ok := errors.AsType[*compile.Error](err); ok {
		return nil, planFaults(bad.Diagnostics, said)
	}
	if err != nil {
		return nil, err
	}
	for i := range g.Nodes {
		if g.Nodes[i].ID == nodeResults {
			return nil, fmt.Errorf("%q cannot be the id of a problem: choose another", nodeResults)
		}
		if actorName := g.Nodes[i].Actor; actorName != name {
			return nil, fmt.Errorf("problem %q would be done by %q: problems of a plan are done by the solver", errs.Clip(g.Nodes[i].Name, 100), errs.Clip(actorName, 100))
		}
	}
	graph, err := actor.Encode(g)
	if err != nil {
		return nil, err
	}
	r := response.Remarks(said).With(graph)
	r.Compiled = len(r.Graph) > 0
	return r, nil
}

// shown is a graph as it is kept: without the arguments of the solver, which are the same in every node.
func (d *definition) shown(r *response.Response) json.RawMessage {
	if !r.Compiled {
		return r.Graph
	}
	g, err := workgraph.Decode(r.Graph)
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

// planFaults are the faults of a plan with the plan itself, for the reasoner that wrote it: places in a text
// tell nothing to a model that does not see the text.
func planFaults(found []plan.Diagnostic, said string) error {
	var f faults
	for _, diagnostic := range found {
		if diagnostic.Severity == plan.Error {
			f.add("%s", diagnostic.String())
		}
	}
	return fmt.Errorf("the plan has faults and was not done:\n%s\n\nThe plan was:\n%s", errs.Clip(f.String(), maxTold/2), errs.Clip(said, maxPlanTold))
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
