package workgraph

import (
	"encoding/json"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func FuzzSplitObject(f *testing.F) {
	for _, text := range []string{`{}`, ` { } `, `{"a":1}`, "{\n\"a\" :\t[1, {\"b\": \"]}\"}] , \"b\\\"\\u00e9\": \"x\\\\\" ,\"c\":{\"d\":{}},\"a\":-1.50e2 }", `{"n":null,"t":true,"":""}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return
		}
		require.Equal(t, want, splitObject(raw))
	})
}

// What MERGE passes on of a result is the result itself: agents pass prompts so, and would keep each twice.
func TestMergeOfResult(t *testing.T) {
	t.Parallel()
	for expr, shared := range map[string]bool{
		"{'args': [], 'named': result}":                                true,
		"result.big > 1 ? {'named': dyn(result)} : {'named': dyn({})}": true,
		"{'named': {'text': result.text}}":                             false,
		"{'args': [result.big], 'named': {'x': [1]}}":                  false,
	} {
		g := &Graph{Nodes: []Node{{ID: "a", Actor: "noop"}, {ID: "b", Actor: "noop"}}, Edges: []Edge{{From: "a", To: "b", PassDown: Merge(expr)}}}
		p, err := Compile(t.Context(), g, Actors{"noop": noop})
		require.NoError(t, err)
		s := New(p, "run")
		_, fx, err := s.Advance(Begin{})
		require.NoError(t, err)
		result := json.RawMessage(`{"text": "a <b>\n", "big": 9007199254740993, "exact": 1.50}`)
		_, fx, err = s.Advance(Ended{Ref: fx.Starts[0].Ref, Attempt: 1, Outcome: &Outcome{Values: []json.RawMessage{result}}})
		require.NoError(t, err)
		named := fx.Starts[0].Named
		if !shared {
			require.NotContains(t, named, "exact", expr)
			continue
		}
		require.Equal(t, map[string]json.RawMessage{"text": json.RawMessage(`"a <b>\n"`), "big": json.RawMessage("9007199254740993"), "exact": json.RawMessage("1.50")}, named, expr)
		require.Equal(t, unsafe.SliceData(result[9:]), unsafe.SliceData(named["text"]), expr)
	}
}
