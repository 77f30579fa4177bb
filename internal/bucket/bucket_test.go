package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/bucket"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	// each runs with buckets of 3 tokens, to which 2 a second are added, and of which 2 are kept.
	each := func(name string, f func(t *testing.T, b *bucket.Buckets[string], taken func(key string, tries int) int)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := bucket.New[string](2, 3, 2)
				f(t, b, func(key string, tries int) (n int) {
					for range tries {
						if b.Take(key) {
							n++
						}
					}
					return n
				})
			})
		})
	}
	each("Burst/IsAllThereIs", func(t *testing.T, _ *bucket.Buckets[string], taken func(string, int) int) {
		require.Equal(t, 3, taken("a", 10))
	})
	each("Keys/HaveBucketsOfTheirOwn", func(t *testing.T, _ *bucket.Buckets[string], taken func(string, int) int) {
		require.Equal(t, 3, taken("a", 10))
		require.Equal(t, 3, taken("b", 10))
	})
	each("Time/Fills", func(t *testing.T, _ *bucket.Buckets[string], taken func(string, int) int) {
		taken("a", 10)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		require.Equal(t, 2, taken("a", 10))
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		require.Equal(t, 3, taken("a", 10), "never above the burst")
	})
	each("Left/CountsRefusalsOnce", func(t *testing.T, b *bucket.Buckets[string], taken func(string, int) int) {
		taken("a", 10)
		require.EqualValues(t, 7, b.Left("a"))
		require.Zero(t, b.Left("a"))
		require.Zero(t, b.Left("unseen"))
	})
	each("Give/GivesBack", func(t *testing.T, b *bucket.Buckets[string], taken func(string, int) int) {
		taken("a", 10)
		b.Give("a")
		require.Equal(t, 1, taken("a", 10))
		b.Give("b")
		require.Equal(t, 3, taken("b", 10), "never above the burst")
	})
	each("Forgotten/BeginsFull", func(t *testing.T, _ *bucket.Buckets[string], taken func(string, int) int) {
		taken("a", 10)
		taken("b", 1)
		taken("c", 1)
		require.Equal(t, 3, taken("a", 10))
	})
}
