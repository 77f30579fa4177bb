package epigraph

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// AuthorOption says more about a plan that a model is to write.
type AuthorOption func(*plannerv1.CreatePlanRequest) error

// PlanContext is what the model should know besides the goal.
func PlanContext(text string) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error { r.Context = text; return nil }
}

// PlanTool lets problems use an actor. schema is the JSON Schema of its arguments, as anything that marshals
// to it; nil means none. A plan that names a tool that was not given goes back to the model.
func PlanTool(name, description string, schema any) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error {
		t := &plannerv1.PlanTool{Name: name, Description: description}
		r.Tools = append(r.Tools, t)
		if schema == nil {
			return nil
		}
		p, err := Payload(schema)
		t.Schema = p
		return err
	}
}

// PlanProfile names the model profile that is asked.
func PlanProfile(name string) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error { r.Profile = name; return nil }
}

// PlanActor is what works on a problem without a tool; "llm" if it is not named.
func PlanActor(name string) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error { r.DefaultActor = name; return nil }
}

// PlanNamed binds a named argument of every node.
func PlanNamed(name string, v any) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error {
		p, err := Payload(v)
		if r.Named == nil {
			r.Named = map[string]*graphv1.Payload{}
		}
		r.Named[name] = p
		return err
	}
}

// PlanName names the graph.
func PlanName(name string) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error { r.Name = name; return nil }
}

// PlanLimits narrows what the planner may use for this plan. Zero values mean as the planner is configured.
func PlanLimits(rounds int, tokens int64, timeout time.Duration) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error {
		l := limitsOf(r)
		l.MaxRounds, l.MaxTokens = int32(rounds), tokens //nolint:gosec // the server refuses what is too large
		if timeout > 0 {
			l.Timeout = durationpb.New(timeout)
		}
		return nil
	}
}

// PlanBudget bounds the money for this plan, in nano-USD. A model without a known price is refused then with
// the reason PRICE_UNKNOWN.
func PlanBudget(nanoUSD int64) AuthorOption {
	return func(r *plannerv1.CreatePlanRequest) error { limitsOf(r).MaxCostNanoUsd = &nanoUSD; return nil }
}

func limitsOf(r *plannerv1.CreatePlanRequest) *plannerv1.AuthorLimits {
	if r.Limits == nil {
		r.Limits = &plannerv1.AuthorLimits{}
	}
	return r.Limits
}

// CreatePlan has a model write a plan for a goal. The faults of an answer go back to the model until the plan
// can run or a limit is reached. StartGraph runs the graph of the answer. An answer without a graph is no
// error: its authoring says why there is none, and what was used. The call is not repeated by the client.
func (c *Client) CreatePlan(ctx context.Context, goal string, opts ...AuthorOption) (*plannerv1.CreatePlanResponse, error) {
	req := &plannerv1.CreatePlanRequest{Goal: goal}
	for _, f := range opts {
		if err := f(req); err != nil {
			return nil, err
		}
	}
	return c.Planner.CreatePlan(ctx, req)
}
