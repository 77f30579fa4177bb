package workgraph

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inbox gives nodes of a graph an inbox each.
func inbox(g *Graph, in Inbox, ids ...string) *Graph {
	for i := range g.Nodes {
		for _, id := range ids {
			if g.Nodes[i].ID == id {
				c := in
				g.Nodes[i].On = &Trigger{Inbox: &c}
			}
		}
	}
	return g
}

func (m *machine) messages(id string) []string {
	m.t.Helper()
	var out []string
	for _, x := range m.open[m.ref(id)].Messages {
		out = append(out, x.From+":"+string(x.Body))
	}
	return out
}

func (m *machine) send(from, node, body string) error {
	return m.try(Delivered{From: from, Node: node, Message: json.RawMessage(body), Now: m.now})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	t.Run("Edges/DeliverValuesAsMessages", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "B", "I", "end").Edge("A", "I").Edge("B", "I").Edge("I", "end").Graph(), Inbox{BatchSize: 2}, "I")))
		m.begin("1")
		m.end("B", Outcome{Values: one(`"b"`)})
		require.NotContains(t, m.open, Ref{Node: "I", Visit: 1})
		m.replays()
		m.end("A", Outcome{Values: one(`"a"`)})
		require.Equal(t, []string{`B:"b"`, `A:"a"`}, m.messages("I"))
		st := m.open[m.ref("I")]
		require.Empty(t, st.Args, "no arguments are propagated into an inbox")
		require.JSONEq(t, `[{"from":"B","body":"b"},{"from":"A","body":"a"}]`, string(st.Named["messages"]))
		m.crash()
		require.Equal(t, st.Messages, m.s.Outstanding()[0].Messages)
		m.end("I", Outcome{Values: one("7")})
		require.Equal(t, []string{"7"}, m.args("end"))
		require.NotContains(t, m.open[m.ref("end")].Named, "messages", "messages are not propagated")
		m.end("end", Outcome{Values: one("8")})
		require.Equal(t, "8", string(m.s.End().Result))
		m.replays()
	})
	t.Run("Batches/AreExactAndInOrderOneVisitAtATime", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "work", "I").Graph(), Inbox{BatchSize: 2, From: []string{"user"}}, "I")))
		m.begin()
		for i := range 5 {
			require.NoError(t, m.send("user", "", fmt.Sprint(i)))
		}
		require.Equal(t, 2, m.s.InFlight(), "one visit of I, and work")
		require.Equal(t, []string{"user:0", "user:1"}, m.messages("I"))
		m.replays()
		m.end("I", Outcome{})
		require.Equal(t, []string{"user:2", "user:3"}, m.messages("I"))
		m.end("I", Outcome{})
		require.Equal(t, 1, m.s.InFlight(), "a batch that is not full waits while something else may move")
		m.end("work", Outcome{})
		require.Equal(t, []string{"user:4"}, m.messages("I"), "nothing else can move")
		require.Equal(t, 3, m.ref("I").Visit)
		m.end("I", Outcome{Values: one(`"last"`)})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.JSONEq(t, `{"work":null,"I":"last"}`, string(js(m.s.End().Outputs)))
		m.replays()
	})
	t.Run("NoMessage/EndsTheRunWithoutAVisit", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "I", "end").Edge("A", "I", When("false")).Edge("I", "end").Graph(), Inbox{}, "I")
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Equal(t, VisitSkipped, m.status("end"))
		require.Equal(t, "1", string(m.s.End().Result), "A has no completed successor")
		m.replays()
	})
	t.Run("Abstained/SendsNothing", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Chain("A", "I").Graph(), Inbox{}, "I")))
		m.begin()
		m.end("A", Outcome{Values: one("1"), Stop: AbstainResult})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Empty(t, m.s.tokens)
		m.replays()
	})
	t.Run("ErrorEdge/DeliversTheError", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "I").Edge("A", "I", OnFailure()).Graph(), Inbox{}, "I")
		g.Nodes[0].OnError.Action = Route
		m := newMachine(t, compile(t, g))
		m.begin()
		m.fail("A", Errorf(Permanent, "BROKEN", "no"))
		require.Equal(t, []string{`A:{"type":"PERMANENT","reason":"BROKEN","message":"no"}`}, m.messages("I"))
		m.replays()
	})
	t.Run("Rounds/DeliverEach", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "H", "I").Back("H", "H", "visit < 3").Edge("H", "I").Graph(), Inbox{BatchSize: 10}, "I")
		m := newMachine(t, compile(t, g))
		m.begin()
		for i := range 3 {
			m.end("H", Outcome{Values: one(fmt.Sprint(i))})
		}
		require.Equal(t, []string{"H:0", "H:1", "H:2"}, m.messages("I"))
		m.end("I", Outcome{Values: one("9")})
		require.Equal(t, "9", string(m.s.End().Result))
		m.replays()
	})
	t.Run("From/Filters", func(t *testing.T) {
		g := inbox(inbox(nodes(FirstArg(), "A", "I", "J").Graph(), Inbox{From: []string{"user"}}, "I"), Inbox{From: []string{InputSender, "I"}}, "J")
		m := newMachine(t, compile(t, g))
		m.begin("5")
		require.Equal(t, []string{`input:{"args":[5]}`}, m.messages("J"))
		require.ErrorIs(t, m.send("stranger", "", "1"), ErrState)
		require.ErrorIs(t, m.send("user", "J", "1"), ErrState)
		require.ErrorIs(t, m.send("user", "A", "1"), ErrState)
		require.ErrorIs(t, m.send("user", "nobody", "1"), ErrState)
		require.ErrorIs(t, m.send("", "I", "1"), ErrState)
		require.ErrorIs(t, m.send("user", "I", "{"), ErrState)
		require.NoError(t, m.send("user", "I", "1"))
		require.Equal(t, []string{"user:1"}, m.messages("I"))
		m.replays()
	})
	t.Run("Broadcast/LeavesOutTheSender", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(inbox(nodes(FirstArg(), "work", "A", "B", "C").Graph(),
			Inbox{BatchSize: 2}, "A", "C"), Inbox{}, "B")))
		m.begin()
		require.NoError(t, m.as(m.ref("B"), 1, "", "1"))
		require.Equal(t, []string{"input:{}", "B:1"}, m.messages("A"))
		require.Equal(t, []string{"input:{}", "B:1"}, m.messages("C"))
		require.ErrorIs(t, m.as(m.ref("B"), 1, "B", "1"), ErrState, "nobody writes to himself")
		require.Equal(t, 1, m.ref("B").Visit)
		require.Equal(t, []string{"input:{}"}, m.messages("B"))
		m.replays()
	})
	t.Run("Chat/GoesOnUntilNobodyAnswers", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "B").Edge("A", "B").Edge("B", "A").Graph(), Inbox{}, "B")
		g = inbox(g, Inbox{From: []string{InputSender, "B"}}, "A")
		m := newMachine(t, compile(t, g))
		m.begin(`"hello"`)
		for i := range 3 {
			m.end("A", Outcome{Values: one(fmt.Sprint(i))})
			require.Equal(t, []string{fmt.Sprintf("A:%d", i)}, m.messages("B"))
			m.replays()
			out := Outcome{Values: one(fmt.Sprint(10 + i))}
			if i == 2 {
				out.Select = &Select{Others: SelectNone}
			}
			m.end("B", out)
		}
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.JSONEq(t, `{"A":2,"B":12}`, string(js(m.s.End().Outputs)))
		m.replays()
	})
	t.Run("MaxVisits/PausesAndGoesOn", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "B").Edge("A", "B").Edge("B", "A").Graph(), Inbox{From: []string{InputSender, "A", "B"}}, "A", "B")
		g.Nodes[1].On.Inbox.From = []string{"A"}
		g.Nodes[0].MaxVisits = 2
		m := newMachine(t, compile(t, g))
		m.begin()
		for range 2 {
			m.end("A", Outcome{Values: one("1")})
			m.end("B", Outcome{Values: one("2")})
		}
		st, why := m.s.Status()
		require.Equal(t, StatusPaused, st)
		require.Equal(t, ReasonMaxVisits, why)
		m.replays()
		m.crash()
		m.do(Resume{Now: m.now})
		require.Equal(t, 3, m.ref("A").Visit)
		require.Equal(t, []string{"B:2"}, m.messages("A"))
		m.end("A", Outcome{Stop: AbstainResult})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("TTL/CountsFromDelivery", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "work", "I").Graph(), Inbox{From: []string{"u"}, BatchSize: 3, TTL: Duration(time.Minute)}, "I")))
		m.begin()
		require.NoError(t, m.send("u", "I", "1"))
		m.now = m.now.Add(30 * time.Second)
		require.NoError(t, m.send("u", "I", "2"))
		m.now = m.now.Add(30 * time.Second)
		require.NoError(t, m.send("u", "I", "3"))
		require.Equal(t, 1, m.s.InFlight(), "the first message has expired")
		m.replays()
		require.NoError(t, m.send("u", "I", "4"))
		require.Equal(t, []string{"u:2", "u:3", "u:4"}, m.messages("I"))
		m.end("I", Outcome{})
		require.NoError(t, m.send("u", "I", "5"))
		m.now = m.now.Add(time.Minute)
		m.end("work", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status, "what has expired wakes nobody")
		m.replays()
	})
	t.Run("TTL/IsKnownToAPlannedAmendment", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "work", "I").Graph(), Inbox{From: []string{"u"}, BatchSize: 2, TTL: Duration(time.Minute)}, "I")
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{})
		require.NoError(t, m.send("u", "I", "1"))
		m.now = m.now.Add(time.Minute)
		m.amend(Patch{RemoveNodes: []string{"work"}})
		require.Equal(t, StatusCompleted, m.s.End().Status, "what has expired wakes nobody")
		m.replays()
	})
	t.Run("Waits/KeepTheRunOpen", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Graph(), Inbox{From: []string{"u"}, BatchSize: 2}, "I")))
		m.begin()
		m.end("A", ask("q", nil))
		require.NoError(t, m.send("u", "I", "1"))
		require.Zero(t, m.s.InFlight(), "an answer may still bring more")
		m.do(Answered{ID: "q", Now: m.now})
		require.Equal(t, []string{"u:1"}, m.messages("I"))
		m.end("I", ask("q2", nil))
		require.NoError(t, m.send("u", "I", "2"))
		require.NoError(t, m.send("u", "I", "3"))
		require.Zero(t, m.s.InFlight())
		m.do(Answered{ID: "q2", Now: m.now})
		require.Equal(t, []string{"u:2", "u:3"}, m.messages("I"))
		m.replays()
	})
	t.Run("Pause/HoldsTheVisit", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Chain("A", "I").Graph(), Inbox{BatchSize: 2}, "I")))
		m.begin()
		m.do(Pause{Reason: "user", Now: m.now})
		m.end("A", Outcome{})
		require.NoError(t, m.send("u", "I", "1"))
		require.Equal(t, VisitHeld, m.status("I"))
		m.crash()
		m.do(Resume{Now: m.now})
		require.Equal(t, []string{"A:null", "u:1"}, m.messages("I"))
		m.replays()
	})
	t.Run("Levels/UpstreamIsFlushedAndClosedFirst", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "S", "I", "mid", "J", "K").Edge("S", "I").Edge("S", "J").Edge("S", "K").Edge("I", "mid").Edge("mid", "J").Graph(), Inbox{BatchSize: 5}, "I", "J", "K")
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("S", Outcome{Values: one("1")})
		require.Equal(t, []string{"S:1"}, m.messages("I"))
		require.Equal(t, []string{"S:1"}, m.messages("K"), "K stands beside I")
		m.end("I", Outcome{Values: one("2")})
		m.end("K", Outcome{Values: one("3")})
		m.replays()
		m.end("mid", Outcome{Values: one("4")})
		require.Equal(t, []string{"S:1", "mid:4"}, m.messages("J"))
		m.end("J", Outcome{Values: one("5")})
		require.JSONEq(t, `{"J":5,"K":3}`, string(js(m.s.End().Outputs)))
		m.replays()
	})
	t.Run("Full/RefusesFromOutside", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Graph(), Inbox{From: []string{"u"}, BatchSize: MaxBatchSize}, "I")))
		m.begin()
		require.NoError(t, m.send("u", "I", string(js(string(make([]byte, MaxMessageBytes/12))))))
		require.ErrorIs(t, m.send("u", "I", string(js(string(make([]byte, MaxMessageBytes))))), ErrState)
	})
	t.Run("Map/RunsOverTheMessages", func(t *testing.T) {
		g := inbox(nodes(FirstArg(), "A", "I").Chain("A", "I").Graph(), Inbox{}, "I")
		g.Nodes[1].Map = &Map{Over: "named.messages.map(m, m.body)"}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("4")})
		require.Equal(t, "4", string(m.open[Ref{Node: "I", Visit: 1, Item: 1}].Args[0]))
		m.crash()
		m.endRef(Ref{Node: "I", Visit: 1, Item: 1}, &Outcome{Values: one("5")}, nil)
		require.Equal(t, `[{"ok":5}]`, string(m.s.End().Result))
		m.replays()
	})
	t.Run("Failure/EndsTheRun", func(t *testing.T) {
		m := newMachine(t, compile(t, inbox(nodes(FirstArg(), "A", "I").Chain("A", "I").Graph(), Inbox{}, "I")))
		m.begin()
		m.end("A", Outcome{})
		m.fail("I", Errorf(Permanent, "NO", ""))
		require.Equal(t, StatusFailed, m.s.End().Status)
		require.ErrorIs(t, m.send("u", "I", "1"), ErrEnded)
		m.replays()
	})
}

