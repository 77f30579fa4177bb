package e2e_test

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// recorded is a recorded task tree; edges go from a task to the one that depends on it.
type recorded struct {
	ID    string
	Tasks []map[string]any
	Edges [][]any
	Flags []string
}

// realTree is a document of epicTasks tasks of the recorded tree in which most of these depend on each other,
// as EPIGRAPH_TASK_TREES has it. All are to be done again, each with the workflow.
func realTree(t *testing.T, workflow string, budget int) (document, id string, edges int) {
	t.Helper()
	f, err := os.Open(cmp.Or(os.Getenv("EPIGRAPH_TASK_TREES"), "../../../shared/data/epics.jsonl.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there are no recorded task trees; name the file in EPIGRAPH_TASK_TREES")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var best recorded
	for dec := json.NewDecoder(z); ; {
		var r recorded
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if len(r.Tasks) < epicTasks {
			continue
		}
		r.Tasks = r.Tasks[:epicTasks]
		taken := map[any]bool{}
		for _, task := range r.Tasks {
			taken[task["id"]] = true
		}
		var among [][]any
		for _, e := range r.Edges {
			if taken[e[0]] && taken[e[1]] {
				among = append(among, e)
			}
		}
		if r.Edges = among; len(taken) == epicTasks && len(among) > len(best.Edges) {
			best = r
		}
	}
	require.NotEmpty(t, best.Edges, "no recorded tree has %d tasks that depend on each other", epicTasks)
	var tasks []map[string]any
	for _, task := range best.Tasks {
		tasks = append(tasks, map[string]any{"id": task["id"], "title": task["title"], "description": task["description"], "workflow_slug": workflow,
			"input": map[string]any{"topic": task["title"]}})
	}
	text, err := json.Marshal(map[string]any{"title": "Fifty real tasks", "tasks": tasks, "edges": best.Edges, "budget_tokens": budget})
	require.NoError(t, err)
	return string(text), best.ID, len(best.Edges)
}

// TestFiftyRealTasks runs an epic of fifty tasks of a recorded project, six at once, under a budget
// that stops it once and is raised. `make epic` prints it.
func TestFiftyRealTasks(t *testing.T) {
	t.Parallel()
	const budget = stopAfter * (callInput + callOutput)
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			document, from, edges := realTree(t, "work", budget)
			answer := fakellm.Reply{Text: "Done.", Delay: 100 * time.Millisecond, Usage: fakellm.Usage{Input: callInput, CachedInput: callCached, Output: callOutput}}
			s := start(t, options{store: store, script: fakellm.Script{Default: answer}})
			s.ask(t, request{path: "/v1/workflows", body: map[string]any{"slug": "work", "source": `
name: Work
inputs: {title: {type: string}, topic: {type: string}}
steps:
  - {id: say, type: agent, prompt: "{{ inputs.title }}: write about {{ inputs.topic }}"}
outputs: {text: "{{ say }}"}
`}}, nil)
			var imported struct{ ID string }
			s.ask(t, request{path: "/v1/epics:import", body: map[string]any{"document": document}}, &imported)
			id := imported.ID
			t.Logf("%s: %d tasks of %s with %d dependencies, %d at once, a budget of %d tokens", store, epicTasks, from, edges, epicParallel, budget)
			began := time.Now()
			s.cli(t, "epics", "run", id, "--parallel=6")
			t.Run("Budget/StopsItOnceAndNothingGoesOverIt", func(t *testing.T) {
				e := s.awaitEpic(t, id, "EPIC_STATE_PAUSED", 1)
				require.Equal(t, "BUDGET_EXHAUSTED", e.PauseReason)
				s.awaitRest(t, id)
				e = s.epicNow(t, id)
				require.Positive(t, e.CompletedTasks)
				require.Less(t, e.CompletedTasks, epicTasks)
				require.LessOrEqual(t, int64(e.SpentTokens), int64(budget))
				t.Logf("stopped after %d tasks and %d tokens, %s", e.CompletedTasks, int64(e.SpentTokens), time.Since(began).Round(time.Millisecond))
			})
			t.Run("Forecast/OfWhatIsLeftIsMadeOfWhatWasDone", func(t *testing.T) {
				text, _ := s.cli(t, "epics", "run", id, "--forecast")
				require.Regexp(t, `^\d+ tasks to do, 6 at once\n`, text)
				t.Logf("%.700s", text)
			})
			t.Run("Budget/RaisedGoesOnToTheEnd", func(t *testing.T) {
				s.cli(t, "epics", "update", id, "--budget-tokens=10000000")
				e := s.awaitEpic(t, id, "EPIC_STATE_COMPLETED", epicTasks)
				require.Greater(t, int64(e.SpentTokens), int64(budget))
				t.Logf("done after %s: %d of %d tasks, %d tokens", time.Since(began).Round(time.Millisecond), e.CompletedTasks, e.TotalTasks, int64(e.SpentTokens))
			})
			t.Run("Tasks/StartedOnceAndInOrder", func(t *testing.T) { requireOrder(t, s, id) })
			t.Run("Doctor/FindsNothing", func(t *testing.T) {
				text, err := s.command("doctor", "--all").CombinedOutput()
				require.NoError(t, err, "%s", text)
			})
		})
	}
}
