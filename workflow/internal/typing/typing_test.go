package typing_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
)

func TestOfSchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"string"}`:                                 "a text",
		`{"type":"integer"}`:                                "a whole number",
		`{"type":"number"}`:                                 "a number",
		`{"type":["string","null"]}`:                        "a text or nothing",
		`{"type":["array","object","boolean"]}`:             "true or false, a list or keys and values",
		`{"type":["string","new"]}`:                         "anything",
		`{"enum":["a","b"]}`:                                "a text",
		`{"enum":["a",1,null]}`:                             "a text, a whole number or nothing",
		`{"const":1.5}`:                                     "a number",
		`{"properties":{"a":{}}}`:                           "anything",
		`{"type":"string","anyOf":[{"type":"string"}]}`:     "anything",
		`{"$ref":"#/$defs/x","type":"string"}`:              "anything",
		`true`:                                              "anything",
		`{"type":"integer","enum":["it is not looked at"]}`: "a whole number",
	} {
		require.Equal(t, want, typing.OfSchema(json.RawMessage(schema)).String(), schema)
	}
	in := typing.OfSchema(json.RawMessage(`{"type":"object","properties":{"list":{"type":"array","items":{"type":"object","properties":{"n":{"type":"number"}},"additionalProperties":true}}}}`))
	require.False(t, in.Fields.Open, "a schema that says nothing of other properties means that there are none")
	require.Equal(t, []string{"list"}, in.Fields.Names())
	require.True(t, in.Fields.Of["list"].Items.Fields.Open)
	require.Equal(t, "a number", in.Fields.Of["list"].Items.Fields.Of["n"].String())
}

func TestOr(t *testing.T) {
	t.Parallel()
	text, n := typing.Of(typing.String), typing.Of(typing.Integer)
	require.Equal(t, "a text or a whole number", text.Or(n).String())
	require.Equal(t, "anything", text.Or(typing.Type{}).String())
	require.Equal(t, "a text or a whole number", typing.List(text).Or(typing.List(n)).Items.String())
	one := typing.Record(map[string]typing.Type{"a": text})
	require.Same(t, one.Fields, one.Or(n).Fields)
	require.Nil(t, one.Or(typing.Record(map[string]typing.Type{"b": n})).Fields, "of two records nothing is said")
	deep := text
	for range 100 {
		deep = typing.List(deep)
	}
	other := n
	for range 100 {
		other = typing.List(other)
	}
	require.True(t, deep.Or(other).May(typing.Array))
}

// TestMay holds of what is known and of what is not.
func TestFits(t *testing.T) {
	t.Parallel()
	text := typing.Of(typing.String)
	messages := typing.List(typing.Record(map[string]typing.Type{"from": text, "text": text}))
	for name, c := range map[string]struct {
		schema string
		given  typing.Type
		want   bool
	}{
		"Text":                {`{"type": "string"}`, text, true},
		"Anything":            {`{}`, text, true},
		"OneOfTwo":            {`{"type": ["string", "null"]}`, text, true},
		"NumberForText":       {`{"type": "integer"}`, text, false},
		"List":                {`{"type": "array"}`, messages, true},
		"TextForList":         {`{"type": "string"}`, messages, false},
		"ListOfObjects":       {`{"type": "array", "items": {"type": "object"}}`, messages, true},
		"ListOfTexts":         {`{"type": "array", "items": {"type": "string"}}`, messages, false},
		"ListOfSuchObjects":   {`{"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}}`, messages, true},
		"ListOfOtherObjects":  {`{"type": "array", "items": {"type": "object", "properties": {"text": {"type": "integer"}}}}`, messages, false},
		"FieldThatIsNotThere": {`{"type": "array", "items": {"type": "object", "properties": {"role": {"type": "integer"}}}}`, messages, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, typing.OfSchema([]byte(c.schema)).Fits(c.given))
		})
	}
}

func TestMay(t *testing.T) {
	t.Parallel()
	require.True(t, typing.Type{}.May(typing.String))
	require.True(t, typing.Of(typing.Number).May(typing.Integer), "a number may be a whole one")
	require.False(t, typing.Of(typing.Fraction).May(typing.Integer))
	require.False(t, typing.Of(typing.Object).May(typing.Array|typing.String))
}

// FuzzOfSchema looks for schemas that refuse a value by its kind which is one of theirs by name.
func FuzzOfSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":["string","null"]}}}`)
	f.Add(`{"enum":[1,"a",{}]}`)
	f.Add(`{"items":{"items":{"type":"array"}},"type":"array"}`)
	f.Fuzz(func(t *testing.T, schema string) {
		got := typing.OfSchema(json.RawMessage(schema))
		require.NotEmpty(t, got.String())
		require.Equal(t, got.Kinds == typing.Any, got.Or(typing.Of(typing.Null)).Kinds == typing.Any)
	})
}
