package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
)

func TestChoices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema, words, label, labeled string
		n                             int
		multiple                      bool
	}{
		"Plain":    {schema: `{"enum": ["red", 7]}`, words: "red|7", n: 2},
		"Labeled":  {schema: `{"enum": ["r", "b"], "enumNames": ["Red", "Blue"]}`, words: "r|b", label: "blue", labeled: `"b"`, n: 2},
		"Several":  {schema: `{"type": "array", "items": {"enum": ["r"], "enumNames": ["Red"]}}`, words: "r", label: "Red", labeled: `["r"]`, n: 1, multiple: true},
		"Spaces":   {schema: `{"enum": ["dark red"]}`, words: "VALUE", n: 1},
		"Digits":   {schema: `{"enum": ["7"]}`, words: "7", label: "7", labeled: `"7"`, n: 1},
		"FreeForm": {schema: `{"type": "object"}`, words: "VALUE"},
		"List":     {schema: `{"type": "array"}`, words: "VALUE"},
		"Boolean":  {schema: `true`, words: "VALUE"},
		"None":     {words: "VALUE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := view.ChoicesOf([]byte(c.schema))
			require.Len(t, got.List, c.n)
			require.Equal(t, c.multiple, got.Multiple)
			require.Equal(t, c.words, got.Words("VALUE"))
			v, ok := got.Named(c.label)
			require.Equal(t, c.labeled != "", ok)
			require.Equal(t, c.labeled, string(v))
		})
	}
}
