package team_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// play is a team whose members say what a script says.
type play struct {
	t     *testing.T
	rules *team.Rules
	st    *team.State
	log   []team.Message
	// says is what a member says; without an entry it says its name.
	says map[string]func(inbox []team.Message) team.Message
	// chooses are the answers of the model that chooses.
	chooses []string
	// heard are the texts that each member was given in each of its turns.
	heard map[string][][]string
	now   time.Time
	used  team.Used
	// paused are the reasons of pauses.
	paused []string
	asked  []string
}

func newPlay(t *testing.T, tm *team.Team) *play {
	t.Helper()
	rules, faults := team.Compile(t.Context(), tm)
	require.NotNil(t, rules, faults)
	return &play{t: t, rules: rules, st: &team.State{}, says: map[string]func([]team.Message) team.Message{}, heard: map[string][][]string{}, now: time.Unix(1000, 0)}
}

// run is a run of the team: who spoke, those side by side in braces, and how it ended.
func (p *play) run(input ...string) (spoke string, over team.Stopped) {
	p.t.Helper()
	var msgs []team.Message
	var turns []string
	for _, text := range input {
		msgs = append(msgs, team.Message{Text: text})
		turns = append(turns, "user")
	}
	return p.begin(msgs, turns)
}

func (p *play) begin(msgs []team.Message, turns []string) (string, team.Stopped) {
	p.t.Helper()
	said, st, move, err := p.rules.Begin(p.t.Context(), p.st, msgs, p.now)
	require.NoError(p.t, err)
	for {
		// What is kept is kept as JSON.
		raw, err := json.Marshal(st)
		require.NoError(p.t, err)
		p.st = &team.State{}
		require.NoError(p.t, json.Unmarshal(raw, p.st))
		p.log = append(p.log, said...)
		if move.Pause != "" {
			p.paused = append(p.paused, move.Pause)
		}
		switch {
		case move.Over != nil:
			return strings.Join(turns, ","), *move.Over
		case move.Ask != nil:
			p.asked = append(p.asked, p.rules.Prompt(move.Ask, p.log))
			require.NotEmpty(p.t, p.chooses, "the model is asked once more")
			answer := p.chooses[0]
			p.chooses = p.chooses[1:]
			said = nil
			st, move, err = p.rules.Chosen(p.st, answer, false)
			require.NoError(p.t, err)
			continue
		}
		var answers []team.Message
		var names []string
		for i := range p.st.Speaking {
			s := &p.st.Speaking[i]
			inbox := p.rules.Inbox(p.st, s, p.log[p.st.From():], false, p.now)
			task, ok, err := p.rules.Task(workgraph.NewAccount(p.t.Context()), p.st, s, inbox)
			require.NoError(p.t, err)
			if ok {
				inbox = []team.Message{{From: team.Input, Text: task}}
			}
			var texts []string
			for k := range inbox {
				texts = append(texts, inbox[k].Text)
			}
			p.heard[s.Name] = append(p.heard[s.Name], texts)
			m := team.Message{Text: s.Name}
			if f := p.says[s.Name]; f != nil {
				m = f(inbox)
			}
			m.From = s.Name
			answers, names = append(answers, m), append(names, s.Name)
		}
		turn := strings.Join(names, ",")
		if len(names) > 1 {
			turn = "{" + turn + "}"
		}
		turns = append(turns, turn)
		require.Less(p.t, len(turns), 1000, "it does not end")
		said, st, move, err = p.rules.Hear(p.t.Context(), p.st, answers, p.used, false, p.now)
		require.NoError(p.t, err)
	}
}

// texts is a member that says these in turn, and the last one again and again.
func texts(list ...string) func([]team.Message) team.Message {
	n := 0
	return func([]team.Message) team.Message {
		n++
		return team.Message{Text: list[min(n, len(list))-1]}
	}
}

// handsTo is a member that hands over to these in turn; none says its words.
func handsTo(list ...string) func([]team.Message) team.Message {
	n := 0
	return func([]team.Message) team.Message {
		n++
		to := list[min(n, len(list))-1]
		return team.Message{Text: "Transferred to " + to + ".", To: to}
	}
}

