package team_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	with := func(tm *team.Team, change func(*team.Team)) *team.Team {
		change(tm)
		return tm
	}
	for name, c := range map[string]struct {
		team *team.Team
		code string
		says string
	}{
		"NoMembers":        {of(""), "EMPTY", "no members"},
		"TwiceAMember":     {of("A A", "A -> A"), "DUPLICATE_ID", `there is a member "A" already`},
		"Reserved":         {of("any"), "BAD_ID", "meaning of its own"},
		"BadName":          {of("a-b"), "BAD_ID", "no name of a member"},
		"UnknownTarget":    {of("A B", "A -> C", "A -> B"), "UNKNOWN_AGENT", `no member "C"`},
		"EndlessCycle":     {with(of("A B", "A -> B", "B -> A"), func(tm *team.Team) { tm.Start = []string{"A"} }), "ENDLESS", "the cycle A -> B -> A has no end"},
		"EndlessSelfLoop":  {with(of("A B", "A -> B", "B -> B"), func(*team.Team) {}), "ENDLESS", "B -> B"},
		"EndlessPrevious":  {of("A B", "A -> B", "B -> previous"), "ENDLESS", "A -> B -> A"},
		"Mixed":            {of("A B C", "A -> B if x", "A -> C"), "MIXED_TRANSITIONS", "transitions with conditions, and this one without"},
		"OnlyElse":         {of("A B", "A -> B if else"), "MIXED_TRANSITIONS", "all transitions"},
		"Twice":            {of("A B", "A -> B", "A -> B"), "DUPLICATE_TRANSITION", "already"},
		"Unreachable":      {with(of("A B C D", "A -> B", "C -> D"), func(tm *team.Team) { tm.Start = []string{"A"} }), "UNREACHABLE", `nothing leads to "C"`},
		"ConflictingJoins": {with(of("A B C D", "A -> B", "A -> C", "B -> D", "C -> D"), func(tm *team.Team) { tm.Transitions[3].Any = true }), "CONFLICTING_JOIN", `conflicting conditions of the joins into "D", group "": "all" (from "B") and "any" (from "C")`},
		"Gap":              {routed("a b c", team.Route{From: []string{"a"}, To: "b"}, team.Route{From: []string{"c"}, To: "c2"}), "UNKNOWN_AGENT", "c2"},
		"GapInARing":       {routed("a b c", team.Route{From: []string{"b"}, To: "c"}, team.Route{From: []string{"c"}, To: "b"}), "GAP", `no route leads to "b"`},
		"GapInAGraph":      {with(of("A B C", "A -> B", "B -> C"), func(tm *team.Team) { tm.Routes = []team.Route{{From: []string{"A"}, To: "C"}} }), "GAP", `no route leads to "B"`},
		"ToItself":         {routed("a b", team.Route{From: []string{"b"}, To: "b"}), "ROUTE_TO_ITSELF", "never hears itself"},
		"Conflict":         {routed("a b c", team.Route{From: []string{"a"}, To: "c", BatchSize: 2}, team.Route{From: []string{"b"}, To: "c", BatchSize: 3}), "CONFLICTING_ROUTES", "another batch size"},
		"Endless":          {of("a b"), "ENDLESS", "everybody answers everybody"},
		"BadExpr":          {with(of("A B", "A -> B if x"), func(tm *team.Team) { tm.Transitions[0].When = &team.When{Expr: "1 +"} }), "BAD_EXPRESSION", "cannot be used"},
		"TwoConditions":    {with(of("A B", "A -> B if x"), func(tm *team.Team) { tm.Transitions[0].When.Expr = "true" }), "BAD_CONDITION", "exactly one"},
		"TwoStops":         {with(of("A"), func(tm *team.Team) { tm.Stop = &team.Stop{MaxTurns: 1, Text: "x"} }), "BAD_CONDITION", "exactly one"},
		"PauseOfAText":     {with(of("A"), func(tm *team.Team) { tm.Stop = &team.Stop{Text: "x", Pause: true} }), "NO_EFFECT", "only a limit"},
		"UnknownHandoff":   {with(of("A"), func(tm *team.Team) { tm.Members[0].Signals = map[string]team.Signal{"x": {Handoff: "B"}} }), "UNKNOWN_AGENT", `no member "B"`},
		"UnknownState": {with(of("A"), func(tm *team.Team) {
			tm.Members[0].Signals = map[string]team.Signal{"x": {Set: map[string]json.RawMessage{"k": nil}}}
		}), "UNKNOWN_STATE", `no key "k"`},
		"BadState": {with(of("A"), func(tm *team.Team) {
			tm.State = map[string]workgraph.StateKey{"k": {Reducer: workgraph.Add, Initial: json.RawMessage(`"x"`)}}
		}), "BAD_STATE", "ADD needs a number"},
		"TwoWays": {with(of("A B", "A -> B"), func(tm *team.Team) { tm.Choose = &team.Choose{Actor: "llm"} }), "SEVERAL_FORMS", "both say who speaks next"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, faults := team.Compile(t.Context(), c.team)
			require.Nil(t, rules)
			at := slices.IndexFunc(faults, func(f team.Fault) bool { return f.Code == c.code && strings.Contains(f.Message, c.says) })
			require.GreaterOrEqual(t, at, 0, "%v", faults)
		})
	}
	t.Run("Cascade/IsAWarning", func(t *testing.T) {
		t.Parallel()
		rules, faults := team.Compile(t.Context(), routed("a b", team.Route{From: []string{"a", team.Input}, To: "b"}, team.Route{From: []string{"b"}, To: "a"}))
		require.NotNil(t, rules)
		require.Len(t, faults, 2)
		require.True(t, faults[0].Warning)
		require.Equal(t, "CASCADE", faults[0].Code)
	})
	t.Run("Deep/IsBounded", func(t *testing.T) {
		t.Parallel()
		tm := of("A B", "A -> B if x")
		w := team.When{Text: "x"}
		for range 100 {
			w = team.When{Any: []team.When{w}}
		}
		tm.Transitions[0].When = &w
		rules, _ := team.Compile(t.Context(), tm)
		require.Nil(t, rules)
	})
}
