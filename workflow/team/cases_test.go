package team_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// codes are the codes of faults, those of warnings in brackets.
func codes(faults []team.Fault) (out []string) {
	for _, f := range faults {
		code := f.Code
		if f.Warning {
			code = "(" + code + ")"
		}
		out = append(out, code)
	}
	return out
}

// The cases of agents that hear a part of what is said.
func TestC2MessageFilter(t *testing.T) {
	t.Parallel()
	// heard is what c hears, after the task and two messages each of a and b.
	heard := func(t *testing.T, hears []team.Hearing) []string {
		t.Helper()
		tm := of("a b c", "a -> b", "b -> a if again", "b -> c if done")
		tm.Start, tm.Members[2].Hears = []string{"a"}, hears
		p := newPlay(t, tm)
		p.says["a"], p.says["b"] = texts("a1", "a2"), texts("b1 again", "b2 done")
		spoke, _ := p.run("task")
		require.Equal(t, "user,a,b,a,b,c", spoke)
		return p.heard["c"][0]
	}
	for name, c := range map[string]struct {
		hears []team.Hearing
		want  []string
	}{
		"NoFilter/HearsAll":         {nil, []string{"task", "a1", "b1 again", "a2", "b2 done"}},
		"EmptyList/BlocksAll":       {[]team.Hearing{}, nil},
		"OneSource/AllOfIt":         {[]team.Hearing{{From: "a"}}, []string{"a1", "a2"}},
		"First/OfASource":           {[]team.Hearing{{From: "a", First: 1}}, []string{"a1"}},
		"Last/OfASource":            {[]team.Hearing{{From: "b", Last: 1}}, []string{"b2 done"}},
		"Several/EachByItself":      {[]team.Hearing{{From: "b", Last: 1}, {From: team.Input, First: 1}, {From: "a", First: 1}}, []string{"task", "a1", "b2 done"}},
		"MoreThanThereAre/HearsAll": {[]team.Hearing{{From: "a", Last: 9}}, []string{"a1", "a2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, heard(t, c.hears))
		})
	}
	t.Run("EachTurn/IsFilteredByItself", func(t *testing.T) {
		t.Parallel()
		tm := of("a b", "a -> b", "b -> a")
		tm.Start, tm.Stop, tm.Members[1].Hears = []string{"a"}, maxMessages(5), []team.Hearing{{From: "a", First: 1}}
		p := newPlay(t, tm)
		p.says["a"] = texts("a1", "a2")
		p.run("task")
		require.Equal(t, [][]string{{"a1"}, {"a2"}}, p.heard["b"])
	})
	t.Run("Messages/ThatAreNotHeardCallNobody", func(t *testing.T) {
		t.Parallel()
		tm := of("a b c")
		tm.Stop, tm.Members[2].Hears = maxMessages(9), []team.Hearing{{From: team.Input}}
		tm.Members[0].Hears, tm.Members[1].Hears = []team.Hearing{{From: team.Input}}, []team.Hearing{{From: "a"}}
		p := newPlay(t, tm)
		spoke, over := p.run("task")
		require.Equal(t, "user,{a,c},b", spoke)
		require.Equal(t, team.Complete, over.Reason)
	})
	for name, c := range map[string]struct {
		change func(*team.Team)
		says   string
	}{
		"Stranger/IsRefused":     {func(tm *team.Team) { tm.Members[1].Hears = []team.Hearing{{From: "x"}} }, `there is no member "x"`},
		"Itself/IsRefused":       {func(tm *team.Team) { tm.Members[1].Hears = []team.Hearing{{From: "b"}} }, "never hears itself"},
		"FirstAndLast/IsRefused": {func(tm *team.Team) { tm.Members[1].Hears = []team.Hearing{{From: "a", First: 1, Last: 1}} }, "give `first` or `last`"},
		"Twice/IsRefused":        {func(tm *team.Team) { tm.Members[1].Hears = []team.Hearing{{From: "a"}, {From: "a"}} }, `hears "a" twice`},
		"SharedThread/IsRefused": {func(tm *team.Team) {
			for i := range tm.Members {
				tm.Members[i].Kind, tm.Members[i].Thread = team.Agent, "one"
			}
			tm.Members[1].Hears = []team.Hearing{{From: "a"}}
		}, "shares its thread"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := of("a b", "a -> b")
			c.change(tm)
			rules, faults := team.Compile(t.Context(), tm)
			require.Nil(t, rules)
			require.Contains(t, faults[0].Message+faults[0].Hint, c.says)
		})
	}
}

