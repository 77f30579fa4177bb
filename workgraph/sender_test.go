package workgraph

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// as sends a message in the name of the call's node, as that call at that attempt.
func (m *machine) as(call Ref, attempt int, node, body string) error {
	return m.try(Delivered{From: call.Node, Call: call, Attempt: attempt, Node: node, Message: json.RawMessage(body), Now: m.now})
}

// TestSender is about the names that a sender may use. Only a node's own calls use the node's name.
func TestSender(t *testing.T) {
	t.Parallel()
	approval := Outcome{Wait: &Wait{Interrupt: &Interrupt{ID: "q", Prompt: json.RawMessage(`"pay?"`), Approve: json.RawMessage(`7`)}}}
	paying := func() *Graph {
		return inbox(nodes(FirstArg(), "ask", "pay", "other").Edge("ask", "pay").Graph(), Inbox{From: []string{"ask"}}, "pay")
	}
	t.Run("Node/IsNobodyElse", func(t *testing.T) {
		m := newMachine(t, compile(t, paying()))
		m.begin()
		m.end("ask", approval)
		require.ErrorIs(t, m.send("ask", "pay", "7000"), ErrSender)
		require.ErrorIs(t, m.send("ask", "", "7000"), ErrSender)
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		m.do(Answered{ID: "q", Decision: Approved, Now: m.now})
		require.Len(t, m.messages("pay"), 1)
		m.replays()
	})
	t.Run("Input/IsNobodyElse", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "work", "I").Graph(), Inbox{From: []string{InputSender}, BatchSize: 3}, "I")))
		m.begin()
		require.ErrorIs(t, m.send(InputSender, "I", "1"), ErrSender)
		m.replays()
	})
	t.Run("Call/SendsInItsNodesName", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Chain("A", "I").Graph(), Inbox{From: []string{"A"}}, "I")))
		m.begin()
		require.True(t, m.s.Speaks(m.ref("A"), 1))
		require.NoError(t, m.as(m.ref("A"), 1, "I", "1"))
		require.Equal(t, []string{"A:1"}, m.messages("I"))
		m.replays()
	})
	t.Run("Call/SendsInNoOtherName", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "B", "I").Edge("A", "I").Graph(), Inbox{From: []string{"A"}}, "I")))
		m.begin()
		require.ErrorIs(t, m.try(Delivered{From: "A", Call: m.ref("B"), Attempt: 1, Message: json.RawMessage("1"), Now: m.now}), ErrSender)
		require.ErrorIs(t, m.try(Delivered{From: "u", Call: m.ref("B"), Attempt: 1, Message: json.RawMessage("1"), Now: m.now}), ErrSender)
		require.ErrorIs(t, m.as(m.ref("A"), 2, "I", "1"), ErrSender, "there is no second attempt yet")
		require.ErrorIs(t, m.as(m.ref("A"), 0, "I", "1"), ErrSender)
		require.ErrorIs(t, m.as(Ref{Node: "A", Visit: 2}, 1, "I", "1"), ErrSender)
		require.ErrorIs(t, m.as(Ref{Node: "A", Visit: 1, Item: 1}, 1, "I", "1"), ErrSender)
		m.replays()
	})
	t.Run("Call/SpeaksWhileItIsUnderWay", func(t *testing.T) {
		m := newMachine(t, compile(t, paying()))
		m.begin()
		ask := m.ref("ask")
		require.True(t, m.s.Speaks(ask, 1))
		require.False(t, m.s.Speaks(ask, 2))
		m.end("ask", approval)
		require.False(t, m.s.Speaks(ask, 1), "it waits for an answer that others give")
		m.end("other", Outcome{Wait: &Wait{Completion: &CompletionWait{}}})
		require.True(t, m.s.Speaks(Ref{Node: "other", Visit: 1}, 1), "its work goes on outside")
		m.do(AttemptCompleted{Ref: Ref{Node: "other", Visit: 1}, Attempt: 1, Outcome: &Outcome{}, Now: m.now})
		require.False(t, m.s.Speaks(Ref{Node: "other", Visit: 1}, 1))
		require.False(t, m.s.Speaks(Ref{Node: "nobody", Visit: 1}, 1))
	})
	t.Run("Call/AskedToStopDoesNotSpeak", func(t *testing.T) {
		m := newMachine(t, compile(t, paying()))
		m.begin()
		ask := m.ref("ask")
		m.do(Cancel{Now: m.now})
		require.False(t, m.s.Speaks(ask, 1))
	})
	t.Run("Sent/CountsAfterTheEndOfItsCall", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "work", "I").Edge("A", "I", When("false")).Graph(), Inbox{From: []string{"A"}}, "I")))
		m.begin()
		a := m.ref("A")
		m.end("A", Outcome{})
		require.NoError(t, m.as(a, 1, "I", "1"), "it was taken while the call went on, and read later")
		require.Equal(t, []string{"A:1"}, m.messages("I"))
		m.replays()
	})
	t.Run("Expanded/IsTheNodesOwnBeforeAndAfter", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "work", "I").Graph(), Inbox{}, "I")))
		m.begin()
		require.ErrorIs(t, m.send("A#1/x", "I", "1"), ErrSender, "a visit may make a node of that name")
		require.NoError(t, m.send("A#1", "I", "1"))
		require.NoError(t, m.send("B#1/x", "I", "1"), "no visit can make a node of that name")
		m.end("A", Outcome{Expand: &Graph{Nodes: []Node{{ID: "x", Actor: "act"}}}})
		require.ErrorIs(t, m.send("A#1/x", "I", "1"), ErrSender)
		require.NoError(t, m.as(m.ref("A#1/x"), 1, "I", "2"))
		m.replays()
	})
	t.Run("Amended/MessagesInANameThatANodeTakesAreRefused", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "work", "pay").Graph(), Inbox{From: []string{"ask"}}, "pay")))
		m.begin()
		m.do(Amended{Program: compile(t, inbox(nodes(FirstArg(), "work", "pay", "ask").Edge("ask", "pay").Graph(), Inbox{From: []string{"ask"}}, "pay")), Revision: m.s.revision, Now: m.now})
		m.end("ask", approval)
		require.ErrorIs(t, m.send("ask", "pay", "7000"), ErrSender, "it was sent before the amendment, and is read after it")
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		m.replays()
	})
	t.Run("Amended/NoNodeTakesTheNameOfASenderWhoseMessagesAreHeld", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "work", "pay").Graph(), Inbox{From: []string{"ask"}, BatchSize: 2}, "pay")))
		m.begin()
		require.NoError(t, m.send("ask", "pay", "7000"))
		next := inbox(nodes(FirstArg(), "work", "pay", "ask").Edge("ask", "pay").Graph(), Inbox{From: []string{"ask"}, BatchSize: 2}, "pay")
		err := m.try(Amended{Program: compile(t, next), Revision: m.s.revision, Now: m.now})
		require.ErrorContains(t, err, CodeMessagesHeld)
		require.ErrorContains(t, err, `"ask"`)
		next.Nodes[2].ID, next.Edges[0].From = "ask2", "ask2"
		next.Nodes[1].On.Inbox.From = []string{"ask", "ask2"}
		m.do(Amended{Program: compile(t, next), Revision: m.s.revision, Now: m.now})
		m.replays()
	})
	t.Run("TakenBack/WhatItsCallSentIsRefused", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "work", "I").Edge("A", "I").Graph(), Inbox{From: []string{"A"}}, "I")
		m := newMachine(t, compile(t, g))
		m.begin()
		a := m.ref("A")
		next := g.Clone()
		next.Nodes[0].Args = one("5")
		m.do(Amended{Program: compile(t, next), Revision: m.s.revision, Now: m.now})
		require.ErrorIs(t, m.as(a, 1, "I", "1"), ErrSender)
		m.replays()
	})
}

