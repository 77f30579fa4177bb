package team_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestRoutes(t *testing.T) {
	t.Parallel()
	members := []team.Member{
		{Name: "a", Actor: "agent", Kind: team.Agent, Signals: map[string]team.Signal{"to_b": {Handoff: "b"}, "plan": {Set: map[string]json.RawMessage{"plan": json.RawMessage("true")}}}},
		{Name: "b", Actor: "agent", Kind: team.Agent}, {Name: "c", Actor: "agent", Kind: team.Agent},
	}
	state := map[string]workgraph.StateKey{"plan": {Initial: json.RawMessage("false")}}
	// said is how the next speaker was found after an answer of a.
	said := func(t *testing.T, x *team.Team, m team.Message) []workgraph.Routed {
		t.Helper()
		rules, faults := team.Compile(t.Context(), x)
		require.NotNil(t, rules, "%v", faults)
		_, st, move, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "hi"}}, time.Now())
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, move.Speak)
		m.From = "a"
		_, _, move, err = rules.Hear(t.Context(), st, []team.Message{m}, team.Used{}, false, time.Now())
		require.NoError(t, err)
		return move.Routed
	}
	graph := &team.Team{Members: members, State: state, Start: []string{"a"}, Transitions: []team.Transition{
		{From: "a", To: "b", When: &team.When{Any: []team.When{{Text: "DONE"}, {Handoff: "b"}}}},
		{From: "a", To: "c", When: &team.When{Expr: "state.plan"}}, {From: "a", To: "b", When: &team.When{Else: true}, Group: "x"}}}
	t.Run("Condition", func(t *testing.T) {
		require.Equal(t, []workgraph.Routed{{From: "a", To: "b", How: workgraph.RoutedByCondition, Why: "(text has DONE or handoff to b)"}}, said(t, graph, team.Message{Text: "DONE"}))
	})
	t.Run("Else", func(t *testing.T) {
		require.Equal(t, []workgraph.Routed{{From: "a", To: "b", How: workgraph.RoutedElse}}, said(t, graph, team.Message{Text: "nothing"}))
	})
	t.Run("Tool/ThatSetsTheState", func(t *testing.T) {
		require.Equal(t, []workgraph.Routed{{From: "a", To: "c", How: workgraph.RoutedByTool, Why: "plan: state.plan"}}, said(t, graph, team.Message{Signals: []team.Call{{Name: "plan"}}}))
	})
	t.Run("Handoff", func(t *testing.T) {
		hands := &team.Team{Members: members[:2], State: state, Start: []string{"a"}, Transitions: []team.Transition{{From: "a", To: "b", When: &team.When{Handoff: "b"}}}}
		require.Equal(t, []workgraph.Routed{{From: "a", To: "b", How: workgraph.RoutedByHandoff, Why: "to_b"}}, said(t, hands, team.Message{Signals: []team.Call{{Name: "to_b"}}}))
	})
	t.Run("None/WhereNothingIsChosen", func(t *testing.T) {
		row := &team.Team{Members: members[:2], State: state, Start: []string{"a"}, Transitions: []team.Transition{{From: "a", To: "b"}}}
		require.Empty(t, said(t, row, team.Message{Text: "x"}))
	})
}
