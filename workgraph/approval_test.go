package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pays is a graph in which node pay does what is approved at node ask, and send passes on the result.
func pays(change func(g *Graph)) *Graph {
	g := nodes(FirstArg(), "ask", "pay", "send").Chain("ask", "pay", "send").Graph()
	g.Nodes[1].Named = map[string]json.RawMessage{"amount": json.RawMessage("7")}
	if change != nil {
		change(g)
	}
	return g
}

func payment(q *Interrupt) { q.Approve = json.RawMessage(`{ "to": "x", "amount": 7 }`) }

// asked is a run that has asked for the approval, with the hash that the interrupt showed.
func asked(t *testing.T, g *Graph) (*machine, string) {
	m := newMachine(t, compile(t, g))
	m.begin()
	m.end("ask", ask("q1", payment))
	require.Len(t, m.fx.Opened, 1)
	return m, shown(m)
}

func shown(m *machine) string {
	o := m.fx.Opened[len(m.fx.Opened)-1]
	return ApproveHash(o.Interrupt.Approve, o.Binds)
}

func (m *machine) decide(id, decision string) {
	m.t.Helper()
	m.do(Answered{ID: id, Decision: decision, By: "ann", Now: m.now})
}

func amount(n string) func(*Node) {
	return func(node *Node) { node.Named = map[string]json.RawMessage{"amount": json.RawMessage(n)} }
}

