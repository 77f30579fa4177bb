package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// longest is far more processor time than the measured work takes, and far less than it took when time grew
// with the square of the input.
const (
	longest = 10 * time.Second
	// large is the number of nodes of graphs.
	large = 100_000 / testkit.Slower
)

// few scales a size down under the race detector, so that the work takes as long as without it.
func few(n int) int { return n / testkit.Slower }

// soon fails the test if f takes more processor time than any check may. It counts the time of the whole
// process, so tests that use it are not parallel.
func soon(t *testing.T, f func()) {
	t.Helper()
	begin := processorTime(t)
	f()
	took := processorTime(t) - begin
	t.Logf("%v", took)
	require.Less(t, took, longest)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// countdown is a context that ends after it has been asked a number of times. It counts the later questions.
type countdown struct {
	context.Context
	left, late atomic.Int64
}

func newCountdown(n int64) *countdown {
	c := &countdown{Context: context.Background()}
	c.left.Store(n)
	return c
}

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	c.late.Add(1)
	return context.DeadlineExceeded
}

// chain is n nodes, each with an edge to the next.
func chain(n int) *Graph {
	g := &Graph{Nodes: make([]Node, n), Edges: make([]Edge, 0, 2*n)}
	for i := range g.Nodes {
		g.Nodes[i] = Node{ID: fmt.Sprintf("n%d", i), Actor: "x"}
		if i > 0 {
			g.Edges = append(g.Edges, Edge{From: g.Nodes[i-1].ID, To: g.Nodes[i].ID})
		}
	}
	return g
}

