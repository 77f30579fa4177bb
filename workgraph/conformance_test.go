package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests in this file take over the observed behavior of the system in which the design was first built.
// Where our design decides otherwise, the test shows our decision, and a comment that begins with "Ours:"
// states the difference and the reason.

// fn is an actor body over decoded arguments. Numbers are ints; the result becomes the only value.
type fn func(args []any, named map[string]any) any

// tuple is returned by a fn to give several values.
type tuple []any

// trace runs graphs whose nodes call the fn of their own name, and records the calls.
type trace struct {
	t     *testing.T
	mu    sync.Mutex
	calls []string
	fns   map[string]func(c *Call) (Outcome, error)
}

func newTrace(t *testing.T) *trace {
	return &trace{t: t, fns: map[string]func(*Call) (Outcome, error){}}
}

func (tr *trace) on(id string, f fn) *trace {
	return tr.raw(id, func(c *Call) (Outcome, error) {
		return Outcome{Values: tr.values(f(decodeList(tr.t, c.Args), decodeMap(tr.t, c.Named)))}, nil
	})
}

func (tr *trace) raw(id string, f func(c *Call) (Outcome, error)) *trace {
	tr.fns[id] = f
	return tr
}

func (tr *trace) values(v any) []json.RawMessage {
	if v == nil {
		return nil
	}
	list, ok := v.(tuple)
	if !ok {
		list = tuple{v}
	}
	out := make([]json.RawMessage, len(list))
	for i := range list {
		out[i] = js(list[i])
	}
	return out
}

func (tr *trace) Call(_ context.Context, c *Call) (Outcome, error) {
	tr.mu.Lock()
	tr.calls = append(tr.calls, c.Node)
	tr.mu.Unlock()
	return tr.fns[c.Node](c)
}

// run runs the graph with one attempt at a time, which makes the order of calls the order of declaration.
func (tr *trace) run(g *Graph, input ...any) Result {
	tr.t.Helper()
	for i := range g.Nodes {
		g.Nodes[i].Actor = "trace"
	}
	in := Input{}
	for _, v := range input {
		in.Args = append(in.Args, js(v))
	}
	res, err := Run(tr.t.Context(), g, Actors{"trace": tr}, in, WithParallel(1))
	require.NoError(tr.t, err)
	return res
}

