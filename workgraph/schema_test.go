package workgraph

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchemaBounds(t *testing.T) {
	t.Parallel()
	not := func(n int) string { return strings.Repeat(`{"not":`, n) + "{}" + strings.Repeat("}", n) }
	for name, tc := range map[string]struct{ schema, want string }{
		"Plain":        {`{"type": "object", "properties": {"a": {"pattern": "^[a-z]{1,64}$"}}}`, ""},
		"Deep":         {not(70), "is nested more than 64 deep"},
		"Large":        {`{"description": "` + strings.Repeat("x", maxSchemaBytes) + `"}`, "bytes, the limit is"},
		"LargePattern": {`{"pattern": "` + strings.Repeat("(a{1000})", 60) + `"}`, "patterns of the schema are too large together"},
		"ManyPatterns": {`{"allOf": [{"pattern": "(a{999})"}` + strings.Repeat(`, {"pattern": "(b{999})"}`, 60) + `]}`, "patterns of the schema are too large together"},
		"Elsewhere":    {`{"$ref": "http://127.0.0.1:9/"}`, "remote schemas are not read"},
		"File":         {`{"$ref": "file:///etc/passwd"}`, "remote schemas are not read"},

		"Words/Type":        {`{"type": "strnig"}`, `this is no JSON Schema: at /type: "strnig" is no type; did you mean "string"?`},
		"Words/NoSuchType":  {`{"items": {"type": "money"}}`, `at /items/type: "money" is no type; there are array, boolean, integer, null, number, object, string`},
		"Words/OneOfTypes":  {`{"type": ["string", "nul"]}`, `at /type/1: "nul" is no type; did you mean "null"?`},
		"Words/TypeNumber":  {`{"type": 7}`, `at /type: this must name a type, not be 7; there are array,`},
		"Words/Property":    {`{"properties": {"color": "string"}}`, `at /properties/color: this must be true or false or an object, not a text; write {"type": "string"}`},
		"Words/Required":    {`{"properties": {"a": {"type": "string", "required": true}}}`, `at /properties/a/required: this must be a list, not true; it lists names, and stands beside properties`},
		"Words/Negative":    {`{"minLength": -1}`, `at /minLength: this must be at least 0`},
		"Words/Two":         {`{"type": "x", "required": "a"}`, `at /required: this must be a list, not a text; it lists names, and stands beside properties; at /type: "x" is no type`},
		"Words/Ref":         {`{"properties": {"a": {"$ref": "#/$defs/b"}}}`, `at /properties/a/$ref: "#/$defs/b" leads to nothing in the schema; what it names has to be there`},
		"Words/Anchor":      {`{"$ref": "#b"}`, `at /$ref: "#b" leads to nothing in the schema`},
		"Words/Elsewhere":   {`{"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}`, `at /properties/a/$ref: "http://127.0.0.1:9/x" lies elsewhere, and remote schemas are not read; put it below $defs and write "#/$defs/NAME"`},
		"Words/Pattern":     {`{"properties": {"a": {"pattern": "("}}}`, `at /properties/a/pattern: a pattern of the schema cannot be used: `},
		"Words/PatternName": {`{"patternProperties": {"(": {}}}`, `at /patternProperties: a pattern of the schema cannot be used: `},
	} {
		t.Run("Compile/"+name, func(t *testing.T) {
			_, err := CompileSchema(t.Context(), json.RawMessage(tc.schema))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
	var chain strings.Builder
	for i := range 40 {
		fmt.Fprintf(&chain, `"a%d": {"allOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}, `, i, i+1, i+1)
	}
	for name, tc := range map[string]struct{ schema, value, want string }{
		"Tree":          {`{"properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}`, `{"l": {"l": {}, "r": {}}, "r": {}}`, ""},
		"Doubling":      {`{"$ref": "#/$defs/a0", "$defs": {` + chain.String() + `"a40": {}}}`, `1`, "too many steps"},
		"DoublingBelow": {`{"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}`, strings.Repeat("[", 60) + strings.Repeat("]", 60), "too many steps"},
		"Endless":       {`{"$ref": "#"}`, `1`, "too many steps"},
		"HugeNumber":    {`{"items": {"type": "integer"}}`, `[1e999999]`, "out of range"},
		"TinyNumber":    {`{"multipleOf": 0.01}`, `1e-999999`, "out of range"},
		"LongNumber":    {`{"type": "integer"}`, strings.Repeat("9", 1000), "out of range"},
		"Fits":          {`{"type": "integer", "minimum": 5}`, `6e2`, ""},
	} {
		t.Run("Check/"+name, func(t *testing.T) {
			s, err := CompileSchema(t.Context(), json.RawMessage(tc.schema))
			require.NoError(t, err)
			err = s.Check(t.Context(), json.RawMessage(tc.value))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// TestSchemasBeyondTheBoundOfAGraph checks that a schema is not compiled if the whole graph is refused
// because of it.
func TestSchemasBeyondTheBoundOfAGraph(t *testing.T) {
	const fit = maxGraphSubschemas / 2_400
	// allocates is the cost of refusing a graph with n schemas of 2,400 subschemas each.
	allocates := func(t *testing.T, n int, broken string) uint64 {
		g := &Graph{}
		for i := range n {
			all := make([]string, 2_400)
			for k := range all {
				all[k] = fmt.Sprintf(`{"minLength": %d}`, k)
			}
			g.Nodes = append(g.Nodes, Node{ID: fmt.Sprintf("n%d", i), Actor: "a", Check: &Check{
				Schema: json.RawMessage(fmt.Sprintf(`{"$id": "s%d", %s "allOf": [%s]}`, i, broken, strings.Join(all, ", "))),
			}})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		faults, err := Validate(t.Context(), g, nil)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.NotEmpty(t, faults)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, broken := range map[string]string{"Compiled": "", "Broken": `"type": "strnig",`} {
		t.Run(name, func(t *testing.T) {
			within, beyond := allocates(t, fit+2, broken), allocates(t, 5*fit, broken)
			require.Less(t, float64(beyond), 2*float64(within))
		})
	}
}
