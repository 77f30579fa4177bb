package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// beginning is a way to run something again that has a task: it answers with the new run, or with a refusal.
type beginning func(t *testing.T, of run, withoutTask bool) (newRun string, no refusal)

// refusal is why a run was not begun.
type refusal struct{ Reason, Message, Hint string }

// beginnings are all ways to begin a run from another.
func (s *suite) beginnings() map[string]beginning {
	verb := func(verb string, body map[string]any) beginning {
		return func(t *testing.T, of run, withoutTask bool) (string, refusal) {
			t.Helper()
			body["withoutTask"] = withoutTask
			status, answer := s.do(t, request{path: "/v1/runs/" + of.ID + ":" + verb, body: body})
			var out struct {
				ID string
				refusal
			}
			require.NoError(t, json.Unmarshal(answer, &out))
			if status != http.StatusOK {
				require.Equal(t, http.StatusBadRequest, status, string(answer))
			}
			return out.ID, out.refusal
		}
	}
	return map[string]beginning{
		"RetryRun": verb("retry", map[string]any{}),
		"ForkRun":  verb("fork", map[string]any{"visit": map[string]any{"nodeId": "last"}}),
		"BulkRetryRuns": func(t *testing.T, of run, withoutTask bool) (string, refusal) {
			t.Helper()
			var out struct {
				Matched  int
				RunIDs   []string
				Failures []struct{ RunID, Reason, Message string }
			}
			s.ask(t, request{path: "/v1/runs:bulkRetry", body: map[string]any{"withoutTask": withoutTask,
				"filter": map[string]any{"labels": map[string]string{"once": of.Labels["once"]}, "states": []string{of.State}}}}, &out)
			require.Equal(t, 1, out.Matched)
			require.Equal(t, 1, len(out.RunIDs)+len(out.Failures), "%+v", out)
			if len(out.Failures) > 0 {
				require.Equal(t, of.ID, out.Failures[0].RunID)
				return "", refusal{Reason: out.Failures[0].Reason, Message: out.Failures[0].Message}
			}
			return out.RunIDs[0], refusal{}
		},
	}
}

// refusals checks a restart that the registry refuses because the task may not be worked on: it leaves
// nothing behind, and succeeds once the task may be.
func refusals(t *testing.T, s *suite) {
	type task struct{ State, RunID string }
	for name, again := range s.beginnings() {
		// begin has a run with a task of its own: the last node fails it, or waits.
		begin := func(t *testing.T, last string) (r run, epicID, taskID string) {
			t.Helper()
			var made struct{ ID string }
			s.ask(t, request{path: "/v1/epics", body: map[string]any{"title": t.Name()}}, &made)
			epicID = made.ID
			s.ask(t, request{path: "/v1/tasks", body: map[string]any{"epicId": epicID, "title": "again"}}, &made)
			s.ask(t, request{path: "/v1/runs", body: map[string]any{"taskId": made.ID, "labels": map[string]string{"once": made.ID}, "graph": json.RawMessage(`{"nodes":[
				{"id":"first","actor":"template","named":{"text":"hi"}},` + last + `],"edges":[{"from":"first","to":"last"}]}`)}}, &r)
			return r, epicID, made.ID
		}
		move := func(t *testing.T, what, id, state string) {
			t.Helper()
			s.ask(t, request{path: "/v1/" + what + "/" + id + ":transition", body: map[string]any{"state": state}}, nil)
		}
		standing := func(t *testing.T, taskID string) (now task, runs int) {
			t.Helper()
			var list struct{ Runs []run }
			s.ask(t, request{path: "/v1/tasks/" + taskID}, &now)
			s.ask(t, request{path: "/v1/runs?labels[once]=" + taskID}, &list)
			return now, len(list.Runs)
		}
		refused := func(t *testing.T, of run, taskID, reason, message, hint string) {
			t.Helper()
			before, runs := standing(t, taskID)
			id, no := again(t, of, false)
			require.Empty(t, id)
			require.Equal(t, reason, no.Reason)
			require.Equal(t, message, no.Message)
			if name != "BulkRetryRuns" { // a failure of many has no hint
				require.Contains(t, no.Hint, hint)
			}
			after, more := standing(t, taskID)
			require.Equal(t, before, after, "the task stays as it was")
			require.Equal(t, 1, runs)
			require.Equal(t, runs, more, "no run was made, not without the task either")
		}
		const fails = `{"id":"last","actor":"fail","named":{"reason":"DISK_FULL","message":"no space left"}}`
		t.Run(name+"/EpicPaused", func(t *testing.T) {
			r, epicID, taskID := begin(t, fails)
			r = s.awaitEnd(t, r.ID)
			s.awaitTask(t, taskID, "TASK_STATE_FAILED")
			refused(t, r, taskID, "TASK_NOT_CLAIMABLE", "task "+taskID+" is FAILED", "move it to PENDING")
			move(t, "tasks", taskID, "TASK_STATE_PENDING")
			move(t, "epics", epicID, "EPIC_STATE_PAUSED")
			refused(t, r, taskID, "EPIC_NOT_ACTIVE", "epic "+epicID+" is PAUSED", "move the epic to ACTIVE first")
			move(t, "epics", epicID, "EPIC_STATE_ACTIVE")
			id, no := again(t, r, false)
			require.Empty(t, no)
			require.Equal(t, "RUN_STATE_FAILED", s.awaitEnd(t, id).State)
			s.awaitTask(t, taskID, "TASK_STATE_FAILED")
			now, _ := standing(t, taskID)
			require.Equal(t, id, now.RunID)
		})
		t.Run(name+"/TaskCanceled", func(t *testing.T) {
			r, epicID, taskID := begin(t, `{"id":"last","actor":"signal","named":{"name":"go"}}`)
			move(t, "tasks", taskID, "TASK_STATE_CANCELED")
			r = s.awaitEnd(t, r.ID)
			require.Equal(t, "RUN_STATE_CANCELED", r.State)
			refused(t, r, taskID, "TASK_NOT_CLAIMABLE", "task "+taskID+" is CANCELED", "without_task")
			move(t, "epics", epicID, "EPIC_STATE_CANCELED")
			refused(t, r, taskID, "TASK_NOT_CLAIMABLE", "task "+taskID+" is CANCELED", "without_task")
			id, no := again(t, r, true)
			require.Empty(t, no)
			s.ask(t, request{path: "/v1/runs/" + id + ":signal", body: `{"name":"go","payload":1}`}, nil)
			done := s.awaitEnd(t, id)
			require.Equal(t, "RUN_STATE_COMPLETED", done.State)
			require.Empty(t, done.TaskID)
			now, _ := standing(t, taskID)
			require.Equal(t, "TASK_STATE_CANCELED", now.State)
		})
	}
}