func js(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decodeList(t *testing.T, raws []json.RawMessage) []any {
	out := make([]any, len(raws))
	for i, r := range raws {
		out[i] = decode(t, r)
	}
	return out
}

func decodeMap(t *testing.T, raws map[string]json.RawMessage) map[string]any {
	out := map[string]any{}
	for k, r := range raws {
		out[k] = decode(t, r)
	}
	return out
}

func decode(t *testing.T, raw json.RawMessage) any {
	if i, err := strconv.Atoi(string(raw)); err == nil {
		return i
	}
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	return v
}

func nodes(mode PassDown, ids ...string) *Builder {
	b := NewBuilder("")
	for _, id := range ids {
		b.Node(id, "", Pass(mode))
	}
	return b
}

func diamond(mode PassDown) *Graph {
	return nodes(mode, "A", "B", "C", "D").Edge("A", "B").Edge("A", "C").Edge("B", "D").Edge("C", "D").Graph()
}

func add(n int) fn { return func(a []any, _ map[string]any) any { return a[0].(int) + n } }

func double(a []any, _ map[string]any) any { return a[0].(int) * 2 }

func sum(a []any, _ map[string]any) any {
	n := 0
	for _, x := range a {
		n += x.(int)
	}
	return n
}

func text(s string) fn { return func([]any, map[string]any) any { return s } }

func args(a []any, _ map[string]any) any { return a }

func stop(s Stop, v any) func(*Call) (Outcome, error) {
	return func(*Call) (Outcome, error) {
		out := Outcome{Stop: s}
		if v != nil {
			out.Values = []json.RawMessage{js(v)}
		}
		return out, nil
	}
}

func result(t *testing.T, want any, res Result) {
	t.Helper()
	require.Equal(t, StatusCompleted, res.Status, "%s %s", res.Reason, res.Message)
	require.JSONEq(t, string(js(want)), string(res.Result))
}

func TestA1StopFlags(t *testing.T) {
	t.Run("Terminate/KeepsOwnValueAndRunsNoChild", func(t *testing.T) {
		tr := newTrace(t).on("A", add(1)).raw("B", stop(Terminate, 2)).on("C", add(1)).on("D", add(1))
		res := tr.run(nodes(FirstArg(), "A", "B", "C", "D").Chain("A", "B", "C", "D").Graph(), 0)
		result(t, 2, res)
		require.Equal(t, ReasonTerminated, res.Reason)
		require.Equal(t, []string{"A", "B"}, tr.calls)
	})
	t.Run("Terminate/InADiamondStopsTheSiblingAndTheJoin", func(t *testing.T) {
		tr := newTrace(t).on("A", text("a")).raw("B", stop(Terminate, "b")).on("C", text("c")).on("D", text("D"))
		res := tr.run(diamond(FirstArg()))
		result(t, "b", res)
		require.Equal(t, []string{"A", "B"}, tr.calls)
	})
	t.Run("Terminate/OfTheSecondBranchKeepsTheFirst", func(t *testing.T) {
		// Ours: the original gives (None, 'c') because B had handed its value to the waiting D. D never ran,
		// so B has no completed descendant and is a sink as well. No value is lost.
		tr := newTrace(t).on("A", text("a")).on("B", text("b")).raw("C", stop(Terminate, "c")).on("D", text("D"))
		res := tr.run(diamond(FirstArg()))
		result(t, []any{"b", "c"}, res)
		require.Equal(t, []string{"A", "B", "C"}, tr.calls)
	})
	t.Run("Terminate/OfAStartNodeStopsLaterStartNodes", func(t *testing.T) {
		tr := newTrace(t).raw("A", stop(Terminate, "a")).on("B", text("b"))
		result(t, "a", tr.run(nodes(FirstArg(), "A", "B").Graph()))
		require.Equal(t, []string{"A"}, tr.calls)
	})
	t.Run("Terminate/WhatIsInFlightFinishes", func(t *testing.T) {
		// As in the original, whose async path gives ('b','c'): siblings that have started are not canceled.
		p, err := Compile(t.Context(), nodesOf("x", diamond(FirstArg())), nil)
		require.NoError(t, err)
		m := newMachine(t, p)
		m.begin()
		m.end("A", Outcome{})
		m.end("B", Outcome{Stop: Terminate, Values: one(`"b"`)})
		require.Nil(t, m.s.End(), "C is in flight")
		m.end("C", Outcome{Values: one(`"c"`)})
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.JSONEq(t, `["b","c"]`, string(m.s.End().Result))
	})
	t.Run("Abstain/ValueIsLeftOutOfTheJoin", func(t *testing.T) {
		// Ours: the original gives ('b','D'); an abstaining first branch left a None slot only if it came
		// last. Here the result does not depend on which branch abstains: D runs on the live inputs, and D is
		// the only sink.
		for _, quiet := range []string{"B", "C"} {
			tr := newTrace(t).on("A", text("a")).on("B", text("b1")).on("C", text("c1")).on("D", args).raw(quiet, stop(AbstainResult, "hidden"))
			live := map[string]string{"B": "c1", "C": "b1"}[quiet]
			result(t, []any{live}, tr.run(diamond(FirstArg())))
			require.Equal(t, []string{"A", "B", "C", "D"}, tr.calls)
		}
	})
	t.Run("Abstain/OfALeafTouchesNoSibling", func(t *testing.T) {
		// Ours: in the original later siblings of an abstaining leaf are only notified, not run. The design
		// keeps siblings apart.
		tr := newTrace(t).on("A", text("a")).raw("B", stop(AbstainResult, "hidden")).on("C", text("c"))
		result(t, "c", tr.run(nodes(FirstArg(), "A", "B", "C").Edge("A", "B").Edge("A", "C").Graph()))
		require.Equal(t, []string{"A", "B", "C"}, tr.calls)
	})
	t.Run("Abstain/OfEveryParentSkipsTheChild", func(t *testing.T) {
		// Ours: the original calls the children with the flag instead of arguments; dead edges skip them.
		tr := newTrace(t).on("A", text("a")).raw("B", stop(AbstainResult, nil)).raw("C", stop(AbstainResult, nil)).on("D", text("D"))
		res := tr.run(diamond(FirstArg()))
		result(t, "a", res)
		require.Equal(t, []string{"A", "B", "C"}, tr.calls)
	})
	t.Run("Abstain/StartNodeBesideAnother", func(t *testing.T) {
		// Ours: the original gives ('t','D'). t is an input of D and so no sink.
		tr := newTrace(t).raw("s0", stop(AbstainResult, nil)).on("s1", text("t")).on("D", args)
		result(t, []any{"t"}, tr.run(nodes(FirstArg(), "s0", "s1", "D").Edge("s0", "D").Edge("s1", "D").Graph()))
	})
	t.Run("Flags/AreNoValues", func(t *testing.T) {
		// Ours: a flag is a field of the outcome and is never guessed from the shape of a value, so any value
		// may be returned.
		tr := newTrace(t).on("A", func([]any, map[string]any) any { return []any{"TERMINATE", 1} }).on("B", args)
		result(t, []any{[]any{"TERMINATE", 1}}, tr.run(nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()))
	})
}

func TestA2PassDownModes(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  PassDown
		give  any
		input []any
		args  []any
		named map[string]any
	}{
		{"Default/IsNoPassDown", PassDown{}, "R", []any{1, 2}, []any{1, 2}, nil},
		{"NoPassDown/ArgumentsTravelUnchanged", PassDown{Mode: NoPassDown}, "R", []any{1, 2}, []any{1, 2}, nil},
		{"FirstArg/ReplacesPositionZero", FirstArg(), "R", []any{1, 2, 3}, []any{"R", 2, 3}, nil},
		{"FirstArg/WithoutArgumentsIsTheOnlyOne", FirstArg(), "R", nil, []any{"R"}, nil},
		{"FirstArg/ATupleIsOneList", FirstArg(), tuple{1, 2}, []any{9, 8}, []any{[]any{1.0, 2.0}, 8}, nil},
		{"LeadingArgs/SplicesATuple", LeadingArgs(), tuple{1, 2}, []any{9}, []any{1, 2, 9}, nil},
		{"LeadingArgs/AListIsOneValue", LeadingArgs(), []int{1, 2}, []any{9}, []any{[]any{1.0, 2.0}, 9}, nil},
		{"LeadingArgs/AScalarLeads", LeadingArgs(), "R", []any{9}, []any{"R", 9}, nil},
		{"LeadingArgs/NothingLeavesArgumentsAlone", LeadingArgs(), nil, []any{9}, []any{9}, nil},
		{"Key/SetsANamedArgument", Key("prev"), "R", []any{9}, []any{9}, map[string]any{"prev": "R"}},
		{"Merge/SetsBoth", Merge(`{"args": [result, args[1]], "named": {"n": size(args)}}`), "R", []any{1, 2}, []any{"R", 2}, map[string]any{"n": 2}},
		{"Merge/AbsentPartsStay", Merge(`{"named": {"n": result}}`), "R", []any{1, 2}, []any{1, 2}, map[string]any{"n": "R"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var gotArgs []any
			var gotNamed map[string]any
			tr := newTrace(t).on("A", func([]any, map[string]any) any { return c.give }).on("B", func(a []any, k map[string]any) any {
				gotArgs, gotNamed = a, k
				return "done"
			})
			result(t, "done", tr.run(nodes(c.mode, "A", "B").Chain("A", "B").Graph(), c.input...))
			require.Equal(t, c.args, slices.Clone(gotArgs))
			if c.named == nil {
				c.named = map[string]any{}
			}
			require.Equal(t, c.named, gotNamed)
		})
	}
	// As in the original, whose callable keeps the arguments by returning None.
	for name, c := range map[string]struct {
		expr, args, named string
	}{
		"NullKeepsAll":        {`null`, `[1, 2]`, `{"topic": "t"}`},
		"ANullResultKeepsAll": {`result`, `[1, 2]`, `{"topic": "t"}`},
		"NullArgsStay":        {`{"args": null, "named": {"n": 1}}`, `[1, 2]`, `{"n": 1}`},
		"NullNamedStays":      {`{"args": [3], "named": null}`, `[3]`, `{"topic": "t"}`},
		"BothNullStay":        {`{"args": result, "named": result}`, `[1, 2]`, `{"topic": "t"}`},
		"EmptyPartsDrop":      {`{"args": [], "named": {}}`, `[]`, `{}`},
	} {
		t.Run("Merge/"+name, func(t *testing.T) {
			g := nodesOf("x", nodes(Merge(c.expr), "A", "B").Chain("A", "B").Graph())
			p, err := Compile(t.Context(), g, nil)
			require.NoError(t, err)
			m := newMachine(t, p)
			m.do(Begin{Input: Input{Args: []json.RawMessage{js(1), js(2)}, Named: map[string]json.RawMessage{"topic": js("t")}}, Now: m.now})
			m.end("A", Outcome{Values: one("null")})
			start := m.s.Outstanding()[0]
			require.Equal(t, "B", start.Node)
			require.JSONEq(t, c.args, string(joinList(start.Args)))
			named := start.Named
			if named == nil {
				named = map[string]json.RawMessage{}
			}
			require.JSONEq(t, c.named, string(js(named)))
		})
	}
	t.Run("RemainingArguments/ArePropagatedThroughEveryHop", func(t *testing.T) {
		tr := newTrace(t).on("A", text("a")).on("B", text("b")).on("C", args)
		result(t, []any{"b", 2}, tr.run(nodes(FirstArg(), "A", "B", "C").Chain("A", "B", "C").Graph(), 1, 2))
		tr = newTrace(t).on("A", text("a")).on("B", text("b")).on("C", args)
		result(t, []any{"b", "a", 1}, tr.run(nodes(LeadingArgs(), "A", "B", "C").Chain("A", "B", "C").Graph(), 1))
	})
	t.Run("OwnArguments/AreBoundLikeAPartial", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B").Chain("A", "B").Graph()
		g.Nodes[1].Args = one("7")
		g.Nodes[1].Named = map[string]json.RawMessage{"own": js(1), "x": js("mine")}
		g.Edges[0].PassDown = Key("x")
		var named map[string]any
		tr := newTrace(t).on("A", text("passed on")).on("B", func(a []any, k map[string]any) any { named = k; return a })
		result(t, []any{7, 5}, tr.run(g, 5))
		require.Equal(t, map[string]any{"own": 1, "x": "passed on"}, named, "propagated arguments overlay a node's own")
	})
	t.Run("UnknownMode/IsAFault", func(t *testing.T) {
		g := nodesOf("x", nodes(PassDown{Mode: "SIDEWAYS"}, "A").Graph())
		require.Equal(t, CodeBadValue, faultsOf(g, nil)[0].Code)
	})
	t.Run("Edge/OverridesItsNode", func(t *testing.T) {
		g := nodes(FirstArg(), "A", "B", "C").Edge("A", "B").Edge("A", "C").Graph()
		g.Edges[1].PassDown = Key("k")
		tr := newTrace(t).on("A", text("a")).on("B", args).on("C", func(a []any, k map[string]any) any { return []any{a, k} })
		result(t, []any{[]any{"a"}, []any{[]any{1}, map[string]any{"k": "a"}}}, tr.run(g, 1))
	})
}