// of is a team of members with these transitions, such as "A -> B".
func of(members string, transitions ...string) *team.Team {
	t := &team.Team{}
	for _, name := range strings.Fields(members) {
		t.Members = append(t.Members, team.Member{Name: name, Actor: "x"})
	}
	for _, arrow := range transitions {
		arrow, text, _ := strings.Cut(arrow, " if ")
		from, to, _ := strings.Cut(arrow, " -> ")
		e := team.Transition{From: from, To: to}
		switch {
		case text == "else":
			e.When = &team.When{Else: true}
		case text != "":
			e.When = &team.When{Text: text}
		}
		t.Transitions = append(t.Transitions, e)
	}
	return t
}

func maxMessages(n int) *team.Stop { return &team.Stop{MaxMessages: n} }

// The cases of round robin chats.
func TestC2RoundRobin(t *testing.T) {
	t.Parallel()
	four := func(stop *team.Stop) *team.Team {
		tm := of("a1 a2 a3 a4", "a1 -> a2", "a2 -> a3", "a3 -> a4", "a4 -> a1")
		tm.Start, tm.Stop = []string{"a1"}, stop
		return tm
	}
	t.Run("MaxTurns/TheIndexSurvivesAStop", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, four(&team.Stop{MaxTurns: 3}))
		spoke, over := p.run()
		require.Equal(t, "a1,a2,a3", spoke)
		require.Equal(t, team.Stopped{Reason: team.MaxTurns, Text: "Maximum number of turns 3 reached."}, over)
		spoke, _ = p.run()
		require.Equal(t, "a4,a1,a2", spoke)
		p.st = &team.State{}
		spoke, _ = p.run()
		require.Equal(t, "a1,a2,a3", spoke, "a new state begins anew")
	})
	t.Run("MaxMessages/CountTheTask", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, four(maxMessages(3)))
		spoke, over := p.run("task")
		require.Equal(t, "user,a1,a2", spoke)
		require.Equal(t, "Maximum number of messages 3 reached, current message count: 3", over.Text)
		spoke, _ = p.run()
		require.Equal(t, "a3,a4,a1", spoke)
	})
	t.Run("Everybody/HearsEverybodyElseOnce", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, four(maxMessages(7)))
		p.run("task")
		require.Equal(t, [][]string{{"task"}, {"a2", "a3", "a4"}}, p.heard["a1"])
		require.Equal(t, [][]string{{"task", "a1"}, {"a3", "a4", "a1"}}, p.heard["a2"])
		require.Equal(t, [][]string{{"task", "a1", "a2", "a3"}}, p.heard["a4"])
	})
}

