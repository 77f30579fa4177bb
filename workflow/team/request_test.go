package team_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// planning is a team whose front member has tasks planned, as that of the orchestrator.
func planning() *team.Team {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tm := of("front plan", "front -> plan if x")
	tm.Transitions[0].When = &team.When{Expr: "state.needs"}
	tm.State = map[string]workgraph.StateKey{"needs": {Initial: raw("false")}, "task": {Initial: raw(`""`)}, "customer": {Initial: raw(`""`)}, "seen": {Reducer: workgraph.Append}}
	tm.Members[0].Signals = map[string]team.Signal{"plan": {Set: map[string]json.RawMessage{"needs": raw("true"), "task": raw(`"{{ task }}"`), "customer": raw(`"Acme"`), "seen": raw(`"{{ task }}"`)}}}
	tm.Members[1].Task, tm.Members[1].Sets = "state.task + string(state.seen.size())", map[string]json.RawMessage{"needs": raw("false")}
	return tm
}

// brokenOff is a team of which a run broke off while the members of a move spoke, after these answers.
func brokenOff(t *testing.T, tm *team.Team, answers ...team.Message) *play {
	t.Helper()
	p := newPlay(t, tm)
	logged, st, move, err := p.rules.Begin(t.Context(), p.st, []team.Message{{Text: "old"}}, p.now)
	for _, m := range answers {
		require.NoError(t, err)
		require.Equal(t, []string{m.From}, move.Speak)
		p.log = append(p.log, logged...)
		logged, st, move, err = p.rules.Hear(t.Context(), st, []team.Message{m}, team.Used{}, false, p.now)
	}
	require.NoError(t, err)
	p.log, p.st = append(p.log, logged...), st
	return p
}

// TestRequest is about what is asked after a run that broke off.
func TestRequest(t *testing.T) {
	t.Parallel()
	signal := team.Message{From: "front", Text: "Planning.", Signals: []team.Call{{Name: "plan", Arguments: json.RawMessage(`{"task": "onboard"}`)}}}
	t.Run("Input/IsHeardByThoseWhoBegin", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, planning(), signal)
		spoke, over := p.run("new")
		require.Equal(t, "user,front", spoke, "the old task is not done again")
		require.Equal(t, team.Complete, over.Reason)
		require.Equal(t, [][]string{{"new"}}, p.heard["front"])
	})
	t.Run("Input/ResetsWhatToolsSetForTheGraph", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, planning(), signal)
		require.JSONEq(t, "true", string(p.st.Values["needs"]))
		p.run("new")
		require.JSONEq(t, "false", string(p.st.Values["needs"]), "a condition reads it")
		require.JSONEq(t, `""`, string(p.st.Values["task"]), "a task reads it")
		require.JSONEq(t, `"Acme"`, string(p.st.Values["customer"]), "no expression of the graph reads it")
		require.JSONEq(t, `["onboard"]`, string(p.st.Values["seen"]), "a list is kept")
	})
	t.Run("Input/ToAMemberGoesToIt", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, planning(), signal)
		spoke, _ := p.begin([]team.Message{{Text: "new", To: "plan"}}, []string{"user"})
		require.Equal(t, "user,plan", spoke)
	})
	t.Run("Input/ThatWasNotAnsweredIsHeardToo", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, planning())
		p.run("new")
		require.Equal(t, [][]string{{"old", "new"}}, p.heard["front"])
	})
	t.Run("NoInput/GoesOnWhereItBrokeOff", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, planning(), signal)
		spoke, _ := p.run()
		require.Equal(t, "plan", spoke)
	})
	t.Run("Join/OfTheOldRequestIsOver", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, of("a b c d", "a -> b", "a -> d", "b -> c", "c -> d"), team.Message{From: "a", Text: "x"}, team.Message{From: "b", Text: "x"})
		spoke, _ := p.run("new")
		require.Equal(t, "user,a,b,c,d", spoke, "d waits for both of the new request")
	})
	t.Run("Selector/ChoosesAnew", func(t *testing.T) {
		t.Parallel()
		tm := of("a b")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm"}, maxMessages(2)
		p := newPlay(t, tm)
		logged, st, move, err := p.rules.Begin(t.Context(), p.st, []team.Message{{Text: "old"}}, p.now)
		require.NoError(t, err)
		require.NotNil(t, move.Ask)
		p.log, p.st, p.chooses = logged, st, []string{"b"}
		spoke, _ := p.run("new")
		require.Equal(t, "user,b", spoke)
	})
	router := func() *team.Team {
		return routed("front plan", team.Route{From: []string{team.Input}, To: "front"}, team.Route{From: []string{"front"}, To: "plan"})
	}
	t.Run("Router/WhatWasHeardCallsNobodyAgain", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, router(), team.Message{From: "front", Text: "plan it"})
		p.says["front"] = texts("and now this")
		spoke, _ := p.run("new")
		require.Equal(t, "user,front,plan", spoke, "plan speaks after front, not beside it")
		require.Equal(t, [][]string{{"plan it", "and now this"}}, p.heard["plan"], "nothing is lost")
	})
	t.Run("Router/NoInputGoesOn", func(t *testing.T) {
		t.Parallel()
		p := brokenOff(t, router(), team.Message{From: "front", Text: "plan it"})
		spoke, _ := p.run()
		require.Equal(t, "plan", spoke)
	})
	t.Run("Turned/ResetsWhatToolsSetForTheGraph", func(t *testing.T) {
		t.Parallel()
		tm := planning()
		tm.Members[1].Sets = nil
		p := brokenOff(t, tm, signal)
		_, st, move, err := p.rules.Turned(t.Context(), p.st, []team.Message{{From: "plan", Text: "gone"}}, []string{"new"}, team.Used{}, false, time.Unix(1000, 0))
		require.NoError(t, err)
		require.Equal(t, []string{"front"}, move.Speak)
		require.JSONEq(t, "false", string(st.Values["needs"]))
	})
}
