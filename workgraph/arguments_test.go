package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// known is an ActorSet of fixed infos.
type known map[string]ActorInfo

func (k known) ActorInfo(name string) (ActorInfo, bool) {
	info, ok := k[name]
	return info, ok
}

// calc has three actors: calc evaluates an expression, mail needs an address and a text or a file, and any
// takes everything.
var calc = known{
	"calc": {Effect: Pure, NeverExpands: true, Schema: json.RawMessage(`{"required": ["expr"], "properties": {"expr": {"type": "string"}}}`),
		Examine: func(_ context.Context, n *Node) []Argument {
			var src string
			if json.Unmarshal(n.Named["expr"], &src) != nil {
				return nil
			}
			return []Argument{{Arg: "expr", Expr: src}}
		}},
	"mail": {Effect: Pure, NeverExpands: true, Schema: json.RawMessage(`{"additionalProperties": false, "required": ["to"],
		"anyOf": [{"required": ["text"]}, {"required": ["file", "type"]}], "properties": {"to": {"type": "string"}, "text": {}, "file": {}, "type": {}}}`)},
	"any":   {Effect: Pure, NeverExpands: true},
	"grows": {Effect: Pure},
}

func places(faults []Fault) []string {
	var out []string
	for _, f := range faults {
		at := f.Node
		if f.From != "" {
			at = f.From + "->" + f.To
		}
		out = append(out, strings.TrimSpace(f.Code+" "+at+" "+f.Field))
	}
	return out
}

