package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// isolation has team A make one of everything, and team B look for it in every way there is.
func isolation(t *testing.T, s *suite) {
	epicID, taskID := s.account(t)
	var own run
	s.ask(t, request{path: "/v1/runs", body: map[string]any{"graph": s.compile(t, tripPlan), "taskId": taskID, "businessKey": "the-trip"}}, &own)
	own = s.awaitEnd(t, own.ID)

	for _, tc := range []struct {
		name, reason string
		r            request
	}{
		{"GetRun", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID}},
		{"GetRunGraph", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + "/graph"}},
		{"ListVisits", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + "/visits"}},
		{"WatchRun", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + "/events"}},
		{"CancelRun", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + ":cancel", body: map[string]any{}}},
		{"ResumeRun", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + ":resume", body: map[string]any{}}},
		{"ReconcileVisit", "RUN_NOT_FOUND", request{path: "/v1/runs/" + own.ID + ":reconcile",
			body: map[string]any{"visit": map[string]any{"nodeId": "n"}, "notPerformed": map[string]any{}}}},
		{"StartRunForItsTask", "TASK_NOT_FOUND", request{path: "/v1/runs", body: map[string]any{"graph": s.compile(t, tripPlan), "taskId": taskID}}},
		{"GetEpic", "EPIC_NOT_FOUND", request{path: "/v1/epics/" + epicID}},
		{"UpdateEpic", "EPIC_NOT_FOUND", request{method: http.MethodPatch, path: "/v1/epics/" + epicID, body: map[string]any{"title": "mine"}}},
		{"TransitionEpic", "EPIC_NOT_FOUND", request{path: "/v1/epics/" + epicID + ":transition", body: map[string]any{"state": "EPIC_STATE_PAUSED"}}},
		{"DeleteEpic", "EPIC_NOT_FOUND", request{method: http.MethodDelete, path: "/v1/epics/" + epicID}},
		{"GetTask", "TASK_NOT_FOUND", request{path: "/v1/tasks/" + taskID}},
		{"TransitionTask", "TASK_NOT_FOUND", request{path: "/v1/tasks/" + taskID + ":transition", body: map[string]any{"state": "TASK_STATE_CANCELED"}}},
		{"CreateTaskInItsEpic", "EPIC_NOT_FOUND", request{path: "/v1/tasks", body: map[string]any{"epicId": epicID, "title": "mine"}}},
	} {
		t.Run("NotFound/"+tc.name, func(t *testing.T) {
			tc.r.key = keyB
			status, body := s.do(t, tc.r)
			require.Equal(t, http.StatusNotFound, status, string(body))
			require.Contains(t, string(body), `"reason":"`+tc.reason+`"`)
		})
	}
	for _, path := range []string{"/v1/runs", "/v1/runs?business_key=the-trip", "/v1/epics", "/v1/tasks", "/v1/usage", "/v1/usage?run_id=" + own.ID} {
		t.Run("Lists/"+path, func(t *testing.T) {
			var list map[string]json.RawMessage
			s.ask(t, request{path: path, key: keyB}, &list)
			for name, items := range list {
				if name != "nextPageToken" {
					require.JSONEq(t, "[]", string(items), name)
				}
			}
			var full map[string]json.RawMessage
			s.ask(t, request{path: path}, &full)
			require.NotEqual(t, list, full, "the owner sees something")
		})
	}
	t.Run("Books/AreEmpty", func(t *testing.T) {
		var u namespaceUsage
		s.ask(t, request{path: "/v1/usage:namespace", key: keyB}, &u)
		require.Zero(t, u)
	})
	t.Run("BusinessKey/IsFreeElsewhere", func(t *testing.T) {
		graph := `{"graph":{"name":"g","nodes":[{"id":"n","actor":"template","named":{"text":"hi"}}]},"businessKey":"the-trip"}`
		var other run
		s.ask(t, request{path: "/v1/runs", body: graph, key: keyB}, &other)
		require.Equal(t, namespaceB, other.Namespace)
		require.NotEqual(t, own.ID, other.ID)
	})
	for name, tc := range map[string]struct {
		r      request
		status int
		reason string
	}{
		"Header/ChoosesNoOtherNamespace": {request{path: "/v1/runs", key: keyB, header: map[string]string{"X-Epigraph-Namespace": namespaceA}}, http.StatusForbidden, "NAMESPACE_DENIED"},
		"Key/Unknown":                    {request{path: "/v1/runs", key: "key-of-nobody"}, http.StatusUnauthorized, "CREDENTIALS_INVALID"},
		"Key/OfTheServices":              {request{path: "/v1/runs", key: "shared-by-the-services"}, http.StatusUnauthorized, "CREDENTIALS_INVALID"},
		"Key/Missing":                    {request{path: "/v1/runs", header: map[string]string{"Authorization": ""}}, http.StatusUnauthorized, "CREDENTIALS_MISSING"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := s.do(t, tc.r)
			require.Equal(t, tc.status, status, string(body))
			require.Contains(t, string(body), `"reason":"`+tc.reason+`"`)
		})
	}
	var after run
	s.ask(t, request{path: "/v1/runs/" + own.ID}, &after)
	require.Equal(t, own.State, after.State)
	require.Equal(t, own.LastSeq, after.LastSeq, "nothing that team B tried left a trace")
}