func TestA3FanOutAndFanIn(t *testing.T) {
	join := func(t *testing.T, mode PassDown, change func(*Graph)) any {
		g := diamond(mode)
		if change != nil {
			change(g)
		}
		var got any
		tr := newTrace(t).on("A", text("a")).on("B", text("b1")).on("C", text("c1")).on("D", func(a []any, k map[string]any) any {
			got = []any{a, k}
			return "D"
		})
		result(t, "D", tr.run(g, 1))
		return got
	}
	none := map[string]any{}
	t.Run("FanIn/FirstArg", func(t *testing.T) {
		require.Equal(t, []any{[]any{"b1", "c1"}, none}, join(t, FirstArg(), nil))
	})
	t.Run("FanIn/LeadingArgs", func(t *testing.T) {
		require.Equal(t, []any{[]any{"b1", "a", 1, "c1", "a", 1}, none}, join(t, LeadingArgs(), nil))
	})
	t.Run("FanIn/NoPassDown", func(t *testing.T) {
		require.Equal(t, []any{[]any{1, 1}, none}, join(t, PassDown{}, nil))
	})
	t.Run("FanIn/OneKeyFromBothIsAListInEdgeOrder", func(t *testing.T) {
		// Ours: the original keeps only the last predecessor's value, which loses all others.
		require.Equal(t, []any{[]any{1, 1}, map[string]any{"prev": []any{"b1", "c1"}}}, join(t, Key("prev"), nil))
	})
	t.Run("FanIn/DifferentKeysAreBothThere", func(t *testing.T) {
		got := join(t, PassDown{}, func(g *Graph) { g.Edges[2].PassDown, g.Edges[3].PassDown = Key("b"), Key("c") })
		require.Equal(t, []any{[]any{1, 1}, map[string]any{"b": "b1", "c": "c1"}}, got)
	})
	t.Run("FanIn/OrderIsDeclaredNotArrival", func(t *testing.T) {
		// Ours: the original merges in the order of arrival, so equal runs differ.
		p, err := Compile(t.Context(), nodesOf("x", diamond(FirstArg())), nil)
		require.NoError(t, err)
		for _, order := range [][]string{{"A", "B", "C"}, {"A", "C", "B"}} {
			m := newMachine(t, p)
			m.begin()
			for _, id := range order {
				m.end(id, Outcome{Values: one(`"` + id + `"`)})
			}
			require.Equal(t, []string{`"B"`, `"C"`}, m.args("D"))
		}
	})
	t.Run("FanIn/AListWithOneDeadEdgeStaysAList", func(t *testing.T) {
		got := join(t, Key("prev"), func(g *Graph) { g.Edges[2].When = "false" })
		require.Equal(t, []any{[]any{1}, map[string]any{"prev": []any{"c1"}}}, got, "decided by the graph, not by what happened")
	})
	t.Run("FanIn/ABranchThatNeverArrivesDoesNotStarveTheJoin", func(t *testing.T) {
		// Ours: in the original a join behind a skipped, terminated or failed branch silently never runs.
		for name, change := range map[string]func(*Graph){
			"condition": func(g *Graph) { g.Edges[2].When = "false" },
			"failure":   func(g *Graph) { g.Nodes[1].OnError.Action, g.Nodes[1].When = Continue, "1/0 == 1" },
			"skipped":   func(g *Graph) { g.Nodes[1].When = "false" },
		} {
			require.Equal(t, []any{[]any{"c1"}, none}, join(t, FirstArg(), change), name)
		}
	})
	t.Run("FanIn/UpstreamNamesEverySource", func(t *testing.T) {
		var up []Upstream
		g := diamond(PassDown{})
		g.Nodes[1].OnError.Action = Continue
		tr := newTrace(t).on("A", text("a")).on("C", text("c1")).
			raw("B", func(*Call) (Outcome, error) { return Outcome{}, Errorf(Permanent, "NO", "broken") }).
			raw("D", func(c *Call) (Outcome, error) { up = c.Upstream; return Outcome{}, nil })
		tr.run(g)
		require.Len(t, up, 2)
		require.Equal(t, "B", up[0].Node)
		require.Equal(t, VisitFailed, up[0].Outcome)
		require.Equal(t, "NO", up[0].Error.Reason)
		require.Equal(t, Upstream{Node: "C", Visit: 1, Outcome: VisitCompleted, Values: one(`"c1"`)}, up[1])
	})
	t.Run("FanOut/BranchesRunAtTheSameTime", func(t *testing.T) {
		var both sync.WaitGroup
		both.Add(2)
		meet := ActorFunc(func(context.Context, *Call) (Outcome, error) {
			both.Done()
			both.Wait()
			return Outcome{}, nil
		})
		res, err := Run(t.Context(), nodesOf("meet", nodes(PassDown{}, "A", "B").Graph()), Actors{"meet": meet}, Input{})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, res.Status)
	})
}

