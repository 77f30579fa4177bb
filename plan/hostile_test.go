package plan_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

// TestHostileTexts compares the allocations for a text that breaks careless readers with those for one four
// times as long. They may grow only in proportion, except for the cost of nesting, which is at most 200
// levels deep. BenchmarkHostile shows the same for the time.
func TestHostileTexts(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	work := func(text string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan.Parse(text)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	shapes := plantest.HostileShapes()
	for i, name := range slices.Sorted(maps.Keys(shapes)) {
		if underRace && i%8 > 0 {
			continue
		}
		few, many := work(shapes[name](1<<10)), work(shapes[name](1<<12))
		require.Less(t, many, 7*few+2<<20, "%s: %d bytes became %d", name, few, many)
	}
	for _, dialect := range plan.Dialects() {
		for _, u := range plantest.HostileUnits() {
			plan.Parse(strings.Repeat(u, 1+200/len(u)), plan.WithDialect(dialect))
		}
		if underRace {
			break
		}
	}
}

// BenchmarkHostile reads texts that break careless readers. Equal MB/s at all sizes shows that the time is
// linear.
func BenchmarkHostile(b *testing.B) {
	shapes := plantest.HostileShapes()
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				text := shapes[name](size)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					plan.Parse(text)
				}
			})
		}
	}
}
