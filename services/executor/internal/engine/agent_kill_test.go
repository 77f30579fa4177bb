package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// calls counts the calls of all actors, by node and visit, and tells when the n-th one has been made.
type calls struct {
	mu sync.Mutex
	of map[string]int
	// order are the nodes of the calls in the order in which they ended.
	order []string
	made  int
	n     int
	then  func()
}

func (k *calls) around(a workgraph.Actor) workgraph.Actor {
	return pureActor{workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out, err := a.Call(ctx, c)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.of[c.Ref.String()]++
		k.order = append(k.order, c.Node)
		if k.made++; k.made == k.n {
			k.then()
		}
		return out, err
	})}
}

// heir takes runs over from every executor that is not heard of at this moment.
type heir struct{ journal.Journal }

func (h heir) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (journal.TakeOverResult, error) {
	o.Lease = time.Millisecond
	return h.Journal.TakeOver(ctx, self, o)
}

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
	// whole is the run without a death.
	whole := func(t *testing.T, s store, id string, k *calls, over func(journal.Journal) journal.Journal) *live {
		t.Helper()
		own := agents(t, s, actors{"reasoner": &reasoner{script: a.script}, "other": &reasoner{script: []string{`["work"]`, `{"result": "all"}`}}, "work": &recorder{}, "ok": &recorder{}, "shorten": &recorder{}})
		own[heirs[0].Name] = pureActor{heirs[0].Actor}
		for name, one := range own {
			own[name] = k.around(one)
		}
		l := run(t, s, own, named(id), func(_ *engine.Config, d *engine.Deps) { d.Journal = over(d.Journal) })
		l.jobs(t)
		return l
	}
	stores := map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore}
	if a.other != nil {
		delete(stores, "Postgres")
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undead := &calls{of: map[string]int{}}
			s := open(t)
			l := whole(t, s, "a", undead, func(j journal.Journal) journal.Journal { return j })
			id := l.start(t, agentOf(t, a.graph))
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, a.kept, l.remembered(t, l.child(t, id)))
			for n := 1; n <= undead.made; n++ {
				if a.other != nil && !slices.Contains(a.other, undead.order[n-1]) {
					continue
				}
				t.Run(fmt.Sprintf("Call%d", n), func(t *testing.T) {
					t.Parallel()
					s, wire, dead := open(t), &line{}, make(chan struct{})
					first := &calls{of: map[string]int{}, n: n, then: func() {
						wire.cut.Store(true)
						close(dead)
					}}
					l := whole(t, s, "a", first, func(j journal.Journal) journal.Journal {
						wire.Journal = j
						return wire
					})
					id := l.start(t, agentOf(t, a.graph))
					<-dead
					second := &calls{of: map[string]int{}}
					l = whole(t, s, "b", second, func(j journal.Journal) journal.Journal { return heir{j} })
					row := l.wait(t, id, journal.StateCompleted)
					require.JSONEq(t, `"done after"`, string(row.Result))
					child := l.child(t, id)
					require.Equal(t, a.kept, l.remembered(t, child))
					facts, err := l.j.ListFacts(t.Context(), ns, fact.Filter{}, page.Cursor{}, 10)
					require.NoError(t, err)
					require.Equal(t, slices.Contains(a.kept, "LEARNING"), len(facts) == 1, "%v", facts)
					all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
					require.NoError(t, err)
					require.Equal(t, a.takes, all[len(all)-1].Agent)
					require.JSONEq(t, strings.ReplaceAll(cmp.Or(a.result, `"all"`), "THREAD", all[len(all)-1].ID), string(child.Result))
					both := maps.Clone(first.of)
					for ref, made := range second.of {
						both[ref] += made
					}
					repeated, most := 0, 0
					for ref, made := range both {
						require.Equal(t, undead.of[ref] > 0, made > 0, ref)
						repeated, most = repeated+made-undead.of[ref], max(most, made-undead.of[ref])
					}
					require.Equal(t, 1, most, "%v after %v", second.of, first.of)
					require.LessOrEqual(t, repeated, a.atOnce, "%v after %v", second.of, first.of)
					l.sound(t, id)
					l.sound(t, child.ID)
				})
			}
		})
	}
}
