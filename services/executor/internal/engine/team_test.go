package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// teams adds the team, the agent and the steps of their loops to these actors.
func teams(t *testing.T, s store, own actors) actors {
	for _, sp := range team.Specs(thread.NewCache(s.open(t), 0)) {
		own[sp.Name] = pureActor{sp.Actor}
	}
	return agents(t, s, own)
}

// teamOf is a graph of one team that is told a task.
func teamOf(t *testing.T, named string) *workgraph.Graph {
	t.Helper()
	n := workgraph.Node{ID: "team", Actor: "team"}
	require.NoError(t, json.Unmarshal([]byte(named), &n.Named))
	return &workgraph.Graph{Nodes: []workgraph.Node{n}}
}

// member says its own name and what it heard, and keeps it.
type member struct {
	mu    sync.Mutex
	calls []string
	upon  func(name string, n int) string
}

func (m *member) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := strings.TrimPrefix(c.Node, "speak.")
	m.calls = append(m.calls, name+" hears "+string(c.Named["text"]))
	say := fmt.Sprintf("%q", fmt.Sprint("from ", name))
	if m.upon != nil {
		say = m.upon(name, len(m.calls))
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}}, nil
}

func (m *member) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.calls...)
}

// said is the log of a team: who said what.
func (l *live) said(t *testing.T, id string) (out []string) {
	t.Helper()
	items, err := thread.NewCache(l.j, 0).Items(t.Context(), ns, id, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}})
	require.NoError(t, err)
	for i := len(items) - 1; i >= 0; i-- {
		var m struct{ Role, Name, Content string }
		require.NoError(t, json.Unmarshal(items[i].Body, &m))
		if m.Role == "user" {
			m.Name = "user"
		}
		out = append(out, m.Name+": "+m.Content)
	}
	return out
}

// teamEnd is the result of a team's run.
type teamEnd struct {
	Text, From string
	Stop       struct{ Reason, Text string }
	Turns      int
	Messages   int
	ThreadID   string            `json:"thread_id"`
	Threads    map[string]string `json:"threads"`
	State      map[string]json.RawMessage
}

func (l *live) over(t *testing.T, id string) (e teamEnd) {
	t.Helper()
	row := l.wait(t, id, journal.StateCompleted)
	require.NoError(t, json.Unmarshal(row.Result, &e), "%s", row.Result)
	return e
}

const ring = `"team": {"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}, {"name": "c", "actor": "says"}], "start": ["a"],
	"transitions": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "a"}], "stop": {"max_messages": 5}}`