func TestA4WhatARunReturns(t *testing.T) {
	t.Run("Leaf/ItsValue", func(t *testing.T) {
		result(t, 6, newTrace(t).on("A", add(1)).run(nodes(FirstArg(), "A").Graph(), 5))
	})
	t.Run("InnerNodes/AreNotIncluded", func(t *testing.T) {
		result(t, "D", newTrace(t).on("A", text("a")).on("B", text("b")).on("C", text("c")).on("D", text("D")).run(diamond(FirstArg())))
		// Ours: the original gives (None, 'D') for a diamond under one start node. There is one sink, so
		// there is one value.
	})
	t.Run("TwoStarts/ListInDeclaredOrder", func(t *testing.T) {
		res := newTrace(t).on("A", text("r0")).on("B", text("r1")).run(nodes(FirstArg(), "A", "B").Graph())
		result(t, []any{"r0", "r1"}, res)
		require.Equal(t, map[string]json.RawMessage{"A": js("r0"), "B": js("r1")}, res.Outputs)
	})
	t.Run("ConvergingStarts/OneValue", func(t *testing.T) {
		result(t, "D", newTrace(t).on("A", text("a")).on("B", text("b")).on("D", text("D")).
			run(nodes(FirstArg(), "A", "B", "D").Edge("A", "D").Edge("B", "D").Graph()))
	})
	t.Run("NoValue/IsNull", func(t *testing.T) {
		// Ours: the original drops None results and unpacks by shape. Here the sink is there and its value is
		// null.
		nothing := func([]any, map[string]any) any { return nil }
		res := newTrace(t).on("A", nothing).on("B", text("b")).run(nodes(FirstArg(), "A", "B").Graph())
		result(t, []any{nil, "b"}, res)
	})
	t.Run("Lists/AreNotFlattenedOrUnpacked", func(t *testing.T) {
		for _, v := range []any{[]any{5}, []any{[]any{5}}, []any{}} {
			result(t, v, newTrace(t).on("A", func([]any, map[string]any) any { return v }).run(nodes(FirstArg(), "A").Graph()))
		}
		// Ours: the original unpacks [5] to 5, so that a list of one looks like its element.
	})
}