// The cases of chats in which a model chooses.
func TestC2Selector(t *testing.T) {
	t.Parallel()
	three := func() *team.Team {
		tm := of("agent1 agent2 agent3")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm"}, maxMessages(2)
		return tm
	}
	for name, c := range map[string]struct {
		chooses []string
		spoke   string
	}{
		"OneName/Speaks":                    {[]string{"agent3"}, "user,agent3"},
		"SeveralNames/AreAskedAgain":        {[]string{"agent2, agent3", "agent2"}, "user,agent2"},
		"ThreeBadAnswers/TheFirstSpeaks":    {[]string{"", "somebody", "agent1 or agent2"}, "user,agent1"},
		"NamesInWords/AreFound":             {[]string{"I choose agent2."}, "user,agent2"},
		"PartsOfWords/AreNoNames":           {[]string{"agent22", "agent3"}, "user,agent3"},
		"UnknownNames/AreAskedAgainWithWhy": {[]string{"agent9", "agent1"}, "user,agent1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, three())
			p.chooses = c.chooses
			spoke, _ := p.run("task")
			require.Equal(t, c.spoke, spoke)
			require.Empty(t, p.chooses)
		})
	}
	t.Run("TheLastSpeaker/IsNoCandidate", func(t *testing.T) {
		t.Parallel()
		tm := three()
		tm.Stop = maxMessages(3)
		p := newPlay(t, tm)
		p.chooses = []string{"agent2", "agent2", "agent2", "agent2"}
		spoke, _ := p.run("task")
		require.Equal(t, "user,agent2,agent2", spoke, "after three repetitions it speaks again")
		require.Contains(t, p.asked[3], "agent2 has just spoken: choose one of agent1, agent3.")
		require.Contains(t, p.asked[1], "Read the conversation, and choose who of [agent1, agent3] speaks next")
	})
	t.Run("Repeat/IsAllowed", func(t *testing.T) {
		t.Parallel()
		tm := three()
		tm.Stop, tm.Choose.Repeat = maxMessages(3), true
		p := newPlay(t, tm)
		p.chooses = []string{"agent2", "agent2"}
		spoke, _ := p.run("task")
		require.Equal(t, "user,agent2,agent2", spoke)
	})
	t.Run("OneCandidate/IsNotAskedFor", func(t *testing.T) {
		t.Parallel()
		tm := three()
		tm.Choose.Candidates = `result.text == 'task' ? ['agent3'] : ['agent1', 'agent2']`
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,agent3", spoke)
	})
	t.Run("UnknownCandidate/IsAnError", func(t *testing.T) {
		t.Parallel()
		tm := three()
		tm.Choose.Candidates = `['nobody']`
		rules, _ := team.Compile(t.Context(), tm)
		_, _, _, err := rules.Begin(t.Context(), &team.State{}, nil, time.Now())
		require.ErrorContains(t, err, `there is no member "nobody"`)
	})
}

// swarm is a team in which speakers hand over, or go on.
func swarm(members string, stop *team.Stop) *team.Team {
	tm := of(members)
	names := strings.Fields(members)
	for _, from := range names {
		for _, to := range names {
			if from != to {
				tm.Transitions = append(tm.Transitions, team.Transition{From: from, To: to, When: &team.When{Handoff: to}, Any: true})
			}
		}
		tm.Transitions = append(tm.Transitions, team.Transition{From: from, To: from, When: &team.When{Else: true}, Any: true})
	}
	tm.Start, tm.Stop = names[:1], stop
	return tm
}

// The cases of swarms.
func TestC2Swarm(t *testing.T) {
	t.Parallel()
	three := func(stop *team.Stop) *play {
		p := newPlay(t, swarm("second first third", stop))
		p.says["second"], p.says["third"], p.says["first"] = handsTo("third"), handsTo("first"), handsTo("second")
		return p
	}
	t.Run("Handoffs/SayWhoGoesOn", func(t *testing.T) {
		t.Parallel()
		p := three(maxMessages(6))
		spoke, over := p.run("task")
		require.Equal(t, "user,second,third,first,second,third", spoke)
		require.Equal(t, "Maximum number of messages 6 reached, current message count: 6", over.Text)
		require.Equal(t, "Transferred to third.", p.log[1].Text)
	})
	t.Run("NoHandoff/TheSameGoesOn", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, swarm("a b", maxMessages(4)))
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,a,a", spoke)
	})
	t.Run("HandoffTermination/StopsAndGoesOn", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, swarm("first second third", &team.Stop{Handoff: "third"}))
		p.says["first"], p.says["second"], p.says["third"] = handsTo("second"), handsTo("third"), handsTo("first")
		spoke, over := p.run("task")
		require.Equal(t, "user,first,second", spoke)
		require.Equal(t, "Handoff to third from second detected.", over.Text)
		spoke, _ = p.run()
		require.Equal(t, "third,first,second", spoke)
		spoke, _ = p.run("another")
		require.Equal(t, "user,third,first,second", spoke)
	})
	t.Run("HandoffToNoMember/StopsAndNeedsAnother", func(t *testing.T) {
		t.Parallel()
		tm := swarm("a b", &team.Stop{Handoff: "user"})
		p := newPlay(t, tm)
		p.says["a"], p.says["b"] = handsTo("b"), handsTo("user")
		spoke, over := p.run("task")
		require.Equal(t, "user,a,b", spoke)
		require.Equal(t, "Handoff to user from b detected.", over.Text)
		_, _, _, err := p.rules.Begin(t.Context(), p.st, nil, p.now)
		require.ErrorIs(t, err, team.ErrNoSpeaker)
		require.ErrorContains(t, err, `"b" handed over to "user"`)
		spoke, _ = p.begin([]team.Message{{Text: "here I am", To: "a"}}, []string{"user"})
		require.Equal(t, "user,a,b", spoke, "a message that hands over is the way out")
	})
}

