package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

const failedTasks = 8

// watchful answers for an agent that makes a task for each task that has failed: by the tool first, and in
// words when it was done.
func watchful() fakellm.Script {
	failed := regexp.MustCompile(`(Task \d+) of (ep_\w+) failed`)
	return fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == "tool" {
			return fakellm.Reply{Text: "It is noted."}, true
		}
		m := failed.FindStringSubmatch(last.Content)
		if m == nil {
			return fakellm.Reply{}, false
		}
		return fakellm.Reply{Delay: 150 * time.Millisecond, ToolCalls: []fakellm.ToolCall{
			{ID: "call_1", Name: "task_create", Arguments: fmt.Sprintf(`{"epic_id": %q, "title": "Look at %s"}`, m[2], m[1])},
		}}, true
	}}
}

const watcher = `
name: Watcher
inputs: {task: {type: object}}
triggers:
  - {type: event, id: failed, kinds: [task_updated], epic: %s, when: 'event.task.status == "failed"'}
steps:
  - {id: look, type: agent, prompt: "{{ inputs.task.title }} of {{ inputs.task.epic_id }} failed: {{ inputs.task.error }}", tools: [task_create]}
outputs: {text: "{{ look }}"}
`

// endless is started by what it does itself.
const endless = `
name: Endless
inputs: {epic_id: {type: string}}
triggers:
  - {type: event, id: made, kinds: [task_created], epic: %s}
steps:
  - {id: more, type: actor, actor: task_create, with: {epic_id: "{{ inputs.epic_id }}", title: "One more"}}
`

// triggered are the runs of a workflow, by their state.
func (s *suite) triggered(t *testing.T, workflow string) map[string]string {
	t.Helper()
	var list struct {
		Runs []struct{ ID, Workflow, State, ParentRunID string }
	}
	s.ask(t, request{path: "/v1/runs?pageSize=500"}, &list)
	runs := map[string]string{}
	for _, r := range list.Runs {
		if strings.HasPrefix(r.Workflow, workflow+"@") && r.ParentRunID == "" {
			runs[r.ID] = strings.TrimPrefix(r.State, "RUN_STATE_")
		}
	}
	return runs
}

func (s *suite) makeEpic(t *testing.T, title string) string {
	t.Helper()
	var e struct{ ID string }
	s.ask(t, request{path: "/v1/epics", body: map[string]any{"title": title}}, &e)
	s.ask(t, request{path: "/v1/epics/" + e.ID + ":transition", body: map[string]any{"state": "EPIC_STATE_ACTIVE"}}, nil)
	return e.ID
}

// runsInFeed pauses and resumes a run of a workflow. The feed has each change once, in this order.
func runsInFeed(t *testing.T, s *suite) {
	s.ask(t, request{path: "/v1/workflows", body: map[string]any{"slug": "slow", "source": "name: Slow\nsteps: [{type: wait, delay: 2}]"}}, nil)
	var r run
	s.ask(t, request{path: "/v1/runs", body: map[string]any{"workflow": "slow"}}, &r)
	for _, what := range []string{"pause", "resume"} {
		s.ask(t, request{path: "/v1/runs/" + r.ID + ":" + what, body: `{"reason":"mine"}`}, nil)
		if what == "pause" {
			testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
				out, _ := s.cli(t, "events", "--workflow", "slow", "--kind", "run_paused")
				return strings.Contains(out, r.ID)
			})
			s.procs["executor"].kill()
			s.restart(t, "executor")
		}
	}
	var out string
	testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
		out, _ = s.cli(t, "events", "--workflow", "slow")
		return strings.Contains(out, "run_ended")
	})
	require.Regexp(t, `(?s)run_paused  `+r.ID+`  slow@1  mine\n.*run_resumed  `+r.ID+`  slow@1.*run_ended  `+r.ID+`  slow@1  completed`, out)
	for _, kind := range []string{"run_paused", "run_resumed", "run_ended"} {
		require.Equal(t, 1, strings.Count(out, kind), "%s", out)
	}
}

