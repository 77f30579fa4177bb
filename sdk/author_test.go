package epigraph_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// authoring is a server that keeps what it is asked.
type authoring struct {
	plannerv1.UnimplementedPlannerServiceServer
	executorv1.UnimplementedExecutorServiceServer
	create *plannerv1.CreatePlanRequest
	revise *plannerv1.RevisePlanRequest
	stream *plannerv1.StreamPlanRequest
}

func (a *authoring) CreatePlan(_ context.Context, r *plannerv1.CreatePlanRequest) (*plannerv1.CreatePlanResponse, error) {
	a.create = r
	return &plannerv1.CreatePlanResponse{Text: "[]"}, nil
}

func (a *authoring) StreamPlan(r *plannerv1.StreamPlanRequest, s grpc.ServerStreamingServer[plannerv1.StreamPlanResponse]) error {
	a.stream = r
	if err := s.Send(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Run{Run: &plannerv1.PlanRunStarted{RunId: "run_7"}}}); err != nil {
		return err
	}
	if err := s.Send(&plannerv1.StreamPlanResponse{Event: &plannerv1.StreamPlanResponse_Text{Text: &plannerv1.PlanText{Round: 1, Text: "a"}}}); err != nil {
		return err
	}
	st, err := status.New(codes.FailedPrecondition, "it ended").WithDetails(&errdetails.ErrorInfo{Reason: "PLAN_RUN_ENDED", Domain: "epigraph.run"})
	if err != nil {
		return err
	}
	return st.Err()
}

func (a *authoring) RevisePlan(_ context.Context, r *plannerv1.RevisePlanRequest) (*plannerv1.RevisePlanResponse, error) {
	a.revise = r
	return &plannerv1.RevisePlanResponse{Amendment: &executorv1.AmendRunRequest{RunId: r.GetRunId()}}, nil
}

func (*authoring) GetRun(_ context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.GetRunId(), GraphRevision: 4}, nil
}

func (*authoring) GetRunGraph(context.Context, *executorv1.GetRunGraphRequest) (*executorv1.GetRunGraphResponse, error) {
	return &executorv1.GetRunGraphResponse{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "A"}}}}, nil
}

func (*authoring) ListVisits(context.Context, *executorv1.ListVisitsRequest) (*executorv1.ListVisitsResponse, error) {
	return &executorv1.ListVisitsResponse{Visits: []*executorv1.Visit{
		{NodeId: "A", Visit: 1, State: executorv1.VisitState_VISIT_STATE_FAILED}, {NodeId: "A", Visit: 2, State: executorv1.VisitState_VISIT_STATE_RUNNING},
	}}, nil
}

func TestAuthor(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*epigraph.Client, *authoring) {
		t.Helper()
		a := &authoring{}
		return dialed(t, func(s *grpc.Server) {
			plannerv1.RegisterPlannerServiceServer(s, a)
			executorv1.RegisterExecutorServiceServer(s, a)
		}), a
	}
	opts := []epigraph.AuthorOption{
		epigraph.PlanContext("it rains"), epigraph.PlanTool("search", "searches", map[string]any{"type": "object"}), epigraph.PlanTool("http", "asks", nil),
		epigraph.PlanProfile("smart"), epigraph.PlanActor("agent"), epigraph.PlanNamed("team", "north"), epigraph.PlanName("trip"),
		epigraph.PlanLimits(2, 1000, time.Minute), epigraph.PlanBudget(7),
	}
	t.Run("CreatePlan/SendsItsOptions", func(t *testing.T) {
		t.Parallel()
		c, a := open(t)
		r, err := c.CreatePlan(t.Context(), "fly", opts...)
		require.NoError(t, err)
		require.Equal(t, "[]", r.GetText())
		got := a.create
		require.Equal(t, []string{"fly", "it rains", "smart", "agent", "trip"}, []string{got.GetGoal(), got.GetContext(), got.GetProfile(), got.GetDefaultActor(), got.GetName()})
		require.Equal(t, `{"type":"object"}`, string(got.GetTools()[0].GetSchema().GetJson()))
		require.Nil(t, got.GetTools()[1].GetSchema())
		require.Equal(t, `"north"`, string(got.GetNamed()["team"].GetJson()))
		l := got.GetLimits()
		require.Equal(t, []int64{2, 1000, 60, 7}, []int64{int64(l.GetMaxRounds()), l.GetMaxTokens(), l.GetTimeout().GetSeconds(), l.GetMaxCostNanoUsd()})
	})
	t.Run("RunPlan/SendsItsOptionsAndYieldsTheEvents", func(t *testing.T) {
		t.Parallel()
		c, a := open(t)
		var got []string
		for m, err := range c.RunPlan(t.Context(), "fly", []epigraph.StartOption{epigraph.RequestID("r"), epigraph.Named("x", 1), epigraph.Priority(3)}, opts...) {
			if err != nil {
				got = append(got, epigraph.ReasonOf(err))
				continue
			}
			got = append(got, m.GetRun().GetRunId()+m.GetText().GetText())
		}
		require.Equal(t, []string{"run_7", "a", "PLAN_RUN_ENDED"}, got)
		require.Equal(t, []string{"fly", "it rains", "r"}, []string{a.stream.GetPlan().GetGoal(), a.stream.GetPlan().GetContext(), a.stream.GetRun().GetRequestId()})
		require.EqualValues(t, 3, a.stream.GetRun().GetPriority())
		require.Equal(t, "1", string(a.stream.GetRun().GetNamed()["x"].GetJson()))
		for _, err := range c.RunPlan(t.Context(), "fly", []epigraph.StartOption{epigraph.StartAt(time.Now())}) {
			require.ErrorContains(t, err, "StartAt")
		}
		for _, err := range c.StreamPlan(t.Context(), "fly", opts...) {
			require.NoError(t, err)
			break
		}
		require.Nil(t, a.stream.GetRun())
	})
	t.Run("Revise/SendsTheLastVisitOfEachNode", func(t *testing.T) {
		t.Parallel()
		c, a := open(t)
		r, err := c.Run("run_1").Revise(t.Context(), "fly", opts...)
		require.NoError(t, err)
		require.Equal(t, "run_1", r.GetAmendment().GetRunId())
		got := a.revise
		require.EqualValues(t, 4, got.GetExpectedRevision())
		require.Len(t, got.GetGraph().GetNodes(), 1)
		require.Len(t, got.GetVisits(), 1)
		require.Equal(t, executorv1.VisitState_VISIT_STATE_RUNNING, got.GetVisits()[0].GetState())
		require.Equal(t, []string{"it rains", "smart", "agent"}, []string{got.GetContext(), got.GetProfile(), got.GetDefaultActor()})
		require.Len(t, got.GetTools(), 2)
		require.EqualValues(t, 7, got.GetLimits().GetMaxCostNanoUsd())
	})
}

// dialed is a client of a server with what register adds.
func dialed(t *testing.T, register func(*grpc.Server)) *epigraph.Client {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(lis) }()
	c, err := epigraph.Dial(lis.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		s.Stop()
	})
	return c
}
