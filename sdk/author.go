package epigraph

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
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
	req, err := planRequest(goal, opts)
	if err != nil {
		return nil, err
	}
	return c.Planner.CreatePlan(ctx, req)
}

func planRequest(goal string, opts []AuthorOption) (*plannerv1.CreatePlanRequest, error) {
	req := &plannerv1.CreatePlanRequest{Goal: goal}
	for _, f := range opts {
		if err := f(req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// StreamPlan is CreatePlan that yields what happens while the model writes: pieces of its answer, the parts
// of the plan that are certain, the rounds, and the result as the last event. The iteration ends after the
// result, with ctx, or with an error, which is then the last pair. A caller that leaves early ends the
// authoring.
func (c *Client) StreamPlan(ctx context.Context, goal string, opts ...AuthorOption) iter.Seq2[*plannerv1.StreamPlanResponse, error] {
	return c.streamPlan(ctx, goal, nil, opts)
}

// RunPlan is StreamPlan that starts a run first, which the first event names. Its tasks begin as soon as
// their part is certain. UNSAFE ones, and all behind them, wait for the whole plan. The run is canceled if no
// plan comes, or if the caller leaves before the result. StartAt and the conflict policies of BusinessKey are
// refused. RequestID makes the call repeatable: a repeat is told the run, and nothing else.
func (c *Client) RunPlan(ctx context.Context, goal string, start []StartOption, opts ...AuthorOption) iter.Seq2[*plannerv1.StreamPlanResponse, error] {
	req, err := startRequest(nil, start)
	if err == nil && (req.GetStartTime() != nil || req.GetConflictPolicy() > executorv1.ConflictPolicy_CONFLICT_POLICY_FAIL) {
		err = errors.New("epigraph: a plan that is being written takes no StartAt, and no policy for its business key but to fail")
	}
	if err != nil {
		return func(yield func(*plannerv1.StreamPlanResponse, error) bool) { yield(nil, err) }
	}
	return c.streamPlan(ctx, goal, &plannerv1.PlanRun{
		Args: req.GetArgs(), Named: req.GetNamed(), TaskId: req.GetTaskId(), UserId: req.GetUserId(), ChatId: req.GetChatId(), ThreadId: req.GetThreadId(),
		Context: req.GetContext(), Attachments: req.GetAttachments(), Metadata: req.GetMetadata(), Labels: req.GetLabels(), BusinessKey: req.GetBusinessKey(),
		RequestId: req.GetRequestId(), Priority: req.GetPriority(), Timeout: req.GetTimeout(), Budget: req.GetBudget(), Webhooks: req.GetWebhooks(),
	}, opts)
}

func (c *Client) streamPlan(ctx context.Context, goal string, run *plannerv1.PlanRun, opts []AuthorOption) iter.Seq2[*plannerv1.StreamPlanResponse, error] {
	return func(yield func(*plannerv1.StreamPlanResponse, error) bool) {
		req, err := planRequest(goal, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		stream, err := c.Planner.StreamPlan(ctx, &plannerv1.StreamPlanRequest{Plan: req, Run: run})
		for err == nil {
			var m *plannerv1.StreamPlanResponse
			if m, err = stream.Recv(); err == nil && !yield(m, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
		}
	}
}

// Revise has a model write anew what is left of the run, for the goal. Visits that have begun stay as they
// are. The answer has the request for Executor.AmendRun, which nothing but the caller makes. Without an
// amendment, its authoring says why there is none. PlanName has no effect. Pause the run before, so that
// nothing begins in the meantime.
func (r *Run) Revise(ctx context.Context, goal string, opts ...AuthorOption) (*plannerv1.RevisePlanResponse, error) {
	how, err := planRequest(goal, opts)
	if err != nil {
		return nil, err
	}
	g, revision, err := r.Graph(ctx)
	if err != nil {
		return nil, err
	}
	req := &plannerv1.RevisePlanRequest{
		RunId: r.ID, ExpectedRevision: revision, Graph: g, Goal: goal, Context: how.GetContext(), Tools: how.GetTools(), Profile: how.GetProfile(),
		DefaultActor: how.GetDefaultActor(), Named: how.GetNamed(), Limits: how.GetLimits(),
	}
	last := map[string]int{}
	for v, err := range r.Visits(ctx, "") {
		if err != nil {
			return nil, err
		}
		at, seen := last[v.GetNodeId()]
		if !seen {
			at = len(req.Visits)
			last[v.GetNodeId()] = at
			req.Visits = append(req.Visits, nil)
		}
		req.Visits[at] = &executorv1.Visit{NodeId: v.GetNodeId(), State: v.GetState(), Attempts: v.GetAttempts(), Values: v.GetValues(), Error: v.GetError()}
	}
	return r.c.Planner.RevisePlan(ctx, req)
}