func TestAttackGraphs(t *testing.T) {
	node := func(i int) string { return fmt.Sprintf("n%d", i) }
	graphs := map[string]func() (g *Graph, code string, faults int){
		"UnknownEnds": func() (*Graph, string, int) {
			g := chain(large)
			for i := range large {
				g.Edges = append(g.Edges, Edge{From: fmt.Sprintf("u%d", i), To: fmt.Sprintf("v%d", i)})
			}
			return g, CodeUnknownNode, MaxFaults + 1
		},
		"UnknownReferences": func() (*Graph, string, int) {
			g := chain(large)
			for i := range g.Nodes {
				g.Nodes[i].When = fmt.Sprintf("has(nodes.zz%d.result)", i%200)
			}
			return g, CodeUnknownNodeRef, MaxFaults + 1
		},
		"ReferencesToWhatComesLater": func() (*Graph, string, int) {
			g := chain(large)
			for i := range 200 {
				g.Nodes[i].When = fmt.Sprintf("has(nodes.n%d.result)", large-1-i)
			}
			return g, CodeNotBefore, MaxFaults + 1
		},
		"ReferencesToManyBefore": func() (*Graph, string, int) {
			g := chain(large / 5)
			for i := 4_000 / testkit.Slower; i < len(g.Nodes); i++ {
				g.Nodes[i].When = fmt.Sprintf("has(nodes.n%d.result) || has(nodes.n%d.result)", i%(4_000/testkit.Slower), i/2)
			}
			g.Nodes[0].Actor = "" // the rest is correct and adds no fault
			return g, CodeNoActor, 1
		},
		"ManyRequiredArguments": func() (*Graph, string, int) {
			g := chain(large)
			for i := range g.Nodes {
				g.Nodes[i].Actor = "demanding"
			}
			g.Nodes[0].Named = map[string]json.RawMessage{}
			for i := range 300 {
				g.Nodes[0].Named[fmt.Sprintf("an argument of a name that is sixty letters long or more, %d", i)] = rawNull
			}
			return g, CodeMissingArg, MaxFaults + 1
		},
		"DuplicateNodes": func() (*Graph, string, int) {
			g := chain(large)
			for i := range g.Nodes {
				g.Nodes[i].ID = "a"
			}
			g.Edges = nil
			return g, CodeDuplicateNode, MaxFaults + 1
		},
		"DuplicateEdges": func() (*Graph, string, int) {
			g := chain(2)
			for range 5 * large {
				g.Edges = append(g.Edges, g.Edges[0])
			}
			return g, CodeDuplicateEdge, MaxFaults + 1
		},
		"LongCycle": func() (*Graph, string, int) {
			g := chain(large)
			g.Edges = append(g.Edges, Edge{From: node(large - 1), To: node(0)})
			return g, CodeCycle, 1
		},
		"ManyBackEdgesToOneHead": func() (*Graph, string, int) {
			g := chain(large)
			for i := large - 1; i > 0; i-- {
				g.Edges = append(g.Edges, Edge{From: node(i), To: node(0), Kind: BackEdge})
			}
			return g, CodeNoExit, MaxFaults + 1
		},
		"ManyBackEdgesOverDenseBodies": func() (*Graph, string, int) {
			g := chain(600)
			for i := range 600 {
				for k := i + 2; k < 600; k++ {
					g.Edges = append(g.Edges, Edge{From: node(i), To: node(k)})
				}
			}
			for i := range 599 {
				g.Edges = append(g.Edges, Edge{From: node(599), To: node(i), Kind: BackEdge, When: "true"})
			}
			return g, CodeTooLarge, 1
		},
		"ChainOfLoopsWithoutExit": func() (*Graph, string, int) {
			g := chain(large)
			for i := 0; i < large; i += 2 {
				g.Edges = append(g.Edges, Edge{From: node(i + 1), To: node(i), Kind: BackEdge})
			}
			return g, CodeNoExit, MaxFaults + 1
		},
		"ManyLoopsInOneTangle": func() (*Graph, string, int) {
			g := chain(1_000)
			// A second entry, so that no loop has a single one.
			g.Nodes = append(g.Nodes, Node{ID: "other", Actor: "x"})
			for i := 2; i < 1_000; i++ {
				g.Edges = append(g.Edges, Edge{From: node(i), To: node(i - 2), Kind: BackEdge})
			}
			g.Edges = append(g.Edges, Edge{From: "other", To: node(999)})
			return g, CodeIrreducible, MaxFaults + 1
		},
		"EdgesIntoAnInboxOfManySenders": func() (*Graph, string, int) {
			g := chain(1)
			g.Nodes[0].On = &Trigger{Inbox: &Inbox{From: make([]string, maxSenders)}}
			for i := range maxSenders {
				g.Nodes[0].On.Inbox.From[i] = fmt.Sprintf("sender-%d", i)
			}
			for i := range 3 * large {
				if i < large {
					g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("source-%d", i), Actor: "x"})
				}
				g.Edges = append(g.Edges, Edge{From: fmt.Sprintf("source-%d", i%large), To: "n0", Kind: []EdgeKind{DataEdge, ErrorEdge, BackEdge}[i/large]})
			}
			return g, CodeBadValue, MaxFaults + 1
		},
		"LargeSchemaOfAnActorOfAll": func() (*Graph, string, int) {
			g := chain(large)
			for i := range g.Nodes {
				g.Nodes[i].Actor, g.Nodes[i].Named = "typed", map[string]json.RawMessage{"p1": json.RawMessage(`1`), "zz": rawNull}
			}
			return g, CodeUnknownArg, MaxFaults + 1
		},
		"ManyPatterns": func() (*Graph, string, int) {
			g := chain(maxGraphSchemas)
			for i := range g.Nodes {
				g.Nodes[i].Check = &Check{Schema: json.RawMessage(fmt.Sprintf(`{"type": "string", "pattern": "^[a-x]{1,950}%d$"}`, i))}
			}
			return g, CodeBadSchema, MaxFaults + 1
		},
		"ManyPatternsInExpressions": func() (*Graph, string, int) {
			g := chain(600)
			for i := range g.Nodes {
				g.Nodes[i].When = fmt.Sprintf(`named.a.matches('^[a-x]{1,950}%d$')`, i)
			}
			return g, CodeBadExpression, MaxFaults + 1
		},
		"ManySchemas": func() (*Graph, string, int) {
			g := chain(maxGraphSchemas + 2*MaxFaults)
			for i := range g.Nodes {
				g.Nodes[i].Check = &Check{Schema: json.RawMessage(fmt.Sprintf(`{"const": %d}`, i))}
			}
			return g, CodeBadSchema, MaxFaults + 1
		},
	}
	var properties strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&properties, `"p%d": {"type": "integer", "description": "xxxxxxxx"}, `, i)
	}
	required := make([]string, 12_000)
	for i := range required {
		required[i] = fmt.Sprintf(`"another argument of a name that is sixty letters long, %d"`, i)
	}
	actors := Actors{"x": ActorFunc(nil), "demanding": typedActor{Schema: json.RawMessage(`{"required": [` + strings.Join(required, ",") + `]}`), Effect: Pure, NeverExpands: true}, "typed": typedActor{Schema: json.RawMessage(`{"properties": {` + properties.String() + `"p": {}}, "additionalProperties": false}`), Effect: Pure}}
	for name, graph := range graphs {
		g, code, n := graph()
		t.Run(name, func(t *testing.T) {
			soon(t, func() {
				faults, err := ValidateFor(t.Context(), g, actors, &Input{})
				require.NoError(t, err)
				require.Len(t, faults, n)
				require.Equal(t, code, faults[0].Code, "%v", faults[0])
				if n > MaxFaults {
					require.Equal(t, CodeMoreFaults, faults[MaxFaults].Code)
				}
				require.Less(t, len(Faults(faults).Error()), 500_000, "what is told is bounded")
			})
		})
		t.Run(name+"/EndsWithItsContext", func(t *testing.T) {
			for _, asked := range []int64{0, 1, 100} {
				ctx := newCountdown(asked)
				_, err := ValidateFor(ctx, g, actors, &Input{})
				require.Error(t, err)
				require.Less(t, ctx.late.Load(), int64(100), "nothing goes on after the end")
			}
		})
	}
}