func TestRejection(t *testing.T) {
	t.Run("Rejected/FailsTheVisit", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Rejected)
		require.Equal(t, ReasonRejected, m.failure("ask"))
		require.Equal(t, StatusFailed, m.s.End().Status)
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		m.replays()
	})
	t.Run("Rejected/IsNotAskedAgain", func(t *testing.T) {
		m, _ := asked(t, pays(func(g *Graph) { g.Nodes[0].Retry.MaxAttempts = 5 }))
		m.decide("q1", Rejected)
		require.Equal(t, StatusFailed, m.s.End().Status)
	})
	t.Run("OnError/HandlesIt", func(t *testing.T) {
		m, _ := asked(t, pays(func(g *Graph) { g.Nodes[0].OnError.Action = Continue }))
		m.decide("q1", Rejected)
		require.Equal(t, VisitSkipped, m.status("pay"))
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("OnError/FallbackDoesNotLetOthersRun", func(t *testing.T) {
		g := nodes(FirstArg(), "ask", "pay", "refund").Edge("ask", "pay").Edge("ask", "refund", When("visit == 1")).Graph()
		g.Nodes[0].OnError = OnError{Action: Fallback, Value: js("no")}
		m, _ := asked(t, g)
		m.decide("q1", Rejected)
		require.Equal(t, VisitCompleted, m.status("ask"))
		require.Equal(t, `"no"`, m.value("ask"))
		require.Equal(t, VisitSkipped, m.status("pay"))
		require.Equal(t, VisitSkipped, m.status("refund"))
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replays()
	})
	t.Run("ErrorEdge/HandlesIt", func(t *testing.T) {
		g := nodes(FirstArg(), "ask", "pay", "sorry").Edge("ask", "pay").Graph()
		g.Edges = append(g.Edges, Edge{From: "ask", To: "sorry", Kind: ErrorEdge})
		g.Nodes[0].OnError.Action = Route
		m, _ := asked(t, g)
		m.decide("q1", Rejected)
		require.Equal(t, VisitSkipped, m.status("pay"))
		require.Contains(t, m.args("sorry")[0], ReasonRejected)
	})
	t.Run("Condition/HandlesIt", func(t *testing.T) {
		g := nodes(FirstArg(), "ask", "pay", "refund", "log").Edge("ask", "pay", When(`result.decision == "APPROVED"`)).
			Edge("ask", "refund", When(`result.decision == "REJECTED"`)).Edge("ask", "log").Graph()
		m, _ := asked(t, g)
		m.decide("q1", Rejected)
		require.Equal(t, VisitSkipped, m.status("pay"))
		require.Equal(t, VisitSkipped, m.status("log"), "an edge that does not look at the answer is no way to go on after a rejection")
		require.Contains(t, m.args("refund")[0], `"decision":"REJECTED","by":"ann"`)
		m.replays()
		m.crash()
		m.amend(Patch{PutNodes: []Node{put("late")}, AddEdges: []Edge{{From: "ask", To: "late"}}})
		require.Equal(t, VisitSkipped, m.status("late"), "nor is one that comes later")
	})
	t.Run("Condition/OnSomethingElseDoesNot", func(t *testing.T) {
		m, _ := asked(t, nodes(FirstArg(), "ask", "pay").Edge("ask", "pay", When("visit == 1")).Graph())
		m.decide("q1", Rejected)
		require.Equal(t, StatusFailed, m.s.End().Status)
	})
	t.Run("NodeCondition/DoesNotHandleIt", func(t *testing.T) {
		m, _ := asked(t, pays(func(g *Graph) { g.Nodes[1].When = `nodes.ask.result.decision == "REJECTED"` }))
		m.decide("q1", Rejected)
		require.Equal(t, ReasonRejected, m.failure("ask"))
		require.Equal(t, StatusFailed, m.s.End().Status)
		m.replays()
	})
	t.Run("Expiry/RejectsByDefault", func(t *testing.T) {
		m := newMachine(t, compile(t, pays(nil)))
		m.begin()
		m.end("ask", ask("q", func(q *Interrupt) { q.Timeout, q.Default, q.Approve = Duration(time.Hour), js(Rejected), js(1) }))
		m.later(time.Hour)
		require.Equal(t, Rejected, m.fx.Closed[0].Decision)
		require.Equal(t, ReasonRejected, m.failure("ask"))
		m.replays()
	})
	t.Run("Map/FailsTheItem", func(t *testing.T) {
		m := newMachine(t, compile(t, pays(func(g *Graph) { g.Nodes[0].Map = &Map{Over: "[1,2]", OnItemError: ContinueItems} })))
		m.begin()
		for i, decision := range []string{Approved, Rejected} {
			id := string(rune('a' + i))
			out := ask(id, payment)
			m.endRef(Ref{Node: "ask", Visit: 1, Item: i + 1}, &out, nil)
			m.decide(id, decision)
		}
		require.Contains(t, m.value("ask"), ReasonRejected)
		m.replays()
	})
}

func TestApprovalBinds(t *testing.T) {
	change := Patch{PutNodes: []Node{put("pay", amount("7000"))}}
	t.Run("Hash/CoversWhatIsToBeDone", func(t *testing.T) {
		_, hash := asked(t, pays(nil))
		_, same := asked(t, pays(nil))
		require.Equal(t, hash, same)
		for name, change := range map[string]func(*Graph){
			"Amount":    func(g *Graph) { g.Nodes[1].Named["amount"] = json.RawMessage("8") },
			"Effect":    func(g *Graph) { g.Nodes[1].Effect = Unsafe },
			"Policy":    func(g *Graph) { g.Nodes[1].Retry.MaxAttempts = 9 },
			"Later":     func(g *Graph) { g.Nodes[2].Args = one(`"more"`) },
			"Asker":     func(g *Graph) { g.Nodes[0].Named = map[string]json.RawMessage{"x": json.RawMessage("1")} },
			"Condition": func(g *Graph) { g.Edges[0].When = "true" },
		} {
			_, other := asked(t, pays(change))
			require.NotEqual(t, hash, other, name)
		}
		m := newMachine(t, compile(t, pays(nil)))
		m.begin("5")
		m.end("ask", ask("q1", payment))
		require.NotEqual(t, hash, shown(m), "its arguments")
	})
	t.Run("Amend/BeforeTheAnswerAsksAnew", func(t *testing.T) {
		m, hash := asked(t, pays(nil))
		first := m.p
		m.amend(change)
		require.Equal(t, InterruptCanceled, m.fx.Closed[0].How)
		require.ErrorIs(t, m.try(Answered{ID: "q1", Decision: Approved, Now: m.now}), ErrStale)
		m.end("ask", ask("q2", payment))
		require.NotEqual(t, hash, shown(m))
		m.decide("q2", Approved)
		m.end("pay", Outcome{})
		m.end("send", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(first)
	})
	for name, patch := range map[string]Patch{
		"Changed": change,
		"Actor":   {PutNodes: []Node{put("pay", amount("7"), func(n *Node) { n.Actor = "z" })}},
		"Further": {PutNodes: []Node{put("send", amount("1"))}},
		"Added":   {PutNodes: []Node{put("also")}, AddEdges: []Edge{{From: "ask", To: "also"}}},
		"Between": {PutNodes: []Node{put("between")}, AddEdges: []Edge{{From: "between", To: "pay"}}},
		"Removed": {RemoveNodes: []string{"send"}},
	} {
		t.Run("Amend/AfterTheAnswerAsksAgain/"+name, func(t *testing.T) {
			m, _ := asked(t, pays(nil))
			first := m.p
			m.do(Pause{Reason: "WAIT", Now: m.now})
			m.decide("q1", Approved)
			m.crash()
			m.amend(patch)
			require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
			m.crash()
			m.do(Resume{Now: m.now})
			require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1}, "nothing that was approved runs")
			m.end("ask", ask("q2", payment))
			if name == "Between" {
				m.end("between", Outcome{})
			}
			m.decide("q2", Approved)
			require.Contains(t, m.open, Ref{Node: "pay", Visit: 1})
			m.end("pay", Outcome{})
			if name == "Added" {
				m.end("also", Outcome{})
			}
			if name != "Removed" {
				m.end("send", Outcome{})
			}
			require.Equal(t, StatusCompleted, m.s.End().Status)
			m.replayed(first)
		})
	}
	t.Run("Amend/OfWhatIsUnderWayAsksAgain", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.amend(change)
		require.Empty(t, m.status("pay"))
		m.end("ask", ask("q2", payment))
		m.decide("q2", Rejected)
		require.Equal(t, StatusFailed, m.s.End().Status)
	})
	t.Run("Amend/OfSomethingElseAsksNobody", func(t *testing.T) {
		g := pays(nil)
		g.Nodes = append(g.Nodes, put("aside"), put("later"))
		g.Edges = append(g.Edges, Edge{From: "aside", To: "later"})
		m, _ := asked(t, g)
		m.decide("q1", Approved)
		m.amend(Patch{PutNodes: []Node{put("later", amount("1"))}})
		m.end("pay", Outcome{})
		require.Equal(t, VisitCompleted, m.status("ask"))
	})
	t.Run("Amend/OfWhatHandsItValuesAsksAgain", func(t *testing.T) {
		g := pays(nil)
		g.Nodes = append(g.Nodes, put("sum"))
		g.Edges = append(g.Edges, Edge{From: "sum", To: "pay"})
		m, _ := asked(t, g)
		m.decide("q1", Approved)
		m.amend(Patch{PutNodes: []Node{put("sum", amount("7000"))}})
		m.end("sum", Outcome{})
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		m.end("ask", ask("q2", payment))
		m.decide("q2", Approved)
		require.Contains(t, m.open, Ref{Node: "pay", Visit: 1})
	})
	t.Run("Amend/AfterSomeOfItRanIsRefused", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.end("pay", Outcome{})
		require.Equal(t, []string{CodeApproved + " ask "}, m.refused(Patch{PutNodes: []Node{put("send", amount("1"))}}))
	})
	// An amendment may not lead around an open interrupt, nor around an answered one before its purpose has
	// run.
	for name, patch := range map[string]Patch{
		"AskIsRemoved":   {RemoveNodes: []string{"ask"}},
		"EdgeIsRemoved":  {RemoveEdges: []Edge{{From: "ask", To: "pay"}}},
		"AnotherWay":     {PutNodes: []Node{put("pay", amount("7"), func(n *Node) { n.Join.Mode = Any })}, AddEdges: []Edge{{From: "aside", To: "pay"}}},
		"InboxOfAll":     {PutNodes: []Node{put("pay", amount("7"), func(n *Node) { n.On = &Trigger{Inbox: &Inbox{}} })}},
		"InboxOfOutside": {PutNodes: []Node{put("pay", amount("7"), func(n *Node) { n.On = &Trigger{Inbox: &Inbox{From: []string{"ask", "somebody"}}} })}},
	} {
		for state, before := range map[string]func(*machine){
			"Open":     func(*machine) {},
			"Answered": func(m *machine) { m.do(Pause{Reason: "WAIT", Now: m.now}); m.decide("q1", Approved) },
		} {
			t.Run("Amend/DoesNotLeadAroundIt/"+name+"/"+state, func(t *testing.T) {
				g := pays(nil)
				g.Nodes = append(g.Nodes, put("aside"))
				m, _ := asked(t, g)
				before(m)
				require.Contains(t, m.refused(patch), CodeApproved+" pay ")
			})
		}
	}
	t.Run("Amend/RemovesTheQuestionWithWhatItIsFor", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.amend(Patch{RemoveNodes: []string{"ask", "pay", "send"}, PutNodes: []Node{put("else")}})
		m.end("else", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
	})
	t.Run("Amend/ThatPutsSomethingBetweenIsTaken", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.amend(Patch{PutNodes: []Node{put("between")}, RemoveEdges: []Edge{{From: "ask", To: "pay"}}, AddEdges: []Edge{{From: "ask", To: "between"}, {From: "between", To: "pay"}}})
		m.end("ask", ask("q2", payment))
		m.decide("q2", Approved)
		m.end("between", Outcome{})
		require.Contains(t, m.open, Ref{Node: "pay", Visit: 1})
	})
	t.Run("Amend/WhatIsGuarded", func(t *testing.T) {
		g := nodes(FirstArg(), "start", "ask", "all", "any", "two", "three", "after", "free").
			Edge("start", "ask").Edge("ask", "all").Edge("free", "all").Edge("ask", "any").Edge("free", "any").
			Edge("ask", "two").Edge("all", "two").Edge("free", "two").Edge("ask", "three").Edge("free", "three").Edge("start", "three").Edge("two", "after").Graph()
		join := map[string]Join{"any": {Mode: Any}, "two": {Mode: Quorum, N: 2}, "three": {Mode: Quorum, N: 2}}
		for i := range g.Nodes {
			if j, ok := join[g.Nodes[i].ID]; ok {
				g.Nodes[i].Join = j
			}
		}
		p := compile(t, g)
		guarded, err := p.guardedBy(t.Context(), []int32{p.index["ask"]})
		require.NoError(t, err)
		var got []string
		for n, by := range guarded {
			if by != (reachSet{}) {
				got = append(got, p.nodes[n].ID)
			}
		}
		require.Equal(t, []string{"all", "two", "after"}, got)
	})
	t.Run("Amend/WhatWasSkippedComesBack", func(t *testing.T) {
		g := nodes(FirstArg(), "ask", "pay", "refund", "end").Edge("ask", "pay", When(`result.decision == "APPROVED"`)).
			Edge("ask", "refund", When(`result.decision == "REJECTED"`)).Edge("pay", "end").Edge("refund", "end").Graph()
		m, _ := asked(t, g)
		first := m.p
		m.decide("q1", Approved)
		require.Equal(t, VisitSkipped, m.status("refund"))
		m.amend(change)
		require.Empty(t, m.status("refund"))
		m.end("ask", ask("q2", payment))
		m.decide("q2", Rejected)
		require.Equal(t, VisitSkipped, m.status("pay"))
		m.end("refund", Outcome{})
		m.end("end", Outcome{})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		m.replayed(first)
	})
}

