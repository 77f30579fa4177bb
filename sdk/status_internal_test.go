package epigraph

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
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

// refusedEarly is a stream that was refused before its request was sent.
type refusedEarly struct{ grpc.ClientStream }

func (refusedEarly) SendMsg(any) error { return io.EOF }
func (refusedEarly) RecvMsg(any) error { return status.Error(codes.Unavailable, "refused") }

func TestClientStream_RefusedEarly(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, true} {
		s := clientStream{refusedEarly{}, "127.0.0.1:1", many}
		if err := s.SendMsg(nil); many {
			require.Equal(t, io.EOF, err)
		} else {
			require.NoError(t, err, "RecvMsg tells")
		}
		require.ErrorContains(t, s.RecvMsg(nil), "refused")
	}
}
