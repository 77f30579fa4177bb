package main

import (
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// listed are all elements of a list without an error.
func listed[T any](t *testing.T, list iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for x, err := range list {
		require.NoError(t, err)
		out = append(out, x)
	}
	return out
}

// TestSDK calls the whole suite as a program in Go does.
func TestSDK(t *testing.T) {
	d := serve(t, fakellm.Script{Models: []string{"fake-1"}, Default: fakellm.Reply{Text: "done"}})
	c, err := epigraph.Dial(d.GRPCAddr(), epigraph.WithPlanner(d.GRPCAddr()), epigraph.WithRegistry("passthrough:///"+d.GRPCAddr()))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ctx := t.Context()
	template := func(id string, opts ...func(*workgraph.Node)) *workgraph.Graph {
		return workgraph.NewBuilder("g").Node(id, "template", opts...).Graph()
	}

	t.Run("Runs/AreListedReadAndDeleted", func(t *testing.T) {
		var ids []string
		for range 3 {
			r, err := c.StartRun(ctx, template("a", workgraph.Named("text", "hello")), epigraph.Label("list", "me"))
			require.NoError(t, err)
			_, err = r.Wait(ctx)
			require.NoError(t, err)
			ids = append([]string{r.ID}, ids...)
		}
		filter := &executorv1.ListRunsRequest{Labels: map[string]string{"list": "me"}, PageSize: 2}
		var got []string
		for _, r := range listed(t, c.Runs(ctx, filter)) {
			got = append(got, r.GetId())
		}
		require.Equal(t, ids, got, "over pages, newest first")
		require.Empty(t, filter.GetPageToken(), "the filter is the caller's")
		for r, err := range c.Runs(ctx, nil) {
			require.NoError(t, err)
			require.NotEmpty(t, r.GetId())
			break
		}
		visits := listed(t, c.Run(ids[0]).Visits(ctx, ""))
		require.Len(t, visits, 1)
		require.Equal(t, "a", visits[0].GetNodeId())
		require.NoError(t, c.Run(ids[0]).Delete(ctx))
		_, err := c.Run(ids[0]).Get(ctx)
		require.Equal(t, "RUN_NOT_FOUND", epigraph.ReasonOf(err))
		for _, err := range c.Run(ids[0]).Visits(ctx, "") {
			require.Equal(t, "RUN_NOT_FOUND", epigraph.ReasonOf(err), "an error is the last pair")
		}

		open, err := c.StartRun(ctx, workgraph.NewBuilder("g").Node("s", "sleep", workgraph.Named("duration", "1h")).Graph())
		require.NoError(t, err)
		require.Equal(t, "RUN_NOT_ENDED", epigraph.ReasonOf(open.Delete(ctx)))
		require.NoError(t, open.Cancel(ctx, "enough"))
	})

	t.Run("Builder/MapRetryOnErrorAndArguments", func(t *testing.T) {
		g := workgraph.NewBuilder("g").
			Node("each", "cel", workgraph.Named("expr", "item * 2"), workgraph.WithMap(workgraph.Map{Over: "[1, 2, 3]", MaxParallel: 2})).
			Node("bad", "fail", workgraph.Named("type", "RETRYABLE"), workgraph.WithRetry(workgraph.Retry{MaxAttempts: 2, InitialBackoff: workgraph.Duration(time.Millisecond)}),
				workgraph.WithOnError(workgraph.FallbackTo(map[string]int{"left": 7}))).
			Node("first", "cel", workgraph.Named("expr", "args[0]"), workgraph.Arg("of the node")).Graph()
		r, err := c.StartRun(ctx, g, epigraph.Arg("of the run"))
		require.NoError(t, err)
		m, err := r.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, m.GetState(), "%v", m.GetError())
		visits := map[string]*executorv1.Visit{}
		for _, v := range listed(t, r.Visits(ctx, "")) {
			visits[v.GetNodeId()] = v
		}
		require.Equal(t, int32(3), visits["each"].GetItemsTotal())
		require.Equal(t, int32(2), visits["bad"].GetAttempts())
		require.JSONEq(t, `{"left": 7}`, string(visits["bad"].GetValues()[0].GetJson()))
		require.JSONEq(t, `"of the node"`, string(visits["first"].GetValues()[0].GetJson()), "a node's own arguments come before propagated ones")

		_, err = c.StartRun(ctx, template("a", workgraph.Named("text", func() {})))
		require.Error(t, err, "what is no JSON is refused")
	})

	t.Run("Reconcile/SaysWhatBecameOfACall", func(t *testing.T) {
		unsafe := func(n *workgraph.Node) { n.Effect = workgraph.Unsafe }
		unknown := workgraph.NewBuilder("pay").Node("pay", "fail", unsafe, workgraph.Named("type", "UNKNOWN"), workgraph.Named("attempts", 1), workgraph.Named("value", "paid")).Graph()
		for _, s := range []struct {
			outcome epigraph.AttemptOutcome
			state   executorv1.RunState
			result  string
		}{
			{epigraph.Performed("by hand"), executorv1.RunState_RUN_STATE_COMPLETED, `"by hand"`},
			{epigraph.FailedAttempt("DECLINED", "no money"), executorv1.RunState_RUN_STATE_FAILED, ""},
			{epigraph.NotPerformed(), executorv1.RunState_RUN_STATE_COMPLETED, `"paid"`},
		} {
			r, err := c.StartRun(ctx, unknown)
			require.NoError(t, err)
			var visit *executorv1.VisitRef
			testkit.Eventually(t, func() bool {
				x, err := r.Explain(ctx)
				require.NoError(t, err)
				for _, b := range x.GetBlockers() {
					if b.GetKind() == executorv1.BlockerKind_BLOCKER_KIND_RECONCILIATION {
						visit = b.GetVisit()
					}
				}
				return visit != nil
			})
			require.NoError(t, r.Reconcile(ctx, visit, s.outcome, "ada"))
			if m, err := r.Get(ctx); err == nil && !epigraph.Ended(m.GetState()) {
				if err := r.Resume(ctx, ""); err != nil { // it may have ended meanwhile
					m, again := r.Get(ctx)
					require.NoError(t, again)
					require.True(t, epigraph.Ended(m.GetState()), "%v", err)
				}
			}
			m, err := r.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, s.state, m.GetState())
			if s.result != "" {
				require.JSONEq(t, s.result, string(m.GetResult().GetJson()))
			}
		}
	})

	t.Run("Plan/IsReadCompiledAndRun", func(t *testing.T) {
		p, err := c.ParsePlan(ctx, "A -> B")
		require.NoError(t, err)
		require.Len(t, p.GetGraph().GetProblems(), 2)
		m, err := c.CompilePlan(ctx, "A -> B", epigraph.DefaultActor("template"), epigraph.ForAll("text", "did {{ node }}"), epigraph.ActorOf("B", "cel"),
			epigraph.GraphName("two"))
		require.NoError(t, err)
		require.Equal(t, "cel", m.GetGraph().GetNodes()[1].GetActor())
		m, err = c.CompilePlan(ctx, "A -> B", epigraph.DefaultActor("template"), epigraph.ForAll("text", "did {{ node }}"), epigraph.GraphName("two"))
		require.NoError(t, err)
		r, err := c.StartGraph(ctx, m.GetGraph())
		require.NoError(t, err)
		text, err := epigraph.Result[string](ctx, r)
		require.NoError(t, err)
		require.Equal(t, "did B", text)
		_, err = c.CompilePlan(ctx, "nothing to do here")
		require.Equal(t, "NO_PLAN", epigraph.ReasonOf(err))
	})

	t.Run("Schedule/ThatOfTheExampleStartsRunsThatComplete", func(t *testing.T) {
		report := workgraph.NewBuilder("report").Node("write", "llm", workgraph.Named("request", "What happened yesterday?")).Graph()
		nightly, err := c.CreateSchedule(ctx, "nightly", "0 3 * * *", report,
			epigraph.TimeZone("Europe/Berlin"), epigraph.CatchUp(time.Hour), epigraph.Starting(epigraph.Label("by", "clock")))
		require.NoError(t, err)
		starts, err := nightly.Backfill(ctx, time.Now().Add(-25*time.Hour), time.Now(), executorv1.OverlapPolicy_OVERLAP_POLICY_QUEUE_ALL)
		require.NoError(t, err)
		require.NotEmpty(t, starts)
		text, err := epigraph.Result[string](ctx, c.Run(starts[0].GetRunId()))
		require.NoError(t, err)
		require.Equal(t, "done", text)
		require.Len(t, listed(t, c.Schedules(ctx)), 1)
		require.NoError(t, nightly.Delete(ctx))
	})

	t.Run("Books/EpicsTasksUsageAndPrices", func(t *testing.T) {
		e, err := c.CreateEpic(ctx, &registryv1.Epic{Title: "Ship it"})
		require.NoError(t, err)
		e, err = c.UpdateEpic(ctx, e.GetId(), func(e *registryv1.Epic) { e.Title, e.Tags = "Ship it now", []string{"q2"} })
		require.NoError(t, err)
		require.Equal(t, "Ship it now", e.GetTitle())
		require.Len(t, listed(t, c.Epics(ctx, &registryv1.ListEpicsRequest{Tags: []string{"q2"}})), 1)
		task, err := c.CreateTask(ctx, &registryv1.Task{EpicId: e.GetId(), Title: "Write"})
		require.NoError(t, err)
		task, err = c.UpdateTask(ctx, task.GetId(), func(t *registryv1.Task) { t.Title = "Write it" })
		require.NoError(t, err)
		require.Equal(t, "Write it", task.GetTitle())
		require.Len(t, listed(t, c.Tasks(ctx, &registryv1.ListTasksRequest{EpicId: e.GetId()})), 1)

		price, err := c.SetPrice(ctx, &registryv1.Price{Model: "fake-1", ValidFrom: timestamppb.New(time.Now().Add(-time.Hour)), InputPerMillion: 1e9, OutputPerMillion: 2e9})
		require.NoError(t, err)
		require.Equal(t, price.GetId(), listed(t, c.Prices(ctx, "", "fake-1"))[0].GetId())
		r, err := c.StartRun(ctx, workgraph.NewBuilder("g").Node("a", "llm", workgraph.Named("request", "write")).Graph(), epigraph.Task(task.GetId()))
		require.NoError(t, err)
		_, err = r.Wait(ctx)
		require.NoError(t, err)
		testkit.Eventually(t, func() bool {
			return len(listed(t, c.Usage(ctx, &registryv1.ListUsageRequest{TaskId: task.GetId()}))) == 1
		})
		all, err := c.NamespaceUsage(ctx)
		require.NoError(t, err)
		require.Positive(t, all.GetSpentNanoUsd())

		e, err = c.Epic(ctx, e.GetId())
		require.NoError(t, err)
		require.Positive(t, e.GetSpentTokens())
		late, err := c.CreateTask(ctx, &registryv1.Task{EpicId: e.GetId(), Title: "Not needed"})
		require.NoError(t, err)
		late, err = c.TransitionTask(ctx, late.GetId(), registryv1.TaskState_TASK_STATE_CANCELED, "not needed")
		require.NoError(t, err)
		require.Equal(t, registryv1.TaskState_TASK_STATE_CANCELED, late.GetState())
		require.NoError(t, c.DeleteTask(ctx, late.GetId()))
		_, err = c.GetTask(ctx, late.GetId())
		require.Equal(t, "TASK_NOT_FOUND", epigraph.ReasonOf(err))
		e, err = c.TransitionEpic(ctx, e.GetId(), registryv1.EpicState_EPIC_STATE_COMPLETED, "shipped")
		require.NoError(t, err)
		require.Equal(t, "shipped", e.GetResultSummary())
		require.NoError(t, c.DeleteEpic(ctx, e.GetId()))
		_, err = c.Epic(ctx, e.GetId())
		require.Equal(t, "EPIC_NOT_FOUND", epigraph.ReasonOf(err))
	})
}
