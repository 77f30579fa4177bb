package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
)

// TestGradualRollout gives an alias to two versions by weight.
func TestGradualRollout(t *testing.T) {
	t.Parallel()
	const users = 10_000
	alias := func(weights ...int64) *catalog.Workflow {
		w := catalog.New("acme", time.Time{}, "")
		w.ID = "wf_1" // chooses together with the key
		var to []catalog.Weight
		for i, n := range weights {
			to = append(to, catalog.Weight{Version: int64(i + 1), Weight: n})
		}
		require.NoError(t, w.SetAlias("prod", to))
		return &w
	}
	draw := func(t *testing.T, w *catalog.Workflow) map[string]int64 {
		t.Helper()
		out := map[string]int64{}
		for i := range users {
			user := fmt.Sprint("user", i)
			n, err := w.Pick(catalog.Ref{Name: "w", Alias: "prod"}, user)
			require.NoError(t, err)
			out[user] = n
		}
		return out
	}
	count := func(of map[string]int64, version int64) (n int) {
		for _, v := range of {
			if v == version {
				n++
			}
		}
		return n
	}
	t.Run("Shares/AreThoseOfTheWeights", func(t *testing.T) {
		t.Parallel()
		require.InDelta(t, users/10, count(draw(t, alias(90, 10)), 2), users/50)
	})
	t.Run("Users/HaveTheSameVersionEachTime", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, draw(t, alias(90, 10)), draw(t, alias(90, 10)), "nothing but the key, the workflow and the alias decides")
	})
	t.Run("Weights/Changed/NobodyGoesBack", func(t *testing.T) {
		t.Parallel()
		before, after := draw(t, alias(90, 10)), draw(t, alias(50, 50))
		require.InDelta(t, users/2, count(after, 2), users/50)
		for user, version := range before {
			if version == 2 {
				require.EqualValues(t, 2, after[user], "who had the new version keeps it")
			}
		}
	})
	t.Run("Versions/OfOneAlias/AreDrawnApartFromThoseOfAnother", func(t *testing.T) {
		t.Parallel()
		w := alias(50, 50)
		require.NoError(t, w.SetAlias("beta", []catalog.Weight{{Version: 1, Weight: 50}, {Version: 2, Weight: 50}}))
		same := 0
		for user, version := range draw(t, w) {
			n, err := w.Pick(catalog.Ref{Name: "w", Alias: "beta"}, user)
			require.NoError(t, err)
			if n == version {
				same++
			}
		}
		require.InDelta(t, users/2, same, users/20)
	})
}
