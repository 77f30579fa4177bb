package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestAnswer(t *testing.T) {
	t.Parallel()
	var a answer
	for _, field := range []string{"", "name", "items[1].price", "page.title"} {
		require.True(t, a.add(field), field)
	}
	for _, field := range []string{"items.first", "page[0]", "[0]", "many[100]"} {
		require.False(t, a.add(field), field)
	}
	require.JSONEq(t, `{"name": "done", "items": ["done", {"price": "done"}], "page": {"title": "done"}, "many": "done", "words": "word"}`, a.text(2))
	require.InDelta(t, 400, len(a.text(100)), 20)
}

// TestMeasure plays two plans as fast as it goes: one whose tools ask for parts of results, and one that a
// model works on.
func TestMeasure(t *testing.T) {
	t.Parallel()
	data := testkit.GzipLines(t,
		record{ID: "tools", Family: "tools", Raw: `[{"id": "a", "request": "find", "tool": "search", "args": {"q": "x"}, "needs": []}, {"id": "b", "request": "read", "tool": "open", "args": {"url": "$a.hits[0].url"}, "needs": ["a"]}]`},
		record{ID: "words", Family: "words", Raw: `[{"id": "a", "request": "think", "needs": []}, {"id": "b", "request": "say", "needs": ["a"]}]`})
	var out bytes.Buffer
	require.NoError(t, measure(t.Context(), &out, options{data: data, plans: 2, pace: 100_000, answer: 90, parallel: 2}))
	require.Contains(t, out.String(), "2 plans at 100000 tokens a second")
}