func TestA5Selection(t *testing.T) {
	counter := func(mode PassDown) (*Graph, *trace, *[]any) {
		g := nodes(mode, "n", "after").Graph()
		g.Edges = []Edge{{From: "n", To: "n", Kind: BackEdge}, {From: "n", To: "after"}}
		g.Nodes[1].PassDown = PassDown{}
		seen := &[]any{}
		tr := newTrace(t).on("after", args)
		tr.raw("n", func(c *Call) (Outcome, error) {
			*seen = append(*seen, decode(t, c.Args[0]))
			return Outcome{Values: []json.RawMessage{js(c.Visit)}, Select: &Select{Self: c.Visit < 3}}, nil
		})
		return g, tr, seen
	}
	t.Run("Self/FirstArgLoopsOnItsResult", func(t *testing.T) {
		g, tr, seen := counter(FirstArg())
		result(t, []any{3}, tr.run(g, 0))
		require.Equal(t, []any{0, 1, 2}, *seen)
		// Ours: the original runs the children after each pass that includes them. Our exit edges are decided
		// when the loop has ended.
		require.Equal(t, []string{"n", "n", "n", "after"}, tr.calls)
	})
	t.Run("Self/NoPassDownSeesTheSameArgument", func(t *testing.T) {
		g, tr, seen := counter(PassDown{})
		result(t, []any{0}, tr.run(g, 0))
		require.Equal(t, []any{0, 0, 0}, *seen)
	})
	t.Run("Self/WithoutASelfEdgeIsAnError", func(t *testing.T) {
		// Ours: the original ignores it silently.
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{Select: &Select{Self: true}}, nil })
		res := tr.run(nodes(FirstArg(), "A").Graph())
		require.Equal(t, StatusFailed, res.Status)
		require.Equal(t, ReasonUnknownSelection, res.Error.Reason)
	})
	for _, c := range []struct {
		name string
		sel  Select
		want []string
	}{
		{"Others/All", Select{}, []string{"A", "B", "C"}},
		{"Others/None", Select{Others: SelectNone}, []string{"A"}},
		{"Others/Names", Select{Others: SelectNames, Names: []string{"C"}}, []string{"A", "C"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{Select: &c.sel}, nil }).on("B", text("b")).on("C", text("c"))
			tr.run(nodes(FirstArg(), "A", "B", "C").Edge("A", "B").Edge("A", "C").Graph())
			require.Equal(t, c.want, tr.calls)
		})
	}
}

