package e2e_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// tripPlan is a plan of eight problems with two joins, as a model prints one, prose and fence included.
const tripPlan = "Sure, here is how I would break this down:\n\n```xml\n" + `<StructuredResponse>
  <Problems>
    <Problem><Request>List three cities that are worth a visit in May.</Request><ProblemID>cities</ProblemID></Problem>
    <Problem><Request>Find trains to each of the cities.</Request><ProblemID>trains</ProblemID></Problem>
    <Problem><Request>Find flights to each of the cities.</Request><ProblemID>flights</ProblemID></Problem>
    <Problem><Request>Look up the weather in May.</Request><ProblemID>weather</ProblemID></Problem>
    <Problem><Request>Compare the ways to travel.</Request><ProblemID>travel</ProblemID></Problem>
    <Problem><Request>Find a hotel in the best city.</Request><ProblemID>hotel</ProblemID></Problem>
    <Problem><Request>Add up the costs.</Request><ProblemID>costs</ProblemID></Problem>
    <Problem><Request>Write the itinerary.</Request><ProblemID>itinerary</ProblemID></Problem>
  </Problems>
  <ProblemGraph>
    cities -> trains, flights, weather
    trains, flights -> travel
    weather -> hotel
    travel, hotel -> costs
    costs -> itinerary
  </ProblemGraph>
</StructuredResponse>` + "\n```\nTell me if you want it shorter."

const tripProblems = 8

// The usage of every call of tripScript, and its cost with gpt-4o-mini in nano-USD: 0.15 dollars for a
// million input tokens, 0.075 for cached ones, and 0.60 for output.
const (
	callInput, callCached, callOutput = 1000, 200, 300
	callCost                          = (callInput-callCached)*150 + callCached*75 + callOutput*600
)

// tripScript answers slowly enough that a watcher sees runs on their way.
func tripScript() fakellm.Script {
	answer := func(text string) fakellm.Reply {
		return fakellm.Reply{Text: text, Delay: 50 * time.Millisecond, Usage: fakellm.Usage{Input: callInput, CachedInput: callCached, Output: callOutput}}
	}
	return fakellm.Script{
		Rules:   []fakellm.Rule{{Match: "Write the itinerary", Reply: answer("Day 1: Lisbon by train.")}},
		Default: answer("Found it."),
	}
}

func TestMainJob(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{store: store, script: tripScript()})
			t.Run("Plan/ParsedAsStated", func(t *testing.T) { parseTrip(t, s) })
			t.Run("Run/WatchedToTheEndAndBooked", func(t *testing.T) { runTrip(t, s) })
			t.Run("Costs/AreWholeAtTheEnd", func(t *testing.T) { costAtTheEnd(t, s) })
			t.Run("Trace/OneFromRequestToBooks", func(t *testing.T) { traceTrip(t, s, store) })
			t.Run("Namespaces/AreIsolated", func(t *testing.T) { isolation(t, s) })
			t.Run("Paused/HasAWayOn", func(t *testing.T) { paused(t, s) })
			t.Run("Verbs/OverREST", func(t *testing.T) { verbs(t, s) })
			t.Run("Refusals/OfTheRegistry", func(t *testing.T) { refusals(t, s) })
			t.Run("Webhooks/OverREST", func(t *testing.T) { webhooks(t, s) })
			t.Run("Faults/AreTold", func(t *testing.T) { faults(t, s) })
		})
	}
}

func parseTrip(t *testing.T, s *suite) {
	var got struct {
		NoPlan bool
		Graph  struct {
			Problems []struct{ ID string }
			Edges    []struct{ From, To, Source string }
		}
		Diagnostics []struct{ Severity string }
	}
	s.ask(t, request{path: "/v1/plans:parse", body: map[string]any{"text": tripPlan}}, &got)
	require.False(t, got.NoPlan)
	require.Len(t, got.Graph.Problems, tripProblems)
	var edges []string
	for _, e := range got.Graph.Edges {
		require.Equal(t, "EDGE_SOURCE_STATED", e.Source)
		edges = append(edges, e.From+">"+e.To)
	}
	require.ElementsMatch(t, []string{
		"cities>trains", "cities>flights", "cities>weather", "trains>travel", "flights>travel", "weather>hotel", "travel>costs", "hotel>costs", "costs>itinerary",
	}, edges)
	for _, d := range got.Diagnostics {
		require.NotEqual(t, "SEVERITY_ERROR", d.Severity)
	}
}

// account makes an epic with one task.
func (s *suite) account(t *testing.T) (epicID, taskID string) {
	t.Helper()
	var epic, task struct{ ID string }
	s.ask(t, request{path: "/v1/epics", body: map[string]any{"title": "A trip in May", "tags": []string{"travel"}}}, &epic)
	s.ask(t, request{path: "/v1/tasks", body: map[string]any{"epicId": epic.ID, "title": "Plan it"}}, &task)
	return epic.ID, task.ID
}

