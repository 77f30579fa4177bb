package memlimit

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRespect(t *testing.T) { //nolint:paralleltest // the limit is the process's
	limit, gc := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	debug.SetGCPercent(gc)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(gc)
	})
	const gib = 1 << 30
	contained := func(n uint64) func() (uint64, error) { return func() (uint64, error) { return n, nil } }
	for _, c := range []struct {
		name      string
		env       map[string]string
		container func() (uint64, error)
		// before is what the runtime made of GOMEMLIMIT and GOGC.
		before int64
		gc     int
		want   Settings
	}{
		{"Container", nil, contained(gib), math.MaxInt64, 100, Settings{gib / 5 * 4, "container", roomyGC}},
		{"NoContainer", nil, func() (uint64, error) { return 0, errors.New("no cgroup") }, math.MaxInt64, 100, Settings{0, "none", 100}},
		{"Unlimited", nil, contained(math.MaxUint64), math.MaxInt64, 100, Settings{0, "none", 100}},
		{"EnvironmentGoesFirst", map[string]string{"GOMEMLIMIT": "2GiB"}, contained(gib), 2 * gib, 100, Settings{2 * gib, "GOMEMLIMIT", roomyGC}},
		{"SwitchedOff", map[string]string{"GOMEMLIMIT": "off"}, contained(gib), math.MaxInt64, 100, Settings{0, "none", 100}},
		{"OwnCollection", map[string]string{"GOGC": "50"}, contained(gib), math.MaxInt64, 50, Settings{gib / 5 * 4, "container", 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			debug.SetMemoryLimit(c.before)
			debug.SetGCPercent(c.gc)
			got := respect(func(k string) string { return c.env[k] }, c.container)
			require.InDelta(t, c.want.Limit, got.Limit, 4)
			got.Limit = c.want.Limit
			require.Equal(t, c.want, got)
			require.InDelta(t, c.want.Limit, Bytes(), 4)
		})
	}
}
