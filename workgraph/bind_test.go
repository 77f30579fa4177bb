package workgraph

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// use is a use of a result, by its mark.
func use(mark, node, field string) ResultUse {
	return ResultUse{Mark: mark, Node: node, Field: field}
}

// binds is a graph A -> B -> C in which B has a binding.
func binds(b Binding) *Graph {
	g := nodes(Key("prev"), "A", "B", "C").Chain("A", "B", "C").Graph()
	g.Nodes[1].Bind = map[string]Binding{"q": b}
	return g
}

func TestBindings(t *testing.T) {
	t.Parallel()
	const result = `{"city": "Oslo", "at": [{"n": 1}, {"n": 2}], "x y": true, "\"q\"": null}`
	ua := func(mark, field string) []ResultUse { return []ResultUse{use(mark, "A", field)} }
	for name, c := range map[string]struct {
		b            Binding
		result, want string
	}{
		"Whole":          {Binding{Uses: ua("", "")}, result, result},
		"Field":          {Binding{Uses: ua("", "city")}, result, `"Oslo"`},
		"Path":           {Binding{Uses: ua("", "at[1].n")}, result, `2`},
		"DottedPath":     {Binding{Uses: ua("", "at.0.n")}, result, `1`},
		"QuotedPath":     {Binding{Uses: ua("", `["x y"]`)}, result, `true`},
		"JSONInText":     {Binding{Uses: ua("", "city")}, `" {\"city\": \"Bergen\"} "`, `"Bergen"`},
		"Mark":           {Binding{Value: js("$a.city"), Uses: ua("$a.city", "city")}, result, `"Oslo"`},
		"MarkOfAnObject": {Binding{Value: js(" $a "), Uses: ua("$a", "")}, `{"n": [1]}`, `{"n": [1]}`},
		"InText":         {Binding{Value: js(`Hotels in "$a.city", <please>`), Uses: ua("$a.city", "city")}, `{"city": "Os\"lo\n"}`, `"Hotels in \"Os\"lo\n\", <please>"`},
		"ValueInText":    {Binding{Value: js("all: $a"), Uses: ua("$a", "")}, `[1, {"b": "c"}]`, `"all: [1,{\"b\":\"c\"}]"`},
		"NullInText":     {Binding{Value: js("all: $a"), Uses: ua("$a", "")}, `null`, `"all: null"`},
		"Nested":         {Binding{Value: json.RawMessage(`{"$a": [1.50, "$a"], "t": "\u0024a!"}`), Uses: ua("$a", "")}, `7`, `{"$a": [1.50, 7], "t": "7!"}`},
		"NotInAWord":     {Binding{Value: js("$ab $a a$a"), Uses: ua("$a", "")}, `1`, `"$ab 1 a1"`},
		"WordAsMark":     {Binding{Value: js("a area a"), Uses: ua("a", "")}, `1`, `"1 area 1"`},
		"LongestMark":    {Binding{Value: js("$a.city of $a"), Uses: append(ua("$a", ""), ua("$a.city", "city")...)}, `{"city":"X"}`, `"X of {\"city\":\"X\"}"`},
		"OrWhole":        {Binding{Uses: []ResultUse{{Node: "A", Field: "output", OrWhole: true}}}, `"plain text"`, `"plain text"`},
		"OrWholeHasIt":   {Binding{Uses: []ResultUse{{Node: "A", Field: "output", OrWhole: true}}}, `{"output": 3}`, `3`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, compile(t, binds(c.b)))
			m.do(Begin{Input: Input{Named: map[string]json.RawMessage{"q": js("of the run")}}, Now: m.now})
			m.end("A", Outcome{Values: []json.RawMessage{json.RawMessage(c.result)}})
			m.everyWay(func(m *machine) {
				st := m.s.Outstanding()[0]
				require.JSONEq(t, c.want, string(st.Named["q"]), "a binding wins over what is propagated")
				require.JSONEq(t, c.result, string(st.Named["prev"]))
				require.NotContains(t, st.Own, "q", "no actor takes a result for what the node itself says")
			})
			m.end("B", Outcome{Values: one("1")})
			require.Equal(t, `"of the run"`, string(m.open[m.ref("C")].Named["q"]), "bindings are not propagated")
		})
	}
	for name, c := range map[string]struct{ field, result, says string }{
		"Field":   {"town", result, `argument "q": the result of "A" has no "town": it has "q", at, city, x y`},
		"Text":    {"city", `"Oslo"`, `has no "city": it is a text`},
		"Number":  {"city.x", `{"city": 3}`, `has no "city.x": it is no object`},
		"Element": {"at[5]", result, `has no "at.5": it is a list of 2`},
		"Large":   {"a.a.a.a.a.a.a.a", strings.Repeat(`{"a":`, 8) + string(js(strings.Repeat("x", 12<<20))) + strings.Repeat("}", 8), "more than"},
	} {
		t.Run("Fails/"+name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, compile(t, binds(Binding{Uses: ua("", c.field)})))
			m.begin()
			m.end("A", Outcome{Values: []json.RawMessage{json.RawMessage(c.result)}})
			require.Equal(t, VisitFailed, m.status("B"))
			require.Contains(t, m.why("B"), c.says)
			require.Equal(t, ReasonBindingFailed, m.s.End().Error.Reason)
		})
	}
	t.Run("AnyJoin/ANodeWithoutAResult", func(t *testing.T) {
		t.Parallel()
		g := star(2, Join{Mode: Any})
		g.Nodes[2].Bind = map[string]Binding{"q": {Uses: []ResultUse{use("", "s0", "")}}}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("s1", Outcome{Values: one("1")})
		require.Contains(t, m.why("J"), `node "s0" has no result here`)
	})
	t.Run("Map/EachItemHasIt", func(t *testing.T) {
		t.Parallel()
		g := binds(Binding{Uses: ua("", "city")})
		g.Nodes[1].Map = &Map{Over: "[1, 2]"}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one(result)})
		for _, st := range m.s.Outstanding() {
			require.Equal(t, `"Oslo"`, string(st.Named["q"]))
		}
	})
	t.Run("Far/ANodeBeforeTheOneBefore", func(t *testing.T) {
		t.Parallel()
		g := nodes(PassDown{}, "A", "B", "C").Chain("A", "B", "C").Graph()
		g.Nodes[2].Bind = map[string]Binding{"q": {Uses: ua("", "")}}
		m := newMachine(t, compile(t, g))
		m.begin()
		m.end("A", Outcome{Values: one("5")})
		m.end("B", Outcome{})
		require.Equal(t, "5", string(m.open[m.ref("C")].Named["q"]))
	})
	t.Run("Clone/SharesNoUses", func(t *testing.T) {
		t.Parallel()
		g := binds(Binding{Uses: ua("", "")})
		g.Clone().Nodes[1].Bind["q"].Uses[0].Node = "C"
		require.Equal(t, "A", g.Nodes[1].Bind["q"].Uses[0].Node)
	})
}

