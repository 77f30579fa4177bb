package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type actorSet map[string]ActorInfo

func (a actorSet) ActorInfo(name string) (ActorInfo, bool) { i, ok := a[name]; return i, ok }

// faultsOf is Validate without a context.
func faultsOf(g *Graph, actors ActorSet) []Fault {
	faults, _ := Validate(context.Background(), g, actors)
	return faults
}

func TestValidate(t *testing.T) {
	known := actorSet{"x": {Effect: Pure, Schema: json.RawMessage(`{"properties":{"url":{"type":"string"}},"additionalProperties":false}`)}}
	for _, c := range []struct {
		code, place string
		change      func(g *Graph)
	}{
		{CodeBadID, "", func(g *Graph) { g.Nodes[0].ID = "" }},
		{CodeBadID, "a ", func(g *Graph) { g.Nodes[0].ID = "a " }},
		{CodeReservedID, "a#1", func(g *Graph) { g.Nodes[0].ID = "a#1" }},
		{CodeReservedID, "a/b", func(g *Graph) { g.Nodes[0].ID = "a/b" }},
		{CodeDuplicateNode, "a", func(g *Graph) { g.Nodes[1].ID = "a" }},
		{CodeNoActor, "a", func(g *Graph) { g.Nodes[0].Actor = "" }},
		{CodeUnknownActor, "a", func(g *Graph) { g.Nodes[0].Actor = "y" }},
		{CodeUnknownArg, "a", func(g *Graph) { g.Nodes[0].Named = map[string]json.RawMessage{"uri": js(1)} }},
		{CodeBadArg, "a", func(g *Graph) { g.Nodes[0].Named = map[string]json.RawMessage{"url": js(5)} }},
		{CodeBadJSON, "a", func(g *Graph) { g.Nodes[0].Args = one("{") }},
		{CodeBadJSON, "a", func(g *Graph) { g.Nodes[0].OnError = OnError{Action: Fallback, Value: json.RawMessage("{")} }},
		{CodeBadExpression, "a", func(g *Graph) { g.Nodes[0].When = "1 +" }},
		{CodeBadExpression, "a->b", func(g *Graph) { g.Edges[0].When = "unknown == 1" }},
		{CodeUnknownNodeRef, "a->b", func(g *Graph) { g.Edges[0].When = "nodes.zzz.result == 1" }},
		{CodeBadSchema, "a", func(g *Graph) { g.Nodes[0].Check = &Check{Schema: js(map[string]any{"type": 5})} }},
		{CodeBadSchema, "a", func(g *Graph) {
			g.Nodes[0].Check = &Check{Schema: js(map[string]any{"$ref": "https://example.com/x.json"})}
		}},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].Join.Mode = "MOST" }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].Effect = "MAYBE" }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].Timeout = -1 }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].MaxVisits = -2 }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].PassDown = PassDown{Mode: KeyPassDown} }},
		{CodeBadValue, "a->b", func(g *Graph) { g.Edges[0].Kind = "MAYBE" }},
		{CodeBadValue, "", func(g *Graph) { g.State = map[string]StateKey{"k": {Reducer: "MAX"}} }},
		{CodeBadValue, "", func(g *Graph) { g.State = map[string]StateKey{"k": {Reducer: Add, Initial: js("x")}} }},
		{CodeBadQuorum, "b", func(g *Graph) { g.Nodes[1].Join = Join{Mode: Quorum, N: 2} }},
		{CodeBadQuorum, "a", func(g *Graph) { g.Nodes[0].Map = &Map{Over: "[]", OnItemError: QuorumItems} }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].Map = &Map{Over: "[]", MaxParallel: MaxParallelItems + 1} }},
		{CodeUnknownNode, "a->z", func(g *Graph) { g.Edges[0].To = "z" }},
		{CodeDuplicateEdge, "a->b", func(g *Graph) { g.Edges = append(g.Edges, Edge{From: "a", To: "b"}) }},
		{CodeSelfLoop, "a->a", func(g *Graph) { g.Edges = append(g.Edges, Edge{From: "a", To: "a"}) }},
		{CodeCycle, "a", func(g *Graph) { g.Edges = append(g.Edges, Edge{From: "b", To: "a"}) }},
		{CodeNoExit, "b->a", func(g *Graph) { g.Edges = append(g.Edges, Edge{From: "b", To: "a", Kind: BackEdge}) }},
		{CodeNotALoop, "a->b", func(g *Graph) { g.Edges[0].Kind = BackEdge }},
		{CodeErrorEdge, "a->b", func(g *Graph) { g.Edges[0].Kind = ErrorEdge }},
		{CodeNoRoute, "a", func(g *Graph) { g.Nodes[0].OnError.Action = Route }},
		{CodeBadValue, "a", func(g *Graph) { g.Nodes[0].On = &Trigger{Inbox: &Inbox{BatchSize: -1}} }},
		{CodeCacheNotPure, "a", func(g *Graph) { g.Nodes[0].Cache, g.Nodes[0].Effect = &Cache{TTL: 1}, Unsafe }},
	} {
		t.Run(c.code+"/"+c.place, func(t *testing.T) {
			g := NewBuilder("").Node("a", "x").Node("b", "x").Edge("a", "b").Graph()
			c.change(g)
			faults := faultsOf(g, known)
			require.NotEmpty(t, faults)
			codes := map[string]string{}
			for _, f := range faults {
				place := f.Node
				if f.From != "" || f.To != "" {
					place = f.From + "->" + f.To
				}
				codes[f.Code] = place
				require.NotEmpty(t, f.Message)
			}
			require.Contains(t, codes, c.code, Faults(faults))
			require.Equal(t, c.place, codes[c.code], Faults(faults))
			_, err := Compile(t.Context(), g, known)
			require.Error(t, err)
		})
	}
	t.Run("All/AtOnceWithPlaceAndHint", func(t *testing.T) {
		g := NewBuilder("").Node("a", "y").Node("a", "x").Edge("a", "Z").Edge("A", "a").Graph()
		faults := faultsOf(g, known)
		text := Faults(faults).Error()
		for _, code := range []string{CodeUnknownActor, CodeDuplicateNode, CodeUnknownNode} {
			require.Contains(t, text, code)
		}
		require.Contains(t, text, `did you mean "a"?`)
		require.GreaterOrEqual(t, len(faults), 4)
	})
	t.Run("Large/LoopsNestedTooDeepAreRefused", func(t *testing.T) {
		b := NewBuilder("")
		var ids []string
		for i := range 70 {
			ids = append(ids, fmt.Sprintf("n%d", i))
			b.Node(ids[i], "x")
		}
		b.Chain(ids...)
		for i := range 69 {
			b.Back("n69", ids[i], "visit < 2")
		}
		require.Equal(t, CodeTooLarge, faultsOf(b.Graph(), known)[0].Code)
	})
	t.Run("Large/GraphIsRefusedByName", func(t *testing.T) {
		require.Equal(t, CodeTooLarge, faultsOf(&Graph{Nodes: make([]Node, MaxNodes+1)}, nil)[0].Code)
	})
}

