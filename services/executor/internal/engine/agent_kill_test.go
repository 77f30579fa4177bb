package engine_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// killing is an agent that is killed at its visits.
type killing struct {
	graph  string
	script []string // of its reasoner
	kept   []string // the items that its thread has in the end
	takes  string   // the agent of the thread
	result string   // of its run, in which THREAD is the thread; "all" if empty
	// other says that the agent differs in some nodes from one that is killed everywhere: it is killed at
	// these, in one store.
	other []string
	// atOnce is how many calls may be under way at a time.
	atOnce int
}

// An executor dies after each call of an agent's run, before the outcome is durable. Another one goes on:
// it repeats the calls that were under way and no other, and nothing is in the thread twice.
func TestAgentKilledAtEveryVisit(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]killing{
		"Actions": {graph: `{"goal": "all of it", "reasoner": "reasoner", "actions": {"work": {}}, "history": {"messages": 1, "summarize": {"actor": "shorten"}}}`,
			script: []string{`{"instant_response": "I begin.", "actions": ["work"], "instant_learnings": [{"id": "drink", "content": "likes tea"}]}`, `["work", "work"]`, `{"result": "all"}`},
			kept:   []string{"LEARNING", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2", "STATE 3", "SUMMARY 1 to 1", "SUMMARY 1 to 5"}, takes: "agent", atOnce: 1},
		"HandOver": {graph: `{"goal": "all of it", "reasoner": "reasoner", "actions": {"heir": {"actor": "agent/heir", "hand_over": true}}}`,
			script: []string{`["heir"]`}, kept: []string{"MESSAGE", "MESSAGE", "STATE 1", "STATE 1", "STATE 2"}, takes: "agent/heir", atOnce: 1},
		"Tools": {graph: `{"goal": "all of it", "reasoner": "reasoner", "form": "tools", "actions": {"work": {}}}`,
			script: []string{`{"role": "assistant", "tool_calls": [{"id": "1", "name": "work", "arguments": {}}, {"id": "2", "name": "work", "arguments": {}}, {"id": "3", "name": "learn", "arguments": {"id": "drink", "content": "likes tea"}}]}`,
				`{"role": "assistant", "content": "all"}`},
			kept: []string{"LEARNING", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2"}, takes: "agent", atOnce: 2,
			other: []string{"act", "groups", "1.1-work", "observe"}},
		"Signals": {graph: `{"goal": "all of it", "reasoner": "reasoner", "form": "tools", "as_message": true, "actions": {"work": {}, "rest": {"actor": "work"}}, "signals": {"route": {}}}`,
			script: []string{`{"role": "assistant", "tool_calls": [{"id": "1", "name": "work", "arguments": {}}]}`,
				`{"role": "assistant", "tool_calls": [{"id": "2", "name": "rest", "arguments": {}}, {"id": "3", "name": "route", "arguments": {"task": "more"}}]}`},
			kept: []string{"MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2"}, takes: "agent", atOnce: 1,
			result: `{"text": "", "calls": ["work", "rest"], "signals": [{"name": "route", "arguments": {"task": "more"}}], "thread_id": "THREAD"}`,
			other:  []string{"reason", "act", "do.rest", "observe"}},
		"Plan": {graph: `{"goal": "all of it", "reasoner": "reasoner", "dispatch": "plan", "solver": {"actor": "work"}}`,
			script: []string{`"<InstantResponse>I plan.</InstantResponse><Problems><Problem><Request>a</Request><ProblemID>A</ProblemID></Problem><Problem><Request>b</Request><ProblemID>B</ProblemID></Problem></Problems><ProblemGraph>A -> B</ProblemGraph>"`, `"all"`},
			kept:   []string{"MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2"}, takes: "agent", atOnce: 1,
			other: []string{"act", "groups", "A", "B", "observe"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedAtEveryVisit(t, k)
		})
	}
}

func killedAtEveryVisit(t *testing.T, a killing) {
	t.Helper()
	heirs, err := agent.Config{"heir": {Definition: `{"reasoner": "other", "actions": {"work": {}}}`}}.Specs(nil)
	require.NoError(t, err)
	stores := map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore}
	if a.other != nil {
		delete(stores, "Postgres")
	}
	m := mortal{
		actors: func(t *testing.T, s store) actors {
			own := agents(t, s, actors{"reasoner": &reasoner{script: a.script}, "other": &reasoner{script: []string{`["work"]`, `{"result": "all"}`}}, "work": &recorder{}, "ok": &recorder{}, "shorten": &recorder{}})
			own[heirs[0].Name] = pureActor{heirs[0].Actor}
			return own
		},
		start:  func(t *testing.T, l *live) string { return l.start(t, agentOf(t, a.graph)) },
		ends:   func(t *testing.T, l *live, id string) { a.ends(t, l, id) },
		atOnce: a.atOnce, exact: true,
	}
	if a.other != nil {
		m.dies = func(undead *calls) (at []int) {
			for i, node := range undead.order {
				if slices.Contains(a.other, node) {
					at = append(at, i+1)
				}
			}
			return at
		}
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := m
			m.open = open
			m.test(t)
		})
	}
}

// ends waits for the end of the agent's run, and checks what it kept.
func (a killing) ends(t *testing.T, l *live, id string) {
	t.Helper()
	row := l.wait(t, id, journal.StateCompleted)
	require.JSONEq(t, `"done after"`, string(row.Result))
	child := l.child(t, id)
	require.Equal(t, a.kept, l.remembered(t, child))
	told := l.learned(t)
	require.Equal(t, slices.Contains(a.kept, "LEARNING"), len(told) == 1, "each is told once: %v", told)
	all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
	require.NoError(t, err)
	require.Equal(t, a.takes, all[len(all)-1].Agent)
	require.JSONEq(t, strings.ReplaceAll(cmp.Or(a.result, `"all"`), "THREAD", all[len(all)-1].ID), string(child.Result))
}
