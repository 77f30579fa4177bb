package memory_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
)

func TestEmbedding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model  string
		values []float32
	}{
		"NoModel": {"", []float32{1}}, "LongModel": {strings.Repeat("m", 129), []float32{1}}, "Breaks": {"a\nb", []float32{1}},
		"NoValues": {"m", nil}, "TooMany": {"m", append(make([]float32, 4096), 1)}, "OnlyZeros": {"m", []float32{0, 0}},
		"NaN": {"m", []float32{float32(math.NaN())}}, "Infinite": {"m", []float32{1, float32(math.Inf(-1))}},
	} {
		t.Run("Refuses/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := memory.NewEmbedding(c.model, c.values)
			require.Equal(t, memory.ReasonInvalid, errs.ReasonOf(err), "%v", err)
		})
	}
	t.Run("Length/IsOne", func(t *testing.T) {
		t.Parallel()
		v, err := memory.NewEmbedding("m", []float32{3e30, 0, -4e30})
		require.NoError(t, err)
		require.InDeltaSlice(t, []float32{0.6, 0, -0.8}, v.Values, 1e-6)
		near, same := v.Similarity(v.Bytes())
		require.True(t, same)
		require.InDelta(t, 1, near, 1e-6)
		_, same = v.Similarity(v.Bytes()[4:])
		require.False(t, same, "of other dimensions")
	})
	t.Run("Similar/KeepsTheBest", func(t *testing.T) {
		t.Parallel()
		var s memory.Similar
		for i := range 3000 {
			s.Add(memory.Hit{Entry: memory.Entry{ID: fmt.Sprint(i)}, Similarity: float64((i * 7) % 3000)})
		}
		best := s.Best()
		require.Len(t, best, memory.MaxSimilar)
		for i, h := range best {
			require.InDelta(t, 2999-i, h.Similarity, 0)
		}
	})
}

func TestFuse(t *testing.T) {
	t.Parallel()
	hits := func(ids ...string) (out []memory.Hit) {
		for _, id := range ids {
			out = append(out, memory.Hit{Entry: memory.Entry{ID: id}})
		}
		return out
	}
	for name, c := range map[string]struct {
		words, meaning []memory.Hit
		want           string
	}{
		"InBothIsFirst": {hits("a", "both"), hits("b", "both"), "both b a"},
		"WordsAlone":    {hits("a", "b"), nil, "a b"},
		"MeaningAlone":  {nil, hits("a", "b"), "a b"},
		"PlacesCount":   {hits("a", "b", "c"), hits("c", "b", "a"), "c a b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, h := range memory.Fuse(c.words, c.meaning) {
				got = append(got, h.Entry.ID)
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}
