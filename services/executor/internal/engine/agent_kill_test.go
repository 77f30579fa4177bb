package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	mu   sync.Mutex
	of   map[string]int
	made int
	n    int
	then func()
}

func (k *calls) around(a workgraph.Actor) workgraph.Actor {
	return pureActor{workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out, err := a.Call(ctx, c)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.of[c.Ref.String()]++
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

// An executor dies after each call of an agent's run, before the outcome is durable. Another one goes on:
// it repeats that call and no other, and nothing is in the thread twice.
func TestAgentKilledAtEveryVisit(t *testing.T) {
	t.Parallel()
	t.Run("Actions", func(t *testing.T) {
		t.Parallel()
		killedAtEveryVisit(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"work": {}}, "history": {"messages": 1, "summarize": {"actor": "shorten"}}}`, []string{`{"instant_response": "I begin.", "actions": ["work"], "instant_learnings": [{"id": "drink", "content": "likes tea"}]}`, `["work", "work"]`, `{"result": "all"}`},
			[]string{"LEARNING", "MESSAGE", "MESSAGE", "MESSAGE", "STATE 1", "STATE 2", "STATE 3", "SUMMARY 1 to 1", "SUMMARY 1 to 5"}, "agent")
	})
	t.Run("HandOver", func(t *testing.T) {
		t.Parallel()
		killedAtEveryVisit(t, `{"goal": "all of it", "reasoner": "reasoner", "actions": {"heir": {"actor": "agent/heir", "hand_over": true}}}`, []string{`["heir"]`},
			[]string{"MESSAGE", "MESSAGE", "STATE 1", "STATE 1", "STATE 2"}, "agent/heir")
	})
}

// killedAtEveryVisit runs an agent whose reasoner has a script. kept are the items that its thread has in the
// end, and takes is the agent of the thread.
func killedAtEveryVisit(t *testing.T, graph string, script, kept []string, takes string) {
	t.Helper()
	heirs, err := agent.Config{"heir": {Definition: `{"reasoner": "other", "actions": {"work": {}}}`}}.Specs(nil)
	require.NoError(t, err)
	// whole is the run without a death.
	whole := func(t *testing.T, s store, id string, k *calls, over func(journal.Journal) journal.Journal) *live {
		t.Helper()
		own := agents(t, s, actors{"reasoner": &reasoner{script: script}, "other": &reasoner{script: []string{`["work"]`, `{"result": "all"}`}}, "work": &recorder{}, "ok": &recorder{}, "shorten": &recorder{}})
		own[heirs[0].Name] = pureActor{heirs[0].Actor}
		for name, a := range own {
			own[name] = k.around(a)
		}
		l := run(t, s, own, named(id), func(_ *engine.Config, d *engine.Deps) { d.Journal = over(d.Journal) })
		l.jobs(t)
		return l
	}
	for name, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undead := &calls{of: map[string]int{}}
			s := open(t)
			l := whole(t, s, "a", undead, func(j journal.Journal) journal.Journal { return j })
			id := l.start(t, agentOf(t, graph))
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, kept, l.remembered(t, l.child(t, id)))
			for n := 1; n <= undead.made; n++ {
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
					id := l.start(t, agentOf(t, graph))
					<-dead
					second := &calls{of: map[string]int{}}
					l = whole(t, s, "b", second, func(j journal.Journal) journal.Journal { return heir{j} })
					row := l.wait(t, id, journal.StateCompleted)
					require.JSONEq(t, `"done after"`, string(row.Result))
					child := l.child(t, id)
					require.JSONEq(t, `"all"`, string(child.Result))
					require.Equal(t, kept, l.remembered(t, child))
					facts, err := l.j.ListFacts(t.Context(), ns, fact.Filter{}, page.Cursor{}, 10)
					require.NoError(t, err)
					require.Equal(t, slices.Contains(kept, "LEARNING"), len(facts) == 1, "%v", facts)
					all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
					require.NoError(t, err)
					require.Equal(t, takes, all[len(all)-1].Agent)
					both := maps.Clone(first.of)
					for ref, made := range second.of {
						both[ref] += made
					}
					repeated := 0
					for ref, made := range both {
						require.Equal(t, undead.of[ref] > 0, made > 0, ref)
						repeated += made - undead.of[ref]
					}
					require.Equal(t, 1, repeated, "%v after %v", second.of, first.of)
					l.sound(t, id)
					l.sound(t, child.ID)
				})
			}
		})
	}
}