func TestApprovalInForks(t *testing.T) {
	fork := func(m *machine, from *Ref, after *Graph) []string {
		t.Helper()
		before := m.s.Graph()
		if after == nil {
			after = before
		}
		reused, _, _ := ReuseFrom(t.Context(), m.s, from, before, after)
		return refs(reused)
	}
	with := func(m *machine, change func(*Graph)) *Graph {
		g := m.s.Graph().Clone()
		change(g)
		return g
	}
	ran := func(t *testing.T) *machine {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.end("pay", Outcome{Values: one("1")})
		return m
	}
	ref := func(id string) *Ref { return &Ref{Node: id, Visit: 1} }
	t.Run("Retry/KeepsTheApprovalOfWhatFailed", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.fail("pay", Errorf(Permanent, "NO", ""))
		require.Equal(t, []string{"ask"}, fork(m, nil, nil))
	})
	t.Run("Retry/WithOtherArgumentsAsksAgain", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.fail("pay", Errorf(Permanent, "NO", ""))
		require.Empty(t, fork(m, nil, with(m, func(g *Graph) { g.Nodes[1].Named["amount"] = json.RawMessage("7000") })))
	})
	t.Run("Fork/FromAfterTheApprovalAsksAgain", func(t *testing.T) {
		require.Empty(t, fork(ran(t), ref("pay"), nil), "what was approved once is not done twice")
		m := ran(t)
		require.Empty(t, fork(m, ref("pay"), with(m, func(g *Graph) { g.Nodes[1].Named["amount"] = json.RawMessage("7000") })))
	})
	t.Run("Fork/WithAnotherTailAsksAgain", func(t *testing.T) {
		m := ran(t)
		require.Equal(t, []string{"ask", "pay"}, fork(m, ref("send"), nil))
		require.Empty(t, fork(m, ref("send"), with(m, func(g *Graph) { g.Nodes[2].Args = one("1") })))
		require.Empty(t, fork(m, ref("send"), with(m, func(g *Graph) {
			g.Nodes = append(g.Nodes, put("more"))
			g.Edges = append(g.Edges, Edge{From: "pay", To: "more"})
		})))
	})
	t.Run("Fork/FromWhatHandsItValuesAsksAgain", func(t *testing.T) {
		g := pays(nil)
		g.Nodes = append(g.Nodes, put("sum"))
		g.Edges = append(g.Edges, Edge{From: "sum", To: "pay"})
		m, _ := asked(t, g)
		m.end("sum", Outcome{Values: one("7")})
		m.decide("q1", Approved)
		m.fail("pay", Errorf(Permanent, "NO", ""))
		require.Equal(t, []string{"ask", "sum"}, fork(m, nil, nil))
		require.Empty(t, fork(m, ref("sum"), nil), "the sum comes anew")
	})
	t.Run("Fork/OfAForkStillBinds", func(t *testing.T) {
		m, _ := asked(t, pays(nil))
		m.decide("q1", Approved)
		m.fail("pay", Errorf(Permanent, "NO", ""))
		f, _ := forkOf(m, nil)
		require.Equal(t, VisitCompleted, f.status("ask"))
		f.amend(Patch{PutNodes: []Node{put("pay", amount("7000"))}})
		require.NotContains(t, f.open, ref("pay"))
		f.end("ask", ask("q2", payment))
		f.decide("q2", Approved)
		f.end("pay", Outcome{})
	})
}

