package load_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/bench/load"
)

func TestGraphs(t *testing.T) {
	chain, fan, layers := load.Chain(5), load.Fan(7), load.Layers(4, 5, 50*time.Millisecond)
	require.Equal(t, 5, chain.Levels())
	require.Len(t, fan.Nodes, 9)
	require.Equal(t, []int{8}, fan.Sinks())
	require.Len(t, layers.Nodes, 20)
	require.Equal(t, 200*time.Millisecond, layers.CriticalPath())
	require.Len(t, layers.Sinks(), 5)
}

func TestResult(t *testing.T) {
	now := time.Now()
	r := load.Result(now)
	require.Len(t, r, load.ResultSize)
	began, err := load.Began(r)
	require.NoError(t, err)
	require.Equal(t, now.UnixNano(), began.UnixNano())
	_, err = load.Began([]byte("null"))
	require.Error(t, err)
}
