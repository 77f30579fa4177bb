package executor_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The management calls of the SDK, against a service that listens on a port.
func TestSDKManages(t *testing.T) {
	t.Parallel()
	c := open(t, "one", nil).sdk()
	says := func(id, text string) *workgraph.Graph {
		return workgraph.NewBuilder("says").Node(id, "template", workgraph.Named("text", json.RawMessage(`"`+text+`"`))).Graph()
	}
	text := func(s string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"text": json.RawMessage(`"` + s + `"`)}
	}

	t.Run("Amend/ComparesFirstAndExpectsARevision", func(t *testing.T) {
		g := workgraph.NewBuilder("slow").Node("hold", "sleep", workgraph.Named("duration", json.RawMessage(`"1h"`))).
			Node("say", "template", workgraph.Named("text", json.RawMessage(`"old"`))).Chain("hold", "say").Graph()
		run, err := c.StartRun(t.Context(), g)
		require.NoError(t, err)
		defer func() { require.NoError(t, run.Cancel(t.Context(), "enough")) }()
		now, revision, err := run.Graph(t.Context())
		require.NoError(t, err)
		require.Len(t, now.GetNodes(), 2)

		p := workgraph.Patch{PutNodes: []workgraph.Node{{ID: "say", Actor: "template", Named: text("new")}, {ID: "more", Actor: "template", Named: text("more")}},
			AddEdges: []workgraph.Edge{{From: "say", To: "more"}}}
		diff, err := run.Compare(t.Context(), p, revision)
		require.NoError(t, err)
		require.Equal(t, []string{"more"}, diff.GetAddedNodes())
		require.Equal(t, "say", diff.GetChangedNodes()[0].GetNodeId())
		_, same, err := run.Graph(t.Context())
		require.NoError(t, err)
		require.Equal(t, revision, same, "nothing has changed")

		m, err := run.Amend(t.Context(), p, revision, epigraph.AmendedBy("ada"), epigraph.AmendRequestID("once"))
		require.NoError(t, err)
		require.Equal(t, revision+1, m.GetDiff().GetGraphRevision())
		m, err = run.Amend(t.Context(), p, revision, epigraph.AmendedBy("ada"), epigraph.AmendRequestID("once"))
		require.NoError(t, err, "the same request again")
		require.Equal(t, revision+1, m.GetDiff().GetGraphRevision())
		_, err = run.Amend(t.Context(), p, revision)
		require.Equal(t, "GRAPH_REVISION_MISMATCH", epigraph.ReasonOf(err), "%v", err)
		_, err = run.Compare(t.Context(), workgraph.Patch{AddEdges: []workgraph.Edge{{From: "a", To: "b", Kind: "SIDEWAYS"}}}, revision)
		require.Equal(t, "PATCH_INVALID", epigraph.ReasonOf(err))
	})

	t.Run("Fork/GoesAnotherWayFromANode", func(t *testing.T) {
		g := workgraph.NewBuilder("two").Node("a", "template", workgraph.Named("text", json.RawMessage(`"a"`))).
			Node("b", "template", workgraph.Named("text", json.RawMessage(`"b"`))).Chain("a", "b").Graph()
		run, err := c.StartRun(t.Context(), g)
		require.NoError(t, err)
		_, err = run.Wait(t.Context())
		require.NoError(t, err)
		fork, err := run.ForkFrom(t.Context(), "b", epigraph.ForkNamed("text", "other"))
		require.NoError(t, err)
		got, err := epigraph.Result[string](t.Context(), fork)
		require.NoError(t, err)
		require.Equal(t, "other", got)
		_, err = run.ForkFrom(t.Context(), "nowhere")
		require.Error(t, err)
		_, err = run.ForkFrom(t.Context(), "b", epigraph.ForkNamed("text", func() {}))
		require.Equal(t, "PAYLOAD_INVALID", epigraph.ReasonOf(err))
	})

	t.Run("Schedule/FromItsMakingToItsEnd", func(t *testing.T) {
		s, err := c.CreateSchedule(t.Context(), "nightly", "0 3 * * *", says("n", "hi"), epigraph.TimeZone("Europe/Berlin"),
			epigraph.Overlap(executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW), epigraph.CatchUp(time.Hour), epigraph.Jitter(time.Minute),
			epigraph.Starting(epigraph.Label("by", "clock"), epigraph.Priority(3)))
		require.NoError(t, err)
		_, err = c.CreateSchedule(t.Context(), "nightly", "@daily", says("n", "hi"))
		require.Equal(t, "SCHEDULE_ALREADY_EXISTS", epigraph.ReasonOf(err))
		_, err = c.CreateSchedule(t.Context(), "odd", "5-1 * * * *", says("n", "hi"))
		require.Equal(t, "SCHEDULE_INVALID", epigraph.ReasonOf(err))
		m, err := s.Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, []any{"Europe/Berlin", "clock", time.Hour}, []any{m.GetTimeZone(), m.GetStart().GetLabels()["by"], m.GetCatchupWindow().AsDuration()})
		require.Len(t, m.GetNextTimes(), 5)

		require.NoError(t, s.Pause(t.Context(), "holidays"))
		m, err = s.Update(t.Context(), func(m *executorv1.Schedule) { m.Cron = "0 4 * * *" })
		require.NoError(t, err)
		require.Equal(t, []any{"0 4 * * *", true, "holidays"}, []any{m.GetCron(), m.GetPaused(), m.GetNote()})
		require.NoError(t, s.Resume(t.Context(), "back"))

		end := time.Now().Add(-time.Hour)
		starts, err := s.Backfill(t.Context(), end.Add(-72*time.Hour), end, 0)
		require.NoError(t, err)
		require.Len(t, starts, 3)
		start, err := s.Trigger(t.Context())
		require.NoError(t, err)
		testkit.Eventually(t, func() bool { // an executor with much to do may leave it to the schedule's job
			m, err := s.Get(t.Context())
			require.NoError(t, err)
			start = m.GetRecent()[0]
			return start.GetRunId() != ""
		})
		got, err := epigraph.Result[string](t.Context(), c.Run(start.GetRunId()))
		require.NoError(t, err)
		require.Equal(t, "hi", got)

		_, err = c.CreateSchedule(t.Context(), "asleep", "@every 1s", says("n", "hi"), epigraph.Paused("not yet"), epigraph.Between(time.Now().Add(time.Hour), time.Time{}))
		require.NoError(t, err)
		var ids []string
		for m, err := range c.Schedules(t.Context()) {
			require.NoError(t, err)
			ids = append(ids, m.GetId())
		}
		require.Equal(t, []string{"asleep", "nightly"}, ids)
		require.NoError(t, s.Delete(t.Context()))
		_, err = c.Schedule("nightly").Get(t.Context())
		require.Equal(t, "SCHEDULE_NOT_FOUND", epigraph.ReasonOf(err))
	})

	t.Run("Limit/IsSetReadAndTakenAway", func(t *testing.T) {
		name := epigraph.ActorLimit("template")
		_, err := c.Limit(t.Context(), name)
		require.Equal(t, "LIMIT_NOT_FOUND", epigraph.ReasonOf(err))
		_, err = c.SetLimit(t.Context(), name, epigraph.AtOnce(4), epigraph.Rate(600, time.Minute))
		require.NoError(t, err)
		_, err = c.SetLimit(t.Context(), epigraph.NamespaceLimit, epigraph.OpenRuns(100), epigraph.PendingRuns(50), epigraph.FanOut(500), epigraph.Bytes(1<<30),
			epigraph.Retention(72*time.Hour))
		require.NoError(t, err)
		whole, err := c.Limit(t.Context(), epigraph.NamespaceLimit)
		require.NoError(t, err)
		require.Equal(t, 72*time.Hour, whole.GetRetention().AsDuration())
		_, err = c.SetLimit(t.Context(), epigraph.NamespaceLimit, epigraph.Retention(time.Second))
		require.Equal(t, "limit.retention", violated(err))
		_, err = c.SetLimit(t.Context(), epigraph.KeyLimit("customer 7"), epigraph.AtOnce(2))
		require.NoError(t, err)
		l, err := c.Limit(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, []any{int32(4), int32(600), time.Minute}, []any{l.GetMaxConcurrent(), l.GetMaxRate(), l.GetRateInterval().AsDuration()})
		all, err := c.Limits(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.NoError(t, c.DeleteLimit(t.Context(), name))
		require.Equal(t, "LIMIT_NOT_FOUND", epigraph.ReasonOf(c.DeleteLimit(t.Context(), name)))
		_, err = c.SetLimit(t.Context(), "nonsense", epigraph.AtOnce(1))
		require.Error(t, err)
	})
}

// violated is the first field that an error names.
func violated(err error) string {
	if e, ok := errors.AsType[*epigraph.Error](err); ok && len(e.Violations) > 0 {
		return e.Violations[0].Field
	}
	return ""
}