func TestReferences(t *testing.T) {
	t.Parallel()
	chain := func(change func(g *Graph)) *Graph {
		g := nodes(PassDown{}, "a", "b", "c", "other").Chain("a", "b", "c").Graph()
		for i := range g.Nodes {
			g.Nodes[i].Actor = "any"
		}
		change(g)
		return g
	}
	expr := func(src string) func(*Graph) {
		return func(g *Graph) {
			g.Nodes[2].Actor, g.Nodes[2].Named = "calc", map[string]json.RawMessage{"expr": js(src)}
		}
	}
	for name, c := range map[string]struct {
		change func(*Graph)
		want   []string
		hint   string
	}{
		"Grandparent":         {expr("nodes.a.result"), nil, ""},
		"Undeclared":          {expr("nodes.nope.result"), []string{"UNKNOWN_NODE_REFERENCE c named.expr"}, ""},
		"ByIndex":             {expr(`nodes["nope"].result`), []string{"UNKNOWN_NODE_REFERENCE c named.expr"}, ""},
		"Beside":              {expr("nodes.other.result"), []string{"NODE_NOT_BEFORE c named.expr"}, `draw an edge from "other"`},
		"Itself":              {expr("nodes.c.result"), []string{"NODE_NOT_BEFORE c named.expr"}, "has not ended here"},
		"Field":               {expr("nodes.a.reslt"), []string{"BAD_EXPRESSION c named.expr"}, "a node has result, values, visit"},
		"FieldByIndex":        {expr(`nodes["a"]["output"]`), []string{"BAD_EXPRESSION c named.expr"}, "a node has result, values, visit"},
		"FieldOfWhen":         {func(g *Graph) { g.Nodes[2].When = "has(nodes.a.reslt.x) || nodes.b.values[0] == 1" }, []string{"BAD_EXPRESSION c when"}, ""},
		"FieldOfInput":        {expr("input.city"), []string{"BAD_EXPRESSION c named.expr"}, "write input.named.city"},
		"FieldOfInputByIndex": {expr(`input["city"]`), []string{"BAD_EXPRESSION c named.expr"}, "write input.named.city"},
		"PartsOfInput":        {expr("[input.named.city, input.args[0], input.size()]"), nil, ""},
		"ItemNamedInput":      {expr("[{'city': 1}].map(input, input.city)"), nil, ""},
		"MapOverANode":        {func(g *Graph) { g.Nodes[2].Map = &Map{Over: "nodes.a"} }, []string{"BAD_EXPRESSION c map.over"}, "write nodes.a.result"},
		"MapOverANodeByIndex": {func(g *Graph) { g.Nodes[2].Map = &Map{Over: `nodes["a"]`} }, []string{"BAD_EXPRESSION c map.over"}, `write nodes["a"].result`},
		"MapOverANumber":      {func(g *Graph) { g.Nodes[2].Map = &Map{Over: "size(nodes.a.result)"} }, []string{"BAD_EXPRESSION c map.over"}, ""},
		"MapOverValues":       {func(g *Graph) { g.Nodes[2].Map = &Map{Over: "nodes.a.values"} }, nil, ""},
		"MapOverAnything":     {func(g *Graph) { g.Nodes[2].Map = &Map{Over: "nodes.a.result"} }, nil, ""},
		"MapOverAList":        {func(g *Graph) { g.Nodes[2].Map = &Map{Over: "nodes.a.result.map(x, x + 1)"} }, nil, ""},
		"WhenANode":           {func(g *Graph) { g.Nodes[2].When = "nodes.a" }, []string{"BAD_EXPRESSION c when"}, "write nodes.a.result"},
		"WhenANumber":         {func(g *Graph) { g.Nodes[2].When = "size(nodes.a.result)" }, []string{"BAD_EXPRESSION c when"}, ""},
		"WhenAnything":        {func(g *Graph) { g.Nodes[2].When = "nodes.a.result" }, nil, ""},
		"CheckAText":          {func(g *Graph) { g.Nodes[2].Check = &Check{CEL: "node"} }, []string{"BAD_EXPRESSION c check.cel"}, ""},
		"KeyANumber":          {func(g *Graph) { g.Nodes[2].ConcurrencyKey = "visit" }, []string{"BAD_EXPRESSION c concurrency_key"}, ""},
		"EdgeWhenANumber":     {func(g *Graph) { g.Edges[0].When = "1" }, []string{"BAD_EXPRESSION a->b when"}, ""},
		"MergeAList": {func(g *Graph) { g.Edges[0].PassDown = Merge("[1]") },
			[]string{"BAD_EXPRESSION a->b result_pass_down_mode.expr"}, ""},
		"FieldsInside": {expr("nodes.a.result.reslt + nodes.b.values.size() + nodes.a.visit"), nil, ""},
		"Syntax":       {expr("1 +"), []string{"BAD_EXPRESSION c named.expr"}, ""},
		"Variable":     {expr("inputs.a"), []string{"BAD_EXPRESSION c named.expr"}, ""},
		"Function":     {expr("shout('a')"), []string{"BAD_EXPRESSION c named.expr"}, ""},
		"After":        {func(g *Graph) { g.Nodes[0].When = "nodes.c.result" }, []string{"NODE_NOT_BEFORE a when"}, "it comes after"},
		"Check":        {func(g *Graph) { g.Nodes[1].Check = &Check{CEL: "nodes.b.result == 1"} }, []string{"NODE_NOT_BEFORE b check.cel"}, "use result or values"},
		"EdgeOfItself": {func(g *Graph) { g.Edges[0].When = "nodes.a.result == 1" }, nil, ""},
		"EdgeOfTarget": {func(g *Graph) { g.Edges[0].When = "nodes.b.result == 1" }, []string{"NODE_NOT_BEFORE a->b when"}, ""},
		"Merge":        {func(g *Graph) { g.Edges[1].PassDown = Merge("{'args': [nodes.other.result]}") }, []string{"NODE_NOT_BEFORE b->c result_pass_down_mode.expr"}, ""},
		"Map":          {func(g *Graph) { g.Nodes[1].Map = &Map{Over: "nodes.other.result"} }, []string{"NODE_NOT_BEFORE b map.over"}, ""},
		"EveryUseCounts": {func(g *Graph) {
			g.Nodes[0].When, g.Nodes[1].When, g.Nodes[2].When = "nodes.a.result == 1", "nodes.a.result == 1", "nodes.a.result == 1"
		}, []string{"NODE_NOT_BEFORE a when"}, ""},
		"ErrorEdge": {func(g *Graph) {
			g.Nodes[0].OnError = OnError{Action: Route}
			g.Edges = append(g.Edges, Edge{From: "a", To: "other", Kind: ErrorEdge, When: "nodes.a.result == 1"})
		}, []string{"NODE_NOT_BEFORE a->other when"}, "the error of the source"},
		"LoopSeesItsEarlierRounds": {func(g *Graph) {
			g.Edges = append(g.Edges, Edge{From: "c", To: "a", Kind: BackEdge, When: "result == 1"})
			g.Nodes[0].When = "!has(nodes.c.result) || nodes.a.result == 1"
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			faults := faultsOf(chain(c.change), calc)
			require.Equal(t, c.want, places(faults), "%v", faults)
			if c.hint != "" {
				require.Contains(t, faults[0].Hint, c.hint)
			}
		})
	}
	t.Run("Many/AreFoundInOneGo", func(t *testing.T) {
		// Every node reads another far one. Answering one question at a time would take minutes.
		const n = 20_000 / testkit.Slower
		b := NewBuilder("many")
		for i := range n {
			b = b.Node(fmt.Sprint("n", i), "any")
		}
		g := b.Graph()
		for i := 1; i < n; i++ {
			for _, d := range []int{1, 2, 3, 5, 8} {
				if i >= d {
					g.Edges = append(g.Edges, Edge{From: fmt.Sprint("n", i-d), To: fmt.Sprint("n", i)})
				}
			}
			if i < n/4 {
				g.Nodes[n-i].When = fmt.Sprintf("nodes.n%d.result == 1", i)
			} else if i < n/4+10 {
				g.Nodes[i].When = fmt.Sprintf("nodes.n%d.result == 1", n-1)
			}
		}
		began := time.Now()
		require.Len(t, faultsOf(g, calc), 10)
		t.Logf("%s", time.Since(began))
	})
	t.Run("Expansion/MayNameWhatComesBefore", func(t *testing.T) {
		sub := func(ref string) *Graph {
			g := nodes(PassDown{}, "u", "v").Edge("u", "v").Graph()
			g.Nodes[1].When = "nodes." + ref + ".result == 1"
			return nodesOf("x", g)
		}
		for ref, ok := range map[string]bool{"S": true, "A": true, "u": true, "Z": false, "beside": false, "v": false} {
			m := newMachine(t, compile(t, nodes(PassDown{}, "S", "A", "Z", "beside").Edge("S", "A").Edge("A", "Z").Graph()))
			m.begin()
			m.end("S", Outcome{Values: one("1")})
			m.end("A", Outcome{Values: one("1"), Expand: sub(ref)})
			require.Equal(t, ok, m.status("A") == VisitCompleted, ref)
		}
	})
}