func runTrip(t *testing.T, s *suite) {
	before := s.namespaceUsage(t)
	graph := s.compile(t, tripPlan)
	epicID, taskID := s.account(t)
	var started run
	s.ask(t, request{path: "/v1/runs", body: map[string]any{"graph": graph, "taskId": taskID, "userId": "ada", "requestId": "trip-1"}}, &started)
	require.Equal(t, namespaceA, started.Namespace)

	// A watcher that is cut off resumes, twice, and misses and repeats nothing.
	first := s.events(t, started.ID, "?durable_only=true", "", 3)
	second := s.events(t, started.ID, "?durable_only=true", first[len(first)-1].id, 2)
	third := s.events(t, started.ID, "?durable_only=true", second[len(second)-1].id, 1000)
	all := append(append(first, second...), third...)
	require.Equal(t, "end", all[len(all)-1].name)
	all = all[:len(all)-1]
	require.Equal(t, "run_started", all[0].name)
	require.Equal(t, "run_ended", all[len(all)-1].name)
	ended := map[string]int{}
	for i, e := range all {
		require.Equal(t, strconv.Itoa(i+1), e.id, "%v", all)
		if e.name == "attempt_ended" {
			ended[e.data["attemptEnded"].(map[string]any)["visit"].(map[string]any)["nodeId"].(string)]++
		}
	}
	require.Len(t, ended, tripProblems)

	// A late watcher sees the same, without the ephemeral events. Attempts that were not booked when the run
	// ended are booked by now.
	late := s.events(t, started.ID, "", "", 1000)
	late = late[:len(late)-1]
	for _, e := range append(slices.Clone(all), late...) {
		if e.name == "run_ended" {
			forget(e.data, "unbookedAttempts")
		}
	}
	require.Equal(t, all, late)

	got := s.awaitEnd(t, started.ID)
	require.Equal(t, "RUN_STATE_COMPLETED", got.State)
	require.JSONEq(t, `"Day 1: Lisbon by train."`, string(got.Result))
	require.Equal(t, tripProblems, got.Nodes.Completed)
	require.EqualValues(t, len(all), got.LastSeq)

	var visits struct {
		Visits []struct {
			NodeID, State string
			Values        []json.RawMessage
		}
	}
	s.ask(t, request{path: "/v1/runs/" + started.ID + "/visits?page_size=100"}, &visits)
	require.Len(t, visits.Visits, tripProblems)
	for _, v := range visits.Visits {
		require.Equal(t, "VISIT_STATE_COMPLETED", v.State)
	}

	// The same request again is the same run.
	var again run
	s.ask(t, request{path: "/v1/runs", body: map[string]any{"graph": graph, "taskId": taskID, "userId": "ada", "requestId": "trip-1"}}, &again)
	require.Equal(t, started.ID, again.ID)

	// The usage reported by the model is booked on the run, the task, the epic and the namespace.
	var task struct {
		State, RunID, ResultSummary                          string
		ActualTokens, ActualNanoUsd, LlmCalls, UnpricedCalls int64String
	}
	s.awaitTask(t, taskID, "TASK_STATE_COMPLETED")
	s.ask(t, request{path: "/v1/tasks/" + taskID}, &task)
	require.Equal(t, task.ActualNanoUsd, got.Usage.CostNanoUsd)
	require.Equal(t, started.ID, task.RunID)
	require.Contains(t, task.ResultSummary, "Lisbon")
	require.EqualValues(t, tripProblems*(callInput+callOutput), task.ActualTokens)
	require.EqualValues(t, tripProblems*callCost, task.ActualNanoUsd)
	require.EqualValues(t, tripProblems, task.LlmCalls)
	require.Zero(t, task.UnpricedCalls)
	require.EqualValues(t, tripProblems*callInput, got.Usage.InputTokens)
	require.EqualValues(t, tripProblems*callOutput, got.Usage.OutputTokens)
	require.Len(t, s.callsOf(started.ID), tripProblems)

	var epic struct {
		State                      string
		SpentTokens, SpentNanoUsd  int64String
		TotalTasks, CompletedTasks int
	}
	s.ask(t, request{path: "/v1/epics/" + epicID}, &epic)
	require.Equal(t, task.ActualTokens, epic.SpentTokens)
	require.Equal(t, task.ActualNanoUsd, epic.SpentNanoUsd)
	require.Equal(t, 1, epic.CompletedTasks)
	after := s.namespaceUsage(t)
	require.Equal(t, task.ActualNanoUsd, after.SpentNanoUsd-before.SpentNanoUsd)
	require.Equal(t, task.ActualTokens, after.SpentTokens-before.SpentTokens)
	require.EqualValues(t, tripProblems, after.Calls-before.Calls)

	var entries struct {
		Entries []struct{ NodeID, Model, PriceID string }
	}
	s.ask(t, request{path: "/v1/usage?run_id=" + started.ID}, &entries)
	require.Len(t, entries.Entries, tripProblems)
	for _, e := range entries.Entries {
		require.NotEmpty(t, e.PriceID)
	}
}

type namespaceUsage struct {
	SpentTokens, SpentNanoUsd, Calls, UnpricedCalls int64String
}

func (s *suite) namespaceUsage(t *testing.T) (u namespaceUsage) {
	t.Helper()
	s.ask(t, request{path: "/v1/usage:namespace"}, &u)
	return u
}

// callsOf lists the keys of the model calls of a run, which hold its id, in the order of the calls.
func (s *suite) callsOf(runID string) (keys []string) {
	for _, r := range s.model.Requests() {
		if key := r.Header.Get("Idempotency-Key"); strings.Contains(key, runID) {
			keys = append(keys, key)
		}
	}
	return keys
}

// attemptsOf lists the keys of the model calls of a run once each. On a busy machine an executor can lose its
// lease, and sends a call again under the key that it had.
func (s *suite) attemptsOf(runID string) []string {
	return slices.Compact(slices.Sorted(slices.Values(s.callsOf(runID))))
}

// forget takes a field out of a value and of all that it holds.
func forget(value any, field string) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, field)
		for _, x := range v {
			forget(x, field)
		}
	case []any:
		for _, x := range v {
			forget(x, field)
		}
	}
}
