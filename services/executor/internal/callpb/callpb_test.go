package callpb_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestErrorType(t *testing.T) {
	seen := map[executorv1.ErrorType]bool{callpb.ErrorType("of later"): true}
	for _, et := range []workgraph.ErrorType{workgraph.Retryable, workgraph.Permanent, workgraph.Unknown, workgraph.NotPerformed} {
		seen[callpb.ErrorType(et)] = true
	}
	require.Len(t, seen, len(executorv1.ErrorType_name), "each type of the wire stands for one of the model")
}

func TestCount(t *testing.T) {
	require.Equal(t, int32(-7), callpb.Count(-7))
	require.Equal(t, int32(math.MaxInt32), callpb.Count(math.MaxInt32+1))
	require.Equal(t, int32(math.MinInt32), callpb.Count(math.MinInt32-1))
}
