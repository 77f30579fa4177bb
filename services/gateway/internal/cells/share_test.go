package cells

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/turns"
)

// TestShares has one namespace fill what it may have under way to a service, and holds that another's calls
// pass.
func TestShares(t *testing.T) {
	l := &lane{Options: Options{MaxInFlight: 10}, shares: turns.New(5)}
	var leave []func()
	for range 5 {
		free, ok := l.enter("a")
		require.True(t, ok)
		leave = append(leave, free)
	}
	_, ok := l.enter("a")
	require.False(t, ok)
	for range 5 {
		free, ok := l.enter("b")
		require.True(t, ok)
		leave = append(leave, free)
	}
	_, ok = l.enter("c")
	require.False(t, ok, "all of them are bounded, too")
	for _, free := range leave {
		free()
	}
	free, ok := l.enter("c")
	require.True(t, ok)
	free()
	require.Zero(t, l.underWay.Load())
	require.Zero(t, l.shares.Keys())
}
