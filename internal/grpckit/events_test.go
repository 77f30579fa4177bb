package grpckit_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// numbers is a stream of them, which ends with io.EOF.
type numbers []int

func (n *numbers) Recv() (int, error) {
	if len(*n) == 0 {
		return 0, io.EOF
	}
	first := (*n)[0]
	*n = (*n)[1:]
	return first, nil
}

func TestEvents(t *testing.T) {
	t.Parallel()
	t.Run("All/ThenWhyItEnded", func(t *testing.T) {
		t.Parallel()
		events, failed := grpckit.Events(t.Context(), &numbers{1, 2, 3})
		var got []int
		for n := range events {
			got = append(got, n)
		}
		require.Equal(t, []int{1, 2, 3}, got)
		require.Equal(t, io.EOF, <-failed)
	})
	t.Run("Canceled/LetsGoOfWhatNobodyTakes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			_, failed := grpckit.Events(ctx, &numbers{1})
			synctest.Wait()
			cancel()
			require.Equal(t, context.Canceled, <-failed)
		})
	})
}
