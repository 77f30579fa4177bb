package workgraph

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// replays checks that the journal so far, as JSON, gives the same state again, and so does its snapshot.
func (m *machine) replays() {
	m.t.Helper()
	want, err := m.s.Snapshot()
	require.NoError(m.t, err)
	events := make([]Event, len(m.events))
	for i := range m.events {
		events[i], err = DecodeEvent(js(m.events[i]))
		require.NoError(m.t, err)
	}
	again, err := Replay(m.t.Context(), m.p, "run", events)
	require.NoError(m.t, err)
	got, err := again.Snapshot()
	require.NoError(m.t, err)
	require.Equal(m.t, string(want), string(got))
	back, err := Restore(m.t.Context(), m.p, got)
	require.NoError(m.t, err)
	got, err = back.Snapshot()
	require.NoError(m.t, err)
	require.Equal(m.t, string(want), string(got))
}

// crash goes on with a state that is restored from its snapshot, as a new owner does.
func (m *machine) crash() {
	m.t.Helper()
	snap, err := m.s.Snapshot()
	require.NoError(m.t, err)
	m.s, err = Restore(m.t.Context(), m.p, snap)
	require.NoError(m.t, err)
	m.do(Recover{Now: m.now})
}

func (m *machine) later(d time.Duration) {
	m.t.Helper()
	m.now = m.now.Add(d)
	m.do(TimerDue{Now: m.now})
}

func (m *machine) value(id string) string {
	text := ""
	m.s.Visits(func(v VisitInfo) bool {
		if v.Node == id && v.Item == 0 {
			text = string(single(v.Values))
		}
		return true
	})
	return text
}

func (m *machine) failure(id string) string {
	text := ""
	m.s.Visits(func(v VisitInfo) bool {
		if v.Node == id && v.Item == 0 && v.Error != nil {
			text = v.Error.Reason
		}
		return true
	})
	return text
}

func spawn(ids ...string) Outcome {
	c := &Children{}
	for _, id := range ids {
		c.Runs = append(c.Runs, Child{ID: id, Ref: "self", Input: Input{Args: one(`"` + id + `"`)}})
	}
	return Outcome{Wait: &Wait{Children: c}}
}

func (m *machine) child(r Ref, id string, status Status, result string) error {
	slot := ChildSlot{RunID: id, Status: status}
	if result != "" {
		slot.Result = json.RawMessage(result)
	}
	return m.try(ChildEnded{Ref: r, Slot: slot, Now: m.now})
}

func single1(t *testing.T, change func(*Node)) *machine {
	g := nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()
	if change != nil {
		change(&g.Nodes[0])
	}
	m := newMachine(t, compile(t, g))
	m.begin()
	return m
}

func spawnedIDs(list []Spawn) []string {
	var ids []string
	for _, s := range list {
		ids = append(ids, s.Child.ID)
	}
	return ids
}