// The cases of graphs.
func TestC2Graph(t *testing.T) {
	t.Parallel()
	anyOf := func(tm *team.Team, names ...string) *team.Team {
		for i := range tm.Members {
			tm.Members[i].Any = slices.Contains(names, tm.Members[i].Name)
		}
		return tm
	}
	for name, c := range map[string]struct {
		team  *team.Team
		says  map[string]func([]team.Message) team.Message
		spoke string
	}{
		"Chain":              {of("A B C", "A -> B", "B -> C"), nil, "user,A,B,C"},
		"FanOut":             {of("A B C", "A -> B", "A -> C"), nil, "user,A,{B,C}"},
		"FanIn/All":          {of("A B C", "A -> C", "B -> C"), nil, "user,{A,B},C"},
		"FanIn/Any":          {anyOf(of("A B C", "A -> C", "B -> C"), "C"), nil, "user,{A,B},C"},
		"Diamond/Any":        {anyOf(of("A B C D E", "A -> B", "A -> C", "B -> D", "C -> D", "D -> E"), "D", "E"), nil, "user,A,{B,C},D,E"},
		"Disconnected":       {of("A B C D", "A -> B", "C -> D"), nil, "user,{A,C},{B,D}"},
		"Branch/Yes":         {of("A B C", "A -> B if yes", "A -> C if no"), map[string]func([]team.Message) team.Message{"A": texts("yes")}, "user,A,B"},
		"Branch/No":          {of("A B C", "A -> B if yes", "A -> C if no"), map[string]func([]team.Message) team.Message{"A": texts("no")}, "user,A,C"},
		"Branch/ThreeWays":   {of("A B C D", "A -> B if apple", "A -> C if banana", "A -> D if cherry"), map[string]func([]team.Message) team.Message{"A": texts("a cherry")}, "user,A,D"},
		"Branch/Else":        {of("A B C", "A -> B if yes", "A -> C if else"), map[string]func([]team.Message) team.Message{"A": texts("perhaps")}, "user,A,C"},
		"Loop":               {of("A B C", "A -> B", "B -> A if again", "B -> C if done"), map[string]func([]team.Message) team.Message{"B": texts("again", "again", "done")}, "user,A,B,A,B,A,B,C"},
		"SelfLoop":           {of("A B C", "A -> B", "B -> B if again", "B -> C if done"), map[string]func([]team.Message) team.Message{"B": texts("again", "again", "done")}, "user,A,B,B,B,C"},
		"Join/DoesNotStarve": {of("A B C D", "A -> B if b", "A -> C if c", "B -> D", "C -> D"), map[string]func([]team.Message) team.Message{"A": texts("b")}, "user,A,B,D"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, c.team)
			for k, f := range c.says {
				p.says[k] = f
			}
			spoke, over := p.run("task")
			require.Equal(t, c.spoke, spoke)
			require.Equal(t, team.Complete, over.Reason)
		})
	}
	t.Run("TwoStarts/SpeakSideBySide", func(t *testing.T) {
		t.Parallel()
		tm := of("A B C", "A -> C", "B -> C")
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,{A,B},C", spoke)
		require.Equal(t, [][]string{{"task"}}, p.heard["B"], "who speaks at the same time is heard later")
		require.Equal(t, [][]string{{"task", "A", "B"}}, p.heard["C"])
	})
	t.Run("Any/ArrivalsInDifferentTurnsCallItTwice", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, anyOf(of("A B D", "A -> B", "A -> D", "B -> D"), "D"))
		spoke, _ := p.run("task")
		require.Equal(t, "user,A,{B,D},D", spoke)
	})
	t.Run("Stopped/GoesOnWithTheRest", func(t *testing.T) {
		t.Parallel()
		tm := of("A B C", "A -> B", "B -> C")
		tm.Stop = maxMessages(3)
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,A,B", spoke)
		spoke, over := p.run()
		require.Equal(t, "C", spoke)
		require.Equal(t, team.Complete, over.Reason)
	})
	t.Run("Finished/BeginsAnewAndKeepsTheLog", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, of("A B C", "A -> B", "B -> C"))
		p.run("task")
		spoke, _ := p.run("another")
		require.Equal(t, "user,A,B,C", spoke)
		require.Len(t, p.log, 8)
		require.Equal(t, [][]string{{"task"}, {"B", "C", "another"}}, p.heard["A"])
	})
	t.Run("SourceMatch/StateGoesIntoANewTeam", func(t *testing.T) {
		t.Parallel()
		tm := of("A B C", "A -> B", "B -> C")
		tm.Stop = &team.Stop{Answered: []string{"A"}}
		p := newPlay(t, tm)
		spoke, over := p.run("task")
		require.Equal(t, "user,A", spoke)
		require.Equal(t, "'A' answered", over.Text)
		q := newPlay(t, of("A B C", "A -> B", "B -> C"))
		q.st, q.log = p.st, p.log
		spoke, _ = q.run()
		require.Equal(t, "B,C", spoke)
	})
}