func TestRejectionSaysWhy(t *testing.T) {
	for name, c := range map[string]struct{ by, answer, want string }{
		"ByNobody":        {"", ``, "it was rejected"},
		"ByName":          {"ann", ``, "ann rejected it"},
		"WithAReason":     {"ann", `"too much"`, "ann rejected it: too much"},
		"WithAnAnswer":    {"", `{"amount": 5}`, "it was rejected"},
		"LongIsCut":       {"", `"` + strings.Repeat("é", 400) + `"`, "it was rejected: " + strings.Repeat("é", 250) + "…"},
		"EmptyIsNoReason": {"", `""`, "it was rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := asked(t, pays(nil))
			m.do(Answered{ID: "q1", Decision: Rejected, By: c.by, Answer: json.RawMessage(c.answer), Now: m.now})
			require.Equal(t, StatusFailed, m.s.End().Status)
			require.Equal(t, c.want, m.s.End().Error.Message)
			m.replays()
		})
	}
}

func TestApprovalLeads(t *testing.T) {
	t.Parallel()
	p, err := Compile(t.Context(), chain(1_000), Actors{"x": ActorFunc(nil)})
	require.NoError(t, err)
	first, err := p.covers(t.Context())
	require.NoError(t, err)
	again, err := p.covers(t.Context())
	require.NoError(t, err)
	require.Same(t, first, again, "what leads where is found out once for a program")
}

