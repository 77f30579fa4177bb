package team_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestTurned(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	turned := func(t *testing.T, tm *team.Team) (*team.Rules, []team.Message, *team.State, team.Move) {
		t.Helper()
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules, faults)
		_, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "hello"}}, now)
		require.NoError(t, err)
		_, st, move, err := rules.Hear(t.Context(), st, []team.Message{{From: "a", Text: "from a"}}, team.Used{}, false, now)
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, move.Speak)
		logged, st, move, err := rules.Turned(t.Context(), st, []team.Message{{From: "b", Text: "gone"}}, []string{"something else"}, team.Used{}, false, now)
		require.NoError(t, err)
		return rules, logged, st, move
	}
	said := func(logged []team.Message) (out []string) {
		for i := range logged {
			out = append(out, logged[i].From+": "+logged[i].Text)
		}
		return out
	}
	members := []team.Member{{Name: "a", Actor: "x"}, {Name: "b", Actor: "x", Sets: map[string]json.RawMessage{"flag": json.RawMessage("false")}}, {Name: "c", Actor: "x"}}
	graph := func() *team.Team {
		return &team.Team{Members: members, State: map[string]workgraph.StateKey{"flag": {Initial: json.RawMessage("true")}},
			Transitions: []team.Transition{{From: "a", To: "b"}, {From: "b", To: "c"}}}
	}

	t.Run("ThoseBeginWhoHearTheInput", func(t *testing.T) {
		t.Parallel()
		_, logged, st, move := turned(t, graph())
		require.Equal(t, []string{"a"}, move.Speak, "and not c, to whom b leads")
		require.Equal(t, []string{"b: gone", "input: something else"}, said(logged))
		require.JSONEq(t, "false", string(st.Values["flag"]), "what the member sets is set")
	})
	t.Run("StopsCount", func(t *testing.T) {
		t.Parallel()
		tm := graph()
		tm.Stop = &team.Stop{MaxMessages: 4}
		_, _, _, move := turned(t, tm)
		require.NotNil(t, move.Over)
		require.Equal(t, team.MaxMessages, move.Over.Reason)
	})
	t.Run("InboxesAreFilled", func(t *testing.T) {
		t.Parallel()
		_, _, _, move := turned(t, &team.Team{Members: members[:2], State: graph().State, Routes: []team.Route{{From: []string{team.Input}, To: "a"}, {From: []string{"a"}, To: "b"}}})
		require.Equal(t, []string{"a"}, move.Speak)
	})
	t.Run("WhoDoesNotSpeakAnswersNothing", func(t *testing.T) {
		t.Parallel()
		rules, _, st, _ := turned(t, graph())
		_, _, _, err := rules.Turned(t.Context(), st, []team.Message{{From: "c"}}, []string{"x"}, team.Used{}, false, now)
		require.ErrorContains(t, err, `"c" does not speak now`)
	})
}

func TestAsk(t *testing.T) {
	t.Parallel()
	p := newPlay(t, &team.Team{Members: []team.Member{
		{Name: "a", Kind: team.Agent, Actor: "agent", Signals: map[string]team.Signal{"ask": {Say: "{{ task }}", Ask: &team.Ask{Argument: "agent", To: map[string]string{"b": "b", "refunds": "b", "c": "c"}}}}},
		{Name: "b", Actor: "x"}, {Name: "c", Actor: "x"}},
		Start: []string{"a"}, Transitions: []team.Transition{{From: "a", To: "b", When: &team.When{Handoff: "b"}, Any: true}, {From: "a", To: "c", When: &team.When{Handoff: "c"}, Any: true}}})
	for arguments, want := range map[string]string{
		`{"agent": "b", "task": "pay"}`: "user,a,b", `{"agent": "refunds", "task": "pay"}`: "user,a,b", `{"agent": "c", "task": "send"}`: "user,a,c",
		`{"agent": "nobody"}`: "user,a", `{}`: "user,a", `7`: "user,a",
	} {
		p.says["a"] = func([]team.Message) team.Message {
			return team.Message{Signals: []team.Call{{Name: "ask", Arguments: json.RawMessage(arguments)}}}
		}
		spoke, over := p.run("hello")
		require.Equal(t, want, spoke, arguments)
		require.Equal(t, team.Complete, over.Reason)
	}
}