// The cases of joins in groups.
func TestC2JoinGroups(t *testing.T) {
	t.Parallel()
	groups := func(tm *team.Team, names ...string) *team.Team {
		for i, name := range names {
			tm.Transitions[i].Group, tm.Transitions[i].Any = strings.TrimSuffix(name, " any"), strings.HasSuffix(name, " any")
		}
		return tm
	}
	for name, c := range map[string]struct {
		team  *team.Team
		says  map[string]string
		spoke string
	}{
		"Independent/EachCallsTheTarget":    {groups(of("A B C D E", "A -> E", "B -> E", "C -> E", "D -> E"), "x", "x", "y", "y"), nil, "user,{A,B,C,D},E"},
		"OneIsWhole/TheOtherIsNotWaitedFor": {groups(of("A B C D E", "A -> E", "B -> E", "D -> E", "C -> D"), "x", "x", "y"), nil, "user,{A,B,C},{E,D},E"},
		"AnyAndAll/OnOneTarget":             {groups(of("A B C D", "A -> D", "B -> D", "C -> D"), "first any", "both", "both"), nil, "user,{A,B,C},D"},
		"ConditionThatFails/LeavesTheOther": {groups(of("A B C", "A -> C if yes", "B -> C"), "x", "y"), map[string]string{"A": "no"}, "user,{A,B},C"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t, c.team)
			for who, text := range c.says {
				p.says[who] = texts(text)
			}
			spoke, over := p.run("task")
			require.Equal(t, c.spoke, spoke)
			require.Equal(t, team.Complete, over.Reason)
		})
	}
	t.Run("Conflicting/InOneGroup", func(t *testing.T) {
		t.Parallel()
		_, faults := team.Compile(t.Context(), groups(of("A B C", "A -> C", "B -> C"), "x", "x any"))
		require.Equal(t, []string{"CONFLICTING_JOIN"}, codes(faults))
		require.Equal(t, `conflicting conditions of the joins into "C", group "x": "all" (from "A") and "any" (from "B")`, faults[0].Message)
	})
}

// More cases of conditions that end a chat.
func TestC2Tokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop  team.Stop
		turns []team.Used // what each turn uses
		spoke string
		text  string
	}{
		"Total/TenAndTen":   {team.Stop{Tokens: 10}, []team.Used{{Tokens: 20, InputTokens: 10, OutputTokens: 10}}, "A", "20 tokens were used, the limit is 10."},
		"Total/TwoAndTwo":   {team.Stop{Any: []team.Stop{{Tokens: 10}, *maxMessages(2)}}, []team.Used{{Tokens: 4, InputTokens: 2, OutputTokens: 2}, {}}, "A,B", "Maximum number of messages 2 reached, current message count: 2"},
		"Total/FiveAndFive": {team.Stop{Tokens: 10}, []team.Used{{Tokens: 10, InputTokens: 5, OutputTokens: 5}}, "A", "10 tokens were used, the limit is 10."},
		"Prompt/AddsUp":     {team.Stop{InputTokens: 10}, []team.Used{{Tokens: 30, InputTokens: 5, OutputTokens: 25}, {InputTokens: 5}}, "A,B", "10 input tokens were used, the limit is 10."},
		"Completion/AddsUp": {team.Stop{OutputTokens: 10}, []team.Used{{Tokens: 30, InputTokens: 25, OutputTokens: 5}, {OutputTokens: 6}}, "A,B", "11 output tokens were used, the limit is 10."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := of("A B", "A -> B", "B -> A")
			tm.Start, tm.Stop = []string{"A"}, &c.stop
			p := newPlay(t, tm)
			n := 0
			use := func([]team.Message) team.Message {
				u := c.turns[n]
				n++
				p.used.Tokens, p.used.InputTokens, p.used.OutputTokens = p.used.Tokens+u.Tokens, p.used.InputTokens+u.InputTokens, p.used.OutputTokens+u.OutputTokens
				return team.Message{Text: "x"}
			}
			p.says["A"], p.says["B"] = use, use
			spoke, over := p.run()
			require.Equal(t, c.spoke, spoke)
			require.Equal(t, c.text, over.Text)
		})
	}
	t.Run("Prompt/PausesAndGoesOnWithAsMany", func(t *testing.T) {
		t.Parallel()
		tm := of("A B", "A -> B", "B -> A")
		tm.Start, tm.Stop = []string{"A"}, &team.Stop{Any: []team.Stop{{InputTokens: 10, Pause: true}, *maxMessages(4)}}
		p := newPlay(t, tm)
		p.says["A"] = func([]team.Message) team.Message { p.used.InputTokens += 10; return team.Message{Text: "x"} }
		spoke, _ := p.run()
		require.Equal(t, "A,B,A,B", spoke)
		require.Equal(t, []string{team.PauseLimit, team.PauseLimit}, p.paused)
	})
}

