package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner"
)

// client serves a planner behind the suite's interceptors and dials it.
func client(t *testing.T) plannerv1.PlannerServiceClient {
	t.Helper()
	return clientOf(t, planner.DefaultConfig())
}

func clientOf(t *testing.T, cfg planner.Config) plannerv1.PlannerServiceClient {
	t.Helper()
	return clientWith(t, cfg, planner.Deps{})
}

func clientWith(t *testing.T, cfg planner.Config, d planner.Deps) plannerv1.PlannerServiceClient {
	t.Helper()
	s, err := planner.Open(t.Context(), cfg, d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return plannerv1.NewPlannerServiceClient(servedWith(t, "planner", grpckit.Options{Telemetry: d.Telemetry}, s.Register))
}

// served serves what register adds, behind the suite's interceptors, and dials it.
func served(t *testing.T, name string, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	return servedWith(t, name, grpckit.Options{}, register)
}

func servedWith(t *testing.T, name string, o grpckit.Options, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	server, err := grpckit.NewServer(o)
	require.NoError(t, err)
	register(server)
	var net grpckit.BufNet
	lis, err := net.Listen(name)
	require.NoError(t, err)
	go func() { _ = server.Serve(lis) }()
	conn, err := grpckit.Dial(name, grpckit.DialOptions{Buf: &net})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
	})
	return conn
}

func TestParsePlan(t *testing.T) {
	t.Parallel()
	c := client(t)
	t.Run("AnswersWithTheGraph", func(t *testing.T) {
		t.Parallel()
		r, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "A -> B\nC"})
		require.NoError(t, err)
		require.Len(t, r.GetGraph().GetProblems(), 3)
		require.Equal(t, planv1.EdgeSource_EDGE_SOURCE_STATED, r.GetGraph().GetEdges()[0].GetSource())
		require.NotEmpty(t, r.GetHash())
	})
	t.Run("NoPlanIsAnAnswer", func(t *testing.T) {
		t.Parallel()
		r, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "I'm sorry, but I cannot help with that."})
		require.NoError(t, err)
		require.True(t, r.GetNoPlan())
		require.NotEmpty(t, r.GetNoPlanReason())
	})
	t.Run("RefusesAnUnknownDialect", func(t *testing.T) {
		t.Parallel()
		_, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "A -> B", Dialect: "klingon"})
		require.Equal(t, "UNKNOWN_DIALECT", errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.InvalidArgument))
	})
	t.Run("RefusesAnOversizedText", func(t *testing.T) {
		t.Parallel()
		_, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: string(make([]byte, 5<<20))})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	})
}

func TestCompilePlan(t *testing.T) {
	t.Parallel()
	c := client(t)
	text := func(s string) *plannerv1.CompilePlanRequest {
		return &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: s}}
	}
	t.Run("MakesAGraphThatValidates", func(t *testing.T) {
		t.Parallel()
		req := text("A -> B, C\nB, C -> D")
		req.Actors = map[string]string{"D": "template"}
		req.Named = map[string]*graphv1.Payload{"model": {Json: []byte(`"m"`)}}
		r, err := c.CompilePlan(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, r.GetGraph().GetNodes(), 4)
		require.Equal(t, "template", r.GetGraph().GetNodes()[3].GetActor())
	})
	t.Run("NamesEveryFault", func(t *testing.T) {
		t.Parallel()
		_, err := c.CompilePlan(t.Context(), text("A -> B\nB -> A\nC -> C"))
		e := errs.From(err)
		require.Equal(t, "PLAN_INVALID", e.Reason)
		var codes []string
		for _, v := range e.Violations {
			codes = append(codes, v.Reason)
		}
		require.Contains(t, codes, "CYCLE")
		require.Contains(t, codes, "SELF_LOOP")
		require.NotEmpty(t, e.HintText())
	})
	t.Run("SaysThatThereIsNoPlan", func(t *testing.T) {
		t.Parallel()
		_, err := c.CompilePlan(t.Context(), text("Nice weather today."))
		require.Equal(t, "NO_PLAN", errs.ReasonOf(err))
	})
	t.Run("AcceptsARepairOnOffer", func(t *testing.T) {
		t.Parallel()
		const reused = `{"task_nodes": [{"task": "get"}, {"task": "cut"}, {"task": "get"}], "task_links": [{"source": "get", "target": "cut"}, {"source": "cut", "target": "get"}]}`
		_, err := c.CompilePlan(t.Context(), text(reused))
		require.Equal(t, "PLAN_INVALID", errs.ReasonOf(err))
		require.Contains(t, errs.From(err).HintText(), "REUSED_TOOL")
		req := text(reused)
		req.AcceptRepairs = []string{"REUSED_TOOL"}
		r, err := c.CompilePlan(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, r.GetGraph().GetEdges(), 2)
	})
	t.Run("RefusesARepairThatIsNotOnOffer", func(t *testing.T) {
		t.Parallel()
		req := text("A -> B")
		req.AcceptRepairs = []string{"REUSED_TOOL"}
		_, err := c.CompilePlan(t.Context(), req)
		require.Equal(t, "REPAIR_NOT_OFFERED", errs.ReasonOf(err))
	})
	t.Run("TakesAProblemGraph", func(t *testing.T) {
		t.Parallel()
		parsed, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: "A -> B"})
		require.NoError(t, err)
		fromGraph, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Graph{Graph: parsed.GetGraph()}})
		require.NoError(t, err)
		fromText, err := c.CompilePlan(t.Context(), text("A -> B"))
		require.NoError(t, err)
		require.Equal(t, fromText.GetGraphHash(), fromGraph.GetGraphHash())
	})
	t.Run("NeedsAPlan", func(t *testing.T) {
		t.Parallel()
		_, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{})
		require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := planner.Open(t.Context(), planner.Config{MaxProblems: 1}, planner.Deps{})
	require.ErrorContains(t, err, "planner.max_text_bytes")
	require.ErrorContains(t, err, "planner.max_edges")
}