func TestMissingArguments(t *testing.T) {
	named := func(kv ...string) map[string]json.RawMessage {
		out := map[string]json.RawMessage{}
		for _, k := range kv {
			out[k] = js("1")
		}
		return out
	}
	two := func(pass PassDown, first string, own ...string) *Graph {
		return &Graph{Nodes: []Node{{ID: "a", Actor: first}, {ID: "m", Actor: "mail", Named: named(own...)}}, Edges: []Edge{{From: "a", To: "m", PassDown: pass}}}
	}
	for name, c := range map[string]struct {
		g       *Graph
		input   []string
		faults  []string // with that input
		unknown []string // if no input is known
		hint    string
	}{
		"Own":               {two(PassDown{}, "any", "to", "text"), nil, nil, nil, ""},
		"Nowhere":           {two(PassDown{}, "any"), nil, []string{"MISSING_ARGUMENT m named.to", "MISSING_ARGUMENT m named.text"}, nil, "pass it down by KEY"},
		"Input":             {two(PassDown{}, "any", "to"), []string{"text"}, nil, nil, ""},
		"Alternative":       {two(PassDown{}, "any", "to", "file"), []string{"type"}, nil, nil, ""},
		"HalfAnAlternative": {two(PassDown{}, "any", "to", "file"), nil, []string{"MISSING_ARGUMENT m named.text"}, nil, ""},
		"Key":               {two(Key("text"), "any", "to"), nil, nil, nil, ""},
		"AnotherKey":        {two(Key("txt"), "any", "to"), nil, []string{"MISSING_ARGUMENT m named.text"}, nil, ""},
		"Merge":             {two(Merge("{}"), "any", "to"), nil, nil, nil, ""},
		"MayExpand":         {two(PassDown{}, "grows", "to"), nil, nil, nil, ""},
		"Map":               {&Graph{Nodes: []Node{{ID: "m", Actor: "mail", Named: named("to"), Map: &Map{Over: "[1]", As: "text"}}}}, nil, nil, nil, ""},
		"Misspelled": {&Graph{Nodes: []Node{{ID: "c", Actor: "calc", Named: map[string]json.RawMessage{"exrp": js("1")}}}}, nil,
			[]string{"MISSING_ARGUMENT c named.expr"}, nil, `did you mean "expr" by named.exrp?`},
		"BehindAnInbox": {&Graph{Nodes: []Node{{ID: "i", Actor: "any", On: &Trigger{Inbox: &Inbox{}}}, {ID: "m", Actor: "mail", Named: named("to")}}, Edges: []Edge{{From: "i", To: "m"}}},
			[]string{"text"}, []string{"MISSING_ARGUMENT m named.text"}, []string{"MISSING_ARGUMENT m named.text"}, ""},
		"Loop": {&Graph{Nodes: []Node{{ID: "m", Actor: "mail", Named: named("to")}, {ID: "b", Actor: "any"}},
			Edges: []Edge{{From: "m", To: "b"}, {From: "b", To: "m", Kind: BackEdge, When: "visit < 3", PassDown: Key("text")}}}, nil, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := &Input{Named: named(c.input...)}
			got, err := ValidateFor(t.Context(), c.g, calc, in)
			require.NoError(t, err)
			require.Equal(t, c.faults, places(got), "%v", got)
			if c.hint != "" {
				require.Contains(t, got[0].Hint, c.hint)
			}
			require.Equal(t, c.unknown, places(faultsOf(c.g, calc)))
			if len(c.unknown) > 0 {
				return
			}
			p, err := Compile(t.Context(), c.g, calc)
			require.NoError(t, err)
			require.Equal(t, c.faults, places(found(p.Missing(t.Context(), in))))
			if len(c.input) == 0 {
				require.Equal(t, c.faults, places(found(p.Warnings(t.Context(), nil))), "what only the input can bring is a warning while that is not known")
			}
			require.Empty(t, found(p.Warnings(t.Context(), in)))
		})
	}
	t.Run("UnknownArgument/NamesTheNearOne", func(t *testing.T) {
		got := faultsOf(two(PassDown{}, "any", "to", "txet"), calc)
		require.Equal(t, []string{"UNKNOWN_ARGUMENT m named.txet"}, places(got))
		require.Equal(t, `did you mean "text"?`, got[0].Hint)
	})
	t.Run("Problem/MayCarryWhatThePlanSays", func(t *testing.T) {
		g := two(PassDown{}, "any", "to", "text", "request", "user_input", "arguments", "tool", "references")
		g.Nodes[1].Kind = ProblemKind
		require.Empty(t, faultsOf(g, calc))
	})
}

