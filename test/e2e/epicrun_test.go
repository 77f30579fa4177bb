package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

const (
	epicTasks    = 50
	epicParallel = 6
	// stopAfter is after how many tasks the budget is spent.
	stopAfter = 20
)

// epicTask is a task as REST shows it.
type epicTask struct {
	ID, Title, State, RunID, ErrorMessage string
	DependsOn                             []string
	StartTime, EndTime                    time.Time
	LlmCalls                              int64String
}

// ranEpic is an epic as REST shows it.
type ranEpic struct {
	ID, State, PauseReason                  string
	TotalTasks, CompletedTasks, FailedTasks int
	SpentTokens                             int64String
}

func (s *suite) epicNow(t *testing.T, id string) (e ranEpic) {
	t.Helper()
	s.ask(t, request{path: "/v1/epics/" + id}, &e)
	return e
}

// awaitEpic waits until an epic is in a state, or has completed at least some tasks.
func (s *suite) awaitEpic(t *testing.T, id, state string, completed int) (e ranEpic) {
	t.Helper()
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
		// A service may be down.
		status, body := s.do(t, request{path: "/v1/epics/" + id})
		if status != 200 {
			return false
		}
		e = ranEpic{}
		require.NoError(t, json.Unmarshal(body, &e))
		require.Zero(t, e.FailedTasks, "%s", body)
		return e.State == state && e.CompletedTasks >= completed
	}, "%s with %d", state, completed)
	return e
}

// tree is a document of tasks in layers: each depends on one or two of the layer before it.
func tree(workflow string) string {
	var tasks []map[string]any
	for i := range epicTasks {
		task := map[string]any{"id": i, "title": fmt.Sprintf("Task %02d", i), "workflow_slug": workflow, "input": map[string]any{"topic": fmt.Sprintf("topic %d", i)}}
		if layer := i / 10; layer > 0 {
			task["depends_on"] = []int{i - 10, (layer-1)*10 + (i*7+3)%10}
			if i-10 == (layer-1)*10+(i*7+3)%10 {
				task["depends_on"] = []int{i - 10}
			}
		}
		tasks = append(tasks, task)
	}
	text, err := json.Marshal(map[string]any{"title": "Fifty tasks", "tasks": tasks, "budget_tokens": stopAfter * (callInput + callOutput)})
	if err != nil {
		panic(err) // plain values always marshal
	}
	return string(text)
}

func (s *suite) epicTasks(t *testing.T, id string) (tasks []epicTask) {
	t.Helper()
	var list struct{ Tasks []epicTask }
	s.ask(t, request{path: "/v1/tasks?pageSize=200&epicId=" + id}, &list)
	return list.Tasks
}

// TestEpicRunsByItself has an epic of fifty tasks run by itself, each with a workflow that asks a
// model. It is paused and resumed, stopped by its budget once, and its services are killed and
// restarted meanwhile.
func TestEpicRunsByItself(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			answer := fakellm.Reply{Text: "Done.", Delay: 400 * time.Millisecond, Usage: fakellm.Usage{Input: callInput, CachedInput: callCached, Output: callOutput}}
			s := start(t, options{store: store, script: fakellm.Script{Default: answer}})
			s.ask(t, request{path: "/v1/workflows", body: map[string]any{"slug": "work", "source": `
name: Work
inputs: {title: {type: string}, topic: {type: string}}
steps:
  - {id: say, type: agent, prompt: "{{ inputs.title }}: write about {{ inputs.topic }}"}
outputs: {text: "{{ say }}"}
`}}, nil)
			var imported struct{ ID string }
			s.ask(t, request{path: "/v1/epics:import", body: map[string]any{"document": tree("work")}}, &imported)
			id := imported.ID
			s.cli(t, "epics", "run", id, fmt.Sprintf("--parallel=%d", epicParallel))

			s.awaitEpic(t, id, "EPIC_STATE_ACTIVE", 3)
			t.Run("Pause/PausesItsRunsAndResumeGoesOn", func(t *testing.T) { pauseEpic(t, s, id) })
			t.Run("SIGKILL/OfTheExecutorLosesNoStart", func(t *testing.T) {
				s.procs["executor"].kill()
				s.restart(t, "executor")
			})
			t.Run("Budget/StopsTheEpicAndItsRuns", func(t *testing.T) {
				e := s.awaitEpic(t, id, "EPIC_STATE_PAUSED", 1)
				require.Equal(t, "BUDGET_EXHAUSTED", e.PauseReason)
				s.awaitRest(t, id)
				e = s.epicNow(t, id)
				require.Positive(t, int64(e.SpentTokens))
				require.LessOrEqual(t, int64(e.SpentTokens), int64(stopAfter*(callInput+callOutput)), "a call that may go over it is not made")
				shown, _ := s.cli(t, "epics", "show", id)
				require.Regexp(t, `runs by itself, 6 tasks at once\npaused: BUDGET_EXHAUSTED: the next call may use more than what is left of the budget, [\d,]+ tokens\n`, shown)
				require.Regexp(t, `progress: \d+ of 50 done, \d+ running, \d+ ready, \d+ blocked, 0 failed; spent [\d,]+ of 26,000 tokens`, shown)
			})
			t.Run("SIGKILL/OfBothLosesNothingWhileItStands", func(t *testing.T) {
				for _, service := range []string{"registry", "executor"} {
					s.procs[service].kill()
					s.restart(t, service)
				}
				require.Equal(t, "EPIC_STATE_PAUSED", s.epicNow(t, id).State)
			})
			t.Run("Budget/RaisedGoesOnToTheEnd", func(t *testing.T) {
				s.ask(t, request{method: "PATCH", path: "/v1/epics/" + id + "?updateMask=budgetTokens", body: map[string]any{"budgetTokens": "10000000"}}, nil)
				s.awaitEpic(t, id, "EPIC_STATE_ACTIVE", 25)
				s.procs["registry"].kill()
				s.restart(t, "registry")
				s.awaitEpic(t, id, "EPIC_STATE_COMPLETED", epicTasks)
			})
			t.Run("Tasks/StartedOnceAndInOrder", func(t *testing.T) { requireOrder(t, s, id) })
			t.Run("CommandLine/WatchesToTheEnd", func(t *testing.T) {
				made, _ := s.cli(t, "epics", "create", "One more")
				one := strings.TrimSpace(made)
				s.cli(t, "tasks", "create", one, "Write", "--workflow=work@1", `--input={"topic": "cats"}`)
				end, told := s.cli(t, "epics", "run", one, "--watch")
				require.Contains(t, end, "completed  One more")
				require.Contains(t, told, "0 of 1 done")
			})
			t.Run("Doctor/FindsNothing", func(t *testing.T) {
				text, err := s.command("doctor", "--all").CombinedOutput()
				require.NoError(t, err, "%s", text)
			})
		})
	}
}