func TestA6Retry(t *testing.T) {
	quick := Retry{MaxAttempts: 5, InitialBackoff: 1}
	t.Run("MaxAttempts/CountsAllCalls", func(t *testing.T) {
		// Ours: the original's max_repeat=2 allows up to three calls, and 1 allows one. Ours is the number of
		// calls.
		for _, n := range []int{1, 2, 3} {
			g := nodes(FirstArg(), "A").Graph()
			g.Nodes[0].Retry = Retry{MaxAttempts: n, InitialBackoff: 1}
			tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{}, fmt.Errorf("no") })
			require.Equal(t, StatusFailed, tr.run(g).Status)
			require.Len(t, tr.calls, n)
		}
	})
	t.Run("Check/RetriesUntilItHolds", func(t *testing.T) {
		n := 5
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = quick
		g.Nodes[0].Check = &Check{CEL: "result >= 10"}
		tr := newTrace(t).on("A", func([]any, map[string]any) any { n++; return n })
		result(t, 10, tr.run(g, 5))
		require.Len(t, tr.calls, 5)
	})
	t.Run("Failures/ThenSuccess", func(t *testing.T) {
		calls := 0
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = quick
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) {
			if calls++; calls < 3 {
				return Outcome{}, fmt.Errorf("no")
			}
			return Outcome{Values: one("15")}, nil
		})
		result(t, 15, tr.run(g))
		require.Equal(t, 3, calls)
	})
	t.Run("Fallback/WhenExhaustedAlsoWithOneAttempt", func(t *testing.T) {
		// Ours: the original ignores the fallback and the validator on its one-call fast path.
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry.MaxAttempts = 1
		g.Nodes[0].OnError = OnError{Action: Fallback, Value: js(false)}
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{}, fmt.Errorf("no") })
		result(t, false, tr.run(g))
		g.Nodes[0].Check = &Check{Schema: js(map[string]any{"type": "string"})}
		result(t, false, newTrace(t).on("A", add(1)).run(g, 1))
		kept := nodes(FirstArg(), "A").Graph()
		kept.Nodes[0].Retry.MaxAttempts, kept.Nodes[0].OnError = 1, OnError{Action: Fallback}
		gone := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{}, Errorf(Permanent, "NO", "never") })
		result(t, map[string]any{"error": map[string]any{"type": "PERMANENT", "reason": "NO", "message": "never"}}, gone.run(kept))
		null, err := Decode([]byte(`{"nodes": [{"id": "A", "actor": "x", "on_error": {"action": "FALLBACK", "value": null}}]}`))
		require.NoError(t, err)
		require.Equal(t, "null", string(null.Nodes[0].OnError.Value), "null is a value")
	})
	t.Run("Permanent/IsNotRetried", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = quick
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{}, Errorf(Permanent, "NO", "never") })
		res := tr.run(g)
		require.Equal(t, "A: NO: never", res.Message)
		require.Len(t, tr.calls, 1)
	})
	t.Run("When/FalseSkipsWithoutACall", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].When = "args[0] > 5"
		tr := newTrace(t).on("A", add(1))
		result(t, nil, tr.run(g, 5))
		require.Empty(t, tr.calls)
	})
}

