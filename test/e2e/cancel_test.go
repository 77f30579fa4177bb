package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// epicAtWork is an epic with three tasks whose runs are under way: in a call, asleep, and waiting for a
// signal. Each has paid for one call of the model if paid.
type epicAtWork struct {
	id          string
	tasks, runs []string
}

func (s *suite) epicAtWork(t *testing.T, key string, paid bool) epicAtWork {
	t.Helper()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	var made struct{ ID string }
	s.ask(t, request{path: "/v1/epics", key: key, body: `{"title":"not wanted for long"}`}, &made)
	e := epicAtWork{id: made.ID}
	last := []string{
		`{"id":"last","actor":"sleep","named":{"duration":"1h"}}`,
		`{"id":"last","actor":"signal","named":{"name":"go"}}`,
		`{"id":"last","actor":"signal","named":{"name":"go"}}`,
	}
	state := []string{"RUN_STATE_WAITING", "RUN_STATE_WAITING", "RUN_STATE_WAITING"}
	before := `{"id":"first","actor":"template","named":{"text":"hi"}}`
	if paid {
		before = `{"id":"first","actor":"llm","named":{"request":"Begin."}}`
		last[2], state[2] = fmt.Sprintf(`{"id":"last","actor":"http","named":{"url":%q}}`, slow.URL), "RUN_STATE_RUNNING"
	}
	for i, node := range last {
		s.ask(t, request{path: "/v1/tasks", key: key, body: map[string]any{"epicId": e.id, "title": fmt.Sprint(i)}}, &made)
		e.tasks = append(e.tasks, made.ID)
		var r run
		s.ask(t, request{path: "/v1/runs", key: key, body: map[string]any{"taskId": made.ID,
			"graph": json.RawMessage(`{"nodes":[` + before + `,` + node + `],"edges":[{"from":"first","to":"last"}]}`)}}, &r)
		e.runs = append(e.runs, r.ID)
	}
	for i, id := range e.runs {
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			var r run
			s.ask(t, request{path: "/v1/runs/" + id, key: key}, &r)
			return r.State == state[i] && r.Nodes.Completed == 1
		})
	}
	return e
}

// requireCanceled waits until every run has ended CANCELED and the tasks have what their runs cost.
func (e epicAtWork) requireCanceled(t *testing.T, s *suite, key string, cost int64) {
	t.Helper()
	for i, id := range e.runs {
		var r run
		var task struct {
			State, ResultSummary string
			ActualNanoUsd        int64String
		}
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			s.ask(t, request{path: "/v1/runs/" + id, key: key}, &r)
			s.ask(t, request{path: "/v1/tasks/" + e.tasks[i], key: key}, &task)
			return r.ended() && int64(task.ActualNanoUsd) == cost
		}, "run %s", id)
		require.Equal(t, "RUN_STATE_CANCELED", r.State, "%+v", r.Error)
		require.Equal(t, "TASK_STATE_CANCELED", task.State)
		require.Empty(t, task.ResultSummary)
	}
	var epic struct {
		State        string
		SpentNanoUsd int64String
	}
	s.ask(t, request{path: "/v1/epics/" + e.id, key: key}, &epic)
	require.Equal(t, "EPIC_STATE_CANCELED", epic.State)
	require.EqualValues(t, int64(len(e.runs))*cost, epic.SpentNanoUsd)
}

func (s *suite) cancelEpic(t *testing.T, key, id string) {
	t.Helper()
	s.ask(t, request{path: "/v1/epics/" + id + ":transition", key: key, body: `{"state":"EPIC_STATE_CANCELED"}`}, nil)
}

// cancelWhileUp cancels an epic, and a task alone.
func cancelWhileUp(t *testing.T, s *suite) {
	e, other := s.epicAtWork(t, keyA, true), s.epicAtWork(t, keyA, true)
	begin := time.Now()
	s.cancelEpic(t, keyA, e.id)
	s.ask(t, request{path: "/v1/tasks/" + other.tasks[0] + ":transition", body: `{"state":"TASK_STATE_CANCELED"}`}, nil)
	e.requireCanceled(t, s, keyA, callCost)
	t.Logf("the runs of a canceled epic had ended after %s", time.Since(begin).Round(time.Millisecond))
	require.Equal(t, "RUN_STATE_CANCELED", s.awaitEnd(t, other.runs[0]).State)
	for _, id := range other.runs[1:] {
		var r run
		s.ask(t, request{path: "/v1/runs/" + id}, &r)
		require.False(t, r.ended(), "its task was not canceled")
	}
	s.cancelEpic(t, keyA, other.id)
	other.requireCanceled(t, s, keyA, callCost)
}

// cancelWhileDown kills the executor, cancels an epic, and starts the executor again.
func cancelWhileDown(t *testing.T, s *suite) {
	e := s.epicAtWork(t, keyA, true)
	s.procs["executor"].kill()
	s.cancelEpic(t, keyA, e.id)
	s.restart(t, "executor")
	e.requireCanceled(t, s, keyA, callCost)
}
