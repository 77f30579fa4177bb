package generate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMake(t *testing.T) {
	all, err := Texts(1, 4000)
	require.NoError(t, err)
	t.Run("Texts/SameSeed", func(t *testing.T) {
		again, err := Texts(1, 400)
		require.NoError(t, err)
		require.Equal(t, all[:400], again)
	})
	t.Run("Texts/TruthIsWellFormed", func(t *testing.T) {
		ids := map[string]bool{}
		for _, x := range all {
			require.False(t, ids[x.ID], x.ID)
			ids[x.ID] = true
			require.NotContains(t, x.Body, "%!", x.ID)
			require.NotContains(t, x.Body, "{r}", x.ID)
			require.NotContains(t, x.Body, "{t}", x.ID)
			known, edges := map[string]bool{}, map[Edge]bool{}
			for _, n := range x.Nodes {
				known[n] = true
			}
			for _, e := range x.Edges {
				require.False(t, edges[e], "%s: the edge %v twice", x.ID, e)
				edges[e] = true
				require.True(t, known[e[0]] && known[e[1]] && e[0] != e[1], "%s: %v", x.ID, e)
			}
		}
	})
	t.Run("Texts/Coverage", func(t *testing.T) {
		styles, langs, pairs, damaged, none := map[string][2]int{}, map[string]int{}, map[string]bool{}, 0, 0
		for _, x := range all {
			c := styles[x.Style]
			if x.HeldOut() {
				c[1]++
			} else {
				c[0]++
			}
			styles[x.Style] = c
			langs[x.Lang]++
			pairs[x.Style+x.Lang] = true
			if x.Note != "" {
				damaged++
			}
			if x.NoPlan {
				none++
			}
		}
		require.GreaterOrEqual(t, len(styles), 30)
		require.Len(t, langs, 19)
		require.Greater(t, len(pairs), 400)
		for s, c := range styles {
			require.Positive(t, min(c[0], c[1]), s)
		}
		require.InDelta(t, 0.35, float64(langs["en"])/4000, 0.05)
		require.InDelta(t, 0.25, float64(damaged)/4000, 0.08)
		require.InDelta(t, 0.12, float64(none)/4000, 0.02)
	})
}

func TestLanguages(t *testing.T) {
	langs, err := languages()
	require.NoError(t, err)
	for _, l := range langs {
		require.GreaterOrEqual(t, len(l.domains), 4, l.code)
		for _, d := range l.domains {
			tasks := 0
			for _, h := range d {
				tasks += len(h.first) * len(h.second)
			}
			require.GreaterOrEqual(t, tasks, 17, l.code)
		}
		for _, s := range []string{"one", "many"} {
			require.GreaterOrEqual(t, len(l.phrases[s]), 8, l.code+" "+s)
		}
		for section := range langs["de"].phrases {
			if section != "drop" && section != "poem" && section != "spelled" {
				require.NotEmpty(t, l.phrases[section], l.code+" "+section)
			}
		}
	}
}
