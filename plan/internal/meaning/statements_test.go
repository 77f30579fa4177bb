package meaning

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// TestStatements reads lists whose steps are told apart from what they wait for, and lists with struck and
// faulty parts.
func TestStatements(t *testing.T) {
	steps := "1. dig the pond\n2. line it\n3. fill it\n\n"
	for _, c := range []struct{ text, ids, links string }{
		{steps + "Order constraints:\n- 2 requires 1\n- 3 has to wait for 2\n", "1 2 3", "1>2 2>3"},
		{steps + "1 can start right away; 2 comes after 1; 3 depends on 1.\n", "1 2 3", "1>2 1>3"},
		{"1. couper\n2. trier\n3. ranger\n\n3 ne peut commencer qu'après 2; 2 ne dépend de rien.\n", "1 2 3", "2>3"},
		{"1. dig (needs 1)\n2. line it (needs 1)\n3. fill it (needs 2)\n", "1 2 3", "1>1 1>2 2>3"},
		{"1. dig\n2. ~~line it, after 1~~\n3. fill it, after ~~1~~ 2\n", "1 3", "1>3"},
		{"1단계: 설계\n2단계: 개발 (1단계 완료 후)\n3단계: 시험 (2단계 완료 후)\n", "1 2 3", "1>2 2>3"},
		{"AB-1: bake\nAB-2: slice (after AB-1)\nAB-3: serve (after AB-2 and AB-90)\n", "AB-1 AB-2 AB-3", "AB-1>AB-2 AB-2>AB-3 AB-90>AB-3"},
	} {
		src := form.NewSource(c.text)
		src.MaxDepth, src.MaxItems, src.Ended = 64, 1000, func() bool { return false }
		all := Read(src)
		require.NotEmpty(t, all, c.text)
		ids, links := "", ""
		for _, it := range all[0].Items {
			ids += " " + it.ID
		}
		for _, l := range all[0].Links {
			links += " " + l.From + ">" + l.To
		}
		require.Equal(t, " "+c.ids, ids, c.text)
		require.Equal(t, " "+c.links, links, c.text)
	}
}
