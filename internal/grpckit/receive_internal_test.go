package grpckit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/inflight"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// A handler of a stream may return while a goroutine of its own waits for a message, as the handler of a
// worker does.
func TestReceiver(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	budget := inflight.New(64 << 20)
	waiting, arrived := make(chan struct{}), make(chan struct{})
	r := newReceiver(t.Context(), newInterned(), budget, 4*size, 0, func(v any) error {
		close(waiting)
		<-arrived
		in := v.(*incoming)
		in.err = in.share.Take(size)
		return nil
	})
	read := make(chan error)
	go func() { read <- r.next(context.Background(), &executorv1.GetRunRequest{}) }()
	<-waiting
	r.end()
	close(arrived)
	require.NoError(t, <-read)
	require.Zero(t, budget.Used(), "what came too late is given back")
	require.ErrorIs(t, r.next(t.Context(), &executorv1.GetRunRequest{}), context.Canceled)
}
