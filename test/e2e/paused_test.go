package e2e_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// awaitPause polls until the run stands still for a reason, or has ended.
func (s *suite) awaitPause(t *testing.T, runID string) (r run) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		s.ask(t, request{path: "/v1/runs/" + runID}, &r)
		return r.ended() || r.State == "RUN_STATE_PAUSED"
	})
	require.Equal(t, "RUN_STATE_PAUSED", r.State)
	return r
}

// paused pauses runs and resumes them over REST.
func paused(t *testing.T, s *suite) {
	post := func(t *testing.T, id, verb, body string) (r run) {
		s.ask(t, request{path: "/v1/runs/" + id + ":" + verb, body: body}, &r)
		return r
	}
	refused := func(t *testing.T, id, verb, body string, status int, reason string) {
		got, answer := s.do(t, request{path: "/v1/runs/" + id + ":" + verb, body: body})
		require.Equal(t, status, got, string(answer))
		require.Contains(t, string(answer), `"reason":"`+reason+`"`)
	}
	t.Run("Loop/GetsItsVisitsAgain", func(t *testing.T) {
		var r run
		s.ask(t, request{path: "/v1/runs", body: `{"graph":{"name":"loop","nodes":[{"id":"a","actor":"template","named":{"text":"x"},"maxVisits":2}],
			"edges":[{"from":"a","to":"a","kind":"EDGE_KIND_BACK","when":"visit < 3"}]}}`}, &r)
		r = s.awaitPause(t, r.ID)
		require.Equal(t, "MAX_VISITS", r.StateReason)
		refused(t, r.ID, "resume", `{"etag":"\"99\""}`, http.StatusConflict, "ETAG_MISMATCH")
		post(t, r.ID, "resume", `{"reason":"once more","etag":`+strconv.Quote(r.Etag)+`}`)
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, r.ID).State)
		refused(t, r.ID, "resume", `{}`, http.StatusBadRequest, "RUN_NOT_PAUSED")
	})
	unclear := func(t *testing.T) run {
		var r run
		s.ask(t, request{path: "/v1/runs", body: `{"graph":{"name":"pay","nodes":[{"id":"pay","actor":"fail","effect":"EFFECT_UNSAFE",
			"named":{"type":"UNKNOWN","attempts":1,"value":"paid"}}]}}`}, &r)
		r = s.awaitPause(t, r.ID)
		require.Equal(t, "NEEDS_RECONCILIATION", r.StateReason)
		return r
	}
	t.Run("Unsafe/PerformedAsSaid", func(t *testing.T) {
		r := unclear(t)
		refused(t, r.ID, "resume", `{}`, http.StatusBadRequest, "RECONCILIATION_NEEDED")
		refused(t, r.ID, "reconcile", `{"visit":{"nodeId":"pay"}}`, http.StatusBadRequest, "REQUEST_INVALID")
		refused(t, r.ID, "reconcile", `{"visit":{"nodeId":"pay","visit":2},"notPerformed":{}}`, http.StatusBadRequest, "VISIT_NOT_IN_RECONCILIATION")
		// The only node: nothing is left to wait for.
		got := post(t, r.ID, "reconcile", `{"visit":{"nodeId":"pay","visit":1},"performed":{"values":[{"receipt":[1,"two"]}]},"by":"ada"}`)
		require.Equal(t, "RUN_STATE_COMPLETED", got.State)
		require.JSONEq(t, `{"receipt":[1,"two"]}`, string(got.Result))
		status, visits := s.do(t, request{path: "/v1/runs/" + r.ID + "/visits"})
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(visits), `"VISIT_STATE_COMPLETED"`)
	})
	t.Run("Unsafe/NotPerformedIsCalledOnceMore", func(t *testing.T) {
		r := unclear(t)
		require.Equal(t, "RUN_STATE_PAUSED", post(t, r.ID, "reconcile", `{"visit":{"nodeId":"pay"},"notPerformed":{}}`).State)
		post(t, r.ID, "resume", `{}`)
		r = s.awaitEnd(t, r.ID)
		require.JSONEq(t, `"paid"`, string(r.Result))
	})
	t.Run("Unsafe/FailedFailsTheRun", func(t *testing.T) {
		r := post(t, unclear(t).ID, "reconcile", `{"visit":{"nodeId":"pay"},"failed":{"reason":"DECLINED","message":"no money"}}`)
		require.Equal(t, "RUN_STATE_FAILED", r.State)
		require.Equal(t, "DECLINED", r.Error.Reason)
	})
}
