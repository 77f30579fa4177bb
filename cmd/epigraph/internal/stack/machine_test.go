package stack_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/host"
)

func TestFitMachine(t *testing.T) { //nolint:paralleltest // limits and threads are the process's
	limit, gc, procs := debug.SetMemoryLimit(-1), debug.SetGCPercent(100), runtime.GOMAXPROCS(0)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(gc)
		runtime.GOMAXPROCS(procs)
	})
	t.Setenv("GOMEMLIMIT", "8GiB") // as the runtime reads it at the start of a process
	t.Setenv("GOGC", "")
	t.Setenv("GOMAXPROCS", "")
	debug.SetMemoryLimit(8 << 30)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stack.FitMachine(ctx)

	t.Run("Collector/HasRoomBelowTheLimit", func(t *testing.T) { //nolint:paralleltest // as above
		require.Equal(t, 400, debug.SetGCPercent(400))
	})
	t.Run("Threads/SomeAreSpare", func(t *testing.T) { //nolint:paralleltest // as above
		require.Greater(t, runtime.GOMAXPROCS(0), host.Processors())
	})
}
