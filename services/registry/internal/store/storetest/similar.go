package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// similarDimensions are those of the vectors of BenchSimilar.
const similarDimensions = 768

// processorTime is what this process has used of processors: it says more than the time on a busy machine.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchSimilar is a search by meaning in one scope of so many entries, without words. The scope of a
// namespace holds 10,000; 100,000 are more than one search compares.
func BenchSimilar(b *testing.B, open Open) {
	f := newFixture(b, open)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same vectors in each run
	any768 := func() *memory.Embedding {
		values := make([]float32, similarDimensions)
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		return vector(b, "m", values...)
	}
	there := 0
	for _, entries := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(entries), func(b *testing.B) {
			for there < entries {
				err := f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
					for i := range 500 {
						e, err := memory.New(ns, memory.Entry{Scope: everybody(), Key: fmt.Sprint(there + i), Text: "x", Confidence: 1, Origin: memory.ByRun, Vector: any768()}, dbkit.Now())
						if err != nil {
							return err
						}
						if _, err := tx.InsertMemory(ctx, e); err != nil {
							return err
						}
					}
					return nil
				})
				require.NoError(b, err)
				there += 500
			}
			q := memory.Query{Namespace: ns, Scopes: []memory.Scope{everybody()}, Vector: any768(), Limit: 10}
			compared := min(entries, memory.DefaultBounds().Compared/q.Vector.Size())
			b.SetBytes(int64(compared * q.Vector.Size()))
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime(b)
			for b.Loop() {
				found, err := f.memories().Search(f.ctx, q, memory.Read{})
				require.NoError(b, err)
				require.Len(b, found.Hits, 10)
				require.Equal(b, entries-compared, found.NotCompared)
			}
			b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}
