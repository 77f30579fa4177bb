package e2e_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// awaitReason polls until the run stands still for a reason, or has ended.
func (s *suite) awaitReason(t *testing.T, runID, reason string) (r run) {
	t.Helper()
	testkit.Within(t, timeout, 10*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + runID}, &r)
		return r.ended() || r.State == "RUN_STATE_PAUSED" && r.StateReason == reason
	})
	require.Equal(t, []string{"RUN_STATE_PAUSED", reason}, []string{r.State, r.StateReason})
	return r
}

// pricesAway runs calls under a cap in money while the registry is down, and kills and restarts the executor
// meanwhile.
func pricesAway(t *testing.T, s *suite) {
	begin := func(budget string) (r run) {
		s.ask(t, request{path: "/v1/runs", body: `{"graph":{"name":"capped","nodes":[{"id":"w","actor":"signal","named":{"name":"go"}},
			{"id":"a","actor":"llm","named":{"request":"one"}},{"id":"b","actor":"llm","named":{"request":"two"}},{"id":"c","actor":"llm","named":{"request":"three"}}],
			"edges":[{"from":"w","to":"a"},{"from":"a","to":"b"},{"from":"b","to":"c"}]}, "budget": ` + budget + `}`}, &r)
		return r
	}
	two := `{"nanoUsd":"` + strconv.Itoa(2*callCost) + `"}`
	tight, ample, none := begin(two), begin(`{"nanoUsd":"1000000000"}`), begin(`{"tokens":"1000000"}`)
	s.procs["registry"].stop(t)
	for _, r := range []run{tight, ample, none} {
		s.ask(t, request{path: "/v1/runs/" + r.ID + ":signal", body: `{"name":"go","payload":1}`}, nil)
	}
	require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, none.ID).State, "runs without a cap in money do not wait for the registry")
	for _, r := range []run{tight, ample} {
		r = s.awaitReason(t, r.ID, "BUDGET_UNSETTLED")
		require.Equal(t, 2, r.Nodes.Completed, "what was under way has ended")
		require.EqualValues(t, callInput, r.Usage.InputTokens)
	}
	var x struct {
		Summary  string
		Blockers []struct{ Kind, Name, Message string }
	}
	s.ask(t, request{path: "/v1/runs/" + tight.ID + ":explain"}, &x)
	require.Equal(t, "BLOCKER_KIND_BUDGET", x.Blockers[0].Kind)
	require.Equal(t, "BUDGET_UNSETTLED", x.Blockers[0].Name)
	status, answer := s.do(t, request{path: "/v1/runs/" + tight.ID + ":resume", body: `{}`})
	require.Equal(t, http.StatusServiceUnavailable, status, string(answer))
	require.Contains(t, string(answer), `"reason":"BUDGET_UNSETTLED"`)

	s.procs["executor"].kill()
	s.serve(t, "executor", s.procs["executor"].addr)
	s.awaitReason(t, tight.ID, "BUDGET_UNSETTLED")
	s.restart(t, "registry")

	s.awaitReason(t, tight.ID, "BUDGET_EXHAUSTED")
	require.Len(t, s.attemptsOf(tight.ID), 2, "the cap holds")
	body := `{"requestId":"more-of-it","budget":{"nanoUsd":"1000000000"}}`
	s.ask(t, request{path: "/v1/runs/" + tight.ID + ":resume", body: body}, nil)
	s.ask(t, request{path: "/v1/runs/" + tight.ID + ":resume", body: body}, nil)
	status, answer = s.do(t, request{path: "/v1/runs/" + tight.ID + ":resume", body: `{"requestId":"more-of-it","budget":{"nanoUsd":"2000000000"}}`})
	require.Equal(t, http.StatusBadRequest, status, string(answer))
	require.Contains(t, string(answer), `"reason":"REQUEST_ID_REUSED"`)
	for _, r := range []run{tight, ample} {
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, r.ID).State)
		require.Len(t, s.attemptsOf(r.ID), 3, "nothing was called again")
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			var got run
			s.ask(t, request{path: "/v1/runs/" + r.ID}, &got)
			return int64(got.Usage.CostNanoUsd) == 3*callCost
		})
	}
	events := s.events(t, tight.ID, "?durable_only=true", "", 1000)
	settled := 0
	for _, e := range events {
		if e.name == "usage_settled" {
			settled++
		}
	}
	require.Equal(t, 1, settled)
}
