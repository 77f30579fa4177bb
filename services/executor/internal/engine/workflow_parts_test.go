package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// onThread starts a run on a thread.
func onThread(id string) func(*command.StartRequest) {
	return func(req *command.StartRequest) { req.ThreadID = id }
}

// parts are the ids of the threads that are parts of another one.
func (l *live) parts(t *testing.T, of string) (ids []string) {
	t.Helper()
	all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 1000)
	require.NoError(t, err)
	for _, th := range all {
		if th.PartOf == of {
			ids = append(ids, th.ID)
		}
	}
	return ids
}

// named is the thread of a run that its agents share by a name.
func (l *live) named(t *testing.T, run, name string) thread.Thread {
	t.Helper()
	th, err := l.j.ThreadByKey(t.Context(), ns, thread.SharedKey(run, name))
	require.NoError(t, err)
	return th
}

// meets has every call pass f before it answers; nil ends that.
func (m *chatty) meets(f func(string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.meet = f
}

const plain = `agents: {a: {instructions: a., tools: [whoami]}, b: {instructions: b., tools: [whoami]}}, `

func TestPartsOfTheThread(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		l, m := talkingOn(t, s)
		done := func(t *testing.T, src string, opts ...func(*command.StartRequest)) string {
			t.Helper()
			id := l.start(t, workflowOf(t, src), opts...)
			l.wait(t, id, journal.StateCompleted)
			return id
		}
		t.Run("SideBySide", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: One, ` + plain + `steps: [{parallel: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}]}]}`
			var both sync.WaitGroup
			both.Add(2)
			m.meets(func(string) { both.Done(); both.Wait() })
			done(t, src, onThread(id))
			m.meets(nil)
			require.Len(t, l.parts(t, id), 2)
			done(t, src, onThread(id))
			require.Equal(t, "hello|a!|hello", m.last("a"))
			require.Equal(t, "hi|b!|hi", m.last("b"))
			require.Len(t, l.parts(t, id), 2, "the next run goes on with them")
			th, err := l.j.Thread(t.Context(), ns, id)
			require.NoError(t, err)
			require.Zero(t, th.Last, "and nothing is said on the thread itself")
			require.NoError(t, l.j.DeleteThread(t.Context(), ns, id))
			require.Empty(t, l.parts(t, id), "they are deleted with it")
		})
		t.Run("WithoutAThread", func(t *testing.T) {
			src := `{name: Two, ` + plain + `steps: [{id: x, type: agent, agent: a, prompt: hello}]}`
			done(t, src, as("ann"))
			done(t, src, as("ann"))
			require.Equal(t, "hello", m.last("a"))
		})
		t.Run("AnotherWorkflow", func(t *testing.T) {
			id := l.thread(t)
			steps := plain + `steps: [{id: x, type: agent, agent: a, prompt: hello}]}`
			done(t, `{name: Three, `+steps, onThread(id))
			done(t, `{name: Four, `+steps, onThread(id))
			require.Equal(t, "hello", m.last("a"))
		})
		t.Run("FanOut", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: Five, ` + plain + `steps: [{id: all, type: map, over: [1, 2], body: [{id: x, type: agent, agent: a, prompt: hello}]}]}`
			done(t, src, onThread(id))
			done(t, src, onThread(id))
			require.Equal(t, "hello", m.last("a"))
			require.Empty(t, l.parts(t, id))
		})
		t.Run("InAWorkflowBelow", func(t *testing.T) {
			id := l.thread(t)
			raw, err := json.Marshal(workflowOf(t, `{name: Inner, steps: [{id: x, type: agent, system_prompt: deep., prompt: hello, tools: [whoami]}]}`))
			require.NoError(t, err)
			inner := `type: actor, actor: spawn, with: {as_result: true, graph: ` + string(raw) + `}}`
			src := `{name: Six, steps: [{parallel: [{id: p, ` + inner + `, {id: q, ` + inner + `]}]}`
			done(t, src, onThread(id))
			done(t, src, onThread(id))
			require.Equal(t, "hello|deep!|hello", m.last("deep"))
			require.Len(t, l.parts(t, id), 2, "each step that runs it has its own")
			require.Subset(t, l.keys(t), []string{":" + id + ":Inner:p/x", ":" + id + ":Inner:q/x"})
		})
		t.Run("InATurnOfAChat", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: Seven, ` + plain + `steps: [{id: x, type: agent, agent: a, prompt: hello}]}`
			raw, err := json.Marshal(workflowOf(t, src))
			require.NoError(t, err)
			turn := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "run", Actor: "spawn", Named: map[string]json.RawMessage{"as_result": json.RawMessage("true"), "graph": raw}}}}
			l.wait(t, l.start(t, turn, onThread(id), func(r *command.StartRequest) { r.Lineage = record.Lineage{TurnOf: "seven@1"} }), journal.StateCompleted)
			done(t, src, onThread(id))
			require.Equal(t, "hello|a!|hello", m.last("a"), "a run of the workflow itself goes on with what was said in the chat")
		})
		t.Run("ATeamInATurnOfAChat", func(t *testing.T) {
			id := l.thread(t)
			raw, err := json.Marshal(workflowOf(t, `{name: Team, `+plain+`steps: [{id: x, type: team, task: go, graph: {transitions: ["a -> b"]}}]}`))
			require.NoError(t, err)
			turn := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "run", Actor: "spawn", Named: map[string]json.RawMessage{"as_result": json.RawMessage("true"), "graph": raw}}}}
			for _, want := range []string{"go", "go|a!|b: b!|go"} {
				l.wait(t, l.start(t, turn, onThread(id), func(r *command.StartRequest) { r.Lineage = record.Lineage{TurnOf: "team@1"} }), journal.StateCompleted)
				require.Equal(t, want, m.last("a"))
			}
			require.Contains(t, l.keys(t), ":"+id+":Team:x")
		})
		t.Run("Shared", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: Eight, agents: {a: {instructions: a., thread: notes, tools: [whoami]}, b: {instructions: b., thread: notes, tools: [whoami]}}, steps: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}]}`
			done(t, src, onThread(id))
			done(t, src, onThread(id))
			require.Equal(t, "hello|a!|hi|b!|hello|a!|hi", m.last("b"))
			require.Len(t, l.parts(t, id), 1)
			require.Contains(t, l.keys(t), ":"+id+":Eight:threads:notes")
		})
		t.Run("TwoRunsAtOnce", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: Nine, ` + plain + `steps: [{id: x, type: agent, agent: a, prompt: hello}, {id: ask, type: actor, actor: ask}, {id: y, type: agent, agent: b, prompt: hi}]}`
			first := l.start(t, workflowOf(t, src), onThread(id))
			q := l.questions(t, first, 1)
			other := l.wait(t, l.start(t, workflowOf(t, src), onThread(id)), journal.StateFailed)
			require.Contains(t, string(other.Error), thread.ReasonBusy)
			require.Contains(t, string(other.Error), id, "it is the thread of the run that is taken")
			l.answer(t, q)
			l.wait(t, first, journal.StateCompleted)
			require.Equal(t, "hi", m.last("b"))
		})
		t.Run("DeletedAlone", func(t *testing.T) {
			id := l.thread(t)
			src := `{name: Ten, ` + plain + `steps: [{id: x, type: agent, agent: a, prompt: hello}]}`
			done(t, src, onThread(id))
			require.NoError(t, l.j.DeleteThread(t.Context(), ns, l.parts(t, id)[0]))
			done(t, src, onThread(id))
			require.Equal(t, "hello", m.last("a"))
			require.Len(t, l.parts(t, id), 1)
		})
	})
}

func TestSharedThreadsOfARun(t *testing.T) {
	t.Parallel()
	const src = `{name: %, agents: {a: {instructions: a., thread: notes, tools: [whoami]}, b: {instructions: b., thread: notes, tools: [whoami]}},
		steps: [{id: x, type: agent, agent: a, prompt: hello}, {id: ask, type: actor, actor: ask}, {id: y, type: agent, agent: b, prompt: hi}, {id: z, type: agent, agent: a, prompt: bye}]}`
	eachStore(t, func(t *testing.T, s store) {
		l, m := talkingOn(t, s)
		asks := func(t *testing.T, name string) (string, []journal.Interrupt) {
			t.Helper()
			id := l.start(t, workflowOf(t, strings.Replace(src, "%", name, 1)), as("ann"))
			return id, l.questions(t, id, 1)
		}
		t.Run("StayWhileTheRunIsOpen", func(t *testing.T) {
			id, q := asks(t, "One")
			th := l.named(t, id, "notes")
			require.Equal(t, id, th.Holder)
			_, _, err := l.j.SweepThreads(t.Context(), dbkit.Now().Add(24*time.Hour), "", 1000)
			require.NoError(t, err)
			require.ErrorContains(t, l.j.DeleteThread(t.Context(), ns, th.ID), id, "an open run holds it")
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, "hello|a!|hi", m.last("b"))
		})
		t.Run("AForkGoesOn", func(t *testing.T) {
			id, q := asks(t, "Two")
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, "hello|a!|hi|b!|bye", m.last("a"))
			was := l.named(t, id, "notes")
			for _, from := range []string{"z", "y", "y"} { // the last one is forked from a fork
				next, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: from, Visit: 1}})
				require.NoError(t, err)
				l.wait(t, next, journal.StateCompleted)
				require.Equal(t, "hello|a!|hi|b!|bye", m.last("a"), "from %s: nothing is missing, and nothing stands there twice", from)
				require.NotEqual(t, was.ID, l.named(t, next, "notes").ID)
				id = next
			}
			now, err := l.j.Thread(t.Context(), ns, was.ID)
			require.NoError(t, err)
			require.Equal(t, was.Last, now.Last, "the thread of the first run is as it was")
		})
		t.Run("AForkFromTheBeginningBeginsAnew", func(t *testing.T) {
			id, q := asks(t, "Three")
			next, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "x", Visit: 1}})
			require.NoError(t, err)
			l.answer(t, l.questions(t, next, 1))
			l.wait(t, next, journal.StateCompleted)
			require.Equal(t, "hello|a!|hi", m.last("b"))
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("AForkThatWaitsKeepsThem", func(t *testing.T) {
			id, q := asks(t, "Four")
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			next, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "ask", Visit: 1}})
			require.NoError(t, err)
			q = l.questions(t, next, 1)
			_, _, err = l.j.SweepThreads(t.Context(), dbkit.Now().Add(24*time.Hour), "", 1000)
			require.NoError(t, err)
			l.answer(t, q)
			l.wait(t, next, journal.StateCompleted)
			require.Equal(t, "hello|a!|hi", m.last("b"))
		})
		t.Run("AForkOfAnOpenRunHasItsOwn", func(t *testing.T) {
			id, q := asks(t, "Five")
			next, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "ask", Visit: 1}})
			require.NoError(t, err)
			th := l.named(t, next, "notes")
			require.Equal(t, next, th.Holder, "from the commit on that starts the fork")
			require.Equal(t, l.named(t, id, "notes").ID, th.ParentID)
			require.Equal(t, "agent", th.Agent)
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
			q = l.questions(t, next, 1)
			_, _, err = l.j.SweepThreads(t.Context(), dbkit.Now().Add(24*time.Hour), "", 1000)
			require.NoError(t, err)
			l.answer(t, q)
			l.wait(t, next, journal.StateCompleted)
			require.Equal(t, "hello|a!|hi", m.last("b"))
			require.Equal(t, "hello|a!|hi|b!|bye", m.last("a"))
		})
	})
}

// TestForkOfManyThreads forks runs of graphs whose agents share threads by many names.
func TestForkOfManyThreads(t *testing.T) {
	t.Parallel()
	graph := func(n int) *workgraph.Graph {
		g := flow(does("ask", "asks"))
		for i := range n {
			late := does(fmt.Sprint("n", i), "does")
			late.Named["thread"] = fmt.Appendf(nil, `{"name": "notes%d"}`, i)
			g.Nodes = append(g.Nodes, late)
			g.Edges = append(g.Edges, workgraph.Edge{From: "ask", To: late.ID})
		}
		return g
	}
	// looks counts the reads of threads by their keys.
	begin := func(t *testing.T, n int) (l *live, looks *keyLooks, id string) {
		t.Helper()
		looks = &keyLooks{}
		l = run(t, sqliteStore(t), payments(&recorder{}), func(_ *engine.Config, d *engine.Deps) {
			looks.Journal = d.Journal
			d.Journal = looks
		})
		id = l.start(t, graph(n))
		l.question(t, id)
		return l, looks, id
	}
	t.Run("OneLookForAllNames", func(t *testing.T) {
		t.Parallel()
		l, looks, id := begin(t, 30)
		_, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		require.EqualValues(t, 1, looks.n.Load())
	})
	t.Run("TooManyAreRefused", func(t *testing.T) {
		t.Parallel()
		l, looks, id := begin(t, thread.MaxAppends+1)
		_, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id})
		require.Equal(t, command.ReasonForkTooManyThreads, errs.ReasonOf(err), "got %v", err)
		require.Zero(t, looks.n.Load(), "before anything is looked at")
	})
}

// keyLooks counts how often threads are looked for by their keys.
type keyLooks struct {
	journal.Journal
	n atomic.Int64
}

func (k *keyLooks) ThreadByKey(ctx context.Context, namespace, key string) (thread.Thread, error) {
	k.n.Add(1)
	return k.Journal.ThreadByKey(ctx, namespace, key)
}

func (k *keyLooks) ThreadsByKeys(ctx context.Context, namespace string, keys []string) ([]thread.Thread, error) {
	k.n.Add(1)
	return k.Journal.ThreadsByKeys(ctx, namespace, keys)
}

// An executor dies after each call of a workflow on a thread, before the outcome is durable. Another one goes
// on, and each agent hears in the next run what was said in this one, once.
func TestPartsKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	model := func(string) string { return `{"role": "assistant", "content": "yes"}` }
	const src = `{name: Parts, agents: {n: {instructions: n., thread: notes, tools: [whoami]}}, steps: [{id: x, type: agent, prompt: one, tools: [whoami]},
		{id: y, type: agent, agent: n, prompt: two}, {id: z, type: agent, agent: n, prompt: three}]}`
	mortal{
		open:   sqliteStore,
		actors: func(t *testing.T, s store) actors { return workflowActors(t, s, model) },
		uncounted: func(own actors) {
			if _, ok := own["loop/act"]; ok {
				own["loop/act"] = asksForAgent{own["loop/act"]}
			}
		},
		start: func(t *testing.T, l *live) string { return l.start(t, workflowOf(t, src), onThread(l.thread(t))) },
		ends: func(t *testing.T, l *live, id string) {
			of := l.wait(t, id, journal.StateCompleted).ThreadID
			require.Len(t, l.parts(t, of), 2)
			for name, said := range map[string][]string{"x": {"user: one", ": yes"}, "threads:notes": {"user: two", ": yes", "user: three", ": yes"}} {
				th, err := l.j.ThreadByKey(t.Context(), ns, ":"+of+":Parts:"+name)
				require.NoError(t, err)
				require.Equal(t, said, l.said(t, th.ID))
			}
		},
		atOnce: 1,
	}.test(t)
}
