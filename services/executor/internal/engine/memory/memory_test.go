package memory_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Line/GrantedRoomIsKeptUntilTheClaim", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := memory.New(80 * mib)
			require.True(t, m.Try("a", 30*mib))
			in := make(chan error, 1)
			go func() { in <- m.Await(t.Context(), "run_large", &memory.FullError{Namespace: "a", Size: 100 * mib}) }()
			synctest.Wait()
			require.Empty(t, in)
			m.Add("a", -30*mib)
			require.NoError(t, <-in)
			require.EqualValues(t, 100*mib, m.Used())
			require.Equal(t, memory.Grant{Size: 100 * mib}, m.Claim("run_large"))
			require.Zero(t, m.Claim("run_large"))
		})
	})
	t.Run("Canceled/ReportsMemoryBeyondTheBudget", func(t *testing.T) {
		t.Parallel()
		m := memory.New(80 * mib)
		m.Add("a", 80*mib)
		_, ok := m.Take("run_1", "a", mib, false)
		require.False(t, ok)
		beyond, ok := m.Take("run_1", "a", mib, true)
		require.True(t, ok)
		require.EqualValues(t, mib, beyond)
		require.EqualValues(t, 81*mib, m.Used(), "it counts as every live run does")
		_, ok = m.Take("run_2", "a", 4*mib, true)
		require.False(t, ok, "others end first")
		beyond, ok = m.Take("run_3", "b", 4*mib, true)
		require.True(t, ok)
		require.Zero(t, beyond, "it has room like any other")
		require.NoError(t, m.Await(t.Context(), "run_4", &memory.FullError{Namespace: "b", Size: mib, Canceled: true}))
		m.Forfeit("run_4", "b")
		require.NoError(t, m.Await(t.Context(), "run_5", &memory.FullError{Namespace: "b", Size: mib, Canceled: true}))
		beyond, ok = m.Take("run_5", "b", 2*mib, true)
		require.True(t, ok)
		require.EqualValues(t, mib, beyond, "as much as is to be given back")
		require.EqualValues(t, 2*mib, m.Canceled.Used())
	})
	t.Run("Read/AsManyAtOnceAsWouldFit", func(t *testing.T) {
		t.Parallel()
		m := memory.New(80 * mib)
		require.True(t, m.Try("a", 30*mib))
		require.True(t, m.BeginRead(20*mib))
		require.True(t, m.BeginRead(20*mib))
		require.False(t, m.BeginRead(20*mib))
		m.EndRead()
		m.EndRead()
		require.True(t, m.Try("b", 30*mib))
		require.True(t, m.BeginRead(200*mib), "one always")
		require.False(t, m.BeginRead(20*mib))
	})
}