func TestA8PathsAndGraphText(t *testing.T) {
	plain := func(string) Node { return Node{Actor: "x"} }
	edges := func(g *Graph) string {
		out := make([]string, len(g.Edges))
		for i, e := range g.Edges {
			out[i] = e.From + ">" + e.To
		}
		return strings.Join(out, " ")
	}
	ids := func(g *Graph) string {
		out := make([]string, len(g.Nodes))
		for i, n := range g.Nodes {
			out[i] = n.ID
		}
		return strings.Join(out, " ")
	}
	t.Run("Paths/OneNodePerDistinctIDAndRepeatedEdgesOnce", func(t *testing.T) {
		g := Paths([][]string{{"A", "B", "C"}, {"A", "B", "D"}, {}, {"A", "E", "F"}}, plain)
		require.Equal(t, "A B C D E F", ids(g))
		require.Equal(t, "A>B B>C B>D A>E E>F", edges(g))
		require.Empty(t, faultsOf(g, nil))
	})
	t.Run("Paths/NoneIsAnEmptyGraph", func(t *testing.T) {
		require.Equal(t, CodeEmptyGraph, faultsOf(Paths(nil, plain), nil)[0].Code)
	})
	t.Run("Paths/CyclesAreRefused", func(t *testing.T) {
		// Ours: in the original such a graph has no start node, runs nothing and returns ().
		f := faultsOf(Paths([][]string{{"A", "B"}, {"B", "A"}}, plain), nil)
		require.Equal(t, CodeCycle, f[0].Code)
		require.Contains(t, f[0].Message, "A -> B -> A")
		require.Equal(t, CodeSelfLoop, faultsOf(Paths([][]string{{"A", "A"}}, plain), nil)[0].Code)
	})
	for text, want := range map[string]string{
		"A, B -> C":         "A>C B>C",
		"A,B -> C,D":        "A>C B>C A>D B>D",
		"A -> B, C -> D":    "A>B A>C B>D C>D",
		"\n  A->B \n\n C\n": "A>B",
	} {
		t.Run("Text/"+strings.TrimSpace(text), func(t *testing.T) {
			g := FromText(text, plain)
			require.Equal(t, want, edges(g))
			require.Empty(t, faultsOf(g, nil))
		})
	}
	t.Run("Text/TrailingArrowIsReported", func(t *testing.T) {
		require.Equal(t, CodeBadID, faultsOf(FromText("A ->", plain), nil)[0].Code)
	})
	solve := func(t *testing.T, graph string) (any, map[string][]any) {
		seen := map[string][]any{}
		g := FromText(graph, func(string) Node { return Node{PassDown: Key("previous_agent_results")} })
		tr := newTrace(t)
		for _, n := range g.Nodes {
			tr.on(n.ID, func(_ []any, k map[string]any) any {
				seen[n.ID] = append(seen[n.ID], k["previous_agent_results"])
				return "R_" + n.ID
			})
		}
		res := tr.run(g)
		require.Equal(t, StatusCompleted, res.Status)
		return decode(t, res.Result), seen
	}
	t.Run("Planning/IndependentProblems", func(t *testing.T) {
		got, _ := solve(t, "A -> B\nC")
		require.Equal(t, []any{"R_B", "R_C"}, got)
	})
	t.Run("Planning/AJoinSeesEveryPredecessor", func(t *testing.T) {
		// Ours: in the original C sees only R_B, the last predecessor, and D only R_C.
		got, seen := solve(t, "A, B -> C")
		require.Equal(t, "R_C", got)
		require.Equal(t, []any{[]any{"R_A", "R_B"}}, seen["C"], "called once, with both")
		got, seen = solve(t, "A -> B, C -> D")
		require.Equal(t, "R_D", got)
		require.Equal(t, []any{[]any{"R_B", "R_C"}}, seen["D"])
	})
}
