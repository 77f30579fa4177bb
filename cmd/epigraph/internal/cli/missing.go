package cli

import (
	"context"
	"regexp"
	"slices"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

// quotedName is a name in the message of a fault.
var quotedName = regexp.MustCompile(`"([^"]{1,128})"`)

// missing tells which actors of a workflow nobody offers now, so that no run of it can start. What cannot be
// found out is left to the start to tell.
func (e *env) missing(ctx context.Context, s *services, ref, text string, form registryv1.WorkflowForm) {
	if e.json {
		return
	}
	g, ok := compiledGraph(text, form)
	if !ok {
		return
	}
	r, err := s.executor.ValidateGraph(ctx, &executorv1.ValidateGraphRequest{Graph: g})
	if err != nil {
		return
	}
	var names []string
	for _, f := range slices.Concat(r.GetFaults(), r.GetWarnings()) {
		if m := quotedName.FindStringSubmatch(f.GetMessage()); f.GetCode() == "UNKNOWN_ACTOR" && m != nil {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	e.note("warning: %s cannot run now: nobody offers %s; a worker or the configuration must", ref, some(slices.Compact(names), 5))
}

// compiledGraph is the graph of a version of the catalog.
func compiledGraph(text string, form registryv1.WorkflowForm) (*graphv1.Graph, bool) {
	if form == registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH {
		g, err := graphpb.Read([]byte(text))
		return g, err == nil
	}
	d, faults := workflow.Read([]byte(text))
	if len(faults) > 0 {
		return nil, false
	}
	compiled, faults := workflow.Compile(d)
	if len(faults) > 0 {
		return nil, false
	}
	g, err := graphpb.ToProto(compiled)
	return g, err == nil
}
