package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func TestAdvice(t *testing.T) {
	t.Parallel()
	failed := func(reason, message string) *executorv1.Run {
		return &executorv1.Run{Id: "run_1", State: executorv1.RunState_RUN_STATE_FAILED, Error: &executorv1.RunError{Reason: reason, Message: message}}
	}
	t.Run("Model/OfTheRunOrOfOneBelow", func(t *testing.T) {
		require.Contains(t, advice(failed("MODEL_CALL_FAILED", "refused")), "OPENAI_BASE_URL")
		require.Contains(t, advice(failed("CHILD_FAILED", "child run_2 ended FAILED: MODEL_CALL_FAILED: refused")), "OPENAI_BASE_URL")
		require.Empty(t, advice(failed("CHILD_FAILED", "child run_2 ended FAILED: DRILL: boom")))
		require.Empty(t, advice(failed("CHILD_FAILED", "child run_2 ended FAILED: MODEL_CALL_FAILED: the request was recorded once (NOT_RECORDED)")), "a cassette is played")
	})
	t.Run("Resumed/IntoANewPauseSaysWhy", func(t *testing.T) {
		r := &executorv1.Run{Id: "run_1", State: executorv1.RunState_RUN_STATE_PAUSED, StateReason: "NEEDS_RECONCILIATION"}
		require.Equal(t, "run_1 is paused again (NEEDS_RECONCILIATION)\n", resumedText(r))
		require.Contains(t, advice(r), "`epigraph runs reconcile run_1 NODE`")
	})
}
