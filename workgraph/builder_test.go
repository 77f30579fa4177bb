package workgraph

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestBuilder(t *testing.T) {
	t.Parallel()
	retry, over := Retry{MaxAttempts: 5}, Map{Over: "[1]", OnItemError: ContinueItems}
	g := NewBuilder("g").Node("a", "x", Arg(1), Arg(json.RawMessage(`{"b": 2}`)), Named("n", "text"), Named("list", []int{1, 2}),
		WithMap(over), WithRetry(retry), WithOnError(FallbackTo(map[string]bool{"ok": false}))).Graph()
	want := Node{
		ID: "a", Actor: "x", Args: []json.RawMessage{js(1), json.RawMessage(`{"b": 2}`)},
		Named: map[string]json.RawMessage{"n": json.RawMessage(`"text"`), "list": json.RawMessage(`[1,2]`)},
		Map:   &over, Retry: retry, OnError: OnError{Action: Fallback, Value: json.RawMessage(`{"ok":false}`)},
	}
	require.Empty(t, cmp.Diff(want, g.Nodes[0]))
	odd := NewBuilder("g").Node("a", "x", Named("f", func() {})).Graph()
	require.False(t, json.Valid(odd.Nodes[0].Named["f"]), "what cannot be written is not JSON, which the check of the graph tells")
}