// A message that stops is a call of a tool here, and one of a source is an answer of it.
func TestC2StopMessage(t *testing.T) {
	t.Parallel()
	chat := func(stop team.Stop) *play {
		tm := of("A B", "A -> B", "B -> A")
		tm.Start, tm.Stop = []string{"A"}, &stop
		tm.Members[1].Signals = map[string]team.Signal{"done": {Say: "We are done."}}
		return newPlay(t, tm)
	}
	t.Run("StopMessage/OfAnybody", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Call: "done"})
		p.says["B"] = func([]team.Message) team.Message { return team.Message{Signals: []team.Call{{Name: "done"}}} }
		spoke, over := p.run("task")
		require.Equal(t, "user,A,B", spoke)
		require.Equal(t, team.Called, over.Reason)
		require.Equal(t, "We are done.", p.log[2].Text)
	})
	t.Run("TextMessage/OfASource", func(t *testing.T) {
		t.Parallel()
		spoke, over := chat(team.Stop{Answered: []string{"B"}}).run("task")
		require.Equal(t, "user,A,B", spoke)
		require.Equal(t, "'B' answered", over.Text)
	})
	t.Run("TextMention/OfASource", func(t *testing.T) {
		t.Parallel()
		p := chat(team.Stop{Text: "stop", Of: []string{"A"}})
		p.says["A"], p.says["B"] = texts("go", "stop"), texts("stop")
		spoke, over := p.run("stop")
		require.Equal(t, "user,A,B,A", spoke, "neither the task nor B ends it")
		require.Equal(t, team.TextSaid, over.Reason)
	})
}

// More cases of chats in which a model chooses.
func TestC2Candidates(t *testing.T) {
	t.Parallel()
	three := func(candidates string) *play {
		tm := of("agent1 agent2 agent3")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm", Candidates: candidates}, maxMessages(2)
		return newPlay(t, tm)
	}
	t.Run("Given/TheModelIsAskedAmongThem", func(t *testing.T) {
		t.Parallel()
		p := three(`['agent1', 'agent3']`)
		p.chooses = []string{"agent2", "agent3"}
		spoke, _ := p.run("task")
		require.Equal(t, "user,agent3", spoke)
		require.Contains(t, p.asked[0], "who of [agent1, agent3] speaks next")
		require.Contains(t, p.asked[1], "No valid name was given: choose one of agent1, agent3.")
	})
	t.Run("Null/TheModelIsAskedAmongAll", func(t *testing.T) {
		t.Parallel()
		p := three(`result.text == 'task' ? dyn(null) : dyn(['agent1'])`)
		p.chooses = []string{"agent2"}
		spoke, _ := p.run("task")
		require.Equal(t, "user,agent2", spoke)
		require.Contains(t, p.asked[0], "who of [agent1, agent2, agent3] speaks next")
	})
	t.Run("OneName/IsTheSpeakerWithoutAModel", func(t *testing.T) {
		t.Parallel()
		spoke, _ := three(`['agent3']`).run("task")
		require.Equal(t, "user,agent3", spoke)
	})
	t.Run("None/NobodyIsLeftToSpeak", func(t *testing.T) {
		t.Parallel()
		spoke, over := three(`[]`).run("task")
		require.Equal(t, "user", spoke)
		require.Equal(t, team.Complete, over.Reason)
	})
}

