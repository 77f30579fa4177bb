package planner_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner"
)

const (
	unsure    = plannerv1.RestatePolicy_RESTATE_POLICY_WHEN_UNSURE
	weather   = "Nice weather, so someone ought to mow the lawn. Once the lawn looks good we could invite the neighbors."
	faithful  = `{"steps": [{"n": 1, "id": "", "request": "mow the lawn", "quote": "mow the lawn", "needs": []}, {"n": 2, "id": "", "request": "invite the neighbors", "quote": "invite the neighbors", "needs": [{"n": 1, "quote": "Once the lawn looks good"}]}]}`
	invention = `{"steps": [{"n": 1, "id": "", "request": "sell the house", "quote": "sell the house", "needs": []}]}`
)

// restating serves a planner with a scripted model.
func restating(t *testing.T, script fakellm.Script) (plannerv1.PlannerServiceClient, *fakellm.Server) {
	t.Helper()
	fake := fakellm.New(script)
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	cfg := planner.DefaultConfig()
	cfg.Restate.Profile = "small"
	cfg.Models.Change("small", func(p *llm.Profile) { p.BaseURL, p.Model = s.URL+"/v1", "small-1" })
	return clientOf(t, cfg), fake
}

func TestRestate(t *testing.T) {
	t.Parallel()
	parse := func(t *testing.T, c plannerv1.PlannerServiceClient, text string) *plannerv1.ParsePlanResponse {
		t.Helper()
		r, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: text, Restate: unsure})
		require.NoError(t, err)
		return r
	}
	says := func(text string) fakellm.Script {
		return fakellm.Script{Default: fakellm.Reply{Text: text, Usage: fakellm.Usage{Input: 11, Output: 7}}}
	}
	codes := func(r *plannerv1.ParsePlanResponse) (out []string) {
		for _, d := range r.GetDiagnostics() {
			require.NotEqual(t, planv1.Severity_SEVERITY_ERROR, d.GetSeverity())
			out = append(out, d.GetCode())
		}
		return out
	}
	t.Run("TakesWhatIsFoundAgain", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, says(faithful))
		r := parse(t, c, weather)
		require.False(t, r.GetNoPlan())
		require.Len(t, r.GetGraph().GetProblems(), 2)
		require.Len(t, r.GetGraph().GetEdges(), 1)
		require.Equal(t, "RESTATED", r.GetRepairs()[len(r.GetRepairs())-1].GetCode())
		restatement := r.GetRestatement()
		require.True(t, restatement.GetAccepted())
		require.Equal(t, "small-1", restatement.GetModel())
		require.EqualValues(t, 1, restatement.GetCalls())
		require.EqualValues(t, 11, restatement.GetInputTokens())
		require.EqualValues(t, 7, restatement.GetOutputTokens())
		require.Contains(t, fake.Requests()[0].Messages[1].Content, weather)
		compiled, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: weather}, Restate: unsure})
		require.NoError(t, err)
		require.Len(t, compiled.GetGraph().GetNodes(), 2)
		require.True(t, compiled.GetPlan().GetRestatement().GetAccepted())
	})
	t.Run("TellsTheModelWhatIsMissingAndAsksOnceMore", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, fakellm.Script{Rules: []fakellm.Rule{{Match: "refused", Reply: fakellm.Reply{Text: faithful}}}, Default: fakellm.Reply{Text: invention}})
		r := parse(t, c, weather)
		require.True(t, r.GetRestatement().GetAccepted())
		require.EqualValues(t, 2, r.GetRestatement().GetCalls())
		require.Contains(t, fake.Requests()[1].Messages[3].Content, "sell the house")
	})
	t.Run("RefusesAnInvention", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, says(invention))
		r := parse(t, c, weather)
		require.True(t, r.GetNoPlan())
		require.False(t, r.GetRestatement().GetAccepted())
		require.EqualValues(t, 22, r.GetRestatement().GetInputTokens(), "what was refused was used all the same")
		require.Equal(t, []string{"RESTATEMENT_REFUSED"}, codes(r))
		require.Len(t, fake.Requests(), 2)
		_, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: weather}, Restate: unsure})
		require.Equal(t, "NO_PLAN", errs.ReasonOf(err))
		require.Equal(t, "RESTATEMENT_REFUSED", errs.From(err).Violations[0].Reason)
	})
	t.Run("AsksNobodyWhereThereIsNoDoubt", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, says(faithful))
		for _, text := range []string{"", " \n", "A -> B\nC", "I'm sorry, but I cannot help with that."} {
			require.Nil(t, parse(t, c, text).GetRestatement(), text)
		}
		r, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: weather})
		require.NoError(t, err)
		require.True(t, r.GetNoPlan())
		require.Empty(t, fake.Requests())
	})
	t.Run("AModelThatFailsChangesNothing", func(t *testing.T) {
		t.Parallel()
		for name, reply := range map[string]fakellm.Reply{
			"fault": {Fault: fakellm.Unauthorized}, "passing fault": {Fault: fakellm.ServerError}, "cut off": {Text: faithful, FinishReason: "length"},
		} {
			c, _ := restating(t, fakellm.Script{Default: reply})
			r := parse(t, c, weather)
			require.True(t, r.GetNoPlan(), name)
			require.Equal(t, []string{"RESTATEMENT_FAILED"}, codes(r), name)
		}
	})
	t.Run("ALongTextIsNotSent", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, says(faithful))
		r := parse(t, c, strings.Repeat("Nice weather today. ", 2000))
		require.Equal(t, []string{"RESTATEMENT_FAILED"}, codes(r))
		require.Empty(t, fake.Requests())
	})
	t.Run("WithoutAModelItIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := client(t).ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: weather, Restate: unsure})
		require.Equal(t, "RESTATE_NOT_CONFIGURED", errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.FailedPrecondition))
	})
	t.Run("AGraphIsNotRestated", func(t *testing.T) {
		t.Parallel()
		c, _ := restating(t, says(faithful))
		_, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Restate: unsure, Plan: &plannerv1.CompilePlanRequest_Graph{
			Graph: &planv1.ProblemGraph{Problems: []*planv1.Problem{{Id: "a"}}}}})
		require.Equal(t, "RESTATE_NEEDS_TEXT", errs.ReasonOf(err))
	})
	t.Run("ANeighborIsNotHeldUp", func(t *testing.T) {
		t.Parallel()
		c, fake := restating(t, fakellm.Script{Rules: []fakellm.Rule{{Match: "picnic", Reply: fakellm.Reply{Fault: fakellm.Hang}}}, Default: fakellm.Reply{Text: faithful}})
		crowd, end := context.WithCancel(t.Context())
		ended := make(chan error, 20)
		for range cap(ended) {
			go func() {
				_, err := c.ParsePlan(grpckit.WithNamespace(crowd, "a"), &plannerv1.ParsePlanRequest{Text: weather + " A picnic, too.", Restate: unsure})
				ended <- err
			}()
		}
		testkit.Eventually(t, func() bool { return len(fake.Requests()) == 4 })
		r, err := c.ParsePlan(grpckit.WithNamespace(t.Context(), "b"), &plannerv1.ParsePlanRequest{Text: weather, Restate: unsure})
		require.NoError(t, err)
		require.True(t, r.GetRestatement().GetAccepted())
		require.Len(t, fake.Requests(), 5)
		end()
		for range cap(ended) {
			require.Error(t, <-ended)
		}
	})
}

func TestRestateConfig(t *testing.T) {
	t.Parallel()
	cfg := planner.DefaultConfig()
	cfg.Restate.Attempts = 9
	require.NoError(t, cfg.Validate(), "without a model the rest is of no use")
	cfg.Restate.Profile = "default"
	require.ErrorContains(t, cfg.Validate(), "planner.restate: attempts")
}