func TestWaitForChildren(t *testing.T) {
	a := Ref{Node: "A", Visit: 1}
	t.Run("Slots/ComeInTheOrderAsked", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn("x", "y", "z"))
		require.Equal(t, []string{"x", "y", "z"}, spawnedIDs(m.fx.Spawns))
		require.Equal(t, `"x"`, string(m.fx.Spawns[0].Child.Input.Args[0]))
		require.Equal(t, VisitWaiting, m.status("A"))
		require.Zero(t, m.s.InFlight())
		_, timed := m.s.NextTimer()
		require.False(t, timed)
		require.NoError(t, m.child(a, "z", StatusCompleted, "3"))
		require.NoError(t, m.child(a, "x", StatusFailed, ""))
		m.replays()
		require.NoError(t, m.child(a, "y", StatusCanceled, ""))
		require.Equal(t, []string{`[{"run_id":"x","status":"FAILED"},{"run_id":"y","status":"CANCELED"},{"run_id":"z","status":"COMPLETED","result":3}]`}, m.args("B"))
		m.end("B", Outcome{Values: one("1")})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("None/EndAtOnce", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn())
		require.Equal(t, []string{"[]"}, m.args("B"))
		m.replays()
	})
	t.Run("SecondEnd/IsStale", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn("x", "y"))
		require.NoError(t, m.child(a, "x", StatusCompleted, ""))
		require.ErrorIs(t, m.child(a, "x", StatusCompleted, ""), ErrStale)
		require.ErrorIs(t, m.child(a, "other", StatusCompleted, ""), ErrStale)
		require.ErrorIs(t, m.child(Ref{Node: "B", Visit: 1}, "y", StatusCompleted, ""), ErrStale)
		require.NoError(t, m.child(a, "y", StatusCompleted, ""))
		require.ErrorIs(t, m.child(a, "y", StatusCompleted, ""), ErrStale)
	})
	t.Run("BadSlot/IsRefused", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn("x"))
		require.ErrorIs(t, m.child(a, "x", StatusRunning, ""), ErrState)
		require.ErrorIs(t, m.child(a, "x", StatusCompleted, "{"), ErrState)
		require.Equal(t, VisitWaiting, m.status("A"))
	})
	t.Run("FailFast/FailsTheVisitAndCancelsTheOthers", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x", "y", "z")
		out.Wait.Children.FailFast = true
		m.end("A", out)
		require.NoError(t, m.child(a, "y", StatusFailed, ""))
		require.Equal(t, []string{"x", "z"}, m.fx.CancelChildren)
		require.Equal(t, ReasonChildFailed, m.s.End().Error.Reason)
		require.Empty(t, m.fx.Starts, "a failed child is not tried again")
		m.replays()
	})
	t.Run("Timeout/MakesSlots", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x", "y")
		out.Wait.Children.Timeout = Duration(time.Minute)
		m.end("A", out)
		require.NoError(t, m.child(a, "y", StatusCompleted, "2"))
		at, ok := m.s.NextTimer()
		require.True(t, ok)
		require.Equal(t, m.now.Add(time.Minute), at)
		m.replays()
		m.crash()
		m.later(time.Minute)
		require.Equal(t, []string{"x"}, m.fx.CancelChildren)
		require.Equal(t, []string{`[{"run_id":"x","status":"TIMED_OUT","reason":"TIMEOUT"},{"run_id":"y","status":"COMPLETED","result":2}]`}, m.args("B"))
		require.ErrorIs(t, m.child(a, "x", StatusCompleted, ""), ErrStale)
		m.replays()
	})
	t.Run("TimeoutWithFailFast/Fails", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x")
		out.Wait.Children.Timeout, out.Wait.Children.FailFast = Duration(time.Minute), true
		m.end("A", out)
		m.later(time.Minute)
		require.Equal(t, ReasonChildFailed, m.s.End().Error.Reason)
		require.Equal(t, []string{"x"}, m.fx.CancelChildren)
	})
	t.Run("Bare/IsTheListOfTheResults", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("done", "null", "failed", "canceled", "late")
		out.Wait.Children.Bare, out.Wait.Children.Timeout = true, Duration(time.Minute)
		m.end("A", out)
		require.NoError(t, m.child(a, "done", StatusCompleted, "{\"n\":12345678901234567890}"))
		require.NoError(t, m.child(a, "null", StatusCompleted, ""))
		require.NoError(t, m.try(ChildEnded{Ref: a, Now: m.now, Slot: ChildSlot{RunID: "failed", Status: StatusFailed, Error: Errorf(Permanent, "BAD", "%s", strings.Repeat("é", 400))}}))
		require.NoError(t, m.try(ChildEnded{Ref: a, Now: m.now, Slot: ChildSlot{RunID: "canceled", Status: StatusCanceled, Reason: "TASK_CANCELED"}}))
		m.replays()
		m.crash()
		m.later(time.Minute)
		var list []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(m.args("B")[0]), &list))
		require.Len(t, list, 5)
		require.Equal(t, []string{"{\"n\":12345678901234567890}", "null"}, []string{string(list[0]), string(list[1])}, "a completed one is what it gave")
		var fault BareFault
		require.NoError(t, json.Unmarshal(list[2], &fault))
		require.Equal(t, []any{"failed", StatusFailed}, []any{fault.RunID, fault.Status})
		require.True(t, strings.HasPrefix(fault.Error, "Child execution failed: "), fault.Error)
		require.True(t, len(fault.Error) > 450 && len(fault.Error) <= 500 && utf8.ValidString(fault.Error), fault.Error)
		require.JSONEq(t, `{"_error":"Child execution failed: CANCELED, TASK_CANCELED","run_id":"canceled","status":"CANCELED"}`, string(list[3]))
		require.JSONEq(t, `{"_error":"Child execution timed out","run_id":"late","status":"TIMED_OUT"}`, string(list[4]))
		require.ErrorIs(t, m.child(a, "late", StatusCompleted, ""), ErrStale, "a late one is dropped")
		m.replays()
	})
	t.Run("AsResult/TheRunStandsForTheVisit", func(t *testing.T) {
		alone := func(t *testing.T, timeout Duration) *machine {
			m := single1(t, nil)
			out := spawn("x")
			out.Wait.Children.AsResult, out.Wait.Children.Timeout = true, timeout
			m.end("A", out)
			m.replays()
			return m
		}
		m := alone(t, 0)
		m.crash()
		require.NoError(t, m.child(a, "x", StatusCompleted, "7"))
		require.Equal(t, []string{"7"}, m.args("B"))
		m.replays()
		m = alone(t, 0)
		require.NoError(t, m.child(a, "x", StatusCompleted, ""))
		require.Equal(t, []string{"null"}, m.args("B"))
		m = alone(t, 0)
		require.NoError(t, m.try(ChildEnded{Ref: a, Now: m.now, Slot: ChildSlot{RunID: "x", Status: StatusCompleted, Error: Errorf(Permanent, "TOO_LARGE", "it is left out")}}))
		require.Equal(t, ReasonChildFailed, m.s.End().Error.Reason, "what could not be handed over is not null")
		require.Contains(t, m.s.End().Error.Message, "TOO_LARGE")
		m.replays()
		m = alone(t, 0)
		require.NoError(t, m.child(a, "x", StatusCanceled, ""))
		require.Equal(t, ReasonChildFailed, m.s.End().Error.Reason)
		m.replays()
		m = alone(t, Duration(time.Minute))
		m.later(time.Minute)
		require.Equal(t, ReasonChildFailed, m.s.End().Error.Reason)
		require.Equal(t, []string{"x"}, m.fx.CancelChildren)
		m.replays()
	})
	t.Run("AsResult/IsOfOneRun", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x", "y")
		out.Wait.Children.AsResult = true
		m.end("A", out)
		require.Equal(t, ReasonBadOutcome, m.s.End().Error.Reason)
	})
	t.Run("Usage/RollsUp", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x", "y")
		out.Usage = []Usage{{Model: "m", InputTokens: 1}}
		m.end("A", out)
		for _, id := range []string{"x", "y"} {
			m.do(ChildEnded{Ref: a, Slot: ChildSlot{RunID: id, Status: StatusFailed, Usage: []Usage{{Model: "m", InputTokens: 10}}}, Now: m.now})
		}
		require.Equal(t, int64(21), m.s.Usage()[0].InputTokens)
		m.replays()
	})
	t.Run("LostOwner/AsksAgainForThoseThatGoOn", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn("x", "y"))
		require.NoError(t, m.child(a, "x", StatusCompleted, ""))
		m.crash()
		require.Equal(t, []string{"y"}, spawnedIDs(m.fx.Spawns))
		require.NoError(t, m.child(a, "y", StatusCompleted, ""))
		require.Contains(t, m.open, Ref{Node: "B", Visit: 1})
	})
	t.Run("End/CancelsThem", func(t *testing.T) {
		for name, end := range map[string]func(m *machine){
			"cancel":    func(m *machine) { m.do(Cancel{Reason: "user", Now: m.now}) },
			"deadline":  func(m *machine) { m.do(DeadlinePassed{Now: m.now}) },
			"terminate": func(m *machine) { m.end("C", Outcome{Stop: Terminate}) },
			"failure":   func(m *machine) { m.fail("C", Errorf(Permanent, "NO", "")) },
		} {
			m := newMachine(t, compile(t, nodes(FirstArg(), "A", "C").Graph()))
			m.begin()
			m.end("A", spawn("x", "y"))
			end(m)
			require.ElementsMatch(t, []string{"x", "y"}, m.fx.CancelChildren, name)
			require.Equal(t, VisitCanceled, m.status("A"), name)
			if name == "cancel" || name == "deadline" {
				m.end("C", Outcome{})
			}
			require.NotNil(t, m.s.End(), name)
			m.replays()
		}
	})
	t.Run("Loser/CancelsThem", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "J").Edge("A", "J").Edge("B", "J").Graph()
		g.Nodes[2].Join = Join{Mode: Any, Losers: CancelLosers}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", spawn("x"))
		m.end("B", Outcome{Values: one("1")})
		require.Equal(t, []string{"x"}, m.fx.CancelChildren)
		m.replays()
	})
	// A visit that nothing waits for any more was asked to stop during its call, and its report comes anyway.
	late := func(t *testing.T, effect Effect) *machine {
		g := nodes(FirstArg(), "A", "B", "J").Edge("A", "J").Edge("B", "J").Graph()
		g.Nodes[0].Effect, g.Nodes[0].Check = effect, &Check{CEL: "result != 0"}
		g.Nodes[2].Join = Join{Mode: Any, Losers: CancelLosers}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("B", Outcome{Values: one("1")})
		m.end("J", Outcome{})
		require.Equal(t, []Ref{{Node: "A", Visit: 1}}, m.cancels)
		require.Nil(t, m.s.End(), "the call of A is under way")
		return m
	}
	for name, out := range map[string]Outcome{
		"Timer":     {Wait: &Wait{Timer: &Timer{After: Duration(time.Hour)}}},
		"Children":  spawn("x"),
		"Interrupt": {Wait: &Wait{Interrupt: &Interrupt{ID: "q", Prompt: json.RawMessage(`"?"`)}}},
		"Signal":    {Wait: &Wait{Signal: &SignalWait{Name: "s"}}},
		"Task":      {Wait: &Wait{Completion: &CompletionWait{}}},
	} {
		t.Run("Loser/CanceledInFlightWaitsForNothing/"+name, func(t *testing.T) {
			m := late(t, Pure)
			m.end("A", out)
			require.Empty(t, m.fx.Spawns)
			require.Empty(t, m.fx.Opened)
			require.Equal(t, VisitCanceled, m.status("A"))
			require.NotNil(t, m.s.End())
			require.Equal(t, StatusCompleted, m.s.End().Status)
			m.replays()
		})
	}
	t.Run("Loser/CanceledInFlightIsNotTriedAgain", func(t *testing.T) {
		m := late(t, Pure)
		m.end("A", Outcome{Values: one("0")})
		require.Equal(t, VisitCanceled, m.status("A"))
		require.NotNil(t, m.s.End())
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("Loser/CanceledInFlightInsertsNothing", func(t *testing.T) {
		m := late(t, Pure)
		m.end("A", Outcome{Values: one("1"), Expand: nodes(FirstArg(), "x").Graph()})
		require.Equal(t, VisitCompleted, m.status("A"))
		require.Len(t, m.s.Graph().Nodes, 3)
		require.NotNil(t, m.s.End())
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("Items/WaitEachForTheirOwn", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Map = &Map{Over: "[1,2]", OnItemError: ContinueItems} })
		for i := range 2 {
			out := spawn(fmt.Sprint("c", i))
			m.endRef(Ref{Node: "A", Visit: 1, Item: i + 1}, &out, nil)
		}
		m.replays()
		require.NoError(t, m.child(Ref{Node: "A", Visit: 1, Item: 2}, "c1", StatusCompleted, "2"))
		m.crash()
		require.Equal(t, []string{"c0"}, spawnedIDs(m.fx.Spawns))
		require.NoError(t, m.child(Ref{Node: "A", Visit: 1, Item: 1}, "c0", StatusCompleted, "1"))
		require.Equal(t, []string{`[{"ok":[{"run_id":"c0","status":"COMPLETED","result":1}]},{"ok":[{"run_id":"c1","status":"COMPLETED","result":2}]}]`}, m.args("B"))
		m.replays()
	})
	t.Run("FailFastMap/CancelsChildrenOfOtherItems", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Map = &Map{Over: "[1,2]"} })
		out := spawn("c")
		m.endRef(Ref{Node: "A", Visit: 1, Item: 1}, &out, nil)
		m.endRef(Ref{Node: "A", Visit: 1, Item: 2}, nil, Errorf(Permanent, "NO", ""))
		require.Equal(t, []string{"c"}, m.fx.CancelChildren)
		m.replays()
	})
	t.Run("AgentLoop/IsVisitedAgainWithTheResults", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Edge("A", "A", func(e *Edge) { e.Kind = BackEdge }).Edge("A", "B").Graph()))
		m.begin(`"task"`)
		out := spawn("x")
		out.Select = &Select{Self: true, Others: SelectNone}
		m.end("A", out)
		require.NoError(t, m.child(a, "x", StatusCompleted, "7"))
		require.Equal(t, 2, m.ref("A").Visit)
		require.Equal(t, []string{`[{"run_id":"x","status":"COMPLETED","result":7}]`}, m.args("A"))
		m.end("A", Outcome{Values: one(`"done"`)})
		require.Equal(t, []string{`"done"`}, m.args("B"))
		m.replays()
	})
	t.Run("Outcome/AppliesAtTheEnd", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Chain("A", "B").State("log", Append).Graph()
		g.Nodes[0].Transform = "size(result)"
		g.Nodes[0].Check = &Check{CEL: "result[0].status == 'COMPLETED'"}
		g.Nodes[0].Retry = Retry{MaxAttempts: 2, Jitter: Unlimited}
		m := newMachine(t, compile(t, g))
		m.begin()
		out := spawn("x")
		out.State = map[string]json.RawMessage{"log": js("spawned")}
		m.end("A", out)
		require.JSONEq(t, "[]", string(m.s.StateValues()["log"]))
		require.NoError(t, m.child(a, "x", StatusFailed, ""))
		require.Equal(t, VisitBackoff, m.status("A"), "the check failed, which may be tried again")
		m.later(time.Minute)
		out = spawn("x2")
		out.State = map[string]json.RawMessage{"log": js("again")}
		m.end("A", out)
		require.NoError(t, m.child(a, "x2", StatusCompleted, ""))
		require.Equal(t, []string{"1"}, m.args("B"))
		require.JSONEq(t, `["again"]`, string(m.s.StateValues()["log"]))
		m.replays()
	})
	t.Run("Terminate/EndsTheRunWhenTheWaitEnds", func(t *testing.T) {
		m := single1(t, nil)
		out := spawn("x")
		out.Stop = Terminate
		m.end("A", out)
		require.Nil(t, m.s.End())
		require.NoError(t, m.child(a, "x", StatusCompleted, ""))
		require.Equal(t, ReasonTerminated, m.s.End().Reason)
		m.replays()
	})
	t.Run("Paused/ResultsAreTakenAndSuccessorsHeld", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", spawn("x"))
		m.do(Pause{Reason: "user", Now: m.now})
		require.NoError(t, m.child(a, "x", StatusCompleted, ""))
		require.Equal(t, VisitHeld, m.status("B"))
		m.do(Resume{Now: m.now})
		m.end("B", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
}

func TestWaitFaults(t *testing.T) {
	for name, w := range map[string]*Wait{
		"nothing":          {},
		"two":              {Timer: &Timer{}, Completion: &CompletionWait{}},
		"child without id": {Children: &Children{Runs: []Child{{Ref: "self"}}}},
		"same child twice": {Children: &Children{Runs: []Child{{ID: "a", Ref: "self"}, {ID: "a", Ref: "self"}}}},
		"child of nothing": {Children: &Children{Runs: []Child{{ID: "a"}}}},
		"child's input":    {Children: &Children{Runs: []Child{{ID: "a", Ref: "self", Input: Input{Args: one("{")}}}}},
		"interrupt":        {Interrupt: &Interrupt{}},
		"prompt":           {Interrupt: &Interrupt{ID: "q", Prompt: json.RawMessage("{")}},
		"default for ever": {Interrupt: &Interrupt{ID: "q", Default: json.RawMessage("1")}},
		"default approval": {Interrupt: &Interrupt{ID: "q", Default: json.RawMessage("1"), Approve: json.RawMessage("1"), Timeout: 1}},
		"signal":           {Signal: &SignalWait{}},
		"negative":         {Completion: &CompletionWait{Timeout: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			m := single1(t, nil)
			m.end("A", Outcome{Wait: w, Usage: []Usage{{Model: "m", InputTokens: 1}}})
			require.Equal(t, ReasonBadOutcome, m.s.End().Error.Reason)
			require.Len(t, m.s.Usage(), 1, "what it cost is booked")
			m.replays()
		})
	}
}

func ask(id string, change func(*Interrupt)) Outcome {
	q := &Interrupt{ID: id, Prompt: json.RawMessage(`"?"`)}
	if change != nil {
		change(q)
	}
	return Outcome{Wait: &Wait{Interrupt: q}}
}

func TestWaitForAnswer(t *testing.T) {
	t.Run("Answer/IsTheValue", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", ask("q", nil))
		require.Equal(t, "q", m.fx.Opened[0].Interrupt.ID)
		require.Equal(t, Ref{Node: "A", Visit: 1}, m.fx.Opened[0].Ref)
		require.True(t, m.fx.Opened[0].Due.IsZero())
		m.crash()
		require.Equal(t, "q", m.fx.Opened[0].Interrupt.ID, "it is named again")
		require.ErrorIs(t, m.try(Answered{ID: "other", Now: m.now}), ErrStale)
		require.ErrorIs(t, m.try(Answered{ID: "q", Answer: json.RawMessage("{"), Now: m.now}), ErrState)
		require.ErrorIs(t, m.try(Answered{ID: "q", Decision: Approved, Now: m.now}), ErrState)
		m.do(Answered{ID: "q", Answer: json.RawMessage(`{"a":1}`), By: "me", Now: m.now})
		require.Equal(t, []ClosedInterrupt{{ID: "q", How: InterruptAnswered, Answer: json.RawMessage(`{"a":1}`), By: "me"}}, m.fx.Closed)
		require.ErrorIs(t, m.try(Answered{ID: "q", Answer: json.RawMessage("2"), Now: m.now}), ErrStale)
		require.Equal(t, []string{`{"a":1}`}, m.args("B"))
		m.replays()
	})
	t.Run("Several/AreOpenAtOnceAndAnsweredInAnyOrder", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B", "C").Graph()))
		m.begin()
		for _, id := range []string{"A", "B", "C"} {
			m.end(id, ask("q"+id, nil))
		}
		var open []string
		m.s.Waits(func(w WaitInfo) bool { open = append(open, w.Interrupt.ID); return true })
		require.Equal(t, []string{"qA", "qB", "qC"}, open)
		m.do(Answered{ID: "qB", Answer: js(2), Now: m.now})
		m.do(Answered{ID: "qC", Now: m.now})
		m.replays()
		m.do(Answered{ID: "qA", Answer: js(1), Now: m.now})
		require.JSONEq(t, `{"A":1,"B":2,"C":null}`, string(js(m.s.End().Outputs)))
		m.replays()
	})
	t.Run("SameIDTwice/IsABadOutcome", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Graph()))
		m.begin()
		m.end("A", ask("q", nil))
		m.end("B", ask("q", nil))
		require.Equal(t, ReasonBadOutcome, m.failure("B"))
	})
	t.Run("Approval/CarriesHashDeciderAndAnswer", func(t *testing.T) {
		m := single1(t, nil)
		approve := func(q *Interrupt) { q.Approve = json.RawMessage(`{ "to": "x", "amount": 5 }`) }
		m.end("A", ask("q", approve))
		binds := m.fx.Opened[0].Binds
		require.NotEmpty(t, binds)
		require.ErrorIs(t, m.try(Answered{ID: "q", Now: m.now}), ErrState)
		m.do(Answered{ID: "q", Decision: Approved, By: "ann", Answer: js("fine"), Now: m.now})
		require.JSONEq(t, `{"decision":"APPROVED","by":"ann","answer":"fine","approve_hash":"`+ApproveHash(json.RawMessage(`{"amount":5,"to":"x"}`), binds)+`"}`, m.args("B")[0])
		m.replays()
	})
	t.Run("Expiry/TakesTheDefault", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", ask("q", func(q *Interrupt) { q.Timeout, q.Default = Duration(time.Hour), js("later") }))
		require.Equal(t, m.now.Add(time.Hour), m.fx.Opened[0].Due)
		m.later(time.Hour)
		require.Equal(t, []ClosedInterrupt{{ID: "q", How: InterruptExpired, Answer: js("later")}}, m.fx.Closed)
		require.Equal(t, []string{`"later"`}, m.args("B"))
		m.replays()
	})
	t.Run("Expiry/OfAnApprovalDecides", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", ask("q", func(q *Interrupt) { q.Timeout, q.Default, q.Approve = Duration(time.Hour), js(Approved), js(1) }))
		m.later(time.Hour)
		require.Equal(t, Approved, m.fx.Closed[0].Decision)
		require.Contains(t, m.args("B")[0], `{"decision":"APPROVED","approve_hash"`)
		m.replays()
	})
	t.Run("Expiry/WithoutDefaultFailsForGood", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Retry.MaxAttempts = 3; n.OnError.Action = Continue })
		m.end("A", ask("q", func(q *Interrupt) { q.Timeout = Duration(time.Hour) }))
		m.later(time.Hour)
		require.Equal(t, ReasonInterruptExpired, m.failure("A"))
		require.Equal(t, VisitSkipped, m.status("B"))
		m.replays()
	})
	t.Run("Cancel/ClosesIt", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", ask("q", nil))
		m.do(Cancel{Now: m.now})
		require.Equal(t, []ClosedInterrupt{{ID: "q", How: InterruptCanceled}}, m.fx.Closed)
		require.ErrorIs(t, m.try(Answered{ID: "q", Now: m.now}), ErrEnded)
		m.replays()
	})
	t.Run("UnsafeNode/IsNotCalledAgain", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Effect = Unsafe })
		m.do(Attempt{Ref: m.ref("A"), Attempt: 1, Now: m.now})
		m.end("A", ask("q", nil))
		m.crash()
		require.Equal(t, VisitWaiting, m.status("A"))
		m.do(Answered{ID: "q", Now: m.now})
		require.Equal(t, VisitCompleted, m.status("A"))
	})
}