// awaitRest waits until no run of the epic goes on, and requires that those which have not ended are
// paused for the epic.
func (s *suite) awaitRest(t *testing.T, id string) (paused int) {
	t.Helper()
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
		paused = 0
		for _, task := range s.epicTasks(t, id) {
			if task.State != "TASK_STATE_RUNNING" {
				continue
			}
			var r run
			s.ask(t, request{path: "/v1/runs/" + task.RunID}, &r)
			if !r.ended() && r.State != "RUN_STATE_PAUSED" {
				return false
			}
			if r.State == "RUN_STATE_PAUSED" {
				require.Equal(t, "EPIC_PAUSED", r.StateReason)
				paused++
			}
		}
		return true
	})
	return paused
}

// pauseEpic pauses an epic, sees that its runs stand still, and resumes it. A run that somebody has
// paused before stays paused until it is resumed alone.
func pauseEpic(t *testing.T, s *suite, id string) {
	var mine epicTask
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		tasks := s.epicTasks(t, id)
		i := slices.IndexFunc(tasks, func(x epicTask) bool { return x.State == "TASK_STATE_RUNNING" })
		if i < 0 {
			return false
		}
		mine = tasks[i]
		status, body := s.do(t, request{path: "/v1/runs/" + mine.RunID + ":pause", body: `{"reason":"mine"}`})
		return status == 200 && strings.Contains(string(body), "RUN_STATE_PAUSED")
	})
	s.cli(t, "epics", "pause", id)
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
		for _, task := range s.epicTasks(t, id) {
			if task.State != "TASK_STATE_RUNNING" {
				continue
			}
			var r run
			s.ask(t, request{path: "/v1/runs/" + task.RunID}, &r)
			if !r.ended() && r.State != "RUN_STATE_PAUSED" {
				return false
			}
		}
		return true
	})
	before := s.epicNow(t, id)
	require.Equal(t, "EPIC_STATE_PAUSED", before.State)
	require.Empty(t, before.PauseReason)
	s.cli(t, "epics", "resume", id)
	s.awaitEpic(t, id, "EPIC_STATE_ACTIVE", before.CompletedTasks+1)
	var r run
	s.ask(t, request{path: "/v1/runs/" + mine.RunID}, &r)
	require.Equal(t, "RUN_STATE_PAUSED", r.State, "a pause of somebody's own stays")
	require.Equal(t, "mine", r.StateReason)
	s.ask(t, request{path: "/v1/runs/" + mine.RunID + ":resume", body: `{}`}, nil)
}

// requireOrder requires that each task had one run, began after those that it depends on had ended, and
// that never more were at work than may be.
func requireOrder(t *testing.T, s *suite, id string) {
	tasks := s.epicTasks(t, id)
	require.Len(t, tasks, epicTasks)
	byID, runs := map[string]epicTask{}, map[string]bool{}
	for _, task := range tasks {
		byID[task.ID] = task
		runs[task.RunID] = true
	}
	require.Len(t, runs, epicTasks)
	for _, task := range tasks {
		require.Equal(t, "TASK_STATE_COMPLETED", task.State, task.ErrorMessage)
		for _, dep := range task.DependsOn {
			// Both are the times of the executor, the one of an end and the other of a start.
			require.False(t, task.StartTime.Before(byID[dep].EndTime), "%s began before %s had ended", task.Title, byID[dep].Title)
		}
		atWork := 0
		for _, other := range tasks {
			if !other.StartTime.After(task.StartTime) && other.EndTime.After(task.StartTime) {
				atWork++
			}
		}
		require.LessOrEqual(t, atWork, epicParallel, "when %s began", task.Title)
	}
	var list struct {
		Runs []struct{ ID, TaskID, ParentRunID, State string }
	}
	s.ask(t, request{path: "/v1/runs?pageSize=500"}, &list)
	started := 0
	for _, r := range list.Runs {
		if r.TaskID != "" && r.ParentRunID == "" { // the run of an agent is below that of its task
			started++
			require.True(t, runs[r.ID], "run %s is that of no task", r.ID)
			require.Equal(t, "RUN_STATE_COMPLETED", r.State)
		}
	}
	require.Equal(t, epicTasks, started, "no task was started twice")
}