// TestEventTriggers has an agent follow an epic: each task that fails starts one run, which makes a task. The
// executor and the registry are killed meanwhile.
func TestEventTriggers(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{store: store, script: watchful()})
			epic := s.makeEpic(t, "Watched")
			s.ask(t, request{path: "/v1/workflows", body: map[string]any{"slug": "watcher", "source": fmt.Sprintf(watcher, epic)}}, nil)
			fail := func(i int) {
				var task struct{ ID string }
				s.ask(t, request{path: "/v1/tasks", body: map[string]any{"epicId": epic, "title": fmt.Sprintf("Task %02d", i)}}, &task)
				for _, state := range []string{"RUNNING", "FAILED"} {
					body := map[string]any{"state": "TASK_STATE_" + state}
					if state == "FAILED" {
						body["errorMessage"] = "it did not work"
					}
					s.ask(t, request{path: "/v1/tasks/" + task.ID + ":transition", body: body}, nil)
				}
			}
			fail(0) // before the trigger is on: it starts nothing
			s.cli(t, "triggers", "on", "watcher")
			for i := 1; i <= failedTasks; i++ {
				fail(i)
				switch i {
				case failedTasks / 4:
					s.procs["executor"].kill() // between an event, its run and the cursor
				case failedTasks / 2:
					s.restart(t, "executor")
					s.procs["registry"].kill()
					s.restart(t, "registry")
				}
			}
			s.procs["executor"].kill()
			s.restart(t, "executor")
			t.Run("Agent/MakesOneTaskForEachThatFailed", func(t *testing.T) {
				titles := func() map[string]int {
					out := map[string]int{}
					for _, task := range s.epicTasks(t, epic) {
						if strings.HasPrefix(task.Title, "Look at ") {
							out[task.Title]++
						}
					}
					return out
				}
				testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
					runs := s.triggered(t, "watcher")
					ended := 0
					for _, state := range runs {
						if state == "COMPLETED" {
							ended++
						}
					}
					return ended >= failedTasks && len(titles()) >= failedTasks
				})
				want := map[string]int{}
				for i := 1; i <= failedTasks; i++ {
					want[fmt.Sprintf("Look at Task %02d", i)] = 1
				}
				require.Equal(t, want, titles())
				runs := s.triggered(t, "watcher")
				require.Len(t, runs, failedTasks, "each event started one run")
			})
			t.Run("Deliveries/AreListedAndRepeated", func(t *testing.T) {
				var list struct {
					Deliveries []struct{ ID, State, RunID, EventID string }
				}
				s.ask(t, request{path: "/v1/trigger_deliveries"}, &list)
				require.Len(t, list.Deliveries, failedTasks)
				for _, d := range list.Deliveries {
					require.Equal(t, "TRIGGER_DELIVERY_STATE_STARTED", d.State)
				}
				out, _ := s.cli(t, "triggers", "show", list.Deliveries[0].ID)
				require.Contains(t, out, "task_updated")
				s.cli(t, "triggers", "repeat", list.Deliveries[0].ID)
				testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
					runs := s.triggered(t, "watcher")
					return len(runs) == failedTasks+1
				})
			})
			t.Run("Feed/HasTheRunsOfWorkflows", func(t *testing.T) { runsInFeed(t, s) })
			t.Run("Chain/OfRunsThatStartThemselvesEnds", func(t *testing.T) {
				own := s.makeEpic(t, "Endless")
				s.ask(t, request{path: "/v1/workflows", body: map[string]any{"slug": "endless", "source": fmt.Sprintf(endless, own)}}, nil)
				s.cli(t, "triggers", "on", "endless")
				s.ask(t, request{path: "/v1/tasks", body: map[string]any{"epicId": own, "title": "The first"}}, nil)
				testkit.Within(t, timeout, 100*time.Millisecond, func() bool {
					out, _ := s.cli(t, "triggers", "deliveries", "--state", "refused")
					return strings.Contains(out, "TRIGGER_CHAIN_TOO_LONG")
				})
				runs := s.triggered(t, "endless")
				require.Len(t, runs, 16)
				require.Len(t, s.epicTasks(t, own), 17)
			})
		})
	}
}