// typedActor is an actor with a schema.
type typedActor ActorInfo

func (a typedActor) Info() ActorInfo { return ActorInfo(a) }

func (typedActor) Call(context.Context, *Call) (Outcome, error) { return Outcome{}, nil }

func TestAttackWarnings(t *testing.T) {
	g := &Graph{}
	for i := range large {
		g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("n%d", i), Actor: "x", OnError: OnError{Action: Route}})
		if i > 0 {
			g.Edges = append(g.Edges, Edge{From: fmt.Sprintf("n%d", i-1), To: fmt.Sprintf("n%d", i), Kind: ErrorEdge}, Edge{From: fmt.Sprintf("n%d", i), To: "n0", Kind: BackEdge})
		}
	}
	g.Nodes[large-1].OnError = OnError{}
	p, err := Compile(t.Context(), g, nil)
	require.NoError(t, err)
	soon(t, func() {
		warnings, err := p.Warnings(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, warnings, MaxFaults+1)
		require.Equal(t, CodeEndless, warnings[0].Code)
	})
	ctx := newCountdown(10)
	_, err = p.Warnings(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, ctx.late.Load(), int64(100))
}

// An expansion is checked within the time of its step, while the run is locked.
func TestAttackExpansion(t *testing.T) {
	t.Parallel()
	p, err := Compile(t.Context(), chain(1), Actors{"x": ActorFunc(nil)})
	require.NoError(t, err)
	ctx := newCountdown(10)
	s := New(p, "run")
	s.OnEvaluation(func() (context.Context, context.CancelFunc) { return ctx, func() {} })
	_, fx, err := s.Advance(Begin{Now: time.Now()})
	require.NoError(t, err)
	_, _, err = s.Advance(Ended{Ref: fx.Starts[0].Ref, Attempt: 1, Outcome: &Outcome{Expand: chain(1000)}, Now: time.Now()})
	require.NoError(t, err)
	require.NotNil(t, s.End())
	require.Equal(t, StatusFailed, s.End().Status)
	require.Contains(t, s.End().Error.Message, "cannot be checked in time")
	require.Less(t, ctx.late.Load(), int64(100))
}

func TestAttackDiff(t *testing.T) {
	t.Parallel()
	old, now := chain(50_000), chain(50_000)
	for i := range now.Nodes {
		now.Nodes[i].Name = "new"
	}
	ctx := newCountdown(10)
	_, err := Diff(ctx, old, now)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.LessOrEqual(t, ctx.late.Load(), int64(2))
}

