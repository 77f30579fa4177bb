package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTeamSharedThread is about agents of a team that share a thread, of which one is told a task in place of
// what it hears: the thread gets what was said by the other one, once.
func TestTeamSharedThread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ task, want string }{
		"ATaskStandsForTheMessages": {`, "task": "'do it'"`, "do it|b1|hello|a: from a"},
		"WhatOneHeardIsThere":       {``, "hello|a: from a|b1|Go on."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStore(t)
			rb, rc := &mind{name: "b"}, &mind{name: "c"}
			l := run(t, s, teams(t, s, actors{"says": &member{}, "rb": rb, "rc": rc}))
			l.jobs(t)
			l.over(t, l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"},
				{"name": "b", "kind": "AGENT", "actor": "agent", "thread": "one", "named": {"reasoner": "rb"}`+c.task+`},
				{"name": "c", "kind": "AGENT", "actor": "agent", "thread": "one", "named": {"reasoner": "rc"}}],
				"start": ["a"], "transitions": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]}}`)))
			require.Equal(t, c.want, rc.last())
		})
	}
}
