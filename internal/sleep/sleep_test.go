package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/sleep"
)

func TestFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		whole   bool
		slept   time.Duration
	}{
		"Whole":           {time.Hour, true, time.Minute},
		"CutByItsContext": {time.Second, false, time.Second},
		"ContextIsOver":   {0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				began := time.Now()
				require.Equal(t, tt.whole, sleep.For(ctx, time.Minute))
				require.Equal(t, tt.slept, time.Since(began))
			})
		})
	}
}
