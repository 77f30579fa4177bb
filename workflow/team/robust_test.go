package team_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// What members say, and what became of a team since, must not break it.
func TestRobust(t *testing.T) {
	t.Parallel()
	t.Run("Join/FiresInTheOrderInWhichOneLeadsToTheOther", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, of("A B C D E", "A -> B if b", "A -> C if c", "A -> E if e", "B -> D", "C -> D", "D -> E"))
		p.says["A"] = texts("b e")
		spoke, _ := p.run("task")
		require.Equal(t, "user,A,B,D,E", spoke)
	})
	t.Run("Expression/ThatFailsDoesNotHold", func(t *testing.T) {
		t.Parallel()
		tm := of("A B C", "A -> B if x", "A -> C if else")
		tm.Transitions[0].When = &team.When{Expr: "int(result.text) > 5"}
		p := newPlay(t, tm)
		p.says["A"] = texts("abc")
		spoke, _ := p.run("task")
		require.Equal(t, "user,A,C", spoke)
	})
	t.Run("Handoff/ToAStrangerLeavesOthersAlone", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b", "b -> a")
		tm.Start, tm.Stop = []string{"a"}, maxMessages(3)
		p := newPlay(t, tm)
		p.says["a"] = handsTo("typo")
		p.run("task")
		spoke, _ := p.run("more")
		require.Equal(t, "user,a,b", spoke)
	})
	t.Run("Team/MayChangeInBetween", func(t *testing.T) {
		t.Parallel()
		tm := of("a b c", "a -> b", "b -> c")
		tm.Stop = maxMessages(2)
		p := newPlay(t, tm)
		p.run("task")
		changed := of("a d", "a -> d")
		changed.State = map[string]workgraph.StateKey{"n": {Reducer: workgraph.Add}}
		q := newPlay(t, changed)
		q.st, q.log = p.st, p.log
		spoke, _ := q.run("more")
		require.Equal(t, "user,a,d", spoke, "b, who was next, is not there any more")
		require.JSONEq(t, "0", string(q.st.Values["n"]))
	})
	t.Run("Set/OfAValueThatDoesNotFitIsTold", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b")
		tm.State = map[string]workgraph.StateKey{"n": {Reducer: workgraph.Add}}
		tm.Members[0].Signals = map[string]team.Signal{"count": {Set: map[string]json.RawMessage{"n": json.RawMessage(`"{{ n }}"`)}}}
		p := newPlay(t, tm)
		p.says["a"] = func([]team.Message) team.Message {
			return team.Message{Text: "counted", Signals: []team.Call{{Name: "count"}}}
		}
		p.run("task")
		require.Contains(t, p.log[1].Text, "counted\n(Not set: the key \"n\" of the state: ADD needs a number, not null.)")
	})
	t.Run("Candidates/TwiceTheSameIsOne", func(t *testing.T) {
		t.Parallel()
		tm := of("a b")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm", Candidates: "['a', 'a']"}, maxMessages(3)
		spoke, _ := newPlay(t, tm).run("task")
		require.Equal(t, "user,a,a", spoke)
	})
	t.Run("Signals/AreCallsForStop", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b", "b -> a")
		tm.Start, tm.Stop = []string{"a"}, &team.Stop{Call: "finish"}
		tm.Members[1].Signals = map[string]team.Signal{"finish": {Say: "done"}}
		p := newPlay(t, tm)
		p.says["b"] = func([]team.Message) team.Message { return team.Message{Signals: []team.Call{{Name: "finish"}}} }
		_, over := p.run("task")
		require.Equal(t, team.Called, over.Reason)
	})
	t.Run("Limit/GrantsBeyondWhatWasUsed", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b", "b -> a")
		tm.Start, tm.Stop = []string{"a"}, &team.Stop{Any: []team.Stop{{Tokens: 1000, Pause: true}, {MaxTurns: 4}}}
		p := newPlay(t, tm)
		p.says["a"] = func([]team.Message) team.Message { p.used.Tokens = 5000; return team.Message{Text: "x"} }
		p.run("task")
		require.Equal(t, []string{team.PauseLimit}, p.paused, "not again for each thousand")
	})
	t.Run("Choosing/EndsWhenSomebodyAsks", func(t *testing.T) {
		t.Parallel()
		tm := of("a b")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm"}, maxMessages(9)
		p := newPlay(t, tm)
		_, st, move, err := p.rules.Begin(t.Context(), p.st, nil, p.now)
		require.NoError(t, err)
		require.NotNil(t, move.Ask)
		_, move, err = p.rules.Chosen(st, "a", true)
		require.NoError(t, err)
		require.Equal(t, team.External, move.Over.Reason)
	})
	t.Run("Member/IsToldATaskAndSetsTheState", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b if x")
		tm.State = map[string]workgraph.StateKey{"needs": {Initial: json.RawMessage("true")}, "task": {Initial: json.RawMessage(`"Onboard"`)}}
		tm.Transitions[0].When = &team.When{Expr: "state.needs"}
		tm.Members[1].Task, tm.Members[1].Sets = "state.task + ' after ' + result.text", map[string]json.RawMessage{"needs": json.RawMessage("false")}
		p := newPlay(t, tm)
		_, st, _, err := p.rules.Begin(t.Context(), p.st, []team.Message{{Text: "go"}}, p.now)
		require.NoError(t, err)
		_, st, _, err = p.rules.Hear(t.Context(), st, []team.Message{{From: "a", Text: "well"}}, team.Used{}, false, p.now)
		require.NoError(t, err)
		task, ok, err := p.rules.Task(workgraph.NewAccount(t.Context()), st, &st.Speaking[0], []team.Message{{From: "a", Text: "well"}})
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "Onboard after well", task)
		_, st, _, err = p.rules.Hear(t.Context(), st, []team.Message{{From: "b", Text: "done"}}, team.Used{}, false, p.now)
		require.NoError(t, err)
		require.JSONEq(t, "false", string(st.Values["needs"]))
	})
}
