package rpc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/plan"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/rpc"
)

// TestAdmission holds that a planner counts its work with that of the other services of its process.
func TestAdmission(t *testing.T) {
	c := &admission.Control{}
	s := rpc.New(plan.Limits{}, c, nil)
	leave, err := c.Enter(t.Context(), "a", admission.PerNamespace)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	req := &plannerv1.ParsePlanRequest{Text: strings.Repeat("# nothing\n", 20_000)}
	_, err = s.ParsePlan(grpckit.WithNamespace(ended, "a"), req)
	require.Equal(t, admission.ReasonBusy, errs.ReasonOf(err), "got %v", err)
	_, err = s.ParsePlan(grpckit.WithNamespace(t.Context(), "b"), req)
	require.NotEqual(t, admission.ReasonBusy, errs.ReasonOf(err))
	leave()
}