func TestGraphJSON(t *testing.T) {
	full := `{"name":"g","nodes":[{"id":"a","kind":"PROBLEM","actor":"x","args":[1],"named":{"k":{"n":9007199254740993}},"transform":"result",
		"result_pass_down_mode":{"mode":"KEY","key":"r"},"join":{"mode":"ANY","losers":"CANCEL"},"retry":{"max_attempts":2,"initial_backoff":"1s"},
		"check":{"cel":"true"},"timeout":"1m30s","idle_timeout":"5s","on_error":{"action":"FALLBACK","value":null},"map":{"over":"[1]"},
		"max_visits":-1,"cache":{"ttl":"1h0m0s"},"concurrency_key":"'k'","thread":"t","effect":"PURE"}],"state":{"s":{"reducer":"APPEND"}}}`
	t.Run("Decode/RoundTripsEveryField", func(t *testing.T) {
		g, err := Decode([]byte(full))
		require.NoError(t, err)
		faults := faultsOf(g, nil)
		require.Len(t, faults, 1)
		require.Equal(t, CodeUnused+" thread", faults[0].Code+" "+faults[0].Field, "what would do nothing is refused by name")
		b, err := json.Marshal(g)
		require.NoError(t, err)
		require.JSONEq(t, full, string(b))
	})
	t.Run("Decode/RefusesUnknownFieldsAndTrailingData", func(t *testing.T) {
		for _, bad := range []string{`{"nodes":[],"edgess":[]}`, `{"nodes":[{"id":"a","retires":1}]}`, `{"nodes":[]}{}`, `{"nodes":[{"timeout":"soon"}]}`} {
			_, err := Decode([]byte(bad))
			require.Error(t, err, bad)
		}
	})
	t.Run("Hash/IgnoresSpaceAndSaidDefaultsButNotOrder", func(t *testing.T) {
		hash := func(text string) string {
			g, err := Decode([]byte(text))
			require.NoError(t, err)
			h, err := g.Hash()
			require.NoError(t, err)
			return h
		}
		plain := hash(`{"nodes":[{"id":"a","actor":"x"},{"id":"b","actor":"x","named":{"p":{"y":1,"x":2}}}]}`)
		require.Equal(t, plain, hash(`{"nodes": [{"actor":"x","id":"a","join":{"mode":"ALL"},"kind":"ACTION"},{"id":"b","actor":"x","named":{"p":{"x":2, "y":1}}}],"edges":[]}`))
		require.NotEqual(t, plain, hash(`{"nodes":[{"id":"b","actor":"x"},{"id":"a","actor":"x"}]}`))
		require.Len(t, plain, 64)
	})
	t.Run("Compile/StoredGraphNeedsNoActors", func(t *testing.T) {
		g := NewBuilder("").Node("a", "x").Graph()
		p, err := Compile(t.Context(), g, actorSet{"x": {Effect: Pure}})
		require.NoError(t, err)
		again, err := Compile(t.Context(), p.Graph(), nil)
		require.NoError(t, err)
		n, _ := again.Node("a")
		require.Equal(t, Pure, n.Effect)
		require.Equal(t, p.Graph(), again.Graph())
	})
}

