package gateway_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestMisfitHidesNoFault checks that the author of a graph gets the unreadable parts together with the other
// faults of the graph.
func TestMisfitHidesNoFault(t *testing.T) {
	t.Parallel()
	const misspelled = `{"graph": {"nodes": [{"id": "a", "actor": "lmm", "nmed": {"x": 9007199254740993}}]}}`
	for _, c := range []struct {
		name, path, body string
		validate         func(context.Context, *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error)
		reason           string
		fields           []string
	}{
		{"Start/WithTheFaultsOfTheGraph", "/v1/runs", misspelled, func(_ context.Context, r *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
			if r.GetGraph().GetNodes()[0].GetActor() != "lmm" {
				return nil, errs.New(errs.Internal, "", "not the graph of the body")
			}
			return &executorv1.ValidateGraphResponse{Faults: []*graphv1.Fault{{NodeId: "a", Field: "actor", Code: "UNKNOWN_ACTOR", Message: `no actor is called "lmm"`, Hint: "did you mean llm?"}}}, nil
		}, "INVALID_BODY", []string{"graph.nodes[0].nmed", "graph.nodes[a].actor"}},
		{"Validate/WithTheFaultsOfTheGraph", "/v1/graphs:validate", misspelled, func(context.Context, *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
			return &executorv1.ValidateGraphResponse{Faults: []*graphv1.Fault{{Edge: "a -> b", Code: "UNKNOWN_NODE", Message: "there is no b"}}}, nil
		}, "INVALID_BODY", []string{"graph.nodes[0].nmed", "graph.edges[a -> b]"}},
		{"Start/OfARequestThatIsNotValid", "/v1/runs", misspelled, func(context.Context, *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
			return nil, errs.New(errs.InvalidArgument, "REQUEST_INVALID", "the request is not valid").Violate("graph.nodes", "REPEATED_MAX_ITEMS", "too many")
		}, "INVALID_BODY", []string{"graph.nodes[0].nmed", "graph.nodes"}},
		{"Start/NothingElse", "/v1/runs", misspelled, func(context.Context, *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
			return &executorv1.ValidateGraphResponse{}, nil
		}, "UNKNOWN_FIELD", []string{"graph.nodes[0].nmed"}},
		{"Start/ExecutorCannotSay", "/v1/runs", misspelled, nil, "UNKNOWN_FIELD", []string{"graph.nodes[0].nmed"}},
		{"Start/NoGraph", "/v1/runs", `{"grph": {}}`, nil, "UNKNOWN_FIELD", []string{"grph"}},
		{"Start/WrongNumber", "/v1/runs", `{"graph": {"nodes": [{"id": "a", "actor": 5, "retry": {"maxAttempts": "x"}, "timeout": "10"}]}, "named": {"k": 1}}`,
			func(_ context.Context, r *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
				if r.GetInput().GetNamed()["k"] == nil || r.GetGraph().GetNodes()[0].GetTimeout() != nil {
					return nil, errs.New(errs.Internal, "", "not what is left of the body")
				}
				return &executorv1.ValidateGraphResponse{Faults: []*graphv1.Fault{{NodeId: "a", Field: "actor", Code: "NO_ACTOR", Message: "no actor"},
					{NodeId: "a", Field: "when", Code: "BAD_EXPRESSION", Message: "no expression"}}}, nil
			}, "INVALID_BODY", []string{"graph.nodes[0].actor", "graph.nodes[0].retry.maxAttempts", "graph.nodes[0].timeout", "graph.nodes[a].when"}},
		{"Schedule/WithTheFaultsOfTheGraph", "/v1/schedules", `{"schedule": {"id": "s", "start": ` + misspelled + `}}`,
			func(_ context.Context, r *executorv1.ValidateGraphRequest) (*executorv1.ValidateGraphResponse, error) {
				return &executorv1.ValidateGraphResponse{Faults: []*graphv1.Fault{{NodeId: r.GetGraph().GetNodes()[0].GetId(), Field: "actor", Code: "UNKNOWN_ACTOR", Message: "none"}}}, nil
			}, "INVALID_BODY", []string{"schedule.start.graph.nodes[0].nmed", "schedule.start.graph.nodes[a].actor"}},
		{"Start/WrongTypeToo", "/v1/runs", `{"grph": {}, "taskId": 7}`, nil, "INVALID_BODY", []string{"grph", "taskId"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options{})
			r.executor.validate = c.validate
			r.executor.start = func(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
				return nil, errs.New(errs.Internal, "", "it was started")
			}
			res := r.call(t, "POST", c.path, c.body)
			e := res.error(t)
			require.Equal(t, c.reason, e.Reason, res.body)
			var fields []string
			for _, v := range e.Violations {
				fields = append(fields, v.Field)
			}
			require.Equal(t, c.fields, fields, res.body)
			require.NotContains(t, res.body, "started")
		})
	}
}