func TestWaitForTask(t *testing.T) {
	task := func(timeout time.Duration) Outcome {
		return Outcome{Wait: &Wait{Completion: &CompletionWait{Timeout: Duration(timeout)}}}
	}
	a := Ref{Node: "A", Visit: 1}
	t.Run("Outcome/GivesTheValues", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", task(0))
		require.ErrorIs(t, m.try(AttemptCompleted{Ref: a, Attempt: 2, Outcome: &Outcome{}, Now: m.now}), ErrStale)
		require.ErrorIs(t, m.try(AttemptCompleted{Ref: a, Attempt: 1, Now: m.now}), ErrState)
		m.crash()
		m.do(AttemptCompleted{Ref: a, Attempt: 1, Outcome: &Outcome{Values: one("5"), Stop: Terminate, Usage: []Usage{{Model: "m", InputTokens: 3}}}, By: "ci", Now: m.now})
		require.Equal(t, []string{"5"}, m.args("B"), "of its outcome only values and usage count")
		require.Equal(t, int64(3), m.s.Usage()[0].InputTokens)
		require.ErrorIs(t, m.try(AttemptCompleted{Ref: a, Attempt: 1, Outcome: &Outcome{}, Now: m.now}), ErrStale)
		m.replays()
	})
	t.Run("Nothing/IsAValueToo", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", task(0))
		m.do(AttemptCompleted{Ref: a, Attempt: 1, Outcome: &Outcome{}, Now: m.now})
		require.Equal(t, []string{"null"}, m.args("B"))
		m.replays()
	})
	t.Run("Error/IsFinal", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Effect, n.Retry.MaxAttempts = Unsafe, 3 })
		m.do(Attempt{Ref: a, Attempt: 1, Now: m.now})
		m.end("A", task(0))
		m.do(AttemptCompleted{Ref: a, Attempt: 1, Err: Errorf(Unknown, "ELSEWHERE", ""), Now: m.now})
		require.Equal(t, "ELSEWHERE", m.s.End().Error.Reason)
		m.replays()
	})
	t.Run("Timeout/Fails", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", task(time.Minute))
		m.later(time.Minute)
		require.Equal(t, ReasonCompletionExpired, m.s.End().Error.Reason)
		m.replays()
	})
}

