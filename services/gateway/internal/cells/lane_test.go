package cells

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/grpckit"
)

func TestLane(t *testing.T) {
	// after says whether a service is left alone after five calls that ran out of time, for this cause.
	after := func(t *testing.T, cause error) (alone bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			l := &lane{Options: Options{Failures: 5, Pause: time.Second}}
			for range 5 {
				outer, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, cause)
				ctx, end := context.WithTimeout(outer, time.Minute) // as clients add
				time.Sleep(time.Millisecond)                        //nolint:forbidigo // the time of the bubble
				l.learn(ctx, context.Cause(ctx), false)
				end()
				cancel()
			}
			_, err := l.admit(time.Now())
			alone = err != nil
		})
		return alone
	}
	t.Run("Time/OfTheGatewayCounts", func(t *testing.T) { require.True(t, after(t, nil)) })
	t.Run("Time/OfACallerSaysNothingOfTheService", func(t *testing.T) { require.False(t, after(t, grpckit.ErrCallersTime)) })
}
