package ids_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
)

func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("New/ValidAndDated", func(t *testing.T) {
		before := time.Now().Truncate(time.Millisecond)
		id := ids.New("run")
		require.True(t, strings.HasPrefix(id, "run_0"), id)
		require.True(t, ids.Valid("run", id))
		at, ok := ids.Time("run", id)
		require.True(t, ok)
		require.WithinDuration(t, before, at, time.Second)
	})
	t.Run("New/ConcurrentIdsAreUniqueAndOrderedPerCaller", func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var mine []string
				for range 500 {
					mine = append(mine, ids.New("ep"))
				}
				mu.Lock()
				defer mu.Unlock()
				for _, id := range mine {
					seen[id] = true
				}
				require.True(t, slices.IsSorted(mine))
			})
		}
		wg.Wait()
		require.Len(t, seen, 8*500)
	})
	t.Run("Generator/SameMillisecondAscends", func(t *testing.T) {
		g := ids.NewGenerator(nil)
		at := time.UnixMilli(1_700_000_000_000)
		last := ""
		for range 100 {
			id, err := g.At("tk", at)
			require.NoError(t, err)
			require.Greater(t, id, last)
			last = id
		}
	})
}

func TestValid(t *testing.T) {
	t.Parallel()
	good := ids.New("run")
	for name, s := range map[string]string{
		"Empty": "", "PrefixOnly": "run_", "OtherPrefix": strings.Replace(good, "run", "thr", 1), "UpperCase": strings.ToUpper(good),
		"UpperBody": "run_" + strings.ToUpper(good[4:]), "TooShort": good[:len(good)-1], "TooLong": good + "0",
		"BadLetter": good[:len(good)-1] + "u", "Overflow": "run_8zzzzzzzzzzzzzzzzzzzzzzzzz",
	} {
		t.Run(name, func(t *testing.T) { require.False(t, ids.Valid("run", s), s) })
	}
}
