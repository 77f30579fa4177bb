package epigraph

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gRPC says in the text of a status how often it tried; that is not what the server said.
func TestFromStatus_WithoutTheTriesOfGRPC(t *testing.T) {
	t.Parallel()
	err := fromStatus(fmt.Errorf("max retries exhausted: failed after 4 attempts: %w", status.Error(codes.Unavailable, "the database of the executor does not answer")), "127.0.0.1:1")
	e, ok := err.(*Error) //nolint:errorlint // it is what the function returns
	require.True(t, ok)
	require.Equal(t, "the database of the executor does not answer", e.Message)
}
