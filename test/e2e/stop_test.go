package e2e_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestStop ends processes in the middle of work and has them finish it after a restart.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			answer := fakellm.Reply{Text: "Found it.", Delay: 300 * time.Millisecond, Usage: fakellm.Usage{Input: callInput, CachedInput: callCached, Output: callOutput}}
			s := start(t, options{store: store, script: fakellm.Script{Default: answer}})
			t.Run("SIGTERM/RunsGoOnAfterTheRestart", func(t *testing.T) { stopExecutor(t, s) })
			t.Run("Cancel/OfAnEpicReachesItsRuns", func(t *testing.T) { cancelWhileUp(t, s) })
			t.Run("SIGKILL/CancelReachesTheRunsAfterTheRestart", func(t *testing.T) { cancelWhileDown(t, s) })
			t.Run("SIGTERM/TracesLeadToEachOther", func(t *testing.T) { traceRestart(t, s) })
			t.Run("SIGTERM/RegistryAwayLosesNoBooking", func(t *testing.T) { stopRegistry(t, s) })
			t.Run("SIGTERM/RegistryAwayIsSaidOfCosts", func(t *testing.T) { costsUntold(t, s) })
			t.Run("SIGTERM/RegistryAwayHoldsCapsInMoney", func(t *testing.T) { pricesAway(t, s) })
		})
	}
}

const stoppedRuns = 20

// startTrips starts runs, each for a task of its own, and returns their ids and those of the tasks.
func (s *suite) startTrips(t *testing.T, n int) (runs, tasks []string) {
	t.Helper()
	graph := s.compile(t, tripPlan)
	for i := range n {
		_, taskID := s.account(t)
		var r run
		s.ask(t, request{path: "/v1/runs", body: map[string]any{"graph": graph, "taskId": taskID, "labels": map[string]string{"n": fmt.Sprint(i)}}}, &r)
		runs, tasks = append(runs, r.ID), append(tasks, taskID)
	}
	return runs, tasks
}

// requireBooked waits until every run has completed and its usage is booked exactly once.
func (s *suite) requireBooked(t *testing.T, runs, tasks []string) {
	t.Helper()
	for i, id := range runs {
		got := s.awaitEnd(t, id)
		require.Equal(t, "RUN_STATE_COMPLETED", got.State, "%+v", got.Error)
		require.Equal(t, tripProblems, got.Nodes.Completed)
		var task struct {
			State                                 string
			ActualTokens, ActualNanoUsd, LlmCalls int64String
		}
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			s.ask(t, request{path: "/v1/tasks/" + tasks[i]}, &task)
			return task.State == "TASK_STATE_COMPLETED" && int64(task.ActualNanoUsd) >= tripProblems*callCost
		})
		require.EqualValues(t, tripProblems, task.LlmCalls)
		require.EqualValues(t, tripProblems*callCost, task.ActualNanoUsd)
		require.EqualValues(t, tripProblems*(callInput+callOutput), task.ActualTokens)

		// Every model call was made once: a key names run, node and visit.
		calls := s.callsOf(id)
		seen := map[string]bool{}
		for _, key := range calls {
			require.False(t, seen[key], "%s was called again", key)
			seen[key] = true
		}
		require.Len(t, calls, tripProblems, "%v", calls)
	}
}

func stopExecutor(t *testing.T, s *suite) {
	runs, tasks := s.startTrips(t, stoppedRuns)
	// Somebody watches throughout.
	watched := make(chan []event, 1)
	stream := s.watch(t, runs[stoppedRuns-1], "?durable_only=true", "")
	go func() { watched <- readEvents(stream, 1000) }()
	testkit.Within(t, timeout, time.Millisecond, func() bool { return len(s.model.Requests()) > stoppedRuns*tripProblems/4 })
	s.procs["executor"].stop(t)
	done := len(s.model.Requests())
	require.Less(t, done, stoppedRuns*tripProblems, "the executor was to be stopped in the middle")
	s.restart(t, "executor")
	s.requireBooked(t, runs, tasks)
	require.Len(t, s.model.Requests(), stoppedRuns*tripProblems)
	t.Logf("stopped after %d of %d model calls", done, stoppedRuns*tripProblems)

	// The stream ended with the executor, with an error; its client resumes after the last event that it got.
	before := <-watched
	require.Equal(t, "error", before[len(before)-1].name, "%v", before)
	before = before[:len(before)-1]
	after := s.events(t, runs[stoppedRuns-1], "?durable_only=true", before[len(before)-1].id, 1000)
	require.Equal(t, "end", after[len(after)-1].name)
	all := append(before, after[:len(after)-1]...)
	for i, e := range all {
		require.Equal(t, strconv.Itoa(i+1), e.id)
	}
	require.Equal(t, "run_ended", all[len(all)-1].name)
}

func stopRegistry(t *testing.T, s *suite) {
	runs, tasks := s.startTrips(t, 2)
	s.procs["registry"].stop(t)
	for _, id := range runs {
		require.Equal(t, "RUN_STATE_COMPLETED", s.awaitEnd(t, id).State, "runs without a cap do not wait for the registry")
	}
	s.restart(t, "registry")
	s.requireBooked(t, runs, tasks)
}
