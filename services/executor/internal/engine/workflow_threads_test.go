package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	stepflow "github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// chatty is a model that several agents ask. It answers `NAME heard N`, with the name that begins what the
// agent is told of itself and how many messages it was shown, and keeps what it was shown.
type chatty struct {
	mu    sync.Mutex
	shown map[string][]string
	// meet, if not nil, is passed by every call before it answers.
	meet func(name string)
}

func (m *chatty) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(c.Named["messages"], &messages); err != nil {
		return workgraph.Outcome{}, err
	}
	var system string
	_ = json.Unmarshal(c.Named["system"], &system)
	name, _, _ := strings.Cut(system, ".")
	var heard []string
	for _, one := range messages {
		if one.Role == "system" || strings.HasPrefix(one.Content, "Attachments:") {
			continue
		}
		heard = append(heard, one.Content)
	}
	m.mu.Lock()
	if m.shown == nil {
		m.shown = map[string][]string{}
	}
	m.shown[name] = append(m.shown[name], strings.Join(heard, "|"))
	meet := m.meet
	m.mu.Unlock()
	if meet != nil {
		meet(name)
	}
	raw, err := json.Marshal(map[string]string{"role": "assistant", "content": name + "!"})
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
}

func (m *chatty) last(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.shown[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// talking are an executor and the model of its agents, for workflows of steps and teams.
func talking(t *testing.T) (*live, *chatty) {
	t.Helper()
	return talkingOn(t, sqliteStore(t))
}

func talkingOn(t *testing.T, s store) (*live, *chatty) {
	t.Helper()
	m := &chatty{}
	own := actors{"llm": m, "spawn": pureActor{spawn.Spec(nil).Actor}, "cel": pureActor{cel.Spec().Actor}, "ask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"Well?"`)}})}
	for name, a := range stepflow.Actors() {
		own[name] = pureActor{a}
	}
	l := run(t, s, teams(t, s, own))
	l.jobs(t)
	return l, m
}

// as starts a run of a user.
func as(user string) func(*command.StartRequest) {
	return func(req *command.StartRequest) { req.UserID = user }
}

// keys are those of all threads that have one.
func (l *live) keys(t *testing.T) (out []string) {
	t.Helper()
	all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 1000)
	require.NoError(t, err)
	for _, th := range all {
		if th.Key != "" {
			out = append(out, th.Key)
		}
	}
	return out
}

const rememberers = `agents: {a: {instructions: a., memory: true, tools: [whoami]}, b: {instructions: b., memory: true, tools: [whoami]}}, `

func TestMemoryOfAgents(t *testing.T) {
	t.Parallel()
	l, m := talking(t)
	done := func(t *testing.T, src string, opts ...func(*command.StartRequest)) string {
		t.Helper()
		id := l.start(t, workflowOf(t, src), opts...)
		l.wait(t, id, journal.StateCompleted)
		return id
	}
	t.Run("EachAgentHasItsOwn", func(t *testing.T) {
		src := `{name: One, ` + rememberers + `steps: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}]}`
		done(t, src, as("ann"))
		done(t, src, as("ann"))
		require.Equal(t, "hello|a!|hello", m.last("a"))
		require.Equal(t, "hi|b!|hi", m.last("b"))
		require.Subset(t, l.keys(t), []string{"ann:One/a", "ann:One/b"})
		done(t, src, as("bob"))
		require.Equal(t, "hello", m.last("a"), "another user has another memory")
		done(t, src)
		require.Equal(t, "hello", m.last("a"), "without a user there is nobody for whom it is found again")
	})
	t.Run("SideBySide", func(t *testing.T) {
		src := `{name: Two, ` + rememberers + `steps: [{parallel: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}]}]}`
		done(t, src, as("ann"))
		done(t, src, as("ann"))
		require.Equal(t, "hello|a!|hello", m.last("a"))
		require.Equal(t, "hi|b!|hi", m.last("b"))
	})
	t.Run("BelowARoot", func(t *testing.T) {
		inner := workflowOf(t, `{name: Three, `+rememberers+`steps: [{id: x, type: agent, agent: a, prompt: hello}]}`)
		raw, err := json.Marshal(inner)
		require.NoError(t, err)
		outer := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "in", Actor: "spawn", Named: map[string]json.RawMessage{"graph": raw, "as_result": json.RawMessage("true")}}}}
		for _, want := range []string{"hello", "hello|a!|hello"} {
			id := l.start(t, outer, as("ann"))
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, want, m.last("a"))
		}
	})
	t.Run("TwoRunsAtOnce", func(t *testing.T) {
		src := `{name: Four, ` + rememberers + `steps: [{id: x, type: agent, agent: a, prompt: hello}]}`
		done(t, src, as("ann"))
		var both sync.WaitGroup
		both.Add(2)
		m.mu.Lock()
		m.meet = func(string) { both.Done(); both.Wait() }
		m.mu.Unlock()
		first, second := l.start(t, workflowOf(t, src), as("ann")), l.start(t, workflowOf(t, src), as("ann"))
		l.wait(t, first, journal.StateCompleted)
		l.wait(t, second, journal.StateCompleted)
		m.mu.Lock()
		m.meet = nil
		m.mu.Unlock()
		done(t, src, as("ann"))
		require.Equal(t, "hello|a!|hello|a!|hello", m.last("a"), "one of both went on with a copy")
	})
	t.Run("Member", func(t *testing.T) {
		src := `{name: Five, ` + rememberers + `graph: {transitions: ["a -> b"]}, task: go}`
		done(t, src, as("ann"))
		require.Equal(t, "go|a: a!", m.last("b"))
		done(t, src, as("ann"))
		require.Equal(t, "go|a!|go", m.last("a"), "a new conversation of the team, and the member remembers the last one")
		require.Equal(t, "go|a: a!|b!|go|a: a!", m.last("b"))
		require.Subset(t, l.keys(t), []string{"ann:Five/a", "ann:Five/b"})
	})
}

