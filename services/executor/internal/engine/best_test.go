package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workflow"
	stepflow "github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// attempting are the actors of a workflow that makes attempts by says and judges them by chooses.
func attempting(says, chooses workgraph.Actor) actors {
	own := actors{"says": says, "llm": chooses, "spawn": spawner{}, "cel": pureActor{cel.Spec().Actor}}
	for name, a := range stepflow.Actors() {
		own[name] = pureActor{a}
	}
	return own
}

// workflowOf is the graph of a workflow.
func workflowOf(t *testing.T, src string) *workgraph.Graph {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	return g
}

// tries gives the number of its attempt, which is the input n, at a price.
func tries(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	return workgraph.Outcome{Values: []json.RawMessage{c.Named["n"]}, Usage: oneTry()}, nil
}

func oneTry() []workgraph.Usage {
	return []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 10, OutputTokens: 1}}
}

const (
	scoredAttempts = `{name: T, steps: [{id: top, type: best_of, n: 3, score: "{{ one }}", body: {id: one, type: actor, actor: says, with: {n: "{{ item }}"}}}]}`
	judgedAttempts = `{name: T, steps: [{id: top, type: best_of, n: 2, judge: "Which one?", body: {id: one, type: actor, actor: says, with: {n: "{{ item }}"}}}]}`
)

// An executor dies after each call of a run that makes attempts, before the outcome is durable. Another
// one goes on: every attempt is booked once, and the same one is the best.
func TestBestOfKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	chooses := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"best": 1, "reason": "It is short."}`)}, Usage: oneTry()}, nil
	})
	for name, c := range map[string]struct {
		src, want string
		calls     int64
	}{
		"Scored": {scoredAttempts, `{"best": 3, "number": 3, "scores": [1, 2, 3]}`, 3},
		"Judged": {judgedAttempts, `{"best": 1, "number": 1, "reason": "It is short."}`, 3},
	} {
		for base, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
			if base == "Postgres" && name != "Judged" {
				continue // what is written is alike
			}
			t.Run(name+"/"+base, func(t *testing.T) {
				t.Parallel()
				g := workflowOf(t, c.src)
				mortal{
					open:   open,
					actors: func(*testing.T, store) actors { return attempting(workgraph.ActorFunc(tries), chooses) },
					start:  func(t *testing.T, l *live) string { return l.start(t, g) },
					ends: func(t *testing.T, l *live, id string) {
						row := l.wait(t, id, journal.StateCompleted)
						require.JSONEq(t, c.want, string(row.Result))
						require.Equal(t, c.calls, row.Usage.Calls)
					},
					atOnce: 3, exact: true,
				}.test(t)
			})
		}
	}
}

func TestBestOf(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		begun := make(chan string, 10)
		says := workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			n := string(c.Named["n"])
			begun <- n
			if n == "2" {
				for range 2 { // once the others are under way
					<-begun
				}
				return tries(ctx, c)
			}
			<-ctx.Done()
			err := workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "nobody waits for it")
			err.Usage = oneTry()
			return workgraph.Outcome{}, err
		})
		l := run(t, s, attempting(says, nil))
		l.jobs(t)
		id := l.start(t, workflowOf(t, `{name: T, steps: [{id: top, type: best_of, n: 3, enough: 2, score: "{{ one }}", body: {id: one, type: actor, actor: says, with: {n: "{{ item }}"}}}]}`))
		row := l.wait(t, id, journal.StateCompleted)
		t.Run("Enough/TheBestIsTheOneThatWasEnough", func(t *testing.T) {
			require.JSONEq(t, `{"best": 2, "number": 2, "scores": [null, 2, null]}`, string(row.Result))
		})
		t.Run("Enough/TheOthersAreCanceledAndWhatTheyCostIsBooked", func(t *testing.T) {
			canceled := func() []journal.Run { return l.below(t, id, journal.StateCanceled, "CANCEL_REQUESTED") }
			testkit.Eventually(t, func() bool { return len(canceled()) == 2 })
			for _, lost := range canceled() {
				require.EqualValues(t, 1, lost.Usage.Calls)
				l.sound(t, lost.ID)
			}
			l.sound(t, id)
		})
	})
}
