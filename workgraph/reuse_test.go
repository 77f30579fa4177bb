package workgraph

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// forkOf starts a run that reuses everything that it may of an old one.
func forkOf(old *machine, from *Ref, args ...string) (*machine, []Ref) {
	reused, unsafe, err := ReuseFrom(old.t.Context(), old.s, from, nil, nil)
	require.NoError(old.t, err)
	m := newMachine(old.t, old.p)
	b := Begin{Now: m.now, Reuse: reused}
	for _, a := range args {
		b.Input.Args = append(b.Input.Args, one(a)...)
	}
	m.do(b)
	m.replays()
	return m, unsafe
}

func refs(list []ReusedVisit) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Ref.String())
	}
	return out
}

func TestReuse(t *testing.T) {
	t.Parallel()
	t.Run("Fork/RunsOnlyWhatDependsOnTheVisit", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B", "C", "D", "E").Edge("A", "B").Edge("B", "C").Edge("A", "D").Edge("C", "E").Edge("D", "E").Graph()))
		m.begin("0")
		for _, id := range []string{"A", "B", "C", "D", "E"} {
			m.end(id, Outcome{Values: one(`"` + id + `"`), Usage: []Usage{{Model: "m", InputTokens: 1}}})
		}
		f, _ := forkOf(m, &Ref{Node: "C", Visit: 1}, "0")
		require.Equal(t, []string{`"B"`}, f.args("C"))
		require.Len(t, f.open, 1)
		require.Empty(t, f.s.Usage(), "what was paid in another run is not paid again")
		f.s.Visits(func(v VisitInfo) bool {
			require.Equal(t, v.Node != "C", v.Reused, v.Node)
			if v.Reused {
				require.Zero(t, v.Attempt)
			}
			return true
		})
		f.crash()
		f.end("C", Outcome{Values: one(`"c"`)})
		require.Equal(t, []string{`"c"`, `"D"`}, f.args("E"))
		f.end("E", Outcome{Values: one(`"e"`)})
		require.Equal(t, `"e"`, string(f.s.End().Result))
		f.replays()
	})
	t.Run("Retry/TakesOverWhatCompleted", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C", "rescue", "D").Chain("A", "B", "D").Edge("A", "C").Edge("C", "rescue", OnFailure()).Graph()
		g.Nodes[2].OnError.Action = Route
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{})
		m.fail("C", Errorf(Permanent, "NO", ""))
		m.end("rescue", Outcome{})
		m.fail("B", Errorf(Permanent, "NO", ""))
		reused, _, _ := ReuseFrom(t.Context(), m.s, nil, nil, nil)
		require.Equal(t, []string{"A"}, refs(reused), "rescue depends on a failure that may not come again")
		f, _ := forkOf(m, nil)
		require.Len(t, f.open, 2)
	})
	t.Run("Everything/EndsAtOnce", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", Outcome{Values: one("1")})
		m.end("B", Outcome{Values: one("2")})
		f, _ := forkOf(m, nil)
		require.Equal(t, "2", string(f.s.End().Result))
		require.Empty(t, f.open)
	})
	t.Run("Outcome/IsTakenOverInFull", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C", "D").Edge("A", "B").Edge("A", "C").Edge("B", "D").State("log", Append).Graph()
		g.Nodes[0].Transform = "result + 1"
		g.Nodes[0].Check = &Check{CEL: "result == 1"}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1"), State: map[string]json.RawMessage{"log": js("a")}, Select: &Select{Others: SelectNames, Names: []string{"B"}}})
		m.end("B", Outcome{Stop: AbstainResult})
		f, _ := forkOf(m, nil)
		require.Equal(t, StatusCompleted, f.s.End().Status)
		require.Equal(t, VisitAbstained, f.status("B"))
		require.Equal(t, VisitSkipped, f.status("C"))
		require.Equal(t, VisitSkipped, f.status("D"))
		require.Equal(t, "2", f.value("A"))
		require.JSONEq(t, `["a"]`, string(f.s.StateValues()["log"]))
		again, _ := forkOf(f, nil)
		require.Equal(t, VisitSkipped, again.status("C"), "a fork of a fork knows it too")
		require.JSONEq(t, `["a"]`, string(again.s.StateValues()["log"]))
	})
	t.Run("Loop/GoesOnAtTheVisit", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "H", "W", "X").Edge("H", "W").Back("W", "H", "visit < 3").Edge("W", "X").Graph()))
		m.begin("0")
		for i := range 3 {
			m.end("H", Outcome{Values: one(fmt.Sprint(i))})
			m.end("W", Outcome{Values: one(fmt.Sprint(10 + i))})
		}
		m.end("X", Outcome{})
		reused, _, _ := ReuseFrom(t.Context(), m.s, &Ref{Node: "W", Visit: 2}, nil, nil)
		require.Equal(t, []string{"H", "H@2", "W"}, refs(reused))
		f, _ := forkOf(m, &Ref{Node: "W", Visit: 2}, "0")
		require.Equal(t, 2, f.ref("W").Visit)
		require.Equal(t, []string{"1"}, f.args("W"))
		reused, _, _ = ReuseFrom(t.Context(), m.s, &Ref{Node: "X", Visit: 1}, nil, nil)
		require.Len(t, reused, 6)
	})
	t.Run("Map/IsOneVisit", func(t *testing.T) {
		m := single1(t, func(n *Node) { n.Map = &Map{Over: "[1,2]"} })
		for i := range 2 {
			m.endRef(Ref{Node: "A", Visit: 1, Item: i + 1}, &Outcome{Values: one(fmt.Sprint(i))}, nil)
		}
		f, _ := forkOf(m, nil)
		require.Equal(t, []string{`[{"ok":0},{"ok":1}]`}, f.args("B"))
		f.crash()
		require.Equal(t, []string{`[{"ok":0},{"ok":1}]`}, f.args("B"))
	})
	t.Run("MapUpdates/ComeTogether", func(t *testing.T) {
		g := nodes(FirstArg(), "A").State("log", Append).State("sum", Add).State("last", Replace).Graph()
		g.Nodes[0].Map = &Map{Over: "[1,2]"}
		m := newMachine(t, compile(t, g))
		m.begin()
		for i := range 2 {
			m.endRef(Ref{Node: "A", Visit: 1, Item: i + 1}, &Outcome{State: map[string]json.RawMessage{"log": js([]int{i}), "sum": js(i + 1), "last": js(i)}}, nil)
		}
		f, _ := forkOf(m, nil)
		require.Equal(t, string(js(m.s.StateValues())), string(js(f.s.StateValues())))
	})
	t.Run("Any/IsDecidedWithoutTheOthers", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "J").Edge("A", "J").Edge("B", "J").Graph()
		g.Nodes[2].Join.Mode = Any
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		m.end("J", Outcome{Values: one("2")})
		f, _ := forkOf(m, nil)
		require.Equal(t, VisitCompleted, f.status("J"))
		require.Len(t, f.open, 1, "B")
		reused, _, _ := ReuseFrom(t.Context(), m.s, &Ref{Node: "A", Visit: 1}, nil, nil)
		require.Empty(t, reused)
	})
	t.Run("Unsafe/ThatWouldRunAgainIsNamed", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C", "D", "E").Edge("A", "B").Edge("A", "C").Edge("A", "D").Edge("A", "E").Graph()
		for i := 1; i < 5; i++ {
			g.Nodes[i].Effect = Unsafe
		}
		g.Nodes[2].OnError.Action = Continue
		g.Nodes[4].Check = &Check{CEL: "false"}
		g.Nodes[4].OnError.Action = Continue
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{})
		for _, id := range []string{"B", "C", "E"} {
			m.do(Attempt{Ref: m.ref(id), Attempt: 1, Now: m.now})
		}
		m.end("B", Outcome{Values: one("1")})
		m.fail("C", Errorf(Permanent, "REFUSED", "a definite failure did nothing"))
		m.end("E", Outcome{Values: one("1")})
		m.do(Cancel{Now: m.now})
		require.NotNil(t, m.s.End(), "D has not begun: %v", visitLines(m.s))
		_, unsafe, _ := ReuseFrom(t.Context(), m.s, nil, nil, nil)
		require.Equal(t, []Ref{{Node: "E", Visit: 1}}, unsafe, "it was performed, and did not pass its check")
		_, unsafe, _ = ReuseFrom(t.Context(), m.s, &Ref{Node: "A", Visit: 1}, nil, nil)
		require.Equal(t, []Ref{{Node: "B", Visit: 1}, {Node: "E", Visit: 1}}, unsafe)
		f, _ := forkOf(m, nil)
		_, unsafe, _ = ReuseFrom(t.Context(), f.s, &Ref{Node: "A", Visit: 1}, nil, nil)
		require.Contains(t, unsafe, Ref{Node: "B", Visit: 1}, "also when it was performed in the run before")
	})
	reconciled := func(t *testing.T, mapped bool) *machine {
		g := nodes(FirstArg(), "A", "B").Edge("A", "B").Graph()
		g.Nodes[1].Effect = Unsafe
		if mapped {
			g.Nodes[1].Map = &Map{Over: "args[0]"}
		}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("[1]")})
		ref := m.ref("B")
		if mapped {
			ref.Item = 1
		}
		m.do(Attempt{Ref: ref, Attempt: 1, Now: m.now})
		m.do(Ended{Ref: ref, Attempt: 1, Err: Errorf(Unknown, "WHO_KNOWS", ""), Now: m.now})
		m.do(Reconcile{Ref: ref, Err: Errorf(Permanent, "DECLINED", ""), Now: m.now})
		require.Equal(t, StatusFailed, m.s.End().Status)
		return m
	}
	for name, mapped := range map[string]bool{"Visit": false, "Item": true} {
		t.Run("Unsafe/FoundToHaveBeenPerformedAndFailedIsNamed/"+name, func(t *testing.T) {
			m := reconciled(t, mapped)
			_, unsafe, _ := ReuseFrom(t.Context(), m.s, nil, nil, nil)
			require.Equal(t, []Ref{{Node: "B", Visit: 1}}, unsafe)
			require.Equal(t, unsafe, PerformedUnsafe(m.s))
		})
		t.Run("Unsafe/FoundToHaveBeenPerformedIsKeptBySnapshots/"+name, func(t *testing.T) {
			m := reconciled(t, mapped)
			snap, err := m.s.Snapshot()
			require.NoError(t, err)
			again, err := Restore(t.Context(), m.p, snap)
			require.NoError(t, err)
			require.Equal(t, []Ref{{Node: "B", Visit: 1}}, PerformedUnsafe(again))
			m.replays()
		})
	}
	t.Run("Terminated/RunsAgain", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Graph()))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		m.end("B", Outcome{Values: one("2"), Stop: Terminate})
		reused, _, _ := ReuseFrom(t.Context(), m.s, nil, nil, nil)
		require.Equal(t, []string{"A"}, refs(reused))
	})
	t.Run("Expansion/IsInsertedAgain", func(t *testing.T) {
		m := single1(t, nil)
		m.end("A", Outcome{Values: one("1"), Expand: nodesOf("x", nodes(FirstArg(), "x", "y").Chain("x", "y").Graph())})
		m.end("A#1/x", Outcome{Values: one("2")})
		m.end("A#1/y", Outcome{Values: one("3")})
		m.end("B", Outcome{Values: one("4")})
		f, _ := forkOf(m, &Ref{Node: "A#1/y", Visit: 1})
		require.Equal(t, []string{"2"}, f.args("A#1/y"))
		f.end("A#1/y", Outcome{Values: one("5")})
		require.Equal(t, []string{"5"}, f.args("B"))
		f.replays()
		again, _ := forkOf(f, &Ref{Node: "B", Visit: 1})
		require.Equal(t, []string{"5"}, again.args("B"))
	})
	t.Run("Unreached/IsLeftOut", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()))
		m.do(Begin{Now: m.now, Reuse: []ReusedVisit{{Ref: Ref{Node: "B", Visit: 1}, Outcome: Outcome{Values: one("1")}}, {Ref: Ref{Node: "Z", Visit: 1}}}})
		m.end("A", Outcome{})
		require.Contains(t, m.open, Ref{Node: "B", Visit: 1})
		m.replays()
	})
	t.Run("BadList/IsRefused", func(t *testing.T) {
		for _, a := range []ReusedVisit{{Ref: Ref{Node: "A"}}, {Ref: Ref{Node: "A", Visit: 1, Item: 1}}, {Ref: Ref{Node: "A", Visit: 1}, Outcome: Outcome{Values: one("{")}},
			{Ref: Ref{Node: "A", Visit: 1}, Outcome: Outcome{Wait: &Wait{Completion: &CompletionWait{}}}}} {
			m := newMachine(t, compile(t, nodes(FirstArg(), "A").Graph()))
			require.ErrorIs(t, m.try(Begin{Now: m.now, Reuse: []ReusedVisit{a}}), ErrState)
			m.begin()
		}
	})
	t.Run("Many/AreJournaledInPieces", func(t *testing.T) {
		p, err := Compile(t.Context(), chainGraph(5_000), Actors{"noop": noop})
		require.NoError(t, err)
		var list []ReusedVisit
		for i := range 4_999 {
			list = append(list, ReusedVisit{Ref: Ref{Node: fmt.Sprintf("n%d", i), Visit: 1}, Outcome: Outcome{Values: one(fmt.Sprint(i))}})
		}
		m := newMachine(t, p)
		m.do(Begin{Now: m.now, Reuse: list})
		require.Len(t, m.open, 1)
		require.Greater(t, len(m.events), 10)
		for _, ev := range m.events {
			require.LessOrEqual(t, len(ev.Steps), reuseSteps+10)
		}
		m.replays()
	})
}

