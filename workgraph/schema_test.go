package workgraph

import (
	"encoding/json"
	"fmt"
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
