package tell

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMake(t *testing.T) {
	all, err := Make(1, 4000)
	require.NoError(t, err)
	again, err := Make(1, 400)
	require.NoError(t, err)
	require.Equal(t, all[:400], again)
	ids := map[string]bool{}
	for _, x := range all {
		require.False(t, ids[x.ID], x.ID)
		ids[x.ID] = true
		known := map[string]bool{}
		for _, n := range x.Nodes {
			known[n] = true
		}
		edges := map[Edge]bool{}
		for _, e := range x.Edges {
			require.False(t, edges[e], "%s: the edge %v twice", x.ID, e)
			edges[e] = true
			if len(x.Report) == 0 {
				require.True(t, known[e[0]] && known[e[1]] && e[0] != e[1], "%s: %v", x.ID, e)
			}
		}
		require.NotContains(t, x.Body, "%!", x.ID)
	}
}
