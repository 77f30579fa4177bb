package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// mind is the reasoner of an agent: it says its name and how often it was asked, and keeps what users told
// it each time. It fails when it is asked for the failing time.
type mind struct {
	name    string
	failing int

	mu   sync.Mutex
	told []string
}

func (m *mind) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var messages []struct{ Role, Content string }
	if err := json.Unmarshal(c.Named["messages"], &messages); err != nil {
		return workgraph.Outcome{}, err
	}
	var heard []string
	for _, one := range messages {
		if one.Role != "system" {
			heard = append(heard, one.Content)
		}
	}
	m.told = append(m.told, strings.Join(heard, "|"))
	n := len(m.told)
	if n == m.failing {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "BROKEN", "it is broken")
	}
	return workgraph.Outcome{Values: []json.RawMessage{fmt.Appendf(nil, `{"role": "assistant", "content": "%s%d"}`, m.name, n)}}, nil
}

func (m *mind) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told[len(m.told)-1]
}

// duet are two agents that speak in turn, up to so many messages.
func duet(messages int) string {
	return fmt.Sprintf(`"team": {"members": [{"name": "a", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "ra"}}, {"name": "b", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "rb"}}],
		"start": ["a"], "transitions": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}], "stop": {"max_messages": %d}}`, messages)
}

