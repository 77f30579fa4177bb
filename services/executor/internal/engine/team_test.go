package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
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
	eachStore(t, func(t *testing.T, s store) {
		t.Run("RoundRobin/GoesOnWhereItStopped", func(t *testing.T) {
			t.Parallel()
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
	})
}