// The cases of the Go port of the agent framework.
func TestC4(t *testing.T) {
	t.Parallel()
	compile := func(t *testing.T, tm *team.Team) []team.Fault {
		t.Helper()
		_, faults := team.Compile(t.Context(), tm)
		return faults
	}
	t.Run("Builder/AllOrphansAreTold", func(t *testing.T) {
		t.Parallel()
		tm := of("start b unreachable also_unreachable", "start -> b", "also_unreachable -> unreachable")
		tm.Start = []string{"start"}
		var said []string
		for _, f := range compile(t, tm) {
			said = append(said, f.Error())
		}
		slices.Sort(said)
		require.Equal(t, []string{`members.also_unreachable: nothing leads to "also_unreachable"`, `members.unreachable: nothing leads to "unreachable"`}, said)
	})
	t.Run("Builder/UnboundMember", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, codes(compile(t, of("A", "A -> B"))), "UNKNOWN_AGENT")
	})
	t.Run("Builder/ANameIsBoundOnce", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, codes(compile(t, of("A A"))), "DUPLICATE_ID")
	})
	t.Run("Builder/NoMembersAndNoActor", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"EMPTY"}, codes(compile(t, of(""))))
		require.Contains(t, codes(compile(t, &team.Team{Members: []team.Member{{Name: "A"}}})), "MISSING_KEY")
	})
	t.Run("Builder/TheOrderOfTransitionsDoesNotMatter", func(t *testing.T) {
		t.Parallel()
		arrows := []string{"A -> B", "A -> C", "B -> D", "C -> D", "D -> E if x", "D -> E if else"}
		for range arrows {
			arrows = append(arrows[1:], arrows[0])
			spoke, _ := newPlay(t, of("A B C D E", arrows...)).run("task")
			require.Contains(t, []string{"user,A,{B,C},D,E", "user,A,{C,B},D,E"}, spoke, "%v", arrows)
		}
	})
	t.Run("Builder/ATransitionTwiceIsAnError", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"DUPLICATE_TRANSITION"}, codes(compile(t, of("A B", "A -> B", "A -> B"))))
		require.Equal(t, []string{"DUPLICATE_TRANSITION"}, codes(compile(t, of("A B", "A -> B if x", "A -> B if x"))))
		require.Empty(t, compile(t, of("A B", "A -> B if x", "A -> B if y")), "other conditions make another transition")
	})
	t.Run("Builder/ConditionAndNoneOnOnePairIsRefused", func(t *testing.T) { // there it is allowed
		t.Parallel()
		require.Equal(t, []string{"MIXED_TRANSITIONS"}, codes(compile(t, of("A B", "A -> B if x", "A -> B"))))
	})
	t.Run("Builder/AChainThatComesBackNeedsAnEnd", func(t *testing.T) { // there repetition is refused
		t.Parallel()
		tm := of("A B", "A -> B", "B -> A")
		tm.Start = []string{"A"}
		require.Equal(t, []string{"ENDLESS"}, codes(compile(t, tm)))
		tm.Stop = maxMessages(4)
		spoke, _ := newPlay(t, tm).run("task")
		require.Equal(t, "user,A,B,A", spoke)
	})
	t.Run("Builder/ASelfLoopIsAWarning", func(t *testing.T) {
		t.Parallel()
		tm := of("A", "A -> A")
		tm.Stop = maxMessages(3)
		require.Equal(t, []string{"(SELF_LOOP)"}, codes(compile(t, tm)))
		spoke, _ := newPlay(t, tm).run("task")
		require.Equal(t, "user,A,A", spoke)
		require.Empty(t, compile(t, of("A B", "A -> A if again", "A -> B if else")), "a condition ends it")
	})
	t.Run("Switch/AllThatHoldAreTakenElseTheDefault", func(t *testing.T) { // there the first one is
		t.Parallel()
		for said, want := range map[string]string{"x": "user,A,B", "x y": "user,A,{B,C}", "z": "user,A,D"} {
			p := newPlay(t, of("A B C D", "A -> B if x", "A -> C if y", "A -> D if else"))
			p.says["A"] = texts(said)
			spoke, _ := p.run("task")
			require.Equal(t, want, spoke)
		}
	})
	c4Chats(t)
	c4Resumes(t)
}

