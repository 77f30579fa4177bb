package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner"
)

// Every call of a model is below the span of its authoring, and that is below the request.
func TestSpans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		method  string
		ask     func(plannerv1.PlannerServiceClient) error
		failed  string
	}{
		"Create/Repaired": {[]string{dangling, sound}, "CreatePlan", func(c plannerv1.PlannerServiceClient) error {
			_, err := c.CreatePlan(t.Context(), goal())
			return err
		}, ""},
		"Create/NoPlan": {[]string{dangling, dangling}, "CreatePlan", func(c plannerv1.PlannerServiceClient) error {
			_, err := c.CreatePlan(t.Context(), goal())
			return err
		}, "NO_PROGRESS"},
		"Stream": {[]string{sound}, "StreamPlan", func(c plannerv1.PlannerServiceClient) error {
			s, err := c.StreamPlan(t.Context(), &plannerv1.StreamPlanRequest{Plan: goal()})
			if err != nil {
				return err
			}
			return (&told{}).hear(s, nil)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans, tel := tracetest.NewInMemoryExporter(), obs.Noop()
			tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
			client, _ := writingWith(t, answers(c.answers...), planner.Deps{Telemetry: tel}, nil)
			require.NoError(t, c.ask(client))
			var plan, request tracetest.SpanStubs
			method := "epigraph.planner.v1.PlannerService/" + c.method
			testkit.Eventually(t, func() bool {
				plan, request = named(spans, "plan"), named(spans, method)
				return len(plan) > 0 && len(request) > 0
			})
			require.Len(t, plan, 1)
			require.Equal(t, request[0].SpanContext.SpanID(), plan[0].Parent.SpanID())
			require.Contains(t, plan[0].Attributes, genai.OperationName.String("plan"))
			asked := named(spans, "chat fake-1")
			require.Len(t, asked, len(c.answers))
			for _, one := range asked {
				require.Equal(t, plan[0].SpanContext.SpanID(), one.Parent.SpanID())
			}
			require.Equal(t, c.failed != "", plan[0].Status.Code == codes.Error)
			if c.failed != "" {
				require.Contains(t, plan[0].Attributes, genai.ErrorType.String(c.failed))
			}
		})
	}
}

func named(spans *tracetest.InMemoryExporter, name string) (out tracetest.SpanStubs) {
	for _, s := range spans.GetSpans() {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}