func TestAttackSchemas(t *testing.T) {
	list := func(n int, el func(i int) string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = el(i)
		}
		return strings.Join(out, ",")
	}
	many := func(n int, el string) string { return list(n, func(int) string { return el }) }
	numbers := func(from, n int) string {
		return list(n, func(i int) string { return fmt.Sprintf("%d.5e3", from+i) })
	}
	// Lists of the same letters, split at different places: a hash that only adds up bytes is the same for
	// all.
	cuts := func(n int) string {
		return list(n, func(i int) string {
			var b strings.Builder
			b.WriteString(`["a`)
			for bit := range 16 {
				if b.WriteString(`b`); i>>bit&1 == 1 {
					b.WriteString(`","c`)
				} else {
					b.WriteString(`\u0004c`)
				}
			}
			return b.String() + `"]`
		})
	}
	t.Run("Compile", func(t *testing.T) {
		for name, tc := range map[string]struct{ schema, want string }{
			"ManySubschemas":       {`{"properties": {` + list(10_000, func(i int) string { return fmt.Sprintf(`"p%d":{}`, i) }) + `}}`, "objects, arrays and booleans"},
			"ManyBooleans":         {`{"allOf": [` + many(40_000, "true") + `]}`, "objects, arrays and booleans"},
			"AsManyAsMayBe":        {`{"properties": {` + list(4_900, func(i int) string { return fmt.Sprintf(`"p%d":{"minLength":1}`, i) }) + `}}`, ""},
			"LongNames":            {`{"properties": {"` + strings.Repeat("%", 100_000) + `": {"allOf": [` + many(500, "{}") + `]}}}`, "names in the schema are too long"},
			"ManyIDs":              {`{"allOf": [` + list(4_000, func(i int) string { return fmt.Sprintf(`{"$id":"a%d"}`, i) }) + `]}`, "too many for its size"},
			"ManyDynamicAnchors":   {`{"allOf": [` + list(4_000, func(i int) string { return fmt.Sprintf(`{"$dynamicAnchor":"a%d"}`, i) }) + `]}`, "too many for its size"},
			"RefsIntoTheUnknown":   {`{"x": [` + many(2_000, "{}") + `], "allOf": [` + list(2_000, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x/%d"}`, i) }) + `]}`, "put them below $defs"},
			"HugeNumber":           {`{"maximum": 1e999999}`, "out of range"},
			"HugeNumbersInAnEnum":  {`{"enum": [` + many(10_000, "1e-999999") + `]}`, "out of range"},
			"LongPattern":          {`{"pattern": "` + strings.Repeat(`\\pL`, 10_000) + `"}`, "at /pattern"},
			"DynamicRef":           {`{"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}}`, "use $ref"},
			"RecursiveRef":         {`{"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}`, "use $ref"},
			"CollidingEnumOfOld":   {`{"$schema": "http://json-schema.org/draft-07/schema#", "enum": [` + cuts(2_000) + `]}`, ""},
			"ManyFaultsOfSchemas":  {`{"allOf": [` + many(4_000, `{"minLength": "x"}`) + `]}`, "and "},
			"NestedRefsIntoOthers": {`{"x": ` + strings.Repeat(`{"x":`, 50) + `[` + many(2_000, "{}") + `]` + strings.Repeat("}", 50) + `, "allOf": [` + list(50, func(i int) string { return fmt.Sprintf(`{"$ref":"#/x%s"}`, strings.Repeat("/x", i)) }) + `]}`, "put them below $defs"},
		} {
			t.Run(name, func(t *testing.T) {
				require.LessOrEqual(t, len(tc.schema), maxSchemaBytes)
				soon(t, func() {
					_, err := CompileSchema(t.Context(), json.RawMessage(tc.schema))
					if tc.want == "" {
						require.NoError(t, err)
						return
					}
					require.ErrorContains(t, err, tc.want)
					require.Less(t, len(err.Error()), 100_000)
				})
			})
		}
	})
	deep := strings.Repeat("[", 900) + many(5_000, `"x"`) + strings.Repeat("]", 900)
	objects := func(n, keys int) string {
		return list(n, func(int) string {
			return "{" + list(keys, func(i int) string { return fmt.Sprintf(`"k%d":%d`, i, i) }) + "}"
		})
	}
	t.Run("Check", func(t *testing.T) {
		// Each case has a part of the steps and a part of the value, because the count is a product of both
		// and the schema.
		for name, tc := range map[string]struct{ schema, value, want string }{
			"EnumOfNumbers":         {`{"items": {"enum": [` + numbers(0, 20_000) + `]}}`, `[` + numbers(20_000-few(10_000), few(20_000)) + `]`, "value must be one of"},
			"EnumOfNumbers/All":     {`{"items": {"enum": [` + numbers(0, 20_000) + `]}}`, `[` + numbers(0, few(20_000)) + `]`, ""},
			"EnumOfLists":           {`{"items": {"enum": [[` + many(20_000, "1") + `,2]]}}`, `[` + many(few(60), `[`+many(20_000, "1.0")+`,3]`) + `]`, "'enum' failed"},
			"Const":                 {`{"items": {"allOf": [` + many(1_000, `{"const": [`+many(20, "1")+`]}`) + `]}}`, `[` + many(few(1_000), `[`+many(20, "1.0")+`]`) + `]`, "too many steps"},
			"UniqueItems":           {`{"uniqueItems": true}`, `[` + list(few(300_000), func(i int) string { return fmt.Sprint(i) }) + `]`, ""},
			"UniqueItems/Colliding": {`{"uniqueItems": true}`, `[` + cuts(few(30_000)) + `]`, ""},
			"UniqueItems/Nested":    {`{"uniqueItems": true, "items": {"$ref": "#"}}`, strings.Repeat("[", 900) + many(few(50_000), "1") + strings.Repeat("]", 900), "too many steps"},
			"Pattern":               {`{"pattern": "` + strings.Repeat("(a?a?)*", 500) + `b$"}`, `"` + strings.Repeat("a", few(1_000_000)) + `"`, "too many steps"},
			"PatternOfMany":         {`{"items": {"pattern": "(x+x+)+y"}}`, `[` + many(few(300_000), `"xxxxxxxxxxxxxxxxxxxxxxxxxx"`) + `]`, "too many steps"},
			"PatternProperties":     {`{"patternProperties": {` + list(120, func(i int) string { return fmt.Sprintf(`"(a|b)*c{%d}": true`, i+1) }) + `}}`, `{` + list(few(20_000), func(i int) string { return fmt.Sprintf(`"abababababababababab%d": 1`, i) }) + `}`, "too many steps"},
			"PropertyNames":         {`{"propertyNames": {"allOf": [` + many(2_000, `{"minLength": 1}`) + `]}}`, `{` + list(few(20_000), func(i int) string { return fmt.Sprintf(`"a%d": 1`, i) }) + `}`, "too many steps"},
			"Required":              {`{"items": {"required": [` + list(10_000, func(i int) string { return fmt.Sprintf(`"k%d"`, i) }) + `]}}`, `[` + many(few(20_000), "{}") + `]`, "too many steps"},
			"DependentRequired":     {`{"items": {"dependentRequired": {"a": [` + list(10_000, func(i int) string { return fmt.Sprintf(`"k%d"`, i) }) + `]}}}`, `[` + many(few(20_000), `{"a":1}`) + `]`, "too many steps"},
			"DependentSchemas":      {`{"items": {"dependentSchemas": {"a": {"allOf": [` + many(2_000, `{"minProperties": 1}`) + `]}}}}`, `[` + many(few(20_000), `{"a":1}`) + `]`, "too many steps"},
			"Unevaluated":           {`{"unevaluatedItems": {"type": "number"}, "allOf": [` + many(2_000, `{"contains": true}`) + `]}`, `[` + many(few(20_000), "1") + `]`, "too many steps"},
			"UnevaluatedProperties": {`{"unevaluatedProperties": true, "anyOf": [` + many(2_000, `{"minProperties": 1}`) + `]}`, `{` + list(few(20_000), func(i int) string { return fmt.Sprintf(`"a%d": 1`, i) }) + `}`, "too many steps"},
			"Contains":              {`{"allOf": [` + many(2_000, `{"contains": {"const": 7}}`) + `]}`, `[` + many(few(20_000), "1") + `]`, "too many steps"},
			"Formats":               {`{"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [` + many(2_000, `{"format": "uri-template"}`) + `]}`, `"http://` + strings.Repeat("a{b}", few(200_000)) + `"`, "too many steps"},
			"FormatRegex":           {`{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"format": "regex"}}`, `[` + many(few(2_000), `"((a{100}){100}){100}"`) + `]`, "not valid regex"},
			"FormatRegex/Many":      {`{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"format": "regex"}}`, `[` + many(few(5_000), `"a{1000}"`) + `]`, ""},
			"Numbers":               {`{"items": {"multipleOf": 0.1, "maximum": 1e300}}`, `[` + many(few(100_000), "1e-399") + `]`, "multipleOf"},
			"OneOf":                 {`{"items": {"oneOf": [` + many(1_000, `{"type": "object", "required": ["a"]}`) + `]}}`, `[` + objects(few(2_000), 3) + `]`, "too many steps"},
			"ManyFaults":            {`{"items": {"type": "string"}}`, `[` + many(few(150_000), "1") + `]`, fmt.Sprintf("and %d more", few(150_000)-maxPlaces)},
			"ManyFaultsInTheDeep":   {`{"items": {"$ref": "#"}, "type": "array"}`, deep, "too large to say where"},
			"LongFaults":            {`{"items": {"enum": [` + list(15_000, func(i int) string { return fmt.Sprintf(`"value %d"`, i) }) + `]}}`, `[` + many(few(20_000), `"x"`) + `]`, fmt.Sprintf("and %d more", few(20_000)-maxPlaces)},
		} {
			t.Run(name, func(t *testing.T) {
				s, err := CompileSchema(t.Context(), json.RawMessage(tc.schema))
				require.NoError(t, err)
				require.True(t, json.Valid([]byte(tc.value)))
				soon(t, func() {
					err := s.check(t.Context(), json.RawMessage(tc.value), few(maxSchemaSteps))
					if tc.want == "" {
						require.NoError(t, err)
						return
					}
					require.ErrorContains(t, err, tc.want)
					require.Less(t, len(err.Error()), 100_000)
				})
			})
		}
	})
	t.Run("Check/EndsWithItsContext", func(t *testing.T) {
		s, err := CompileSchema(t.Context(), json.RawMessage(`{"items": {"type": "number"}}`))
		require.NoError(t, err)
		ctx := newCountdown(3)
		require.ErrorIs(t, s.Check(ctx, json.RawMessage(`[`+many(100_000, "1")+`]`)), context.DeadlineExceeded)
		_, err = CompileSchema(newCountdown(0), json.RawMessage(`{}`))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// The keywords that compare whole values must agree with the library.
func TestExactValues(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		flat := rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "0.0", "1", "1.0", "10e-1", "100E-2", "-1", "1.50", "15e-1", "1e2", "100", `"1"`, `""`, `"a"`, `"\u0061"`})
		if depth == 0 {
			return flat
		}
		return rapid.Custom(func(t *rapid.T) string {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				return "[" + strings.Join(rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list"), ",") + "]"
			case 1:
				fields := []string{}
				for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, "keys") {
					fields = append(fields, `"`+k+`":`+value(depth-1).Draw(t, "value"))
				}
				return "{" + strings.Join(fields, ",") + "}"
			}
			return flat.Draw(t, "flat")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		among := strings.Join(rapid.SliceOfN(value(2), 1, 4).Draw(t, "enum"), ",")
		schema := rapid.SampledFrom([]string{`{"enum": [` + among + `]}`, `{"const": [` + among + `]}`, `{"uniqueItems": true}`}).Draw(t, "schema")
		raw := value(2).Draw(t, "value")
		if rapid.Bool().Draw(t, "list") {
			raw = "[" + strings.Join(rapid.SliceOfN(value(1), 0, 4).Draw(t, "values"), ",") + "]"
		}
		ours, err := CompileSchema(context.Background(), json.RawMessage(schema))
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource("schema:///x", doc))
		theirs, err := c.Compile("schema:///x")
		require.NoError(t, err)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
		require.NoError(t, err)
		require.Equal(t, theirs.Validate(v) == nil, ours.Check(context.Background(), json.RawMessage(raw)) == nil, "%s of %s", schema, raw)
	})
}