// ring are agents that speak in turn, up to so many turns.
func ringOf(turns int) *team.Team {
	tm := of("agentA agentB agentC", "agentA -> agentB", "agentB -> agentC", "agentC -> agentA")
	tm.Start, tm.Stop = []string{"agentA"}, &team.Stop{MaxTurns: turns}
	return tm
}

func c4Chats(t *testing.T) {
	t.Helper()
	said := func(p *play) (out []string) {
		for i := range p.log {
			out = append(out, p.log[i].Text)
		}
		return out
	}
	t.Run("GroupChat/MaxThree", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, ringOf(3))
		p.run("hello")
		require.Equal(t, []string{"hello", "agentA", "agentB", "agentC"}, said(p))
	})
	t.Run("GroupChat/MaxFour", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, ringOf(4))
		p.run("hello")
		require.Equal(t, []string{"hello", "agentA", "agentB", "agentC", "agentA"}, said(p))
	})
	// There UpdateHistory changes what all hear.
	t.Run("GroupChat/AMemberIsToldOtherWordsByItsTask", func(t *testing.T) {
		t.Parallel()
		tm := ringOf(3)
		tm.Members[0].Task = `'[broadcast] ' + result.text`
		rules, faults := team.Compile(t.Context(), tm)
		require.NotNil(t, rules, faults)
		logged, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "hello"}}, time.Unix(1000, 0))
		require.NoError(t, err)
		text, ok, err := rules.Task(workgraph.NewAccount(t.Context()), st, &st.Speaking[0], logged)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "[broadcast] hello", text)
		require.Equal(t, "hello", logged[0].Text, "the log has what was said")
	})
	t.Run("GroupChat/TerminationByTurns", func(t *testing.T) {
		t.Parallel()
		rules, _ := team.Compile(t.Context(), ringOf(3))
		_, st, move, err := rules.Begin(t.Context(), &team.State{}, nil, time.Unix(1000, 0))
		require.NoError(t, err)
		for turn := 1; turn <= 3; turn++ {
			_, st, move, err = rules.Hear(t.Context(), st, []team.Message{{From: move.Speak[0], Text: "x"}}, team.Used{}, false, time.Unix(1000, 0))
			require.NoError(t, err)
			require.Equal(t, turn == 3, move.Over != nil, "after turn %d", turn)
		}
	})
	t.Run("GroupChat/ACustomEndOnDone", func(t *testing.T) {
		t.Parallel()
		tm := ringOf(9)
		tm.Stop = &team.Stop{Expr: "result.text == 'done'"}
		p := newPlay(t, tm)
		p.says["agentB"] = texts("done")
		spoke, _ := p.run("hello")
		require.Equal(t, "user,agentA,agentB", spoke)
	})
	t.Run("GroupChat/AnOutsiderIsAnErrorOfAnExpression", func(t *testing.T) { // there the chat ends quietly
		t.Parallel()
		tm := of("A B")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm", Candidates: `['outsider']`}, maxMessages(4)
		rules, _ := team.Compile(t.Context(), tm)
		_, _, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "hello"}}, time.Unix(1000, 0))
		require.EqualError(t, err, `candidates: there is no member "outsider"`)
	})
	t.Run("GroupChat/AnOutsiderOfAModelIsAskedFor", func(t *testing.T) {
		t.Parallel()
		tm := of("A B")
		tm.Choose, tm.Stop = &team.Choose{Actor: "llm"}, maxMessages(2)
		p := newPlay(t, tm)
		p.chooses = []string{"outsider", "B"}
		spoke, _ := p.run("hello")
		require.Equal(t, "user,B", spoke)
	})
	t.Run("Sequential/ThreeTimesInARowIsClean", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, of("A B C", "A -> B", "B -> C"))
		for range 3 {
			p.st, p.log, p.heard = &team.State{}, nil, map[string][][]string{}
			spoke, over := p.run("hello")
			require.Equal(t, "user,A,B,C", spoke)
			require.Equal(t, team.Complete, over.Reason)
			require.Equal(t, map[string][][]string{"A": {{"hello"}}, "B": {{"hello", "A"}}, "C": {{"hello", "A", "B"}}}, p.heard)
			require.Equal(t, "C", p.log[len(p.log)-1].Text, "the output is that of the last one")
		}
	})
	t.Run("Concurrent/OneMessageOfEachAgent", func(t *testing.T) {
		t.Parallel()
		tm := of("start A B reduce", "start -> A", "start -> B", "A -> reduce", "B -> reduce")
		tm.Members[3].Hears = []team.Hearing{{From: "A"}, {From: "B"}}
		p := newPlay(t, tm)
		spoke, _ := p.run("hello")
		require.Equal(t, "user,start,{A,B},reduce", spoke)
		require.Equal(t, [][]string{{"A", "B"}}, p.heard["reduce"])
	})
}