func TestC2Termination(t *testing.T) {
	t.Parallel()
	chat := func(stop team.Stop, says ...string) *play {
		tm := of("A B", "A -> B", "B -> A")
		tm.Start, tm.Stop = []string{"A"}, &stop
		p := newPlay(t, tm)
		f := texts(says...)
		p.says["A"], p.says["B"] = f, f
		return p
	}
	mention := team.Stop{Text: "stop"}
	for name, c := range map[string]struct {
		stop  team.Stop
		says  []string
		spoke string
		over  team.Stopped
	}{
		"Both/EachAtItsTime": {team.Stop{All: []team.Stop{*maxMessages(2), mention}}, []string{"Hello", "World", "stop"}, "A,B,A",
			team.Stopped{Reason: "MAX_MESSAGES+TEXT", Text: "Maximum number of messages 2 reached, current message count: 2, Text 'stop' mentioned"}},
		"Both/TheOtherFirst": {team.Stop{All: []team.Stop{*maxMessages(3), mention}}, []string{"stop", "x"}, "A,B,A",
			team.Stopped{Reason: "MAX_MESSAGES+TEXT", Text: "Maximum number of messages 3 reached, current message count: 3, Text 'stop' mentioned"}},
		"Either/Text":     {team.Stop{Any: []team.Stop{*maxMessages(3), mention}}, []string{"Hello", "stop"}, "A,B", team.Stopped{Reason: team.TextSaid, Text: "Text 'stop' mentioned"}},
		"Either/Messages": {team.Stop{Any: []team.Stop{*maxMessages(3), mention}}, []string{"Hello"}, "A,B,A", team.Stopped{Reason: team.MaxMessages, Text: "Maximum number of messages 3 reached, current message count: 3"}},
		"Expr":            {team.Stop{Expr: "result.from == 'B' && named.messages > 2"}, []string{"x"}, "A,B,A,B", team.Stopped{Reason: team.Expression, Text: "result.from == 'B' && named.messages > 2"}},
		"TextOfOne":       {team.Stop{Text: "x", Of: []string{"B"}}, []string{"x"}, "A,B", team.Stopped{Reason: team.TextSaid, Text: "Text 'x' mentioned"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoke, over := chat(c.stop, c.says...).run()
			require.Equal(t, c.spoke, spoke)
			require.Equal(t, c.over, over)
		})
	}
	t.Run("TokenUsage/AddsUp", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Tokens: 10}, "x")
		p.says["A"] = func([]team.Message) team.Message { p.used.Tokens += 5; return team.Message{Text: "x"} }
		p.says["B"] = p.says["A"]
		spoke, over := p.run()
		require.Equal(t, "A,B", spoke)
		require.Equal(t, "10 tokens were used, the limit is 10.", over.Text)
	})
	t.Run("Cost/AddsUp", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{NanoUSD: 1_000_000}, "x")
		p.says["A"] = func([]team.Message) team.Message { p.used.NanoUSD += 600_000; return team.Message{Text: "x"} }
		p.says["B"] = p.says["A"]
		_, over := p.run()
		require.Equal(t, "0.001200 USD were spent, the limit is 0.001000.", over.Text)
	})
	t.Run("FunctionCall/Stops", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Call: "pay"}, "x")
		p.says["B"] = func([]team.Message) team.Message { return team.Message{Text: "x", Calls: []string{"look", "pay"}} }
		spoke, over := p.run()
		require.Equal(t, "A,B", spoke)
		require.Equal(t, team.Called, over.Reason)
	})
	t.Run("Timeout/IsCountedFromTheRun", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Timeout: workgraph.Duration(time.Minute)}, "x")
		p.says["B"] = func([]team.Message) team.Message { p.now = p.now.Add(time.Minute); return team.Message{Text: "x"} }
		spoke, over := p.run()
		require.Equal(t, "A,B", spoke)
		require.Equal(t, team.Timeout, over.Reason)
		spoke, _ = p.run()
		require.Equal(t, "A,B", spoke, "the next run has its own minute")
	})
	t.Run("TheTask/IsLookedAtFirst", func(t *testing.T) {
		t.Parallel()
		spoke, over := chat(mention, "x").run("stop at once")
		require.Equal(t, "user", spoke)
		require.Equal(t, team.TextSaid, over.Reason)
	})
	t.Run("Limit/PausesAndGoesOnWithAsMany", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Any: []team.Stop{{MaxMessages: 2, Pause: true}, mention}}, "x", "x", "x", "x", "x", "stop")
		spoke, over := p.run()
		require.Equal(t, "A,B,A,B,A,B", spoke)
		require.Equal(t, team.TextSaid, over.Reason)
		require.Equal(t, []string{team.PauseLimit, team.PauseLimit}, p.paused, "after 2 and 4; after 6 it has ended")
	})
	t.Run("NoLimit/PausesAfterAHundredTurns", func(t *testing.T) {
		t.Parallel()
		tm := of("A B", "A -> B", "B -> A if go", "B -> A if else")
		tm.Start = []string{"A"}
		tm.Stop = &team.Stop{Expr: "named.messages == 250"}
		p := newPlay(t, tm)
		p.run()
		require.Equal(t, []string{team.PauseTurns, team.PauseTurns}, p.paused)
	})
	t.Run("External/Ends", func(t *testing.T) {
		t.Parallel()
		p := chat(mention, "x")
		_, st, _, err := p.rules.Begin(t.Context(), p.st, nil, p.now)
		require.NoError(t, err)
		_, _, move, err := p.rules.Hear(t.Context(), st, []team.Message{{From: "A", Text: "x"}}, team.Used{}, true, p.now)
		require.NoError(t, err)
		require.Equal(t, team.External, move.Over.Reason)
	})
}

