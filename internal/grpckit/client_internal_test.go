package grpckit

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// refusedEarly is a stream that was refused before anything was sent.
type refusedEarly struct {
	grpc.ClientStream
	lost error
}

func (s refusedEarly) SendMsg(any) error { return s.lost }
func (refusedEarly) RecvMsg(any) error   { return status.Error(codes.Unavailable, "refused") }

// TestUnanswered is about what gRPC gives when a server has refused a call before the request was sent.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	exhausted := fmt.Errorf("max retries exhausted: failed after 4 attempts: %w", io.EOF)
	k := caller{met: &atomic.Bool{}, large: &large{}}
	for name, lost := range map[string]error{"Tried": exhausted, "Once": io.EOF} {
		open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return refusedEarly{lost: lost}, nil
		}
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("Stream/%s/ManyRequests=%v", name, many), func(t *testing.T) {
				t.Parallel()
				s, err := k.stream(t.Context(), &grpc.StreamDesc{ClientStreams: many}, nil, "/s/m", open)
				require.NoError(t, err)
				if err := s.SendMsg(nil); many {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err, "RecvMsg tells")
				}
				require.True(t, errs.Is(s.RecvMsg(nil), errs.Unavailable))
			})
		}
	}
	t.Run("Call/IsAskedWhatTheAnswerWas", func(t *testing.T) {
		t.Parallel()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := StandIn(errs.New(errs.Unavailable, "REFUSED_EARLY", "no"), nil)
		served := make(chan error, 1)
		go func() { served <- server.Serve(lis) }()
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStreamInterceptor(k.stream))
		require.NoError(t, err)
		defer func() {
			require.NoError(t, conn.Close())
			server.Stop()
			require.NoError(t, <-served)
		}()
		lose := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return exhausted }
		err = k.unary(t.Context(), executorv1.ExecutorService_GetRun_FullMethodName, &executorv1.GetRunRequest{}, &executorv1.Run{}, conn, lose)
		require.Equal(t, "REFUSED_EARLY", errs.ReasonOf(err), "%v", err)
	})
	t.Run("Status/IsAnAnswer", func(t *testing.T) {
		t.Parallel()
		require.False(t, unanswered(nil))
		require.False(t, unanswered(status.Error(codes.Unavailable, "EOF")))
		require.True(t, unanswered(exhausted))
	})
}
