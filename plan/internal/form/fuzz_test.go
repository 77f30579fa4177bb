package form_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readValues reads a text in every notation of values.
func readValues(text string) int {
	src := form.NewSource(text)
	n := len(form.Bracketed(text, src.MaxDepth)) + len(form.YAML(src)) + len(form.XML(src)) + len(form.Tables(src))
	return n + len(form.Nests(src))
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{"a:\n  - b: [c, d\n", "<a b='c'><d>e</a>", "|a|b|\n|-|-|\n|c|d", "id;x\n1;\"a;b\"\n", "f(g(h(\"x\")))", "{'a': [1, None,]}"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) { readValues(s) })
}

func TestValuesAreReadInLinearTime(t *testing.T) {
	for _, part := range []string{"a: [", "- - ", "<a>", "<a b=", "\"x", "f(", "| a ", "a;\"b\n", "{[", "a: |\n", "  x\n"} {
		start := time.Now()
		readValues(strings.Repeat(part, 200_000/len(part)))
		require.Less(t, time.Since(start), 2*time.Second, part)
	}
}
