package workgraph

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sees evaluates an expression as the call of a visit in flight does.
func (m *machine) sees(id, src string) string {
	m.t.Helper()
	e, err := CompileExpr(context.Background(), src)
	require.NoError(m.t, err)
	raw, err := e.EvalIn(context.Background(), NewCall(m.open[m.ref(id)], CallOptions{Scope: m.s.ScopeOf(m.ref(id))}))
	if Missing(err) {
		return "missing"
	}
	require.NoError(m.t, err)
	return string(raw)
}

// everyWay checks the state as it is, after a replay of the journal, and after a snapshot.
func (m *machine) everyWay(check func(m *machine)) {
	m.t.Helper()
	check(m)
	was := m.s
	var err error
	m.s, err = Replay(m.t.Context(), m.p, "run", m.events)
	require.NoError(m.t, err)
	check(m)
	b, err := was.Snapshot()
	require.NoError(m.t, err)
	m.s, err = Restore(m.t.Context(), m.p, b)
	require.NoError(m.t, err)
	check(m)
	m.s = was
}

func TestOneScope(t *testing.T) {
	// The same expression about a node that is no direct parent gives the same value at every place.
	const src = `nodes.S.result == "s" && nodes["M"].visit == 1 && input.named.k == "v" && context.user == "u" && state.n == 1`
	for name, at := range map[string]func(g *Graph){
		"When":      func(g *Graph) { g.Nodes[2].When = src },
		"MapOver":   func(g *Graph) { g.Nodes[2].Map = &Map{Over: src + ` ? [1] : []`} },
		"Key":       func(g *Graph) { g.Nodes[2].ConcurrencyKey = src + ` ? "yes" : "no"` },
		"Check":     func(g *Graph) { g.Nodes[2].Check = &Check{CEL: src} },
		"Transform": func(g *Graph) { g.Nodes[2].Transform = src + ` ? "v" : "x"` },
		"Edge":      func(g *Graph) { g.Edges[2].When = src },
		"Merge":     func(g *Graph) { g.Edges[2].PassDown = Merge(src + ` ? {"args": ["yes"]} : {}`) },
		"Call":      func(g *Graph) {},
	} {
		t.Run(name, func(t *testing.T) {
			g := nodes(PassDown{}, "S", "M", "V", "W").Chain("S", "M", "V", "W").State("n", Add).Graph()
			at(g)
			var mu sync.Mutex
			reached := map[string]bool{}
			seen := json.RawMessage("false")
			a := ActorFunc(func(ctx context.Context, c *Call) (Outcome, error) {
				mu.Lock()
				defer mu.Unlock()
				reached[c.Start.Node] = true
				out := Outcome{Values: one(`"` + map[string]string{"S": "s", "M": "m", "V": "v", "W": "w"}[c.Start.Node] + `"`)}
				switch c.Start.Node {
				case "S":
					out.State = map[string]json.RawMessage{"n": js(1)}
				case "V":
					e, err := CompileExpr(ctx, src)
					if err != nil {
						return out, err
					}
					if seen, err = e.EvalIn(ctx, c); err != nil {
						return out, err
					}
					if name == "Key" && c.ConcurrencyKey != "yes" {
						return out, Errorf(Permanent, "KEY", "%s", c.ConcurrencyKey)
					}
				case "W":
					if name == "Merge" && string(joinList(c.Args)) != `["yes"]` {
						return out, Errorf(Permanent, "MERGE", "%s", joinList(c.Args))
					}
				}
				return out, nil
			})
			res, err := Run(t.Context(), nodesOf("x", g), Actors{"x": a}, Input{Named: map[string]json.RawMessage{"k": js("v")}}, WithContext(js(map[string]string{"user": "u"})))
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, res.Status, "%v", res.Error)
			require.True(t, reached["V"] && reached["W"], "%v %v", reached, res.Outputs)
			require.Equal(t, "true", string(seen))
		})
	}
}

