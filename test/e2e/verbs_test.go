package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// visit is what the tests look at of a visit.
type visit struct {
	NodeID, State, Actor string
	Values               []json.RawMessage
	Cached, Reused       bool
	Attempts             int
	Usage                *usage
	Wait                 *struct{ Kind, AttemptToken string }
}

func (s *suite) visits(t *testing.T, runID string) map[string]visit {
	t.Helper()
	var list struct{ Visits []visit }
	s.ask(t, request{path: "/v1/runs/" + runID + "/visits"}, &list)
	out := map[string]visit{}
	for _, v := range list.Visits {
		out[v.NodeID] = v
	}
	return out
}

func (s *suite) run(t *testing.T, body string) (r run) {
	t.Helper()
	s.ask(t, request{path: "/v1/runs", body: body}, &r)
	return r
}

// verbs uses the verbs of runs, and reads their results, over REST.
func verbs(t *testing.T, s *suite) {
	t.Run("Task/IsCompletedByItsToken", func(t *testing.T) {
		r := s.run(t, `{"graph":{"name":"task","nodes":[{"id":"w","actor":"completion"}]}}`)
		var token string
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			if w := s.visits(t, r.ID)["w"].Wait; w != nil {
				token = w.AttemptToken
			}
			return token != ""
		})
		status, body := s.do(t, request{path: "/v1/attempts:complete", key: keyB, body: map[string]any{"attemptToken": token, "completed": map[string]any{}}})
		require.NotEqual(t, http.StatusOK, status, "another tenant has the token: %s", body)
		for range 2 {
			s.ask(t, request{path: "/v1/attempts:complete", body: map[string]any{"attemptToken": token, "completed": map[string]any{"values": []any{map[string]any{"score": 7}}}}}, nil)
		}
		require.JSONEq(t, `{"score":7}`, string(s.awaitEnd(t, r.ID).Result))
	})
	t.Run("Expand/InsertsAGraph", func(t *testing.T) {
		r := s.run(t, `{"graph":{"name":"grows","nodes":[{"id":"e","actor":"expand","named":{"graph":{"nodes":[{"id":"x","actor":"template","named":{"text":"inserted"}}]}}}]}}`)
		end := s.awaitEnd(t, r.ID)
		require.JSONEq(t, `"inserted"`, string(end.Result))
		require.Equal(t, 2, end.Nodes.Completed)
		require.Equal(t, "VISIT_STATE_COMPLETED", s.visits(t, r.ID)["e#1/x"].State)
	})
	t.Run("Cache/HitIsShownAndFree", func(t *testing.T) {
		const g = `{"graph":{"name":"cached","nodes":[{"id":"c","actor":"llm","cache":{"ttl":"60s"},"named":{"request":"Say hello to the cache."}}]}}`
		first := s.awaitEnd(t, s.run(t, g).ID)
		require.Equal(t, "RUN_STATE_COMPLETED", first.State, "%v", first.Error)
		require.False(t, s.visits(t, first.ID)["c"].Cached)
		require.EqualValues(t, 1, first.Usage.Calls)
		asked := len(s.model.Requests())
		second := s.awaitEnd(t, s.run(t, g).ID)
		require.True(t, s.visits(t, second.ID)["c"].Cached)
		require.Equal(t, string(first.Result), string(second.Result))
		require.Zero(t, second.Usage)
		require.Len(t, s.model.Requests(), asked, "the model was asked again")
	})
	t.Run("Retry/TakesOverWhatCompleted", func(t *testing.T) {
		const g = `{"labels":{"verbs":"retry"},"graph":{"name":"breaks","nodes":[{"id":"a","actor":"template","named":{"text":"done"}},
			{"id":"b","actor":"fail","named":{"reason":"DISK_FULL","message":"no space left"}}],"edges":[{"from":"a","to":"b"}]}}`
		failed := s.awaitEnd(t, s.run(t, g).ID)
		require.Equal(t, "RUN_STATE_FAILED", failed.State)
		var again struct{ ID, ForkedFromRunID string }
		s.ask(t, request{path: "/v1/runs/" + failed.ID + ":retry", body: `{}`}, &again)
		require.Equal(t, failed.ID, again.ForkedFromRunID)
		require.Equal(t, "RUN_STATE_FAILED", s.awaitEnd(t, again.ID).State)
		vs := s.visits(t, again.ID)
		require.True(t, vs["a"].Reused)
		require.Zero(t, vs["a"].Attempts)
		require.False(t, vs["b"].Reused)
		var bulk struct {
			Matched  int
			RunIDs   []string
			Failures []any
		}
		s.ask(t, request{path: "/v1/runs:bulkRetry", body: `{"filter":{"labels":{"verbs":"retry"},"states":["RUN_STATE_FAILED"]},"dryRun":true}`}, &bulk)
		matched := bulk.Matched
		require.NotZero(t, matched)
		require.Empty(t, bulk.RunIDs)
		s.ask(t, request{path: "/v1/runs:bulkRetry", body: `{"filter":{"labels":{"verbs":"retry"},"states":["RUN_STATE_FAILED"]}}`}, &bulk)
		require.Len(t, bulk.RunIDs, matched)
		for _, id := range bulk.RunIDs {
			s.awaitEnd(t, id)
		}
	})
	t.Run("BulkCancel/EndsWhatTheFilterFinds", func(t *testing.T) {
		const g = `{"labels":{"verbs":"cancel"},"graph":{"name":"waits","nodes":[{"id":"s","actor":"signal","named":{"name":"go"}}]}}`
		ids := []string{s.run(t, g).ID, s.run(t, g).ID}
		kept := s.run(t, `{"graph":{"name":"waits","nodes":[{"id":"s","actor":"signal","named":{"name":"go"}}]}}`)
		var bulk struct{ Matched, Done int }
		s.ask(t, request{path: "/v1/runs:bulkCancel", body: `{"filter":{"labels":{"verbs":"cancel"}},"reason":"enough"}`}, &bulk)
		require.Equal(t, 2, bulk.Done)
		for _, id := range ids {
			require.Equal(t, "RUN_STATE_CANCELED", s.awaitEnd(t, id).State)
		}
		s.ask(t, request{path: "/v1/runs/" + kept.ID + ":signal", body: `{"name":"go","payload":1}`}, nil)
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, kept.ID).State)
	})
	t.Run("Schedule/StartsRuns", func(t *testing.T) {
		var sched struct {
			ID     string
			Paused bool
			Recent []struct{ RunID, Result string }
		}
		s.ask(t, request{path: "/v1/schedules", body: `{"schedule":{"id":"nightly","cron":"@yearly",
			"start":{"graph":{"name":"n","nodes":[{"id":"a","actor":"template","named":{"text":"ran"}}]}}}}`}, &sched)
		require.Equal(t, "nightly", sched.ID)
		var triggered struct {
			Start struct{ RunID, Result string }
		}
		s.ask(t, request{path: "/v1/schedules/nightly:trigger", body: `{"requestId":"once"}`}, &triggered)
		require.Equal(t, "STARTED", triggered.Start.Result)
		require.JSONEq(t, `"ran"`, string(s.awaitEnd(t, triggered.Start.RunID).Result))
		s.ask(t, request{path: "/v1/schedules/nightly:pause", body: `{"note":"for now"}`}, &sched)
		require.True(t, sched.Paused)
		s.ask(t, request{path: "/v1/schedules/nightly"}, &sched)
		require.Equal(t, triggered.Start.RunID, sched.Recent[0].RunID)
		status, _ := s.do(t, request{path: "/v1/schedules/nightly", key: keyB})
		require.Equal(t, http.StatusNotFound, status)
		s.ask(t, request{method: http.MethodDelete, path: "/v1/schedules/nightly"}, nil)
	})
	t.Run("Workers/AreListed", func(t *testing.T) {
		var list map[string]any
		s.ask(t, request{path: "/v1/workers"}, &list)
		require.Empty(t, list["workers"])
	})
	t.Run("Events/OfDescendantsToo", func(t *testing.T) {
		r := s.run(t, `{"graph":{"name":"family","nodes":[{"id":"d","actor":"spawn","named":{"runs":[{"graph":{"name":"child","nodes":[{"id":"c","actor":"template","named":{"text":"hi"}}]}}]}}]}}`)
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, r.ID).State)
		names, runs := map[string]bool{}, map[string]bool{}
		for _, e := range s.events(t, r.ID, "?include_descendants=true", "", 1000) {
			names[e.name] = true
			if id, ok := e.data["runId"].(string); ok {
				runs[id] = true
			}
		}
		require.Len(t, runs, 2, "the run and its child: %v", runs)
		for _, want := range []string{"run_started", "children_spawned", "child_ended", "attempt_ended", "run_ended", "end"} {
			require.True(t, names[want], "%s of %v", want, names)
		}
	})
}