// TestSender_BeforeAnswer is about the warning of inboxes that lead around an approval.
func TestSender_BeforeAnswer(t *testing.T) {
	t.Parallel()
	actors := known{"act": {Effect: Pure}, "approve": {Effect: Pure, Approves: func(*Node) bool { return true }}}
	graph := func(asks string, from ...string) *Graph {
		return &Graph{Nodes: []Node{{ID: "ask", Actor: asks}, {ID: "mid", Actor: "act"}, {ID: "pay", Actor: "act", On: &Trigger{Inbox: &Inbox{From: from}}}},
			Edges: []Edge{{From: "ask", To: "mid"}, {From: "mid", To: "pay"}}}
	}
	chat := &Graph{Nodes: []Node{{ID: "plan", Actor: "act", On: &Trigger{Inbox: &Inbox{From: []string{InputSender, "ask"}}}},
		{ID: "ask", Actor: "approve", On: &Trigger{Inbox: &Inbox{From: []string{"plan"}}}}},
		Edges: []Edge{{From: "plan", To: "ask"}, {From: "ask", To: "plan", When: "visit < 3"}}}
	beside := graph("approve", "mid")
	beside.Nodes = append(beside.Nodes, Node{ID: "box", Actor: "act", On: &Trigger{Inbox: &Inbox{}}})
	warning := []string{"STARTS_BEFORE_ANSWER pay on.inbox.from"}
	for name, c := range map[string]struct {
		g    *Graph
		want []string
	}{
		"Anybody":        {graph("approve"), warning},
		"Outside":        {graph("approve", "mid", "ada"), warning},
		"Input":          {graph("approve", "mid", InputSender), warning},
		"NodesOnly":      {graph("approve", "mid"), nil},
		"NoApproval":     {graph("act"), nil},
		"NotBehind":      {beside, nil},
		"InputOnPurpose": {chat, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(t.Context(), c.g, actors)
			require.NoError(t, err)
			require.Equal(t, c.want, places(found(p.Warnings(t.Context(), &Input{}))))
		})
	}
}
