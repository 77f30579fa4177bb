package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/threadvalue"
	"github.com/epigraph-run/epigraph/workgraph"
)

// value is the thread as a value, as it would come to another server.
func (l *live) value(t *testing.T, id string) []byte {
	t.Helper()
	out, err := threadvalue.Export(t.Context(), l.j, ns, id)
	require.NoError(t, err)
	return out
}

// with starts a run with a thread that is made from a value.
func with(t *testing.T, value []byte) func(*command.StartRequest) {
	t.Helper()
	v, err := threadvalue.Read("thread_value", value)
	require.NoError(t, err)
	made, err := v.Make(workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral}, dbkit.Now())
	require.NoError(t, err)
	return func(req *command.StartRequest) { req.Imported = made }
}

// A thread goes in as a value and comes out as one: the run goes on as one on the thread itself does.
func TestTeamOnAValue(t *testing.T) {
	t.Parallel()
	const abc = `"members": [{"name": "a", "actor": "says"}, {"name": "b", "actor": "says"}, {"name": "c", "actor": "says"}]`
	for name, c := range map[string]struct{ rules, next string }{
		"RoundRobin":    {abc + `, "start": ["a"], "transitions": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "a"}], "stop": {"max_turns": 3}`, `a hears "b: from b\n\nc: from c\n\nmore"`},
		"WithinAJoin":   {abc + `, "start": ["a"], "transitions": [{"from": "a", "to": "b"}, {"from": "a", "to": "c"}, {"from": "b", "to": "c"}], "stop": {"max_turns": 1}`, `b hears "hello\n\na: from a\n\nmore"`},
		"WithinAnInbox": {abc + `, "routes": [{"from": ["a"], "to": "b"}, {"from": ["a", "b"], "to": "c", "batch_size": 2, "ttl": "1h"}], "stop": {"max_turns": 1}`, ``},
	} {
		for base, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
			t.Run(name+"/"+base, func(t *testing.T) {
				t.Parallel()
				here, there := &member{}, &member{}
				s, fresh := open(t), open(t)
				l, m := run(t, s, teams(t, s, actors{"says": here})), run(t, fresh, teams(t, fresh, actors{"says": there}))
				l.jobs(t)
				m.jobs(t)
				told := func(task string) *workgraph.Graph {
					return teamOf(t, fmt.Sprintf(`{"task": [%q], "team": {%s}}`, task, c.rules))
				}
				first := l.over(t, l.start(t, told("hello")))
				begun := len(here.all())
				value := l.value(t, first.ThreadID)
				on := func(req *command.StartRequest) { req.ThreadID = first.ThreadID }
				for i := range 3 { // the value goes in and comes out each time
					l.over(t, l.start(t, told("more"), on))
					over := m.over(t, m.start(t, told("more"), with(t, value)))
					require.NotEqual(t, first.ThreadID, over.ThreadID)
					require.ElementsMatch(t, here.all()[begun:], there.all(), "turn %d: those who speak at once come in any order", i)
					require.Equal(t, l.said(t, first.ThreadID), m.said(t, over.ThreadID))
					value = m.value(t, over.ThreadID)
					if i == 0 && c.next != "" {
						require.Equal(t, c.next, there.all()[0])
					}
				}
			})
		}
	}
	t.Run("OfAnotherTeamIsRefused", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"says": &member{}}))
		l.jobs(t)
		first := l.over(t, l.start(t, teamOf(t, `{"task": "hello", `+ring+`}`)))
		other := teamOf(t, `{"task": "hello", "team": {"members": [{"name": "x", "actor": "says"}, {"name": "y", "actor": "says"}], "transitions": [{"from": "x", "to": "y"}]}}`)
		row := l.wait(t, l.start(t, other, with(t, l.value(t, first.ThreadID))), journal.StateFailed)
		require.Contains(t, string(row.Error), team.ReasonOtherTeam)
		require.Contains(t, string(row.Error), first.ThreadID[:4])
	})
	t.Run("WhoseKeyIsTakenIsRefused", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"says": &member{}}))
		l.jobs(t)
		first := l.over(t, l.start(t, teamOf(t, `{"task": "hello", `+ring+`}`), func(req *command.StartRequest) { req.NewThread = &workgraph.ThreadCreate{Key: "k"} }))
		req := command.StartRequest{Namespace: ns, Graph: teamOf(t, `{"task": "more", `+ring+`}`)}
		with(t, l.value(t, first.ThreadID))(&req)
		req.Imported[0].Create.Key, req.Imported[0].Create.Lifetime = "k", workgraph.ThreadConversation
		_, _, err := l.Start(t.Context(), req)
		require.ErrorContains(t, err, `a thread has the key "k"`)
	})
}

// The members of a team that are agents remember what they said, and so do those of a team within it.
func TestTeamOfAgentsOnAValue(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	a, b := &mind{name: "a"}, &mind{name: "b"}
	l := run(t, s, teams(t, s, actors{"ra": a, "rb": b, "spawn": spawner{}, "inputs": inputs{}}))
	l.jobs(t)
	inner := nestedTeam(t, `{"team": {"members": [{"name": "b", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "rb"}}]}}`)
	g := func(task string) *workgraph.Graph {
		return teamOf(t, `{"task": "`+task+`", "team": {"members": [{"name": "a", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "ra"}}, `+inner+`],
			"start": ["a"], "transitions": [{"from": "a", "to": "sub"}, {"from": "sub", "to": "a"}], "stop": {"max_turns": 3}}}`)
	}
	first := l.over(t, l.start(t, g("hello")))
	require.Len(t, first.Threads, 2)
	value := l.value(t, first.ThreadID)
	require.NoError(t, l.j.DeleteThread(t.Context(), ns, first.ThreadID))
	over := l.over(t, l.start(t, g("more"), with(t, value)))
	require.Len(t, over.Threads, 2)
	for name, id := range over.Threads {
		require.NotEqual(t, first.Threads[name], id)
		th, err := l.j.Thread(t.Context(), ns, id)
		require.NoError(t, err)
		require.Equal(t, over.ThreadID, th.PartOf)
	}
	require.Contains(t, b.last(), "hello|a: a1|b1|", "b goes on within the team that it is in")
	require.Contains(t, b.last(), "more")
}