func TestAncestors(t *testing.T) {
	t.Run("Beside/IsNotSeenThoughItHasEnded", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(PassDown{}, "S", "P", "V").Edge("S", "V").Edge("S", "P").Graph()))
		m.begin()
		m.end("S", Outcome{Values: one("1")})
		m.end("P", Outcome{Values: one("2")})
		m.everyWay(func(m *machine) {
			require.Equal(t, `["S"]`, m.sees("V", `nodes.map(n, n)`))
			require.Equal(t, "missing", m.sees("V", `nodes[["P"][0]].result`))
			require.Equal(t, `{"S":{"result":1,"values":[1],"visit":1}}`, m.sees("V", `nodes`))
		})
	})
	t.Run("NotCompleted/IsNotThere", func(t *testing.T) {
		g := nodes(PassDown{}, "S", "skipped", "failed", "quiet", "stood", "V").Edge("S", "skipped", When("false")).
			Edge("S", "failed").Edge("S", "quiet").Edge("S", "stood").Edge("skipped", "V").Edge("failed", "V").Edge("quiet", "V").Edge("stood", "V").Graph()
		g.Nodes[2].OnError, g.Nodes[4].OnError = OnError{Action: Continue}, OnError{Action: Fallback, Value: js("stand-in")}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("S", Outcome{})
		m.fail("failed", Errorf(Permanent, "NO", "no"))
		m.end("quiet", Outcome{Stop: AbstainResult})
		m.fail("stood", Errorf(Permanent, "NO", "no"))
		m.everyWay(func(m *machine) {
			require.Equal(t, `["S","stood"]`, m.sees("V", `nodes.map(n, n)`))
			require.Equal(t, `"stand-in"`, m.sees("V", `nodes.stood.result`))
		})
	})
	t.Run("Any/SeesWhatHadEndedWhenItBegan", func(t *testing.T) {
		g := nodes(PassDown{}, "A", "B", "J").Edge("A", "J").Edge("B", "J").Graph()
		g.Nodes[2].Join = Join{Mode: Any}
		g.Nodes[2].Check = &Check{CEL: `!("B" in nodes)`}
		g.Nodes[2].Effect = Idempotent
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		m.everyWay(func(m *machine) { require.Equal(t, `["A"]`, m.sees("J", `nodes.map(n, n)`)) })
		m.end("B", Outcome{Values: one("2")})
		m.everyWay(func(m *machine) {
			require.Equal(t, `["A"]`, m.sees("J", `nodes.map(n, n)`), "a late arrival changes nothing")
		})
		m.end("J", Outcome{Values: one("3")})
		require.Equal(t, VisitCompleted, m.status("J"))
	})
	t.Run("Loop/LatestVisitThatIsAnAncestor", func(t *testing.T) {
		g := nodes(PassDown{}, "S", "h", "a", "b", "z", "after").Edge("S", "h").Edge("h", "a").Edge("h", "b").Edge("a", "z").Edge("b", "z").Edge("z", "after").Graph()
		g.Edges = append(g.Edges, Edge{From: "z", To: "h", Kind: BackEdge, When: "result == 1"})
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("S", Outcome{})
		for round := range 3 {
			v := js(10 * (round + 1))
			m.end("h", Outcome{Values: []json.RawMessage{v}})
			m.end("a", Outcome{Values: []json.RawMessage{v}})
			m.everyWay(func(m *machine) {
				want := "missing" // a runs beside b, so only its earlier rounds come before b
				if round > 0 {
					want = string(js(10 * round))
				}
				require.Equal(t, want, m.sees("b", `nodes[["a"][0]].result`))
				require.Equal(t, string(v), m.sees("b", `nodes.h.result`))
			})
			m.end("b", Outcome{Values: []json.RawMessage{v}})
			m.everyWay(func(m *machine) { require.Equal(t, string(v), m.sees("z", `nodes.a.result`)) })
			m.end("z", Outcome{Values: one(map[bool]string{true: "1", false: "2"}[round < 2])})
		}
		m.everyWay(func(m *machine) {
			require.Equal(t, `[30,3]`, m.sees("after", `[nodes.b.result, nodes.b.visit]`))
		})
	})
	t.Run("Expansion/SeesItsOwnNodesFirstThenThoseBefore", func(t *testing.T) {
		p := compile(t, nodes(PassDown{}, "x", "A", "Z").Edge("x", "A").Edge("A", "Z").Graph())
		m := newMachine(t, p)
		m.begin()
		m.end("x", Outcome{Values: one(`"outer"`)})
		m.end("A", Outcome{Values: one("1"), Expand: nodesOf("x", nodes(PassDown{}, "u", "v").Edge("u", "v").Graph())})
		m.end("A#1/u", Outcome{Values: one(`"inner"`)})
		require.Equal(t, `["outer","inner",1]`, m.sees("A#1/v", `[nodes.x.result, nodes.u.result, nodes.A.result]`))
		require.Equal(t, "missing", m.sees("A#1/v", `nodes[["Z"][0]]`))
	})
	t.Run("Amended/ALaterBeginningSeesMore", func(t *testing.T) {
		m := newMachine(t, compile(t, nodes(PassDown{}, "A", "B", "V").Edge("A", "V").Graph()))
		m.begin()
		m.end("A", Outcome{Values: one("1")})
		m.end("B", Outcome{Values: one("2")})
		m.amend(Patch{AddEdges: []Edge{{From: "B", To: "V"}}})
		require.Equal(t, `["A","B"]`, m.sees("V", `nodes.map(n, n)`))
	})
	t.Run("Random/IsWhatTheGraphSays", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			n := rapid.IntRange(2, 9).Draw(rt, "n")
			ids := make([]string, n)
			for i := range ids {
				ids[i] = string(rune('a' + i))
			}
			b := nodes(PassDown{}, ids...)
			before := make([]map[string]bool, n)
			for v := range n {
				before[v] = map[string]bool{}
				for u := range v {
					if rapid.Bool().Draw(rt, "edge") {
						b = b.Edge(ids[u], ids[v])
						before[v][ids[u]] = true
						for w := range before[u] {
							before[v][w] = true
						}
					}
				}
			}
			m := newMachine(t, compile(t, b.Graph()))
			m.begin()
			for len(m.open) > 0 {
				var refs []Ref
				for r := range m.open {
					refs = append(refs, r)
				}
				slices.SortFunc(refs, func(a, b Ref) int { return int(a.Node[0]) - int(b.Node[0]) })
				for _, r := range refs {
					got := m.s.ScopeOf(r).Ancestors()
					want := before[r.Node[0]-'a']
					require.Len(rt, got, len(want), "%s sees %v", r.Node, got)
					for _, id := range got {
						require.True(rt, want[id])
						_, ok := m.s.ScopeOf(r).Ancestor(id)
						require.True(rt, ok)
					}
				}
				m.endRef(rapid.SampledFrom(refs).Draw(rt, "next"), &Outcome{Values: one("1")}, nil)
			}
		})
	})
}