// TestMissingArguments_BesideOtherFaults checks that missing arguments are reported together with other
// faults, and that no argument is reported as missing that the repaired graph may provide.
func TestMissingArguments_BesideOtherFaults(t *testing.T) {
	t.Parallel()
	needy := Node{ID: "m", Actor: "mail", Named: map[string]json.RawMessage{"to": js("1")}}
	start := Node{ID: "a", Actor: "any"}
	const missing = "MISSING_ARGUMENT m named.text"
	for name, c := range map[string]struct {
		g    *Graph
		want []string
	}{
		"UnknownActor":  {&Graph{Nodes: []Node{{ID: "a", Actor: "nobody"}, needy}}, []string{"UNKNOWN_ACTOR a actor", missing}},
		"BadExpression": {&Graph{Nodes: []Node{{ID: "a", Actor: "any", When: "1 +"}, needy}}, []string{"BAD_EXPRESSION a when", missing}},
		"BadReference":  {&Graph{Nodes: []Node{{ID: "a", Actor: "any", When: "nodes.zz.result"}, needy}}, []string{"UNKNOWN_NODE_REFERENCE a when", missing}},
		"EdgeToNobody":  {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "m", To: "q"}}}, []string{"UNKNOWN_NODE m->q to", missing}},
		"EdgeBefore":    {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "a", To: "m"}, {From: "a", To: "q"}}}, []string{"UNKNOWN_NODE a->q to", missing}},
		"SelfLoop":      {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "a", To: "a"}}}, []string{"SELF_LOOP a->a kind", missing}},
		"CycleElsewhere": {&Graph{Nodes: []Node{start, {ID: "b", Actor: "any"}, needy}, Edges: []Edge{{From: "a", To: "b"}, {From: "b", To: "a"}}},
			[]string{"CYCLE a", missing}},
		"TwoEntriesToALoop": {&Graph{Nodes: []Node{needy, start, {ID: "b", Actor: "any"}}, Edges: []Edge{{From: "m", To: "a"}, {From: "m", To: "b"},
			{From: "a", To: "b"}, {From: "b", To: "a", Kind: BackEdge, When: "visit < 3"}}}, []string{"IRREDUCIBLE_LOOP b->a kind", missing}},
		"EdgeFromNobody":   {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "q", To: "m"}}}, []string{"UNKNOWN_NODE q->m from"}},
		"UnknownActorGoes": {&Graph{Nodes: []Node{{ID: "a", Actor: "nobody"}, needy}, Edges: []Edge{{From: "a", To: "m"}}}, []string{"UNKNOWN_ACTOR a actor"}},
		"WithinACycle":     {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "a", To: "m"}, {From: "m", To: "a"}}}, []string{"CYCLE a"}},
		"UnknownMode": {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "a", To: "m", PassDown: PassDown{Mode: "KEYY", Key: "text"}}}},
			[]string{"BAD_VALUE a->m result_pass_down_mode.mode"}},
		"KeyWithoutName": {&Graph{Nodes: []Node{start, needy}, Edges: []Edge{{From: "a", To: "m", PassDown: PassDown{Mode: KeyPassDown}}}},
			[]string{"BAD_VALUE a->m result_pass_down_mode.key"}},
		"TwiceTheId": {&Graph{Nodes: []Node{start, {ID: "m", Actor: "any"}, needy}, Edges: []Edge{{From: "a", To: "m", PassDown: Key("text")}}}, []string{"DUPLICATE_NODE m id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ValidateFor(t.Context(), c.g, calc, &Input{})
			require.NoError(t, err)
			require.Equal(t, c.want, places(got), "%v", got)
		})
	}
	t.Run("LongerName/IsProposed", func(t *testing.T) {
		t.Parallel()
		got := found(ValidateFor(t.Context(), &Graph{Nodes: []Node{{ID: "c", Actor: "calc", Named: map[string]json.RawMessage{"expression": js("1")}}}}, calc, &Input{}))
		require.Equal(t, `did you mean "expr" by named.expression?`, got[0].Hint)
	})
}

