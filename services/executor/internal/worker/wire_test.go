package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestNoWorkerParksARunForGood(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Minute: time.Minute, 1 << 62: workgraph.MaxRetryAfter} {
		err := errorOf(&executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_RETRYABLE, RetryAfter: durationpb.New(asked)})
		e, ok := errors.AsType[*workgraph.Error](err)
		require.True(t, ok)
		require.Equal(t, workgraph.Duration(want), e.RetryAfter)
	}
}