func TestCacheOfWhatWasLookedUp(t *testing.T) {
	// A value that a call reads from further up, or from the state, is not in the key of its outcome.
	var mu sync.Mutex
	calls := map[string]int{}
	a := ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		calls[c.Start.Node]++
		out := Outcome{Values: one("1")}
		switch c.Start.Node {
		case "far":
			r, _ := c.Ancestor("S")
			out.Values = r.Values
		case "near":
			r, _ := c.Ancestor("far")
			out.Values = r.Values
		case "S":
			out.Values = one(string(js(calls["S"])))
		}
		return out, nil
	})
	g := nodesOf("x", nodes(PassDown{}, "S", "M", "far", "near").Chain("S", "M", "far", "near").Graph())
	for i := 1; i < 4; i++ {
		g.Nodes[i].Cache, g.Nodes[i].Effect = &Cache{TTL: Duration(1 << 40)}, Pure
	}
	p, err := Compile(t.Context(), g, Actors{"x": a})
	require.NoError(t, err)
	for want := 1; want <= 2; want++ {
		res, err := p.Run(t.Context(), Actors{"x": a}, Input{})
		require.NoError(t, err)
		require.Equal(t, string(js(want)), string(res.Result))
	}
	require.Equal(t, 2, calls["far"], "S is two steps up")
	require.LessOrEqual(t, calls["M"], 2)
}