func TestInboxFaults(t *testing.T) {
	for _, c := range []struct {
		name, code string
		g          *Graph
	}{
		{"BackEdge", CodeBadValue, inbox(nodes(FirstArg(), "A", "I").Edge("A", "I").Edge("I", "A", func(e *Edge) { e.Kind = BackEdge }).Graph(), Inbox{}, "A", "I")},
		{"SenderNotTaken", CodeBadValue, inbox(nodes(FirstArg(), "A", "I").Edge("A", "I").Graph(), Inbox{From: []string{"B"}}, "I")},
		{"LeadsBackThroughAnother", CodeInboxCycle, inbox(nodes(FirstArg(), "I", "A").Edge("I", "A").Edge("A", "I").Graph(), Inbox{From: []string{InputSender, "A"}}, "I")},
		{"NothingStarts", CodeNoStart, inbox(nodes(FirstArg(), "A", "B").Edge("A", "B").Edge("B", "A").Graph(), Inbox{}, "A", "B")},
		{"Join", CodeBadValue, func() *Graph {
			g := inbox(nodes(FirstArg(), "A", "I").Edge("A", "I").Graph(), Inbox{}, "I")
			g.Nodes[1].Join.Mode = Any
			return g
		}()},
		{"EmptySender", CodeBadValue, inbox(nodes(FirstArg(), "A", "I").Graph(), Inbox{From: []string{""}}, "I")},
		{"NegativeTTL", CodeBadValue, inbox(nodes(FirstArg(), "A", "I").Graph(), Inbox{TTL: -1}, "I")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var codes []string
			for _, f := range faultsOf(c.g, nil) {
				codes = append(codes, f.Code)
			}
			require.Contains(t, codes, c.code)
		})
	}
	t.Run("Compile/LeavesTheGraphAlone", func(t *testing.T) {
		g := nodesOf("x", inbox(nodes(FirstArg(), "A", "I").Graph(), Inbox{}, "I"))
		_, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		require.Zero(t, g.Nodes[1].On.Inbox.BatchSize)
	})
}
