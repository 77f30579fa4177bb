package grpckit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/stats"

	"github.com/epigraph-run/epigraph/internal/inflight"
)

// TestForgottenMessage holds that a message which gRPC takes after its call has ended, and gives nothing back
// of, does not count any more.
func TestForgottenMessage(t *testing.T) {
	t.Parallel()
	b := inflight.New(0)
	ctx, cancel := context.WithCancel(writers{}.TagConn(t.Context(), &stats.ConnTagInfo{}))
	defer cancel()
	held := b.Answer("a")
	require.NoError(t, held.Hold(ctx, 1<<20))
	o := &outgoing{held: held, writes: writesOf(ctx), timeout: time.Minute}
	pieces := o.buffers(make([]byte, 1<<20))
	taken := &stats.OutPayload{Payload: o}
	writers{}.HandleRPC(ctx, taken)
	require.EqualValues(t, 1<<20, b.Used(), "it is on its way")
	cancel()
	writers{}.HandleRPC(ctx, taken)
	require.Zero(t, b.Used())
	require.Empty(t, o.writes.open)
	require.Nil(t, o.late, "its connection is not cut for it")
	pieces.Free() // if gRPC does know of it after all
	require.Zero(t, b.Used())
	require.Nil(t, o.late)
}