func TestUnreachableInboxes(t *testing.T) {
	box := func(id string, from ...string) Node {
		return Node{ID: id, Actor: "any", On: &Trigger{Inbox: &Inbox{From: from}}}
	}
	for name, c := range map[string]struct {
		g    *Graph
		want []string
	}{
		"Everybody": {&Graph{Nodes: []Node{box("i")}}, nil},
		"Input":     {&Graph{Nodes: []Node{box("i", InputSender)}}, nil},
		"Outside":   {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "ada")}}, nil},
		"Edge":      {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "s")}, Edges: []Edge{{From: "s", To: "i"}}}, nil},
		"NoEdge":    {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "s")}}, []string{"INBOX_UNREACHABLE i on.inbox.from"}},
		"Itself":    {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "i")}}, []string{"INBOX_UNREACHABLE i on.inbox.from"}},
		"OnlyTogether": {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "k"), box("k", "i")}, Edges: []Edge{{From: "i", To: "k"}, {From: "k", To: "i"}}},
			[]string{"INBOX_UNREACHABLE i on.inbox.from", "INBOX_UNREACHABLE k on.inbox.from"}},
		"ByAChain": {&Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i", "s"), {ID: "m", Actor: "any"}, box("k", "m")},
			Edges: []Edge{{From: "s", To: "i"}, {From: "i", To: "m"}, {From: "m", To: "k"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, places(faultsOf(c.g, calc)))
		})
	}
}

