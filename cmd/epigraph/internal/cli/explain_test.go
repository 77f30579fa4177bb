package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func TestExplainTextSaysItOnce(t *testing.T) {
	t.Parallel()
	said := "the run has ended: FAILED: pay failed with HTTP_STATUS: 503"
	require.Equal(t, "run_1 failed\n- ended: "+said+"\n", explainText(&env{}, &executorv1.ExplainRunResponse{
		RunId: "run_1", State: executorv1.RunState_RUN_STATE_FAILED, Summary: said + " (and 1 more)",
		Blockers: []*executorv1.Blocker{{Kind: executorv1.BlockerKind_BLOCKER_KIND_ENDED, Message: said}},
	}))
}

func TestExplainText(t *testing.T) {
	t.Parallel()
	visit := &executorv1.VisitRef{NodeId: "pay", Visit: 1}
	got := explainText(&env{}, &executorv1.ExplainRunResponse{
		RunId: "run_1", State: executorv1.RunState_RUN_STATE_FAILED, Summary: "the run has ended: FAILED (and 1 more)",
		Blockers: []*executorv1.Blocker{
			{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_ENDED, Visit: visit, Attempt: 3, MaxAttempts: 3, Hint: "`epigraph runs retry run_1` starts a new run that repeats the failed visits",
				Message: "the run has ended: FAILED: pay failed at attempt 3 of 3 with HTTP_STATUS: 503",
				Error:   &executorv1.RunError{Reason: "HTTP_STATUS", Message: "503", NodeId: "pay", Visit: 1},
			},
			{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_CHILD_FAILED, Visit: visit, RunIds: []string{"run_2"}, Message: "child run run_2 ended FAILED at n: CEL: column 3: nothing is called \"foo\" here",
				Error: &executorv1.RunError{Reason: "CEL", Message: "column 3: nothing is called \"foo\" here\n1+foo\n  ^", NodeId: "n", Visit: 1},
			},
			{
				Kind: executorv1.BlockerKind_BLOCKER_KIND_BACKOFF, Visit: &executorv1.VisitRef{NodeId: "b", Visit: 2}, Attempt: 2, MaxAttempts: 5, Message: "b@2 failed and is tried again",
				Error: &executorv1.RunError{Reason: "BUSY", Message: "later"},
			},
		},
	})
	require.Equal(t, `run_1 failed: the run has ended: FAILED (and 1 more)
- ended pay: the run has ended: FAILED: pay failed at attempt 3 of 3 with HTTP_STATUS: 503
    `+"`epigraph runs retry run_1`"+` starts a new run that repeats the failed visits
- child failed pay: child run run_2 ended FAILED at n: CEL: column 3: nothing is called "foo" here
    CEL: column 3: nothing is called "foo" here
      1+foo
        ^
    runs run_2
- backoff b@2: b@2 failed and is tried again
    BUSY: later
`, got)
}
