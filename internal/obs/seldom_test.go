package obs_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/obs"
)

func TestSeldom(t *testing.T) {
	t.Parallel()
	level := func(t *testing.T, s *obs.Seldom, kind string, want slog.Level, wantLeft int) {
		t.Helper()
		got, left := s.Level(kind, slog.LevelWarn)
		require.Equal(t, want, got)
		require.Equal(t, wantLeft, left)
	}

	t.Run("Seldom/OneOfEachKindInHalfAMinute", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var s obs.Seldom
			level(t, &s, "AWAY", slog.LevelWarn, 0)
			level(t, &s, "AWAY", slog.LevelDebug, 0)
			level(t, &s, "FULL", slog.LevelWarn, 0)
			time.Sleep(29 * time.Second) //nolint:forbidigo // fake time
			level(t, &s, "AWAY", slog.LevelDebug, 0)
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			level(t, &s, "AWAY", slog.LevelWarn, 2)
			level(t, &s, "AWAY", slog.LevelDebug, 0)
			level(t, &s, "FULL", slog.LevelWarn, 0)
			time.Sleep(30 * time.Second) //nolint:forbidigo // fake time
			level(t, &s, "AWAY", slog.LevelWarn, 1)
		})
	})
}
