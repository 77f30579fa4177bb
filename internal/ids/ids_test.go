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
	t.Run("Generator/AscendsWhenTheClockStepsBack", func(t *testing.T) {
		g := ids.NewGenerator(nil)
		at := time.UnixMilli(1_700_000_000_000)
		last := ""
		for i := range 200 {
			id, err := g.At("tk", at.Add(time.Duration(i%3-1)*time.Millisecond))
			require.NoError(t, err)
			require.Greater(t, id, last)
			last = id
		}
	})
	t.Run("Generator/BorrowsTheNextMillisecondWhenOneIsUsedUp", func(t *testing.T) {
		// The highest entropy leaves no room for a second id in the same millisecond.
		g := ids.NewGenerator(&full{})
		at := time.UnixMilli(1_700_000_000_000)
		first, err := g.At("tk", at)
		require.NoError(t, err)
		second, err := g.At("tk", at)
		require.NoError(t, err)
		require.Greater(t, second, first)
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

// full draws the highest entropy once, and small numbers from then on.
type full struct{ drawn bool }

func (f *full) Read(p []byte) (int, error) {
	fill := byte(1)
	if !f.drawn {
		fill, f.drawn = 0xff, true
	}
	for i := range p {
		p[i] = fill
	}
	return len(p), nil
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
