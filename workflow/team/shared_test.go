package team_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// sharing lets members work on one thread.
func sharing(tm *team.Team, names ...string) *team.Team {
	for i := range tm.Members {
		for _, name := range names {
			if m := &tm.Members[i]; m.Name == name {
				m.Thread, m.Kind = "one", team.Agent
			}
		}
	}
	return tm
}

// TestSharedThread is about messages that one of those who share a thread is not given, though it speaks.
func TestSharedThread(t *testing.T) {
	t.Parallel()
	from := func(names ...string) []string { return names }
	const minute = workgraph.Duration(time.Minute)
	hour := func(p *play) func([]team.Message) team.Message {
		return func([]team.Message) team.Message { p.now = p.now.Add(time.Hour); return team.Message{Text: "late"} }
	}
	t.Run("Graph/WhatATTLDropsForOneIsToldToTheOther", func(t *testing.T) {
		t.Parallel()
		tm := sharing(of("a b c", "a -> b", "b -> c"), "b", "c")
		tm.Routes = []team.Route{{From: from("a", team.Input), To: "b", TTL: minute}, {From: from("a", "b", team.Input), To: "c"}}
		p := newPlay(t, tm)
		p.says["a"] = hour(p)
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,c", spoke)
		require.Equal(t, [][]string{{"late"}}, p.heard["b"])
		require.Equal(t, [][]string{{"task"}}, p.heard["c"], "a's is in the thread by b, and what b was not given comes now")
	})
	t.Run("Graph/WhatATaskStandsForIsToldToTheOther", func(t *testing.T) {
		t.Parallel()
		tm := sharing(of("a b c", "a -> b", "b -> c"), "b", "c")
		tm.Members[1].Task = "'do it'"
		p := newPlay(t, tm)
		p.run("task")
		require.Equal(t, [][]string{{"do it"}}, p.heard["b"])
		require.Equal(t, [][]string{{"task", "a"}}, p.heard["c"])
	})
	t.Run("Graph/EachMessageOnceInManyTurns", func(t *testing.T) {
		t.Parallel()
		tm := sharing(of("a b c", "a -> b", "b -> a if again", "b -> c if else", "c -> a"), "b", "c")
		tm.Start, tm.Stop, tm.Members[1].Task = from("a"), maxMessages(11), "result.text == 'a2' ? 'do it' : result.text"
		p := newPlay(t, tm)
		p.says["a"], p.says["b"] = texts("a1", "a2", "a3", "a4"), texts("b1 again", "b2 again", "b3", "b4")
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,a,b,a,b,c,a,b,c", spoke)
		require.Equal(t, [][]string{{"task", "a1", "a2", "a3"}, {"a4"}}, p.heard["c"], "b was told tasks alone")
	})
	t.Run("Router/WhatATaskStandsForIsToldToTheOther", func(t *testing.T) {
		t.Parallel()
		tm := sharing(routed("a b c", team.Route{From: from("a"), To: "b"}, team.Route{From: from("a", "b"), To: "c"}), "b", "c")
		tm.Members[1].Task = "'do it'"
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,c", spoke)
		require.Equal(t, [][]string{{"do it"}}, p.heard["b"])
		require.Equal(t, [][]string{{"a"}}, p.heard["c"])
	})
	t.Run("Router/WhatATTLDropsForOneIsToldToTheOther", func(t *testing.T) {
		t.Parallel()
		tm := sharing(routed("a x b c", team.Route{From: from("a"), To: "x"}, team.Route{From: from("a", "x"), To: "b", BatchSize: 2, TTL: minute}, team.Route{From: from("a", "x"), To: "c", BatchSize: 9}), "b", "c")
		p := newPlay(t, tm)
		p.says["x"] = hour(p)
		p.run("task")
		require.Equal(t, [][]string{{"late"}}, p.heard["b"])
		require.Equal(t, [][]string{{"a"}}, p.heard["c"])
	})
	t.Run("Router/WhatWasTakenByATurnThatBrokeOffIsNotInTheThread", func(t *testing.T) {
		t.Parallel()
		tm := sharing(routed("a b c", team.Route{From: from(team.Input), To: "a"}, team.Route{From: from("a"), To: "b"}, team.Route{From: from(team.Input, "a"), To: "c", BatchSize: 3}), "b", "c")
		p := brokenOff(t, tm, team.Message{From: "a", Text: "old news"})
		p.says["a"] = texts("news")
		p.run("new")
		told := 0
		for _, name := range []string{"b", "c"} {
			for _, turn := range p.heard[name] {
				for _, text := range turn {
					if text == "old news" {
						told++
					}
				}
			}
		}
		require.Equal(t, 1, told, "%v", p.heard)
	})
	t.Run("Log/WhatWasNotReadOfItIsNotInTheThread", func(t *testing.T) {
		t.Parallel()
		tm := sharing(of("a b c", "a -> b", "b -> c"), "b", "c")
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules, faults)
		now := time.Unix(1000, 0)
		log, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "1"}, {Text: "2"}}, now)
		require.NoError(t, err)
		more, st, _, err := rules.Hear(t.Context(), st, []team.Message{{From: "a", Text: "3"}}, team.Used{}, false, now)
		require.NoError(t, err)
		log = append(log, more...)
		require.Len(t, rules.Inbox(st, &st.Speaking[0], log[1:], true, now), 2, "older messages were left out")
		more, st, _, err = rules.Hear(t.Context(), st, []team.Message{{From: "b", Text: "4"}}, team.Used{}, false, now)
		require.NoError(t, err)
		heard := rules.Inbox(st, &st.Speaking[0], append(log, more...), false, now)
		require.Len(t, heard, 1)
		require.Equal(t, "1", heard[0].Text)
	})
	t.Run("State/KeepsNoMoreThanItMust", func(t *testing.T) {
		t.Parallel()
		tm := sharing(of("a b c", "a -> b", "b -> a if again", "b -> c if else"), "b", "c")
		tm.Start, tm.Members[1].Task = from("a"), "'do it'"
		p := newPlay(t, tm)
		p.says["b"] = texts("again", "again", "again", "done")
		p.run("task")
		require.Empty(t, p.st.Missed, "c has heard all")
	})
}
