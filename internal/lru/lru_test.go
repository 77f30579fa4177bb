package lru_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/lru"
)

// has lists those of the keys that are there, and uses them.
func has(c *lru.Cache[string, int], keys ...string) (out []string) {
	for _, k := range keys {
		if _, ok := c.Get(k); ok {
			out = append(out, k)
		}
	}
	return out
}

func TestCache(t *testing.T) {
	t.Parallel()
	t.Run("Put/ForgetsWhatWasNotUsedLongest", func(t *testing.T) {
		c := lru.New[string, int](3)
		for i, k := range []string{"a", "b", "c"} {
			c.Put(k, i, 1)
		}
		c.Get("a")
		c.Put("d", 3, 1)
		require.Equal(t, []string{"a", "c", "d"}, has(c, "a", "b", "c", "d"))
	})
	t.Run("Put/ForgetsAsManyAsWeighIt", func(t *testing.T) {
		c := lru.New[string, int](4)
		for i, k := range []string{"a", "b", "c"} {
			c.Put(k, i, 1)
		}
		c.Put("d", 3, 3)
		require.Equal(t, []string{"c", "d"}, has(c, "a", "b", "c", "d"))
		require.EqualValues(t, 4, c.Weight())
	})
	t.Run("Put/ReplacesAndCountsTheNewWeight", func(t *testing.T) {
		c := lru.New[string, int](4)
		c.Put("a", 1, 3)
		c.Put("a", 2, 1)
		v, ok := c.Get("a")
		require.True(t, ok)
		require.Equal(t, 2, v)
		require.EqualValues(t, 1, c.Weight())
		require.Equal(t, 1, c.Len())
	})
	t.Run("Put/TooHeavyIsNotKeptAndForgetsNoOther", func(t *testing.T) {
		c := lru.New[string, int](4)
		c.Put("a", 1, 1)
		c.Put("b", 2, 5)
		require.Equal(t, []string{"a"}, has(c, "a", "b"))
	})
	t.Run("Put/TooHeavyForgetsWhatItWouldReplace", func(t *testing.T) {
		c := lru.New[string, int](4)
		c.Put("a", 1, 1)
		c.Put("a", 2, 5)
		require.Zero(t, c.Len())
		require.Zero(t, c.Weight())
	})
	t.Run("Delete/GivesBackTheWeight", func(t *testing.T) {
		c := lru.New[string, int](4)
		c.Put("a", 1, 4)
		c.Delete("a")
		c.Delete("a")
		c.Put("b", 2, 4)
		require.Equal(t, []string{"b"}, has(c, "a", "b"))
	})
	t.Run("OnDrop/IsToldOfAllThatLeaves", func(t *testing.T) {
		c := lru.New[string, int](2)
		var gone []string
		c.OnDrop(func(k string, v int) { gone = append(gone, fmt.Sprint(k, v)) })
		c.Put("a", 1, 1)
		c.Put("a", 2, 1)
		c.Put("b", 3, 1)
		c.Put("c", 4, 1)
		c.Delete("b")
		require.Equal(t, []string{"a1", "a2", "b3"}, gone)
	})
}

// TestCacheAgreesWithAList does the same with a list of keys, the last used at its end.
func TestCacheAgreesWithAList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(0, 20).Draw(t, "most")
		c := lru.New[int, int64](most)
		var keys []int
		weights := map[int]int64{}
		drop := func(key int) {
			for i, k := range keys {
				if k == key {
					keys = append(keys[:i:i], keys[i+1:]...)
				}
			}
			delete(weights, key)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			switch weight := rapid.Int64Range(-8, 8).Draw(t, "weight"); {
			case weight == -1:
				c.Delete(key)
				drop(key)
			case weight < 0:
				got, ok := c.Get(key)
				want, kept := weights[key]
				require.Equal(t, kept, ok)
				require.Equal(t, want, got)
				if kept {
					drop(key)
					keys, weights[key] = append(keys, key), want
				}
			default:
				c.Put(key, weight, weight)
				drop(key)
				if weight <= most {
					keys, weights[key] = append(keys, key), weight
				}
			}
			var sum int64
			for _, w := range weights {
				sum += w
			}
			for ; sum > most; drop(keys[0]) {
				sum -= weights[keys[0]]
			}
			require.Equal(t, sum, c.Weight())
			require.Equal(t, len(keys), c.Len())
		}
	})
}

func BenchmarkCache(b *testing.B) {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d-of-some-length", i)
	}
	for name, most := range map[string]int64{"Hit": 1000, "Miss": 500} {
		b.Run(name, func(b *testing.B) {
			c := lru.New[string, []byte](most)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := keys[i%len(keys)]
				if _, ok := c.Get(k); !ok {
					c.Put(k, nil, 1)
				}
			}
		})
	}
}