// routes is a team that speaks as messages come.
func routed(members string, routes ...team.Route) *team.Team {
	tm := of(members)
	tm.Routes = routes
	return tm
}

func TestRouter(t *testing.T) {
	t.Parallel()
	from := func(names ...string) []string { return names }
	t.Run("Routes/WakeWhoHears", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, routed("a b c", team.Route{From: from("a"), To: "b"}, team.Route{From: from("a", "b"), To: "c", BatchSize: 2}))
		spoke, over := p.run("task")
		require.Equal(t, "user,a,b,c", spoke)
		require.Equal(t, [][]string{{"a", "b"}}, p.heard["c"])
		require.Equal(t, team.Complete, over.Reason)
	})
	t.Run("Batch/WaitsForItsSizeAndTakesAll", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, routed("a b c", team.Route{From: from(team.Input), To: "b", BatchSize: 2}, team.Route{From: from(team.Input), To: "a"}, team.Route{From: from("a", "b"), To: "c", BatchSize: 5}))
		spoke, _ := p.run("1", "2", "3")
		require.Equal(t, "user,user,user,{a,b},c", spoke)
		require.Equal(t, [][]string{{"1", "2", "3"}}, p.heard["b"])
		require.Equal(t, [][]string{{"a", "b"}}, p.heard["c"], "fewer than five, since nobody else can speak")
	})
	t.Run("TTL/DropsWhatIsOld", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, routed("a b c", team.Route{From: from("a"), To: "b"}, team.Route{From: from("a", "b"), To: "c", BatchSize: 2, TTL: workgraph.Duration(time.Minute)}))
		p.says["b"] = func([]team.Message) team.Message { p.now = p.now.Add(time.Hour); return team.Message{Text: "late"} }
		p.run("task")
		require.Equal(t, [][]string{{"late"}}, p.heard["c"])
	})
	t.Run("Any/HearsTheInputToo", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, routed("a b", team.Route{From: from(team.AnyOne), To: "b", BatchSize: 10}, team.Route{From: from(team.Input), To: "a"}))
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b", spoke)
		require.Equal(t, [][]string{{"task", "a"}}, p.heard["b"])
	})
	t.Run("NoRoutes/EverybodyHearsEverybody", func(t *testing.T) {
		t.Parallel()
		tm := of("a b")
		tm.Stop = maxMessages(6)
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,{a,b},{a,b},{a,b}", spoke)
		require.Equal(t, [][]string{{"task"}, {"b"}, {"b"}}, p.heard["a"])
	})
	t.Run("SharedThread/EachMessageOnce", func(t *testing.T) {
		t.Parallel()
		tm := routed("a b c", team.Route{From: from("a"), To: "b"}, team.Route{From: from("a", "b"), To: "c"})
		tm.Members[1].Thread, tm.Members[2].Thread = "notes", "notes"
		tm.Members[1].Kind, tm.Members[2].Kind = team.Agent, team.Agent
		p := newPlay(t, tm)
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,c", spoke, "b and c share a thread and do not speak at the same time")
		require.Equal(t, [][]string{{"a"}}, p.heard["b"])
		require.Equal(t, [][]string{nil}, p.heard["c"], "a's is in the thread by b, and b's own by itself")
	})
	t.Run("SharedThread/InAGraph", func(t *testing.T) {
		t.Parallel()
		tm := of("a b c", "a -> b", "b -> c", "c -> a if again", "c -> b if else")
		tm.Start, tm.Stop = from("a"), maxMessages(7)
		tm.Members[0].Thread, tm.Members[2].Thread = "one", "one"
		tm.Members[0].Kind, tm.Members[2].Kind = team.Agent, team.Agent
		p := newPlay(t, tm)
		p.says["c"] = texts("again", "more")
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,c,a,b,c", spoke)
		require.Equal(t, [][]string{{"task"}, nil}, p.heard["a"], "b's was given to c, in the same thread")
		require.Equal(t, [][]string{{"b"}, {"b"}}, p.heard["c"])
	})
	t.Run("Seed/GraphAndRouter", func(t *testing.T) {
		t.Parallel()
		tm := of("agent1 agent2 agent3 agent4", "agent1 -> agent2", "agent2 -> agent1 if again", "agent2 -> agent3 if else", "agent3 -> agent4")
		tm.Routes = []team.Route{{From: from("agent1"), To: "agent2"}, {From: from("agent1", "agent2"), To: "agent3", BatchSize: 10, TTL: workgraph.Duration(time.Hour)}, {From: from(team.AnyOne), To: "agent4"}}
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules)
		require.Len(t, faults, 1)
		require.Equal(t, "NO_EFFECT", faults[0].Code)
		p := newPlay(t, tm)
		p.says["agent2"] = texts("again", "good")
		spoke, _ := p.run("Hello", "Can you find the file 'foo.txt' for me?")
		require.Equal(t, "user,user,agent1,agent2,agent1,agent2,agent3,agent4", spoke)
		require.Equal(t, [][]string{{"Hello", "Can you find the file 'foo.txt' for me?"}, nil}, p.heard["agent1"], "no route brings it what agent2 says")
		require.Equal(t, [][]string{{"agent1", "again", "agent1", "good"}}, p.heard["agent3"])
		require.Len(t, p.heard["agent4"][0], 7)
	})
}

