package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func TestWords(t *testing.T) {
	t.Parallel()
	t.Run("State/InBothSpellings", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"canceled", "cancelled", "CANCELED"} { //nolint:misspell // users may type it so
			got, err := enums[executorv1.RunState]("--state", "RUN_STATE_", executorv1.RunState_value, []string{word})
			require.NoError(t, err)
			require.Equal(t, []executorv1.RunState{executorv1.RunState_RUN_STATE_CANCELED}, got)
		}
	})
	t.Run("Time/OfTheDayIsTheNext", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"00:00", "12:30", "23:59:59"} {
			at, err := later("--start-at", text)
			require.NoError(t, err)
			got := at.AsTime().In(time.Local)
			require.Contains(t, got.Format(time.TimeOnly), text)
			require.WithinRange(t, got, time.Now().Add(-time.Minute), time.Now().Add(25*time.Hour))
		}
		_, err := later("--start-at", "25:00")
		require.ErrorContains(t, err, "no time")
	})
}