// A graph of many approvals is amended again and again. The cost must grow with the graph, and not with the
// number of approvals times the graph.
func TestAttackApprovals(t *testing.T) {
	t.Parallel()
	const branches, length = 1_000, 5
	g := &Graph{Nodes: []Node{{ID: "root", Actor: "x"}, {ID: "end", Actor: "x"}}}
	for b := range branches {
		last := "root"
		for i := range length {
			id := fmt.Sprintf("b%d-%d", b, i)
			g.Nodes = append(g.Nodes, Node{ID: id, Actor: "x"})
			g.Edges = append(g.Edges, Edge{From: last, To: id})
			last = id
		}
		g.Edges = append(g.Edges, Edge{From: last, To: "end"})
	}
	size := int64(len(g.Nodes) + len(g.Edges))
	steps := func(m *machine, do func(ctx context.Context)) int64 {
		ctx := newCountdown(1 << 40)
		m.s.OnEvaluation(func() (context.Context, context.CancelFunc) { return ctx, func() {} })
		do(ctx)
		return 1<<40 - ctx.left.Load()
	}
	m := newMachine(t, compile(t, g))
	m.begin()
	m.end("root", Outcome{})
	asks := func() int64 {
		n := int64(0)
		for b := range branches {
			id := fmt.Sprintf("b%d-0", b)
			n = max(n, steps(m, func(context.Context) { m.end(id, ask(fmt.Sprintf("%s/%d", id, m.s.Seq()), payment)) }))
		}
		return n
	}
	require.Less(t, asks(), 20*size, "one interrupt")
	for round := range 3 {
		// Half of them are approved, and what follows from all of them changes.
		m.do(Pause{Reason: "WAIT", Now: m.now})
		i := 0
		for id := range m.s.asks {
			if i++; i%2 == 0 {
				m.decide(id, Approved)
			}
		}
		q := m.patched(Patch{PutNodes: []Node{put("end", amount(fmt.Sprint(round)))}})
		var plan AmendPlan
		n := steps(m, func(ctx context.Context) {
			var err error
			plan, err = m.s.PlanAmend(ctx, q, m.now)
			require.NoError(t, err)
		})
		require.Less(t, n, 50*size, "a plan")
		require.Len(t, plan.Cancels, branches+branches/2, "every interrupt is opened again, and what was held with it")
		ctx := newCountdown(1_000)
		_, err := m.s.PlanAmend(ctx, q, m.now)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, ctx.late.Load(), int64(100), "nothing goes on after the end")
		require.Less(t, steps(m, func(context.Context) { m.do(Amended{Program: q, Revision: m.s.GraphRevision(), Now: m.now}) }), 50*size, "an amendment")
		require.Empty(t, m.s.asks)
		m.do(Resume{Now: m.now})
		require.Less(t, asks(), 20*size)
		require.Len(t, m.s.asks, branches)
	}
	for id := range m.s.asks {
		m.decide(id, Approved)
	}
	ctx := newCountdown(1 << 40)
	reused, _, err := ReuseFrom(ctx, m.s, nil, m.s.Graph(), m.s.Graph())
	require.NoError(t, err)
	require.Len(t, reused, branches+1)
	require.Less(t, 1<<40-ctx.left.Load(), 50*size, "a fork")
	ctx = newCountdown(100)
	_, _, err = ReuseFrom(ctx, m.s, nil, m.s.Graph(), m.s.Graph())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, ctx.late.Load(), int64(100))
}