func FuzzDecodeGraph(f *testing.F) {
	f.Add(`{"nodes":[{"id":"a","actor":"x"},{"id":"b","actor":"x"}],"edges":[{"from":"a","to":"b"},{"from":"b","to":"a","kind":"BACK","when":"visit < 2"}]}`)
	f.Add(`{"nodes":[{"id":"a","actor":"x","map":{"over":"[1]"},"join":{"mode":"QUORUM","n":1}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Decode([]byte(text))
		if err != nil {
			return
		}
		h, err := g.Hash()
		require.NoError(t, err)
		b, err := g.Canonical()
		require.NoError(t, err)
		back, err := Decode(b)
		require.NoError(t, err, "%s", b)
		h2, err := back.Hash()
		require.NoError(t, err)
		require.Equal(t, h, h2)
		if _, err := Compile(t.Context(), g, nil); err != nil {
			require.NotEmpty(t, strings.TrimSpace(err.Error()))
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(`{"v":1,"seq":1,"kind":"RUN_STARTED","at":"2026-01-01T00:00:00Z","input":{},"steps":[{"op":"ENTER","node":"H","visit":1}]}`)
	f.Add(`{"v":1,"seq":2,"kind":"ATTEMPT_ENDED","at":"2026-01-01T00:00:00Z","node":"H","visit":1,"attempt":1,"outcome":{},"steps":[{"op":"COMPLETE","node":"H","visit":1},{"op":"EDGE","node":"H","visit":1,"to":"W","live":true}]}`)
	f.Add(`{"v":1,"seq":1,"kind":"RUN_STARTED","at":"2026-01-01T00:00:00Z","steps":[{"op":"LOOP","node":"H","visit":1,"within":1},{"op":"LOOP_END","node":"H","within":1}]}`)
	g := NewBuilder("").Add(Node{ID: "H", Actor: "x"}, Node{ID: "W", Actor: "x", Map: &Map{Over: "[1]"}}, Node{ID: "X", Actor: "x"}).
		Chain("H", "W", "X").Back("W", "H", "false").Graph()
	p, err := Compile(context.Background(), g, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		s := New(p, "run")
		for line := range strings.Lines(text) {
			ev, err := DecodeEvent([]byte(line))
			if err != nil {
				return
			}
			if _, err := s.Apply(t.Context(), ev); err != nil {
				return // corrupt journals are refused without a panic
			}
		}
	})
}

func TestValidateNumbers(t *testing.T) {
	for name, r := range map[string]Retry{
		"infinite factor": {Multiplier: math.Inf(1)}, "no factor": {Multiplier: math.NaN()}, "no jitter": {Jitter: math.NaN()},
		"wide jitter": {Jitter: math.Inf(-1)}, "shrinking": {Multiplier: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			faults := faultsOf(NewBuilder("").Add(Node{ID: "a", Actor: "x", Retry: r}).Graph(), nil)
			require.Len(t, faults, 1)
			require.Equal(t, CodeBadValue, faults[0].Code)
		})
	}
	t.Run("Durations/AreWrittenAsSuch", func(t *testing.T) {
		faults := faultsOf(NewBuilder("").Add(Node{ID: "a", Actor: "x", Timeout: Duration(-time.Second)}).Graph(), nil)
		require.Len(t, faults, 1)
		require.Equal(t, "-1s is negative", faults[0].Message)
	})
}