func TestWaitForSignal(t *testing.T) {
	t.Parallel()
	listen := func(name string) Outcome { return Outcome{Wait: &Wait{Signal: &SignalWait{Name: name}}} }
	t.Run("Early/IsKeptInOrderPerName", func(t *testing.T) {
		m := single1(t, nil)
		m.do(Signaled{Name: "go", Payload: js(1), Now: m.now})
		m.do(Signaled{Name: "other", Payload: js(9), Now: m.now})
		m.do(Signaled{Name: "go", Payload: js(2), Now: m.now})
		m.replays()
		m.crash()
		m.end("A", listen("go"))
		require.Equal(t, []string{"1"}, m.args("B"))
		m.end("B", listen("go"))
		require.Equal(t, "2", string(m.s.End().Result))
		m.replays()
	})
	t.Run("Late/GoesToTheOneThatWaitsLongest", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B", "C").Graph()))
		m.begin()
		for _, id := range []string{"C", "A", "B"} {
			m.end(id, listen("go"))
		}
		m.crash()
		for i, id := range []string{"C", "A", "B"} {
			m.do(Signaled{Name: "go", Payload: js(i), Now: m.now})
			require.Equal(t, js(i), json.RawMessage(m.value(id)))
			m.replays()
		}
		require.NotNil(t, m.s.End())
	})
	t.Run("GivenUp/DoesNotTakeIt", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Graph()
		g.Nodes[0].OnError.Action = Continue
		m := newMachine(t, compile(t, g))
		m.begin()
		out := listen("go")
		out.Wait.Signal.Timeout = Duration(time.Minute)
		m.end("A", out)
		m.end("B", listen("go"))
		m.later(time.Minute)
		require.Equal(t, ReasonSignalExpired, m.failure("A"))
		m.do(Signaled{Name: "go", Payload: js(1), Now: m.now})
		require.Equal(t, "1", m.value("B"))
		m.replays()
	})
	t.Run("TooMany/AreRefused", func(t *testing.T) {
		m := single1(t, nil)
		for range MaxSignals {
			_, _, err := m.s.Advance(Signaled{Name: "go", Now: m.now})
			require.NoError(t, err)
		}
		require.ErrorIs(t, m.try(Signaled{Name: "go", Now: m.now}), ErrState)
		m.end("A", listen("go"))
		require.NoError(t, m.try(Signaled{Name: "go", Now: m.now}))
	})
	t.Run("TooLarge/IsRefused", func(t *testing.T) {
		m := single1(t, nil)
		big := js(string(make([]byte, MaxSignalBytes/12)))
		require.NoError(t, m.try(Signaled{Name: "go", Payload: big, Now: m.now}))
		require.ErrorIs(t, m.try(Signaled{Name: "go", Payload: js(string(make([]byte, MaxSignalBytes))), Now: m.now}), ErrState)
		require.ErrorIs(t, m.try(Signaled{Name: "", Now: m.now}), ErrState)
		require.ErrorIs(t, m.try(Signaled{Name: "go", Payload: json.RawMessage("{"), Now: m.now}), ErrState)
	})
	t.Run("Ending/IsRefused", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Graph()))
		m.begin()
		m.do(Cancel{Now: m.now})
		require.ErrorIs(t, m.try(Signaled{Name: "go", Now: m.now}), ErrState)
	})
}

func TestDeadline(t *testing.T) {
	t.Run("InFlight/IsCanceledAndEndsTheRun", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Graph()))
		m.begin()
		m.fail("A", Errorf(Retryable, "SHAKY", ""))
		m.do(DeadlinePassed{Now: m.now})
		require.Equal(t, []Ref{{Node: "B", Visit: 1}}, m.cancels)
		st, why := m.s.Status()
		require.Equal(t, StatusDraining, st)
		require.Equal(t, "DEADLINE", why)
		m.do(DeadlinePassed{Now: m.now})
		m.fail("B", Errorf(NotPerformed, ReasonCanceled, ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
		require.Equal(t, ReasonDeadline, m.s.End().Reason)
		m.replays()
	})
	t.Run("Paused/EndsTheRun", func(t *testing.T) {
		m := single1(t, nil)
		m.do(Pause{Reason: "user", Now: m.now})
		m.end("A", Outcome{})
		m.do(DeadlinePassed{Now: m.now})
		require.Equal(t, ReasonDeadline, m.s.End().Reason)
		m.replays()
	})
}
