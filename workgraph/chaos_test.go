package workgraph

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestMachineSurvivesEverything adds features that the reference does not have: maps, UNSAFE attempts and
// lost owners, timers, pauses, limits, losers, state and irreducible loops. Every run must end or stand still
// for a stated reason, and every journal must replay.
func TestMachineSurvivesEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		(&chaos{gen: gen{t: t, losers: true}}).survive(t)
	})
}

func (c *chaos) survive(t *rapid.T) {
	spec := c.graph()
	c.spice(spec.g)
	p, err := Compile(t.Context(), spec.g, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, mustJSON(spec.g))
	}
	c.s, c.j, c.now = New(p, "run"), &journalOf{p: p, snaps: map[int64]string{}}, time.Unix(5000, 0)
	require.NoError(t, c.do(Begin{Now: c.now}))
	for step := 0; c.s.End() == nil; step++ {
		if step > 3000 {
			require.NoError(t, c.do(Cancel{Now: c.now, Reason: "enough"}))
		}
		c.step(spec.g)
	}
	require.NotEqual(t, ReasonStarved, c.s.End().Reason, "%s\ngraph %s", c.s.End().Message, mustJSON(c.s.Graph()))
	require.Empty(t, c.s.flights)
	if c.s.End().Status == StatusCompleted && c.s.End().Reason == "" {
		for n, b := range c.s.inboxes {
			require.True(t, len(b.messages) == 0 || c.s.p.nodes[n].inbox.TTL > 0, "no message is lost")
		}
		c.s.Visits(func(v VisitInfo) bool {
			require.Contains(t, []VisitStatus{VisitCompleted, VisitAbstained, VisitFailed, VisitSkipped, VisitCanceled}, v.Status, "%s", v.Ref)
			found, ok := c.s.Visit(v.Ref)
			require.True(t, ok, "%s", v.Ref)
			require.Equal(t, v, found)
			return true
		})
	}
	c.j.check(t, "run")
}

type chaos struct {
	gen
	s    *State
	j    *journalOf
	now  time.Time
	open []Start
	// asked makes ids unique.
	asked int
	// changing says that the graph changes while the run goes on.
	changing bool
}

// wait is a random wait with unique ids.
func (c *chaos) wait(st *Start) *Wait {
	c.asked++
	timeout := Duration(c.num(0, 1, "timed")) * Duration(time.Second)
	switch c.num(0, 4, "kind of wait") {
	case 0:
		w := &Wait{Children: &Children{Timeout: timeout, FailFast: c.chance(20, "fail fast")}}
		for i := range c.num(0, 3, "children") {
			w.Children.Runs = append(w.Children.Runs, Child{ID: fmt.Sprintf("%s/%d/%d", st.Ref, c.asked, i), Ref: "self"})
		}
		return w
	case 1:
		q := &Interrupt{ID: fmt.Sprintf("q%d", c.asked), Timeout: timeout}
		if timeout > 0 && c.chance(50, "default") {
			q.Default = json.RawMessage("true")
		}
		return &Wait{Interrupt: q}
	case 2:
		return &Wait{Completion: &CompletionWait{Timeout: timeout}}
	case 3:
		return &Wait{Signal: &SignalWait{Name: rapid.SampledFrom([]string{"s", "t"}).Draw(c.t, "signal"), Timeout: timeout}}
	}
	return &Wait{Timer: &Timer{After: Duration(time.Second)}}
}

// answer ends one of the open waits. It is false if no open wait needs a command.
func (c *chaos) answer() bool {
	var open []WaitInfo
	c.s.Waits(func(w WaitInfo) bool {
		if w.Kind != WaitTimer {
			open = append(open, w)
		}
		return true
	})
	if len(open) == 0 {
		return false
	}
	w := open[c.num(0, len(open)-1, "which wait")]
	switch w.Kind {
	case WaitChildren:
		slot := ChildSlot{RunID: w.Children[c.num(0, len(w.Children)-1, "child")], Usage: []Usage{{Model: "child", InputTokens: 1}}}
		slot.Status = rapid.SampledFrom([]Status{StatusCompleted, StatusCompleted, StatusFailed}).Draw(c.t, "end")
		if slot.Status == StatusCompleted {
			slot.Result = json.RawMessage("[1]")
		}
		require.NoError(c.t, c.do(ChildEnded{Ref: w.Ref, Slot: slot, Now: c.now}))
		require.Error(c.t, c.s.refused(ChildEnded{Ref: w.Ref, Slot: slot, Now: c.now}))
	case WaitInterrupt:
		require.NoError(c.t, c.do(Answered{ID: w.Interrupt.ID, Answer: json.RawMessage("{}"), By: "me", Now: c.now}))
		require.Error(c.t, c.s.refused(Answered{ID: w.Interrupt.ID, Now: c.now}))
	case WaitCompletion:
		end := AttemptCompleted{Ref: w.Ref, Attempt: w.Attempt, Now: c.now}
		if c.chance(80, "done") {
			end.Outcome = &Outcome{Values: []json.RawMessage{json.RawMessage(`"task"`)}}
		} else {
			end.Err = Errorf(Permanent, "TASK", "")
		}
		require.NoError(c.t, c.do(end))
		require.Error(c.t, c.s.refused(end))
	case WaitSignal:
		require.NoError(c.t, c.do(Signaled{Name: w.Signal, Payload: json.RawMessage("1"), Now: c.now}))
	}
	return true
}

