package testkit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// failing is a test that records its failure and is stopped by a panic.
type failing struct{ failure string }

func (f *failing) Errorf(format string, args ...any) { f.failure += fmt.Sprintf(format, args...) }
func (f *failing) FailNow()                          { panic(f) }

func TestEventually(t *testing.T) {
	t.Run("Condition/HoldsLate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			testkit.Within(t, time.Minute, time.Second, func() bool { return time.Since(begin) >= 3*time.Second })
			require.Equal(t, 3*time.Second, time.Since(begin))
		})
	})
	t.Run("Condition/NeverHolds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &failing{}
			require.PanicsWithValue(t, f, func() { testkit.Within(f, time.Minute, time.Second, func() bool { return false }, "of %s", "it") })
			require.Contains(t, f.failure, "within 1m0s")
			require.Contains(t, f.failure, "of it")
		})
	})
	t.Run("Condition/FailsTheTestItself", func(t *testing.T) {
		f := &failing{}
		require.PanicsWithValue(t, f, func() {
			testkit.Within(f, time.Hour, time.Hour, func() bool { require.Fail(f, "at once"); return false })
		})
		require.Contains(t, f.failure, "at once")
	})
}