func TestThreadsOfSteps(t *testing.T) {
	t.Parallel()
	l, m := talking(t)
	done := func(t *testing.T, src string, opts ...func(*command.StartRequest)) {
		t.Helper()
		l.wait(t, l.start(t, workflowOf(t, src), opts...), journal.StateCompleted)
	}
	const pair = `agents: {a: {instructions: a., thread: notes, tools: [whoami]}, b: {instructions: b., thread: notes, tools: [whoami]}, c: {instructions: c., tools: [whoami]}}, `
	const steps = `steps: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}, {id: z, type: agent, agent: c, prompt: ho}]}`
	t.Run("EachMessageOnce", func(t *testing.T) {
		src := `{name: One, ` + pair + steps
		done(t, src, as("ann"))
		require.Equal(t, "hello|a!|hi", m.last("b"))
		require.Equal(t, "ho", m.last("c"), "who names no thread has one of its own")
		done(t, src, as("ann"))
		require.Equal(t, "hello", m.last("a"), "the thread is that of one run")
	})
	t.Run("Memory", func(t *testing.T) {
		src := `{name: Two, threads: {notes: {memory: true}}, ` + pair + steps
		done(t, src, as("ann"))
		done(t, src, as("ann"))
		require.Equal(t, "hello|a!|hi|b!|hello|a!|hi", m.last("b"))
		require.Contains(t, l.keys(t), "ann:Two/threads/notes")
	})
	t.Run("InALoop", func(t *testing.T) {
		done(t, `{name: Three, `+pair+`steps: [{id: l, type: loop, over: [1, 2], body: [{id: x, type: agent, agent: a, prompt: hello}, {id: y, type: agent, agent: b, prompt: hi}]}, {id: z, type: agent, agent: c, prompt: ho}]}`)
		require.Equal(t, "hello|a!|hi|b!|hello|a!|hi", m.last("b"))
	})
	t.Run("ToolOnTheThreadOfItsCaller", func(t *testing.T) {
		g := workflowOf(t, `{name: Four, steps: [{id: x, type: deep_agent, prompt: hello, subagents: [{name: helper, instructions: h., share_thread: true}]}]}`)
		require.Contains(t, string(g.Nodes[1].Named["actions"]), `"share_thread":true`)
	})
}

// TestNesting runs workflows that are steps of each other, each in a map, six deep, with an agent in the
// innermost one.
func TestNesting(t *testing.T) {
	t.Parallel()
	l, m := talking(t)
	g := workflowOf(t, `{name: Level, steps: [{id: say, type: agent, system_prompt: deep., prompt: hello, tools: [whoami]}]}`)
	for range 6 {
		raw, err := json.Marshal(g)
		require.NoError(t, err)
		g = workflowOf(t, `{name: Level, steps: [{id: all, type: map, over: [1], body: [{id: inner, type: actor, actor: spawn, with: {as_result: true, graph: `+string(raw)+`}}]}]}`)
	}
	id := l.start(t, g)
	require.JSONEq(t, `[[[[[["deep!"]]]]]]`, string(l.wait(t, id, journal.StateCompleted).Result))
	require.Equal(t, "hello", m.last("deep"))
}