// TestForksAgree forks random runs at random visits. If the actors always answer alike, a fork ends as its
// origin did, calls nothing that it reused, and calls again everything that depends on the visit.
func TestForksAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &gen{t: t}
		spec := g.graph()
		for i := range spec.g.Nodes {
			spec.g.Nodes[i].Join = Join{}
			spec.g.Nodes[i].Retry.MaxAttempts = 1
		}
		p, err := Compile(t.Context(), spec.g, nil)
		require.NoError(t, err)
		seed := g.num(0, 1_000_000, "seed")
		run := func(reuse []ReusedVisit) (*State, map[Ref]bool) {
			s, now := New(p, "run"), time.Unix(1000, 0)
			j := &journalOf{p: p, snaps: map[int64]string{}}
			evs, fx, err := s.Advance(Begin{Now: now, Reuse: reuse})
			require.NoError(t, err)
			j.note(t, s, evs)
			open, called := fx.Starts, map[Ref]bool{}
			for k := 0; k < len(open) && k < 2000; k++ {
				called[open[k].Ref] = true
				out, ferr := answer(spec.g, seed, open[k].Ref)
				evs, fx, err := s.Advance(Ended{Ref: open[k].Ref, Attempt: 1, Outcome: out, Err: ferr, Now: now})
				require.NoError(t, err)
				j.note(t, s, evs)
				open = append(open, fx.Starts...)
			}
			j.check(t, "run")
			return s, called
		}
		old, called := run(nil)
		var from *Ref
		if len(called) > 0 && g.chance(80, "from a visit") {
			var all []Ref
			old.Visits(func(v VisitInfo) bool { all = append(all, v.Ref); return true })
			from = &all[g.num(0, len(all)-1, "which")]
		}
		reused, _, _ := ReuseFrom(t.Context(), old, from, nil, nil)
		fork, again := run(reused)
		for _, a := range reused {
			require.False(t, again[a.Ref], "%s was taken over and called", a.Ref)
		}
		if old.End() == nil || old.End().Status != StatusCompleted {
			return // a failure may come earlier in the fork, where less is to be done before it
		}
		if from != nil && called[*from] {
			require.True(t, again[*from], "%s is what the fork begins with", *from)
		}
		require.Equal(t, string(js(old.End())), string(js(fork.End())), "graph %s", mustJSON(spec.g))
		require.Equal(t, len(called), len(reused)+len(again))
	})
}

// answer is a random outcome that depends only on the visit and the seed.
func answer(g *Graph, seed int, r Ref) (*Outcome, *Error) {
	h := fnv.New32a()
	fmt.Fprint(h, seed, r)
	k := h.Sum32() % 100
	out := &Outcome{Values: one(fmt.Sprintf("%q", r))}
	switch {
	case k < 7:
		return nil, Errorf(Permanent, "BROKEN", "")
	case k < 15:
		out.Stop = AbstainResult
	case k < 35:
		out.Select = &Select{Others: SelectNames}
		for i, e := range g.Edges {
			if e.From == r.Node && e.To == r.Node {
				out.Select.Self = k%2 == 0 && r.Visit < 3
			} else if e.From == r.Node && (int(k)+i)%2 == 0 {
				out.Select.Names = append(out.Select.Names, e.To)
			}
		}
	}
	return out, nil
}