func c4Resumes(t *testing.T) {
	t.Helper()
	now := time.Unix(1000, 0)
	t.Run("Checkpoint/RestoresTheCursor", func(t *testing.T) {
		t.Parallel()
		p := newPlay(t, ringOf(2))
		p.run("hello")
		q := newPlay(t, ringOf(2))
		q.st, q.log = p.st, p.log
		spoke, _ := q.run()
		require.Equal(t, "agentC,agentA", spoke)
	})
	t.Run("Checkpoint/OfAJoinIsResumedTwice", func(t *testing.T) {
		t.Parallel()
		// A has come to the join, B and its follower have not.
		tm := of("A B C D", "A -> D", "B -> C", "C -> D")
		tm.Stop = maxMessages(3)
		p := newPlay(t, tm)
		spoke, _ := p.run("hello")
		require.Equal(t, "user,{A,B}", spoke)
		kept, err := json.Marshal(p.st)
		require.NoError(t, err)
		log := slices.Clone(p.log)
		for range 2 {
			q := newPlay(t, of("A B C D", "A -> D", "B -> C", "C -> D"))
			require.NoError(t, json.Unmarshal(kept, q.st))
			q.log = slices.Clone(log)
			spoke, _ := q.run()
			require.Equal(t, "C,D", spoke)
			require.Equal(t, [][]string{{"hello", "A", "B", "C"}}, q.heard["D"], "what came before the checkpoint is there")
		}
	})
	for name, forged := range map[string][]team.Message{
		"OfAStranger":            {{From: "mallory", Text: "x"}},
		"OfWhoDoesNotSpeak":      {{From: "agentB", Text: "x"}},
		"BesideTheRightOne":      {{From: "agentA", Text: "x"}, {From: "agentB", Text: "x"}},
		"WithAToolThatIsNotHers": {{From: "agentA", Signals: []team.Call{{Name: "pay"}}}},
	} {
		t.Run("ForgedAnswer/"+name+"/ConsumesNothing", func(t *testing.T) {
			t.Parallel()
			rules, _ := team.Compile(t.Context(), ringOf(2))
			_, st, _, err := rules.Begin(t.Context(), &team.State{}, []team.Message{{Text: "hello"}}, now)
			require.NoError(t, err)
			before, err := json.Marshal(st)
			require.NoError(t, err)
			_, _, _, err = rules.Hear(t.Context(), st, forged, team.Used{}, false, now)
			require.Error(t, err)
			after, err := json.Marshal(st)
			require.NoError(t, err)
			require.JSONEq(t, string(before), string(after))
			_, _, move, err := rules.Hear(t.Context(), st, []team.Message{{From: "agentA", Text: "x"}}, team.Used{}, false, now)
			require.NoError(t, err, "the answer is still waited for")
			require.Equal(t, []string{"agentB"}, move.Speak)
		})
	}
	t.Run("UnsolicitedAnswer/OfAModelThatWasNotAsked", func(t *testing.T) {
		t.Parallel()
		rules, _ := team.Compile(t.Context(), ringOf(2))
		_, st, _, err := rules.Begin(t.Context(), &team.State{}, nil, now)
		require.NoError(t, err)
		_, _, err = rules.Chosen(st, "agentB", false)
		require.ErrorContains(t, err, "nobody was asked")
	})
}
