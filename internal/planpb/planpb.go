// Package planpb owns the translation between the wire form of plans (epigraph.plan.v1 and the planner's
// ParsePlanResponse) and package plan. It must not assess a plan.
package planpb

import (
	"fmt"
	"math"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/plan"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// Response is the wire form of what reading a text gave.
func Response(r plan.Result) *plannerv1.ParsePlanResponse {
	out := &plannerv1.ParsePlanResponse{Dialect: r.Dialect, Diagnostics: Diagnostics(r.Diagnostics)}
	for _, p := range r.Repairs {
		out.Repairs = append(out.Repairs, &planv1.Repair{Code: string(p.Code), Message: p.Message, Line: clamp(p.Line), Column: clamp(p.Column), Applied: p.Applied})
	}
	if r.NoPlan != nil {
		out.NoPlan = true
		out.NoPlanReason, out.NoPlanMessage = string(r.NoPlan.Reason), r.NoPlan.Message
		return out
	}
	out.Graph = Graph(r.Graph)
	for _, l := range r.Surroundings {
		out.Surroundings = append(out.Surroundings, &planv1.LineRange{First: clamp(l.First), Last: clamp(l.Last)})
	}
	out.Hash = r.Graph.Hash()
	return out
}

// Diagnostics is the wire form of ds.
func Diagnostics(ds []plan.Diagnostic) []*planv1.Diagnostic {
	var out []*planv1.Diagnostic
	for _, d := range ds {
		sev := planv1.Severity_SEVERITY_ERROR
		switch d.Severity {
		case plan.Warning:
			sev = planv1.Severity_SEVERITY_WARNING
		case plan.Info:
			sev = planv1.Severity_SEVERITY_INFO
		}
		out = append(out, &planv1.Diagnostic{
			Code: string(d.Code), Severity: sev, Line: clamp(d.Line), Column: clamp(d.Column),
			Element: d.Element, Message: d.Message, Hint: d.Hint,
		})
	}
	return out
}

// Graph is the wire form of g.
func Graph(g plan.Graph) *planv1.ProblemGraph {
	out := &planv1.ProblemGraph{}
	for _, p := range g.Problems {
		q := &planv1.Problem{Id: p.ID, Request: p.Request, Details: p.Details, ParentId: p.ParentID, Tool: p.Tool, Line: clamp(p.Line), Column: clamp(p.Column)}
		for _, r := range p.Refs {
			q.References = append(q.References, &planv1.Reference{Argument: r.Arg, Text: r.Text, ProblemId: r.To, Field: r.Path})
		}
		for _, a := range p.Args {
			q.Arguments = append(q.Arguments, &planv1.Argument{Name: a.Name, Kind: argKinds[a.Kind], Value: graphpb.Payload(a.JSON())})
		}
		out.Problems = append(out.Problems, q)
	}
	for _, e := range g.Edges {
		out.Edges = append(out.Edges, &planv1.ProblemEdge{From: e.From, To: e.To, Source: sources[e.Source], Line: clamp(e.Line), Column: clamp(e.Column)})
	}
	return out
}

// FromGraph reads the wire form. An edge without a source counts as STATED. The error names every value that
// is not JSON.
func FromGraph(g *planv1.ProblemGraph) (plan.Graph, error) {
	var out plan.Graph
	bad := errs.New(errs.InvalidArgument, "PLAN_INVALID", "the problem graph cannot be read")
	for i, p := range g.GetProblems() {
		q := plan.Problem{ID: p.GetId(), Request: p.GetRequest(), Details: p.GetDetails(), ParentID: p.GetParentId(), Tool: p.GetTool(), Line: int(p.GetLine()), Column: int(p.GetColumn())}
		for _, r := range p.GetReferences() {
			q.Refs = append(q.Refs, plan.Reference{Arg: r.GetArgument(), Text: r.GetText(), To: r.GetProblemId(), Path: r.GetField()})
		}
		for k, a := range p.GetArguments() {
			field := fmt.Sprintf("graph.problems[%d].arguments[%d].value", i, k)
			raw, err := graphpb.Raw(field, a.GetValue())
			if err != nil {
				bad = bad.Violate(field, "PAYLOAD_INVALID", "the value is not one JSON text in UTF-8")
				continue
			}
			kind := plan.Literal
			if a.GetKind() == planv1.ArgumentKind_ARGUMENT_KIND_REFERRING {
				kind = plan.Referring
			}
			q.Args = append(q.Args, plan.Arg{Name: a.GetName(), Kind: kind, Value: string(raw)})
		}
		out.Problems = append(out.Problems, q)
	}
	for _, e := range g.GetEdges() {
		source := plan.Stated
		for k, v := range sources {
			if v == e.GetSource() {
				source = k
			}
		}
		out.Edges = append(out.Edges, plan.Edge{From: e.GetFrom(), To: e.GetTo(), Source: source, Line: int(e.GetLine()), Column: int(e.GetColumn())})
	}
	if len(bad.Violations) > 0 {
		return plan.Graph{}, bad
	}
	return out, nil
}

var sources = map[plan.EdgeSource]planv1.EdgeSource{
	plan.Stated:      planv1.EdgeSource_EDGE_SOURCE_STATED,
	plan.Variable:    planv1.EdgeSource_EDGE_SOURCE_VARIABLE,
	plan.RunningText: planv1.EdgeSource_EDGE_SOURCE_PROSE,
	plan.Numbering:   planv1.EdgeSource_EDGE_SOURCE_NUMBERING,
	plan.ListedOrder: planv1.EdgeSource_EDGE_SOURCE_LISTED_ORDER,
}

var argKinds = map[plan.ArgKind]planv1.ArgumentKind{
	plan.Literal:   planv1.ArgumentKind_ARGUMENT_KIND_LITERAL,
	plan.Referring: planv1.ArgumentKind_ARGUMENT_KIND_REFERRING,
}

func clamp(n int) int32 { return int32(max(0, min(n, math.MaxInt32))) }
