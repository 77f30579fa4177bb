package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	"github.com/epigraph-run/epigraph/workgraph"
)

// everything is the mask of an update that replaces all that can be changed.
var everything = &fieldmaskpb.FieldMask{Paths: []string{"*"}}

func TestLimits(t *testing.T) {
	t.Parallel()
	called, open := make(chan struct{}, 10), make(chan struct{})
	f := serve(t, workgraph.Actors{"slow": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
		called <- struct{}{}
		select {
		case <-open:
			return workgraph.Outcome{}, nil
		case <-ctx.Done():
			return workgraph.Outcome{}, context.Cause(ctx)
		}
	})})
	limits := executorv1.NewLimitServiceClient(f.conn)
	ctx := t.Context()
	put := func(l *executorv1.Limit) error {
		_, err := limits.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: l})
		return err
	}
	for name, l := range map[string]*executorv1.Limit{
		"NameOfNothing":     {Name: "queue/x", MaxConcurrent: 1},
		"NothingBounded":    {Name: "actor/slow"},
		"CallsOfNamespace":  {Name: "namespace", MaxConcurrent: 1},
		"RunsOfActor":       {Name: "actor/slow", MaxOpenRuns: 1},
		"IntervalOfNothing": {Name: "key/k", MaxConcurrent: 1, RateInterval: durationpb.New(time.Second)},
		"IntervalTooLong":   {Name: "key/k", MaxRate: 1, RateInterval: durationpb.New(48 * time.Hour)},
	} {
		require.Equal(t, errs.InvalidArgument, errs.From(put(l)).Kind, name)
	}
	require.NoError(t, put(&executorv1.Limit{Name: "actor/slow", MaxConcurrent: 1, MaxRate: 1000}))
	require.NoError(t, put(&executorv1.Limit{Name: "actor/slow", MaxConcurrent: 1, MaxRate: 1000}), "putting is repeatable")
	require.NoError(t, put(&executorv1.Limit{Name: "namespace", MaxOpenRuns: 100}))

	change := func(l *executorv1.Limit, paths ...string) (*executorv1.Limit, error) {
		l, err := limits.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{Limit: l, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return l, grpckit.FromStatus(err)
	}
	l, err := change(&executorv1.Limit{Name: "actor/slow", MaxConcurrent: 9, MaxRate: 2000}, "max_rate")
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2000}, []int32{l.GetMaxConcurrent(), l.GetMaxRate()}, "a mask changes what it names")
	l, err = change(&executorv1.Limit{Name: "actor/slow"}, "max_rate")
	require.NoError(t, err)
	require.Nil(t, l.GetRateInterval(), "the interval goes with its rate")
	l, err = change(&executorv1.Limit{Name: "actor/slow", MaxRate: 1000})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 1000}, []int32{l.GetMaxConcurrent(), l.GetMaxRate()}, "an absent mask names what is populated")
	_, err = change(&executorv1.Limit{Name: "actor/slow"}, "max_calls", "running")
	require.Equal(t, "UPDATE_MASK_INVALID", errs.ReasonOf(err))
	require.Equal(t, "max_calls: limit has no such field", errs.From(err).Violations[0].Message)
	require.Len(t, errs.From(err).Violations, 2)
	_, err = change(&executorv1.Limit{Name: "key/none", MaxConcurrent: 2})
	require.Equal(t, limit.ReasonNotFound, errs.ReasonOf(err))

	other, err := limits.ListLimits(grpckit.WithNamespace(ctx, "other"), &executorv1.ListLimitsRequest{})
	require.NoError(t, err)
	require.Empty(t, other.GetLimits())

	g := &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a", Actor: "slow"}, {Id: "b", Actor: "slow"}}}
	run, err := f.StartRun(ctx, &executorv1.StartRunRequest{Graph: g})
	require.NoError(t, err)
	<-called
	testkit.Eventually(t, func() bool {
		ls, err := limits.ListLimits(ctx, &executorv1.ListLimitsRequest{})
		require.NoError(t, err)
		a, n := ls.GetLimits()[0], ls.GetLimits()[1]
		require.Equal(t, time.Second, a.GetRateInterval().AsDuration())
		return a.GetRunning() == 1 && n.GetOpenRuns() == 1
	})
	require.Empty(t, called, "the second call waits")
	close(open)
	<-called
	testkit.Eventually(t, func() bool {
		r, err := f.GetRun(ctx, &executorv1.GetRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		return r.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
	})
	_, err = limits.DeleteLimit(ctx, &executorv1.DeleteLimitRequest{Name: "actor/slow"})
	require.NoError(t, err)
	_, err = limits.DeleteLimit(ctx, &executorv1.DeleteLimitRequest{Name: "actor/slow"})
	require.Equal(t, "LIMIT_NOT_FOUND", errs.ReasonOf(err))
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	called, open := make(chan string, 10), make(chan struct{})
	f := serve(t, workgraph.Actors{"slow": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		called <- c.Node
		select {
		case <-open:
			return workgraph.Outcome{}, nil
		case <-ctx.Done():
			return workgraph.Outcome{}, context.Cause(ctx)
		}
	})})
	ctx := t.Context()
	testkit.Eventually(t, func() bool { // the run that checked that the executor serves
		list, err := f.ListRuns(ctx, &executorv1.ListRunsRequest{})
		require.NoError(t, err)
		for _, r := range list.GetRuns() {
			if r.GetEndTime() == nil {
				return false
			}
		}
		return true
	})
	_, err := executorv1.NewLimitServiceClient(f.conn).UpdateLimit(ctx, &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: "namespace", MaxOpenRuns: 1, MaxPendingRuns: 2, MaxFanOut: 2}})
	require.NoError(t, err)
	start := func(priority int32, ids ...string) (*executorv1.Run, error) {
		g := &graphv1.Graph{}
		for _, id := range ids {
			g.Nodes = append(g.Nodes, &graphv1.Node{Id: id, Actor: "slow"})
		}
		return f.StartRun(ctx, &executorv1.StartRunRequest{Graph: g, Priority: priority})
	}
	first, err := start(0, "first")
	require.NoError(t, err)
	require.Equal(t, executorv1.RunState_RUN_STATE_RUNNING, first.GetState())
	require.Equal(t, "first", <-called)
	late, err := start(4, "late")
	require.NoError(t, err)
	require.Equal(t, executorv1.RunState_RUN_STATE_PENDING, late.GetState())
	soon, err := start(1, "soon")
	require.NoError(t, err)
	require.Equal(t, executorv1.RunState_RUN_STATE_PENDING, soon.GetState())
	_, err = start(1, "more")
	require.Equal(t, "QUOTA_EXCEEDED", errs.ReasonOf(err))
	_, err = start(1, "a", "b", "c")
	require.Equal(t, "QUOTA_EXCEEDED", errs.ReasonOf(err))
	require.Empty(t, called)
	close(open)
	require.ElementsMatch(t, []string{"soon", "late"}, []string{<-called, <-called})
	for _, r := range []*executorv1.Run{first, soon, late} {
		f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	}
}

func TestLimitOfAnUnknownActor(t *testing.T) {
	t.Parallel()
	f := serve(t, workgraph.Actors{"slow": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return workgraph.Outcome{}, nil })})
	for name, warning := range map[string]string{
		"actor/slow": "",
		"key/slo":    "",
		"actor/slwo": `no actor is called "slwo", so that the limit bounds nothing until one is; did you mean slow?`,
		"actor/qqq":  `no actor is called "qqq", so that the limit bounds nothing until one is`,
	} {
		l, err := executorv1.NewLimitServiceClient(f.conn).UpdateLimit(t.Context(), &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: name, MaxConcurrent: 1}})
		require.NoError(t, err)
		require.Equal(t, warning, l.GetWarning())
	}
}