func TestSignals(t *testing.T) {
	t.Parallel()
	tm := of("react work", "react -> work if x")
	tm.Transitions[0].When = &team.When{Expr: "state.needs"}
	tm.State = map[string]workgraph.StateKey{"needs": {Initial: json.RawMessage("false")}, "task": {}, "seen": {Reducer: workgraph.Append}}
	tm.Members[0].Signals = map[string]team.Signal{"task_agent": {Say: "Routing {{ task }}", Set: map[string]json.RawMessage{"needs": json.RawMessage("true"), "task": json.RawMessage(`"{{ task }}"`), "seen": json.RawMessage(`"a {{ task }}"`)}}}
	p := newPlay(t, tm)
	p.says["react"] = func([]team.Message) team.Message {
		return team.Message{Signals: []team.Call{{"task_agent", json.RawMessage(`{"task": "Onboard"}`)}}}
	}
	spoke, _ := p.run("task")
	require.Equal(t, "user,react,work", spoke)
	require.Equal(t, "Routing Onboard", p.log[1].Text)
	require.JSONEq(t, `"Onboard"`, string(p.st.Values["task"]))
	require.JSONEq(t, `["a Onboard"]`, string(p.st.Values["seen"]))
	t.Run("Unknown/IsAnError", func(t *testing.T) {
		q := newPlay(t, tm)
		_, st, _, err := q.rules.Begin(t.Context(), q.st, nil, q.now)
		require.NoError(t, err)
		_, _, _, err = q.rules.Hear(t.Context(), st, []team.Message{{From: "react", Signals: []team.Call{{Name: "other"}}}}, team.Used{}, false, q.now)
		require.ErrorContains(t, err, `no signal "other"`)
		_, _, _, err = q.rules.Hear(t.Context(), st, []team.Message{{From: "work"}}, team.Used{}, false, q.now)
		require.ErrorContains(t, err, `"work" does not speak now`)
	})
	t.Run("Previous/GoesBack", func(t *testing.T) {
		tm := of("a b user", "a -> b if to b", "a -> user if else", "b -> user", "user -> previous")
		tm.Start, tm.Stop = []string{"a"}, maxMessages(7)
		p := newPlay(t, tm)
		p.says["a"] = texts("what?", "to b")
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,user,a,b,user,b", spoke)
	})
}

func BenchmarkTurn(b *testing.B) {
	tm := of("a0 a1 a2 a3 a4 a5 a6 a7 a8 a9")
	for i := range 10 {
		tm.Transitions = append(tm.Transitions, team.Transition{From: tm.Members[i].Name, To: tm.Members[(i+1)%10].Name})
	}
	tm.Start, tm.Stop = []string{"a0"}, &team.Stop{MaxMessages: 1 << 30}
	rules, _ := team.Compile(context.Background(), tm)
	_, st, move, err := rules.Begin(context.Background(), &team.State{}, []team.Message{{Text: "task"}}, time.Now())
	require.NoError(b, err)
	for b.Loop() {
		_, st, move, err = rules.Hear(context.Background(), st, []team.Message{{From: move.Speak[0], Text: "x"}}, team.Used{}, false, time.Now())
		require.NoError(b, err)
	}
	raw, err := json.Marshal(st)
	require.NoError(b, err)
	b.ReportMetric(float64(len(raw)), "state_bytes")
}