func TestBadBindings(t *testing.T) {
	t.Parallel()
	known := actorSet{"x": {Effect: Pure, Schema: json.RawMessage(`{"properties":{"q":{"type":"string"}},"required":["q"],"additionalProperties":false}`)}}
	ua := []ResultUse{use("", "A", "")}
	for name, c := range map[string]struct {
		arg  string
		b    Binding
		code string
		says string
	}{
		"Good":         {"q", Binding{Uses: ua}, "", ""},
		"UnknownArg":   {"p", Binding{Uses: ua}, CodeUnknownArg, `no argument "p"`},
		"NoName":       {"", Binding{Uses: ua}, CodeBadBinding, "no name"},
		"NoUse":        {"q", Binding{Value: js("x")}, CodeBadBinding, "uses no result"},
		"NoNode":       {"q", Binding{Uses: []ResultUse{use("", "", "")}}, CodeBadBinding, "names no node"},
		"UnknownNode":  {"q", Binding{Uses: []ResultUse{use("", "Z", "")}}, CodeUnknownNodeRef, `"nodes.Z" refers to nodes.Z`},
		"NotBefore":    {"q", Binding{Value: js("$c"), Uses: []ResultUse{use("$c", "C", "")}}, CodeNotBefore, `"$c" refers to nodes.C`},
		"Itself":       {"q", Binding{Uses: []ResultUse{use("", "B", "")}}, CodeNotBefore, "nodes.B"},
		"NotJSON":      {"q", Binding{Value: json.RawMessage("{"), Uses: ua}, CodeBadBinding, "the value is not JSON"},
		"NoMark":       {"q", Binding{Value: js("$a"), Uses: ua}, CodeBadBinding, "has no mark"},
		"MarkNowhere":  {"q", Binding{Value: js("$ab"), Uses: []ResultUse{use("$a", "A", "")}}, CodeBadBinding, `the mark "$a" stands nowhere`},
		"MarkAsName":   {"q", Binding{Value: json.RawMessage(`{"$a": 1}`), Uses: []ResultUse{use("$a", "A", "")}}, CodeBadBinding, "stands nowhere"},
		"MarkTwice":    {"q", Binding{Value: js("$a"), Uses: []ResultUse{use("$a", "A", ""), use("$a", "A", "x")}}, CodeBadBinding, "two uses have the mark"},
		"MarkAlone":    {"q", Binding{Uses: []ResultUse{use("$a", "A", "")}}, CodeBadBinding, "without a value"},
		"OpenField":    {"q", Binding{Uses: []ResultUse{use("", "A", "x[1")}}, CodeBadBinding, "lacks a ]"},
		"EmptyPart":    {"q", Binding{Uses: []ResultUse{use("", "A", "x..y")}}, CodeBadBinding, "empty part"},
		"DeepField":    {"q", Binding{Uses: []ResultUse{use("", "A", strings.Repeat("a.", 40)+"a")}}, CodeBadBinding, "more than 32 parts"},
		"LongMark":     {"q", Binding{Value: js("x"), Uses: []ResultUse{use(strings.Repeat("a", 300), "A", "")}}, CodeBadBinding, "longer than 256"},
		"ManyUses":     {"q", Binding{Value: js("x"), Uses: make([]ResultUse, 101)}, CodeBadBinding, "more than 100 results"},
		"TooMuchWork":  {"q", Binding{Value: js(strings.Repeat("$", 9<<20)), Uses: []ResultUse{use("$a", "A", ""), use("$b", "A", "")}}, CodeBadBinding, "too many for 2 marks"},
		"GivenAsWell":  {"r", Binding{Uses: ua}, CodeBadBinding, "in another way"},
		"ItemOfTheMap": {"i", Binding{Uses: ua}, CodeBadBinding, "in another way"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := nodesOf("x", nodes(PassDown{}, "A", "B", "C").Chain("A", "B", "C").Graph())
			g.Nodes[0].Named, g.Nodes[2].Named = map[string]json.RawMessage{"q": js("")}, map[string]json.RawMessage{"q": js("")}
			g.Nodes[1].Bind = map[string]Binding{c.arg: c.b}
			switch name {
			case "GivenAsWell":
				g.Nodes[1].Named = map[string]json.RawMessage{"r": js(1)}
			case "ItemOfTheMap":
				g.Nodes[1].Map = &Map{Over: "[1]", As: "i"}
			}
			faults := faultsOf(g, known)
			if c.code == "" {
				require.Empty(t, faults)
				return
			}
			text := Faults(faults).Error()
			require.Contains(t, text, c.code)
			require.Contains(t, text, c.says)
			for _, f := range faults {
				if f.Code == c.code {
					require.Equal(t, "bind."+c.arg, f.Field)
				}
			}
		})
	}
}

// FuzzBinding looks for values and marks with which a compiled binding gives no JSON.
func FuzzBinding(f *testing.F) {
	f.Add(`"Hotels in $a.city"`, "$a.city", "city", `{"city": "Oslo"}`)
	f.Add(`{"\u0024a": ["$a", "x $a\\"], "b": 1e9}`, "$a", "", `"\"\ud800"`)
	f.Add(`"aa a"`, "a", "[0]", `[{}]`)
	f.Fuzz(func(t *testing.T, value, mark, field, result string) {
		if !json.Valid([]byte(result)) || ValueFault(json.RawMessage(result)) != "" {
			return
		}
		path, err := fieldPath(field)
		if err != nil {
			return
		}
		p := pbinding{uses: []puse{{ResultUse{Mark: mark, Node: "A", Field: field}, path}}}
		if p.cut(context.Background(), json.RawMessage(value)) != nil {
			return
		}
		v := json.RawMessage(result)
		for _, name := range path {
			part, _, ok := member(v, name)
			if !ok {
				return
			}
			v = part
		}
		room := maxBoundBytes
		out, ok := p.filled([]json.RawMessage{v}, &room)
		require.True(t, ok)
		require.True(t, json.Valid(out), "%s", out)
	})
}