func TestEndlessCycles(t *testing.T) {
	box := func(id string) Node { return Node{ID: id, Actor: "any", On: &Trigger{Inbox: &Inbox{}}} }
	ring := func(when string) *Graph {
		return &Graph{Nodes: []Node{{ID: "s", Actor: "any"}, box("i"), box("k"), {ID: "end", Actor: "any"}},
			Edges: []Edge{{From: "s", To: "i"}, {From: "i", To: "k"}, {From: "k", To: "i", When: when}, {From: "k", To: "end"}}}
	}
	failing := func(when string) *Graph {
		return &Graph{Nodes: []Node{{ID: "a", Actor: "any", OnError: OnError{Action: Route}}, {ID: "b", Actor: "any"}},
			Edges: []Edge{{From: "a", To: "b", Kind: ErrorEdge}, {From: "b", To: "a", Kind: BackEdge, When: when}}}
	}
	loop := func(back, forward, node string) *Graph {
		return &Graph{Nodes: []Node{{ID: "a", Actor: "any"}, {ID: "b", Actor: "any", When: node}},
			Edges: []Edge{{From: "a", To: "b", When: forward}, {From: "b", To: "a", Kind: BackEdge, When: back}}}
	}
	self := func(when string) *Graph {
		return &Graph{Nodes: []Node{{ID: "a", Actor: "any"}}, Edges: []Edge{{From: "a", To: "a", Kind: BackEdge, When: when}}}
	}
	for name, c := range map[string]struct {
		g    *Graph
		want []string
	}{
		"Inboxes":               {ring(""), []string{"CYCLE_WITHOUT_END i on.inbox"}},
		"Inboxes/Constant":      {ring("true"), []string{"CYCLE_WITHOUT_END i on.inbox"}},
		"Inboxes/Condition":     {ring("visit < 3"), nil},
		"WhileFailing":          {failing(""), []string{"CYCLE_WITHOUT_END b->a when"}},
		"WhileFailing/Constant": {failing("1 == 1"), []string{"CYCLE_WITHOUT_END b->a when"}},
		"WhileFailing/Bound":    {failing("visit < 3"), nil},
		"Loop/Constant":         {loop("1 == 1", "", ""), []string{"CYCLE_WITHOUT_END b->a when"}},
		"Loop/ConstantWay":      {loop("", "true", ""), []string{"CYCLE_WITHOUT_END b->a when"}},
		"Loop/ConstantNode":     {loop("", "", "2 > 1"), []string{"CYCLE_WITHOUT_END b->a when"}},
		"Loop/ConstantFalse":    {loop("false", "", ""), nil},
		"Loop/ConditionOnWay":   {loop("true", "visit < 3", ""), nil},
		"Self/Constant":         {self("true"), []string{"CYCLE_WITHOUT_END a->a when"}},
		"Self/Selects":          {self(""), nil},
		"Self/Condition":        {self("visit < 3"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compile(t.Context(), c.g, calc)
			require.NoError(t, err)
			require.Equal(t, c.want, places(found(p.Warnings(t.Context(), &Input{}))))
		})
	}
}

// found returns the faults of a check that was not interrupted.
func found(faults []Fault, err error) []Fault {
	if err != nil {
		panic(err)
	}
	return faults
}
