package conns_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conns"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files  uint64
		memory int64
		want   conns.Bounds
	}{
		"FewFiles":      {1024, 0, conns.Bounds{Strangers: 64, Namespace: 256, Total: 512}},
		"LittleMemory":  {20_000, 762 << 20, conns.Bounds{Strangers: 512, Namespace: 2000, Total: 4064}},
		"Least":         {20_000, 16 << 20, conns.Bounds{Strangers: 512, Namespace: 128, Total: 256}},
		"NoLimits":      {1 << 20, 0, conns.Bounds{Strangers: 512, Namespace: 2000, Total: 10922}},
		"EveryFileLeft": {math.MaxUint64, 64 << 30, conns.Bounds{Strangers: 512, Namespace: 2000, Total: 349525}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := conns.Fit(tc.files, tc.memory)
			require.Equal(t, tc.want, got)
			require.Less(t, uint64(3*got.Strangers+got.Total), tc.files-tc.files/4, "files are left for other things")
			require.Less(t, got.Namespace, got.Total)
		})
	}
}