// TestTeamMembers is about the threads of members that are agents.
func TestTeamMembers(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, failing int) (l *live, a, b *mind) {
		t.Helper()
		s := sqliteStore(t)
		a, b = &mind{name: "a"}, &mind{name: "b", failing: failing}
		l = run(t, s, teams(t, s, actors{"ra": a, "rb": b}))
		l.jobs(t)
		return l, a, b
	}
	t.Run("Failure/WhoGoesOnIsToldOnce", func(t *testing.T) {
		t.Parallel()
		l, _, b := begin(t, 2)
		const id = "thr_01h455vb4pex5vsknk084sn02q"
		named := `{"task": "hello", "conversation": {"thread_id": "` + id + `"}, ` + duet(5) + `}`
		l.wait(t, l.start(t, teamOf(t, named)), journal.StateFailed)
		require.Equal(t, "hello|a: a1|b1|a: a2", b.last())
		over := l.over(t, l.start(t, teamOf(t, `{"thread_id": "`+id+`", `+duet(1)+`}`)))
		require.Equal(t, "b3", over.Text)
		require.Equal(t, "hello|a: a1|b1|a: a2", b.last(), "it went on with a thread that knows nothing of the turn that failed")
		over = l.over(t, l.start(t, teamOf(t, `{"thread_id": "`+id+`", `+duet(2)+`}`)))
		require.Equal(t, "hello|a: a1|b1|a: a2|b3|a: a3", b.last(), "and goes on with that one")
		require.Equal(t, []string{"user: hello", "a: a1", "b: b1", "a: a2", "b: b3", "a: a3", "b: b4"}, l.said(t, over.ThreadID))
	})
	t.Run("Told/AWorkflowKnowsTheTalkBeforeAndTheIDs", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"says": &member{}, "spawn": spawner{}, "inputs": inputs{}}))
		l.jobs(t)
		given := func(told string) (over teamEnd, got map[string]any) {
			named := `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}, {"name": "w", "kind": "WORKFLOW", "actor": "spawn", "told": ` + told + `,
				"named": {"graph": {"nodes": [{"id": "all", "actor": "inputs"}]}}}], "start": ["a"], "transitions": [{"from": "a", "to": "w"}], "stop": {"max_turns": 2}}}`
			over = l.over(t, l.start(t, teamOf(t, named), func(r *command.StartRequest) { r.UserID = "ann" }))
			require.NoError(t, json.Unmarshal([]byte(over.Text), &got), over.Text)
			return over, got
		}
		over, got := given(`["messages", "parent_thread_id", "user_id", "task_id"]`)
		require.Equal(t, map[string]any{"task": "hello\n\na: from a", "parent_thread_id": over.ThreadID, "user_id": "ann", "task_id": "",
			"messages": []any{map[string]any{"from": "input", "text": "hello"}, map[string]any{"from": "a", "text": "from a"}}}, got)
		_, got = given(`[]`)
		require.Equal(t, map[string]any{"task": "hello\n\na: from a"}, got, "one that names nothing is told its task alone")
	})
	t.Run("Copy/WritesToNoThreadOfTheFirstOne", func(t *testing.T) {
		t.Parallel()
		l, a, _ := begin(t, 0)
		first := l.over(t, l.start(t, teamOf(t, `{"task": "hello", `+duet(4)+`}`)))
		last := func(id string) int64 {
			th, err := thread.NewCache(l.j, 0).Thread(t.Context(), ns, id)
			require.NoError(t, err)
			return th.Last
		}
		before := []int64{last(first.Threads["a"]), last(first.Threads["b"])}
		copied, err := l.j.CreateThread(t.Context(), thread.Create{Room: thread.Room{Threads: 100, Bytes: 1 << 30}, Thread: thread.Thread{
			ID: "thr_01h455vb4pex5vsknk084sn02q", Namespace: ns, ParentID: first.ThreadID, Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()}})
		require.NoError(t, err)
		over := l.over(t, l.start(t, teamOf(t, `{"thread_id": "`+copied.ID+`", "task": "more", `+duet(4)+`}`)))
		require.Equal(t, copied.ID, over.ThreadID)
		require.Contains(t, a.last(), "hello|a1|b: b1", "it goes on with what was said")
		require.NotEqual(t, first.Threads, over.Threads)
		require.Equal(t, []int64{last(first.Threads["a"]), last(first.Threads["b"])}, before)
	})
	t.Run("Retry/WhoIsCalledAgainIsToldOnce", func(t *testing.T) {
		t.Parallel()
		l, _, b := begin(t, 2)
		id := l.start(t, teamOf(t, `{"task": "hello", `+duet(5)+`}`))
		l.wait(t, id, journal.StateFailed)
		was := l.child(t, id)
		again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: was.ID, From: &workgraph.Ref{Node: "speak.b", Visit: 4}})
		require.NoError(t, err)
		over := l.over(t, again)
		require.Equal(t, "hello|a: a1|b1|a: a2", b.last())
		require.Equal(t, []string{"user: hello", "a: a1", "b: b1", "a: a2", "b: b3"}, l.said(t, over.ThreadID))
	})
	// Rounds count the visits of all nodes of the loop: in the second one b is called for the first time.
	for at, want := range map[workgraph.Ref]string{{Node: "speak.a", Visit: 3}: "hello|a1|b: b1|a4|b: b3", {Node: "speak.b", Visit: 2}: "hello|a1|b: b3|a4|b: b4"} {
		t.Run("Fork/WritesToNoThreadOfTheFirstRun/"+at.Node, func(t *testing.T) {
			t.Parallel()
			l, a, _ := begin(t, 0)
			id := l.start(t, teamOf(t, `{"task": "hello", `+duet(6)+`}`))
			first := l.over(t, id)
			require.Equal(t, "hello|a1|b: b1|a2|b: b2", a.last())
			ends := func() (out []int64) {
				for _, name := range []string{"a", "b"} {
					th, err := thread.NewCache(l.j, 0).Thread(t.Context(), ns, first.Threads[name])
					require.NoError(t, err)
					out = append(out, th.Last)
				}
				return out
			}
			before := ends()
			again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: l.child(t, id).ID, From: &at})
			require.NoError(t, err)
			second := l.over(t, again)
			require.Equal(t, before, ends(), "those threads are as they were")
			require.NotEqual(t, first.Threads, second.Threads)
			require.Equal(t, want, a.last(), "the fork knows what was said before it, and nothing of what came after")
		})
	}
	t.Run("Fork/WhileTheFirstRunIsOpen", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		b := &mind{name: "b"}
		l := run(t, s, teams(t, s, actors{"ra": &mind{name: "a"}, "rb": b, "ask": asks, "spawn": spawner{}, "inputs": inputs{}}))
		l.jobs(t)
		inner := nestedTeam(t, `{"team": {"members": [{"name": "b", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "rb"}}]}}`)
		id := l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "ra"}}, `+inner+`, {"name": "c", "actor": "ask"}],
			"start": ["a"], "transitions": [{"from": "a", "to": "sub"}, {"from": "sub", "to": "c"}, {"from": "c", "to": "sub"}], "stop": {"max_turns": 4}}}`))
		q := l.questions(t, id, 1)
		_, _, err := l.j.SweepThreads(t.Context(), dbkit.Now().Add(time.Hour), "", 1000)
		require.NoError(t, err, "the threads of members are kept while others speak")
		again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: l.child(t, id).ID, From: &workgraph.Ref{Node: "speak.c", Visit: 3}})
		require.NoError(t, err)
		l.answer(t, l.questions(t, again, 1))
		second := l.over(t, again)
		require.Equal(t, "hello|a: a1|b1|c: yes", b.last(), "it knows what was said before")
		l.answer(t, q)
		first := l.over(t, id)
		require.Equal(t, "hello|a: a1|b1|c: yes", b.last(), "and nothing of what the fork said")
		require.NotEqual(t, first.Threads["sub"], second.Threads["sub"])
		require.Equal(t, first.Threads["a"], second.Threads["a"], "who did not speak again has its thread")
	})
	t.Run("Threads/ArePartsOfThatOfTheTeam", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"ra": &mind{name: "a"}, "rb": &mind{name: "b", failing: 1}, "spawn": spawner{}, "inputs": inputs{}}))
		l.jobs(t)
		inner := nestedTeam(t, `{"team": {"members": [{"name": "a", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "ra"}}]}}`)
		over := l.over(t, l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [`+inner+`, {"name": "b", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "rb"}, "tells": true}],
			"start": ["sub"], "transitions": [{"from": "sub", "to": "b"}, {"from": "b", "to": "sub"}], "stop": {"max_turns": 4}}}`)))
		all := func() (out []thread.Thread) {
			out, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 100)
			require.NoError(t, err)
			return out
		}
		require.GreaterOrEqual(t, len(all()), 4, "the team, the inner team and its agent, and the other agent")
		require.NoError(t, l.j.DeleteThread(t.Context(), ns, over.ThreadID))
		require.Empty(t, all())
	})
	t.Run("Steps/TwoTeamsOfAConversationHaveThreadsOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"says": &member{}}))
		l.jobs(t)
		of := func(name string) workgraph.Node {
			n := teamOf(t, `{"task": "hello", "own_thread": true, "team": {"members": [{"name": "`+name+`", "actor": "says"}]}}`).Nodes[0]
			n.ID = "team_" + name
			return n
		}
		g := &workgraph.Graph{Nodes: []workgraph.Node{of("a"), of("b")}, Edges: []workgraph.Edge{{From: "team_a", To: "team_b", PassDown: workgraph.Merge("{'args': [], 'named': {}}")}}}
		const chat = "thr_01h455vb4pex5vsknk084sn02q"
		_, err := l.j.CreateThread(t.Context(), thread.Create{Thread: thread.Thread{ID: chat, Namespace: ns, Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()}})
		require.NoError(t, err)
		in := func(r *command.StartRequest) { r.ThreadID = chat }
		first := l.over(t, l.start(t, g, in))
		require.NotEqual(t, chat, first.ThreadID)
		require.Equal(t, []string{"user: hello", "b: from b"}, l.said(t, first.ThreadID), "nothing of the other team")
		second := l.over(t, l.start(t, g, in))
		require.Equal(t, first.ThreadID, second.ThreadID, "a later turn of the conversation goes on with it")
		th, err := l.j.Thread(t.Context(), ns, first.ThreadID)
		require.NoError(t, err)
		require.Equal(t, chat, th.PartOf)
		require.Equal(t, workgraph.ThreadConversation, th.Lifetime)
	})
	t.Run("Nested/ATeamThatFailedIsToldOnce", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		b := &mind{name: "b", failing: 2}
		l := run(t, s, teams(t, s, actors{"says": &member{}, "rb": b, "spawn": spawner{}, "inputs": inputs{}}))
		l.jobs(t)
		inner := nestedTeam(t, `{"team": {"members": [{"name": "b", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "rb"}}]}}`)
		const id = "thr_01h455vb4pex5vsknk084sn02q"
		outer := func(messages int) string {
			return fmt.Sprintf(`"team": {"members": [{"name": "a", "actor": "says"}, %s], "transitions": [{"from": "a", "to": "sub"}, {"from": "sub", "to": "a"}], "start": ["a"], "stop": {"max_messages": %d}}`, inner, messages)
		}
		l.wait(t, l.start(t, teamOf(t, `{"task": "hello", "conversation": {"thread_id": "`+id+`"}, `+outer(5)+`}`)), journal.StateFailed)
		over := l.over(t, l.start(t, teamOf(t, `{"thread_id": "`+id+`", `+outer(1)+`}`)))
		require.Equal(t, "b3", over.Text)
		require.Equal(t, "hello|a: from a|b1|a: from a", b.last())
	})
}

// nestedTeam is a member that is a team and keeps its conversation.
func nestedTeam(t *testing.T, named string) string {
	t.Helper()
	g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "inputs", Actor: "inputs"}, {ID: "team", Actor: "team", Bind: map[string]workgraph.Binding{"input": {Uses: []workgraph.ResultUse{{Node: "inputs"}}}}}},
		Edges: []workgraph.Edge{{From: "inputs", To: "team", PassDown: workgraph.Merge("{'args': [], 'named': {}}")}}}
	require.NoError(t, json.Unmarshal([]byte(named), &g.Nodes[1].Named))
	raw, err := json.Marshal(g)
	require.NoError(t, err)
	return `{"name": "sub", "kind": "WORKFLOW", "keeps": true, "actor": "spawn", "named": {"as_result": true, "graph": ` + string(raw) + `}}`
}