func TestTeam(t *testing.T) {
	t.Parallel()
	for base, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
		t.Run(base+"/RoundRobin/GoesOnWhereItStopped", func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m := &member{}
			l := run(t, s, teams(t, s, actors{"says": m}))
			l.jobs(t)
			first := l.over(t, l.start(t, teamOf(t, `{"task": "hello", `+ring+`}`)))
			require.Equal(t, []string{"a hears \"hello\"", `b hears "hello\n\na: from a"`, `c hears "hello\n\na: from a\n\nb: from b"`, `a hears "b: from b\n\nc: from c"`}, m.all())
			require.Equal(t, "from a", first.Text)
			require.Equal(t, "a", first.From)
			require.Equal(t, "MAX_MESSAGES", first.Stop.Reason)
			require.Equal(t, 4, first.Turns)
			second := l.over(t, l.start(t, teamOf(t, `{"thread_id": "`+first.ThreadID+`", "task": ["more"], `+ring+`}`)))
			require.Equal(t, `b hears "c: from c\n\na: from a\n\nmore"`, m.all()[4])
			require.Equal(t, first.ThreadID, second.ThreadID)
			require.Equal(t, []string{"user: hello", "a: from a", "b: from b", "c: from c", "a: from a", "user: more", "b: from b", "c: from c", "a: from a", "b: from b"}, l.said(t, first.ThreadID))
		})
		t.Run(base+"/Nested/KeepsItsOwnConversationAndAsksAtTheTop", func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m := &member{}
			asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
			l := run(t, s, teams(t, s, actors{"says": m, "ask": asks, "spawn": spawner{}, "inputs": inputs{}}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
			l.jobs(t)
			deepest := nestedTeam(t, `{"team": {"members": [{"name": "asker", "actor": "ask"}]}}`)
			middle := nestedTeam(t, `{"team": {"members": [{"name": "x", "actor": "says"}, `+deepest+`], "transitions": [{"from": "x", "to": "sub"}]}}`)
			id := l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}, `+middle+`], "transitions": [{"from": "a", "to": "sub"}, {"from": "sub", "to": "a"}], "start": ["a"], "stop": {"max_turns": 4}}}`))
			first := l.questions(t, id, 1) // listed at the root
			l.answer(t, first)
			testkit.Eventually(t, func() bool {
				now, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 10)
				return err == nil && len(now) == 1 && now[0].ID != first[0].ID
			})
			l.answer(t, l.questions(t, id, 1))
			over := l.over(t, id)
			require.Equal(t, []string{"user: hello", "a: from a", "sub: yes", "a: from a", "sub: yes"}, l.said(t, over.ThreadID))
			require.Equal(t, []string{"user: hello", "user: a: from a", "x: from x", "sub: yes", "user: a: from a", "x: from x", "sub: yes"}, l.said(t, over.Threads["sub"]))
		})
		if base != "SQLite" {
			continue // nothing of what follows is the store's
		}
		t.Run(base+"/Limit/PausesAndGoesOnWithAsMany", func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m := &member{}
			l := run(t, s, teams(t, s, actors{"says": m}), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
			l.jobs(t)
			id := l.start(t, teamOf(t, `{"task": "hello", `+strings.Replace(ring, `{"max_messages": 5}`, `{"any": [{"max_messages": 3, "pause": true}, {"expr": "named.messages == 6"}]}`, 1)+`}`))
			l.evicted(t, id, journal.StateWaiting)
			child := l.evicted(t, l.child(t, id).ID, journal.StatePaused)
			require.Equal(t, "TEAM_LIMIT", child.Reason)
			require.Len(t, m.all(), 2)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: child.ID}))
			require.Equal(t, "EXPRESSION", l.over(t, id).Stop.Reason)
		})
		t.Run(base+"/Stop/EndsInGoodOrderAfterTheTurn", func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m := &member{}
			asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
			l := run(t, s, teams(t, s, actors{"says": m, "ask": asks}))
			l.jobs(t)
			id := l.start(t, teamOf(t, `{"task": "hello", `+strings.Replace(ring, `"c", "actor": "says"`, `"c", "actor": "ask"`, 1)+`}`))
			q := l.questions(t, id, 1)
			require.NoError(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: id, Reason: "enough"}))
			l.answer(t, q)
			over := l.over(t, id)
			require.Equal(t, "EXTERNAL", over.Stop.Reason)
			require.Equal(t, "c", over.From)
			require.Equal(t, "yes", over.Text)
		})
		t.Run(base+"/Failure/IsToldOrFailsTheTeam", func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m := &member{}
			bad := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "BROKEN", "it is broken")
			})
			l := run(t, s, teams(t, s, actors{"says": m, "bad": bad}))
			l.jobs(t)
			failing := strings.Replace(ring, `"b", "actor": "says"`, `"b", "actor": "bad"`, 1)
			id := l.start(t, teamOf(t, `{"task": "hello", `+failing+`}`))
			require.Contains(t, string(l.wait(t, id, journal.StateFailed).Error), "it is broken")
			over := l.over(t, l.start(t, teamOf(t, `{"task": "hello", `+strings.Replace(failing, `"actor": "bad"`, `"actor": "bad", "tells": true`, 1)+`}`)))
			require.Equal(t, []string{"user: hello", "a: from a", "b: Error: it is broken", "c: from c", "a: from a"}, l.said(t, over.ThreadID))
		})
	}
}

// inputs gives its named arguments, as workflows begin.
type inputs struct{}

func (inputs) Info() workgraph.ActorInfo { return workgraph.ActorInfo{Effect: workgraph.Pure} }

func (inputs) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	raw, err := json.Marshal(c.Named)
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
}

// spawner runs the graph that it is given, as the actor spawn does.
type spawner struct{}

func (spawner) Info() workgraph.ActorInfo { return workgraph.ActorInfo{Effect: workgraph.Pure} }

func (spawner) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	child := workgraph.Child{}
	if err := errors.Join(json.Unmarshal(c.Named["graph"], &child.Graph), json.Unmarshal(c.Named["input"], &child.Input)); err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{child}, AsResult: true}}}, nil
}

// An executor dies after each call of a team's run, before the outcome is durable. Another one goes on, and
// each message is said once.
func TestTeamKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ named, want string }{
		"RoundRobin": {`{"task": "hello", ` + strings.Replace(ring, `"max_messages": 5`, `"max_messages": 4`, 1) + `}`, "user: hello|a: from a|b: from b|c: from c"},
		"Routed": {`{"task": ["1", "2", "3"], "team": {"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}, {"name": "c", "actor": "says"}],
			"routes": [{"from": ["a"], "to": "b"}, {"from": ["a", "b"], "to": "c", "batch_size": 2}]}}`,
			"user: 1|user: 2|user: 3|a: from a|b: from b|c: from c"},
		"Chosen": {`{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}], "choose": {"actor": "chooses"}, "stop": {"max_messages": 3}}}`,
			"user: hello|b: from b|a: from a"},
	} {
		for base, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
			if base == "Postgres" && name != "RoundRobin" {
				continue // the rules differ, and not what is written
			}
			t.Run(name+"/"+base, func(t *testing.T) {
				t.Parallel()
				chooses := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
					return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"b"`)}}, nil
				})
				mortal{
					open:   open,
					actors: func(t *testing.T, s store) actors { return teams(t, s, actors{"says": &member{}, "chooses": chooses}) },
					start:  func(t *testing.T, l *live) string { return l.start(t, teamOf(t, c.named)) },
					ends: func(t *testing.T, l *live, id string) {
						over := l.over(t, id)
						require.Equal(t, c.want, strings.Join(l.said(t, over.ThreadID), "|"))
					},
					atOnce: 1, exact: true,
				}.test(t)
			})
		}
	}
}