// spice adds features that the common generator leaves out.
func (c *chaos) spice(g *Graph) {
	g.State = map[string]StateKey{"log": {Reducer: Append}, "sum": {Reducer: Add}, "set": {Reducer: AppendByID}, "last": {}}
	if c.chance(20, "irreducible") {
		for _, id := range []string{"t0", "t1", "t2"} {
			g.Nodes = append(g.Nodes, Node{ID: id, Actor: "act", Effect: Idempotent, Join: Join{Mode: Any}})
		}
		g.Edges = append(g.Edges, Edge{From: "n0", To: "t0"}, Edge{From: "n0", To: "t1", When: "visit < 3"}, Edge{From: "t0", To: "t1"},
			Edge{From: "t1", To: "t0", Kind: BackEdge, When: "visit < 3"}, Edge{From: "t1", To: "t2"})
	}
	if c.chance(40, "inboxes") {
		in := func(from ...string) *Trigger {
			return &Trigger{Inbox: &Inbox{From: from, BatchSize: c.num(1, 3, "batch"), TTL: Duration(c.num(0, 1, "ttl")) * Duration(3*time.Second)}}
		}
		last := g.Nodes[len(g.Nodes)-1].ID
		g.Nodes = append(g.Nodes, Node{ID: "i0", Actor: "act", On: in()}, Node{ID: "i1", Actor: "act", On: in("i0", "u")}, Node{ID: "i2", Actor: "act"},
			Node{ID: "i3", Actor: "act", On: in("i2", InputSender)})
		g.Edges = append(g.Edges, Edge{From: "n0", To: "i0"}, Edge{From: "i0", To: "i1"}, Edge{From: "i1", To: "i0", When: "visit < 4"},
			Edge{From: "i1", To: "i2"}, Edge{From: "i2", To: "i3"})
		if last != "n0" {
			g.Edges = append(g.Edges, Edge{From: last, To: "i0", When: "visit < 3"})
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		n.Effect = rapid.SampledFrom([]Effect{Pure, Idempotent, Unsafe}).Draw(c.t, "effect")
		if c.chance(15, "limit") {
			n.MaxVisits = c.num(1, 2, "max")
		}
		if c.chance(20, "map") {
			n.Map = &Map{MaxParallel: c.num(1, 3, "window")}
			n.Map.Over = rapid.SampledFrom([]string{"[]", "[1,2,3]", "[1,2,3,4,5,6,7]"}).Draw(c.t, "list")
			switch c.num(0, 2, "item errors") {
			case 1:
				n.Map.OnItemError = ContinueItems
			case 2:
				n.Map.OnItemError, n.Map.Quorum = QuorumItems, c.num(1, 4, "item quorum")
			}
			if c.chance(40, "until") {
				n.Map.Until = rapid.SampledFrom([]string{"item > 2", "true", "result == null"}).Draw(c.t, "until")
			}
		}
	}
}

func (c *chaos) do(cmd Command) error {
	evs, fx, err := c.s.Advance(cmd)
	if err == nil {
		c.j.note(c.t, c.s, evs)
		c.open = append(c.open, fx.Starts...)
	}
	return err
}

func (c *chaos) step(g *Graph) {
	require.NotEmpty(c.t, c.s.Why(3), "a run that goes on can say why")
	if c.changing {
		g = c.s.Graph()
		if c.chance(8, "change") {
			c.change(g)
			return
		}
	}
	switch k := c.num(0, 99, "step"); {
	case k < 2:
		_ = c.do(Pause{Reason: "test", Now: c.now})
	case k == 2:
		_ = c.do(Cancel{Reason: "test", Now: c.now})
	case k == 3 && c.chance(20, "deadline"):
		_ = c.do(DeadlinePassed{Now: c.now})
	case k < 6: // the owner is lost: a new one restores the state and starts what is outstanding
		require.NoError(c.t, c.do(Recover{Now: c.now}))
		snap, err := c.s.Snapshot()
		require.NoError(c.t, err)
		c.s, err = Restore(c.t.Context(), c.j.p, snap)
		require.NoError(c.t, err)
		c.open = c.s.Outstanding()
		return
	case k < 10:
		if err := c.do(Signaled{Name: "s", Now: c.now}); err != nil {
			require.True(c.t, c.s.End() != nil || c.s.Draining())
		}
	case k < 20 && c.answer():
		return
	case k < 25:
		to := rapid.SampledFrom([]string{"", "i0", "i1"}).Draw(c.t, "addressee")
		from := rapid.SampledFrom([]string{"u", "i0", "v"}).Draw(c.t, "sender")
		d := Delivered{From: from, Node: to, Message: json.RawMessage(`"hi"`), Now: c.now}
		for i := range c.open {
			if c.open[i].Node == from {
				d.Call, d.Attempt = c.open[i].Ref, c.open[i].Attempt
			}
		}
		_ = c.do(d)
	}
	if at, ok := c.s.NextTimer(); ok && (len(c.open) == 0 || c.chance(30, "timer")) {
		c.now = at
		require.NoError(c.t, c.do(TimerDue{Now: c.now}))
		return
	}
	if len(c.open) > 0 {
		c.finish(g)
		return
	}
	if c.s.End() != nil {
		return
	}
	if c.answer() {
		return
	}
	// Nothing is in flight, no timer runs and no command comes: the run must be paused and state a reason.
	status, reason := c.s.Status()
	require.Equal(c.t, StatusPaused, status, "graph %s", mustJSON(g))
	require.NotEmpty(c.t, reason)
	c.s.Visits(func(v VisitInfo) bool {
		if v.Status == VisitReconciliation {
			if c.chance(50, "reconciled") {
				require.NoError(c.t, c.do(Reconcile{Ref: v.Ref, Outcome: &Outcome{}, Now: c.now}))
			} else {
				require.NoError(c.t, c.do(Reconcile{Ref: v.Ref, Err: Errorf(NotPerformed, "NO", ""), Now: c.now}))
			}
			return false
		}
		return true
	})
	if c.s.End() == nil && c.s.unknown == 0 {
		if st, _ := c.s.Status(); st == StatusPaused {
			require.NoError(c.t, c.do(Resume{Now: c.now}))
		}
	}
}

// begin records the intent of a start that needs one. It reports whether the start is still wanted: a loss or
// a cancellation may have come first. A canceling visit has begun.
func (c *chaos) begin(st *Start) bool {
	if !st.NeedsIntent() || c.do(Attempt{Ref: st.Ref, Attempt: st.Attempt, Now: c.now}) == nil {
		return true
	}
	u, ok := c.s.find(st.Ref)
	return ok && u.try().pos >= 0 && u.try().status == VisitCanceling
}

func (c *chaos) finish(g *Graph) {
	i := c.num(0, len(c.open)-1, "pick")
	st := c.open[i]
	c.open = append(c.open[:i:i], c.open[i+1:]...)
	if !c.begin(&st) {
		return
	}
	out, ferr := c.outcome(g, &st)
	if c.chance(5, "lost") {
		out, ferr = nil, Lostf(Unknown, "")
	}
	if out != nil && st.Item > 0 {
		out.Select = nil
	}
	if out != nil && c.changing && c.chance(12, "expand") {
		out.Expand, out.Stop = c.part(), Proceed
		if out.Select != nil {
			out.Select = &Select{Self: out.Select.Self}
		}
	}
	if out != nil && c.chance(25, "wait") {
		out.Wait = c.wait(&st)
	}
	if out != nil && c.chance(30, "update") {
		out.State = map[string]json.RawMessage{"log": json.RawMessage(`["a"]`), "sum": json.RawMessage("2"),
			"set": json.RawMessage(`{"id":"` + st.Node + `"}`), "last": json.RawMessage(`"` + st.Node + `"`)}
	}
	require.NoError(c.t, c.do(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: out, Err: ferr, Now: c.now}), "%v", st.Ref)
	require.ErrorIs(c.t, c.s.refused(Ended{Ref: st.Ref, Attempt: st.Attempt, Outcome: &Outcome{}}), c.wantRefusal())
}

// refused gives a command that must be refused and change nothing.
func (s *State) refused(cmd Command) error {
	_, _, err := s.Advance(cmd)
	return err
}

func (c *chaos) wantRefusal() error {
	if c.s.End() != nil {
		return ErrEnded
	}
	return ErrStale
}
