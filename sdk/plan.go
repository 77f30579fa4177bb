package epigraph

import (
	"context"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// ParsePlan reads the plan in a text, such as the output of a model. The answer has its problems and edges,
// the diagnostics and the offered repairs. A text without a plan is no error: the answer says so.
func (c *Client) ParsePlan(ctx context.Context, text string) (*plannerv1.ParsePlanResponse, error) {
	return c.Planner.ParsePlan(ctx, &plannerv1.ParsePlanRequest{Text: text, Complete: true})
}

// CompileOption says more about a plan that is to become a graph. Its errors are those of CompilePlan.
type CompileOption func(*plannerv1.CompilePlanRequest) error

// DefaultActor is what works on a problem that nothing else is said about.
func DefaultActor(name string) CompileOption {
	return func(r *plannerv1.CompilePlanRequest) error { r.DefaultActor = name; return nil }
}

// ActorOf is what works on one problem of the plan.
func ActorOf(problem, actor string) CompileOption {
	return func(r *plannerv1.CompilePlanRequest) error {
		if r.Actors == nil {
			r.Actors = map[string]string{}
		}
		r.Actors[problem] = actor
		return nil
	}
}

// ForAll binds a named argument of every node.
func ForAll(name string, v any) CompileOption {
	return func(r *plannerv1.CompilePlanRequest) error {
		p, err := Payload(v)
		if r.Named == nil {
			r.Named = map[string]*graphv1.Payload{}
		}
		r.Named[name] = p
		return err
	}
}

// GraphName names the graph.
func GraphName(name string) CompileOption {
	return func(r *plannerv1.CompilePlanRequest) error { r.Name = name; return nil }
}

// AcceptRepairs takes repairs that ParsePlan offers, by their codes.
func AcceptRepairs(codes ...string) CompileOption {
	return func(r *plannerv1.CompilePlanRequest) error {
		r.AcceptRepairs = append(r.AcceptRepairs, codes...)
		return nil
	}
}

// CompilePlan makes a graph of the plan in a text; StartGraph runs it. A plan with faults is refused with the
// reason PLAN_INVALID and a violation at each place, a text without a plan with NO_PLAN.
func (c *Client) CompilePlan(ctx context.Context, text string, opts ...CompileOption) (*plannerv1.CompilePlanResponse, error) {
	req := &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: text}, Complete: true}
	for _, f := range opts {
		if err := f(req); err != nil {
			return nil, err
		}
	}
	return c.Planner.CompilePlan(ctx, req)
}

// StartGraph is StartRun of a graph in its wire form, such as CompilePlan gives it.
func (c *Client) StartGraph(ctx context.Context, g *graphv1.Graph, opts ...StartOption) (*Run, error) {
	req, err := startRequest(g, opts)
	if err != nil {
		return nil, err
	}
	m, err := c.Executor.StartRun(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.Run(m.GetId()), nil
}
