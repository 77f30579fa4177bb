package team_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestBeginAfterAStop stops a team while its front agent routes a task to another one.
func TestBeginAfterAStop(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	stopped := func(t *testing.T) (*team.Rules, *team.State) {
		t.Helper()
		rules, faults := team.Compile(t.Context(), &team.Team{
			Members: []team.Member{
				{Name: "front", Actor: "x", Signals: map[string]team.Signal{"route": {Set: map[string]json.RawMessage{"routed": json.RawMessage("true")}}}},
				{Name: "plans", Actor: "x"},
			},
			State:       map[string]workgraph.StateKey{"routed": {Initial: json.RawMessage("false")}},
			Transitions: []team.Transition{{From: "front", To: "plans", When: &team.When{Expr: "state.routed"}}},
		})
		require.NotNil(t, rules, faults)
		_, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "the old task"}}, now)
		require.NoError(t, err)
		answer := team.Message{From: "front", Signals: []team.Call{{Name: "route"}}}
		_, st, move, err := rules.Hear(t.Context(), st, []team.Message{answer}, team.Used{}, true, now)
		require.NoError(t, err)
		require.Equal(t, team.External, move.Over.Reason)
		return rules, st
	}
	t.Run("ANewRequestIsHeardByThoseWhoHearTheInput", func(t *testing.T) {
		t.Parallel()
		rules, st := stopped(t)
		_, st, move, err := rules.Begin(t.Context(), st, []team.Message{{Text: "something else"}}, now)
		require.NoError(t, err)
		require.Equal(t, []string{"front"}, move.Speak)
		require.JSONEq(t, "false", string(st.Values["routed"]), "the new request is not led to the old task")
	})
	t.Run("WithoutARequestItGoesOnWhereItWas", func(t *testing.T) {
		t.Parallel()
		rules, st := stopped(t)
		_, _, move, err := rules.Begin(t.Context(), st, nil, now)
		require.NoError(t, err)
		require.Equal(t, []string{"plans"}, move.Speak)
	})
}
