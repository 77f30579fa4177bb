package rpc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/plan"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/rpc"
)

// TestAdmission holds that a planner counts its work with that of the other services of its process.
func TestAdmission(t *testing.T) {
	c := &admission.Control{}
	s := rpc.New(plan.Limits{}, c, turns.New(1), nil)
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

// TestTurns holds that what a namespace has read takes turns, however small: another one finds a processor.
func TestTurns(t *testing.T) {
	computing := turns.New(1)
	s := rpc.New(plan.Limits{}, &admission.Control{}, computing, nil)
	leave, err := computing.Enter(t.Context(), "a")
	require.NoError(t, err)
	parse := func(ctx context.Context, namespace string) error {
		_, err := s.ParsePlan(grpckit.WithNamespace(ctx, namespace), &plannerv1.ParsePlanRequest{Text: "A -> B"})
		return err
	}
	compile := func(ctx context.Context, namespace string) error {
		_, err := s.CompilePlan(grpckit.WithNamespace(ctx, namespace), &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: "A -> B"}})
		return err
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, do := range []func(context.Context, string) error{parse, compile} {
		require.Equal(t, admission.ReasonBusy, errs.ReasonOf(do(ended, "a")))
		require.NoError(t, do(t.Context(), "b"))
	}
	leave()
	require.NoError(t, parse(t.Context(), "a"))
	require.NoError(t, compile(t.Context(), "a"))
	require.Zero(t, computing.Keys(), "every turn is given back")
}
