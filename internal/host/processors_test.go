package host_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/host"
)

func TestSpareThreads(t *testing.T) { //nolint:paralleltest // the number is the process's
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	t.Run("GOMAXPROCS/Holds", func(t *testing.T) { //nolint:paralleltest // see above
		host.SpareThreads(func(string) string { return "3" })
		require.Equal(t, was, runtime.GOMAXPROCS(0))
	})
	t.Run("MoreThanProcessors", func(t *testing.T) { //nolint:paralleltest // see above
		host.SpareThreads(func(string) string { return "" })
		require.Greater(t, runtime.GOMAXPROCS(0), host.Processors())
		require.Equal(t, was, host.Processors())
	})
}
